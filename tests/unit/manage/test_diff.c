/* SPDX-License-Identifier: Apache-2.0
 *
 * test_diff.c: two datasets compared by key and contents, by one rank and by several. */
#include "unit/store/world.h"

#include "base/scratch.h"

/* What the dataset `b` has instead of what `a` has. */
typedef struct variant {
    const char *schema;     /* NULL: WORLD_SCHEMA */
    bool backwards;         /* units in another order */
    uint64_t without;       /* this sample is left out; UINT64_MAX: none */
    uint64_t other_text;    /* this one's text is another */
    uint64_t other_shape;   /* this one has a different number of items */
    uint64_t further;       /* so many more samples */
    const char *columns[2]; /* compared alone */
    uint32_t bad_a, bad_b;  /* so many samples of each, from id 5 on, are in a quarantine */
    bool own_nodes;
} variant;

static const variant SAME = {
    .without = UINT64_MAX, .other_text = UINT64_MAX, .other_shape = UINT64_MAX};

typedef struct job {
    char a[64], b[64];
    variant v;
    rks_diff_report report;
    char keys[3][256]; /* by kind, a line each */
} job;

static rks_status add(rks_sink *sink, const variant *v, uint64_t number, rks_error *err)
{
    world_sample sample;
    world_make(number, &sample);
    if (number == v->without)
        return RKS_OK;
    if (number == v->other_text)
        sample.text[0] = '!';
    if (number == v->other_shape)
        sample.values[2].size -= 4;
    rks_value values[3];
    memcpy(values, sample.values, sizeof(values));
    if (v->schema != NULL && strncmp(v->schema, "vec", 3) == 0) { /* columns in another order */
        values[0] = sample.values[2];
        values[1] = sample.values[0];
        values[2] = sample.values[1];
    }
    return rows_add(sink, values, sample.key, strlen(sample.key), err);
}

typedef struct variant_rows {
    const variant *v;
    uint64_t samples, units;
} variant_rows;

static rks_status make_unit(void *user, uint64_t place, rks_sink *sink, rks_error *err)
{
    const variant_rows *rows = user;
    uint64_t unit = rows->v->backwards ? rows->units - 1 - place : place;
    rks_status status = RKS_OK;
    for (uint64_t row = 0; status == RKS_OK && row < UNIT_ROWS; row++)
        if (unit * UNIT_ROWS + row < rows->samples)
            status = add(sink, rows->v, unit * UNIT_ROWS + row, err);
    return status;
}

static rks_status build_variant(rks_group *group, const job *j, rks_error *err)
{
    const variant *v = &j->v;
    rks_build_options options;
    uint64_t samples = SAMPLES + v->further;
    variant_rows all = {.v = v, .samples = samples, .units = (samples + UNIT_ROWS - 1) / UNIT_ROWS};
    const made_rows rows = {.make = make_unit, .user = &all, .units = all.units};
    world_build_options(&options);
    if (v->schema != NULL) {
        options.schema = v->schema;
        options.length = "text";
    }
    return rows_build(group, j->b, &options, &rows, NULL, err);
}

static void on_difference(void *user, rks_difference kind, const void *key, size_t key_size,
                          uint64_t id_a, uint64_t id_b)
{
    job *j = user;
    size_t used = strlen(j->keys[kind]);
    snprintf(j->keys[kind] + used, sizeof(j->keys[kind]) - used, "%.*s %d%d\n", (int)key_size,
             (const char *)key, id_a != UINT64_MAX, id_b != UINT64_MAX);
}

/* COLLECTIVE. Without the first `bad` samples from id 5 on. */
static rks_status open_without(rks_group *group, const char *directory, uint32_t bad,
                               rks_store **store, rks_error *err)
{
    rks_store_options options;
    uint64_t ids[SAMPLES];
    char path[96];
    rks_status status = RKS_OK;
    rks_store_options_default(&options);
    for (uint32_t i = 0; i < bad; i++)
        ids[i] = 5 + i;
    snprintf(path, sizeof(path), "%s/bad.json", directory);
    if (bad > 0 && rks_group_rank(group) == 0)
        status = rks_quarantine_write(path, directory, ids, NULL, bad, err);
    options.quarantine = bad > 0 ? path : NULL;
    status = rks_group_agree(group, "list", status, err);
    return status != RKS_OK ? status : rks_store_open(group, directory, &options, store, err);
}

static void compare(member *m)
{
    job *j = m->user;
    rks_store *a = NULL, *b = NULL;
    rks_diff_options options;
    rks_diff_report report = {.struct_size = sizeof(report)};
    rks_diff_options_default(&options);
    options.head = 3;
    options.columns = j->v.columns[0] == NULL ? NULL : j->v.columns;
    options.column_count = (j->v.columns[0] != NULL) + (j->v.columns[1] != NULL);
    if (!world_enter(m, j->v.own_nodes))
        return;
    EXPECT_OK(build_variant(m->group, j, &m->err));
    EXPECT_OK(open_without(m->group, j->a, j->v.bad_a, &a, &m->err));
    EXPECT_OK(open_without(m->group, j->b, j->v.bad_b, &b, &m->err));
    if (a != NULL && b != NULL)
        EXPECT_OK(rks_diff(a, b, &options, on_difference, j, &report, &m->err));
    if (m->rank == 0)
        j->report = report;
    else
        EXPECT(report.same > 0);
    rks_store_close(b, CLOSE_MS);
    rks_store_close(a, CLOSE_MS);
}

static void run(job *j, const variant *v, uint32_t ranks)
{
    memset(j, 0, sizeof(*j));
    j->v = *v;
    world_directory(j->a);
    world_directory(j->b);
    world_dataset(j->a, 2, false);
    on_threads(ranks, compare, j);
    world_remove(j->a);
    world_remove(j->b);
}

static void expect(const job *j, uint64_t same, uint64_t only_a, uint64_t only_b, uint64_t changed)
{
    assert_int_equal(j->report.same, same);
    assert_int_equal(j->report.only_a, only_a);
    assert_int_equal(j->report.only_b, only_b);
    assert_int_equal(j->report.changed, changed);
}

static void order_shards_and_ranks_do_not_matter(void **state)
{
    (void)state;
    job j;
    variant v = SAME;
    v.backwards = true;
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        v.own_nodes = ranks == 3; /* what others hold is fetched */
        run(&j, &v, ranks);
        expect(&j, SAMPLES, 0, 0, 0);
        assert_string_equal(j.report.columns, "");
        assert_string_equal(j.keys[0], "");
    }
}

static void each_kind_of_difference_is_counted_and_named(void **state)
{
    (void)state;
    job j;
    variant v = SAME;
    v.without = 7;
    v.other_text = 100; /* its text is not empty */
    v.other_shape = 11; /* neither is its list */
    v.further = 5;
    for (uint32_t ranks = 1; ranks <= 3; ranks += 2) {
        run(&j, &v, ranks);
        expect(&j, SAMPLES - 3, 1, 5, 2);
        assert_string_equal(j.keys[RKS_ONLY_IN_A], "key 00007 10\n");
        assert_string_equal(j.keys[RKS_ONLY_IN_B], /* the head of them */
                            "key 00280 01\nkey 00281 01\nkey 00282 01\n");
        assert_string_equal(j.keys[RKS_CHANGED], "key 00011 11\nkey 00100 11\n");
    }
}

static void the_order_of_columns_and_a_question_mark_do_not_matter(void **state)
{
    (void)state;
    job j;
    variant v = SAME;
    v.schema = "vec:float32[*]?,id:int64,text:str";
    run(&j, &v, 1);
    expect(&j, SAMPLES, 0, 0, 0);
    assert_string_equal(j.report.columns, "");
}

static void columns_of_another_name_or_type_are_told(void **state)
{
    (void)state;
    job j;
    variant v = SAME;
    v.schema = "id:int64,text:bytes,list:float32[*]";
    run(&j, &v, 1);
    expect(&j, SAMPLES, 0, 0, 0); /* by what both have: id */
    assert_string_equal(j.report.columns, "text: str in a, bytes in b; vec: float32[*], not in b; "
                                          "list: float32[*], not in a");
}

static void named_columns_are_compared_alone(void **state)
{
    (void)state;
    job j;
    variant v = SAME;
    v.other_text = 100;
    v.columns[0] = "id";
    v.columns[1] = "vec";
    run(&j, &v, 2);
    expect(&j, SAMPLES, 0, 0, 0);
    v.columns[1] = "text";
    run(&j, &v, 2);
    expect(&j, SAMPLES - 1, 0, 0, 1);
}

static void samples_in_a_quarantine_are_in_neither(void **state)
{
    (void)state;
    job j;
    variant v = SAME;
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        v.own_nodes = ranks == 3;
        v.bad_a = 90;
        v.bad_b = 0;
        run(&j, &v, ranks);
        expect(&j, SAMPLES - 90, 0, 90, 0);
        v.bad_b = 60;
        run(&j, &v, ranks);
        expect(&j, SAMPLES - 90, 0, 30, 0);
        v.bad_a = 0;
        run(&j, &v, ranks);
        expect(&j, SAMPLES - 60, 60, 0, 0);
        assert_non_null(strstr(j.keys[RKS_ONLY_IN_A], "key 00005 10\n"));
    }
}

static void what_is_kept_of_each_sample_may_lie_in_a_file(void **state)
{
    rks_scratch_memory_max(1);
    each_kind_of_difference_is_counted_and_named(state);
    rks_scratch_memory_max(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_shards_and_ranks_do_not_matter),
        cmocka_unit_test(each_kind_of_difference_is_counted_and_named),
        cmocka_unit_test(what_is_kept_of_each_sample_may_lie_in_a_file),
        cmocka_unit_test(the_order_of_columns_and_a_question_mark_do_not_matter),
        cmocka_unit_test(columns_of_another_name_or_type_are_told),
        cmocka_unit_test(named_columns_are_compared_alone),
        cmocka_unit_test(samples_in_a_quarantine_are_in_neither),
    };
    return cmocka_run_group_tests_name("diff", tests, NULL, NULL);
}
