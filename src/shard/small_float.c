/* SPDX-License-Identifier: Apache-2.0
 *
 * small_float.c: floats of one and two bytes, described by the widths of their fields. */
#include "shard/small_float.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"

typedef struct layout {
    int exponent_bits;
    int fraction_bits;
    uint16_t largest; /* bits of the largest finite number */
    bool infinite;    /* the highest exponent means infinity and NaN; else only all ones are NaN */
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
    exponent -= 1; /* frexp's fraction is below 1; this is for 1.xxx */
    if (!isfinite(magnitude) || exponent > bias + 1)
        return false;
    if (magnitude == 0 || exponent < 1 - bias)
        exponent = 1 - bias; /* subnormal: the smallest exponent's spacing */

    /* In units of the spacing the value is below 2^(fraction_bits + 1), which a double holds
     * exactly. */
    double scaled = ldexp(magnitude, shape.fraction_bits - exponent);
    uint32_t units = (uint32_t)scaled;
    double rest = scaled - units;
    if (rest > 0.5 || (rest == 0.5 && units % 2 == 1))
        units++;
    /* A normal number's leading one adds itself to the exponent field; so does a carry. */
    uint32_t encoded = ((uint32_t)(exponent + bias - 1) << shape.fraction_bits) + units;
    if (encoded > shape.largest)
        return false;
    *bits = (uint16_t)(encoded | sign);
    return true;
}

bool rks_small_float_put(rks_kind kind, double value, uint16_t *bits)
{
    return isfinite(value) ? rks_small_float_encode(kind, value, bits)
                           : rks_small_float_special(kind, value, bits);
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

rks_status rks_float_read(const char *type, const void *item, double *number, rks_error *err)
{
    float single = 0;
    rks_kind kind = RKS_KIND_BOOL;
    if (!rks_kind_find(type, strlen(type), &kind) || !rks_kind_is_float(kind))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "\"%.40s\" is not a float type", type);
    uint32_t size = rks_kinds[kind].size;
    if (size == sizeof(double)) {
        memcpy(number, item, sizeof(*number));
    } else if (size == sizeof(single)) {
        memcpy(&single, item, sizeof(single));
        *number = (double)single;
    } else {
        *number =
            rks_small_float_decode(kind, size == 2 ? rks_load_u16(item) : *(const uint8_t *)item);
    }
    return RKS_OK;
}
