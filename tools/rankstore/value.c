/* SPDX-License-Identifier: Apache-2.0
 *
 * value.c: from stored bytes to what a person or a script reads. */
#include "value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *base64(const uint8_t *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc(size / 3 * 4 + 5), *at = text;
    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < size; i += 3) {
        uint32_t three = (uint32_t)bytes[i] << 16;
        three |= i + 1 < size ? (uint32_t)bytes[i + 1] << 8 : 0;
        three |= i + 2 < size ? bytes[i + 2] : 0;
        *at++ = digits[three >> 18];
        *at++ = digits[three >> 12 & 63];
        *at++ = i + 1 < size ? digits[three >> 6 & 63] : '=';
        *at++ = i + 2 < size ? digits[three & 63] : '=';
    }
    json_t *object = json_pack("{s:s#}", "base64", text, (int)(at - text));
    free(text);
    return object;
}

json_t *cli_text_json(const void *bytes, size_t size)
{
    json_t *string = json_stringn(size == 0 ? "" : bytes, size);
    return string != NULL ? string : base64(bytes, size);
}

/* A small float from its fields; `bias` and widths as in its type's name. */
static double small_float(uint32_t bits, int exponent_bits, int mantissa_bits, bool has_infinity)
{
    int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
    uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    int exponent = (int)(bits >> mantissa_bits) & top;
    double sign = (bits >> (exponent_bits + mantissa_bits)) & 1 ? -1 : 1;
    if (exponent == top && (has_infinity || mantissa == (1u << mantissa_bits) - 1))
        return has_infinity && mantissa == 0 ? sign * INFINITY : NAN;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1u << mantissa_bits), exponent - bias - mantissa_bits);
}

static json_t *real(double number)
{
    if (isnan(number))
        return json_string("NaN");
    if (isinf(number))
        return json_string(number > 0 ? "Infinity" : "-Infinity");
    return json_real(number);
}

typedef json_t *(*item_fn)(const uint8_t *item);

#define INTEGER_ITEM(name, type)                                                                   \
    static json_t *name(const uint8_t *item)                                                       \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, item, sizeof(value));                                                       \
        return json_integer((json_int_t)value);                                                    \
    }
INTEGER_ITEM(item_int8, int8_t)
INTEGER_ITEM(item_int16, int16_t)
INTEGER_ITEM(item_int32, int32_t)
INTEGER_ITEM(item_int64, int64_t)
INTEGER_ITEM(item_uint8, uint8_t)
INTEGER_ITEM(item_uint16, uint16_t)
INTEGER_ITEM(item_uint32, uint32_t)

static json_t *item_uint64(const uint8_t *item)
{
    uint64_t value;
    memcpy(&value, item, sizeof(value));
    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return json_string(text); /* beyond what JSON readers keep exactly */
}

static json_t *item_bool(const uint8_t *item)
{
    return json_boolean(item[0]);
}

static json_t *item_float32(const uint8_t *item)
{
    float value;
    memcpy(&value, item, sizeof(value));
    return real((double)value);
}

static json_t *item_float64(const uint8_t *item)
{
    double value;
    memcpy(&value, item, sizeof(value));
    return real(value);
}

static json_t *item_float16(const uint8_t *item)
{
    return real(small_float((uint32_t)(item[0] | item[1] << 8), 5, 10, true));
}

static json_t *item_bfloat16(const uint8_t *item)
{
    return real(small_float((uint32_t)(item[0] | item[1] << 8), 8, 7, true));
}

static json_t *item_e4m3(const uint8_t *item)
{
    return real(small_float(item[0], 4, 3, false));
}

static json_t *item_e5m2(const uint8_t *item)
{
    return real(small_float(item[0], 5, 2, true));
}

static json_t *item_complex64(const uint8_t *item)
{
    return json_pack("[o, o]", item_float32(item), item_float32(item + 4));
}

typedef struct kind {
    const char *name;
    size_t size;
    item_fn item;
} kind;

static const kind kinds[] = {
    {"bool", 1, item_bool},         {"int8", 1, item_int8},
    {"int16", 2, item_int16},       {"int32", 4, item_int32},
    {"int64", 8, item_int64},       {"uint8", 1, item_uint8},
    {"uint16", 2, item_uint16},     {"uint32", 4, item_uint32},
    {"uint64", 8, item_uint64},     {"float16", 2, item_float16},
    {"float32", 4, item_float32},   {"float64", 8, item_float64},
    {"bfloat16", 2, item_bfloat16}, {"float8_e4m3fn", 1, item_e4m3},
    {"float8_e5m2", 1, item_e5m2},  {"complex64", 8, item_complex64},
};

/* Nested lists, the last dimension innermost. */
static json_t *array_json(const kind *k, const rks_value *value, uint32_t dim, uint32_t dims,
                          const uint8_t **at)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < value->dims[dim]; i++) {
        if (dim + 1 < dims) {
            json_array_append_new(list, array_json(k, value, dim + 1, dims, at));
        } else {
            json_array_append_new(list, k->item(*at));
            *at += k->size;
        }
    }
    return list;
}

json_t *cli_value_json(const char *type, const rks_value *value)
{
    size_t name_size = strcspn(type, "[?");
    if (value->data == NULL)
        return json_null();
    if (strncmp(type, "str", name_size) == 0)
        return cli_text_json(value->data, (size_t)value->size);
    if (strncmp(type, "json", name_size) == 0) {
        json_t *parsed =
            json_loadb(value->data, (size_t)value->size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        return parsed != NULL ? parsed : cli_text_json(value->data, (size_t)value->size);
    }
    uint32_t dims = 0;
    for (const char *c = type + name_size; *c != '\0' && *c != '?'; c++)
        dims += *c == '[' || *c == ',';
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const uint8_t *at = value->data;
        if (strlen(kinds[i].name) != name_size || strncmp(type, kinds[i].name, name_size) != 0)
            continue;
        return dims == 0 ? kinds[i].item(at) : array_json(&kinds[i], value, 0, dims, &at);
    }
    return base64(value->data, (size_t)value->size);
}

void cli_print_json(json_t *value, size_t flags)
{
    char *text = value == NULL ? NULL : json_dumps(value, flags);
    printf("%s\n", text == NULL ? "{}" : text);
    free(text);
    json_decref(value);
}

void cli_print_key(FILE *out, const void *key, size_t size)
{
    const uint8_t *bytes = key;
    json_t *valid = json_stringn(key, size);
    for (size_t i = 0; i < size; i++)
        if (bytes[i] < 0x20 || bytes[i] == 0x7f || (valid == NULL && bytes[i] >= 0x80))
            fprintf(out, "\\x%02x", bytes[i]);
        else
            fputc(bytes[i], out);
    json_decref(valid);
}
