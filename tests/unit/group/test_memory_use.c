/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory_use.c: what the ranks of a group hold, and which of them holds most. Ranks are
 * processes: counters are a process's own. */
#include "ranks.h"

#include "base/memory_usage.h"

enum { RANKS = 4, T = 5000, HEAVY = 2 };

static void tell_all(member *m)
{
    rks_memory_use *ranks = NULL;
    rks_memory_most most = {.struct_size = sizeof(most)};
    if (!open_group(m, T, 0))
        return;
    rks_usage_add(RKS_MEMORY_GPU_SLOTS, m->rank == HEAVY ? 9000 : 1000);
    rks_usage_add(RKS_MEMORY_STAGING, 100 * (m->rank + 1));
    rks_usage_sub(RKS_MEMORY_STAGING, 99 * (m->rank + 1));
    EXPECT(rks_memory_use_all(m->group, sizeof(*ranks), &ranks, &most, &m->err) == RKS_OK);
    for (uint32_t other = 0; ranks != NULL && other < RANKS; other++) {
        const rks_memory_figure *kinds = ranks[other].kinds;
        EXPECT(ranks[other].struct_size == sizeof(*ranks));
        EXPECT(kinds[RKS_MEMORY_GPU_SLOTS].peak == (other == HEAVY ? 9000 : 1000));
        EXPECT(kinds[RKS_MEMORY_STAGING].current == other + 1);
        EXPECT(kinds[RKS_MEMORY_STAGING].peak == 100 * (other + 1));
        EXPECT(kinds[RKS_MEMORY_RESIDENT].peak > 0);
        EXPECT(kinds[RKS_MEMORY_PINNED].peak == 0);
    }
    EXPECT(most.struct_size == sizeof(most));
    rks_memory_extreme slots = most.kinds[RKS_MEMORY_GPU_SLOTS];
    EXPECT(slots.peak == 9000 && slots.peak_rank == HEAVY && slots.least_peak == 1000);
    EXPECT(slots.current == 9000 && slots.current_rank == HEAVY);
    rks_memory_extreme staging = most.kinds[RKS_MEMORY_STAGING];
    EXPECT(staging.peak == 100 * RANKS && staging.peak_rank == RANKS - 1);
    EXPECT(staging.current == RANKS && staging.least_peak == 100);
    EXPECT(most.kinds[RKS_MEMORY_PINNED].peak_rank == 0); /* of equal ones the lowest */
    rks_release(ranks);
}

static void every_rank_learns_what_each_holds_and_who_holds_most(void **state)
{
    (void)state;
    assert_int_equal(on_processes(RANKS, tell_all, NULL), 0);
}

/* A program with an older header: room for two kinds, on one rank only. */
static void tell_less(member *m)
{
    enum { SMALL = sizeof(size_t) + 2 * sizeof(rks_memory_figure) };
    rks_memory_use *ranks = NULL;
    rks_memory_most most = {.struct_size = sizeof(size_t) + sizeof(rks_memory_extreme)};
    if (!open_group(m, T, 0))
        return;
    size_t room = m->rank == 0 ? SMALL : sizeof(*ranks);
    rks_usage_add(RKS_MEMORY_INDEX_OWN, 10 * (m->rank + 1));
    EXPECT(rks_memory_use_all(m->group, room, &ranks, &most, &m->err) == RKS_OK);
    for (uint32_t other = 0; ranks != NULL && other < rks_group_size(m->group); other++) {
        rks_memory_use use = {0};
        memcpy(&use, (uint8_t *)ranks + other * room, room);
        EXPECT(use.struct_size == room);
        EXPECT(use.kinds[RKS_MEMORY_INDEX_OWN].peak == 10 * (other + 1));
    }
    EXPECT(most.kinds[RKS_MEMORY_INDEX_OWN].peak == 0); /* it had no room for it */
    rks_release(ranks);
    ranks = NULL;
    /* Refused on one rank: the same error on all. */
    rks_status status =
        rks_memory_use_all(m->group, m->rank == 1 ? 3 : room, &ranks, NULL, &m->err);
    EXPECT(status == RKS_ERR_ARGUMENT && m->err.rank == 1 && ranks == NULL);
    EXPECT(strstr(m->err.text, "3 bytes") != NULL);
}

static void structs_of_another_size_get_what_fits(void **state)
{
    (void)state;
    assert_int_equal(on_processes(2, tell_less, NULL), 0);
}

/* A group of one: nobody waits for who failed. */
static void each_failing_allocation_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    rks_error err = {0};
    rks_group *group = NULL;
    assert_ok(rks_group_open(NULL, &group, &err), &err);
    long before = rks_memory_in_use(), left = 0;
    for (long n = 1; left == 0; n++) {
        rks_memory_use *ranks = NULL;
        rks_memory_most most = {.struct_size = sizeof(most)};
        assert_in_range(n, 1, 100);
        rks_memory_fail_at(n);
        rks_status status = rks_memory_use_all(group, sizeof(*ranks), &ranks, &most, &err);
        left = rks_memory_fail_left();
        rks_memory_fail_at(0);
        assert_int_equal(status, left > 0 ? RKS_OK : RKS_ERR_MEMORY);
        assert_int_equal(ranks != NULL, left > 0);
        rks_release(ranks);
        assert_int_equal(rks_memory_in_use(), before);
    }
    rks_group_close(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_learns_what_each_holds_and_who_holds_most),
        cmocka_unit_test(structs_of_another_size_get_what_fits),
        cmocka_unit_test(each_failing_allocation_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests_name("memory_use", tests, NULL, NULL);
}
