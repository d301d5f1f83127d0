/* SPDX-License-Identifier: Apache-2.0
 *
 * json_array_convert.c: converts JSON numbers and lists to little-endian arrays. */
#include "ingest/row.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "codec/number.h"
#include "shard/small_float.h"

/* Returns the largest number of an integer column. */
static uint64_t most_of(const rks_column *column)
{
    bool has_sign = rks_kinds[column->kind].item_class == RKS_CLASS_INT;
    return UINT64_MAX >> (64 - 8 * column->item_size + has_sign);
}

/* Returns an integer's value as float64, rounded. */
static double rounded(rks_json json)
{
    return rks_json_is(json, RKS_JSON_UNSIGNED) ? (double)rks_json_uint(json)
                                                : (double)rks_json_int(json);
}

/* Returns true if float64 holds the integer exactly. Correct also for those that it rounds to 2^63
 * or 2^64, which cannot be cast back. */
static bool double_holds(rks_json json)
{
    const int64_t most = INT64_C(1) << 53; /* float64 holds every integer up to this */
    bool large = rks_json_is(json, RKS_JSON_UNSIGNED);
    if (!large && rks_json_int(json) >= -most && rks_json_int(json) <= most)
        return true;
    rks_number exact = {.kind = large ? RKS_NUMBER_UINT : RKS_NUMBER_INT,
                        .as.u = rks_json_uint(json)};
    rks_number real = {.kind = RKS_NUMBER_REAL, .as.d = rounded(json)};
    return rks_number_compare(exact, real) == 0;
}

static rks_status unfit(const rks_column *column, rks_json json, rks_error *err)
{
    rks_buffer text = {0};
    const char *kind = rks_json_kind(json);
    bool number =
        rks_json_is_whole(json) || (rks_json_is(json, RKS_JSON_REAL) && !rks_json_is_special(json));
    rks_status status = number ? rks_json_print(json, &text, err) : RKS_OK;
    if (status == RKS_OK && rks_json_is_whole(json) && column->kind == RKS_KIND_FLOAT64 &&
        !double_holds(json))
        status = rks_fail_rounded(column, (const char *)text.data, text.size, rounded(json), err);
    else if (status == RKS_OK)
        status = rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\": %.*s does not fit %s", column->name,
                          (int)(number ? text.size : strlen(kind)),
                          number ? (const char *)text.data : kind, column->type);
    rks_buffer_free(&text);
    return status;
}

rks_status rks_json_print_column(const rks_column *column, rks_json json, rks_buffer *text,
                                 rks_error *err)
{
    rks_error why = {0};
    rks_status status = rks_json_print(json, text, &why);
    if (status == RKS_OK)
        return RKS_OK;
    return rks_fail(err, status, why.cause, "column \"%s\": %s", column->name, why.text);
}

rks_status rks_fail_rounded(const rks_column *column, const char *text, size_t size, double number,
                            rks_error *err)
{
    int shown = size < 40 ? (int)size : 40;
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "column \"%s\": float64 would round %.*s%s to %.0f; give schema with int64 (or "
                    "json; in CSV str) to keep it, or write it with a point",
                    column->name, shown, text, size < 40 ? "" : "...", number);
}

static bool put_float(rks_kind kind, double number, uint8_t *into)
{
    uint16_t bits = 0;
    float single = (float)number;
    switch (kind) {
    case RKS_KIND_FLOAT64:
        memcpy(into, &number, sizeof(number));
        return true;
    case RKS_KIND_FLOAT32:
        memcpy(into, &single, sizeof(single));
        return isfinite(single) || !isfinite(number);
    case RKS_KIND_FLOAT16:
    case RKS_KIND_BFLOAT16:
        if (!rks_small_float_put(kind, number, &bits))
            return false;
        rks_store_u16(into, bits);
        return true;
    default:
        if (!rks_small_float_put(kind, number, &bits))
            return false;
        into[0] = (uint8_t)bits;
        return true;
    }
}

/* Returns a string's text; NULL if it is not a string or has a NUL, which no number has. */
static const char *string_of(rks_json json)
{
    size_t size;
    const char *text = rks_json_is(json, RKS_JSON_STRING) ? rks_json_text(json, &size) : NULL;
    return text != NULL && memchr(text, '\0', size) == NULL ? text : NULL;
}

/* Reads a number, or one of the three that JSON has no digits for. */
static bool read_float(rks_json json, double *number)
{
    static const struct {
        const char *name;
        double value;
    } special[] = {{RKS_NAN_TEXT, NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
    if (rks_json_is(json, RKS_JSON_REAL)) {
        *number = rks_json_real(json);
        return true;
    }
    if (rks_json_is_whole(json)) {
        *number = rounded(json);
        return true;
    }
    const char *text = string_of(json);
    for (size_t i = 0; text != NULL && i < sizeof(special) / sizeof(special[0]); i++)
        if (strcmp(text, special[i].name) == 0) {
            *number = special[i].value;
            return true;
        }
    return false;
}

static bool is_nan(rks_kind kind, uint64_t bits)
{
    float single;
    double real;
    uint32_t narrow = (uint32_t)bits;
    memcpy(&single, &narrow, sizeof(single));
    memcpy(&real, &bits, sizeof(real));
    return kind == RKS_KIND_FLOAT64   ? isnan(real)
           : kind == RKS_KIND_FLOAT32 ? isnan(single)
                                      : isnan(rks_small_float_decode(kind, (uint16_t)bits));
}

/* Reads "NaN(ffc00000)": a NaN by its bits, with all of their digits. */
static bool put_nan(rks_kind kind, uint32_t size, const char *text, uint8_t *into)
{
    size_t front = strlen(RKS_NAN_TEXT) + 1, digits = 2 * size;
    const char *begin = text + front;
    char *end = NULL;
    if (strncmp(text, RKS_NAN_TEXT "(", front) != 0 ||
        strspn(begin, "0123456789abcdef") != digits || strcmp(begin + digits, ")") != 0)
        return false;
    uint64_t bits = strtoull(begin, &end, 16);
    memcpy(into, &bits, size); /* little-endian: the low bytes are first */
    return is_nan(kind, bits);
}

static bool put_real(rks_kind kind, uint32_t size, rks_json json, uint8_t *into)
{
    double real;
    if (kind == RKS_KIND_FLOAT64 && rks_json_is_whole(json) && !double_holds(json))
        return false;
    if (read_float(json, &real))
        return put_float(kind, real, into);
    const char *text = string_of(json);
    return text != NULL && put_nan(kind, size, text, into);
}

/* Reads the digits of a uint64, which exports write as a string above 2^63 - 1. */
static bool put_large(const char *text, uint8_t *into)
{
    uint64_t number = 0;
    if (text == NULL || text[0] == '\0')
        return false;
    for (; *text != '\0'; text++)
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(number, 10u, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number))
            return false;
    rks_store_u64(into, number);
    return true;
}

static bool put_complex(rks_json json, uint8_t *into)
{
    if (!rks_json_is(json, RKS_JSON_LIST) || rks_json_count(json) != 2)
        return false;
    rks_json real = rks_json_inside(json);
    return put_real(RKS_KIND_FLOAT32, sizeof(float), real, into) &&
           put_real(RKS_KIND_FLOAT32, sizeof(float), rks_json_next(real), into + sizeof(float));
}

static bool put_item(const rks_column *column, rks_json json, uint8_t *into)
{
    if (column->kind == RKS_KIND_BOOL) {
        into[0] = rks_json_is(json, RKS_JSON_TRUE);
        return into[0] || rks_json_is(json, RKS_JSON_FALSE);
    }
    if (column->kind == RKS_KIND_COMPLEX64)
        return put_complex(json, into);
    if (rks_kind_is_float(column->kind))
        return put_real(column->kind, column->item_size, json, into);
    if (column->kind == RKS_KIND_UINT64 && rks_json_is(json, RKS_JSON_STRING))
        return put_large(string_of(json), into);
    if (!rks_json_is_whole(json))
        return false;
    uint64_t number = rks_json_uint(json), most = most_of(column);
    if (rks_json_is(json, RKS_JSON_INTEGER) && rks_json_int(json) < 0) {
        if (rks_kinds[column->kind].item_class == RKS_CLASS_UINT ||
            rks_json_int(json) < -(int64_t)most - 1)
            return false;
    } else if (number > most) {
        return false;
    }
    memcpy(into, &number, column->item_size); /* little-endian: the low bytes are first */
    return true;
}

static rks_status wrong_size(const rks_column *column, size_t items, uint32_t needed,
                             rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "column \"%s\": a list of %zu items where %" PRIu32 " are needed for %s",
                    column->name, items, needed, column->type);
}

/* Writes the list's items to *at, which moves on. */
static rks_status put_list(const rks_column *column, rks_json json, const uint32_t *dims,
                           uint32_t dim, uint8_t **at, rks_error *err)
{
    if (!rks_json_is(json, RKS_JSON_LIST))
        return unfit(column, json, err);
    size_t items = rks_json_count(json);
    if (items != dims[dim])
        return wrong_size(column, items, dims[dim], err);
    bool last = dim + 1 == column->dim_count;
    rks_json item = rks_json_inside(json);
    for (size_t i = 0; i < items; i++, item = rks_json_next(item)) {
        if (!last) {
            rks_status status = put_list(column, item, dims, dim + 1, at, err);
            if (status != RKS_OK)
                return status;
            continue;
        }
        if (!put_item(column, item, *at))
            return unfit(column, item, err);
        *at += column->item_size;
    }
    return RKS_OK;
}

/* Finds the dimensions. The first item of each level gives the size of `*`; put_list checks the
 * others. */
static rks_status find_dims(const rks_column *column, rks_json json, size_t limit, uint32_t *dims,
                            uint64_t *size, rks_error *err)
{
    rks_json at = json;
    uint64_t count = 1;
    for (uint32_t dim = 0; dim < column->dim_count; dim++) {
        bool list = rks_json_is(at, RKS_JSON_LIST);
        size_t items = list ? rks_json_count(at) : 0; /* 0 also if there is no value */
        if (count > 0 && !list)
            return unfit(column, at, err);
        dims[dim] = column->dims[dim] != 0 ? column->dims[dim] : (uint32_t)items;
        if (count > 0 && items != dims[dim])
            return wrong_size(column, items, dims[dim], err);
        /* More items than the line has bytes: the lists differ in size. */
        if (count > 0 && dims[dim] > limit / count)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "column \"%s\": lists of unequal sizes, %s needs "
                            "them equal",
                            column->name, column->type);
        count *= dims[dim];
        at = items > 0 ? rks_json_inside(at) : (rks_json){0};
    }
    *size = count * column->item_size;
    return RKS_OK;
}

rks_status rks_json_convert(const rks_column *column, rks_json json, size_t limit,
                            rks_buffer *bytes, rks_value *value, rks_error *err)
{
    rks_value made = {0};
    rks_status status = find_dims(column, json, limit, made.dims, &made.size, err);
    if (status == RKS_OK)
        status = rks_buffer_reserve(bytes, made.size, err);
    if (status != RKS_OK)
        return status;
    uint8_t *into = bytes->data + bytes->size;
    if (column->dim_count > 0)
        status = put_list(column, json, made.dims, 0, &into, err);
    else if (!put_item(column, json, into))
        status = unfit(column, json, err);
    if (status != RKS_OK)
        return status;
    bytes->size += made.size;
    *value = made;
    return RKS_OK;
}
