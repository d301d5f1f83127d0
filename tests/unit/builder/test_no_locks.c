/* SPDX-License-Identifier: Apache-2.0
 *
 * test_no_locks.c: builds, merges, prunes and exports where the file system has no locks, where
 * they hold within a node alone, and where locking fails. Ranks are threads. */
#include "unit/store/world.h"

#include "support/failing_flock.h"

static char place[FOLDER_PATH], target[FOLDER_PATH + 16], other[FOLDER_PATH + 16];

static int make_place(void **state)
{
    (void)state;
    atomic_store(&flock_fails_with, FLOCK_WORKS);
    world_directory(place);
    snprintf(target, sizeof(target), "%s/store", place);
    snprintf(other, sizeof(other), "%s/other", place);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    atomic_store(&flock_fails_with, FLOCK_WORKS);
    world_remove(place);
    return 0;
}

typedef struct job {
    rks_status expected;
    const char *text; /* of the error */
    bool own_nodes, no_lock;
} job;

static void build_rank(member *m)
{
    const job *j = m->user;
    rks_build_options options;
    rks_store *store = NULL;
    rks_batch *batch = NULL;
    uint64_t ids[SAMPLES];
    if (!world_enter(m, j->own_nodes))
        return;
    world_build_options(&options);
    options.no_lock = j->no_lock;
    rks_status status = world_build(m->group, target, &options, NULL, &m->err);
    EXPECT(status == j->expected);
    if (j->expected != RKS_OK)
        EXPECT_TEXT(j->text);
    if (status != RKS_OK)
        return;
    EXPECT_OK(rks_store_open(m->group, target, NULL, &store, &m->err));
    if (store == NULL)
        return;
    for (uint64_t i = 0; i < SAMPLES; i++)
        ids[i] = i;
    EXPECT_OK(rks_store_fetch(store, ids, SAMPLES, &batch, &m->err));
    for (size_t i = 0; batch != NULL && i < SAMPLES; i++)
        EXPECT(world_is(batch, i, i));
    rks_batch_free(batch);
    rks_store_close(store, CLOSE_MS);
}

static void build(uint32_t ranks, int fails_with, job j)
{
    atomic_store(&flock_fails_with, fails_with);
    on_threads(ranks, build_rank, &j);
    atomic_store(&flock_fails_with, FLOCK_WORKS);
    if (fails_with != EIO)
        assert_int_equal(world_files(target, ".lock"), 0);
}

static void one_rank_alone_builds_without_locks(void **state)
{
    (void)state;
    build(1, ENOLCK, (job){0});
}

static void several_ranks_are_told_what_to_do_and_build_if_they_are_asked_to(void **state)
{
    (void)state;
    for (int own_nodes = 0; own_nodes < 2; own_nodes++) {
        build(3, ENOLCK,
              (job){.expected = RKS_ERR_UNSUPPORTED,
                    .text = "build.lock: this file system has no locks",
                    .own_nodes = own_nodes == 1});
        assert_int_equal(world_files(target, ".rks"), 0);
        build(3, ENOLCK, (job){.own_nodes = own_nodes == 1, .no_lock = true});
        world_remove(target);
    }
}

static void one_rank_commits_where_locks_hold_within_a_node_alone(void **state)
{
    (void)state;
    build(3, FLOCK_ALWAYS_GOOD, (job){.own_nodes = true});
}

static void an_error_of_the_disk_is_no_other_build(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 2; ranks++)
        build(ranks, EIO,
              (job){.expected = RKS_ERR_IO, .text = "build.lock: locking: ", .no_lock = true});
}

typedef struct keeping {
    rks_status expected;
    bool no_lock;
} keeping;

/* Merges two datasets, prunes and exports the result. */
static void keep_rank(member *m)
{
    const keeping *k = m->user;
    const char *const sources[] = {target, other};
    char merged[FOLDER_PATH + 16], lines[FOLDER_PATH + 24];
    rks_merge_options merge = {.struct_size = sizeof(merge), .no_lock = k->no_lock};
    rks_prune_options prune = {.struct_size = sizeof(prune), .no_lock = k->no_lock};
    rks_store *store = NULL;
    if (!world_enter(m, false))
        return;
    snprintf(merged, sizeof(merged), "%s/merged", place);
    snprintf(lines, sizeof(lines), "%s/lines.jsonl", place);
    EXPECT(rks_prune(m->group, target, &prune, NULL, &m->err) == k->expected);
    EXPECT(rks_merge(m->group, sources, 2, merged, &merge, NULL, &m->err) == k->expected);
    if (k->expected != RKS_OK) {
        EXPECT_TEXT("this file system has no locks");
        return;
    }
    EXPECT_OK(rks_store_open(m->group, merged, NULL, &store, &m->err));
    if (store == NULL)
        return;
    EXPECT_OK(rks_store_export(store, lines, NULL, NULL, &m->err));
    EXPECT(access(lines, F_OK) == 0);
    rks_store_close(store, CLOSE_MS);
}

/* A sample whose key no other has. */
static rks_status make_other(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    world_sample sample;
    (void)user, (void)unit;
    world_make(SAMPLES, &sample);
    return rows_add(sink, sample.values, sample.key, strlen(sample.key), err);
}

static void build_other_rank(member *m)
{
    const made_rows rows = {.make = make_other, .units = 1};
    rks_build_options options;
    if (!world_enter(m, false))
        return;
    world_build_options(&options);
    EXPECT_OK(rows_build(m->group, other, &options, &rows, NULL, &m->err));
}

static void merge_prune_and_export_do_as_a_build_does(void **state)
{
    (void)state;
    world_dataset(target, 1, false);
    on_threads(1, build_other_rank, NULL);
    atomic_store(&flock_fails_with, ENOLCK);
    keeping refused = {.expected = RKS_ERR_UNSUPPORTED}, asked = {.no_lock = true};
    on_threads(2, keep_rank, &refused);
    on_threads(2, keep_rank, &asked);
    assert_int_equal(world_files(place, ".rks-lock"), 0);
}

int main(void)
{
#define WITH_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)
    const struct CMUnitTest tests[] = {
        WITH_PLACE(one_rank_alone_builds_without_locks),
        WITH_PLACE(several_ranks_are_told_what_to_do_and_build_if_they_are_asked_to),
        WITH_PLACE(one_rank_commits_where_locks_hold_within_a_node_alone),
        WITH_PLACE(an_error_of_the_disk_is_no_other_build),
        WITH_PLACE(merge_prune_and_export_do_as_a_build_does),
    };
    return cmocka_run_group_tests_name("no_locks", tests, NULL, NULL);
}
