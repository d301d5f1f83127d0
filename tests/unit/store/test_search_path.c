/* SPDX-License-Identifier: Apache-2.0
 *
 * test_search_path.c: one dataset whose shards lie in several folders: a name with a `*`, the
 * option `shards`, the variable RKS_PATH. */
#include "world.h"

#include "store/store.h"

enum { RANKS = 3 };

typedef struct spread {
    char directory[FOLDER_PATH];
    char pattern[FOLDER_PATH + 16]; /* of the build: a directory a rank */
    char name[FOLDER_PATH + 16];    /* to open */
    const char *shards[2];
    size_t shard_count;
    bool own_nodes;
    const char *fails;   /* part of the error; NULL: it opens */
    uint64_t local_only; /* 1: no byte may come from another rank */
} spread;

static void build_spread(member *m)
{
    const spread *s = m->user;
    rks_build_options options;
    world_build_options(&options);
    if (world_enter(m, true))
        EXPECT_OK(world_build(m->group, s->pattern, &options, NULL, &m->err));
}

static void read_all(member *m, rks_store *store)
{
    uint64_t ids[SAMPLES];
    rks_batch *batch = NULL;
    for (uint64_t i = 0; i < SAMPLES; i++)
        ids[i] = i;
    EXPECT_OK(rks_store_fetch(store, ids, SAMPLES, &batch, &m->err));
    for (uint64_t i = 0; batch != NULL && i < SAMPLES; i++)
        EXPECT(world_is(batch, i, i));
    rks_batch_free(batch);
}

static void open_spread(member *m)
{
    const spread *s = m->user;
    rks_store *store = NULL;
    rks_store_options options;
    rks_store_options_default(&options);
    options.shards = s->shards;
    options.shard_count = s->shard_count;
    if (!world_enter(m, s->own_nodes))
        return;
    rks_status status = rks_store_open(m->group, s->name, &options, &store, &m->err);
    if (s->fails != NULL) {
        EXPECT(status != RKS_OK);
        EXPECT_TEXT(s->fails);
        return;
    }
    EXPECT_OK(status);
    if (store != NULL) {
        rks_store_stats stats = {.struct_size = sizeof(stats)};
        read_all(m, store);
        rks_store_stats_get(store, &stats);
        EXPECT(stats.missing_shards == 0);
        EXPECT(s->local_only == 0 || stats.remote_bytes == 0);
    }
    rks_store_close(store, CLOSE_MS);
}

static void make_spread(spread *s)
{
    world_directory(s->directory);
    snprintf(s->pattern, sizeof(s->pattern), "%s/d-{rank}", s->directory);
    snprintf(s->name, sizeof(s->name), "%s/d-*", s->directory);
    on_threads(RANKS, build_spread, s);
}

static void a_star_is_one_dataset_in_several_folders(void **state)
{
    (void)state;
    spread s = {.local_only = 1};
    make_spread(&s);
    on_threads(1, open_spread, &s);
    on_threads(2, open_spread, &s);
    s.own_nodes = true;
    on_threads(4, open_spread, &s);
    snprintf(s.name, sizeof(s.name), "%s/d-*@1", s.directory);
    on_threads(2, open_spread, &s);
    world_remove(s.directory);
}

/* Each rank has other folders, under names that have nothing to do with its number. */
static void ranks_of_a_node_map_each_others_folders(void **state)
{
    (void)state;
    char from[FOLDER_PATH + 16], to[FOLDER_PATH + 32], pattern[FOLDER_PATH + 32];
    spread s = {.local_only = 1};
    make_spread(&s);
    for (int i = 0; i < RANKS; i++) {
        snprintf(from, sizeof(from), "%s/d-%d", s.directory, i);
        snprintf(to, sizeof(to), "%s/of-%d", s.directory, (i + 1) % RANKS);
        assert_int_equal(mkdir(to, 0755), 0);
        world_move_parts(from, to);
    }
    snprintf(s.name, sizeof(s.name), "%s/d-{rank}", s.directory);
    snprintf(pattern, sizeof(pattern), "%s/of-{rank}", s.directory);
    s.shards[0] = pattern;
    s.shard_count = 1;
    on_threads(RANKS, open_spread, &s);
    s.own_nodes = true;
    s.local_only = 0;
    on_threads(RANKS, open_spread, &s);
    s.shard_count = 0;
    s.fails = "shards are on no rank's disk";
    on_threads(RANKS, open_spread, &s);
    setenv("RKS_PATH", pattern, 1);
    s.fails = NULL;
    on_threads(RANKS, open_spread, &s);
    unsetenv("RKS_PATH");
    world_remove(s.directory);
}

static void what_is_missing_is_told_with_where_was_looked(void **state)
{
    (void)state;
    char from[FOLDER_PATH + 16], away[FOLDER_PATH + 16];
    spread s = {.fails = "; also looked in "};
    make_spread(&s);
    snprintf(from, sizeof(from), "%s/d-1", s.directory);
    snprintf(away, sizeof(away), "%s/away", s.directory);
    assert_int_equal(mkdir(away, 0755), 0);
    world_move_parts(from, away);
    on_threads(2, open_spread, &s);
    s.fails = "; no folder is named /nowhere/*/x";
    s.shards[0] = "/nowhere/*/x";
    s.shard_count = 1;
    on_threads(2, open_spread, &s);
    world_remove(s.directory);
}

static void build_other(member *m)
{
    const spread *s = m->user;
    char path[FOLDER_PATH + 16];
    rks_build_options options;
    world_build_options(&options);
    snprintf(path, sizeof(path), "%s/d-7", s->directory);
    if (world_enter(m, true))
        EXPECT_OK(world_build_units(m->group, path, &options, 100, 2, NULL, &m->err));
}

static void two_datasets_are_not_one(void **state)
{
    (void)state;
    char other[FOLDER_PATH + 16];
    spread s = {.fails = "/d-7 has dataset "};
    make_spread(&s);
    on_threads(1, build_other, &s);
    on_threads(2, open_spread, &s);
    /* of `shards`, the other dataset's folder is left alone */
    snprintf(other, sizeof(other), "%s/x-7", s.directory);
    snprintf(s.pattern, sizeof(s.pattern), "%s/d-7", s.directory);
    assert_int_equal(rename(s.pattern, other), 0);
    s.fails = NULL;
    s.shards[0] = other;
    s.shard_count = 1;
    on_threads(2, open_spread, &s);
    world_remove(s.directory);
}

/* x has a file of another dataset under the name of a shard that lies in y. */
static void a_file_of_another_dataset_is_left_alone_a_damaged_one_is_not(void **state)
{
    (void)state;
    char command[4 * FOLDER_PATH + 400], other[FOLDER_PATH + 16], right[FOLDER_PATH + 16];
    spread s = {.shard_count = 2};
    make_spread(&s);
    on_threads(1, build_other, &s);
    snprintf(other, sizeof(other), "%s/x", s.directory);
    snprintf(right, sizeof(right), "%s/y", s.directory);
    snprintf(command, sizeof(command),
             "cd %s && mv d-7 x && mv d-1 y && to=$(basename y/part-*.json .json) && "
             "from=$(basename x/part-*.json .json) && rm x/dataset.json y/dataset.json && "
             "for end in json rks sums; do mv x/$from.$end x/$to.$end; done",
             s.directory);
    assert_int_equal(system(command), 0);
    s.shards[0] = other;
    s.shards[1] = right;
    on_threads(2, open_spread, &s);
    snprintf(command, sizeof(command), "truncate -s 20 %s/part-*.json", other);
    assert_int_equal(system(command), 0);
    s.fails = "/x/part-";
    on_threads(2, open_spread, &s);
    world_remove(s.directory);
}

static void a_name_that_fits_nothing_is_told(void **state)
{
    (void)state;
    spread s = {.fails = "/e-*: no folder has such a name"};
    make_spread(&s);
    snprintf(s.name, sizeof(s.name), "%s/e-*", s.directory);
    on_threads(2, open_spread, &s);
    world_remove(s.directory);
}

static void build_again(member *m)
{
    const spread *s = m->user;
    rks_build_options options;
    rks_repair_options repair = {.struct_size = sizeof(repair)};
    rks_build_report report = {.struct_size = sizeof(report)};
    rks_repair_report found = {.struct_size = sizeof(found)};
    world_build_options(&options);
    options.keep = true;
    options.shards = repair.shards = s->shards;
    options.shard_count = repair.shard_count = s->shard_count;
    if (!world_enter(m, true))
        return;
    EXPECT_OK(rks_repair(m->group, s->pattern, NULL, 0, &repair, &found, &m->err));
    EXPECT(found.lost_shards == (s->shard_count == 0));
    EXPECT_OK(world_build(m->group, s->pattern, &options, &report, &m->err));
    EXPECT(report.kept == (s->shard_count > 0));
    EXPECT(report.shards_rebuilt == (s->shard_count == 0));
}

static void a_build_looks_into_folders_too(void **state)
{
    (void)state;
    char from[FOLDER_PATH + 16], away[FOLDER_PATH + 16];
    spread s = {.shard_count = 1};
    make_spread(&s);
    snprintf(from, sizeof(from), "%s/d-1", s.directory);
    snprintf(away, sizeof(away), "%s/away", s.directory);
    assert_int_equal(mkdir(away, 0755), 0);
    world_move_parts(from, away);
    s.shards[0] = away;
    on_threads(RANKS, build_again, &s);
    assert_int_equal(world_files(from, ".rks"), 0);
    s.shard_count = 0;
    on_threads(RANKS, build_again, &s);
    world_remove(s.directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_star_is_one_dataset_in_several_folders),
        cmocka_unit_test(ranks_of_a_node_map_each_others_folders),
        cmocka_unit_test(what_is_missing_is_told_with_where_was_looked),
        cmocka_unit_test(two_datasets_are_not_one),
        cmocka_unit_test(a_file_of_another_dataset_is_left_alone_a_damaged_one_is_not),
        cmocka_unit_test(a_name_that_fits_nothing_is_told),
        cmocka_unit_test(a_build_looks_into_folders_too),
    };
    return cmocka_run_group_tests_name("search_path", tests, NULL, NULL);
}
