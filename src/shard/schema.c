/* SPDX-License-Identifier: Apache-2.0
 *
 * schema.c: parses schemas and types.
 *
 *   schema  {"name": "type", ...}  or  name:type,name:type
 *   type    item, then (meaning) for times, then [dim,dim,...] for an array, then ? if a value may
 *           be missing
 *   item    bool int8 ... complex64, str, bytes, json (the last three without dimensions)
 *   dim     a number of at least 1, or * if it differs between samples */
#include "shard/schema.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json_error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "shard/json_parse.h"

struct rks_schema {
    rks_column *columns;
    uint32_t count;
    uint32_t room;
    char *text;
};

enum { NAME_MAX_SIZE = 255 };
#define EXAMPLES "types look like int32, float16[80,*], str, int64?"

const rks_kind_info rks_kinds[RKS_KINDS] = {
    [RKS_KIND_BOOL] = {"bool", RKS_CLASS_BOOL, 1, "|b1"},
    [RKS_KIND_INT8] = {"int8", RKS_CLASS_INT, 1, "|i1"},
    [RKS_KIND_INT16] = {"int16", RKS_CLASS_INT, 2, "<i2"},
    [RKS_KIND_INT32] = {"int32", RKS_CLASS_INT, 4, "<i4"},
    [RKS_KIND_INT64] = {"int64", RKS_CLASS_INT, 8, "<i8"},
    [RKS_KIND_UINT8] = {"uint8", RKS_CLASS_UINT, 1, "|u1"},
    [RKS_KIND_UINT16] = {"uint16", RKS_CLASS_UINT, 2, "<u2"},
    [RKS_KIND_UINT32] = {"uint32", RKS_CLASS_UINT, 4, "<u4"},
    [RKS_KIND_UINT64] = {"uint64", RKS_CLASS_UINT, 8, "<u8"},
    [RKS_KIND_FLOAT16] = {"float16", RKS_CLASS_FLOAT, 2, "<f2"},
    [RKS_KIND_FLOAT32] = {"float32", RKS_CLASS_FLOAT, 4, "<f4"},
    [RKS_KIND_FLOAT64] = {"float64", RKS_CLASS_FLOAT, 8, "<f8"},
    [RKS_KIND_BFLOAT16] = {"bfloat16", RKS_CLASS_FLOAT, 2, "<u2"},
    [RKS_KIND_FLOAT8_E4M3FN] = {"float8_e4m3fn", RKS_CLASS_FLOAT, 1, "|u1"},
    [RKS_KIND_FLOAT8_E5M2] = {"float8_e5m2", RKS_CLASS_FLOAT, 1, "|u1"},
    [RKS_KIND_COMPLEX64] = {"complex64", RKS_CLASS_COMPLEX, 8, "<c8"},
    [RKS_KIND_STR] = {"str", RKS_CLASS_STR, 1, "|u1"},
    [RKS_KIND_BYTES] = {"bytes", RKS_CLASS_BYTES, 1, "|u1"},
    [RKS_KIND_JSON] = {"json", RKS_CLASS_JSON, 1, "|u1"},
};

/* What integers may stand for: days or units since 1970 (`_utc`: in UTC; else without a zone),
 * units since midnight, a number of units. */
static const struct meaning {
    rks_kind kind;
    const char *name;
} meanings[] = {
    {RKS_KIND_INT32, "date"},
    {RKS_KIND_INT64, "timestamp_s"},
    {RKS_KIND_INT64, "timestamp_ms"},
    {RKS_KIND_INT64, "timestamp_us"},
    {RKS_KIND_INT64, "timestamp_ns"},
    {RKS_KIND_INT64, "timestamp_s_utc"},
    {RKS_KIND_INT64, "timestamp_ms_utc"},
    {RKS_KIND_INT64, "timestamp_us_utc"},
    {RKS_KIND_INT64, "timestamp_ns_utc"},
    {RKS_KIND_INT64, "time_s"},
    {RKS_KIND_INT64, "time_ms"},
    {RKS_KIND_INT64, "time_us"},
    {RKS_KIND_INT64, "time_ns"},
    {RKS_KIND_INT64, "duration_s"},
    {RKS_KIND_INT64, "duration_ms"},
    {RKS_KIND_INT64, "duration_us"},
    {RKS_KIND_INT64, "duration_ns"},
};

const char *rks_type_item(size_t i)
{
    return i < RKS_KINDS ? rks_kinds[i].name : NULL;
}

bool rks_kind_find(const char *name, size_t size, rks_kind *kind)
{
    for (size_t i = 0; i < RKS_KINDS; i++) {
        if (strlen(rks_kinds[i].name) != size || memcmp(rks_kinds[i].name, name, size) != 0)
            continue;
        *kind = (rks_kind)i;
        return true;
    }
    return false;
}

static void skip_spaces(const char **at)
{
    while (**at == ' ')
        ++*at;
}

static bool parse_item(const char **at, rks_column *column)
{
    size_t size = strcspn(*at, "([? ");
    if (!rks_kind_find(*at, size, &column->kind))
        return false;
    column->unit = column->item_size = rks_kinds[column->kind].size;
    snprintf(column->type, sizeof(column->type), "%.*s", (int)size, *at);
    *at += size;
    return true;
}

/* Parses "(timestamp_us)" behind an item. */
static bool parse_meaning(const char **at, rks_column *column)
{
    size_t size = strcspn(++*at, ")");
    const struct meaning *found = NULL;
    for (size_t i = 0; found == NULL && i < sizeof(meanings) / sizeof(*meanings); i++)
        if (meanings[i].kind == column->kind && strlen(meanings[i].name) == size &&
            memcmp(meanings[i].name, *at, size) == 0)
            found = &meanings[i];
    if (found == NULL || (*at)[size] != ')')
        return false;
    *at += size + 1;
    column->meaning = found->name;
    size_t used = strlen(column->type);
    snprintf(column->type + used, sizeof(column->type) - used, "(%s)", found->name);
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
    for (uint32_t i = 0; !rks_kind_is_text(column->kind) && i < column->dim_count; i++) {
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
    if (*at == '(' && !parse_meaning(&at, column))
        return false;
    skip_spaces(&at);
    if (*at == '[' && (rks_kind_is_text(column->kind) || !parse_dims(&at, column)))
        return false;
    skip_spaces(&at);
    if (*at == '?') {
        column->nullable = true;
        at++;
    }
    skip_spaces(&at);
    if (*at != '\0')
        return false;
    if (rks_kind_is_text(column->kind))
        column->dim_count = column->variable_dims = 1;
    print_type(column);
    return true;
}

rks_status rks_type_describe(const char *type, rks_type_info *info, rks_error *err)
{
    rks_column column = {0};
    if (type == NULL || info == NULL || info->struct_size < sizeof(info->struct_size))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "a type's description needs a type, and a struct with its struct_size");
    if (!parse_column_type(type, &column))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "\"%.80s\" is not a type; " EXAMPLES, type);
    const rks_kind_info *kind = &rks_kinds[column.kind];
    rks_type_info found = {.struct_size = info->struct_size,
                           .item = kind->name,
                           .item_class = kind->item_class,
                           .item_size = column.item_size,
                           .dim_count = column.dim_count,
                           .variable_dims = column.variable_dims,
                           .unit = column.unit,
                           .nullable = column.nullable,
                           .numpy = kind->numpy,
                           .meaning = column.meaning};
    memcpy(found.dims, column.dims, sizeof(found.dims));
    memcpy(info, &found, info->struct_size < sizeof(found) ? info->struct_size : sizeof(found));
    return RKS_OK;
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
                        "schema: column \"%s\": \"%s\" is not a type; " EXAMPLES, name, type);
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
        return rks_json_fail(err, RKS_ERR_ARGUMENT, "schema", &where);
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

/* Ends the making of a schema: *schema is `made`, or it is freed. */
static rks_status end_making(rks_schema *made, rks_status status, rks_schema **schema,
                             rks_error *err)
{
    if (status == RKS_OK && made->count == 0)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: no columns");
    if (status == RKS_OK)
        status = print_text(made, err);
    if (status == RKS_OK)
        *schema = made;
    else
        rks_schema_free(made);
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
    return end_making(parsed, status, schema, err);
}

static bool is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static rks_status copy_columns(const rks_schema *schema, const char *const *without, size_t count,
                               rks_schema **copy, rks_error *err)
{
    rks_status status = RKS_OK;
    *copy = rks_alloc(1, sizeof(**copy), err);
    if (*copy == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t i = 0; status == RKS_OK && i < schema->count; i++)
        if (!is_among(schema->columns[i].name, without, count))
            status =
                add_schema_column(*copy, schema->columns[i].name, schema->columns[i].type, err);
    return status;
}

rks_status rks_schema_without(const rks_schema *schema, const char *const *names, size_t count,
                              rks_schema **made, rks_error *err)
{
    rks_schema *copy = NULL;
    rks_status status = copy_columns(schema, names, count, &copy, err);
    return end_making(copy, status, made, err);
}

rks_status rks_schema_with(const rks_schema *schema, const char *const *names, size_t count,
                           const char *type, rks_schema **made, rks_error *err)
{
    rks_schema *copy = NULL;
    rks_status status = copy_columns(schema, NULL, 0, &copy, err);
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = add_schema_column(copy, names[i], type, err);
    return end_making(copy, status, made, err);
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

bool rks_column_indexable(const rks_column *column)
{
    bool number = rks_kind_is_integer(column->kind) || rks_kind_is_float(column->kind);
    return number && column->dim_count == 0 && !column->nullable;
}

/* `prefers_arrays`: arrays of variable size come before str, bytes and json. */
static const rks_column *find_length(const rks_schema *schema, const char *key, bool prefers_arrays)
{
    enum { ARRAY, TEXT, FIXED, NAME, RANKS };
    const rks_column *first[RANKS] = {NULL};
    for (uint32_t i = 0; i < schema->count; i++) {
        const rks_column *column = &schema->columns[i];
        if (column->dim_count == 0 || (key != NULL && strcmp(column->name, key) == 0))
            continue;
        int rank = column->variable_dims == 0                         ? FIXED
                   : strcmp(column->name, "__key__") == 0             ? NAME
                   : prefers_arrays && rks_kind_is_text(column->kind) ? TEXT
                                                                      : ARRAY;
        if (first[rank] == NULL)
            first[rank] = column;
    }
    for (int rank = 0; rank < RANKS; rank++)
        if (first[rank] != NULL)
            return first[rank];
    return NULL;
}

const rks_column *rks_schema_length(const rks_schema *schema, const char *key)
{
    return find_length(schema, key, true);
}

const rks_column *rks_schema_unrecorded_length(const rks_schema *schema, const char *key)
{
    return find_length(schema, key, false);
}

rks_status rks_schema_index(const rks_schema *schema, const char *const *names, size_t count,
                            uint32_t *columns, rks_error *err)
{
    for (size_t i = 0; i < count; i++) {
        int at = rks_schema_find(schema, names[i]);
        if (at < 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "index: no column \"%s\"", names[i]);
        const rks_column *column = &schema->columns[at];
        if (!rks_column_indexable(column))
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "index: column \"%s\" is %s; only single numbers that are never "
                            "missing travel with the index",
                            column->name, column->type);
        for (size_t k = 0; k < i; k++)
            if (strcmp(names[k], names[i]) == 0)
                return rks_fail(err, RKS_ERR_ARGUMENT, 0, "index: column \"%s\" appears twice",
                                column->name);
        if (columns != NULL)
            columns[i] = (uint32_t)at;
    }
    return RKS_OK;
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
