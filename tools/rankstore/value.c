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

double cli_small_float(const char *type, const uint8_t *item)
{
    if (strcmp(type, "float16") == 0)
        return small_float((uint32_t)(item[0] | item[1] << 8), 5, 10, true);
    if (strcmp(type, "bfloat16") == 0)
        return small_float((uint32_t)(item[0] | item[1] << 8), 8, 7, true);
    if (strcmp(type, "float8_e4m3fn") == 0)
        return small_float(item[0], 4, 3, false);
    return small_float(item[0], 5, 2, true);
}

static json_t *item_float16(const uint8_t *item)
{
    return real(cli_small_float("float16", item));
}

static json_t *item_bfloat16(const uint8_t *item)
{
    return real(cli_small_float("bfloat16", item));
}

static json_t *item_e4m3(const uint8_t *item)
{
    return real(cli_small_float("float8_e4m3fn", item));
}

static json_t *item_e5m2(const uint8_t *item)
{
    return real(cli_small_float("float8_e5m2", item));
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

static const kind *kind_of(const char *type)
{
    size_t size = strcspn(type, "[?");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strlen(kinds[i].name) == size && strncmp(type, kinds[i].name, size) == 0)
            return &kinds[i];
    return NULL;
}

static uint32_t dims_of(const char *type)
{
    uint32_t dims = 0;
    for (const char *c = type; *c != '\0' && *c != '?'; c++)
        dims += *c == '[' || *c == ',';
    return dims;
}

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
    const kind *k = kind_of(type);
    const uint8_t *at = value->data;
    uint32_t dims = dims_of(type);
    if (k != NULL)
        return dims == 0 ? k->item(at) : array_json(k, value, 0, dims, &at);
    return base64(value->data, (size_t)value->size);
}

/* ---- for people ------------------------------------------------------------------------- */

enum { TEXT_SHOWN = 400, BYTES_SHOWN = 16, ITEMS_SHOWN = 3 };

static void print_item(FILE *out, const kind *k, const uint8_t *item)
{
    json_t *number = k->item(item);
    char *text = json_dumps(number, JSON_ENCODE_ANY | JSON_REAL_PRECISION(7));
    size_t size = text == NULL ? 0 : strlen(text);
    bool quoted = size >= 2 && text[0] == '"'; /* NaN, Infinity */
    fprintf(out, "%.*s", (int)(quoted ? size - 2 : size), text == NULL ? "" : text + quoted);
    free(text);
    json_decref(number);
}

/* "1 2 3 ... 8 9 10" */
static void print_items(FILE *out, const kind *k, const uint8_t *data, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (i == ITEMS_SHOWN && count > 2 * ITEMS_SHOWN) {
            fprintf(out, " ...");
            i = count - ITEMS_SHOWN;
        }
        fputc(' ', out);
        print_item(out, k, data + i * k->size);
    }
}

/* ", min 1, max 10"; items without an order (NaN) are counted. */
static void print_extremes(FILE *out, const kind *k, const uint8_t *data, uint64_t count)
{
    const uint8_t *least = NULL, *most = NULL;
    double low = 0, high = 0;
    uint64_t nan = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *item = data + i * k->size;
        json_t *number = k->item(item);
        const char *text = json_string_value(number);
        double is = text == NULL ? json_number_value(number) : strtod(text, NULL);
        json_decref(number);
        nan += isnan(is);
        if (least == NULL ? !isnan(is) : is < low)
            least = item, low = is;
        if (most == NULL ? !isnan(is) : is > high)
            most = item, high = is;
    }
    if (least != NULL) {
        fprintf(out, "; min ");
        print_item(out, k, least);
        fprintf(out, ", max ");
        print_item(out, k, most);
    }
    if (nan > 0)
        fprintf(out, "%s%llu NaN", least == NULL ? "; " : ", ", (unsigned long long)nan);
}

static void print_array(FILE *out, const kind *k, const rks_value *value, uint32_t dims)
{
    uint64_t count = value->size / k->size;
    fputc('[', out);
    for (uint32_t i = 0; i < dims; i++)
        fprintf(out, "%s%u", i == 0 ? "" : ", ", value->dims[i]);
    fprintf(out, "]%s", count == 0 ? "" : " ");
    print_items(out, k, value->data, count);
    if (k->item != item_bool && k->item != item_complex64 && count > 1)
        print_extremes(out, k, value->data, count);
}

/* Whole characters of the first `most` bytes. */
static size_t cut_text(const uint8_t *bytes, size_t size, size_t most)
{
    if (size <= most)
        return size;
    while (most > 0 && (bytes[most] & 0xc0) == 0x80)
        most--;
    return most;
}

static void print_blob(FILE *out, const rks_value *value, bool is_text)
{
    const uint8_t *bytes = value->data;
    size_t size = (size_t)value->size, shown = cut_text(bytes, size, TEXT_SHOWN);
    json_t *valid = is_text ? json_stringn((const char *)bytes, shown) : NULL;
    if (valid != NULL) {
        cli_print_key(out, bytes, shown);
        if (shown < size)
            fprintf(out, " ... (%zu bytes)", size);
    } else {
        fprintf(out, "%zu bytes%s", size, size > 0 ? ":" : "");
        for (size_t i = 0; i < size && i < BYTES_SHOWN; i++)
            fprintf(out, " %02x", bytes[i]);
        if (size > BYTES_SHOWN)
            fprintf(out, " ...");
    }
    json_decref(valid);
}

void cli_print_value(FILE *out, const char *type, const rks_value *value)
{
    const kind *k = kind_of(type);
    uint32_t dims = dims_of(type);
    if (value->data == NULL)
        fprintf(out, "missing");
    else if (k == NULL)
        print_blob(out, value, strncmp(type, "bytes", 5) != 0);
    else if (dims == 0)
        print_item(out, k, value->data);
    else
        print_array(out, k, value, dims);
}

void cli_print_json(json_t *value, size_t flags)
{
    char *text = value == NULL ? NULL : json_dumps(value, flags);
    printf("%s\n", text == NULL ? "{}" : text);
    free(text);
    json_decref(value);
}

/* Bytes of the control character at `bytes`; 0: it is none. U+0080 to U+009F are, too: a terminal
 * takes U+009B for ESC [. */
static size_t control_size(const uint8_t *bytes, size_t size)
{
    if (size > 1 && bytes[0] == 0xc2 && bytes[1] >= 0x80 && bytes[1] < 0xa0)
        return 2;
    return bytes[0] < 0x20 || bytes[0] == 0x7f;
}

void cli_print_key(FILE *out, const void *key, size_t size)
{
    const uint8_t *bytes = key;
    size_t hidden = 0; /* up to here */
    json_t *valid = json_stringn(key, size);
    for (size_t i = 0; i < size; i++) {
        if (i >= hidden)
            hidden = i + control_size(bytes + i, size - i);
        if (i < hidden || (valid == NULL && bytes[i] >= 0x80))
            fprintf(out, "\\x%02x", bytes[i]);
        else
            fputc(bytes[i], out);
    }
    json_decref(valid);
}

const char *cli_shown(const char *text)
{
    enum { RING = 4 };
    static char *ring[RING];
    static int at;
    size_t size = 0;
    char *made = NULL;
    FILE *out = open_memstream(&made, &size);
    if (out == NULL)
        return "?";
    cli_print_key(out, text, strlen(text));
    fclose(out);
    at = (at + 1) % RING;
    free(ring[at]);
    ring[at] = made;
    return made == NULL ? "?" : made;
}
