/* SPDX-License-Identifier: Apache-2.0
 *
 * test_builder.c: building from memory: units, keys, callbacks, resume, and ranks that disagree. */
#include "unit/store/world.h"

#include "dataset/dataset.h"

typedef struct job {
    const char *directory;
    rks_build_options options;
    int step;
    char dataset[33];
    uint64_t resumed;
} job;

static void with_ranks(uint32_t ranks, member_fn body, int step)
{
    char directory[64];
    job j = {.directory = directory, .step = step};
    world_directory(directory);
    world_build_options(&j.options);
    on_threads(ranks, body, &j);
    world_remove(directory);
}

/* ---- the same dataset ---------------------------------------------------------------------- */

static void the_dataset_does_not_depend_on_the_number_of_ranks(void **state)
{
    (void)state;
    char first[33] = "";
    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        char directory[64];
        world_directory(directory);
        rks_build_report report = world_dataset(directory, ranks, ranks == 3);
        assert_int_equal(report.samples, SAMPLES);
        assert_int_equal(report.units, UNITS);
        assert_int_equal(report.units_resumed, 0);
        assert_int_equal(world_files(directory, ".rks"), ranks);
        assert_int_equal(world_files(directory, ".lock"), 0);
        if (ranks == 1)
            strcpy(first, report.dataset);
        assert_string_equal(report.dataset, first);
        world_remove(directory);
    }
}

static void leave_half_done(member *m)
{
    job *j = m->user;
    rks_builder *builder = NULL;
    if (!world_enter(m, false))
        return;
    EXPECT_OK(rks_builder_open(m->group, j->directory, &j->options, &builder, &m->err));
    for (uint64_t unit = 0; unit < 3; unit++)
        if (unit % m->size == m->rank)
            EXPECT_OK(world_add_unit(builder, true, unit, &m->err));
    rks_status status =
        m->rank == 1 ? rks_fail(&m->err, RKS_ERR_IO, 28, "the disk of rank 1") : RKS_OK;
    status = rks_builder_commit(builder, status, NULL, &m->err);
    EXPECT(status == RKS_ERR_IO && m->err.rank == 1);
    EXPECT_TEXT("the disk of rank 1");
    EXPECT(rks_builder_commit(builder, RKS_OK, NULL, &m->err) == RKS_ERR_STATE);
    rks_builder_close(builder);
}

static void a_failed_build_goes_on_with_another_number_of_ranks(void **state)
{
    (void)state;
    static const uint32_t next[] = {1, 2, 4};
    char plain[64];
    world_directory(plain);
    rks_build_report whole = world_dataset(plain, 2, false);
    for (size_t i = 0; i < 3; i++) {
        char directory[64];
        job j = {.directory = directory};
        world_directory(directory);
        world_build_options(&j.options);
        on_threads(2, leave_half_done, &j);
        assert_int_equal(world_files(directory, "dataset.json"), 0);
        rks_build_report report = world_dataset(directory, next[i], false);
        assert_string_equal(report.dataset, whole.dataset);
        assert_int_equal(report.units_resumed,
                         2); /* 0 and 2; rank 1 was in unit 1 when it failed */
        assert_int_equal(report.samples, SAMPLES);
        world_remove(directory);
    }
    world_remove(plain);
}

/* Each unit leaves out as many as its number says, and twice as many as bad. Step 0: it ends early.
 */
static void leave_out(member *m)
{
    job *j = m->user;
    rks_builder *builder = NULL;
    rks_build_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, false))
        return;
    EXPECT_OK(rks_builder_open(m->group, j->directory, &j->options, &builder, &m->err));
    EXPECT(rks_builder_left_out(builder, 1, 1, &m->err) == RKS_ERR_STATE);
    for (uint64_t unit = 0; unit < (j->step == 0 ? 4 : UNITS); unit++) {
        if (unit % m->size != m->rank)
            continue;
        EXPECT_OK(world_add_unit(builder, true, unit, &m->err));
        EXPECT_OK(rks_builder_left_out(builder, unit, unit, &m->err));
        EXPECT_OK(rks_builder_left_out(builder, 0, unit, &m->err));
    }
    rks_status status = j->step == 0 ? rks_fail(&m->err, RKS_ERR_IO, 28, "the disk") : RKS_OK;
    EXPECT(rks_builder_commit(builder, status, &report, &m->err) == status);
    if (j->step == 1) {
        EXPECT(report.units_resumed > 0 && report.samples == SAMPLES);
        EXPECT(report.filtered == UNITS * (UNITS - 1) / 2 && report.bad == UNITS * (UNITS - 1));
    }
    rks_builder_close(builder);
}

static void what_the_caller_left_out_is_counted_also_in_units_taken_over(void **state)
{
    (void)state;
    char directory[64], plain[64];
    job j = {.directory = directory};
    world_directory(directory);
    world_build_options(&j.options);
    on_threads(2, leave_out, &j);
    j.step = 1;
    on_threads(3, leave_out, &j);
    rks_dataset *dataset = NULL, *same = NULL;
    rks_error err;
    world_directory(plain);
    world_dataset(plain, 1, false);
    assert_ok(rks_dataset_load(directory, &dataset, &err), &err);
    assert_ok(rks_dataset_load(plain, &same, &err), &err);
    assert_memory_equal(&dataset->id, &same->id, sizeof(dataset->id));
    assert_int_equal(dataset->units[3].summary.seen, UNIT_ROWS); /* its rows */
    rks_dataset_free(dataset);
    rks_dataset_free(same);
    world_remove(plain);
    world_remove(directory);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void expect_key(member *m, const char *directory, uint64_t id, const char *expected)
{
    rks_store *store = NULL;
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    EXPECT_OK(rks_store_open(m->group, directory, NULL, &store, &m->err));
    if (store == NULL)
        return;
    EXPECT_OK(rks_store_key(store, id, key, &size, &m->err));
    EXPECT(size == strlen(expected) && memcmp(key, expected, size) == 0);
    uint64_t found = 0;
    EXPECT_OK(rks_store_find(store, expected, strlen(expected), &found, &m->err));
    EXPECT(found == id);
    rks_store_close(store, CLOSE_MS);
}

static void keys_of_three_kinds(member *m)
{
    job *j = m->user;
    if (!world_enter(m, false))
        return;
    static const char *const expected[] = {"key 00081", "81", "part 2:1"};
    rks_build_options options = j->options;
    options.own_keys = j->step == 0;
    options.key = j->step == 1 ? "id" : NULL;
    EXPECT_OK(world_build(m->group, j->directory, &options, NULL, &m->err));
    expect_key(m, j->directory, 81, expected[j->step]);
}

static void keys_are_given_or_a_column_or_derived(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        with_ranks(2, keys_of_three_kinds, kind);
}

/* Steps: 0 short keys, 1 long keys, 2 equal unit names, 3 equal units with other contents. */
static void twice(member *m)
{
    job *j = m->user;
    rks_builder *builder = NULL;
    if (!world_enter(m, false))
        return;
    char key[RKS_KEY_MAX], name[16];
    memset(key, 'x', sizeof(key));
    snprintf(name, sizeof(name), "u%u", j->step == 2 ? 7 : m->rank);
    rks_build_options options = j->options;
    options.own_keys = j->step != 2;
    EXPECT_OK(rks_builder_open(m->group, j->directory, &options, &builder, &m->err));
    uint64_t unit = j->step == 3 ? 5 : 10 - m->rank;
    world_sample sample;
    EXPECT_OK(rks_builder_unit(builder, unit, name, NULL, &m->err));
    world_make(m->rank, &sample);
    size_t size = j->step == 1 ? sizeof(key) : 5;
    if (j->step == 3)
        key[0] = (char)('a' + m->rank);
    bool own = options.own_keys && m->rank > 0; /* rank 0 has nothing to do with it */
    if (own || !options.own_keys || j->step == 3)
        EXPECT_OK(rks_builder_add(builder, sample.values, options.own_keys ? key : NULL,
                                  options.own_keys ? size : 0, &m->err));
    rks_status status = rks_builder_commit(builder, RKS_OK, NULL, &m->err);
    EXPECT(status == RKS_ERR_DATA);
    if (j->step < 2) {
        EXPECT_TEXT("rank 1");
        EXPECT_TEXT("rank 2");
    } else {
        EXPECT_TEXT(j->step == 2 ? "u7" : "unit 5");
    }
    rks_builder_close(builder);
    EXPECT(world_files(j->directory, "dataset.json") == 0);
}

static void what_is_there_twice_is_an_error_that_names_both(void **state)
{
    (void)state;
    for (int step = 0; step < 4; step++)
        with_ranks(3, twice, step);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static int drop_all_zero_masks(void *user, const rks_sample *sample, rks_error *err)
{
    (void)user;
    (void)err;
    const uint8_t *mask = sample->values[1].data;
    for (uint64_t i = 0; i < sample->values[1].size; i++)
        if (mask[i] != 0)
            return 1;
    return 0;
}

static void train_on_masks(member *m)
{
    job *j = m->user;
    rks_builder *builder = NULL;
    if (!world_enter(m, false))
        return;
    rks_build_options options;
    rks_build_report report = {.struct_size = sizeof(report)};
    rks_build_options_default(&options);
    options.schema = "input_ids:int32[*],loss_mask:bool[*]";
    options.filter = drop_all_zero_masks;
    EXPECT_OK(rks_builder_open(m->group, j->directory, &options, &builder, &m->err));
    EXPECT_OK(rks_builder_unit(builder, m->rank, m->rank == 0 ? "a" : "b", NULL, &m->err));
    for (int i = 0; i < 10; i++) {
        const int32_t ids[4] = {i, i, i, i};
        const uint8_t mask[4] = {0, 0, i % 3 == 0, 0};
        const rks_value values[2] = {{.data = ids, .size = 16}, {.data = mask, .size = 4}};
        EXPECT_OK(rks_builder_add(builder, values, NULL, 0, &m->err));
    }
    EXPECT_OK(rks_builder_commit(builder, RKS_OK, &report, &m->err));
    EXPECT(report.samples == 8 && report.filtered == 12);
    rks_builder_close(builder);
    /* Keys go by the row that was added, not by what was kept. */
    expect_key(m, j->directory, 1, "a:3");
}

static void samples_with_nothing_to_learn_are_dropped(void **state)
{
    (void)state;
    with_ranks(2, train_on_masks, 0);
}

static int fail_filter(void *user, const rks_sample *sample, rks_error *err)
{
    (void)user;
    int64_t id;
    memcpy(&id, sample->values[0].data, sizeof(id));
    return id == 2 * UNIT_ROWS + 5 ? rks_fail(err, RKS_ERR_DATA, 0, "no voice in %.*s",
                                              (int)sample->key_size, (const char *)sample->key)
                                   : 1;
}

static rks_status fail_length(void *user, const rks_sample *sample, uint64_t *length,
                              rks_error *err)
{
    *length = 9;
    return fail_filter(user, sample, err) == 1 ? RKS_OK : RKS_ERR_DATA;
}

static void failing_callback(member *m)
{
    job *j = m->user;
    if (!world_enter(m, false))
        return;
    rks_build_options options = j->options;
    if (j->step == 0)
        options.filter = fail_filter;
    else
        options.length_fn = fail_length;
    EXPECT(world_build(m->group, j->directory, &options, NULL, &m->err) == RKS_ERR_DATA);
    EXPECT(m->err.rank == 2); /* unit 2 is rank 2's */
    EXPECT_TEXT("no voice in key 00085");
}

static void a_callback_that_fails_on_one_rank_fails_on_all(void **state)
{
    (void)state;
    with_ranks(3, failing_callback, 0);
    with_ranks(3, failing_callback, 1);
}

/* ---- wrong calls ----------------------------------------------------------------------------- */

static void different_options(member *m)
{
    static const char *const names[] = {"schema", "length_unit", "own_keys", "where", "index"};
    job *j = m->user;
    rks_builder *builder = NULL;
    if (!world_enter(m, false))
        return;
    rks_build_options options = j->options;
    if (m->rank == 1 && j->step == 0)
        options.schema = "id:int64,text:str,vec:float64[*]";
    else if (m->rank == 1 && j->step == 1)
        options.length_unit = 3;
    else if (m->rank == 1 && j->step == 2)
        options.own_keys = false;
    else if (m->rank == 1 && j->step == 3)
        options.where = "id > 3";
    else if (m->rank == 1)
        options.index_count = 0;
    EXPECT(rks_builder_open(m->group, j->directory, &options, &builder, &m->err) ==
           RKS_ERR_ARGUMENT);
    EXPECT_TEXT(names[j->step]);
    EXPECT_TEXT("rank 1");
    EXPECT(builder == NULL);
}

static void options_that_differ_are_named_with_two_ranks(void **state)
{
    (void)state;
    for (int step = 0; step < 5; step++)
        with_ranks(3, different_options, step);
}

static void wrong_calls(member *m)
{
    job *j = m->user;
    bool skip = true;
    char big[RKS_KEY_MAX + 1] = {0};
    rks_builder *builder = NULL;
    if (!world_enter(m, false))
        return;
    world_sample sample;
    world_make(1, &sample);
    rks_build_options options = j->options;
    options.key = "id";
    EXPECT(rks_builder_open(m->group, j->directory, &options, &builder, &m->err) ==
           RKS_ERR_ARGUMENT);
    options = j->options;
    options.schema = NULL;
    EXPECT(rks_builder_open(m->group, j->directory, &options, &builder, &m->err) ==
           RKS_ERR_ARGUMENT);
    options = j->options;
    EXPECT_OK(rks_builder_open(m->group, j->directory, &options, &builder, &m->err));
    EXPECT(rks_builder_add(builder, sample.values, "k", 1, &m->err) == RKS_ERR_STATE);
    EXPECT(rks_builder_unit(builder, 1, "", NULL, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_builder_unit(builder, UINT64_MAX, "x", NULL, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_OK(rks_builder_unit(builder, 4, "x", &skip, &m->err));
    EXPECT(!skip);
    EXPECT(rks_builder_add(builder, sample.values, NULL, 0, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(rks_builder_add(builder, sample.values, "", 0, &m->err) != RKS_OK);
    EXPECT(rks_builder_add(builder, sample.values, big, sizeof(big), &m->err) != RKS_OK);
    sample.values[0].size = 7;
    EXPECT(rks_builder_add(builder, sample.values, "k", 1, &m->err) != RKS_OK);
    sample.values[0].size = 8;
    EXPECT_OK(rks_builder_add(builder, sample.values, "k", 1, &m->err));
    EXPECT_OK(rks_builder_unit(builder, 5, "y", &skip, &m->err));
    EXPECT(rks_builder_unit(builder, 4, "x", &skip, &m->err) == RKS_ERR_STATE);
    EXPECT_OK(rks_builder_commit(builder, RKS_OK, NULL, &m->err));
    EXPECT(rks_builder_unit(builder, 6, "z", NULL, &m->err) == RKS_ERR_STATE);
    EXPECT(rks_builder_add(builder, sample.values, "l", 1, &m->err) == RKS_ERR_STATE);
    rks_builder_close(builder);
    builder = NULL;
    EXPECT(rks_builder_open(m->group, j->directory, &options, &builder, &m->err) ==
           RKS_ERR_ARGUMENT);
    EXPECT_TEXT("use replace");
    rks_builder_close(NULL);
}

static void wrong_calls_are_refused_and_leave_the_builder_usable(void **state)
{
    (void)state;
    with_ranks(1, wrong_calls, 0);
}

/* ---- appends --------------------------------------------------------------------------------- */

static rks_status build_tokens(const member *m, const char *directory, const char *length,
                               bool append, rks_error *err)
{
    rks_builder *builder = NULL;
    rks_build_options options;
    uint16_t tokens[6] = {0};
    const rks_value value = {.data = tokens, .size = sizeof(tokens)};
    bool skip;
    char name[32];
    snprintf(name, sizeof(name), "%s %u", append ? "more" : "unit", m->rank);
    rks_build_options_default(&options);
    options.schema = "{\"tokens\": \"uint16[6]\"}";
    options.source = append ? "more" : "first";
    options.length = length;
    options.length_unit = length == NULL ? 1 : 2;
    options.append = append;
    rks_status status = rks_builder_open(m->group, directory, &options, &builder, err);
    if (status != RKS_OK)
        return status;
    status = rks_builder_unit(builder, m->rank, name, &skip, err);
    for (int i = 0; status == RKS_OK && i < 3; i++)
        status = rks_builder_add(builder, &value, NULL, 0, err);
    status = rks_builder_commit(builder, status, NULL, err);
    rks_builder_close(builder);
    return status;
}

/* Step 0: by default 6 each; 1: by a column that is named, 6 / 2. */
static void append_tokens(member *m)
{
    job *j = m->user;
    rks_store *store = NULL;
    if (!world_enter(m, false))
        return;
    EXPECT_OK(build_tokens(m, j->directory, j->step == 0 ? NULL : "tokens", false, &m->err));
    EXPECT_OK(build_tokens(m, j->directory, NULL, true, &m->err));
    EXPECT_OK(rks_store_open(m->group, j->directory, NULL, &store, &m->err));
    if (store == NULL)
        return;
    EXPECT(rks_store_count(store) == 2 * 3 * m->size);
    for (uint64_t i = 0; i < rks_store_count(store); i++)
        EXPECT(rks_store_lengths(store)[i] == (j->step == 0 ? 6 : 3));
    rks_store_close(store, CLOSE_MS);
}

static void an_append_counts_lengths_as_the_dataset_does(void **state)
{
    (void)state;
    for (int step = 0; step < 2; step++)
        with_ranks(2, append_tokens, step);
}

/* ---- parts that hold the same units ---------------------------------------------------------- */

static void move_parts(const char *from, const char *to)
{
    DIR *stream = opendir(from);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        char old[400], new[400];
        if (strncmp(entry->d_name, "part-", 5) != 0)
            continue;
        snprintf(old, sizeof(old), "%s/%s", from, entry->d_name);
        snprintf(new, sizeof(new), "%s/%s", to, entry->d_name);
        assert_int_equal(rename(old, new), 0);
    }
    closedir(stream);
}

/* Seals parts with units first .. end, and no dataset: what a build leaves whose commit failed. */
typedef struct range {
    const char *directory;
    uint64_t first, end;
} range;

static void build_range(member *m)
{
    const range *r = m->user;
    rks_builder *builder = NULL;
    rks_build_options options;
    if (!world_enter(m, false))
        return;
    world_build_options(&options);
    EXPECT_OK(rks_builder_open(m->group, r->directory, &options, &builder, &m->err));
    for (uint64_t unit = r->first; unit < r->end; unit++)
        EXPECT_OK(world_add_unit(builder, true, unit, &m->err));
    EXPECT_OK(rks_builder_commit(builder, RKS_OK, NULL, &m->err));
    rks_builder_close(builder);
}

static void finish_build(member *m)
{
    job *j = m->user;
    rks_build_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, false))
        return;
    rks_status status = world_build(m->group, j->directory, &j->options, &report, &m->err);
    if (j->step == 0) {
        EXPECT_OK(status);
        memcpy(j->dataset, report.dataset, sizeof(j->dataset));
        j->resumed = report.units_resumed;
    } else {
        EXPECT(status == RKS_ERR_STATE);
        EXPECT_TEXT("part-");
        EXPECT_TEXT("unit 2");
    }
}

static void parts_that_hold_the_same_units_count_once_or_are_named(void **state)
{
    (void)state;
    static const range cases[][3] = {
        {{NULL, 0, 3}, {NULL, 1, 2}, {NULL, 5, 6}},
        {{NULL, 1, 2}, {NULL, 0, 3}, {NULL, 0, 3}},
        {{NULL, 0, 3}, {NULL, 2, 4}, {NULL, 6, 7}}, /* each has a unit that only it holds */
    };
    char plain[64];
    world_directory(plain);
    rks_build_report whole = world_dataset(plain, 1, false);
    for (size_t i = 0; i < 3; i++) {
        char directory[64];
        job j = {.directory = directory, .step = i == 2};
        world_directory(directory);
        world_build_options(&j.options);
        for (size_t k = 0; k < 3; k++) {
            char side[64];
            range r = cases[i][k];
            world_directory(side);
            r.directory = side;
            on_threads(1, build_range, &r);
            move_parts(side, directory);
            world_remove(side);
        }
        on_threads(1, finish_build, &j);
        if (i < 2) {
            assert_string_equal(j.dataset, whole.dataset);
            assert_int_equal(world_files(directory, ".rks"), i == 0 ? 3 : 2);
        }
        world_remove(directory);
    }
    world_remove(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_dataset_does_not_depend_on_the_number_of_ranks),
        cmocka_unit_test(a_failed_build_goes_on_with_another_number_of_ranks),
        cmocka_unit_test(what_the_caller_left_out_is_counted_also_in_units_taken_over),
        cmocka_unit_test(keys_are_given_or_a_column_or_derived),
        cmocka_unit_test(what_is_there_twice_is_an_error_that_names_both),
        cmocka_unit_test(samples_with_nothing_to_learn_are_dropped),
        cmocka_unit_test(a_callback_that_fails_on_one_rank_fails_on_all),
        cmocka_unit_test(options_that_differ_are_named_with_two_ranks),
        cmocka_unit_test(wrong_calls_are_refused_and_leave_the_builder_usable),
        cmocka_unit_test(an_append_counts_lengths_as_the_dataset_does),
        cmocka_unit_test(parts_that_hold_the_same_units_count_once_or_are_named),
    };
    return cmocka_run_group_tests_name("builder", tests, NULL, NULL);
}
