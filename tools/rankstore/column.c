/* SPDX-License-Identifier: Apache-2.0
 *
 * column.c: keys keep the order: of signed integers the sign bit is turned over, of floats also all
 * others where they are negative (IEEE 754's total order). */
#include "column.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli.h"
#include "value.h"

enum order { UNSIGNED, SIGNED, REAL };
#define TOP (UINT64_C(1) << 63)

typedef struct number_kind {
    const char *name;
    size_t size;
    enum order order;
} number_kind;

static const number_kind kinds[] = {
    {"uint32", 4, UNSIGNED},    {"uint8", 1, UNSIGNED},   {"uint16", 2, UNSIGNED},
    {"uint64", 8, UNSIGNED},    {"int8", 1, SIGNED},      {"int16", 2, SIGNED},
    {"int32", 4, SIGNED},       {"int64", 8, SIGNED},     {"float16", 2, REAL},
    {"bfloat16", 2, REAL},      {"float32", 4, REAL},     {"float64", 8, REAL},
    {"float8_e4m3fn", 1, REAL}, {"float8_e5m2", 1, REAL},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static void list_columns(rks_store *store, const char *name, char *problem, size_t problem_size)
{
    char *text = NULL, list[160] = "";
    rks_error err;
    if (rks_store_info_json(store, &text, &err) == RKS_OK) {
        json_t *info = json_loads(text, 0, NULL), *entry;
        size_t i;
        json_array_foreach(json_object_get(info, "index"), i, entry)
        {
            size_t used = strlen(list);
            snprintf(list + used, sizeof(list) - used, ", %s", json_string_value(entry));
        }
        json_decref(info);
    }
    rks_release(text);
    snprintf(problem, problem_size,
             "no numbers of '%.80s' in the index, which has: length%s (build with --index to have "
             "more)",
             name, list);
}

bool cli_column_find(rks_store *store, const char *name, cli_column *column, char *problem,
                     size_t problem_size)
{
    const char *type = "uint32";
    const void *data = name == NULL ? NULL : rks_store_column(store, name, &type);
    bool is_length = name == NULL || (data == NULL && strcmp(name, "length") == 0);
    /* A dataset of nothing has columns of nothing. */
    if (data == NULL && !is_length) {
        list_columns(store, name, problem, problem_size);
        return false;
    }
    *column = (cli_column){.name = is_length ? "length" : name,
                           .type = is_length ? "uint32" : type,
                           .lengths = rks_store_lengths(store),
                           .count = rks_store_count(store)};
    column->data = is_length ? (const uint8_t *)column->lengths : data;
    while (column->kind < KINDS && strcmp(kinds[column->kind].name, column->type) != 0)
        column->kind++;
    if (column->kind == KINDS)
        snprintf(problem, problem_size, "column '%.80s' is of %s, which has no order", name, type);
    return column->kind < KINDS;
}

static uint64_t load_integer(const uint8_t *item, size_t size)
{
    uint64_t bits = 0;
    memcpy(&bits, item, size);
    return bits;
}

static double load_real(const char *type, const uint8_t *item)
{
    double number = NAN;
    (void)rks_float_read(type, item, &number, NULL);
    return number;
}

enum cli_entry cli_column_key(const cli_column *column, uint64_t i, uint64_t *key)
{
    const number_kind *kind = &kinds[column->kind];
    const uint8_t *item = column->data + i * kind->size;
    if (column->lengths[i] == UINT32_MAX)
        return CLI_ENTRY_ABSENT;
    if (kind->order == REAL) {
        double number = load_real(kind->name, item) + 0.0; /* one zero */
        uint64_t bits;
        if (!isfinite(number))
            return CLI_ENTRY_NOT_FINITE;
        memcpy(&bits, &number, sizeof(bits));
        *key = bits & TOP ? ~bits : bits | TOP;
        return CLI_ENTRY_NUMBER;
    }
    uint64_t bits = load_integer(item, kind->size);
    if (kind->order == SIGNED) {
        unsigned shift = 64 - 8 * (unsigned)kind->size;
        bits = (uint64_t)((int64_t)(bits << shift) >> shift) ^ TOP;
    }
    *key = bits;
    return CLI_ENTRY_NUMBER;
}

bool cli_column_is_length(const cli_column *column)
{
    return column->data == (const uint8_t *)column->lengths;
}

bool cli_column_is_whole(const cli_column *column)
{
    return kinds[column->kind].order != REAL;
}

double cli_column_number(const cli_column *column, uint64_t key)
{
    double number;
    switch (kinds[column->kind].order) {
    case UNSIGNED:
        return (double)key;
    case SIGNED:
        return (double)(int64_t)(key ^ TOP);
    case REAL:
        break;
    }
    key = key & TOP ? key ^ TOP : ~key;
    memcpy(&number, &key, sizeof(number));
    return number;
}

json_t *cli_column_json(const cli_column *column, uint64_t key)
{
    if (!cli_column_is_whole(column))
        return json_real(cli_column_number(column, key));
    if (kinds[column->kind].order == SIGNED)
        return json_integer((json_int_t)(key ^ TOP));
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, key);
    return key > INT64_MAX ? json_string(text) : json_integer((json_int_t)key);
}

char *cli_column_text(const cli_column *column, uint64_t key, char text[32])
{
    if (!cli_column_is_whole(column))
        return cli_number_text(cli_column_number(column, key), false, text);
    bool negative = kinds[column->kind].order == SIGNED && key < TOP;
    uint64_t size = kinds[column->kind].order == UNSIGNED ? key : negative ? TOP - key : key - TOP;
    snprintf(text, 32, "%s%s", negative ? "-" : "", cli_count(size));
    return text;
}

char *cli_number_text(double number, bool whole, char text[32])
{
    double size = fabs(number);
    if (size >= 1e15 || (size > 0 && size < 1e-4 && !whole))
        snprintf(text, 32, "%.3g", number);
    else if (whole || size >= 1e5)
        snprintf(text, 32, "%s%s", number < 0 ? "-" : "", cli_count((uint64_t)llround(size)));
    else
        snprintf(text, 32, "%.5g", number);
    return text;
}
