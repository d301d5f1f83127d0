/* SPDX-License-Identifier: Apache-2.0
 *
 * csv.c: CSV and TSV: a record a sample (csv_record.h), columns named by the first record of each
 * file, or by the option `columns`.
 *
 * Units: a file of at most unit_size, or a packed one, is one. A larger one is read through once,
 * by every rank, for the quotes that say where records end, and cut between records.
 *
 * Rows: records behind the header, from 0. A blank record holds no sample.
 *
 * Types, of the rows that are looked at: integers, numbers and true or false if all fields are such
 * (007 is text), else str; a field that is empty and not in quotes is missing, and makes a column
 * nullable; "" is an empty string.
 *
 * Values: numbers as in row.h; true and false in small, large or capital letters; bytes as they
 * are; lists and json as JSON. An empty field is missing in a nullable column, an empty string in a
 * str or bytes column, and else malformed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "ingest/csv_value.h"
#include "ingest/format.h"
#include "ingest/row.h"
#include "shard/json_text.h"

static bool is_csv(const char *name)
{
    return rks_name_ends(name, ".csv");
}

static bool is_tsv(const char *name)
{
    return rks_name_ends(name, ".tsv") || rks_name_ends(name, ".tab");
}

static char separator_of(const rks_input *input)
{
    return input->format == &rks_format_tsv ? '\t' : ',';
}

/* ---- units ----------------------------------------------------------------------------------- */

typedef struct cutting {
    rks_input *input;
    size_t file;
    uint64_t begin; /* of the unit that is open */
    uint64_t unit_size;
} cutting;

static rks_status add_unit(cutting *c, uint64_t end, rks_error *err)
{
    const rks_input_unit unit = {.first_file = c->file,
                                 .offset = c->begin,
                                 .size = end - c->begin,
                                 .first_of_file = c->begin == 0};
    c->begin = end;
    return rks_unit_add(c->input, unit, c->unit_size, err);
}

static rks_status cut_here(void *user, uint64_t offset, rks_error *err)
{
    return add_unit(user, offset, err);
}

static rks_status cut_csv(rks_input *input, uint64_t unit_size, rks_error *err)
{
    cutting c = {.input = input, .unit_size = unit_size};
    rks_status status = RKS_OK;
    for (; status == RKS_OK && c.file < input->file_count; c.file++) {
        uint64_t size = input->files[c.file].size;
        c.begin = 0;
        if (size > unit_size && input->files[c.file].packing == RKS_PACKING_NONE)
            status = rks_csv_cuts(&input->files[c.file], unit_size, cut_here, &c, err);
        if (status == RKS_OK && size > 0)
            status = add_unit(&c, size, err);
    }
    return status;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The columns of a file: names in order. */
typedef struct header {
    char *text; /* the names, each with its NUL */
    const char **names;
    size_t count;
} header;

static void free_header(header *h)
{
    rks_free(h->text);
    rks_free(h->names);
    *h = (header){0};
}

static rks_status check_header_name(const header *h, size_t at, const char *path, rks_error *err)
{
    if (h->names[at][0] == '\0')
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: column %zu has no name; where the first record holds values, give "
                        "the names by --columns",
                        path, at + 1);
    for (size_t k = 0; k < at; k++)
        if (strcmp(h->names[k], h->names[at]) == 0)
            return rks_fail(err, RKS_ERR_DATA, 0, "%s: two columns are called \"%.64s\"", path,
                            h->names[at]);
    return RKS_OK;
}

/* The record's fields are the names. */
static rks_status make_header(header *h, rks_csv_record *record, char separator, const char *path,
                              rks_error *err)
{
    rks_csv_field *fields = rks_alloc(RKS_COLUMNS_MAX, sizeof(*fields), err);
    size_t size = 0;
    rks_error inner = {0};
    if (fields == NULL)
        return RKS_ERR_MEMORY;
    rks_status status =
        rks_csv_fields(record, separator, fields, RKS_COLUMNS_MAX, &h->count, &inner);
    if (status != RKS_OK)
        status = rks_fail(err, status, 0, "%s: header: %s", path, inner.text);
    else if (h->count > RKS_COLUMNS_MAX)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: header: %zu columns, at most %d", path,
                          h->count, RKS_COLUMNS_MAX);
    for (size_t i = 0; status == RKS_OK && i < h->count; i++)
        size += fields[i].size + 1;
    if (status == RKS_OK) {
        h->text = rks_alloc(size, 1, err);
        h->names = rks_alloc(h->count, sizeof(*h->names), err);
        status = h->text == NULL || h->names == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    char *at = h->text;
    for (size_t i = 0; status == RKS_OK && i < h->count; i++) {
        if (memchr(fields[i].text, '\0', fields[i].size) != NULL || fields[i].size > 255)
            status = rks_fail(err, RKS_ERR_DATA, 0,
                              "%s: header: column %zu: no name of 1 to 255 "
                              "bytes",
                              path, i + 1);
        memcpy(at, fields[i].text, fields[i].size);
        h->names[i] = at;
        at += fields[i].size + 1;
        if (status == RKS_OK)
            status = check_header_name(h, i, path, err);
    }
    rks_free(fields);
    return status;
}

/* From the option, or from the file's first record. */
static rks_status read_header(const rks_input *input, const rks_input_file *file, header *h,
                              rks_error *err)
{
    rks_csv csv = {0};
    rks_csv_record record = {0};
    rks_status status;
    if (input->columns != NULL) {
        char *copy = rks_strdup(input->columns, err);
        if (copy == NULL)
            return RKS_ERR_MEMORY;
        record = (rks_csv_record){.text = (uint8_t *)copy, .size = strlen(copy), .quoted = true};
        status = make_header(h, &record, ',', "columns", err);
        rks_free(copy);
        return status;
    }
    status = rks_csv_open(&csv, file, 0, file->size, 1 << 20, err);
    if (status == RKS_OK)
        status = rks_csv_next(&csv, &record, err);
    if (status == RKS_OK && (record.text == NULL || record.too_long))
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: its first record is no header", file->path);
    if (status == RKS_OK)
        status = make_header(h, &record, separator_of(input), file->path, err);
    rks_csv_close(&csv);
    return status;
}

/* ---- records of a unit ----------------------------------------------------------------------- */

typedef struct unit_reader {
    rks_csv csv;
    header header;
    rks_csv_field *fields;
    size_t count; /* fields of the record at hand */
    char separator;
} unit_reader;

static void close_unit(unit_reader *r)
{
    rks_csv_close(&r->csv);
    free_header(&r->header);
    rks_free(r->fields);
}

static rks_status open_unit(unit_reader *r, const rks_input *input, const rks_input_unit *unit,
                            uint64_t limit, rks_error *err)
{
    const rks_input_file *file = &input->files[unit->first_file];
    rks_csv_record skipped;
    *r = (unit_reader){.separator = separator_of(input)};
    rks_status status = read_header(input, file, &r->header, err);
    if (status == RKS_OK) {
        r->fields = rks_alloc(r->header.count, sizeof(*r->fields), err);
        status = r->fields == NULL
                     ? RKS_ERR_MEMORY
                     : rks_csv_open(&r->csv, file, unit->offset, unit->size, limit, err);
    }
    if (status == RKS_OK && unit->offset == 0 && input->columns == NULL)
        status = rks_csv_next(&r->csv, &skipped, err);
    return status;
}

/* The fields of a record; RKS_ERR_DATA where they are malformed or not as many as names. */
static rks_status split(unit_reader *r, rks_csv_record *record, rks_error *err)
{
    rks_status status =
        rks_csv_fields(record, r->separator, r->fields, r->header.count, &r->count, err);
    if (status == RKS_OK && r->count != r->header.count)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%zu fields, there are %zu columns", r->count,
                          r->header.count);
    return status;
}

static rks_status count_csv_rows(const rks_input *input, size_t unit, uint64_t *rows,
                                 rks_error *err)
{
    unit_reader r;
    rks_csv_record record;
    uint64_t count = 0;
    rks_status status = open_unit(&r, input, &input->units[unit], input->max_sample, err);
    while (status == RKS_OK) {
        status = rks_csv_next(&r.csv, &record, err);
        if (status != RKS_OK || record.text == NULL)
            break;
        count++;
    }
    close_unit(&r);
    if (status == RKS_OK)
        *rows = count;
    return status;
}

/* ---- types ----------------------------------------------------------------------------------- */

typedef struct guess {
    bool missing, any, not_integer, not_real, not_bool;
} guess;

static void look_at_field(guess *g, const rks_csv_field *f)
{
    int64_t integer;
    double real;
    bool truth;
    if (f->size == 0 && !f->quoted) {
        g->missing = true;
        return;
    }
    g->any = true;
    g->not_integer = g->not_integer || !rks_csv_integer(f, &integer);
    g->not_real = g->not_real || !rks_csv_real(f, &real);
    g->not_bool = g->not_bool || !rks_csv_truth(f, &truth);
}

/* A column of nothing but missing values is "json?", which any other type takes the place of. */
static const char *guessed_type(const guess *g)
{
    if (!g->any)
        return "json?";
    return !g->not_integer ? (g->missing ? "int64?" : "int64")
           : !g->not_real  ? (g->missing ? "float64?" : "float64")
           : !g->not_bool  ? (g->missing ? "bool?" : "bool")
                           : (g->missing ? "str?" : "str");
}

/* The names are the file's, so what is wrong with them is, too. */
static rks_status check_schema_text(const char *text, const char *path, rks_error *err)
{
    rks_schema *schema = NULL;
    rks_error why = {0};
    rks_status status = rks_schema_parse(text, &schema, &why);
    rks_schema_free(schema);
    if (status == RKS_ERR_ARGUMENT)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: header: %s", path, why.text);
    if (status != RKS_OK)
        *err = why;
    return status;
}

static rks_status write_schema(const header *h, const guess *guesses, const char *path, char **text,
                               rks_error *err)
{
    rks_buffer json = {0};
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < h->count; i++) {
        status = rks_buffer_print(&json, err, i == 0 ? "{" : ",");
        if (status == RKS_OK)
            status = rks_json_put_string(&json, h->names[i], err);
        if (status == RKS_OK)
            status = rks_buffer_print(&json, err, ":\"%s\"", guessed_type(&guesses[i]));
    }
    if (status == RKS_OK)
        status = rks_buffer_add(&json, "}", 2, err); /* with its NUL */
    if (status == RKS_OK)
        status = check_schema_text((const char *)json.data, path, err);
    if (status != RKS_OK) {
        rks_buffer_free(&json);
        return status;
    }
    *text = (char *)json.data;
    return RKS_OK;
}

static rks_status fail_at(const char *path, uint64_t row, rks_error *err)
{
    rks_error inner = *err;
    return rks_fail(err, (rks_status)inner.status, inner.cause, "%s: row %" PRIu64 ": %s", path,
                    row, inner.text);
}

static rks_status look_at_rows(unit_reader *r, const rks_input *input, size_t unit, guess *guesses,
                               uint64_t *samples, rks_error *err)
{
    const rks_input_unit *at = &input->units[unit];
    rks_status status = RKS_OK;
    for (uint64_t row = 0; status == RKS_OK && row < input->infer_rows &&
                           r->csv.window.position - at->offset < rks_infer_bytes(input, unit);
         row++) {
        rks_csv_record record;
        status = rks_csv_next(&r->csv, &record, err);
        if (status != RKS_OK || record.text == NULL)
            break;
        if (record.too_long)
            status = rks_fail(err, RKS_ERR_DATA, 0, "%zu bytes, above max_sample (%" PRIu64 ")",
                              record.size, input->max_sample);
        else if (record.size > 0)
            status = split(r, &record, err);
        if (status == RKS_ERR_DATA && input->skip_bad) {
            status = RKS_OK; /* it is counted and listed when it is read */
            continue;
        }
        if (status != RKS_OK)
            return fail_at(input->files[at->first_file].path, row, err);
        for (size_t i = 0; record.size > 0 && i < r->header.count; i++)
            look_at_field(&guesses[i], &r->fields[i]);
        *samples += record.size > 0;
    }
    return status;
}

static bool has(const header *h, const char *name)
{
    for (size_t i = 0; i < h->count; i++)
        if (strcmp(h->names[i], name) == 0)
            return true;
    return false;
}

/* RKS_ERR_DATA naming the first column of `h` that the other lacks. */
static rks_status check_has_all(const header *h, const char *path, const header *other,
                                const char *other_path, rks_error *err)
{
    for (size_t i = 0; i < h->count; i++)
        if (!has(other, h->names[i]))
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "%s has a column \"%.64s\", %s has none; give --schema (\"TYPE?\" for "
                            "what may be missing), or --columns where there is no header",
                            path, h->names[i], other_path);
    return RKS_OK;
}

/* A header of one column that is not meant as one: another separator. */
static rks_status check_separator(const header *h, const char *path, rks_error *err)
{
    static const char others[] = ";|\t,";
    size_t at = h->count == 1 ? strcspn(h->names[0], others) : 0;
    char other = h->count == 1 ? h->names[0][at] : '\0';
    if (other == '\0')
        return RKS_OK;
    const char *advice = other == '\t'  ? "--format tsv reads it"
                         : other == ',' ? "--format csv reads it"
                                        : "convert it to CSV";
    return rks_fail(
        err, RKS_ERR_DATA, 0,
        "%s: one column, called \"%.64s\"; are its fields separated by %s? %s (--schema "
        "takes it as it is)",
        path, h->names[0], other == '\t' ? "tabs" : (char[]){'\'', other, '\'', '\0'}, advice);
}

/* What a schema that is inferred would hide: fields that are not separated, and columns that are
 * null for whole files, which one that is given allows. */
static rks_status check_header(const rks_input *input, const rks_input_unit *unit, const header *h,
                               rks_error *err)
{
    const rks_input_file *file = &input->files[unit->first_file];
    const rks_input_file *first = &input->files[input->units[0].first_file];
    header other = {0};
    if (input->columns != NULL || !unit->first_of_file)
        return RKS_OK;
    rks_status status = check_separator(h, file->path, err);
    if (status != RKS_OK || file == first)
        return status;
    status = read_header(input, first, &other, err);
    if (status == RKS_OK)
        status = check_has_all(&other, first->path, h, file->path, err);
    if (status == RKS_OK)
        status = check_has_all(h, file->path, &other, first->path, err);
    free_header(&other);
    return status;
}

static rks_status infer_csv(const rks_input *input, size_t unit, char **schema_text, rks_error *err)
{
    unit_reader r;
    guess *guesses = NULL;
    uint64_t samples = 0;
    rks_status status = open_unit(&r, input, &input->units[unit], input->max_sample, err);
    if (status == RKS_OK)
        status = check_header(input, &input->units[unit], &r.header, err);
    if (status == RKS_OK) {
        guesses = rks_alloc(r.header.count, sizeof(*guesses), err);
        status = guesses == NULL ? RKS_ERR_MEMORY
                                 : look_at_rows(&r, input, unit, guesses, &samples, err);
    }
    if (status == RKS_OK && samples > 0)
        status = write_schema(&r.header, guesses, input->files[input->units[unit].first_file].path,
                              schema_text, err);
    rks_free(guesses);
    close_unit(&r);
    return status;
}

enum { NUMBER_ROOM = 16 }; /* an empty list has a place too */

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct taker {
    unit_reader reader;
    const rks_schema *schema;
    int *columns; /* of each field; -1: passed over */
    rks_value *values;
    size_t *places; /* of a value in `store`; SIZE_MAX: it lies elsewhere */
    rks_buffer store;
    rks_json_parser parser;
} taker;

static rks_status no_value(const rks_column *column, const rks_csv_field *f, rks_error *err)
{
    if (f->size == 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\": empty, and %s is never missing",
                        column->name, column->type);
    return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\": '%.*s%s' does not fit %s", column->name,
                    f->size < 40 ? (int)f->size : 40, f->text, f->size < 40 ? "" : "...",
                    column->type);
}

/* What JSON says: lists, json, and numbers of the rarer types. */
static rks_status put_json(taker *t, const rks_column *column, const rks_csv_field *f,
                           rks_value *value, rks_error *err)
{
    size_t begin = t->store.size;
    rks_json json = {0};
    rks_error why = {0};
    rks_status status = rks_json_read(&t->parser, (const uint8_t *)f->text, f->size, f->size, &json,
                                      &why);
    if (status == RKS_ERR_DATA)
        return no_value(column, f, err);
    if (status != RKS_OK)
        return rks_fail(err, status, why.cause, "%s", why.text);
    if (column->kind != RKS_KIND_JSON)
        return rks_json_convert(column, json, f->size, &t->store, value, err);
    status = rks_json_print(json, &t->store, err);
    value->size = t->store.size - begin;
    value->dims[0] = (uint32_t)value->size;
    return status;
}

/* There is room for a number. */
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
    rks_status status = split(&t->reader, record, err);
    t->store.size = 0;
    for (size_t i = 0; status == RKS_OK && i < t->reader.header.count; i++)
        if (t->columns[i] >= 0)
            status = put_field(t, (uint32_t)t->columns[i], &t->reader.fields[i], err);
    if (status != RKS_OK)
        return status;
    for (uint32_t i = 0; i < rks_schema_columns(t->schema); i++)
        if (t->places[i] != SIZE_MAX)
            t->values[i].data = t->store.data + t->places[i];
    return rks_job_offer(job, t->values, err);
}

/* Which column each field is, and that no column is left without. */
static rks_status match_columns(rks_job *job, taker *t, const char *path, rks_error *err)
{
    const header *h = &t->reader.header;
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
    char row[32];
    const rks_place place = {.path = path, .member = row};
    rks_csv_record record;
    rks_status status = RKS_OK;
    while (status == RKS_OK) {
        status = rks_csv_next(&t->reader.csv, &record, err);
        if (status != RKS_OK || record.text == NULL)
            break;
        if (rks_job_takes(job))
            status = add_csv_row(job, t, &record, err);
        if (status != RKS_OK)
            snprintf(row, sizeof(row), "row %" PRIu64, job->first_row + job->rows);
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
    rks_status status = open_unit(&t.reader, job->input, job->unit, job->max_sample, err);
    if (status == RKS_OK &&
        ((t.columns = rks_alloc(t.reader.header.count, sizeof(*t.columns), err)) == NULL ||
         (t.values = rks_alloc(count, sizeof(*t.values), err)) == NULL ||
         (t.places = rks_alloc(count, sizeof(*t.places), err)) == NULL))
        status = RKS_ERR_MEMORY;
    if (status == RKS_OK)
        status = match_columns(job, &t, path, err);
    if (status == RKS_OK)
        status = read_records(job, &t, path, err);
    close_unit(&t.reader);
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
    .takes_columns = true,
    .cut = cut_csv,
    .count_rows = count_csv_rows,
    .infer = infer_csv,
    .read = read_csv_unit,
};

const rks_input_format rks_format_tsv = {
    .name = "tsv",
    .is_named = is_tsv,
    .packable = true,
    .utf8 = true,
    .takes_columns = true,
    .cut = cut_csv,
    .count_rows = count_csv_rows,
    .infer = infer_csv,
    .read = read_csv_unit,
};
