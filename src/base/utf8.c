/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.c: simdjson checks the text. Short ones are mostly ASCII, which is found out in less time
 * than simdjson takes to begin. */
#include "base/utf8.h"

#include <stdint.h>

#include "base/bytes.h"
#include "base/simdjson.h"

enum { SHORT = 256, CHARACTER_MOST = 4 };

static bool is_ascii(const uint8_t *bytes, size_t size)
{
    const uint64_t high = UINT64_C(0x8080808080808080);
    size_t at = 0;
    for (; size - at >= 32; at += 32)
        if (((rks_load_u64(bytes + at) | rks_load_u64(bytes + at + 8) |
              rks_load_u64(bytes + at + 16) | rks_load_u64(bytes + at + 24)) &
             high) != 0)
            return false;
    for (; size - at >= 8; at += 8)
        if ((rks_load_u64(bytes + at) & high) != 0)
            return false;
    if (size >= 8) /* the rest lies in the last eight bytes */
        return (rks_load_u64(bytes + size - 8) & high) == 0;
    while (at < size && bytes[at] < 0x80)
        at++;
    return at == size;
}

/* Returns the length of the longest valid beginning of an invalid text, by bisection. */
static size_t find_bad(const uint8_t *bytes, size_t size)
{
    size_t good = 0, left = size; /* the bad byte is one of the `left` after `good` */
    while (left > CHARACTER_MOST) {
        size_t half = left / 2;
        while (half > 0 && (bytes[good + half] & 0xc0) == 0x80) /* a character ends before `half` */
            half--;
        if (half == 0)
            break;
        if (rks_simdjson_utf8(bytes + good, half)) {
            good += half;
            left -= half;
        } else {
            left = half;
        }
    }
    for (size_t step = 1; step <= CHARACTER_MOST && step <= size - good;) {
        if (rks_simdjson_utf8(bytes + good, step)) {
            good += step;
            step = 1;
        } else {
            step++;
        }
    }
    return good;
}

bool rks_utf8_valid(const void *text, size_t size, size_t *bad)
{
    if ((size < SHORT && is_ascii(text, size)) || rks_simdjson_utf8(text, size))
        return true;
    if (bad != NULL)
        *bad = find_bad(text, size);
    return false;
}
