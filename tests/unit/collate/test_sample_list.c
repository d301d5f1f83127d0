/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sample_list.c: samples of the caller's own give the arrays that a store's samples give. */
#include "samples.h"

static rks_error err;

static const uint16_t WORDS[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

static rks_sample_list *listed(const char *schema, const rks_value *values, size_t columns,
                               size_t count)
{
    rks_sample_list *list = NULL;
    assert_ok(rks_sample_list_create(schema, &list, &err), &err);
    for (size_t i = 0; i < count; i++)
        assert_ok(rks_sample_list_add(list, values + i * columns, 70 + i, (uint32_t)(i + 1), &err),
                  &err);
    return list;
}

static void check_same(const rks_arrays *a, const rks_arrays *b)
{
    assert_int_equal(rks_arrays_count(a), rks_arrays_count(b));
    assert_int_equal(rks_arrays_samples(a), rks_arrays_samples(b));
    for (size_t i = 0; i < rks_arrays_count(a); i++) {
        const rks_array *one = rks_arrays_get(a, i), *other = rks_arrays_get(b, i);
        assert_string_equal(one->name, other->name);
        assert_string_equal(one->type, other->type);
        assert_int_equal(one->dim_count, other->dim_count);
        assert_memory_equal(one->dims, other->dims, one->dim_count * sizeof(one->dims[0]));
        assert_int_equal(one->size, other->size);
        assert_memory_equal(one->data, other->data, one->size);
        assert_int_equal(one->offsets == NULL, other->offsets == NULL);
        if (one->offsets != NULL)
            assert_memory_equal(one->offsets, other->offsets,
                                (rks_arrays_samples(a) + 1) * sizeof(int64_t));
    }
}

static void a_list_gives_the_arrays_of_its_samples(void **state)
{
    static const char SCHEMA[] = "x:uint16[*]?,y:uint16,z:str";
    static const char *const LAYOUTS[] = {"pad", "pack"};
    const rks_value values[] = {
        {.data = WORDS, .size = 6, .dims = {3}},
        {.data = WORDS, .size = 2},
        {"ab", 2, {2}},
        {.data = NULL},
        {.data = WORDS, .size = 2},
        {"", 0, {0}},
        {.data = WORDS, .size = 18, .dims = {9}},
        {.data = WORDS, .size = 2},
        {"c", 1, {1}},
    };
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        samples s = {.count = 3, .columns = 3, .values = (rks_value *)(uintptr_t)values};
        rks_collate_options options;
        rks_arrays *wanted = NULL, *made = NULL;
        rks_collate_options_default(&options);
        options.layout = LAYOUTS[k];
        options.to_multiple = 4;
        rks_sample_list *list = listed(SCHEMA, values, 3, 3);
        assert_ok(samples_collate(SCHEMA, &s, &options, &wanted, &err), &err);
        assert_ok(rks_sample_list_collate(list, &options, NULL, 0, &made, &err), &err);
        rks_sample_list_free(list); /* arrays live on */
        check_same(made, wanted);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(rks_arrays_ids(made)[i], 70 + i);
            assert_int_equal(rks_arrays_lengths(made)[i], i + 1);
        }
        rks_arrays_free(made);
        rks_arrays_free(wanted);
    }
}

static void bins_begin_rows(void **state)
{
    static const uint32_t BINS[] = {5, 6, 8}; /* sample 0; samples 1 and 2 */
    const rks_value values[] = {
        {.data = WORDS, .size = 2}, {.data = WORDS, .size = 2}, {.data = WORDS, .size = 4}};
    rks_collate_options options;
    rks_arrays *made = NULL;
    (void)state;
    rks_collate_options_default(&options);
    options.layout = "rows";
    options.row_items = 4;
    rks_sample_list *list = listed("x:uint16[*]", values, 1, 3);
    assert_ok(rks_sample_list_collate(list, &options, BINS, 2, &made, &err), &err);
    const uint16_t wanted[] = {1, 0, 0, 0, 1, 1, 2, 0};
    assert_int_equal(rks_arrays_get(made, 0)->size, sizeof(wanted));
    assert_memory_equal(rks_arrays_get(made, 0)->data, wanted, sizeof(wanted));
    rks_arrays_free(made);
    rks_sample_list_free(list);
}

static void an_exact_column_is_as_wide_as_its_widest_sample(void **state)
{
    const rks_value values[] = {{.data = WORDS, .size = 6}, {.data = WORDS, .size = 10}};
    rks_collate_column column = {.column = "x", .exact = true};
    rks_collate_options options;
    rks_arrays *made = NULL;
    (void)state;
    rks_collate_options_default(&options);
    options.columns = &column;
    options.column_count = 1;
    options.to_multiple = 8;
    for (uint64_t width = 5; width <= 8; width += 3, column.exact = false) {
        rks_sample_list *list = listed("x:uint16[*]", values, 1, 2);
        assert_ok(rks_sample_list_collate(list, &options, NULL, 0, &made, &err), &err);
        assert_int_equal(rks_arrays_get(made, 0)->dims[1], width);
        rks_arrays_free(made);
        rks_sample_list_free(list);
    }
}

static void a_value_that_is_none_of_its_type_is_named(void **state)
{
    const rks_value odd = {.data = WORDS, .size = 3}, text = {"\xff", 1, {1}};
    rks_sample_list *list = NULL;
    (void)state;
    assert_ok(rks_sample_list_create("x:uint16[*]", &list, &err), &err);
    assert_fails(RKS_ERR_DATA, rks_sample_list_add(list, &odd, 0, 0, &err));
    assert_non_null(strstr(err.text, "column \"x\""));
    rks_sample_list_free(list);
    assert_ok(rks_sample_list_create("x:str", &list, &err), &err);
    assert_fails(RKS_ERR_DATA, rks_sample_list_add(list, &text, 0, 0, &err));
    rks_sample_list_free(list);
    assert_fails(RKS_ERR_ARGUMENT, rks_sample_list_create("x:nothing", &list, &err));
}

static void nothing_leaks_if_an_allocation_fails(void **state)
{
    const rks_value values[] = {{.data = WORDS, .size = 6}, {.data = WORDS, .size = 10}};
    rks_collate_options options;
    rks_status status = RKS_ERR_MEMORY;
    (void)state;
    rks_collate_options_default(&options);
    for (int n = 1; status == RKS_ERR_MEMORY; n++) {
        rks_sample_list *list = NULL;
        rks_arrays *made = NULL;
        rks_memory_fail_at(n);
        status = rks_sample_list_create("x:uint16[*]", &list, &err);
        for (size_t i = 0; status == RKS_OK && i < 2; i++)
            status = rks_sample_list_add(list, &values[i], i, 0, &err);
        if (status == RKS_OK)
            status = rks_sample_list_collate(list, &options, NULL, 0, &made, &err);
        rks_memory_fail_at(0);
        rks_arrays_free(made);
        rks_sample_list_free(list);
        assert_int_equal(rks_memory_in_use(), 0);
    }
    assert_int_equal(status, RKS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_gives_the_arrays_of_its_samples),
        cmocka_unit_test(bins_begin_rows),
        cmocka_unit_test(an_exact_column_is_as_wide_as_its_widest_sample),
        cmocka_unit_test(a_value_that_is_none_of_its_type_is_named),
        cmocka_unit_test(nothing_leaks_if_an_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
