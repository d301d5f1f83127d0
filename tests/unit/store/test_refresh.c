/* SPDX-License-Identifier: Apache-2.0
 *
 * test_refresh.c: a store of a dataset that grows: the next generation, and states that go on with
 * it. */
#include "world.h"

#include "rankstore/epoch.h"

enum { RANKS = 2, FIRST_UNITS = 3, MORE_UNITS = 2 };

typedef struct growing {
    char directory[FOLDER_PATH];
    char pattern[FOLDER_PATH + 16];
    bool own_nodes;
} growing;

static void add_units(member *m, const growing *g, uint64_t first, uint64_t units, bool append,
                      bool replace)
{
    rks_build_options options;
    world_build_options(&options);
    options.append = append;
    options.replace = replace;
    bool own_keys = true;
    char name[32];
    snprintf(name, sizeof(name), "from %llu", (unsigned long long)first);
    const made_rows rows = {
        .make = world_make_unit, .user = &own_keys, .units = units, .first = first};
    options.source = name;
    EXPECT_OK(rows_build(m->group, g->pattern, &options, &rows, NULL, &m->err));
}

static rks_store *open_growing(member *m, const growing *g)
{
    rks_store *store = NULL;
    EXPECT_OK(rks_store_open(m->group, g->pattern, NULL, &store, &m->err));
    return store;
}

static rks_status refresh(member *m, const growing *g, rks_store *store, rks_store **newer)
{
    const char *const directories[] = {g->pattern};
    *newer = NULL;
    return rks_store_refresh(store, directories, 1, NULL, newer, &m->err);
}

static rks_plan *plan_of(member *m, rks_store *store)
{
    rks_plan *plan = NULL;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "random";
    options.batch_size = 5;
    EXPECT_OK(rks_plan_open(store, &options, &plan, &m->err));
    return plan;
}

/* States of the first generation: at an epoch's end, within one, and at its beginning. */
static void go_on(member *m, rks_plan *first, rks_plan *later)
{
    char text[RKS_STATE_MAX];
    uint64_t steps = 0, epoch = 99, step = 99;
    EXPECT_OK(rks_plan_steps(first, 4, &steps, &m->err));
    EXPECT_OK(rks_plan_state(first, 4, steps, text, sizeof(text), &m->err));
    EXPECT_OK(rks_plan_resume(later, text, &epoch, &step, &m->err));
    EXPECT(epoch == 5 && step == 0);
    EXPECT_OK(rks_plan_state(first, 4, steps - 1, text, sizeof(text), &m->err));
    EXPECT(rks_plan_resume(later, text, &epoch, &step, &m->err) == RKS_ERR_STATE);
    EXPECT_TEXT("the state is of generation 1: open DIR@1");
    EXPECT_OK(rks_plan_state(first, 4, 0, text, sizeof(text), &m->err));
    EXPECT_OK(rks_plan_resume(later, text, &epoch, &step, &m->err));
    EXPECT(epoch == 4 && step == 0);
}

static void grow(member *m)
{
    const growing *g = m->user;
    rks_store *newer = NULL;
    rks_generation *earlier = NULL;
    size_t count = 0;
    if (!world_enter(m, g->own_nodes))
        return;
    add_units(m, g, 0, FIRST_UNITS, false, false);
    rks_store *store = open_growing(m, g);
    rks_plan *first = store == NULL ? NULL : plan_of(m, store);
    if (first == NULL)
        return;
    EXPECT_OK(refresh(m, g, store, &newer));
    EXPECT(newer == NULL);
    add_units(m, g, FIRST_UNITS, MORE_UNITS, true, false);
    const uint64_t ids[] = {0, 7, FIRST_UNITS * UNIT_ROWS - 1};
    rks_batch *kept = NULL;
    rks_view *view = NULL;
    EXPECT_OK(rks_store_fetch(store, ids, 3, &kept, &m->err));
    EXPECT_OK(rks_store_view(store, 7, &view, &m->err));
    EXPECT_OK(refresh(m, g, store, &newer));
    EXPECT(newer != NULL);
    if (newer != NULL) {
        EXPECT(rks_store_count(newer) == (FIRST_UNITS + MORE_UNITS) * UNIT_ROWS);
        EXPECT_OK(rks_store_earlier(newer, &earlier, &count, &m->err));
        EXPECT(count == 1 && earlier[0].number == 1);
        EXPECT(count == 1 && earlier[0].samples == FIRST_UNITS * UNIT_ROWS);
        EXPECT(count == 1 && strcmp(earlier[0].dataset, rks_store_dataset(store)) == 0);
        rks_release(earlier);
        rks_plan *later = plan_of(m, newer);
        if (later != NULL)
            go_on(m, first, later);
        rks_store_close(store, CLOSE_MS);
        for (size_t i = 0; kept != NULL && i < 3; i++)
            EXPECT(world_is(kept, i, ids[i])); /* what the caller holds stays valid */
        rks_batch_free(kept);
        rks_view_free(view);
        rks_batch *all = NULL;
        const uint64_t last[] = {0, (FIRST_UNITS + MORE_UNITS) * UNIT_ROWS - 1};
        EXPECT_OK(rks_store_fetch(newer, last, 2, &all, &m->err));
        EXPECT(all != NULL && world_is(all, 0, last[0]) && world_is(all, 1, last[1]));
        rks_batch_free(all);
        rks_plan_free(later);
    }
    rks_plan_free(first);
    rks_store_close(newer, CLOSE_MS);
}

static void on_ranks(uint32_t ranks, const char *name, bool own_nodes, void (*run)(member *))
{
    growing g = {.own_nodes = own_nodes};
    world_directory(g.directory);
    snprintf(g.pattern, sizeof(g.pattern), "%s/%s", g.directory, name);
    on_threads(ranks, run, &g);
    world_remove(g.directory);
}

static void a_store_goes_on_with_the_next_generation(void **state)
{
    (void)state;
    on_ranks(1, "d", false, grow);
    on_ranks(2, "d", false, grow);
    on_ranks(3, "d-{rank}", true, grow);
}

static void replace(member *m)
{
    const growing *g = m->user;
    rks_store *newer = NULL;
    if (!world_enter(m, g->own_nodes))
        return;
    add_units(m, g, 0, FIRST_UNITS, false, false);
    add_units(m, g, FIRST_UNITS, 1, true, false);
    rks_store *store = open_growing(m, g);
    add_units(m, g, 50, 2, false, true);
    if (store == NULL)
        return;
    EXPECT(refresh(m, g, store, &newer) == RKS_ERR_STATE);
    EXPECT_TEXT("did not grow out of");
    add_units(m, g, 52, 1, true, false); /* generation 2, as the open one */
    EXPECT(refresh(m, g, store, &newer) == RKS_ERR_STATE);
    add_units(m, g, 53, 1, true, false); /* a later one */
    EXPECT(refresh(m, g, store, &newer) == RKS_ERR_STATE);
    EXPECT_TEXT("did not grow out of");
    rks_store_close(store, CLOSE_MS);
}

static void another_dataset_is_refused(void **state)
{
    (void)state;
    on_ranks(2, "d", false, replace);
    on_ranks(2, "d-{rank}", true, replace);
}

/* Replaces rank 1's dataset.json by that of an earlier generation, as one who sees it late. */
static void set_back(const growing *g, const char *generation)
{
    char command[4 * FOLDER_PATH + 100];
    snprintf(command, sizeof(command), "cd %s/d-1 && cp dataset.json kept && cp %s dataset.json",
             g->directory, generation);
    assert_int_equal(system(command), 0);
}

static void bring_back(const growing *g)
{
    char command[4 * FOLDER_PATH];
    snprintf(command, sizeof(command), "cd %s/d-1 && mv kept dataset.json", g->directory);
    assert_int_equal(system(command), 0);
}

static void lag(member *m)
{
    const growing *g = m->user;
    rks_store *newer = NULL, *newest = NULL;
    if (!world_enter(m, g->own_nodes))
        return;
    add_units(m, g, 0, FIRST_UNITS, false, false);
    rks_store *store = open_growing(m, g);
    for (uint64_t i = 0; i < 2; i++)
        add_units(m, g, FIRST_UNITS + i, 1, true, false);
    if (m->rank == 1)
        set_back(g, "dataset.2.json");
    EXPECT_OK(rks_group_agree(m->group, "set back", RKS_OK, &m->err));
    if (store == NULL)
        return;
    EXPECT_OK(refresh(m, g, store, &newer)); /* what both see */
    EXPECT(newer != NULL && rks_store_count(newer) == (FIRST_UNITS + 1) * UNIT_ROWS);
    rks_store_close(store, CLOSE_MS);
    if (m->rank == 1)
        bring_back(g);
    EXPECT_OK(rks_group_agree(m->group, "brought back", RKS_OK, &m->err));
    EXPECT_OK(refresh(m, g, newer, &newest));
    EXPECT(newest != NULL && rks_store_count(newest) == (FIRST_UNITS + 2) * UNIT_ROWS);
    rks_store_close(newer, CLOSE_MS);
    if (m->rank == 1)
        set_back(g, "dataset.1.json");
    EXPECT_OK(rks_group_agree(m->group, "set back", RKS_OK, &m->err));
    EXPECT_OK(refresh(m, g, newest, &newer)); /* nothing newer, though one rank sees an old one */
    EXPECT(newer == NULL);
    rks_store_close(newest, CLOSE_MS);
}

static void a_rank_that_sees_a_generation_late_is_waited_for(void **state)
{
    (void)state;
    on_ranks(2, "d-{rank}", true, lag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_goes_on_with_the_next_generation),
        cmocka_unit_test(another_dataset_is_refused),
        cmocka_unit_test(a_rank_that_sees_a_generation_late_is_waited_for),
    };
    return cmocka_run_group_tests_name("refresh", tests, NULL, NULL);
}
