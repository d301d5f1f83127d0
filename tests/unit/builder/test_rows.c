/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rows.c: builds of rows that a program makes: units, streams, keys, lengths, callbacks,
 * resume, and ranks that disagree. */
#include "unit/store/world.h"

#include <errno.h>
#include <stdatomic.h>

#include "builder/build.h"
#include "dataset/dataset.h"
#include "shard/shard_writer.h"

typedef struct job {
    const char *directory;
    rks_build_options options;
    int step;
    char dataset[33];
    uint64_t resumed;
    atomic_uint failing; /* ranks that are about to fail */
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

/* Both ranks fail at once, so that neither stops because the other failed: rank 0 in unit 4, its
 * third one, and rank 1 in unit 1, its first one. */
static rks_status make_some(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    bool own_keys = true;
    const member *m = user;
    job *j = m->user;
    rks_status status = world_make_unit(&own_keys, unit, sink, err);
    if (status != RKS_OK || (unit != 1 && unit != 4))
        return status;
    atomic_fetch_add(&j->failing, 1);
    for (int ms = 0; atomic_load(&j->failing) < 2 && ms < 20000; ms++)
        usleep(1000);
    return rks_fail(err, RKS_ERR_IO, 28, "the disk of rank %u", m->rank);
}

static void leave_half_done(member *m)
{
    job *j = m->user;
    const made_rows rows = {.make = make_some, .user = m, .units = UNITS, .name = "part"};
    if (!world_enter(m, false))
        return;
    rks_status status = rows_build(m->group, j->directory, &j->options, &rows, NULL, &m->err);
    EXPECT(status == RKS_ERR_IO && m->err.rank == 0 && m->err.cause == 28);
    EXPECT_TEXT("the disk of rank 0");
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
                         2); /* 0 and 2; the ranks were in 4 and 1 when they failed */
        assert_int_equal(report.samples, SAMPLES);
        world_remove(directory);
    }
    world_remove(plain);
}

/* Each unit leaves out as many as its number says, and twice as many as bad. Step 0: it ends early.
 */
static rks_status make_with_gaps(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    const job *j = user;
    bool own_keys = true;
    if (j->step == 0 && unit >= 4)
        return rks_fail(err, RKS_ERR_IO, 28, "the disk");
    rks_status status = world_make_unit(&own_keys, unit, sink, err);
    if (status == RKS_OK)
        status = sink->left_out(sink, unit, unit, NULL, err);
    return status == RKS_OK ? sink->left_out(sink, 0, unit, unit > 0 ? "a bad row" : NULL, err)
                            : status;
}

static void leave_out(member *m)
{
    job *j = m->user;
    const made_rows rows = {.make = make_with_gaps, .user = j, .units = UNITS, .name = "part"};
    rks_build_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, false))
        return;
    rks_status status = rows_build(m->group, j->directory, &j->options, &rows, &report, &m->err);
    EXPECT(status == (j->step == 0 ? RKS_ERR_IO : RKS_OK));
    if (j->step == 1) {
        EXPECT(report.units_resumed > 0 && report.samples == SAMPLES);
        EXPECT(report.filtered == UNITS * (UNITS - 1) / 2 && report.bad == UNITS * (UNITS - 1));
        EXPECT(strstr(report.bad_first, "a bad row") != NULL);
    }
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

/* Steps: 0 short keys, 1 long keys, 2 equal names of units. */
static rks_status make_twice(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    const job *j = user;
    char key[RKS_KEY_MAX];
    memset(key, 'x', sizeof(key));
    world_sample sample;
    world_make(unit, &sample);
    if (j->step == 2)
        return rows_add(sink, sample.values, NULL, 0, err);
    return unit == 0 ? RKS_OK /* rank 0 has nothing to do with it */
                     : rows_add(sink, sample.values, key, j->step == 1 ? sizeof(key) : 5, err);
}

static void twice(member *m)
{
    job *j = m->user;
    const made_rows rows = {
        .make = make_twice, .user = j, .units = 3, .name = "u7", .one_name = j->step == 2};
    if (!world_enter(m, false))
        return;
    rks_build_options options = j->options;
    options.own_keys = j->step != 2;
    EXPECT(rows_build(m->group, j->directory, &options, &rows, NULL, &m->err) == RKS_ERR_DATA);
    if (j->step < 2) {
        EXPECT_TEXT("rank 1");
        EXPECT_TEXT("rank 2");
    } else {
        EXPECT_TEXT("u7");
    }
    EXPECT(world_files(j->directory, "dataset.json") == 0);
}

static void what_is_there_twice_is_an_error_that_names_both(void **state)
{
    (void)state;
    for (int step = 0; step < 3; step++)
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

static rks_status make_masks(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    rks_status status = RKS_OK;
    (void)user, (void)unit;
    for (int i = 0; status == RKS_OK && i < 10; i++) {
        const int32_t ids[4] = {i, i, i, i};
        const uint8_t mask[4] = {0, 0, i % 3 == 0, 0};
        const rks_value values[2] = {{.data = ids, .size = 16}, {.data = mask, .size = 4}};
        status = rows_add(sink, values, NULL, 0, err);
    }
    return status;
}

static void train_on_masks(member *m)
{
    job *j = m->user;
    const made_rows rows = {.make = make_masks, .units = 2, .name = "a"};
    if (!world_enter(m, false))
        return;
    rks_build_options options;
    rks_build_report report = {.struct_size = sizeof(report)};
    rks_build_options_default(&options);
    options.schema = "input_ids:int32[*],loss_mask:bool[*]";
    options.filter = drop_all_zero_masks;
    EXPECT_OK(rows_build(m->group, j->directory, &options, &rows, &report, &m->err));
    EXPECT(report.samples == 8 && report.filtered == 12);
    /* Keys go by the row that was added, not by what was kept. */
    expect_key(m, j->directory, 1, "a 0:3");
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

/* ---- streams and lengths --------------------------------------------------------------------- */

/* Rank r has r + 2 units of its own; as one list they would be in the order of turns. */
static void own_streams(member *m)
{
    job *j = m->user;
    bool own_keys = true;
    const made_rows rows = {.make = world_make_unit,
                            .user = &own_keys,
                            .units = m->rank + 2,
                            .first = m->rank * 10,
                            .name = "part",
                            .stream = RKS_STREAM_OWN};
    rks_build_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, false))
        return;
    EXPECT_OK(rows_build(m->group, j->directory, &j->options, &rows, &report, &m->err));
    EXPECT(report.units == 5 && report.samples == 5 * UNIT_ROWS);
    expect_key(m, j->directory, 0, "key 00000");
    expect_key(m, j->directory, UNIT_ROWS, "key 00400");
    expect_key(m, j->directory, 2 * UNIT_ROWS, "key 00040");
    expect_key(m, j->directory, 4 * UNIT_ROWS, "key 00480");
}

/* All ranks have the same units: the dataset is that of a list. */
static void same_streams(member *m)
{
    job *j = m->user;
    bool own_keys = true;
    const made_rows rows = {.make = world_make_unit,
                            .user = &own_keys,
                            .units = UNITS,
                            .name = "part",
                            .stream = RKS_STREAM_SAME};
    rks_build_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, false))
        return;
    EXPECT_OK(rows_build(m->group, j->directory, &j->options, &rows, &report, &m->err));
    EXPECT(report.units == UNITS && report.samples == SAMPLES);
    if (m->rank == 0)
        memcpy(j->dataset, report.dataset, sizeof(j->dataset));
}

static void a_stream_is_read_to_its_end(void **state)
{
    (void)state;
    char plain[64], directory[64];
    job j = {.directory = directory};
    with_ranks(2, own_streams, 0);
    world_directory(plain);
    world_directory(directory);
    world_build_options(&j.options);
    on_threads(3, same_streams, &j);
    assert_string_equal(j.dataset, world_dataset(plain, 1, false).dataset);
    world_remove(plain);
    world_remove(directory);
}

/* Rank r has 3 units. Step 0: fails in the last one; 1: the same again; 2: another text in the
 * first; 3: only one unit. */
static rks_status make_changing(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    const job *j = user;
    rks_status status = RKS_OK;
    for (uint64_t row = 0; status == RKS_OK && row < UNIT_ROWS; row++) {
        world_sample sample;
        world_make(unit * UNIT_ROWS + row, &sample);
        if (j->step == 2 && unit % 10 == 0 && row == 7)
            sample.text[0] = '!';
        status = rows_add(sink, sample.values, sample.key, strlen(sample.key), err);
    }
    if (status == RKS_OK && j->step == 0 && unit % 10 == 2)
        status = rks_fail(err, RKS_ERR_IO, 5, "the generator");
    return status;
}

static void changing_stream(member *m)
{
    job *j = m->user;
    const made_rows rows = {.make = make_changing,
                            .user = j,
                            .units = j->step == 3 ? 1 : 3,
                            .first = m->rank * 10,
                            .name = "part",
                            .stream = RKS_STREAM_OWN};
    rks_build_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, false))
        return;
    rks_status status = rows_build(m->group, j->directory, &j->options, &rows, &report, &m->err);
    if (j->step == 0) {
        EXPECT(status == RKS_ERR_IO);
    } else if (j->step == 1) {
        EXPECT_OK(status);
        EXPECT(report.units_resumed > 0 && report.samples == m->size * 3 * UNIT_ROWS);
    } else {
        EXPECT(status == RKS_ERR_DATA && m->err.cause == ESTALE);
        EXPECT_TEXT(j->step == 2 ? "has other samples than an interrupted build"
                                 : "it ends before");
    }
}

static void a_resumed_stream_is_compared_with_what_is_there(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 2; ranks++)
        for (int step = 1; step <= 3; step++) {
            char directory[64];
            job j = {.directory = directory};
            world_directory(directory);
            world_build_options(&j.options);
            on_threads(ranks, changing_stream, &j);
            assert_true(world_files(directory, ".rks") > 0);
            j.step = step;
            on_threads(ranks, changing_stream, &j);
            if (step > 1)
                assert_int_equal(world_files(directory, ".rks"), 0);
            world_remove(directory);
        }
}

/* Step 0: ranks 1 and 2 say that their rows are the same; 1: nobody says anything. */
static void equal_streams(member *m)
{
    job *j = m->user;
    bool own_keys = true;
    const made_rows rows = {.make = world_make_unit,
                            .user = &own_keys,
                            .units = 1,
                            .first = m->rank,
                            .name = "part",
                            .stream = RKS_STREAM_OWN,
                            .identity = j->step == 1   ? NULL
                                        : m->rank == 0 ? "one"
                                                       : "two"};
    if (!world_enter(m, false))
        return;
    rks_status status = rows_build(m->group, j->directory, &j->options, &rows, NULL, &m->err);
    if (j->step == 1) {
        EXPECT_OK(status);
        return;
    }
    EXPECT(status == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("the streams of rank 1 and rank 2 are equal (two)");
    EXPECT_OK(rks_group_agree(m->group, "all are back", RKS_OK, &m->err));
    EXPECT(world_files(j->directory, ".rks") == 0 && world_files(j->directory, ".json") == 0);
}

static void streams_that_say_that_they_are_equal_are_refused(void **state)
{
    (void)state;
    with_ranks(3, equal_streams, 0);
    with_ranks(3, equal_streams, 1);
}

static rks_status make_long(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    world_sample sample;
    rks_status status = RKS_OK;
    (void)user;
    for (uint64_t row = 0; status == RKS_OK && row < 10; row++) {
        world_make(unit * 10 + row, &sample);
        const rks_input_row one = {.struct_size = sizeof(one),
                                   .values = sample.values,
                                   .key = sample.key,
                                   .key_size = strlen(sample.key),
                                   .length = 1000 + unit * 10 + row};
        status = sink->row(sink, &one, err);
    }
    return status;
}

static void own_lengths(member *m)
{
    job *j = m->user;
    const made_rows rows = {.make = make_long, .units = 4};
    rks_store *store = NULL;
    rks_build_options options = j->options;
    if (!world_enter(m, false))
        return;
    options.own_lengths = true;
    options.length = NULL;
    options.max_length = 1037;
    EXPECT_OK(rows_build(m->group, j->directory, &options, &rows, NULL, &m->err));
    EXPECT_OK(rks_store_open(m->group, j->directory, NULL, &store, &m->err));
    if (store == NULL)
        return;
    EXPECT(rks_store_count(store) == 38);
    for (uint64_t i = 0; i < rks_store_count(store); i++)
        EXPECT(rks_store_lengths(store)[i] == 1000 + i);
    rks_store_close(store, CLOSE_MS);
}

static void rows_may_bring_their_lengths(void **state)
{
    (void)state;
    with_ranks(2, own_lengths, 0);
}

/* ---- wrong calls ----------------------------------------------------------------------------- */

static void different_options(member *m)
{
    static const char *const names[] = {"schema", "length_unit", "own_keys", "where", "index"};
    job *j = m->user;
    const made_rows none = {0};
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
    EXPECT(rows_build(m->group, j->directory, &options, &none, NULL, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT(names[j->step]);
    EXPECT_TEXT("rank 1");
}

static void options_that_differ_are_named_with_two_ranks(void **state)
{
    (void)state;
    for (int step = 0; step < 5; step++)
        with_ranks(3, different_options, step);
}

/* Rows that are refused leave the sink usable. */
static rks_status make_wrong_rows(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    member *m = user;
    char big[RKS_KEY_MAX + 1] = {0};
    world_sample sample;
    (void)unit;
    world_make(1, &sample);
    EXPECT(rows_add(sink, sample.values, NULL, 0, err) == RKS_ERR_ARGUMENT);
    EXPECT(rows_add(sink, sample.values, "", 0, err) == RKS_ERR_DATA);
    EXPECT(rows_add(sink, sample.values, big, sizeof(big), err) == RKS_ERR_DATA);
    sample.values[0].size = 7;
    EXPECT(rows_add(sink, sample.values, "k", 1, err) == RKS_ERR_DATA);
    sample.values[0].size = 8;
    EXPECT(sink->left_out(sink, 0, UINT64_MAX, NULL, err) == RKS_ERR_ARGUMENT);
    return rows_add(sink, sample.values, "k", 1, err);
}

static void expect_refused(member *m, const rks_build_options *options, const made_rows *rows,
                           const char *word)
{
    job *j = m->user;
    EXPECT(rows_build(m->group, j->directory, options, rows, NULL, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT(word);
}

static void wrong_calls(member *m)
{
    job *j = m->user;
    made_rows rows = {.make = make_wrong_rows, .user = m, .units = 1};
    rks_build_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, false))
        return;
    rks_build_options options = j->options;
    options.key = "id";
    expect_refused(m, &options, &rows, "own_keys");
    options = j->options;
    options.schema = NULL;
    expect_refused(m, &options, &rows, "schema");
    options = j->options;
    options.own_lengths = true;
    options.length = "text";
    expect_refused(m, &options, &rows, "own_lengths");
    rows.name = "";
    rows.one_name = true;
    expect_refused(m, &j->options, &rows, "the name is empty");
    rows.name = NULL;
    EXPECT_OK(rows_build(m->group, j->directory, &j->options, &rows, &report, &m->err));
    EXPECT(report.samples == 1 && report.filtered == 0 && report.bad == 0);
    expect_refused(m, &j->options, &rows, "use replace");
}

static void wrong_calls_and_rows_are_refused(void **state)
{
    (void)state;
    with_ranks(1, wrong_calls, 0);
}

/* ---- appends --------------------------------------------------------------------------------- */

static rks_status make_tokens(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    uint16_t tokens[6] = {0};
    const rks_value value = {.data = tokens, .size = sizeof(tokens)};
    rks_status status = RKS_OK;
    (void)user, (void)unit;
    for (int i = 0; status == RKS_OK && i < 3; i++)
        status = rows_add(sink, &value, NULL, 0, err);
    return status;
}

static rks_status build_tokens(const member *m, const char *directory, const char *length,
                               bool append, rks_error *err)
{
    const made_rows rows = {
        .make = make_tokens, .units = m->size, .name = append ? "more" : "unit"};
    rks_build_options options;
    rks_build_options_default(&options);
    options.schema = "{\"tokens\": \"uint16[6]\"}";
    options.source = append ? "more" : "first";
    options.length = length;
    options.length_unit = length == NULL ? 1 : 2;
    options.append = append;
    return rows_build(m->group, directory, &options, &rows, NULL, err);
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

/* Seals a part with units first .. end, and no dataset: what a build leaves whose commit failed. */
typedef struct range {
    const char *directory;
    uint64_t first, end;
} range;

static rks_status add_row(rks_sink *sink, const rks_input_row *row, rks_error *err)
{
    static uint32_t rows; /* of the units, which are all as long */
    size_t text = row->values[1].size;
    return rks_shard_writer_add(sink->user, row->values, row->key, row->key_size, (uint32_t)text,
                                rows++ % UNIT_ROWS, err);
}

static void seal_range(const range *r, const rks_shard_options *options)
{
    char build[RKS_DIGEST_TEXT], name[64], unit_name[32];
    bool own_keys = true;
    rks_shard_writer *writer = NULL;
    rks_error err;
    rks_digest_format(options->build_id, build);
    snprintf(name, sizeof(name), "part-%.16s-%016llx", build, (unsigned long long)r->first);
    assert_ok(rks_shard_writer_open(r->directory, name, options, &writer, &err), &err);
    for (uint64_t unit = r->first; unit < r->end; unit++) {
        rks_sink sink = {.struct_size = sizeof(sink), .row = add_row, .user = writer};
        snprintf(unit_name, sizeof(unit_name), "part %llu", (unsigned long long)unit);
        assert_ok(rks_shard_writer_begin(writer, unit, unit_name, 0, &err), &err);
        assert_ok(world_make_unit(&own_keys, unit, &sink, &err), &err);
        assert_ok(rks_shard_writer_end(writer, UNIT_ROWS, 0, 0, &err), &err);
    }
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
}

static void build_range(const range *r)
{
    const rks_digest none = {0};
    rks_shard_options shard = {.block_size = 64 << 10, .index = WORLD_INDEX, .index_count = 1};
    rks_build_options options;
    rks_schema *schema = NULL;
    char *text = NULL;
    rks_error err;
    world_build_options(&options);
    assert_ok(rks_schema_parse(options.schema, &schema, &err), &err);
    assert_ok(rks_build_options_text(&options, &text, &err), &err);
    assert_ok(rks_build_id("memory", none, schema, text, &shard.build_id, &err), &err);
    shard.schema = schema;
    shard.max_sample = options.max_sample;
    seal_range(r, &shard);
    rks_free(text);
    rks_schema_free(schema);
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
            build_range(&r);
            world_move_parts(side, directory);
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
        cmocka_unit_test(a_stream_is_read_to_its_end),
        cmocka_unit_test(a_resumed_stream_is_compared_with_what_is_there),
        cmocka_unit_test(streams_that_say_that_they_are_equal_are_refused),
        cmocka_unit_test(rows_may_bring_their_lengths),
        cmocka_unit_test(wrong_calls_and_rows_are_refused),
        cmocka_unit_test(an_append_counts_lengths_as_the_dataset_does),
        cmocka_unit_test(parts_that_hold_the_same_units_count_once_or_are_named),
    };
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
