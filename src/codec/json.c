/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c: text as JSON, and JSON as text. jansson's own printing writes 0.1 with 17 digits, so containers are
 * walked here; what a line may hold bounds the depth. */
#include "codec/json.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"

enum { NUMBER_ROOM = 64, SHORTEST = 15, LONGEST = 17 };

rks_status rks_json_parse(const uint8_t *text, size_t size, json_t **root, rks_error *err)
{
    json_error_t wrong;
    json_t *parsed = json_loadb((const char *)text, size,
                                JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &wrong);
    if (parsed == NULL) {
        enum json_error_code code = json_error_code(&wrong);
        if (code == json_error_out_of_memory)
            return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory for JSON of %zu bytes", size);
        if (code == json_error_numeric_overflow)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "%.80s: integers from -2^63 to 2^63 - 1 and 64-bit floats are possible",
                            wrong.text);
        return rks_fail(err, RKS_ERR_DATA, 0, "no JSON at byte %d: %.100s", wrong.position,
                        wrong.text);
    }
    *root = parsed;
    return RKS_OK;
}

static rks_status print_real(const json_t *value, rks_buffer *text, rks_error *err)
{
    char digits[NUMBER_ROOM];
    for (int precision = SHORTEST; precision <= LONGEST; precision++) {
        size_t size = json_dumpb(value, digits, sizeof(digits),
                                 JSON_ENCODE_ANY | JSON_REAL_PRECISION(precision));
        if (size == 0 || size > sizeof(digits))
            break;
        json_t *back = json_loadb(digits, size, JSON_DECODE_ANY, NULL);
        bool same = json_is_real(back) && json_real_value(back) == json_real_value(value);
        json_decref(back);
        if (same || precision == LONGEST)
            return rks_buffer_add(text, digits, size, err);
    }
    return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory for a number");
}

rks_status rks_json_print_string(const char *at, size_t size, rks_buffer *text, rks_error *err)
{
    static const char HEX[] = "0123456789abcdef";
    static const char SHORT[] = "btn\0fr"; /* 8 to 13; 11 has none */
    rks_status status = rks_buffer_reserve(text, size + 2, err);
    if (status == RKS_OK)
        status = rks_buffer_add(text, "\"", 1, err);
    size_t plain = 0;
    for (size_t i = 0; status == RKS_OK && i < size; i++) {
        uint8_t byte = (uint8_t)at[i];
        char escape[6] = {'\\', (char)byte};
        size_t escaped = 2;
        if (byte >= 0x20 && byte != '"' && byte != '\\')
            continue;
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

static rks_status print_list(const json_t *list, rks_buffer *text, rks_error *err)
{
    rks_status status = rks_buffer_add(text, "[", 1, err);
    for (size_t i = 0; status == RKS_OK && i < json_array_size(list); i++) {
        if (i > 0)
            status = rks_buffer_add(text, ",", 1, err);
        if (status == RKS_OK)
            status = rks_json_print(json_array_get(list, i), text, err);
    }
    return status == RKS_OK ? rks_buffer_add(text, "]", 1, err) : status;
}

static rks_status print_object(json_t *object, rks_buffer *text, rks_error *err)
{
    rks_status status = rks_buffer_add(text, "{", 1, err);
    bool first = true;
    for (void *at = json_object_iter(object); status == RKS_OK && at != NULL;
         at = json_object_iter_next(object, at)) {
        const char *name = json_object_iter_key(at);
        if (!first)
            status = rks_buffer_add(text, ",", 1, err);
        first = false;
        if (status == RKS_OK)
            status = rks_json_print_string(name, strlen(name), text, err);
        if (status == RKS_OK)
            status = rks_buffer_add(text, ":", 1, err);
        if (status == RKS_OK)
            status = rks_json_print(json_object_iter_value(at), text, err);
    }
    return status == RKS_OK ? rks_buffer_add(text, "}", 1, err) : status;
}

rks_status rks_json_print(const json_t *value, rks_buffer *text, rks_error *err)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return print_object((json_t *)value, text, err); /* iterating takes no const */
    case JSON_ARRAY:
        return print_list(value, text, err);
    case JSON_STRING:
        return rks_json_print_string(json_string_value(value), json_string_length(value), text,
                                     err);
    case JSON_INTEGER:
        return rks_buffer_print(text, err, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    case JSON_REAL:
        return print_real(value, text, err);
    case JSON_TRUE:
        return rks_buffer_add(text, "true", 4, err);
    case JSON_FALSE:
        return rks_buffer_add(text, "false", 5, err);
    default:
        return rks_buffer_add(text, "null", 4, err);
    }
}
