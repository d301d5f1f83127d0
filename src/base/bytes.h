/* SPDX-License-Identifier: Apache-2.0
 *
 * bytes.h: reads and writes little-endian numbers at any alignment; rounds numbers up. */
#ifndef RKS_BASE_BYTES_H
#define RKS_BASE_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint16_t rks_load_u16(const void *bytes)
{
    uint16_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

static inline uint32_t rks_load_u32(const void *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

static inline uint64_t rks_load_u64(const void *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

static inline void rks_store_u16(void *bytes, uint16_t value)
{
    memcpy(bytes, &value, sizeof(value));
}

static inline void rks_store_u32(void *bytes, uint32_t value)
{
    memcpy(bytes, &value, sizeof(value));
}

static inline void rks_store_u64(void *bytes, uint64_t value)
{
    memcpy(bytes, &value, sizeof(value));
}

/* Returns `value` rounded up to a multiple of `to`, which must be a power of two. */
static inline uint64_t rks_round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) & ~(to - 1);
}

#endif
