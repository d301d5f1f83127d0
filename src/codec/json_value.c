/* SPDX-License-Identifier: Apache-2.0
 *
 * json_value.c: prints values of columns as JSON. Numbers get as few digits as give back the same
 * value of their type. */
#include "codec/json_value.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/secret.h"
#include "base/utf8.h"
#include "codec/json.h"
#include "codec/number.h"
#include "shard/small_float.h"

static rks_status put_real(double number, bool narrow, rks_buffer *text, rks_error *err)
{
    char digits[40];
    size_t known = narrow ? 0 : rks_real_spell(number, digits);
    if (known > 0)
        return rks_buffer_add(text, digits, known, err);
    if (isnan(number))
        return rks_buffer_print(text, err, "\"" RKS_NAN_TEXT "\"");
    if (isinf(number))
        return rks_buffer_print(text, err, number > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    for (int precision = narrow ? 6 : 15; precision <= (narrow ? 9 : 17); precision++) {
        rks_snprintf(digits, sizeof(digits), "%.*g", precision, number);
        double back = rks_strtod(digits, NULL);
        if (narrow ? (float)back == (float)number : back == number)
            break;
    }
    bool whole = strpbrk(digits, ".e") == NULL;
    return rks_buffer_print(text, err, "%s%s", digits, whole ? ".0" : "");
}

/* Returns the bits of a NaN other than the one that "NaN" is read as; 0 for that one and for
 * numbers. */
static uint64_t odd_nan(rks_kind kind, const uint8_t *item, uint32_t size)
{
    uint64_t bits = 0;
    uint16_t usual = 0;
    float single;
    double wide;
    memcpy(&bits, item, size);
    memcpy(&single, item, sizeof(single) < size ? sizeof(single) : size);
    memcpy(&wide, &bits, sizeof(wide));
    if (kind == RKS_KIND_FLOAT64)
        return isnan(wide) && bits != UINT64_C(0x7ff8000000000000) ? bits : 0;
    if (kind == RKS_KIND_FLOAT32)
        return isnan(single) && bits != UINT32_C(0x7fc00000) ? bits : 0;
    bool odd = isnan(rks_small_float_decode(kind, (uint16_t)bits)) &&
               rks_small_float_special(kind, (double)NAN, &usual) && bits != usual;
    return odd ? bits : 0;
}

static rks_status put_float(float number, rks_buffer *text, rks_error *err)
{
    return put_real((double)number, true, text, err);
}

static rks_status put_item(rks_kind kind, const uint8_t *item, uint32_t size, rks_buffer *text,
                           rks_error *err);

static rks_status put_complex(const uint8_t *item, rks_buffer *text, rks_error *err)
{
    rks_status status = rks_buffer_add(text, "[", 1, err);
    if (status == RKS_OK)
        status = put_item(RKS_KIND_FLOAT32, item, sizeof(float), text, err);
    if (status == RKS_OK)
        status = rks_buffer_add(text, ",", 1, err);
    if (status == RKS_OK)
        status = put_item(RKS_KIND_FLOAT32, item + sizeof(float), sizeof(float), text, err);
    return status == RKS_OK ? rks_buffer_add(text, "]", 1, err) : status;
}

static rks_status put_item(rks_kind kind, const uint8_t *item, uint32_t size, rks_buffer *text,
                           rks_error *err)
{
    uint64_t bits = 0;
    float single;
    double wide;
    memcpy(&bits, item, size);
    if (rks_kind_is_float(kind) && odd_nan(kind, item, size) != 0)
        return rks_buffer_print(text, err, "\"" RKS_NAN_TEXT "(%0*" PRIx64 ")\"", (int)(2 * size),
                                bits);
    switch (kind) {
    case RKS_KIND_BOOL:
        return rks_buffer_print(text, err, bits != 0 ? "true" : "false");
    case RKS_KIND_INT8:
        return rks_buffer_print(text, err, "%d", (int8_t)bits);
    case RKS_KIND_INT16:
        return rks_buffer_print(text, err, "%d", (int16_t)bits);
    case RKS_KIND_INT32:
        return rks_buffer_print(text, err, "%" PRId32, (int32_t)bits);
    case RKS_KIND_INT64:
        return rks_buffer_print(text, err, "%" PRId64, (int64_t)bits);
    case RKS_KIND_UINT64: /* above 2^63 - 1 as a string: few readers support more */
        return rks_buffer_print(text, err, bits > INT64_MAX ? "\"%" PRIu64 "\"" : "%" PRIu64, bits);
    case RKS_KIND_FLOAT32:
        memcpy(&single, item, sizeof(single));
        return put_float(single, text, err);
    case RKS_KIND_FLOAT64:
        memcpy(&wide, item, 8);
        return put_real(wide, false, text, err);
    case RKS_KIND_COMPLEX64:
        return put_complex(item, text, err);
    case RKS_KIND_FLOAT16:
    case RKS_KIND_BFLOAT16:
    case RKS_KIND_FLOAT8_E4M3FN:
    case RKS_KIND_FLOAT8_E5M2:
        return put_real(rks_small_float_decode(kind, (uint16_t)bits), true, text, err);
    default:
        return rks_buffer_print(text, err, "%" PRIu64, bits);
    }
}

static rks_status put_list(const rks_column *column, const uint32_t *dims, uint32_t dim,
                           const uint8_t **at, rks_buffer *text, rks_error *err)
{
    rks_status status = rks_buffer_add(text, "[", 1, err);
    for (uint32_t i = 0; status == RKS_OK && i < dims[dim]; i++) {
        if (i > 0)
            status = rks_buffer_add(text, ",", 1, err);
        if (status == RKS_OK && dim + 1 < column->dim_count) {
            status = put_list(column, dims, dim + 1, at, text, err);
        } else if (status == RKS_OK) {
            status = put_item(column->kind, *at, column->item_size, text, err);
            *at += column->item_size;
        }
    }
    return status == RKS_OK ? rks_buffer_add(text, "]", 1, err) : status;
}

rks_status rks_json_print_base64(const void *bytes, size_t size, rks_buffer *text, rks_error *err)
{
    rks_status status = rks_buffer_print(text, err, "{\"base64\":\"");
    if (status == RKS_OK)
        status = rks_base64_encode(bytes, size, text, err);
    return status == RKS_OK ? rks_buffer_print(text, err, "\"}") : status;
}

/* Parses the value and prints it in our form. */
static rks_status put_json(const rks_column *column, const rks_value *value, rks_buffer *text,
                           rks_error *err)
{
    rks_json_parser parser = {0};
    rks_json root = {0};
    rks_error why = {0};
    size_t size = (size_t)value->size;
    rks_status status = rks_json_read(&parser, value->data, size, size, &root, &why);
    if (status != RKS_OK)
        status = rks_fail(err, status, 0, "column \"%s\": %s", column->name, why.text);
    else
        status = rks_json_print(root, text, err);
    rks_json_parser_free(&parser);
    return status;
}

rks_status rks_json_print_value(const rks_column *column, const rks_value *value, rks_buffer *text,
                                rks_error *err)
{
    const uint8_t *at = value->data;
    if (value->data == NULL)
        return rks_buffer_print(text, err, "null");
    if (column->kind == RKS_KIND_STR && rks_utf8_valid(value->data, (size_t)value->size, NULL))
        return rks_json_print_string(value->data, (size_t)value->size, text, err);
    if (column->kind == RKS_KIND_STR || column->kind == RKS_KIND_BYTES)
        return rks_json_print_base64(value->data, (size_t)value->size, text, err);
    if (column->kind == RKS_KIND_JSON)
        return put_json(column, value, text, err);
    return column->dim_count == 0 ? put_item(column->kind, at, column->item_size, text, err)
                                  : put_list(column, value->dims, 0, &at, text, err);
}

/* Checks that the value has as many items as its dimensions say. */
static rks_status check_dims(const rks_column *column, const rks_value *value, rks_error *err)
{
    uint64_t size = column->item_size;
    if (value->data == NULL || column->kind == RKS_KIND_STR || column->kind == RKS_KIND_BYTES ||
        column->kind == RKS_KIND_JSON)
        return RKS_OK;
    for (uint32_t i = 0; i < column->dim_count; i++)
        if (__builtin_mul_overflow(size, value->dims[i], &size))
            size = UINT64_MAX;
    return size == value->size ? RKS_OK
                               : rks_fail(err, RKS_ERR_ARGUMENT, 0,
                                          "column \"%s\": %" PRIu64 " bytes do not fit its dims",
                                          column->name, value->size);
}

rks_status rks_value_json(const rks_schema *schema, uint32_t column, const rks_value *value,
                          char **text, rks_error *err)
{
    rks_buffer made = {0};
    if (column >= rks_schema_columns(schema))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "column %" PRIu32 " is out of range: there are %" PRIu32, column,
                        rks_schema_columns(schema));
    const rks_column *of = rks_schema_column(schema, column);
    rks_status status = check_dims(of, value, err);
    if (status == RKS_OK)
        status = rks_json_print_value(of, value, &made, err);
    if (status == RKS_OK)
        status = rks_buffer_add(&made, "", 1, err);
    if (status == RKS_OK) {
        *text = (char *)made.data;
        return RKS_OK;
    }
    rks_buffer_free(&made);
    return status;
}
