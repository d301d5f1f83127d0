/* SPDX-License-Identifier: Apache-2.0
 *
 * test_number.c: small floats and comparisons of numbers of any kind. */
#include "codec/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard/small_float.h"
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

static void floats_are_read_by_the_name_of_their_type(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        uint8_t item[8];
        double number;
    } cases[] = {{"float16", {0x01, 0xc0}, -0x1.004p1}, {"bfloat16", {0x80, 0xbf}, -1.0},
                 {"float8_e4m3fn", {0x7e}, 448},        {"float8_e5m2", {0x7b}, 57344},
                 {"float32", {0, 0, 0x80, 0x3e}, 0.25}, {"float64", {1}, 5e-324},
                 {"float8_e4m3fn", {0x81}, -0x1p-9}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double number = 0;
        assert_int_equal(rks_float_read(cases[i].type, cases[i].item, &number, NULL), RKS_OK);
        assert_true(number == cases[i].number);
    }
    static const char *const others[] = {"int32", "float16[2]", "str", "complex64", "float", ""};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        rks_error err;
        double number = 7;
        assert_fails(RKS_ERR_ARGUMENT, rks_float_read(others[i], cases[0].item, &number, &err));
        assert_contains(err.text, "is not a float type");
        assert_true(number == 7);
    }
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

/* Beside printf and strtod. Powers of two are left to them if they have more than 15 digits. */
static bool check_spelled(double number)
{
    char printed[40], spelled[RKS_REAL_ROOM + 1];
    int exponent, precision = 15;
    size_t size = rks_real_spell(number, spelled);
    assert_in_range(size, 0, RKS_REAL_ROOM);
    spelled[size] = '\0';
    for (; precision <= 17; precision++) {
        snprintf(printed, sizeof(printed), "%.*g", precision, number);
        if (strtod(printed, NULL) == number)
            break;
    }
    double size_of = fabs(number);
    if (!isfinite(number) || size_of >= 1e15 || (size_of < 1e-4 && size_of != 0) ||
        (precision > 15 && fabs(frexp(number, &exponent)) == 0.5))
        assert_int_equal(size, 0);
    else
        assert_string_equal(spelled, strcat(printed, strchr(printed, '.') == NULL ? ".0" : ""));
    return size > 0;
}

static void reals_are_spelled_as_printf_does(void **state)
{
    (void)state;
    static const double some[] = {0,
                                  0.1,
                                  0.5,
                                  1,
                                  10,
                                  1e14,
                                  999999999999999,
                                  1e15,
                                  1e-4,
                                  1e-5,
                                  0.3,
                                  0.1 + 0.2,
                                  123456789012345.6,
                                  99999999999999.5,
                                  5e-324,
                                  1.5e300,
                                  0.000123456789012345,
                                  12345.6789012345,
                                  4503599627370497.5,
                                  (double)NAN,
                                  (double)INFINITY,
                                  2.5,
                                  1e14 + 0.5,
                                  0.00099};
    uint64_t seed = 1, found = 0, rounds = 200000;
    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            check_spelled(sign * some[i]);
            check_spelled(sign * nextafter(some[i], 0));
            check_spelled(sign * nextafter(some[i], (double)INFINITY));
        }
    for (uint64_t i = 0; i < rounds; i++) {
        double any;
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t whole = (seed >> 8) % 1000000000000000 >> seed % 50;
        found += check_spelled((double)whole / pow(10, (double)(seed >> 60)));
        check_spelled((double)whole / 3);
        memcpy(&any, &seed, sizeof(any));
        check_spelled(any);
        check_spelled(ldexp((double)(seed >> 11), (int)(seed % 63) - 66)); /* 2^-66 to 2^50 */
        check_spelled(ldexp(1, (int)(seed % 70) - 18));
    }
    assert_in_range(found, rounds / 2, rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_float_survives_the_round_trip),
        cmocka_unit_test(floats_are_read_by_the_name_of_their_type),
        cmocka_unit_test(numbers_compare_exactly),
        cmocka_unit_test(reals_are_spelled_as_printf_does),
    };
    return cmocka_run_group_tests_name("ingest_number", tests, NULL, NULL);
}
