/* SPDX-License-Identifier: Apache-2.0
 *
 * schema.c: parses schemas and types.
 *
 *   schema  {"name": "type", ...}  or  name:type,name:type
 *   type    item, then [dim,dim,...] for an array, then ? if a value may be missing
 *   item    bool int8 ... complex64, str, bytes, json (the last three without dimensions)
 *   dim     a number of at least 1, or * if it differs between samples */
#include "shard/schema.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "shard/json_parse.h"
#include "shard/utf8.h"

struct rks_schema {
    rks_column *columns;
    uint32_t count;
    uint32_t room;
    char *text;
};

enum { NAME_MAX_SIZE = 255 };

static const struct {
    const char *name;
    rks_kind kind;
    uint32_t item_size;
} ITEMS[] = {
    {"bool", RKS_KIND_BOOL, 1},
    {"int8", RKS_KIND_INT8, 1},
    {"int16", RKS_KIND_INT16, 2},
    {"int32", RKS_KIND_INT32, 4},
    {"int64", RKS_KIND_INT64, 8},
    {"uint8", RKS_KIND_UINT8, 1},
    {"uint16", RKS_KIND_UINT16, 2},
    {"uint32", RKS_KIND_UINT32, 4},
    {"uint64", RKS_KIND_UINT64, 8},
    {"float16", RKS_KIND_FLOAT16, 2},
    {"float32", RKS_KIND_FLOAT32, 4},
    {"float64", RKS_KIND_FLOAT64, 8},
    {"bfloat16", RKS_KIND_BFLOAT16, 2},
    {"float8_e4m3fn", RKS_KIND_FLOAT8_E4M3FN, 1},
    {"float8_e5m2", RKS_KIND_FLOAT8_E5M2, 1},
    {"complex64", RKS_KIND_COMPLEX64, 8},
    {"str", RKS_KIND_STR, 1},
    {"bytes", RKS_KIND_BYTES, 1},
    {"json", RKS_KIND_JSON, 1},
};

bool rks_kind_find(const char *name, size_t size, rks_kind *kind, uint32_t *item_size)
{
    for (size_t i = 0; i < sizeof(ITEMS) / sizeof(ITEMS[0]); i++) {
        if (strlen(ITEMS[i].name) != size || memcmp(ITEMS[i].name, name, size) != 0)
            continue;
        *kind = ITEMS[i].kind;
        *item_size = ITEMS[i].item_size;
        return true;
    }
    return false;
}

static bool is_variable_bytes(rks_kind kind)
{
    return kind == RKS_KIND_STR || kind == RKS_KIND_BYTES || kind == RKS_KIND_JSON;
}

static void skip_spaces(const char **at)
{
    while (**at == ' ')
        ++*at;
}

static bool parse_item(const char **at, rks_column *column)
{
    size_t size = strcspn(*at, "[? ");
    if (!rks_kind_find(*at, size, &column->kind, &column->item_size))
        return false;
    column->unit = column->item_size;
    snprintf(column->type, sizeof(column->type), "%.*s", (int)size, *at);
    *at += size;
    return true;
}

/* Parses one dimension: a number without leading zero, or `*`, which becomes 0. */
static bool parse_dim(const char **at, uint32_t *dim)
{
    skip_spaces(at);
    uint64_t value = 0;
    if (**at == '*') {
        ++*at;
    } else {
        if (**at < '1' || **at > '9')
            return false;
        for (; **at >= '0' && **at <= '9'; ++*at) {
            value = value * 10 + (uint64_t)(**at - '0');
            if (value > UINT32_MAX)
                return false;
        }
    }
    skip_spaces(at);
    *dim = (uint32_t)value;
    return true;
}

static bool parse_dims(const char **at, rks_column *column)
{
    uint64_t fixed = column->item_size;
    do {
        ++*at; /* '[' or ',' */
        uint32_t dim = 0;
        if (column->dim_count == RKS_DIMS_MAX || !parse_dim(at, &dim))
            return false;
        column->dims[column->dim_count++] = dim;
        column->variable_dims += dim == 0;
        if (dim != 0 && (__builtin_mul_overflow(fixed, dim, &fixed) || fixed > UINT32_MAX))
            return false; /* a single value would not fit into a record */
    } while (**at == ',');
    if (**at != ']')
        return false;
    ++*at;
    column->unit = (uint32_t)fixed;
    return true;
}

static void print_type(rks_column *column)
{
    size_t used = strlen(column->type);
    for (uint32_t i = 0; !is_variable_bytes(column->kind) && i < column->dim_count; i++) {
        char dim[12] = "*";
        if (column->dims[i] != 0)
            snprintf(dim, sizeof(dim), "%" PRIu32, column->dims[i]);
        used += (size_t)snprintf(column->type + used, sizeof(column->type) - used, "%c%s%s",
                                 i == 0 ? '[' : ',', dim, i + 1 == column->dim_count ? "]" : "");
    }
    if (column->nullable)
        snprintf(column->type + used, sizeof(column->type) - used, "?");
}

static bool parse_column_type(const char *text, rks_column *column)
{
    const char *at = text;
    skip_spaces(&at);
    if (!parse_item(&at, column))
        return false;
    skip_spaces(&at);
    if (*at == '[' && (is_variable_bytes(column->kind) || !parse_dims(&at, column)))
        return false;
    skip_spaces(&at);
    if (*at == '?') {
        column->nullable = true;
        at++;
    }
    skip_spaces(&at);
    if (*at != '\0')
        return false;
    if (is_variable_bytes(column->kind))
        column->dim_count = column->variable_dims = 1;
    print_type(column);
    return true;
}

static bool name_is_good(const char *name)
{
    size_t size = strlen(name);
    if (size == 0 || size > NAME_MAX_SIZE || !rks_utf8_valid(name, size, NULL))
        return false;
    for (const char *at = name; *at != '\0'; at++)
        if ((uint8_t)*at < 0x20 || *at == 0x7f)
            return false;
    return true;
}

static rks_status add_schema_column(rks_schema *schema, const char *name, const char *type,
                                    rks_error *err)
{
    if (!name_is_good(name))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "schema: column %" PRIu32 " \"%s\": a name is 1 to 255 bytes of UTF-8 "
                        "without control characters",
                        schema->count, name);
    if (rks_schema_find(schema, name) >= 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: column \"%s\" appears twice", name);
    if (schema->count == RKS_COLUMNS_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: more than %d columns, at \"%s\"",
                        RKS_COLUMNS_MAX, name);
    if (schema->count == schema->room) {
        uint32_t room = schema->room == 0 ? 8 : 2 * schema->room;
        rks_column *grown = rks_realloc(schema->columns, room, sizeof(*grown), err);
        if (grown == NULL)
            return RKS_ERR_MEMORY;
        schema->columns = grown;
        schema->room = room;
    }
    rks_column column = {0};
    if (!parse_column_type(type, &column))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "schema: column \"%s\": \"%s\" is not a type; types look like int32, "
                        "float16[80,*], str, int64?",
                        name, type);
    column.name = rks_strdup(name, err);
    if (column.name == NULL)
        return RKS_ERR_MEMORY;
    if (schema->count > 0) {
        const rks_column *before = &schema->columns[schema->count - 1];
        column.dims_before = before->dims_before + before->variable_dims;
        column.nulls_before = before->nulls_before + before->nullable;
    }
    schema->columns[schema->count++] = column;
    return RKS_OK;
}

static rks_status parse_json(rks_schema *schema, const char *text, rks_error *err)
{
    json_error_t where;
    json_t *root = rks_json_load(text, strlen(text), &where);
    if (root == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: line %d, column %d: %s", where.line,
                        where.column, where.text);
    rks_status status = RKS_OK;
    if (!json_is_object(root))
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: not a JSON object");
    const char *name;
    json_t *type;
    json_object_foreach(root, name, type)
    {
        if (!json_is_string(type))
            status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                              "schema: column \"%s\": its type is not a string", name);
        else
            status = add_schema_column(schema, name, json_string_value(type), err);
        if (status != RKS_OK)
            break;
    }
    json_decref(root);
    return status;
}

/* Returns the size of "name:type" at `at`, which ends at a comma outside brackets. */
static size_t pair_size(const char *at)
{
    size_t size = 0;
    for (bool inside = false; at[size] != '\0' && (inside || at[size] != ','); size++) {
        if (at[size] == '[' || at[size] == ']')
            inside = at[size] == '[';
    }
    return size;
}

static rks_status parse_short(rks_schema *schema, const char *text, rks_error *err)
{
    char *copy = rks_strdup(text, err);
    if (copy == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    char *at = copy;
    for (bool more = true; more && status == RKS_OK;) {
        size_t size = pair_size(at);
        more = at[size] == ',';
        at[size] = '\0';
        char *name = at + strspn(at, " ");
        char *colon = strrchr(name, ':'); /* a name may contain one, a type never does */
        if (colon == NULL) {
            status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: \"%s\" is not name:type", name);
        } else {
            *colon = '\0';
            status = add_schema_column(schema, name, colon + 1, err);
        }
        at += size + 1;
    }
    rks_free(copy);
    return status;
}

static rks_status print_text(rks_schema *schema, rks_error *err)
{
    rks_buffer text = {0};
    rks_status status = rks_buffer_add(&text, "{", 1, err);
    for (uint32_t i = 0; status == RKS_OK && i < schema->count; i++) {
        char name[2 * NAME_MAX_SIZE + 1];
        size_t size = 0;
        for (const char *at = schema->columns[i].name; *at != '\0'; at++) {
            if (*at == '"' || *at == '\\')
                name[size++] = '\\';
            name[size++] = *at;
        }
        name[size] = '\0';
        status = rks_buffer_print(&text, err, "%s\"%s\":\"%s\"", i == 0 ? "" : ",", name,
                                  schema->columns[i].type);
    }
    if (status == RKS_OK)
        status = rks_buffer_add(&text, "}", 2, err); /* with its NUL */
    if (status == RKS_OK) {
        schema->text = (char *)text.data;
        text.data = NULL;
    }
    rks_buffer_free(&text);
    return status;
}

rks_status rks_schema_parse(const char *text, rks_schema **schema, rks_error *err)
{
    if (text == NULL || schema == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: no text");
    rks_schema *parsed = rks_alloc(1, sizeof(*parsed), err);
    if (parsed == NULL)
        return RKS_ERR_MEMORY;
    const char *first = text + strspn(text, " \t\r\n");
    rks_status status =
        *first == '{' ? parse_json(parsed, first, err) : parse_short(parsed, first, err);
    if (status == RKS_OK && parsed->count == 0)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: no columns");
    if (status == RKS_OK)
        status = print_text(parsed, err);
    if (status == RKS_OK) {
        *schema = parsed;
        parsed = NULL;
    }
    rks_schema_free(parsed);
    return status;
}

void rks_schema_free(rks_schema *schema)
{
    if (schema == NULL)
        return;
    for (uint32_t i = 0; i < schema->count; i++)
        rks_free((char *)schema->columns[i].name);
    rks_free(schema->columns);
    rks_free(schema->text);
    rks_free(schema);
}

uint32_t rks_schema_columns(const rks_schema *schema)
{
    return schema->count;
}

const rks_column *rks_schema_column(const rks_schema *schema, uint32_t column)
{
    return column < schema->count ? &schema->columns[column] : NULL;
}

const char *rks_schema_name(const rks_schema *schema, uint32_t column)
{
    return column < schema->count ? schema->columns[column].name : NULL;
}

const char *rks_schema_type(const rks_schema *schema, uint32_t column)
{
    return column < schema->count ? schema->columns[column].type : NULL;
}

int rks_schema_find(const rks_schema *schema, const char *name)
{
    for (uint32_t i = 0; i < schema->count; i++)
        if (strcmp(schema->columns[i].name, name) == 0)
            return (int)i;
    return -1;
}

const char *rks_schema_text(const rks_schema *schema)
{
    return schema->text;
}
