/* SPDX-License-Identifier: Apache-2.0
 *
 * test_two_builds.c: two builds of one input, whose shards have the same units and other ids. On
 * nodes that have some of each they are one dataset. */
#include "world.h"

#include "store/store.h"

enum { RANKS = 3 };

typedef struct mixture {
    char directory[FOLDER_PATH];
    char pattern[FOLDER_PATH + 16]; /* of what is built or opened: a directory a rank */
    bool own_nodes, no_share;
    uint64_t first, units; /* append: what is added */
    const char *fails;     /* part of the error; NULL: it opens */
    uint64_t samples;
    uint64_t local_only; /* 1: no byte may come from another rank */
} mixture;

static void build_one(member *m)
{
    const mixture *x = m->user;
    rks_build_options options;
    rks_build_report report = {.struct_size = sizeof(report)};
    world_build_options(&options);
    options.keep = x->first == 0;
    options.append = x->first > 0;
    options.source = x->first > 0 ? "more" : NULL;
    if (!world_enter(m, true))
        return;
    EXPECT_OK(
        world_build_units(m->group, x->pattern, &options, x->first, x->units, &report, &m->err));
    EXPECT(report.shards_rebuilt == 0);
}

static void read_all(member *m, const mixture *x, rks_store *store)
{
    uint64_t ids[2 * SAMPLES], found = 0;
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    rks_batch *batch = NULL;
    for (uint64_t i = 0; i < x->samples; i++)
        ids[i] = i;
    EXPECT_OK(rks_store_fetch(store, ids, x->samples, &batch, &m->err));
    for (uint64_t i = 0; batch != NULL && i < x->samples; i++) {
        EXPECT(world_is(batch, i, i));
        EXPECT_OK(rks_store_key(store, i, key, &size, &m->err));
        EXPECT_OK(rks_store_find(store, key, size, &found, &m->err));
        EXPECT(found == i);
    }
    rks_batch_free(batch);
}

static void open_mixture(member *m)
{
    const mixture *x = m->user;
    rks_store *store = NULL;
    rks_store_options options;
    rks_store_options_default(&options);
    options.no_share = x->no_share;
    if (!world_enter(m, x->own_nodes))
        return;
    rks_status status = rks_store_open(m->group, x->pattern, &options, &store, &m->err);
    if (x->fails != NULL) {
        EXPECT(status != RKS_OK);
        EXPECT_TEXT(x->fails);
    } else {
        EXPECT_OK(status);
    }
    if (store != NULL) {
        rks_store_stats stats = {.struct_size = sizeof(stats)};
        read_all(m, x, store);
        rks_store_stats_get(store, &stats);
        EXPECT(stats.missing_shards == 0);
        EXPECT(x->local_only == 0 || stats.remote_bytes == 0);
    }
    rks_store_close(store, CLOSE_MS);
}

static void name_folder(const mixture *x, const char *front, int number,
                        char path[FOLDER_PATH + 16])
{
    snprintf(path, FOLDER_PATH + 16, "%s/%s-%d", x->directory, front, number);
}

/* Renames the folder of a rank. */
static void move(const mixture *x, const char *from, int old, const char *to, int number)
{
    char one[FOLDER_PATH + 16], other[FOLDER_PATH + 16];
    name_folder(x, from, old, one);
    name_folder(x, to, number, other);
    assert_int_equal(rename(one, other), 0);
}

static void build(mixture *x, const char *front, uint32_t ranks)
{
    snprintf(x->pattern, sizeof(x->pattern), "%s/%s-{rank}", x->directory, front);
    on_threads(ranks, build_one, x);
}

/* a-0, a-1, a-2 are of one build, b-0, b-1, b-2 of another. */
static void make_two(mixture *x)
{
    *x = (mixture){.units = UNITS, .samples = SAMPLES};
    world_directory(x->directory);
    build(x, "a", RANKS);
    build(x, "b", RANKS);
    snprintf(x->pattern, sizeof(x->pattern), "%s/d-{rank}", x->directory);
}

static void open_all(mixture *x, uint32_t ranks)
{
    x->own_nodes = false;
    on_threads(ranks, open_mixture, x);
    x->own_nodes = true;
    on_threads(ranks, open_mixture, x);
    x->no_share = true;
    on_threads(ranks, open_mixture, x);
    x->own_nodes = false;
    on_threads(ranks, open_mixture, x);
    x->no_share = false;
}

static void a_shard_of_the_other_build_takes_the_place_of_a_lost_one(void **state)
{
    (void)state;
    for (int other = 0; other < RANKS; other++) { /* either dataset.json is chosen once */
        mixture x;
        make_two(&x);
        for (int i = 0; i < RANKS; i++)
            move(&x, i == other ? "b" : "a", i, "d", i);
        open_all(&x, RANKS);
        world_remove(x.directory);
    }
}

/* Each rank of the second build reads its own disk. */
static void both_builds_are_there(void **state)
{
    (void)state;
    mixture x;
    make_two(&x);
    for (int i = 0; i < RANKS; i++) {
        move(&x, "a", i, "d", i);
        move(&x, "b", i, "d", RANKS + i);
    }
    open_all(&x, 2 * RANKS);
    snprintf(x.pattern, sizeof(x.pattern), "%s/d-*", x.directory);
    x.local_only = 1;
    on_threads(1, open_mixture, &x);
    world_remove(x.directory);
}

static void a_rank_with_another_build_reads_its_own_disk(void **state)
{
    (void)state;
    mixture x = {.units = UNITS, .samples = SAMPLES, .local_only = 1};
    world_directory(x.directory);
    build(&x, "a", 1);
    build(&x, "b", 1);
    move(&x, "a", 0, "d", 0);
    move(&x, "b", 0, "d", 1);
    snprintf(x.pattern, sizeof(x.pattern), "%s/d-{rank}", x.directory);
    x.own_nodes = true;
    on_threads(2, open_mixture, &x);
    world_remove(x.directory);
}

static void what_is_cut_in_another_way_is_refused(void **state)
{
    (void)state;
    mixture x = {.units = UNITS, .samples = SAMPLES};
    world_directory(x.directory);
    build(&x, "a", 2);
    build(&x, "b", 3);
    move(&x, "a", 0, "d", 0);
    move(&x, "b", 1, "d", 1);
    snprintf(x.pattern, sizeof(x.pattern), "%s/d-{rank}", x.directory);
    x.fails = "the same samples, cut into shards in two ways; remove one of them";
    open_all(&x, 2);
    world_remove(x.directory);
}

/* A build that keeps what is there, and an append, leave the other build's shards. */
static void builds_keep_the_shards_of_the_other_build(void **state)
{
    (void)state;
    char path[FOLDER_PATH + 16];
    mixture x;
    make_two(&x);
    for (int i = 0; i < RANKS; i++)
        move(&x, i == 1 ? "b" : "a", i, "d", i);
    build(&x, "d", RANKS);
    open_all(&x, RANKS);

    x.first = UNITS; /* each rank gets one of the three units that are added */
    x.units = 3;
    build(&x, "d", RANKS);
    x.samples += 3 * UNIT_ROWS;
    for (int i = 0; i < RANKS; i++) {
        name_folder(&x, "d", i, path);
        assert_int_equal(world_files(path, ".rks"), 2);
    }
    open_all(&x, RANKS);

    world_remove(x.directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shard_of_the_other_build_takes_the_place_of_a_lost_one),
        cmocka_unit_test(both_builds_are_there),
        cmocka_unit_test(a_rank_with_another_build_reads_its_own_disk),
        cmocka_unit_test(what_is_cut_in_another_way_is_refused),
        cmocka_unit_test(builds_keep_the_shards_of_the_other_build),
    };
    return cmocka_run_group_tests_name("two_builds", tests, NULL, NULL);
}
