/* SPDX-License-Identifier: Apache-2.0
 *
 * item.c: the kernels, one for each pair of types that loses nothing. They are loops that the
 * compiler turns into vector code: for any processor of the kind, and on x86 once more for AVX2,
 * which writes int64 from uint16 1.4 times as fast (7.2 and 10 G items/s).
 *
 * Small floats, bits from the left: sign, exponent, mantissa.
 *   float16 1 5 10   bfloat16 1 8 7   float8_e5m2 1 5 2   float8_e4m3fn 1 4 3, without infinities:
 *   all ones are NaN, the largest value is 448 */
#include "collate/item.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cpu_features.h"
#include "shard/small_float.h"

rks_kind rks_item_kind(const rks_column *column)
{
    return rks_kind_is_text(column->kind) ? RKS_KIND_UINT8 : column->kind;
}

/* ---- small floats ------------------------------------------------------------------------- */

static inline float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float from_bfloat16(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

/* Moves exponent and mantissa to their place in a float, and adds the float's bias to the exponent.
 * A subtraction makes a subnormal normal. No subnormal float occurs on the way, so it does not
 * matter whether the processor flushes them to zero. */
static inline float from_float16(uint16_t bits)
{
    uint32_t moved = (uint32_t)(bits & 0x7fff) << 13, exponent = bits & 0x7c00;
    uint32_t normal = moved + (UINT32_C(112) << 23), special = moved + (UINT32_C(224) << 23);
    uint32_t small = bits_of_float(float_of_bits(moved + (UINT32_C(113) << 23)) - 0x1p-14f);
    uint32_t value = exponent == 0 ? small : exponent == 0x7c00 ? special : normal;
    return float_of_bits(value | (uint32_t)(bits & 0x8000) << 16);
}

static inline float from_float8_e5m2(uint8_t bits)
{
    return from_float16((uint16_t)(bits << 8));
}

static inline float from_float8_e4m3fn(uint8_t bits)
{
    uint32_t moved = (uint32_t)(bits & 0x7f) << 20, nan = UINT32_C(0x7fc00000);
    uint32_t normal = moved + (UINT32_C(120) << 23);
    uint32_t small = bits_of_float(float_of_bits(moved + (UINT32_C(121) << 23)) - 0x1p-6f);
    uint32_t value = (bits & 0x78) == 0 ? small : (bits & 0x7f) == 0x7f ? nan : normal;
    return float_of_bits(value | (uint32_t)(bits & 0x80) << 24);
}

/* For values that a float16 holds as normal numbers, zeros and NaN. */
static inline uint16_t to_float16(float value)
{
    uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    uint32_t normal = (rest - (UINT32_C(112) << 23)) >> 13;
    uint32_t other = rest == 0 ? 0 : 0x7e00;
    return (uint16_t)(sign | (rest == 0 || rest > UINT32_C(0x7f800000) ? other : normal));
}

/* For values that a bfloat16 holds. */
static inline uint16_t to_bfloat16(float value)
{
    return (uint16_t)(bits_of_float(value) >> 16);
}

/* ---- conversions --------------------------------------------------------------------------- */

#define LOOP(name, from_type, to_type, how)                                                        \
    static void name(void *restrict to, const void *restrict from, size_t count)                   \
    {                                                                                              \
        to_type *out = to;                                                                         \
        const uint8_t *in = from;                                                                  \
        for (size_t i = 0; i < count; i++) {                                                       \
            from_type value;                                                                       \
            memcpy(&value, in + i * sizeof(value), sizeof(value));                                 \
            out[i] = (to_type)(how);                                                               \
        }                                                                                          \
    }

/* Chosen at run time by hand: the compiler's own clones need help from the linker that not every
 * libc has, and sanitizers fail on them. */
#ifdef __x86_64__
#define KERNEL(name, from_type, to_type, how)                                                      \
    LOOP(name, from_type, to_type, how)                                                            \
    __attribute__((target("avx2"))) LOOP(name##_wide, from_type, to_type, how)
#define BOTH(name) name, name##_wide
#else
#define KERNEL LOOP
#define BOTH(name) name, name
#endif

KERNEL(int8_to_int16, int8_t, int16_t, value)
KERNEL(int8_to_int32, int8_t, int32_t, value)
KERNEL(int8_to_int64, int8_t, int64_t, value)
KERNEL(int8_to_float16, int8_t, uint16_t, to_float16((float)value))
KERNEL(int8_to_bfloat16, int8_t, uint16_t, to_bfloat16((float)value))
KERNEL(int8_to_float32, int8_t, float, value)
KERNEL(int8_to_float64, int8_t, double, value)
KERNEL(int16_to_int32, int16_t, int32_t, value)
KERNEL(int16_to_int64, int16_t, int64_t, value)
KERNEL(int16_to_float32, int16_t, float, value)
KERNEL(int16_to_float64, int16_t, double, value)
KERNEL(int32_to_int64, int32_t, int64_t, value)
KERNEL(int32_to_float64, int32_t, double, value)
KERNEL(uint8_to_16, uint8_t, uint16_t, value)
KERNEL(uint8_to_32, uint8_t, uint32_t, value)
KERNEL(uint8_to_64, uint8_t, uint64_t, value)
KERNEL(uint8_to_float16, uint8_t, uint16_t, to_float16((float)value))
KERNEL(uint8_to_bfloat16, uint8_t, uint16_t, to_bfloat16((float)value))
KERNEL(uint8_to_float32, uint8_t, float, value)
KERNEL(uint8_to_float64, uint8_t, double, value)
KERNEL(uint16_to_32, uint16_t, uint32_t, value)
KERNEL(uint16_to_64, uint16_t, uint64_t, value)
KERNEL(uint16_to_float32, uint16_t, float, value)
KERNEL(uint16_to_float64, uint16_t, double, value)
KERNEL(uint32_to_64, uint32_t, uint64_t, value)
KERNEL(uint32_to_float64, uint32_t, double, value)
KERNEL(float16_to_float32, uint16_t, float, from_float16(value))
KERNEL(float16_to_float64, uint16_t, double, from_float16(value))
KERNEL(bfloat16_to_float32, uint16_t, float, from_bfloat16(value))
KERNEL(bfloat16_to_float64, uint16_t, double, from_bfloat16(value))
KERNEL(e4m3fn_to_float16, uint8_t, uint16_t, to_float16(from_float8_e4m3fn(value)))
KERNEL(e4m3fn_to_bfloat16, uint8_t, uint16_t, to_bfloat16(from_float8_e4m3fn(value)))
KERNEL(e4m3fn_to_float32, uint8_t, float, from_float8_e4m3fn(value))
KERNEL(e4m3fn_to_float64, uint8_t, double, from_float8_e4m3fn(value))
KERNEL(e5m2_to_float16, uint8_t, uint16_t, (uint16_t)value << 8)
KERNEL(e5m2_to_bfloat16, uint8_t, uint16_t, to_bfloat16(from_float8_e5m2(value)))
KERNEL(e5m2_to_float32, uint8_t, float, from_float8_e5m2(value))
KERNEL(e5m2_to_float64, uint8_t, double, from_float8_e5m2(value))
KERNEL(float32_to_float64, float, double, value)

static void copy_1(void *to, const void *from, size_t count)
{
    memcpy(to, from, count);
}

static void copy_2(void *to, const void *from, size_t count)
{
    memcpy(to, from, 2 * count);
}

static void copy_4(void *to, const void *from, size_t count)
{
    memcpy(to, from, 4 * count);
}

static void copy_8(void *to, const void *from, size_t count)
{
    memcpy(to, from, 8 * count);
}

/* A bool is a byte, 0 or 1. */
static const struct {
    rks_kind from, to;
    rks_convert_fn convert, wide;
} CONVERSIONS[] = {
    {RKS_KIND_BOOL, RKS_KIND_INT8, copy_1, copy_1},
    {RKS_KIND_BOOL, RKS_KIND_INT16, BOTH(uint8_to_16)},
    {RKS_KIND_BOOL, RKS_KIND_INT32, BOTH(uint8_to_32)},
    {RKS_KIND_BOOL, RKS_KIND_INT64, BOTH(uint8_to_64)},
    {RKS_KIND_BOOL, RKS_KIND_UINT8, copy_1, copy_1},
    {RKS_KIND_BOOL, RKS_KIND_UINT16, BOTH(uint8_to_16)},
    {RKS_KIND_BOOL, RKS_KIND_UINT32, BOTH(uint8_to_32)},
    {RKS_KIND_BOOL, RKS_KIND_UINT64, BOTH(uint8_to_64)},
    {RKS_KIND_BOOL, RKS_KIND_FLOAT16, BOTH(uint8_to_float16)},
    {RKS_KIND_BOOL, RKS_KIND_BFLOAT16, BOTH(uint8_to_bfloat16)},
    {RKS_KIND_BOOL, RKS_KIND_FLOAT32, BOTH(uint8_to_float32)},
    {RKS_KIND_BOOL, RKS_KIND_FLOAT64, BOTH(uint8_to_float64)},
    {RKS_KIND_INT8, RKS_KIND_INT16, BOTH(int8_to_int16)},
    {RKS_KIND_INT8, RKS_KIND_INT32, BOTH(int8_to_int32)},
    {RKS_KIND_INT8, RKS_KIND_INT64, BOTH(int8_to_int64)},
    {RKS_KIND_INT8, RKS_KIND_FLOAT16, BOTH(int8_to_float16)},
    {RKS_KIND_INT8, RKS_KIND_BFLOAT16, BOTH(int8_to_bfloat16)},
    {RKS_KIND_INT8, RKS_KIND_FLOAT32, BOTH(int8_to_float32)},
    {RKS_KIND_INT8, RKS_KIND_FLOAT64, BOTH(int8_to_float64)},
    {RKS_KIND_INT16, RKS_KIND_INT32, BOTH(int16_to_int32)},
    {RKS_KIND_INT16, RKS_KIND_INT64, BOTH(int16_to_int64)},
    {RKS_KIND_INT16, RKS_KIND_FLOAT32, BOTH(int16_to_float32)},
    {RKS_KIND_INT16, RKS_KIND_FLOAT64, BOTH(int16_to_float64)},
    {RKS_KIND_INT32, RKS_KIND_INT64, BOTH(int32_to_int64)},
    {RKS_KIND_INT32, RKS_KIND_FLOAT64, BOTH(int32_to_float64)},
    {RKS_KIND_UINT8, RKS_KIND_INT16, BOTH(uint8_to_16)},
    {RKS_KIND_UINT8, RKS_KIND_INT32, BOTH(uint8_to_32)},
    {RKS_KIND_UINT8, RKS_KIND_INT64, BOTH(uint8_to_64)},
    {RKS_KIND_UINT8, RKS_KIND_UINT16, BOTH(uint8_to_16)},
    {RKS_KIND_UINT8, RKS_KIND_UINT32, BOTH(uint8_to_32)},
    {RKS_KIND_UINT8, RKS_KIND_UINT64, BOTH(uint8_to_64)},
    {RKS_KIND_UINT8, RKS_KIND_FLOAT16, BOTH(uint8_to_float16)},
    {RKS_KIND_UINT8, RKS_KIND_BFLOAT16, BOTH(uint8_to_bfloat16)},
    {RKS_KIND_UINT8, RKS_KIND_FLOAT32, BOTH(uint8_to_float32)},
    {RKS_KIND_UINT8, RKS_KIND_FLOAT64, BOTH(uint8_to_float64)},
    {RKS_KIND_UINT16, RKS_KIND_INT32, BOTH(uint16_to_32)},
    {RKS_KIND_UINT16, RKS_KIND_INT64, BOTH(uint16_to_64)},
    {RKS_KIND_UINT16, RKS_KIND_UINT32, BOTH(uint16_to_32)},
    {RKS_KIND_UINT16, RKS_KIND_UINT64, BOTH(uint16_to_64)},
    {RKS_KIND_UINT16, RKS_KIND_FLOAT32, BOTH(uint16_to_float32)},
    {RKS_KIND_UINT16, RKS_KIND_FLOAT64, BOTH(uint16_to_float64)},
    {RKS_KIND_UINT32, RKS_KIND_INT64, BOTH(uint32_to_64)},
    {RKS_KIND_UINT32, RKS_KIND_UINT64, BOTH(uint32_to_64)},
    {RKS_KIND_UINT32, RKS_KIND_FLOAT64, BOTH(uint32_to_float64)},
    {RKS_KIND_FLOAT16, RKS_KIND_FLOAT32, BOTH(float16_to_float32)},
    {RKS_KIND_FLOAT16, RKS_KIND_FLOAT64, BOTH(float16_to_float64)},
    {RKS_KIND_BFLOAT16, RKS_KIND_FLOAT32, BOTH(bfloat16_to_float32)},
    {RKS_KIND_BFLOAT16, RKS_KIND_FLOAT64, BOTH(bfloat16_to_float64)},
    {RKS_KIND_FLOAT8_E4M3FN, RKS_KIND_FLOAT16, BOTH(e4m3fn_to_float16)},
    {RKS_KIND_FLOAT8_E4M3FN, RKS_KIND_BFLOAT16, BOTH(e4m3fn_to_bfloat16)},
    {RKS_KIND_FLOAT8_E4M3FN, RKS_KIND_FLOAT32, BOTH(e4m3fn_to_float32)},
    {RKS_KIND_FLOAT8_E4M3FN, RKS_KIND_FLOAT64, BOTH(e4m3fn_to_float64)},
    {RKS_KIND_FLOAT8_E5M2, RKS_KIND_FLOAT16, BOTH(e5m2_to_float16)},
    {RKS_KIND_FLOAT8_E5M2, RKS_KIND_BFLOAT16, BOTH(e5m2_to_bfloat16)},
    {RKS_KIND_FLOAT8_E5M2, RKS_KIND_FLOAT32, BOTH(e5m2_to_float32)},
    {RKS_KIND_FLOAT8_E5M2, RKS_KIND_FLOAT64, BOTH(e5m2_to_float64)},
    {RKS_KIND_FLOAT32, RKS_KIND_FLOAT64, BOTH(float32_to_float64)},
};

rks_convert_fn rks_item_convert(rks_kind from, rks_kind to, size_t size, bool wide)
{
    if (from == to)
        return size == 1 ? copy_1 : size == 2 ? copy_2 : size == 4 ? copy_4 : copy_8;
    for (size_t i = 0; i < sizeof(CONVERSIONS) / sizeof(CONVERSIONS[0]); i++)
        if (CONVERSIONS[i].from == from && CONVERSIONS[i].to == to)
            return wide ? CONVERSIONS[i].wide : CONVERSIONS[i].convert;
    return NULL;
}

/* ---- what fills up --------------------------------------------------------------------------- */

static bool encode_integer(rks_kind kind, double value, uint8_t item[8])
{
    static const struct {
        rks_kind kind;
        double least, beyond;
    } RANGES[] = {
        {RKS_KIND_BOOL, 0, 2},
        {RKS_KIND_INT8, -0x1p7, 0x1p7},
        {RKS_KIND_INT16, -0x1p15, 0x1p15},
        {RKS_KIND_INT32, -0x1p31, 0x1p31},
        {RKS_KIND_INT64, -0x1p63, 0x1p63},
        {RKS_KIND_UINT8, 0, 0x1p8},
        {RKS_KIND_UINT16, 0, 0x1p16},
        {RKS_KIND_UINT32, 0, 0x1p32},
        {RKS_KIND_UINT64, 0, 0x1p64},
    };
    for (size_t i = 0; i < sizeof(RANGES) / sizeof(RANGES[0]); i++) {
        if (RANGES[i].kind != kind)
            continue;
        if (!(value >= RANGES[i].least && value < RANGES[i].beyond))
            return false;
        uint64_t whole = value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
        rks_store_u64(item, whole);
        return (value < 0 ? (double)(int64_t)whole : (double)whole) == value;
    }
    return false;
}

bool rks_item_encode(rks_kind kind, double value, uint8_t item[8])
{
    uint16_t bits = 0;
    float single = (float)value;
    memset(item, 0, 8);
    switch (kind) {
    case RKS_KIND_FLOAT64:
        memcpy(item, &value, sizeof(value));
        return true;
    case RKS_KIND_FLOAT32:
    case RKS_KIND_COMPLEX64: /* only its real part */
        memcpy(item, &single, sizeof(single));
        return isfinite(value) ? isfinite(single) : true;
    case RKS_KIND_FLOAT16:
    case RKS_KIND_BFLOAT16:
    case RKS_KIND_FLOAT8_E4M3FN:
    case RKS_KIND_FLOAT8_E5M2:
        break;
    default:
        return encode_integer(kind, value, item);
    }
    if (!rks_small_float_put(kind, value, &bits))
        return false;
    rks_store_u16(item, bits);
    return true;
}

#define FILL(type)                                                                                 \
    do {                                                                                           \
        type one, *out = to;                                                                       \
        memcpy(&one, item, sizeof(one));                                                           \
        for (size_t i = 0; i < count; i++)                                                         \
            out[i] = one;                                                                          \
    } while (0)

void rks_item_fill(void *to, const uint8_t item[8], size_t size, size_t count)
{
    if (size == 1)
        memset(to, item[0], count);
    else if (size == 2)
        FILL(uint16_t);
    else if (size == 4)
        FILL(uint32_t);
    else
        FILL(uint64_t);
}
