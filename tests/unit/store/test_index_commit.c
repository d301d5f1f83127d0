/* SPDX-License-Identifier: Apache-2.0
 *
 * test_index_commit.c: the index files that appends write: to a dataset of an earlier version,
 * which has none, and to one whose files are away or damaged. */
#include "world.h"

#include "dataset/dataset.h"

enum { RANKS = 2, MORE = 2 };

typedef struct growth {
    char directory[FOLDER_PATH];
    char pattern[FOLDER_PATH + 16];
    bool own_keys;
    bool own_nodes;
    uint64_t first, units; /* what was built last; after unit 0: added */
} growth;

static void build_some(member *m)
{
    const growth *g = m->user;
    rks_build_options options;
    char name[32];
    world_build_options(&options);
    options.own_keys = g->own_keys;
    options.append = g->first > 0;
    snprintf(name, sizeof(name), "from %llu", (unsigned long long)g->first);
    options.source = name;
    if (world_enter(m, g->own_nodes))
        EXPECT_OK(
            world_build_units(m->group, g->pattern, &options, g->first, g->units, NULL, &m->err));
}

static void build(growth *g, uint64_t first, uint64_t units)
{
    g->first = first;
    g->units = units;
    on_threads(RANKS, build_some, g);
}

static void name_directory(const growth *g, unsigned rank, char path[FOLDER_PATH + 16])
{
    snprintf(path, FOLDER_PATH + 16, g->own_nodes ? "%s/d-%u" : "%s/d", g->directory, rank);
}

static growth make(bool own_keys, bool own_nodes)
{
    growth g = {.own_keys = own_keys, .own_nodes = own_nodes};
    world_directory(g.directory);
    snprintf(g.pattern, sizeof(g.pattern), own_nodes ? "%s/d-{rank}" : "%s/d", g.directory);
    build(&g, 0, UNITS);
    return g;
}

/* Makes the directories as an earlier version built them. */
static void make_earlier(const growth *g)
{
    for (unsigned rank = 0; rank < (g->own_nodes ? RANKS : 1); rank++) {
        char path[FOLDER_PATH + 16], file[400];
        rks_dataset *dataset = NULL;
        name_directory(g, rank, path);
        world_index_file(path, file);
        assert_int_equal(unlink(file), 0);
        assert_int_equal(rks_dataset_load(path, &dataset, NULL), RKS_OK);
        assert_int_equal(dataset->index_file_count, 1);
        dataset->index_file_count = 0;
        assert_int_equal(rks_dataset_commit(path, dataset, NULL), RKS_OK);
        rks_dataset_free(dataset);
    }
}

/* Checks the numbers of samples of the index files of every directory; 0 ends them. */
static void expect_files(const growth *g, const uint64_t *samples)
{
    for (unsigned rank = 0; rank < (g->own_nodes ? RANKS : 1); rank++) {
        char path[FOLDER_PATH + 16];
        rks_dataset *dataset = NULL;
        size_t count = 0;
        name_directory(g, rank, path);
        assert_int_equal(rks_dataset_load(path, &dataset, NULL), RKS_OK);
        for (; samples[count] > 0; count++)
            assert_true(count < dataset->index_file_count &&
                        dataset->index_files[count].samples == samples[count]);
        assert_int_equal(dataset->index_file_count, count);
        rks_dataset_free(dataset);
    }
}

static void plan_all(member *m)
{
    const growth *g = m->user;
    char path[FOLDER_PATH + 16];
    rks_store *store = NULL;
    rks_plan *plan = NULL;
    rks_plan_options planned;
    rks_store_options options;
    uint64_t steps = 0;
    name_directory(g, 0, path);
    rks_store_options_default(&options);
    options.missing = "partial";
    rks_plan_options_default(&planned);
    planned.batch_size = UNIT_ROWS;
    if (!world_enter(m, false))
        return;
    EXPECT_OK(rks_store_open(m->group, path, &options, &store, &m->err));
    if (store == NULL)
        return;
    EXPECT_OK(rks_plan_open(store, &planned, &plan, &m->err));
    if (plan != NULL)
        EXPECT_OK(rks_plan_steps(plan, 0, &steps, &m->err));
    EXPECT(steps == g->first + g->units);
    rks_plan_free(plan);
    rks_store_close(store, CLOSE_MS);
}

/* Samples of missing shards are planned if the index has their lengths. */
static void expect_index(growth *g)
{
    char path[FOLDER_PATH + 16], away[FOLDER_PATH + 16];
    name_directory(g, 0, path);
    snprintf(away, sizeof(away), "%s/gone", g->directory);
    assert_int_equal(mkdir(away, 0755), 0);
    world_move_parts(path, away);
    on_threads(1, plan_all, g);
}

static void an_append_completes_the_index_of_an_earlier_version(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        growth g = make((way & 1) != 0, (way & 2) != 0);
        make_earlier(&g);
        expect_files(&g, (const uint64_t[]){0});
        build(&g, UNITS, MORE);
        expect_files(&g, (const uint64_t[]){(UNITS + MORE) * UNIT_ROWS, 0});
        expect_index(&g);
        world_remove(g.directory);
    }
}

/* Nobody knows the lengths of samples in a shard that is away. */
static void it_is_not_completed_if_shards_are_missing(void **state)
{
    (void)state;
    growth g = make(false, false);
    char path[FOLDER_PATH + 16], away[FOLDER_PATH + 16];
    make_earlier(&g);
    name_directory(&g, 0, path);
    snprintf(away, sizeof(away), "%s/away", g.directory);
    assert_int_equal(mkdir(away, 0755), 0);
    world_move_parts(path, away);
    build(&g, UNITS, MORE);
    expect_files(&g, (const uint64_t[]){0});
    world_move_parts(away, path);
    build(&g, UNITS + MORE, 1);
    expect_files(&g, (const uint64_t[]){(UNITS + MORE + 1) * UNIT_ROWS, 0});
    expect_index(&g);
    world_remove(g.directory);
}

/* A file of the base that a new one would take into it. */
static void a_damaged_file_stays_beside_the_new_one(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        bool damaged = (way & 1) != 0;
        growth g = make(false, (way & 2) != 0);
        char path[FOLDER_PATH + 16], file[400], command[600];
        name_directory(&g, RANKS - 1, path);
        world_index_file(path, file);
        snprintf(command, sizeof(command),
                 damaged ? "printf X | dd of=%s bs=1 seek=200 conv=notrunc 2> /dev/null" : "rm %s",
                 file);
        assert_int_equal(system(command), 0);
        build(&g, UNITS, UNITS);
        expect_files(&g, (const uint64_t[]){UNITS * UNIT_ROWS, UNITS * UNIT_ROWS, 0});
        world_remove(g.directory);
    }
}

/* It is larger than what is added, so it is not even read. */
static void a_large_file_stays(void **state)
{
    (void)state;
    growth g = make(true, true);
    char path[FOLDER_PATH + 16], file[400], command[600];
    name_directory(&g, 0, path);
    world_index_file(path, file);
    snprintf(command, sizeof(command),
             "printf X | dd of=%s bs=1 seek=200 conv=notrunc 2> /dev/null", file);
    assert_int_equal(system(command), 0);
    build(&g, UNITS, 1);
    expect_files(&g, (const uint64_t[]){UNITS * UNIT_ROWS, UNIT_ROWS, 0});
    build(&g, UNITS + 1, 1); /* the small one is taken into the new one */
    expect_files(&g, (const uint64_t[]){UNITS * UNIT_ROWS, 2 * UNIT_ROWS, 0});
    world_remove(g.directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_append_completes_the_index_of_an_earlier_version),
        cmocka_unit_test(it_is_not_completed_if_shards_are_missing),
        cmocka_unit_test(a_damaged_file_stays_beside_the_new_one),
        cmocka_unit_test(a_large_file_stays),
    };
    return cmocka_run_group_tests_name("index_commit", tests, NULL, NULL);
}
