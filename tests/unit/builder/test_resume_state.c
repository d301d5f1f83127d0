/* SPDX-License-Identifier: Apache-2.0
 *
 * test_resume_state.c: the unit size of a build: by the input, or as the directory has it. Ranks
 * are threads. */
#include "jobs.h"

#include "base/buffer.h"
#include "base/error.h"
#include "builder/resume_state.h"
#include "ingest/unit.h"

enum { ROWS = 4000 }; /* about 330 KB */

static char place[64], source[96], target[96];
static bool refuses; /* the callback, the last row */

static int make_file(void **state)
{
    (void)state;
    world_directory(place);
    snprintf(source, sizeof(source), "%s/in.jsonl", place);
    file_write(source, 0, ROWS, NULL);
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    world_remove(place);
    return 0;
}

static void build_rank(member *m)
{
    const char *sources[] = {source};
    build_files(m, sources, 1, target);
}

static int refuse_last(void *user, const rks_sample *sample, rks_error *err)
{
    int64_t id;
    (void)user;
    memcpy(&id, sample->values[0].data, sizeof(id));
    return refuses && id == ROWS - 1 ? rks_fail(err, RKS_ERR_DATA, 0, "not this one") : 1;
}

/* A build that fails in its last unit, then the same without a unit size. */
static job interrupted(uint64_t unit_size, uint32_t ranks, uint32_t then)
{
    job j = {.expected = RKS_ERR_DATA};
    refuses = true;
    file_options(&j.options);
    j.options.unit_size = unit_size;
    j.options.filter = refuse_last;
    on_threads(ranks, build_rank, &j);
    refuses = false;
    j.expected = RKS_OK;
    j.options.unit_size = 0;
    on_threads(then, build_rank, &j);
    return j;
}

static void the_size_follows_from_the_input(void **state)
{
    (void)state;
    const uint64_t mib = 1 << 20;
    const struct {
        uint64_t bytes, size;
    } each[] = {{0, 1},
                {1, 1},
                {64 * mib, 1},
                {64 * mib + 64, 2},
                {100 * mib, 2},
                {1000 * mib, 16},
                {64 * 64 * mib - 64, 64},
                {64 * 64 * mib, 64},
                {UINT64_MAX, 64}};
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        assert_int_equal(rks_unit_size_for(each[i].bytes), each[i].size * mib);
}

static void an_append_keeps_the_dataset_s_unless_units_would_be_too_many(void **state)
{
    (void)state;
    const uint64_t mib = 1 << 20;
    assert_int_equal(rks_resume_append_size(0, 10), 64 * mib);
    assert_int_equal(rks_resume_append_size(4096, 10), 4096);
    assert_int_equal(rks_resume_append_size(mib, 4096 * mib), mib);
    assert_int_equal(rks_resume_append_size(mib, 8192 * mib), 64 * mib);
    assert_int_equal(rks_resume_append_size(128 * mib, UINT64_MAX), 128 * mib);
}

static void parts_and_datasets_keep_their_own(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        uint64_t kept = 1;
        rks_error err;
        assert_ok(rks_unit_size_kept(target, &kept, &err), &err);
        assert_int_equal(kept, 0);
        job j = interrupted(16 << 10, ranks, 4 - ranks);
        assert_int_equal(j.report.unit_size, 16 << 10);
        assert_true(j.report.units > 16);
        if (ranks > 1)
            assert_true(j.report.units_resumed > 0);
        assert_ok(rks_unit_size_kept(target, &kept, &err), &err);
        assert_int_equal(kept, 16 << 10);
        char dataset[33];
        memcpy(dataset, j.report.dataset, sizeof(dataset));
        j.options.replace = true;
        on_threads(2, build_rank, &j);
        assert_string_equal(j.report.dataset, dataset);
        j.options.unit_size = 20 << 10; /* what the user says comes first */
        on_threads(2, build_rank, &j);
        assert_int_equal(j.report.unit_size, 20 << 10);
        assert_string_not_equal(j.report.dataset, dataset);
        world_remove(target);
    }
}

/* Ranks see directories of their own; only some hold parts. */
static void a_part_that_one_rank_alone_sees_decides_for_all(void **state)
{
    (void)state;
    char own[96], away[96], first[112];
    snprintf(own, sizeof(own), "%s", target);
    snprintf(target, sizeof(target), "%s/own-{rank}", place);
    job j = {.expected = RKS_ERR_DATA};
    refuses = true;
    file_options(&j.options);
    j.options.unit_size = 16 << 10;
    j.options.filter = refuse_last;
    on_threads(3, build_rank, &j);
    snprintf(first, sizeof(first), "%s/own-0", place);
    snprintf(away, sizeof(away), "%s/away", place);
    assert_int_equal(rename(first, away), 0);
    refuses = false;
    j.expected = RKS_OK;
    j.options.unit_size = 0;
    on_threads(3, build_rank, &j);
    assert_int_equal(j.report.unit_size, 16 << 10);
    assert_true(j.report.units_resumed > 0 && j.report.units_resumed < j.report.units);
    memcpy(target, own, sizeof(target));
}

static void other_builds_parts_decide_nothing(void **state)
{
    (void)state;
    job j = {.expected = RKS_ERR_DATA};
    refuses = true;
    file_options(&j.options);
    j.options.unit_size = 16 << 10;
    j.options.filter = refuse_last;
    on_threads(2, build_rank, &j);
    refuses = false;
    j.expected = RKS_OK;
    j.options.unit_size = 0;
    j.options.where = "id >= 0"; /* another build */
    on_threads(2, build_rank, &j);
    assert_int_equal(j.report.unit_size, 1 << 20);
    assert_int_equal(j.report.units, 1);
    assert_int_equal(j.report.units_resumed, 0);
    world_remove(target);
}

/* The recorded length is a column of the schema, which the one that is kept takes the place of. */
static void the_length_behind_a_key_outlives_the_schema(void **state)
{
    (void)state;
    char keyed[112], whole[96];
    snprintf(keyed, sizeof(keyed), "%s/keyed.jsonl", place);
    FILE *file = fopen(keyed, "w");
    assert_non_null(file);
    for (int i = 0; i < ROWS; i++)
        fprintf(file, "{\"id\": %d, \"__key__\": \"row %d\", \"text\": \"%.*s\"}\n", i, i, i % 26,
                "abcdefghijklmnopqrstuvwxyz");
    assert_int_equal(fclose(file), 0);
    memcpy(whole, source, sizeof(whole));
    snprintf(source, sizeof(source), "%.95s", keyed);
    job j = {.expected = RKS_ERR_DATA};
    refuses = true;
    file_options(&j.options);
    j.options.length = NULL;
    j.options.unit_size = 16 << 10;
    j.options.filter = refuse_last;
    on_threads(2, build_rank, &j);
    refuses = false;
    j.expected = RKS_OK;
    on_threads(2, build_rank, &j);
    assert_true(j.report.units_resumed > 0);
    world_remove(target);
    memcpy(source, whole, sizeof(source));
}

static void build_keeping_on_one(member *m)
{
    job j = *(job *)m->user;
    const char *sources[] = {source};
    if (!world_enter(m, false))
        return;
    j.options.keep = m->rank == 0;
    EXPECT(rks_build(m->group, sources, 1, target, &j.options, NULL, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(strstr(m->err.text, "keep differs: rank 0 has yes, rank 1 has no") != NULL);
}

static void all_ranks_keep_or_none(void **state)
{
    (void)state;
    job j = {0};
    file_options(&j.options);
    on_threads(2, build_rank, &j);
    on_threads(2, build_keeping_on_one, &j);
    world_remove(target);
}

static void a_list_from_another_rank_is_not_trusted(void **state)
{
    (void)state;
    rks_error err;
    rks_buffer list = {0};
    rks_schema *schema = NULL;
    rks_input *input = NULL;
    const char *sources[] = {source};
    rks_ingest_options options = {.unit_size = 4096};
    job j = {0};
    file_options(&j.options);
    on_threads(1, build_rank, &j);
    assert_ok(rks_resume_collect(target, false, &list, &err), &err);
    assert_true(list.size > 28);
    assert_ok(rks_input_open(sources, 1, &options, &input, &err), &err);
    const rks_resume_request wish = {.input = input, .options_text = "{}"};
    for (size_t size = 0; size < list.size; size++) {
        rks_buffer cut = {.data = list.data, .size = size};
        assert_ok(rks_resume_find(&wish, &cut, &schema, &err), &err);
        assert_null(schema);
    }
    for (size_t at = 16; at < list.size; at++) {
        uint8_t byte = list.data[at];
        list.data[at] = (uint8_t)~byte;
        assert_ok(rks_resume_find(&wish, &list, &schema, &err), &err);
        assert_null(schema);
        list.data[at] = byte;
    }
    rks_input_free(input);
    rks_buffer_free(&list);
    world_remove(target);
}

static int set_target(void **state)
{
    (void)state;
    snprintf(target, sizeof(target), "%s/store", place);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_size_follows_from_the_input),
        cmocka_unit_test(an_append_keeps_the_dataset_s_unless_units_would_be_too_many),
        cmocka_unit_test_setup(parts_and_datasets_keep_their_own, set_target),
        cmocka_unit_test_setup(a_part_that_one_rank_alone_sees_decides_for_all, set_target),
        cmocka_unit_test_setup(other_builds_parts_decide_nothing, set_target),
        cmocka_unit_test_setup(the_length_behind_a_key_outlives_the_schema, set_target),
        cmocka_unit_test_setup(all_ranks_keep_or_none, set_target),
        cmocka_unit_test_setup(a_list_from_another_rank_is_not_trusted, set_target),
    };
    return cmocka_run_group_tests_name("resume_state", tests, make_file, remove_file);
}
