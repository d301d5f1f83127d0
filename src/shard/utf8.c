/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.c: checks UTF-8; skips ASCII 32 and 8 bytes at a time. */
#include "shard/utf8.h"

#include "base/bytes.h"

/* Returns the bytes of the sequence at `at`; 0 if it is wrong. */
static size_t sequence(const uint8_t *at, size_t left)
{
    uint8_t lead = at[0];
    size_t size = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (size == 0 || size > left)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (lead == 0xe0 && at[1] < 0xa0) || (lead == 0xf0 && at[1] < 0x90);
    bool surrogate = lead == 0xed && at[1] > 0x9f;
    bool beyond = lead == 0xf4 && at[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : size;
}

bool rks_utf8_valid(const void *text, size_t size, size_t *bad)
{
    const uint8_t *bytes = text;
    size_t at = 0;
    while (at < size) {
        while (size - at >= 32 && ((rks_load_u64(bytes + at) | rks_load_u64(bytes + at + 8) |
                                    rks_load_u64(bytes + at + 16) | rks_load_u64(bytes + at + 24)) &
                                   UINT64_C(0x8080808080808080)) == 0)
            at += 32;
        while (size - at >= 8 && (rks_load_u64(bytes + at) & UINT64_C(0x8080808080808080)) == 0)
            at += 8;
        if (at == size || (size >= 8 && size - at < 8 &&
                           (rks_load_u64(bytes + size - 8) & UINT64_C(0x8080808080808080)) == 0))
            break; /* the rest lies in the last eight bytes */
        size_t step = bytes[at] < 0x80 ? 1 : sequence(bytes + at, size - at);
        if (step == 0) {
            if (bad != NULL)
                *bad = at;
            return false;
        }
        at += step;
    }
    return true;
}
