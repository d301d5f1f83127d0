/* SPDX-License-Identifier: Apache-2.0
 *
 * number.c: exact comparison over 128-bit integers; small floats by their widths. */
#include "codec/number.h"

#include <math.h>

#include "base/bytes.h"

__extension__ typedef __int128 wide;

static wide integer_of(rks_number number)
{
    return number.kind == RKS_NUMBER_INT ? (wide)number.as.i : (wide)number.as.u;
}

static int compare_integer_real(wide integer, double real)
{
    if (isnan(real))
        return 2;
    if (real >= 0x1p65)
        return -1;
    if (real <= -0x1p65)
        return 1;
    wide whole = (wide)real; /* towards zero, exact */
    if (integer != whole)
        return integer < whole ? -1 : 1;
    double rest = real - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

int rks_number_compare(rks_number a, rks_number b)
{
    bool a_real = a.kind == RKS_NUMBER_REAL, b_real = b.kind == RKS_NUMBER_REAL;
    if (a_real && b_real) {
        if (isnan(a.as.d) || isnan(b.as.d))
            return 2;
        return a.as.d < b.as.d ? -1 : a.as.d > b.as.d;
    }
    if (b_real)
        return compare_integer_real(integer_of(a), b.as.d);
    if (a_real) {
        int order = compare_integer_real(integer_of(b), a.as.d);
        return order == 2 ? 2 : -order;
    }
    wide x = integer_of(a), y = integer_of(b);
    return x < y ? -1 : x > y;
}

bool rks_kind_is_integer(rks_kind kind)
{
    return kind >= RKS_KIND_INT8 && kind <= RKS_KIND_UINT64;
}

bool rks_kind_is_float(rks_kind kind)
{
    return kind >= RKS_KIND_FLOAT16 && kind <= RKS_KIND_FLOAT8_E5M2;
}

static rks_number of_int(int64_t value)
{
    return (rks_number){.kind = RKS_NUMBER_INT, .as.i = value};
}

static rks_number of_real(double value)
{
    return (rks_number){.kind = RKS_NUMBER_REAL, .as.d = value};
}

rks_number rks_number_load(rks_kind kind, const void *data)
{
    const uint8_t *bytes = data;
    float f32;
    double f64;
    switch (kind) {
    case RKS_KIND_INT8:
        return of_int((int8_t)bytes[0]);
    case RKS_KIND_UINT8:
        return of_int(bytes[0]);
    case RKS_KIND_INT16:
        return of_int((int16_t)rks_load_u16(data));
    case RKS_KIND_UINT16:
        return of_int(rks_load_u16(data));
    case RKS_KIND_INT32:
        return of_int((int32_t)rks_load_u32(data));
    case RKS_KIND_UINT32:
        return of_int(rks_load_u32(data));
    case RKS_KIND_INT64:
        return of_int((int64_t)rks_load_u64(data));
    case RKS_KIND_UINT64:
        return (rks_number){.kind = RKS_NUMBER_UINT, .as.u = rks_load_u64(data)};
    case RKS_KIND_FLOAT32:
        memcpy(&f32, data, sizeof(f32));
        return of_real(f32);
    case RKS_KIND_FLOAT64:
        memcpy(&f64, data, sizeof(f64));
        return of_real(f64);
    case RKS_KIND_FLOAT16:
    case RKS_KIND_BFLOAT16:
        return of_real(rks_small_float_decode(kind, rks_load_u16(data)));
    default:
        return of_real(rks_small_float_decode(kind, bytes[0]));
    }
}

typedef struct layout {
    int exponent_bits;
    int fraction_bits;
    uint16_t largest; /* bits of the largest finite number */
    bool infinite;    /* the highest exponent is infinity and NaN; else only all ones are NaN */
} layout;

static layout layout_of(rks_kind kind)
{
    switch (kind) {
    case RKS_KIND_FLOAT16:
        return (layout){5, 10, 0x7bff, true};
    case RKS_KIND_BFLOAT16:
        return (layout){8, 7, 0x7f7f, true};
    case RKS_KIND_FLOAT8_E4M3FN:
        return (layout){4, 3, 0x7e, false};
    default:
        return (layout){5, 2, 0x7b, true}; /* float8_e5m2 */
    }
}

/* NaN and infinities have the highest exponent; float8_e4m3fn has no infinity, and one NaN. */
bool rks_small_float_special(rks_kind kind, double value, uint16_t *bits)
{
    layout shape = layout_of(kind);
    uint16_t top = (uint16_t)(((1u << shape.exponent_bits) - 1) << shape.fraction_bits);
    uint16_t all = (uint16_t)((1u << shape.fraction_bits) - 1);
    uint16_t sign =
        (uint16_t)((signbit(value) ? 1u : 0u) << (shape.exponent_bits + shape.fraction_bits));
    if (!isnan(value) && !shape.infinite)
        return false;
    *bits = isnan(value)
                ? (uint16_t)(top | (shape.infinite ? 1u << (shape.fraction_bits - 1) : all))
                : (uint16_t)(top | sign);
    return true;
}

bool rks_small_float_encode(rks_kind kind, double value, uint16_t *bits)
{
    layout shape = layout_of(kind);
    int bias = (1 << (shape.exponent_bits - 1)) - 1;
    uint16_t sign =
        (uint16_t)((signbit(value) ? 1u : 0u) << (shape.exponent_bits + shape.fraction_bits));
    double magnitude = fabs(value);
    int exponent = 0;
    if (magnitude > 0)
        frexp(magnitude, &exponent);
    exponent -= 1; /* of 1.xxx */
    if (!isfinite(magnitude) || exponent > bias + 1)
        return false;
    if (magnitude == 0 || exponent < 1 - bias)
        exponent = 1 - bias; /* subnormal: the smallest exponent's spacing */

    /* In units of the spacing the value is below 2^(fraction_bits + 1): exact in a double. */
    double scaled = ldexp(magnitude, shape.fraction_bits - exponent);
    uint32_t units = (uint32_t)scaled;
    double rest = scaled - units;
    if (rest > 0.5 || (rest == 0.5 && units % 2 == 1))
        units++;
    /* A normal number's leading one adds itself to the exponent field, and so does a carry. */
    uint32_t encoded = ((uint32_t)(exponent + bias - 1) << shape.fraction_bits) + units;
    if (encoded > shape.largest)
        return false;
    *bits = (uint16_t)(encoded | sign);
    return true;
}

double rks_small_float_decode(rks_kind kind, uint16_t bits)
{
    layout shape = layout_of(kind);
    int bias = (1 << (shape.exponent_bits - 1)) - 1;
    int fraction = bits & ((1 << shape.fraction_bits) - 1);
    int exponent = (bits >> shape.fraction_bits) & ((1 << shape.exponent_bits) - 1);
    int sign = (bits >> (shape.fraction_bits + shape.exponent_bits)) & 1;
    int last = (1 << shape.exponent_bits) - 1;
    double magnitude;
    if (exponent == last && shape.infinite)
        magnitude = fraction == 0 ? (double)INFINITY : (double)NAN;
    else if (!shape.infinite && exponent == last && fraction == (1 << shape.fraction_bits) - 1)
        magnitude = (double)NAN;
    else if (exponent == 0)
        magnitude = ldexp(fraction, 1 - bias - shape.fraction_bits);
    else
        magnitude =
            ldexp(fraction + (1 << shape.fraction_bits), exponent - bias - shape.fraction_bits);
    return sign ? -magnitude : magnitude;
}
