/* SPDX-License-Identifier: Apache-2.0
 *
 * cost.c: the factors of a cost a L + b L^2 as integers, so that all machines balance alike. Only
 * their ratio matters: the larger one gets 39 bits, and both are scaled by the same power of 2. */
#include "plan/inside.h"

#include <string.h>

#include "base/error.h"

enum { FACTOR_BITS = 39, MANTISSA_BITS = 52, EXPONENT_MAX = 0x7ff };

/* value = *mantissa * 2^*exponent, with bit 52 set unless the value is subnormal or 0. */
static bool take_apart(double value, uint64_t *mantissa, int *exponent)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    int field = (int)(bits >> MANTISSA_BITS);
    if (value != 0 && (field >= EXPONENT_MAX || field == 0)) /* negative, infinite, no number */
        return false;
    *mantissa = value == 0 ? 0 : (bits & ((UINT64_C(1) << MANTISSA_BITS) - 1)) |
                                     UINT64_C(1) << MANTISSA_BITS;
    *exponent = field;
    return true;
}

/* Rounds half up. */
static uint64_t scale(uint64_t mantissa, int shift)
{
    return shift >= 64 ? 0 : (mantissa + (UINT64_C(1) << (shift - 1))) >> shift;
}

rks_status rks_plan_cost_read(double linear, double quadratic, rks_plan_config *config,
                              rks_error *err)
{
    uint64_t one, other;
    int one_exponent, other_exponent;
    if (!take_apart(linear, &one, &one_exponent) ||
        !take_apart(quadratic, &other, &other_exponent) || (one == 0 && other == 0))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "cost: %g per token and %g per token squared; both are from 0, one above",
                        linear, quadratic);
    int top = one != 0 && (other == 0 || one_exponent > other_exponent) ? one_exponent
                                                                        : other_exponent;
    int base = MANTISSA_BITS + 1 - FACTOR_BITS + 1; /* one bit of room for rounding up */
    config->cost_linear = one == 0 ? 0 : scale(one, base + top - one_exponent);
    config->cost_quadratic = other == 0 ? 0 : scale(other, base + top - other_exponent);
    return RKS_OK;
}
