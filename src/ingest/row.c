/* SPDX-License-Identifier: Apache-2.0
 *
 * row.c: matches a JSON object's members to columns. Strings are not copied: they stay where the
 * parser put them. Numbers go to one buffer, which may move, so pointers are set at the end. */
#include "ingest/row.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/secret.h"

rks_status rks_row_create(const rks_schema *schema, rks_schema_from from, rks_row **row,
                          rks_error *err)
{
    uint32_t count = rks_schema_columns(schema);
    rks_row *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->schema = schema;
    made->from = from;
    made->refuses_extra = from != RKS_SCHEMA_GIVEN;
    made->extra_column = -1;
    made->values = rks_alloc(count, sizeof(*made->values), err);
    if (made->values != NULL)
        made->places = rks_alloc(count, sizeof(*made->places), err);
    if (made->places != NULL)
        made->seen = rks_alloc(count, sizeof(*made->seen), err);
    if (made->seen != NULL)
        made->stored = rks_alloc(count, sizeof(*made->stored), err);
    if (made->stored == NULL) {
        rks_row_free(made);
        return RKS_ERR_MEMORY;
    }
    *row = made;
    return RKS_OK;
}

void rks_row_free(rks_row *row)
{
    if (row == NULL)
        return;
    rks_json_parser_free(&row->parser);
    rks_buffer_free(&row->store);
    rks_buffer_free(&row->extra);
    rks_buffer_free(&row->extra_names);
    rks_free(row->stored);
    rks_free(row->seen);
    rks_free(row->places);
    rks_free(row->values);
    rks_free(row);
}

bool rks_line_is_blank(const uint8_t *line, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

/* Returns advice if this first line begins JSON that spans several lines; else NULL. */
static const char *lines_advice(const uint8_t *line, size_t size)
{
    size_t at = 0;
    while (at < size && (line[at] == ' ' || (line[at] >= '\t' && line[at] <= '\r')))
        at++;
    if (at < size && line[at] == '[')
        return "this looks like a JSON array over several lines; use format=json";
    while (size > at && (line[size - 1] == ' ' || line[size - 1] == '\r'))
        size--;
    return size - at == 1 && line[at] == '{'
               ? "this looks like a JSON object over several lines; write one object a line (jq -c "
                 ". "
                 "FILE), or use json_path=NAME if it has an array of them"
               : NULL;
}

rks_status rks_json_line(rks_json_parser *parser, const uint8_t *line, size_t size, size_t readable,
                         rks_json *root, rks_error *err)
{
    rks_json parsed = {0};
    rks_error why = {0};
    parser->takes_specials = true;
    rks_status status = rks_json_read(parser, line, size, readable, &parsed, &why);
    if (status != RKS_OK) {
        const char *advice = status == RKS_ERR_DATA ? lines_advice(line, size) : NULL;
        return rks_fail(err, status, why.cause, "%s%s%s", why.text, advice == NULL ? "" : "; ",
                        advice == NULL ? "" : advice);
    }
    if (!rks_json_is(parsed, RKS_JSON_OBJECT)) {
        bool list = rks_json_is(parsed, RKS_JSON_LIST);
        return rks_fail(err, RKS_ERR_DATA, 0, "%s where a JSON object must be%s",
                        rks_json_kind(parsed),
                        list ? "; for an array of objects: format=json" : "");
    }
    *root = parsed;
    return RKS_OK;
}

rks_status rks_fail_at_row(rks_error *err, const char *path, uint64_t row)
{
    rks_error inner = *err;
    return rks_fail(err, (rks_status)inner.status, inner.cause, "%s:%" PRIu64 ": %s", path, row + 1,
                    inner.text);
}

rks_status rks_fail_no_column(rks_schema_from from, const char *path, const char *name,
                              rks_error *err)
{
    const char *advice = from == RKS_SCHEMA_GIVEN ? "that is given; extra=drop leaves it out"
                         : from == RKS_SCHEMA_KEPT
                             ? "of the dataset; to leave it out, give that schema"
                             : "inferred from the first rows; give schema";
    return rks_fail(err, RKS_ERR_DATA, 0, "%s%scolumn \"%.64s\" is not in the schema %s",
                    path == NULL ? "" : path, path == NULL ? "" : ": ", name, advice);
}

/* Names are short: a loop is faster than a call. */
static inline bool same_text(const char *a, const char *b)
{
    while (*a == *b && *a != '\0') {
        a++;
        b++;
    }
    return *a == *b;
}

/* Reads {"base64": "..."}, as exports write bytes. */
static rks_status read_base64(rks_row *row, uint32_t at, rks_json json, rks_error *err)
{
    const rks_column *column = rks_schema_column(row->schema, at);
    size_t place = row->store.size, size = 0;
    bool good = rks_json_count(json) == 1;
    rks_json name = rks_json_inside(json);
    good = good && strcmp(rks_json_text(name, &size), "base64") == 0;
    rks_json text = good ? rks_json_next(name) : (rks_json){0};
    good = rks_json_is(text, RKS_JSON_STRING);
    rks_status status = rks_buffer_reserve(&row->store, 1, err);
    if (status == RKS_OK && good) {
        const char *string = rks_json_text(text, &size);
        status = rks_base64_decode(string, size, &row->store, &good, err);
    }
    if (status == RKS_OK && !good)
        return rks_fail(
            err, RKS_ERR_DATA, 0,
            "column \"%s\": an object that is not {\"base64\": \"...\"} does not fit %s",
            column->name, column->type);
    row->stored[at] = true;
    row->places[at] = place;
    row->values[at].size = row->store.size - place;
    row->values[at].dims[0] = (uint32_t)row->values[at].size;
    return status;
}

static rks_status read_json_value(rks_row *row, uint32_t at, rks_json json, rks_error *err)
{
    const rks_column *column = rks_schema_column(row->schema, at);
    rks_value *value = &row->values[at];
    rks_status status;
    row->seen[at] = true;
    *value = (rks_value){0};
    row->stored[at] = false;
    if (column->nullable && rks_json_is(json, RKS_JSON_NULL))
        return RKS_OK;
    if (column->kind == RKS_KIND_BYTES && rks_json_is(json, RKS_JSON_OBJECT))
        return read_base64(row, at, json, err);
    if (column->kind == RKS_KIND_STR || column->kind == RKS_KIND_BYTES) {
        size_t size = 0;
        if (!rks_json_is(json, RKS_JSON_STRING))
            return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\": %s does not fit %s", column->name,
                            rks_json_kind(json), column->type);
        value->data = rks_json_text(json, &size);
        value->size = size;
        value->dims[0] = (uint32_t)size;
        return RKS_OK;
    }
    size_t place = rks_round_up(row->store.size, 8); /* callbacks may read numbers in place */
    status = rks_buffer_reserve(&row->store, place - row->store.size + 1, err);
    if (status != RKS_OK)
        return status;
    row->store.size = place;
    row->stored[at] = true;
    row->places[at] = place;
    if (column->kind != RKS_KIND_JSON)
        return rks_json_convert(column, json, row->line_size, &row->store, value, err);
    status = rks_json_print_column(column, json, &row->store, err);
    value->size = row->store.size - place;
    value->dims[0] = (uint32_t)value->size;
    return status;
}

rks_status rks_json_flat_name(const char *outer, const char *inner, char name[RKS_FLAT_NAME],
                              rks_error *err)
{
    int size = snprintf(name, RKS_FLAT_NAME, "%s.%s", outer, inner);
    return size < RKS_FLAT_NAME ? RKS_OK
                                : rks_fail(err, RKS_ERR_DATA, 0,
                                           "\"%.80s...\": a column's name of more than 255 bytes; "
                                           "without flatten the object is a json column",
                                           name);
}

/* Returns true if there is a column "outer.inner", so null may stand for the object. */
static bool has_inner(const rks_schema *schema, const char *outer)
{
    size_t size = strlen(outer);
    for (uint32_t i = 0; i < rks_schema_columns(schema); i++) {
        const char *name = rks_schema_column(schema, i)->name;
        if (strncmp(name, outer, size) == 0 && name[size] == '.')
            return true;
    }
    return false;
}

/* Adds a member without a column to the object that holds such members. */
static rks_status add_extra(rks_row *row, const char *name, rks_json json, rks_error *err)
{
    rks_status status = rks_buffer_add(&row->extra, row->extra.size == 0 ? "{" : ",", 1, err);
    uint64_t place[2] = {row->extra.size, 0};
    if (status == RKS_OK)
        status = rks_json_print_string(name, strlen(name), &row->extra, err);
    place[1] = row->extra.size - place[0];
    if (status == RKS_OK && row->flatten)
        status = rks_buffer_add(&row->extra_names, place, sizeof(place), err);
    if (status == RKS_OK)
        status = rks_buffer_add(&row->extra, ":", 1, err);
    const rks_column *column = rks_schema_column(row->schema, (uint32_t)row->extra_column);
    return status == RKS_OK ? rks_json_print_column(column, json, &row->extra, err) : status;
}

/* Compares names by their bytes; they lie in `text`. */
static int by_their_names(const void *a, const void *b, void *text)
{
    const uint64_t *one = a, *other = b;
    uint64_t least = one[1] < other[1] ? one[1] : other[1];
    int order = memcmp((const char *)text + one[0], (const char *)text + other[0], least);
    return order != 0 ? order : (one[1] > other[1]) - (one[1] < other[1]);
}

/* Refuses duplicate names: flatten makes one name twice from {"a.b": 1, "a": {"b": 2}}. */
static rks_status check_extra_names(rks_row *row, rks_error *err)
{
    uint64_t *names = (uint64_t *)row->extra_names.data;
    size_t count = row->extra_names.size / (2 * sizeof(*names));
    char *text = (char *)row->extra.data;
    if (count < 2)
        return RKS_OK;
    qsort_r(names, count, 2 * sizeof(*names), by_their_names, text);
    for (size_t i = 2; i < 2 * count; i += 2)
        if (by_their_names(names + i - 2, names + i, text) == 0)
            return rks_fail(err, RKS_ERR_DATA, 0, "column %.*s appears twice",
                            (int)(names[i + 1] < 80 ? names[i + 1] : 80), text + names[i]);
    return RKS_OK;
}

static rks_status end_extra(rks_row *row, rks_error *err)
{
    if (row->extra_column < 0 || row->extra.size == 0)
        return RKS_OK;
    rks_status status = check_extra_names(row, err);
    if (status == RKS_OK)
        status = rks_buffer_add(&row->extra, "}", 1, err);
    row->seen[row->extra_column] = true;
    row->stored[row->extra_column] = false;
    row->values[row->extra_column] = rks_blob_value(row->extra.data, row->extra.size);
    return status;
}

/* State of reading a row member by member. */
typedef struct row_reader {
    rks_row *row;
    const rks_column *columns;
    uint32_t count, guess; /* number of columns; the likely column of the next member */
} row_reader;

/* Finds a column. Members mostly come in the schema's order, so it tries the next column first. */
static int column_of(row_reader *t, const char *name)
{
    int found = t->guess < t->count && same_text(t->columns[t->guess].name, name)
                    ? (int)t->guess
                    : rks_schema_find(t->row->schema, name);
    if (found >= 0)
        t->guess = (uint32_t)found + 1;
    return found;
}

static rks_status read_member(void *user, const char *name, rks_json json, rks_error *err)
{
    row_reader *t = user;
    rks_row *row = t->row;
    int found = column_of(t, name);
    if (found == row->extra_column)
        found = -1; /* it holds only members without a column */
    if (row->flatten && rks_json_is(json, RKS_JSON_OBJECT) &&
        (found < 0 || row->from != RKS_SCHEMA_GIVEN))
        return rks_json_members(name, json, read_member, t, err);
    if (row->flatten && found >= 0 && row->seen[found]) /* parsers see only one object */
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\" appears twice", name);
    if (found >= 0)
        return read_json_value(row, (uint32_t)found, json, err);
    if (row->extra_column >= 0)
        return add_extra(row, name, json, err);
    if (!row->refuses_extra ||
        (row->flatten && rks_json_is(json, RKS_JSON_NULL) && has_inner(row->schema, name)))
        return RKS_OK;
    return rks_fail_no_column(row->from, NULL, name, err);
}

rks_status rks_row_parse(rks_row *row, const uint8_t *line, size_t size, size_t readable,
                         rks_error *err)
{
    uint32_t count = rks_schema_columns(row->schema);
    const rks_column *columns = rks_schema_column(row->schema, 0);
    row_reader members = {.row = row, .columns = columns, .count = count};
    rks_json root = {0};
    row->store.size = 0;
    row->line_size = size;
    memset(row->seen, 0, count * sizeof(*row->seen));
    rks_status status = rks_json_line(&row->parser, line, size, readable, &root, err);
    if (status != RKS_OK)
        return status;
    row->extra.size = row->extra_names.size = 0;
    status = rks_json_members(NULL, root, read_member, &members, err);
    if (status == RKS_OK)
        status = end_extra(row, err);
    if (status != RKS_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        const rks_column *column = &columns[i];
        if (!row->seen[i] && row->from != RKS_SCHEMA_GIVEN && column->kind == RKS_KIND_JSON &&
            !column->nullable) {
            row->values[i] = (rks_value){.data = "null", .size = 4, .dims = {4}};
            continue;
        }
        if (!row->seen[i] && !column->nullable)
            return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\" (%s) is missing", column->name,
                            column->type);
        if (!row->seen[i])
            row->values[i] = (rks_value){0};
        else if (row->stored[i])
            row->values[i].data = row->store.data + row->places[i];
    }
    return RKS_OK;
}
