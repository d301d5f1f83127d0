/* SPDX-License-Identifier: Apache-2.0
 *
 * csv.c: CSV and TSV: each record is a sample (csv_record.h). The first record of each file, or the
 * option `columns`, names the columns.
 *
 * Units: a file of at most unit_size, or a packed one, is one unit. Every rank reads a larger file
 * once, for the quotes that show where records end, and cuts it between records.
 *
 * Rows: records after the header, counted from 0. A blank record holds no sample.
 *
 * Values: numbers as in row.h; true and false in lower case, upper case or capitalised; bytes as
 * they are; lists and json as JSON. An empty field is missing in a nullable column, an empty string
 * in a str or bytes column, and malformed in any other. */
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "ingest/csv_unit.h"
#include "ingest/csv_value.h"
#include "ingest/row.h"

static bool is_csv(const char *name)
{
    return rks_name_ends(name, ".csv");
}

static bool is_tsv(const char *name)
{
    return rks_name_ends(name, ".tsv") || rks_name_ends(name, ".tab");
}

/* ---- units ----------------------------------------------------------------------------------- */

typedef struct cutting {
    rks_input *input;
    size_t file;
    uint64_t begin; /* start of the open unit */
    uint64_t unit_size;
} cutting;

static rks_status cut_here(void *user, uint64_t end, rks_error *err)
{
    cutting *c = user;
    uint64_t begin = c->begin;
    c->begin = end;
    return rks_unit_of_bytes(c->input, c->file, begin, end, c->unit_size, err);
}

static rks_status cut_csv(rks_input *input, uint64_t unit_size, rks_error *err)
{
    cutting c = {.input = input, .unit_size = unit_size};
    rks_status status = RKS_OK;
    for (; status == RKS_OK && c.file < input->file_count; c.file++) {
        uint64_t size = input->files[c.file].size;
        c.begin = 0;
        if (size > unit_size && !rks_file_is_whole(&input->files[c.file]))
            status = rks_csv_cuts(&input->files[c.file], unit_size, cut_here, &c, err);
        if (status == RKS_OK && size > 0)
            status = cut_here(&c, size, err);
    }
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static rks_status count_csv_rows(const rks_input *input, size_t unit, uint64_t *rows,
                                 rks_error *err)
{
    rks_csv_unit r;
    rks_csv_record record;
    uint64_t count = 0;
    rks_status status = rks_csv_unit_open(&r, input, &input->units[unit], input->max_sample, err);
    while (status == RKS_OK) {
        status = rks_csv_next(&r.csv, &record, err);
        if (status != RKS_OK || record.text == NULL)
            break;
        count++;
    }
    rks_csv_unit_close(&r);
    if (status == RKS_OK)
        *rows = count;
    return status;
}

enum { NUMBER_ROOM = 16 }; /* an empty list has a place, too */

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct taker {
    rks_csv_unit reader;
    const rks_schema *schema;
    int *columns; /* column of each field; -1 if skipped */
    rks_value *values;
    size_t *places; /* place of a value in `store`; SIZE_MAX if it lies elsewhere */
    rks_buffer store;
    rks_json_parser parser;
} taker;

static rks_status no_value(const rks_column *column, const rks_csv_field *f, rks_error *err)
{
    if (f->size == 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\": empty, and %s is never missing",
                        column->name, column->type);
    char shown[RKS_SHOWN_ROOM];
    return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\": '%s' does not fit %s", column->name,
                    rks_text_shown(f->text, f->size, shown), column->type);
}

/* Reads a field as JSON: lists, json, and numbers of the rarer types. */
static rks_status put_json(taker *t, const rks_column *column, const rks_csv_field *f,
                           rks_value *value, rks_error *err)
{
    size_t begin = t->store.size;
    rks_json json = {0};
    rks_error why = {0};
    t->parser.takes_specials = true;
    rks_status status =
        rks_json_read(&t->parser, (const uint8_t *)f->text, f->size, f->size, &json, &why);
    if (status == RKS_ERR_DATA)
        return no_value(column, f, err);
    if (status != RKS_OK)
        return rks_fail(err, status, why.cause, "%s", why.text);
    if (column->kind != RKS_KIND_JSON)
        return rks_json_convert(column, json, f->size, &t->store, value, err);
    status = rks_json_print_column(column, json, &t->store, err);
    value->size = t->store.size - begin;
    value->dims[0] = (uint32_t)value->size;
    return status;
}

/* Reads a scalar. The store has room for a number. */
static rks_status put_scalar(taker *t, const rks_column *column, const rks_csv_field *f,
                             rks_value *value, rks_error *err)
{
    int64_t integer = 0;
    double real = 0;
    bool truth;
    const void *bytes = NULL;
    if (column->kind == RKS_KIND_BOOL && rks_csv_truth(f, &truth))
        bytes = &truth;
    else if (column->kind == RKS_KIND_INT64 && rks_csv_integer(f, &integer))
        bytes = &integer;
    else if (column->kind == RKS_KIND_FLOAT64 && rks_csv_real(f, &real))
        bytes = &real;
    if (bytes == &real && !rks_csv_holds(f, real))
        return rks_fail_rounded(column, f->text, f->size, real, err);
    if (bytes == NULL)
        return column->kind == RKS_KIND_BOOL ? no_value(column, f, err)
                                             : put_json(t, column, f, value, err);
    value->size = column->item_size;
    memcpy(t->store.data + t->store.size, bytes, column->item_size);
    t->store.size += column->item_size;
    return RKS_OK;
}

static rks_status put_field(taker *t, uint32_t at, const rks_csv_field *f, rks_error *err)
{
    const rks_column *column = rks_schema_column(t->schema, at);
    rks_value *value = &t->values[at];
    bool text = column->kind == RKS_KIND_STR || column->kind == RKS_KIND_BYTES;
    *value = (rks_value){0};
    t->places[at] = SIZE_MAX;
    if (f->size == 0 && !f->quoted && column->nullable)
        return RKS_OK;
    if (text) {
        value->data = f->text;
        value->size = f->size;
        value->dims[0] = (uint32_t)f->size;
        return RKS_OK;
    }
    size_t place = rks_round_up(t->store.size, 8); /* callbacks may read numbers in place */
    rks_status status = rks_buffer_reserve(&t->store, place - t->store.size + NUMBER_ROOM, err);
    if (status != RKS_OK)
        return status;
    memset(t->store.data + t->store.size, 0, place - t->store.size);
    t->store.size = t->places[at] = place;
    return column->dim_count == 0 ? put_scalar(t, column, f, value, err)
                                  : put_json(t, column, f, value, err);
}

static rks_status add_csv_row(rks_job *job, taker *t, rks_csv_record *record, rks_error *err)
{
    if (record->too_long)
        return rks_job_too_long(job, record->size, err);
    if (record->size == 0)
        return RKS_OK;
    rks_status status = rks_csv_unit_split(&t->reader, record, err);
    t->store.size = 0;
    for (size_t i = 0; status == RKS_OK && i < t->reader.header.count; i++)
        if (t->columns[i] >= 0)
            status = put_field(t, (uint32_t)t->columns[i], &t->reader.fields[i], err);
    if (status != RKS_OK)
        return status;
    for (uint32_t i = 0; i < rks_schema_columns(t->schema); i++)
        if (t->places[i] != SIZE_MAX)
            t->values[i].data = t->store.data + t->places[i];
    return rks_job_emit(job, t->values, err);
}

/* Finds the column of each field, and checks that no required column lacks a field. */
static rks_status match_columns(rks_job *job, taker *t, const char *path, rks_error *err)
{
    const rks_csv_header *h = &t->reader.header;
    for (size_t i = 0; i < h->count; i++) {
        t->columns[i] = rks_schema_find(t->schema, h->names[i]);
        if (t->columns[i] < 0 && rks_job_refuses_extra(job))
            return rks_fail_no_column(job->schema_from, path, h->names[i], err);
    }
    for (uint32_t column = 0; column < rks_schema_columns(t->schema); column++) {
        bool there = rks_schema_column(t->schema, column)->nullable;
        t->places[column] = SIZE_MAX;
        for (size_t i = 0; i < h->count && !there; i++)
            there = t->columns[i] == (int)column;
        if (!there)
            return rks_fail(err, RKS_ERR_DATA, 0, "%s: there is no column \"%.64s\"", path,
                            rks_schema_name(t->schema, column));
    }
    return RKS_OK;
}

static rks_status read_records(rks_job *job, taker *t, const char *path, rks_error *err)
{
    const rks_place place = {.path = path, .called = "row"};
    rks_csv_record record;
    rks_status status = RKS_OK;
    while (status == RKS_OK) {
        status = rks_csv_next(&t->reader.csv, &record, err);
        if (status != RKS_OK || record.text == NULL)
            break;
        if (rks_job_is_sampled(job))
            status = add_csv_row(job, t, &record, err);
        status = rks_job_row(job, &place, status, err);
        if (status == RKS_OK)
            status =
                rks_job_tick(job, rks_window_done(&t->reader.csv.window) - job->unit->offset, err);
    }
    return status;
}

static rks_status read_csv_unit(rks_job *job, rks_error *err)
{
    const char *path = job->input->files[job->unit->first_file].path;
    uint32_t count = rks_schema_columns(job->schema);
    taker t = {.schema = job->schema};
    rks_status status = rks_csv_unit_open(&t.reader, job->input, job->unit, job->max_sample, err);
    if (status == RKS_OK &&
        ((t.columns = rks_alloc(t.reader.header.count, sizeof(*t.columns), err)) == NULL ||
         (t.values = rks_alloc(count, sizeof(*t.values), err)) == NULL ||
         (t.places = rks_alloc(count, sizeof(*t.places), err)) == NULL))
        status = RKS_ERR_MEMORY;
    if (status == RKS_OK)
        status = match_columns(job, &t, path, err);
    if (status == RKS_OK)
        status = read_records(job, &t, path, err);
    rks_csv_unit_close(&t.reader);
    rks_free(t.columns);
    rks_free(t.values);
    rks_free(t.places);
    rks_json_parser_free(&t.parser);
    rks_buffer_free(&t.store);
    return status;
}

const rks_input_format rks_format_csv = {
    .name = "csv",
    .is_named = is_csv,
    .packable = true,
    .utf8 = true,
    .reads = RKS_READS_ON,
    .takes_columns = true,
    .cut = cut_csv,
    .count_rows = count_csv_rows,
    .infer = rks_csv_infer,
    .read = read_csv_unit,
};

const rks_input_format rks_format_tsv = {
    .name = "tsv",
    .is_named = is_tsv,
    .packable = true,
    .utf8 = true,
    .reads = RKS_READS_ON,
    .takes_columns = true,
    .cut = cut_csv,
    .count_rows = count_csv_rows,
    .infer = rks_csv_infer,
    .read = read_csv_unit,
};
