/* SPDX-License-Identifier: Apache-2.0
 *
 * json_print.c: prints JSON as text. The parser bounds the depth of the recursion. */
#include "codec/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "codec/number.h"

enum { NUMBER_ROOM = 64, SHORTEST = 15, LONGEST = 17, INTEGER_ROOM = 24 };

/* Normalises what printf("%g") wrote: at least a point or an exponent, and no "+" or zeros before
 * the exponent (1e+05 becomes 1e5). Returns the size. */
static size_t spell(char digits[NUMBER_ROOM], int size)
{
    char *exponent = strchr(digits, 'e');
    if (exponent == NULL && strchr(digits, '.') == NULL) {
        memcpy(digits + size, ".0", 3);
        size += 2;
    }
    if (exponent == NULL)
        return (size_t)size;
    char *into = exponent + 1 + (exponent[1] == '-');
    char *from = exponent + 2;
    while (*from == '0')
        from++;
    memmove(into, from, (size_t)(digits + size - from) + 1);
    return (size_t)size - (size_t)(from - into);
}

static rks_status print_real(double real, rks_buffer *text, rks_error *err)
{
    char digits[NUMBER_ROOM];
    size_t known = rks_real_spell(real, digits);
    int size = 0;
    if (known > 0)
        return rks_buffer_add(text, digits, known, err);
    if (!isfinite(real))
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "not a JSON value: NaN and infinity, which JSON lacks");
    for (int precision = SHORTEST; precision <= LONGEST; precision++) {
        size = rks_snprintf(digits, sizeof(digits), "%.*g", precision, real);
        if (precision == LONGEST || rks_strtod(digits, NULL) == real)
            break;
    }
    return rks_buffer_add(text, digits, spell(digits, size), err);
}

static rks_status print_integer(rks_json value, rks_buffer *text, rks_error *err)
{
    char digits[INTEGER_ROOM];
    size_t at = sizeof(digits);
    bool minus = rks_json_is(value, RKS_JSON_INTEGER) && rks_json_int(value) < 0;
    uint64_t left = minus ? 0 - rks_json_uint(value) : rks_json_uint(value);
    do
        digits[--at] = (char)('0' + left % 10);
    while ((left /= 10) != 0);
    if (minus)
        digits[--at] = '-';
    return rks_buffer_add(text, digits + at, sizeof(digits) - at, err);
}

static bool is_plain(uint8_t byte)
{
    return byte >= 0x20 && byte != '"' && byte != '\\';
}

/* Returns non-zero if one of the eight bytes is 0; only that is exact, not which one. */
static uint64_t has_zero(uint64_t word)
{
    return (word - UINT64_C(0x0101010101010101)) & ~word & UINT64_C(0x8080808080808080);
}

/* Returns the position of the first byte from `i` on that must be escaped, or `size`. */
static size_t end_of_plain(const char *at, size_t i, size_t size)
{
    const uint64_t each = UINT64_C(0x0101010101010101);
    for (; size - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, sizeof(word));
        if (has_zero(word & (each * 0xe0)) != 0 || has_zero(word ^ (each * '"')) != 0 ||
            has_zero(word ^ (each * '\\')) != 0)
            break;
    }
    while (i < size && is_plain((uint8_t)at[i]))
        i++;
    return i;
}

rks_status rks_json_print_string(const char *at, size_t size, rks_buffer *text, rks_error *err)
{
    static const char HEX[] = "0123456789abcdef";
    static const char SHORT[] = "btn\0fr"; /* for 8 to 13; 11 has none */
    rks_status status = rks_buffer_reserve(text, size + 2, err);
    if (status == RKS_OK)
        status = rks_buffer_add(text, "\"", 1, err);
    size_t plain = 0;
    for (size_t i = end_of_plain(at, 0, size); status == RKS_OK && i < size;
         i = end_of_plain(at, i + 1, size)) {
        uint8_t byte = (uint8_t)at[i];
        char escape[6] = {'\\', (char)byte};
        size_t escaped = 2;
        if (byte >= 8 && byte <= 13 && byte != 11) {
            escape[1] = SHORT[byte - 8];
        } else if (byte < 0x20) {
            memcpy(escape + 1, "u00", 3);
            escape[4] = HEX[byte >> 4];
            escape[5] = HEX[byte & 15];
            escaped = 6;
        }
        status = rks_buffer_add(text, at + plain, i - plain, err);
        if (status == RKS_OK)
            status = rks_buffer_add(text, escape, escaped, err);
        plain = i + 1;
    }
    if (status == RKS_OK)
        status = rks_buffer_add(text, at + plain, size - plain, err);
    return status == RKS_OK ? rks_buffer_add(text, "\"", 1, err) : status;
}

static rks_status print_list(rks_json list, rks_buffer *text, rks_error *err)
{
    rks_status status = rks_buffer_add(text, "[", 1, err);
    size_t close = rks_json_close(list);
    rks_json item = rks_json_inside(list);
    for (bool first = true; status == RKS_OK && item.at < close; item = rks_json_next(item)) {
        if (!first)
            status = rks_buffer_add(text, ",", 1, err);
        first = false;
        if (status == RKS_OK)
            status = rks_json_print(item, text, err);
    }
    return status == RKS_OK ? rks_buffer_add(text, "]", 1, err) : status;
}

static rks_status print_object(rks_json object, rks_buffer *text, rks_error *err)
{
    rks_status status = rks_buffer_add(text, "{", 1, err);
    size_t close = rks_json_close(object);
    rks_json at = rks_json_inside(object);
    for (bool first = true; status == RKS_OK && at.at < close; at = rks_json_next(at)) {
        size_t size = 0;
        const char *name = rks_json_text(at, &size);
        if (!first)
            status = rks_buffer_add(text, ",", 1, err);
        first = false;
        if (status == RKS_OK)
            status = rks_json_print_string(name, size, text, err);
        if (status == RKS_OK)
            status = rks_buffer_add(text, ":", 1, err);
        at = rks_json_next(at);
        if (status == RKS_OK)
            status = rks_json_print(at, text, err);
    }
    return status == RKS_OK ? rks_buffer_add(text, "}", 1, err) : status;
}

rks_status rks_json_print(rks_json value, rks_buffer *text, rks_error *err)
{
    size_t size = 0;
    const char *string;
    switch (rks_json_type_of(value)) {
    case RKS_JSON_OBJECT:
        return print_object(value, text, err);
    case RKS_JSON_LIST:
        return print_list(value, text, err);
    case RKS_JSON_STRING:
        string = rks_json_text(value, &size);
        return rks_json_print_string(string, size, text, err);
    case RKS_JSON_INTEGER:
    case RKS_JSON_UNSIGNED:
        return print_integer(value, text, err);
    case RKS_JSON_REAL:
        return print_real(rks_json_real(value), text, err);
    case RKS_JSON_TRUE:
        return rks_buffer_add(text, "true", 4, err);
    case RKS_JSON_FALSE:
        return rks_buffer_add(text, "false", 5, err);
    default:
        return rks_buffer_add(text, "null", 4, err);
    }
}
