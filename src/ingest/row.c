/* SPDX-License-Identifier: Apache-2.0
 *
 * row.c: a JSON object's members put to their columns. Strings are not copied: they stay where the
 * parser put them. Numbers go to one buffer, which may move, so pointers are set at the end. */
#include "ingest/row.h"

#include <inttypes.h>
#include <string.h>

#include "base/base64.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"

rks_status rks_row_create(const rks_schema *schema, rks_schema_from from, rks_row **row,
                          rks_error *err)
{
    uint32_t count = rks_schema_columns(schema);
    rks_row *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->schema = schema;
    made->from = from;
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

/* JSON that is printed over many lines, by its first one; NULL: it is not. */
static const char *lines_advice(const uint8_t *line, size_t size)
{
    size_t at = 0;
    while (at < size && (line[at] == ' ' || (line[at] >= '\t' && line[at] <= '\r')))
        at++;
    if (at < size && line[at] == '[')
        return "a list over many lines? one object a line: jq -c '.[]' FILE";
    while (size > at && (line[size - 1] == ' ' || line[size - 1] == '\r'))
        size--;
    return size - at == 1 && line[at] == '{'
               ? "an object over many lines? one object a line: jq -c . FILE"
               : NULL;
}

rks_status rks_json_line(rks_json_parser *parser, const uint8_t *line, size_t size, size_t readable,
                         rks_json *root, rks_error *err)
{
    rks_json parsed = {0};
    rks_error why = {0};
    rks_status status = rks_json_read(parser, line, size, readable, &parsed, &why);
    if (status != RKS_OK) {
        const char *advice = status == RKS_ERR_DATA ? lines_advice(line, size) : NULL;
        return rks_fail(err, status, why.cause, "%s%s%s", why.text, advice == NULL ? "" : "; ",
                        advice == NULL ? "" : advice);
    }
    if (!rks_json_is(parsed, RKS_JSON_OBJECT)) {
        bool list = rks_json_is(parsed, RKS_JSON_LIST);
        return rks_fail(err, RKS_ERR_DATA, 0, "%s where each line must be a JSON object%s",
                        rks_json_kind(parsed), list ? " (of a list: jq -c '.[]' FILE)" : "");
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
    const char *advice = from == RKS_SCHEMA_KEPT
                             ? "of the dataset; to leave it out, give that schema by --schema"
                             : "inferred from the first rows; give --schema";
    return rks_fail(err, RKS_ERR_DATA, 0, "%s%scolumn \"%.64s\" is not in the schema %s",
                    path == NULL ? "" : path, path == NULL ? "" : ": ", name, advice);
}

/* Members mostly come in the schema's order: the column behind the last one is tried first. */
static int column_of(const rks_row *row, const char *name, uint32_t *guess)
{
    const rks_column *column = rks_schema_column(row->schema, *guess);
    int found = column != NULL && strcmp(column->name, name) == 0
                    ? (int)*guess
                    : rks_schema_find(row->schema, name);
    if (found >= 0)
        *guess = (uint32_t)found + 1;
    return found;
}

/* {"base64": "..."}, as exports write bytes. */
static rks_status take_base64(rks_row *row, uint32_t at, rks_json json, rks_error *err)
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

static rks_status take_json_value(rks_row *row, uint32_t at, rks_json json, rks_error *err)
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
        return take_base64(row, at, json, err);
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
    status = rks_json_print(json, &row->store, err);
    value->size = row->store.size - place;
    value->dims[0] = (uint32_t)value->size;
    return status;
}

rks_status rks_row_parse(rks_row *row, const uint8_t *line, size_t size, rks_error *err)
{
    return rks_row_parse_in(row, line, size, size, err);
}

rks_status rks_row_parse_in(rks_row *row, const uint8_t *line, size_t size, size_t readable,
                            rks_error *err)
{
    uint32_t count = rks_schema_columns(row->schema), guess = 0;
    rks_json root = {0};
    row->store.size = 0;
    row->line_size = size;
    memset(row->seen, 0, count * sizeof(*row->seen));
    rks_status status = rks_json_line(&row->parser, line, size, readable, &root, err);
    if (status != RKS_OK)
        return status;
    size_t close = rks_json_close(root), name_size = 0;
    for (rks_json at = rks_json_inside(root); status == RKS_OK && at.at < close;
         at = rks_json_next(at)) {
        const char *name = rks_json_text(at, &name_size);
        int found = column_of(row, name, &guess);
        at = rks_json_next(at);
        if (found >= 0)
            status = take_json_value(row, (uint32_t)found, at, err);
        else if (row->from != RKS_SCHEMA_GIVEN)
            status = rks_fail_no_column(row->from, NULL, name, err);
    }
    if (status != RKS_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        const rks_column *column = rks_schema_column(row->schema, i);
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
