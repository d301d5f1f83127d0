/* SPDX-License-Identifier: Apache-2.0
 *
 * base64.c: turns three bytes into four digits, and back. */
#include "base/base64.h"

#include <string.h>

static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

rks_status rks_base64_encode(const void *bytes, size_t size, rks_buffer *text, rks_error *err)
{
    const uint8_t *in = bytes;
    rks_status status = rks_buffer_reserve(text, size / 3 * 4 + 4, err);
    if (status != RKS_OK)
        return status;
    uint8_t *out = text->data + text->size;
    for (size_t i = 0; i < size; i += 3) {
        uint32_t three = (uint32_t)in[i] << 16;
        three |= i + 1 < size ? (uint32_t)in[i + 1] << 8 : 0;
        three |= i + 2 < size ? in[i + 2] : 0;
        *out++ = (uint8_t)DIGITS[three >> 18];
        *out++ = (uint8_t)DIGITS[three >> 12 & 63];
        *out++ = i + 1 < size ? (uint8_t)DIGITS[three >> 6 & 63] : '=';
        *out++ = i + 2 < size ? (uint8_t)DIGITS[three & 63] : '=';
    }
    text->size = (size_t)(out - text->data);
    return RKS_OK;
}

rks_status rks_base64_decode(const char *text, size_t size, rks_buffer *bytes, bool *good,
                             rks_error *err)
{
    size_t padding = size >= 2 && text[size - 1] == '=' ? 1 + (text[size - 2] == '=') : 0;
    *good = false;
    if (size % 4 != 0)
        return RKS_OK;
    rks_status status = rks_buffer_reserve(bytes, size / 4 * 3, err);
    if (status != RKS_OK)
        return status;
    uint8_t *out = bytes->data + bytes->size;
    for (size_t i = 0; i < size; i += 4) {
        uint32_t three = 0;
        for (size_t k = 0; k < 4; k++) {
            bool filled = i + k >= size - padding;
            const char *digit = filled ? DIGITS : memchr(DIGITS, text[i + k], sizeof(DIGITS) - 1);
            if (digit == NULL)
                return RKS_OK;
            three = three << 6 | (uint32_t)(digit - DIGITS);
        }
        *out++ = (uint8_t)(three >> 16);
        *out++ = (uint8_t)(three >> 8);
        *out++ = (uint8_t)three;
    }
    bytes->size = (size_t)(out - bytes->data) - padding;
    *good = true;
    return RKS_OK;
}
