/* SPDX-License-Identifier: Apache-2.0
 *
 * test_build_progress.c: what a build says of itself while it runs. Ranks are threads. */
#include "unit/store/files.h"

#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"

static char place[64], one_file[96], two_file[96], target[96];

static struct seen {
    atomic_uint waited; /* calls on rank 0 with all of its own share read */
    atomic_bool wrong;
    rks_group *group; /* rank 0's */
} seen;

/* Rank 0, which has read its share and waits: of both shares only its own is done. */
static void on_progress(void *user, const char *phase, uint64_t done, uint64_t total,
                        uint64_t samples)
{
    rks_group_progress all = {.struct_size = sizeof(all)};
    if (user == NULL || done < total || seen.waited >= 2) /* then rank 1 reads on */
        return;
    rks_group_progress_get(seen.group, &all);
    if (all.ranks < 2) /* rank 1 has not begun */
        return;
    if (strcmp(phase, "build") != 0 || samples == 0 || samples >= 2 * FILE_ROWS ||
        all.done < done || all.total <= total || all.slowest_rank != 1 ||
        all.slowest_done == all.slowest_total)
        seen.wrong = true;
    seen.waited++;
}

/* Rank 1 reads on when rank 0 has said twice that it waits. */
static int hold_up(void *user, const rks_sample *sample, rks_error *err)
{
    const struct timespec nap = {0, 1000000};
    (void)sample;
    (void)err;
    for (uint64_t until_ms = rks_now_ms() + 20000;
         user != NULL && seen.waited < 2 && rks_now_ms() < until_ms;)
        nanosleep(&nap, NULL);
    return 1;
}

static void build_rank(member *m)
{
    rks_build_options options;
    const char *sources[] = {one_file, two_file};
    if (!world_enter(m, false))
        return;
    file_options(&options);
    options.filter = hold_up;
    options.callback_user = m->rank == 1 ? place : NULL;
    options.progress = on_progress;
    options.progress_user = m->rank == 0 ? place : NULL;
    if (m->rank == 0)
        seen.group = m->group;
    EXPECT_OK(rks_build(m->group, sources, 2, target, &options, NULL, &m->err));
}

static void the_first_rank_tells_of_all_while_it_waits_for_the_others(void **state)
{
    (void)state;
    world_directory(place);
    snprintf(one_file, sizeof(one_file), "%s/one.jsonl", place);
    snprintf(two_file, sizeof(two_file), "%s/two.jsonl", place);
    snprintf(target, sizeof(target), "%s/store", place);
    file_write(one_file, 0, FILE_ROWS, NULL);
    file_write(two_file, FILE_ROWS, FILE_ROWS, NULL);
    on_threads(2, build_rank, NULL);
    assert_true(seen.waited >= 2);
    assert_false(seen.wrong);
    world_remove(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_rank_tells_of_all_while_it_waits_for_the_others),
    };
    return cmocka_run_group_tests_name("build_progress", tests, NULL, NULL);
}
