/* SPDX-License-Identifier: Apache-2.0
 *
 * cost.c: converts the factors of a cost a L + b L^2 to integers, so that all machines balance
 * alike. Only their ratio matters: the larger one gets 39 bits, and both are scaled by the same
 * power of 2. */
#include "plan/epoch.h"

#include <string.h>

#include "base/error.h"

enum { FACTOR_BITS = 39, MANTISSA_BITS = 52, EXPONENT_MAX = 0x7ff };

/* Splits a value into *mantissa and *exponent. Bit 52 of the mantissa is set unless the value is 0.
 * Returns false if the value is negative, subnormal or not finite. */
static bool split_double(double value, uint64_t *mantissa, int *exponent)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    int field = (int)(bits >> MANTISSA_BITS);
    if (value != 0 && (field >= EXPONENT_MAX || field == 0)) /* negative, subnormal, not finite */
        return false;
    *mantissa = value == 0
                    ? 0
                    : (bits & ((UINT64_C(1) << MANTISSA_BITS) - 1)) | UINT64_C(1) << MANTISSA_BITS;
    *exponent = field;
    return true;
}

/* Shifts right and rounds half up. */
static uint64_t scale(uint64_t mantissa, int shift)
{
    return shift >= 64 ? 0 : (mantissa + (UINT64_C(1) << (shift - 1))) >> shift;
}

rks_status rks_plan_cost_read(double linear, double quadratic, rks_plan_config *config,
                              rks_error *err)
{
    uint64_t one, other;
    int one_exponent, other_exponent;
    if (!split_double(linear, &one, &one_exponent) ||
        !split_double(quadratic, &other, &other_exponent) || (one == 0 && other == 0))
        return rks_fail(
            err, RKS_ERR_ARGUMENT, 0,
            "cost: %g per token and %g per token squared; both must be at least 0, and one above 0",
            linear, quadratic);
    int top =
        one != 0 && (other == 0 || one_exponent > other_exponent) ? one_exponent : other_exponent;
    int base = MANTISSA_BITS + 1 - FACTOR_BITS + 1; /* one bit of room for rounding up */
    config->cost_linear = one == 0 ? 0 : scale(one, base + top - one_exponent);
    config->cost_quadratic = other == 0 ? 0 : scale(other, base + top - other_exponent);
    return RKS_OK;
}
