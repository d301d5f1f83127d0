/* SPDX-License-Identifier: Apache-2.0
 *
 * schema_inference.c: infers columns from rows, and merges two schemas.
 *
 * Each column has a shape; shapes are a lattice, in which `join` goes up, so that the result does
 * not depend on how units are grouped:
 *
 *   unknown (only null, only empty lists so far)  ->  everything
 *   int64 -> uint64 -> float64                    alone, in [*], in [*,n] -> [*,*]
 *   lists of numbers                              ->  json
 *
 * Shapes without a common upper bound (a string and a number) conflict; so do integers below 0 and
 * above int64, which no integer type holds together. In a schema's text unknown
 * is "json?", which no other shape is: json itself holds null, so it is never nullable. */
#include "ingest/schema_inference.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "ingest/row.h"

enum { TYPE_ROOM = 128 };

typedef enum base {
    BASE_NULL,
    BASE_EMPTY,
    BASE_BOOL,
    BASE_INT,
    BASE_REAL,
    BASE_STR,
    BASE_BYTES,
    BASE_JSON,
    BASE_TYPED, /* any other type, by its name */
} base;

typedef struct shape {
    base base;
    uint32_t dims;  /* 0, 1 or 2, of BASE_INT and BASE_REAL */
    uint32_t width; /* of [*,n]; 0 if it differs */
    bool nullable;
    int64_t least;                /* BASE_INT: the least one below 0, or 0 */
    uint64_t large;               /* BASE_INT: one above int64, or 0 */
    char item[16];                /* BASE_TYPED: "float32" */
    uint32_t sizes[RKS_DIMS_MAX]; /* BASE_TYPED: of its dims dimensions; 0 if they differ */
} shape;

struct rks_guess {
    char *name;
    shape shape;
    uint64_t rows;      /* rows that have it */
    uint64_t first_row; /* first row in which it is not null */
};

void rks_guesses_free(rks_guesses *all)
{
    for (size_t i = 0; i < all->count; i++)
        rks_free(all->items[i].name);
    rks_free(all->items);
    json_decref(all->places);
    *all = (rks_guesses){0};
}

static shape shape_of_number(rks_json value)
{
    shape made = {.base = rks_json_is_whole(value) ? BASE_INT : BASE_REAL};
    if (rks_json_is(value, RKS_JSON_UNSIGNED))
        made.large = rks_json_uint(value);
    else if (made.base == BASE_INT && rks_json_int(value) < 0)
        made.least = rks_json_int(value);
    return made;
}

/* Widens the range of integers. */
static void join_ranges(shape *into, shape other)
{
    into->least = other.least < into->least ? other.least : into->least;
    into->large = other.large > into->large ? other.large : into->large;
}

static shape shape_of_list(rks_json list)
{
    size_t count = rks_json_count(list);
    shape made = {.base = count == 0 ? BASE_EMPTY : BASE_INT, .dims = 1};
    rks_json item = rks_json_inside(list);
    if (count > 0 && rks_json_is(item, RKS_JSON_LIST)) {
        made.dims = 2;
        made.width = (uint32_t)rks_json_count(item);
    }
    for (size_t i = 0; i < count; i++, item = rks_json_next(item)) {
        shape inner = {0};
        rks_json_type type = rks_json_type_of(item);
        if (made.dims == 1 && (rks_json_is_whole(item) || type == RKS_JSON_REAL))
            inner = shape_of_number(item);
        else if (made.dims == 2 && type == RKS_JSON_LIST && rks_json_count(item) == made.width &&
                 (made.width == 0 || !rks_json_is(rks_json_inside(item), RKS_JSON_LIST)))
            inner = shape_of_list(item); /* never deeper than this */
        if (inner.base != BASE_INT && inner.base != BASE_REAL)
            return (shape){.base = BASE_JSON};
        if (inner.base == BASE_REAL)
            made.base = BASE_REAL;
        join_ranges(&made, inner);
    }
    return made;
}

static shape shape_of(rks_json value)
{
    switch (rks_json_type_of(value)) {
    case RKS_JSON_NULL:
        return (shape){.base = BASE_NULL, .nullable = true};
    case RKS_JSON_TRUE:
    case RKS_JSON_FALSE:
        return (shape){.base = BASE_BOOL};
    case RKS_JSON_INTEGER:
    case RKS_JSON_UNSIGNED:
    case RKS_JSON_REAL:
        return shape_of_number(value);
    case RKS_JSON_STRING:
        return (shape){.base = BASE_STR};
    case RKS_JSON_LIST:
        return shape_of_list(value);
    default:
        return (shape){.base = BASE_JSON};
    }
}

static bool is_number(shape of)
{
    return of.base == BASE_INT || of.base == BASE_REAL;
}

static bool is_list(shape of)
{
    return of.base == BASE_EMPTY || (is_number(of) && of.dims > 0);
}

static shape join_sizes(shape a, shape b)
{
    for (uint32_t i = 0; i < a.dims; i++)
        if (a.sizes[i] != b.sizes[i])
            a.sizes[i] = 0;
    return a;
}

/* Returns whether b says all that a says: a is null, or an empty list where b is a list or JSON. */
static bool says_less(shape a, shape b)
{
    return a.base == BASE_NULL || (a.base == BASE_EMPTY && (is_list(b) || b.base == BASE_JSON));
}

/* Returns whether only JSON holds both: a list and JSON, or lists of different depths. */
static bool need_json(shape a, shape b)
{
    if (is_list(a) && is_list(b))
        return a.dims != b.dims;
    return (a.base == BASE_JSON && is_list(b)) || (b.base == BASE_JSON && is_list(a));
}

static shape join_numbers(shape a, shape b)
{
    shape joined = {.base = a.base == b.base ? a.base : BASE_REAL,
                    .dims = a.dims,
                    .width = a.width == b.width ? a.width : 0,
                    .least = a.least,
                    .large = a.large};
    join_ranges(&joined, b);
    return joined;
}

/* Joins two shapes of as many dimensions. Returns false if they conflict. */
static bool join_equals(shape a, shape b, shape *joined)
{
    if (is_number(a) && is_number(b))
        *joined = join_numbers(a, b);
    else if (a.base != b.base)
        return false;
    else if (a.base != BASE_TYPED)
        *joined = a;
    else if (strcmp(a.item, b.item) == 0)
        *joined = join_sizes(a, b);
    else
        return false;
    return true;
}

/* Joins two shapes. Returns false if they conflict. */
static bool join_shapes(shape a, shape b, shape *joined)
{
    if (says_less(a, b))
        *joined = b;
    else if (says_less(b, a))
        *joined = a;
    else if (need_json(a, b))
        *joined = (shape){.base = BASE_JSON};
    else if (a.dims != b.dims || !join_equals(a, b, joined))
        return false;
    joined->nullable = a.nullable || b.nullable;
    return true;
}

static void print_typed(shape of, char text[TYPE_ROOM])
{
    int used = snprintf(text, TYPE_ROOM, "%s", of.item);
    for (uint32_t i = 0; i < of.dims; i++) {
        char size[16] = "*";
        if (of.sizes[i] != 0)
            snprintf(size, sizeof(size), "%" PRIu32, of.sizes[i]);
        used += snprintf(text + used, (size_t)(TYPE_ROOM - used), "%s%s%s", i == 0 ? "[" : ",",
                         size, i + 1 == of.dims ? "]" : "");
    }
    if (of.nullable)
        snprintf(text + used, (size_t)(TYPE_ROOM - used), "?");
}

static void print_shape(shape of, char text[TYPE_ROOM])
{
    static const char *const NAMES[] = {
        [BASE_NULL] = "json",   [BASE_EMPTY] = "json",   [BASE_BOOL] = "bool",
        [BASE_INT] = "int64",   [BASE_REAL] = "float64", [BASE_STR] = "str",
        [BASE_BYTES] = "bytes", [BASE_JSON] = "json",
    };
    char dims[32] = "";
    if (is_number(of) && of.dims == 1)
        snprintf(dims, sizeof(dims), "[*]");
    else if (is_number(of) && of.dims == 2 && of.width == 0)
        snprintf(dims, sizeof(dims), "[*,*]");
    else if (is_number(of) && of.dims == 2)
        snprintf(dims, sizeof(dims), "[*,%" PRIu32 "]", of.width);
    if (of.base == BASE_TYPED) {
        print_typed(of, text);
        return;
    }
    bool unknown = of.base == BASE_NULL || of.base == BASE_EMPTY;
    bool nullable = unknown || (of.nullable && of.base != BASE_JSON);
    const char *name = of.base == BASE_INT && of.large > 0 ? "uint64" : NAMES[of.base];
    snprintf(text, TYPE_ROOM, "%s%s%s", name, dims, nullable ? "?" : "");
}

/* Finds the guess of this name, or makes one. */
static rks_status find_guess(rks_guesses *all, const char *name, rks_guess **found, rks_error *err)
{
    json_t *place = json_object_get(all->places, name);
    if (place != NULL) {
        *found = &all->items[json_integer_value(place)];
        return RKS_OK;
    }
    if (all->count == RKS_COLUMNS_MAX)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "more than %d different names, at \"%.64s\"; give schema", RKS_COLUMNS_MAX,
                        name);
    if (all->count == all->room) {
        size_t room = all->room == 0 ? 16 : 2 * all->room;
        rks_guess *grown = rks_realloc(all->items, room, sizeof(*grown), err);
        if (grown == NULL)
            return RKS_ERR_MEMORY;
        all->items = grown;
        all->room = room;
    }
    rks_guess made = {.name = rks_strdup(name, err)};
    if (made.name == NULL)
        return RKS_ERR_MEMORY;
    if (all->places == NULL)
        all->places = json_object();
    if (json_object_set_new(all->places, name, json_integer((json_int_t)all->count)) != 0) {
        rks_free(made.name);
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory for a column's name");
    }
    all->items[all->count] = made;
    *found = &all->items[all->count++];
    return RKS_OK;
}

static rks_status conflict(const rks_guess *at, shape other, const char *where, rks_error *err)
{
    char first[TYPE_ROOM], second[TYPE_ROOM];
    print_shape(at->shape, first);
    print_shape(other, second);
    return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\" is %s here and %s %s; give schema",
                    at->name, second, first, where);
}

static rks_status add_shape(rks_guesses *all, const char *name, shape seen, uint64_t row,
                            rks_error *err)
{
    rks_guess *found = NULL;
    rks_status status = find_guess(all, name, &found, err);
    if (status != RKS_OK)
        return status;
    bool first = found->rows++ == 0 || found->shape.base == BASE_NULL;
    if (!join_shapes(found->shape, seen, &found->shape)) {
        char where[64];
        snprintf(where, sizeof(where), "%" PRIu64 " %s before", row - found->first_row,
                 all->rows_are == NULL ? "lines" : all->rows_are);
        return conflict(found, seen, where, err);
    }
    if (first)
        found->first_row = row;
    return RKS_OK;
}

rks_status rks_guesses_add_value(rks_guesses *all, const char *name, rks_json value, uint64_t row,
                                 rks_error *err)
{
    return add_shape(all, name, shape_of(value), row, err);
}

typedef struct row_of {
    rks_guesses *all;
    uint64_t number;
} row_of;

static rks_status add_member(void *user, const char *name, rks_json value, rks_error *err)
{
    const row_of *row = user;
    if (row->all->flatten && rks_json_is(value, RKS_JSON_OBJECT))
        return rks_json_members(name, value, add_member, user, err);
    return rks_guesses_add_value(row->all, name, value, row->number, err);
}

rks_status rks_guesses_add(rks_guesses *all, rks_json object, uint64_t row, rks_error *err)
{
    row_of members = {all, row};
    return rks_json_members(NULL, object, add_member, &members, err);
}

/* Prints {"name":"type",...} with a NUL. */
static rks_status guesses_as_json(const rks_guesses *all, rks_buffer *json, rks_error *err)
{
    rks_status status = rks_buffer_add(json, "{", 1, err);
    for (size_t i = 0; status == RKS_OK && i < all->count; i++) {
        char type[TYPE_ROOM];
        const char *name = all->items[i].name;
        status = rks_json_print_string(name, strlen(name), json, err);
        print_shape(all->items[i].shape, type);
        if (status == RKS_OK)
            status = rks_buffer_print(json, err, ":\"%s\"%s", type, i + 1 < all->count ? "," : "");
    }
    return status == RKS_OK ? rks_buffer_add(json, "}", 2, err) : status;
}

/* Prints the guesses as a schema's canonical text. */
static rks_status print_guesses(const rks_guesses *all, char **text, rks_error *err)
{
    rks_buffer json = {0};
    rks_schema *schema = NULL;
    rks_status status = guesses_as_json(all, &json, err);
    if (status == RKS_OK)
        status = rks_schema_parse((const char *)json.data, &schema, err);
    rks_buffer_free(&json);
    if (status == RKS_ERR_ARGUMENT && err != NULL)
        status = err->status = RKS_ERR_DATA; /* the input's names, not the user's schema */
    if (status != RKS_OK)
        return status;
    char *copy = rks_strdup(rks_schema_text(schema), err);
    rks_schema_free(schema);
    if (copy == NULL)
        return RKS_ERR_MEMORY;
    *text = copy;
    return RKS_OK;
}

rks_status rks_guesses_text(rks_guesses *all, uint64_t samples, char **text, rks_error *err)
{
    for (size_t i = 0; i < all->count; i++) {
        const shape *seen = &all->items[i].shape;
        if (seen->base == BASE_INT && seen->least < 0 && seen->large > 0)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "column \"%s\" has %" PRId64 " and %" PRIu64
                            ", which no integer type holds together; give schema with json",
                            all->items[i].name, seen->least, seen->large);
        all->items[i].shape.nullable |= all->items[i].rows < samples;
    }
    return print_guesses(all, text, err);
}

static shape typed(const rks_column *column)
{
    shape made = {.base = BASE_TYPED, .dims = column->dim_count, .nullable = column->nullable};
    snprintf(made.item, sizeof(made.item), "%.*s", (int)strcspn(column->type, "[?"), column->type);
    memcpy(made.sizes, column->dims, sizeof(made.sizes));
    return made;
}

/* Gets back the shape of an inferred column. */
static void shape_of_column(const rks_column *column, shape *of)
{
    *of = (shape){.nullable = column->nullable};
    of->dims = column->dim_count;
    switch (column->kind) {
    case RKS_KIND_BOOL:
        of->base = BASE_BOOL;
        if (of->dims > 0)
            *of = typed(column);
        return;
    case RKS_KIND_INT64:
    case RKS_KIND_UINT64:
    case RKS_KIND_FLOAT64:
        of->base = column->kind == RKS_KIND_FLOAT64 ? BASE_REAL : BASE_INT;
        of->large = column->kind == RKS_KIND_UINT64 ? UINT64_MAX : 0;
        of->width = of->dims == 2 ? column->dims[1] : 0;
        if (of->dims > 2 || (of->dims > 0 && column->dims[0] != 0))
            *of = typed(column);
        return;
    case RKS_KIND_STR:
    case RKS_KIND_BYTES:
        of->base = column->kind == RKS_KIND_STR ? BASE_STR : BASE_BYTES;
        of->dims = 0;
        return;
    case RKS_KIND_JSON:
        of->base = column->nullable ? BASE_NULL : BASE_JSON;
        of->dims = 0;
        return;
    default:
        *of = typed(column);
    }
}

rks_status rks_guesses_add_type(rks_guesses *all, const char *name, const char *type, uint64_t row,
                                rks_error *err)
{
    rks_schema *schema = NULL;
    char text[TYPE_ROOM];
    shape seen;
    snprintf(text, sizeof(text), "c:%s", type);
    rks_status status = rks_schema_parse(text, &schema, err);
    if (status != RKS_OK)
        return status;
    shape_of_column(rks_schema_column(schema, 0), &seen);
    rks_schema_free(schema);
    return add_shape(all, name, seen, row, err);
}

static rks_status add_schema(rks_guesses *all, const rks_schema *schema, rks_error *err)
{
    for (uint32_t i = 0; i < rks_schema_columns(schema); i++) {
        const rks_column *column = rks_schema_column(schema, i);
        rks_guess *found = NULL;
        shape seen;
        shape_of_column(column, &seen);
        rks_status status = find_guess(all, column->name, &found, err);
        if (status != RKS_OK)
            return status;
        if (found->rows++ == 0)
            found->shape = seen;
        else if (!join_shapes(found->shape, seen, &found->shape))
            return conflict(found, seen, "in another part of the input", err);
    }
    return RKS_OK;
}

static bool is_folder(const rks_schema *schema, const char *content, rks_kind kind)
{
    return rks_schema_columns(schema) == 2 && strcmp(rks_schema_name(schema, 1), "path") == 0 &&
           strcmp(rks_schema_name(schema, 0), content) == 0 &&
           rks_schema_column(schema, 0)->kind == kind;
}

rks_status rks_ingest_merge(const char *a, const char *b, char **merged, rks_error *err)
{
    rks_schema *first = NULL, *second = NULL;
    rks_guesses all = {0};
    char *made = NULL;
    rks_status status = rks_schema_parse(a, &first, err);
    if (status == RKS_OK)
        status = rks_schema_parse(b, &second, err);
    if (status != RKS_OK)
        goto out;
    /* Only some files of a folder are text: treat all as bytes. */
    const rks_schema *data = NULL;
    if (is_folder(first, "data", RKS_KIND_BYTES) && is_folder(second, "text", RKS_KIND_STR))
        data = first;
    else if (is_folder(first, "text", RKS_KIND_STR) && is_folder(second, "data", RKS_KIND_BYTES))
        data = second;
    if (data != NULL) {
        made = rks_strdup(rks_schema_text(data), err);
        status = made == NULL ? RKS_ERR_MEMORY : RKS_OK;
    } else {
        status = add_schema(&all, first, err);
        if (status == RKS_OK)
            status = add_schema(&all, second, err);
        if (status == RKS_OK)
            status = rks_guesses_text(&all, 2, &made, err);
    }
    if (status == RKS_OK)
        *merged = made;
out:
    rks_guesses_free(&all);
    rks_schema_free(second);
    rks_schema_free(first);
    return status;
}
