/* SPDX-License-Identifier: Apache-2.0
 *
 * test_number.c: small floats and comparisons of numbers of any kind. */
#include "codec/number.h"

#include <math.h>

#include "support/check.h"

static void every_small_float_survives_the_round_trip(void **state)
{
    (void)state;
    const struct {
        rks_kind kind;
        int bits;
    } kinds[] = {{RKS_KIND_FLOAT16, 16},
                 {RKS_KIND_BFLOAT16, 16},
                 {RKS_KIND_FLOAT8_E4M3FN, 8},
                 {RKS_KIND_FLOAT8_E5M2, 8}};
    for (size_t k = 0; k < 4; k++) {
        double last = 0;
        for (uint32_t bits = 0; bits < 1u << kinds[k].bits; bits++) {
            double value = rks_small_float_decode(kinds[k].kind, (uint16_t)bits);
            uint16_t back = 0;
            if (!isfinite(value)) {
                assert_false(rks_small_float_encode(kinds[k].kind, value, &back));
                continue;
            }
            assert_true(rks_small_float_encode(kinds[k].kind, value, &back));
            assert_int_equal(back, bits);
            if (bits > 0 && bits < 1u << (kinds[k].bits - 1)) {
                /* The middle between neighbours goes to the even one. */
                assert_true(value > last);
                double middle = last + (value - last) / 2;
                assert_true(rks_small_float_encode(kinds[k].kind, middle, &back));
                assert_int_equal(back, bits % 2 == 0 ? bits : bits - 1);
                assert_true(rks_small_float_encode(kinds[k].kind, middle * (1 + 0x1p-52), &back));
                assert_int_equal(back, bits);
            }
            last = value;
        }
    }
    uint16_t bits = 0;
    assert_true(rks_small_float_encode(RKS_KIND_FLOAT16, 65519.99, &bits));
    assert_int_equal(bits, 0x7bff);
    assert_false(rks_small_float_encode(RKS_KIND_FLOAT16, 65520, &bits));
    assert_true(rks_small_float_encode(RKS_KIND_FLOAT8_E4M3FN, 464, &bits)); /* a tie, to 448 */
    assert_int_equal(bits, 0x7e);
    assert_false(rks_small_float_encode(RKS_KIND_FLOAT8_E4M3FN, 465, &bits));
    assert_true(rks_small_float_encode(RKS_KIND_FLOAT16, 5e-324, &bits));
    assert_int_equal(bits, 0);
    assert_true(rks_small_float_encode(RKS_KIND_BFLOAT16, -1.0, &bits));
    assert_int_equal(bits, 0xbf80);
}

static rks_number real(double value)
{
    return (rks_number){.kind = RKS_NUMBER_REAL, .as.d = value};
}

static void numbers_compare_exactly(void **state)
{
    (void)state;
    rks_number low = {.kind = RKS_NUMBER_INT, .as.i = INT64_MIN};
    rks_number high = {.kind = RKS_NUMBER_UINT, .as.u = UINT64_MAX};
    assert_int_equal(rks_number_compare(low, high), -1);
    assert_int_equal(rks_number_compare(high, low), 1);
    assert_int_equal(rks_number_compare(low, real(-0x1p63)), 0);
    assert_int_equal(rks_number_compare(high, real(0x1p64)), -1);
    assert_int_equal(rks_number_compare(real(0x1p64), high), 1);
    assert_int_equal(rks_number_compare(low, real(-1e300)), 1);
    assert_int_equal(rks_number_compare(high, real((double)INFINITY)), -1);
    assert_int_equal(rks_number_compare(high, real((double)NAN)), 2);
    assert_int_equal(rks_number_compare(real((double)NAN), real(1)), 2);
    rks_number three = {.kind = RKS_NUMBER_INT, .as.i = 3};
    assert_int_equal(rks_number_compare(three, real(3.5)), -1);
    assert_int_equal(rks_number_compare(real(-3.5), three), -1);
    assert_int_equal(rks_number_compare(real(2.5), three), -1);
    assert_int_equal(rks_number_compare(real(0.5), real(0.5)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_float_survives_the_round_trip),
        cmocka_unit_test(numbers_compare_exactly),
    };
    return cmocka_run_group_tests_name("ingest_number", tests, NULL, NULL);
}
