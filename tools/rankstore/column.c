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

#define TOP (UINT64_C(1) << 63)

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
    rks_type_info info = {.struct_size = sizeof(info)};
    rks_error err;
    bool known = rks_type_describe(column->type, &info, &err) == RKS_OK;
    column->item_class = info.item_class;
    column->item_size = info.item_size;
    if (!known)
        snprintf(problem, problem_size, "column '%.80s': %s", name, err.text);
    return known;
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
    const uint8_t *item = column->data + i * column->item_size;
    if (column->lengths[i] == UINT32_MAX)
        return CLI_ENTRY_ABSENT;
    if (column->item_class == RKS_CLASS_FLOAT) {
        double number = load_real(column->type, item) + 0.0; /* one zero */
        uint64_t bits;
        if (!isfinite(number))
            return CLI_ENTRY_NOT_FINITE;
        memcpy(&bits, &number, sizeof(bits));
        *key = bits & TOP ? ~bits : bits | TOP;
        return CLI_ENTRY_NUMBER;
    }
    uint64_t bits = load_integer(item, column->item_size);
    if (column->item_class == RKS_CLASS_INT) {
        unsigned shift = 64 - 8 * (unsigned)column->item_size;
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
    return column->item_class != RKS_CLASS_FLOAT;
}

double cli_column_number(const cli_column *column, uint64_t key)
{
    double number;
    if (column->item_class == RKS_CLASS_UINT)
        return (double)key;
    if (column->item_class == RKS_CLASS_INT)
        return (double)(int64_t)(key ^ TOP);
    key = key & TOP ? key ^ TOP : ~key;
    memcpy(&number, &key, sizeof(number));
    return number;
}

json_t *cli_column_json(const cli_column *column, uint64_t key)
{
    if (!cli_column_is_whole(column))
        return json_real(cli_column_number(column, key));
    if (column->item_class == RKS_CLASS_INT)
        return json_integer((json_int_t)(key ^ TOP));
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, key);
    return key > INT64_MAX ? json_string(text) : json_integer((json_int_t)key);
}

char *cli_column_text(const cli_column *column, uint64_t key, char text[32])
{
    if (!cli_column_is_whole(column))
        return cli_number_text(cli_column_number(column, key), false, text);
    bool negative = column->item_class == RKS_CLASS_INT && key < TOP;
    uint64_t size = column->item_class == RKS_CLASS_UINT ? key : negative ? TOP - key : key - TOP;
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
