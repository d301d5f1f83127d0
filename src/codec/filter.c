/* SPDX-License-Identifier: Apache-2.0
 *
 * filter.c: parses and tests a list of conditions, all of which must hold. */
#include "codec/filter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buffer.h"
#include "base/c_locale.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/condition.h"

typedef struct condition {
    uint32_t column;
    rks_operation op;
    bool is_null; /* the value is null; else the column's type picks the field */
    bool truth;
    rks_number number;
    uint8_t *bytes;
    size_t size;
} condition;

struct rks_where {
    const rks_schema *schema;
    condition *conditions;
    size_t count;
};

static rks_status wrong_value(const rks_condition_parser *parse, const rks_column *column,
                              const char *expected, rks_error *err)
{
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "where: at %zu: column \"%s\" is %s and cannot be "
                    "compared with %s%.40s%s; %s",
                    parse->place, column->name, column->type, parse->quoted ? "'" : "",
                    (const char *)parse->token.data, parse->quoted ? "'" : "", expected);
}

/* Returns true also for numbers that 64 bits cannot hold, and for forms that JSON lacks:
 * 99999999999999999999, +5, .5. */
static bool looks_like_a_number(const char *text)
{
    char *end;
    if (text[0] == '\0' || strchr("+-.0123456789", text[0]) == NULL)
        return false;
    (void)rks_strtod(text, &end);
    return end != text && *end == '\0';
}

/* Reads a value for a str or bytes column. Text sorts "10" before "9", so an unquoted number after
 * < <= > >= is refused: it was probably meant as a number. */
static rks_status read_blob(const rks_condition_parser *parse, const rks_column *column,
                            condition *into, rks_error *err)
{
    const char *text = (const char *)parse->token.data;
    if (!parse->quoted && into->op != RKS_OP_EQ && into->op != RKS_OP_NE &&
        looks_like_a_number(text)) {
        char expected[96];
        (void)snprintf(expected, sizeof(expected),
                       "quote the value to compare as text: %s \"%.30s\"",
                       rks_operation_text(into->op), text);
        return wrong_value(parse, column, expected, err);
    }
    into->bytes = rks_alloc_raw(parse->token.size, 1, err);
    if (into->bytes == NULL)
        return RKS_ERR_MEMORY;
    memcpy(into->bytes, text, parse->token.size);
    into->size = parse->token.size;
    return RKS_OK;
}

static rks_status read_value(rks_condition_parser *parse, const rks_schema *schema, condition *into,
                             rks_error *err)
{
    const rks_column *column = rks_schema_column(schema, into->column);
    rks_status status = rks_condition_token(parse, " \t\r\n", "a value", err);
    if (status != RKS_OK)
        return status;
    const char *text = (const char *)parse->token.data;
    bool blob = column->kind == RKS_KIND_STR || column->kind == RKS_KIND_BYTES;
    if (!parse->quoted && strcmp(text, "null") == 0) {
        into->is_null = true;
        if (into->op != RKS_OP_EQ && into->op != RKS_OP_NE)
            return wrong_value(parse, column, "null allows only == and !=", err);
        return RKS_OK;
    }
    if (blob)
        return read_blob(parse, column, into, err);
    if (column->dim_count > 0 || column->kind == RKS_KIND_COMPLEX64)
        return wrong_value(parse, column, "only == null and != null are allowed", err);
    if (column->kind == RKS_KIND_BOOL) {
        into->truth = strcmp(text, "true") == 0;
        if (parse->quoted || (!into->truth && strcmp(text, "false") != 0) ||
            (into->op != RKS_OP_EQ && into->op != RKS_OP_NE))
            return wrong_value(parse, column, "say == true or == false", err);
        return RKS_OK;
    }
    bool good = false;
    if (!parse->quoted)
        status = rks_condition_number(text, &into->number, &good, err);
    return status != RKS_OK ? status
           : good           ? RKS_OK
                            : wrong_value(parse, column, "a number is expected", err);
}

static rks_status read_condition(rks_condition_parser *parse, rks_where *where, rks_error *err)
{
    rks_status status = rks_condition_token(parse, " \t\r\n=!<>\"'", "a column", err);
    if (status != RKS_OK)
        return status;
    condition *grown =
        rks_realloc(where->conditions, where->count + 1, sizeof(*where->conditions), err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    where->conditions = grown;
    condition *into = &grown[where->count++];
    *into = (condition){0};
    status = rks_column_named(where->schema, "where", (const char *)parse->token.data,
                              &into->column, err);
    if (status == RKS_OK)
        status = rks_condition_operation(parse, &into->op, err);
    return status == RKS_OK ? read_value(parse, where->schema, into, err) : status;
}

rks_status rks_where_parse(const rks_schema *schema, const char *text, rks_where **where,
                           rks_error *err)
{
    rks_condition_parser parse = {.option = "where", .text = text, .at = text};
    rks_where *parsed = rks_alloc(1, sizeof(*parsed), err);
    if (parsed == NULL)
        return RKS_ERR_MEMORY;
    parsed->schema = schema;
    rks_status status = read_condition(&parse, parsed, err);
    while (status == RKS_OK) {
        rks_condition_skip_spaces(&parse);
        if (*parse.at == '\0')
            break;
        size_t size = strcspn(parse.at, " \t\r\n");
        if (size != 3 || strncasecmp(parse.at, "and", 3) != 0) {
            status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                              "where: \"and\" expected at %zu, not \"%.20s\" (a value with spaces "
                              "needs quotes)",
                              rks_condition_place(&parse), parse.at);
            break;
        }
        parse.at += size;
        status = read_condition(&parse, parsed, err);
    }
    if (status == RKS_OK) {
        *where = parsed;
        parsed = NULL;
    }
    rks_buffer_free(&parse.token);
    rks_where_free(parsed);
    return status;
}

void rks_where_free(rks_where *where)
{
    if (where == NULL)
        return;
    for (size_t i = 0; i < where->count; i++)
        rks_free(where->conditions[i].bytes);
    rks_free(where->conditions);
    rks_free(where);
}

static int compare_bytes(const void *a, uint64_t a_size, const void *b, uint64_t b_size)
{
    uint64_t common = a_size < b_size ? a_size : b_size;
    int order = common == 0 ? 0 : memcmp(a, b, (size_t)common);
    if (order != 0)
        return order < 0 ? -1 : 1;
    return a_size < b_size ? -1 : a_size > b_size;
}

static bool test(const condition *at, const rks_column *column, const rks_value *value)
{
    bool missing = value->data == NULL || (column->kind == RKS_KIND_JSON && value->size == 4 &&
                                           memcmp(value->data, "null", 4) == 0);
    if (missing || at->is_null)
        return rks_operation_holds(at->op, missing && at->is_null ? 0 : 2);
    if (column->kind == RKS_KIND_STR || column->kind == RKS_KIND_BYTES)
        return rks_operation_holds(at->op,
                                   compare_bytes(value->data, value->size, at->bytes, at->size));
    if (column->kind == RKS_KIND_BOOL)
        return rks_operation_holds(at->op,
                                   (*(const uint8_t *)value->data != 0) == at->truth ? 0 : 2);
    return rks_operation_holds(
        at->op, rks_number_compare(rks_number_load(column->kind, value->data), at->number));
}

rks_status rks_where_test(const rks_where *where, const rks_value *values, bool *keep,
                          rks_error *err)
{
    for (size_t i = 0; i < where->count; i++) {
        const condition *at = &where->conditions[i];
        const rks_column *column = rks_schema_column(where->schema, at->column);
        const rks_value *value = &values[at->column];
        if (value->data != NULL && column->dim_count == 0 && value->size != column->item_size)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "column \"%s\": %" PRIu64 " bytes are not a value of %s", column->name,
                            value->size, column->type);
        if (!test(at, column, value)) {
            *keep = false;
            return RKS_OK;
        }
    }
    *keep = true;
    return RKS_OK;
}
