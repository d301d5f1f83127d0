/* SPDX-License-Identifier: Apache-2.0
 *
 * test_draw.c: which rows a sample takes. */
#include "support/check.h"

#include <stdlib.h>

#include "ingest/row_sampling.h"

static void draws_do_not_change_from_version_to_version(void **state)
{
    (void)state;
    assert_true(rks_draw(0, 0, 0) == UINT64_C(0x28f9feaebd831d6c));
    assert_true(rks_draw(7, 3, 1) == UINT64_C(0xb58a5915801b6080));
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static void rows_of_a_unit_have_different_numbers(void **state)
{
    (void)state;
    enum { ROWS = 100000 };
    uint64_t *numbers = malloc(ROWS * sizeof(*numbers));
    for (uint64_t row = 0; row < ROWS; row++)
        numbers[row] = rks_draw(1, 2, row);
    qsort(numbers, ROWS, sizeof(*numbers), compare);
    for (size_t i = 1; i < ROWS; i++)
        assert_true(numbers[i - 1] < numbers[i]);
    free(numbers);
}

/* The share is met within 5 standard deviations, for any seed and over units. */
static void a_share_of_the_rows_is_taken(void **state)
{
    (void)state;
    static const double rates[] = {0.5, 0.1, 0.01};
    for (size_t i = 0; i < 3; i++) {
        uint64_t limit = rks_draw_limit(rates[i]), left = 0;
        const double rows = 50 * 20000.0;
        for (uint64_t unit = 0; unit < 50; unit++)
            left += rks_draw_left_out(limit, 11 + i, unit, 20000);
        double off = rows - (double)left - rows * rates[i];
        assert_true(off * off < 25 * rows * rates[i] * (1 - rates[i]));
    }
}

static void rows_left_out_are_those_that_the_sample_does_not_take(void **state)
{
    (void)state;
    const uint64_t limit = rks_draw_limit(0.3);
    for (uint64_t seed = 0; seed < 5; seed++)
        for (uint64_t unit = 0; unit < 5; unit++)
            for (uint64_t rows = 0, left = 0; rows < 100; rows++) {
                assert_int_equal(rks_draw_left_out(limit, seed, unit, rows), left);
                left += !rks_row_is_sampled(limit, seed, unit, rows);
            }
}

static void no_rate_takes_all(void **state)
{
    (void)state;
    assert_true(rks_draw_limit(0) == 0 && rks_draw_limit(1) == 0);
    assert_true(rks_draw_limit(1e-300) == 1); /* and not all */
    assert_int_equal(rks_draw_left_out(0, 1, 2, 1000), 0);
    assert_true(rks_row_is_sampled(0, 1, 2, 3));
    assert_true(rks_draw_limit(1 - 0x1p-53) == UINT64_MAX - 2047);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_do_not_change_from_version_to_version),
        cmocka_unit_test(rows_of_a_unit_have_different_numbers),
        cmocka_unit_test(a_share_of_the_rows_is_taken),
        cmocka_unit_test(rows_left_out_are_those_that_the_sample_does_not_take),
        cmocka_unit_test(no_rate_takes_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
