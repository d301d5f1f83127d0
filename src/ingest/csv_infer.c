/* SPDX-License-Identifier: Apache-2.0
 *
 * csv_infer.c: infers the types of CSV columns.
 *
 * A column is integer, number or bool if all fields of the rows that are read are (007 is text),
 * else str. An empty field without quotes is missing, and makes a column nullable; "" is an empty
 * string. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "ingest/csv_unit.h"
#include "ingest/csv_value.h"
#include "shard/json_text.h"

typedef struct guess {
    bool missing, any, not_integer, not_real, not_bool;
    int64_t least;  /* the least integer below 0, or 0 */
    uint64_t large; /* an integer above int64, or 0 */
} guess;

static void look_at_field(guess *g, const rks_csv_field *f)
{
    int64_t integer = 0;
    uint64_t large = 0;
    double real;
    bool truth;
    if (f->size == 0 && !f->quoted) {
        g->missing = true;
        return;
    }
    g->any = true;
    g->not_integer =
        g->not_integer || (!rks_csv_integer(f, &integer) && !rks_csv_large_integer(f, &large));
    g->least = integer < g->least ? integer : g->least;
    g->large = large > g->large ? large : g->large;
    g->not_real = g->not_real || !rks_csv_real(f, &real);
    g->not_bool = g->not_bool || !rks_csv_truth(f, &truth);
}

/* Returns the type of a column. A column with only missing values is "json?", which any other type
 * replaces. */
static const char *guessed_type(const guess *g)
{
    if (!g->any)
        return "json?";
    if (!g->not_integer && g->large > 0)
        return g->missing ? "uint64?" : "uint64";
    return !g->not_integer ? (g->missing ? "int64?" : "int64")
           : !g->not_real  ? (g->missing ? "float64?" : "float64")
           : !g->not_bool  ? (g->missing ? "bool?" : "bool")
                           : (g->missing ? "str?" : "str");
}

/* Checks the schema. Its names come from the file, so errors in them are the file's errors. */
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

static rks_status write_schema(const rks_csv_header *h, const guess *guesses, const char *path,
                               char **text, rks_error *err)
{
    rks_buffer json = {0};
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < h->count; i++) {
        if (!guesses[i].not_integer && guesses[i].least < 0 && guesses[i].large > 0)
            status = rks_fail(err, RKS_ERR_DATA, 0,
                              "%s: column \"%.64s\" has %" PRId64 " and %" PRIu64
                              ", which no integer type holds together; give schema with str",
                              path, h->names[i], guesses[i].least, guesses[i].large);
        if (status == RKS_OK)
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

static rks_status look_at_rows(rks_csv_unit *r, const rks_input *input, size_t unit, guess *guesses,
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
            status = rks_csv_unit_split(r, &record, err);
        if (status == RKS_ERR_DATA && input->skip_bad) {
            status = RKS_OK; /* reading the unit counts and lists it */
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

static bool has(const rks_csv_header *h, const char *name)
{
    for (size_t i = 0; i < h->count; i++)
        if (strcmp(h->names[i], name) == 0)
            return true;
    return false;
}

/* Returns RKS_ERR_DATA naming the first column of `h` that the other header lacks. */
static rks_status check_has_all(const rks_csv_header *h, const char *path,
                                const rks_csv_header *other, const char *other_path, rks_error *err)
{
    for (size_t i = 0; i < h->count; i++)
        if (!has(other, h->names[i]))
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "%s has a column \"%.64s\", %s has none; give schema (\"TYPE?\" for "
                            "what may be missing), or columns if there is no header",
                            path, h->names[i], other_path);
    return RKS_OK;
}

/* Detects a header of one column that was meant as several: another separator. */
static rks_status check_separator(const rks_csv_header *h, const char *path, rks_error *err)
{
    static const char others[] = ";|\t,";
    size_t at = h->count == 1 ? strcspn(h->names[0], others) : 0;
    char other = h->count == 1 ? h->names[0][at] : '\0';
    if (other == '\0')
        return RKS_OK;
    const char *advice = other == '\t'  ? "format=tsv reads it"
                         : other == ',' ? "format=csv reads it"
                                        : "convert it to CSV";
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "%s: one column, called \"%.64s\"; are its fields separated by %s? %s (schema "
                    "takes it as it is)",
                    path, h->names[0], other == '\t' ? "tabs" : (char[]){'\'', other, '\'', '\0'},
                    advice);
}

/* Checks what an inferred schema would hide, but a given one may allow: fields that are not
 * separated, and columns that are null for whole files. */
static rks_status check_header(const rks_input *input, const rks_input_unit *unit,
                               const rks_csv_header *h, rks_error *err)
{
    const rks_input_file *file = &input->files[unit->first_file];
    const rks_input_file *first = &input->files[input->units[0].first_file];
    rks_csv_header other = {0};
    if (h->names[0][0] == '\0')
        return rks_fail(
            err, RKS_ERR_DATA, 0,
            "%s: column 1 has no name; if pandas wrote it: to_csv(index=False), or give "
            "schema without it; if there is no header: columns",
            file->path);
    if (input->columns != NULL || !unit->first_of_file)
        return RKS_OK;
    rks_status status = check_separator(h, file->path, err);
    if (status != RKS_OK || file == first)
        return status;
    status = rks_csv_header_read(input, first, &other, err);
    if (status == RKS_OK)
        status = check_has_all(&other, first->path, h, file->path, err);
    if (status == RKS_OK)
        status = check_has_all(h, file->path, &other, first->path, err);
    rks_csv_header_free(&other);
    return status;
}

rks_status rks_csv_infer(const rks_input *input, size_t unit, char **schema_text, rks_error *err)
{
    rks_csv_unit r;
    guess *guesses = NULL;
    uint64_t samples = 0;
    rks_status status = rks_csv_unit_open(&r, input, &input->units[unit], input->max_sample, err);
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
    rks_csv_unit_close(&r);
    return status;
}
