/* SPDX-License-Identifier: Apache-2.0
 *
 * test_progress.c: what rank 0 knows of all ranks' work, also where one of them lies. */
#include "ranks.h"

#include "base/bytes.h"
#include "group/group_state.h"

enum { T = 5000, HEAD = 32 };

static uint32_t per_node;

static rks_group_progress known(member *m)
{
    rks_group_progress all = {.struct_size = sizeof(all)};
    rks_group_progress_get(m->group, &all);
    return all;
}

static void tell(member *m, uint64_t done, uint64_t total, uint64_t samples)
{
    const rks_work work = {.done = done, .total = total, .samples = samples};
    rks_group_tell_progress(m->group, &work, "half way");
    EXPECT(rks_group_agree(m->group, "told", RKS_OK, &m->err) == RKS_OK);
}

/* Whoever tells more waits until rank 0 has looked at what was told before. */
static void looked(member *m)
{
    EXPECT(rks_group_agree(m->group, "looked", RKS_OK, &m->err) == RKS_OK);
}

static void work_unevenly(member *m)
{
    if (!open_group(m, T, per_node))
        return;
    EXPECT(known(m).ranks == 0 && known(m).total == 0);
    looked(m);
    tell(m, m->rank == 3 ? 10 : 100 + m->rank, 1000, 7);
    rks_group_progress all = known(m);
    if (m->rank == 0) {
        EXPECT(all.ranks == 6 && all.total == 6000 && all.samples == 42);
        EXPECT(all.done == 100 + 101 + 102 + 10 + 104 + 105);
        EXPECT(all.slowest_rank == 3 && all.slowest_done == 10 && all.slowest_total == 1000);
    }
    looked(m);
    tell(m, m->rank == 5 ? 200 : 1000, 1000, 70); /* an end is told at once, rank 5's is none */
    all = known(m);
    if (m->rank == 0) {
        EXPECT(all.ranks == 6 && all.done >= 5105 && all.done <= 5200);
        EXPECT(all.slowest_rank == 5);
    }
    looked(m);
    tell(m, 0, 0, 0);
    EXPECT(known(m).ranks == 0);
}

static void rank_0_knows_the_sum_over_all_ranks_and_the_slowest(void **state)
{
    (void)state;
    for (per_node = 0; per_node <= 3; per_node++)
        on_threads(6, work_unevenly, NULL);
    per_node = 0;
}

static void work_alone(member *m)
{
    if (!open_group(m, T, 0))
        return;
    tell(m, 1, 2, 3);
    EXPECT(known(m).ranks == 0);
    struct {
        size_t struct_size;
        uint64_t done, after;
    } small = {.struct_size = 16, .after = 77};
    rks_group_progress_get(m->group, (rks_group_progress *)(void *)&small);
    EXPECT(small.after == 77);
}

static void one_rank_tells_nobody(void **state)
{
    (void)state;
    on_threads(1, work_alone, NULL);
}

/* What rank 1 sends to rank 0 of six, one message each. */
static const struct lie {
    uint32_t kind, rank;
    uint64_t done, total, samples;
    size_t size; /* of the body */
} lies[] = {
    {MESSAGE_PROGRESS, 2, 5, 10, 1, HEAD},                 /* of another rank */
    {MESSAGE_PROGRESS, 0, 5, 10, 1, HEAD},                 /* of the one who hears it */
    {MESSAGE_PROGRESS, 6, 5, 10, 1, HEAD},                 /* of none */
    {MESSAGE_PROGRESS, UINT32_MAX, 5, 10, 1, HEAD},        /* of none */
    {MESSAGE_PROGRESS, 1, 5, 10, 1, HEAD - 1},             /* cut */
    {MESSAGE_PROGRESS, 1, 5, 10, 1, 0},                    /* empty */
    {MESSAGE_PROGRESS, 1, 5, 10, 1, HEAD + PROGRESS_SIZE}, /* too long */
    {MESSAGE_PROGRESS, 1, 5, 10, 1, 1 << 20},              /* far too long */
    {5, 1, 5, 10, 1, HEAD},                                /* a kind of before */
    {77, 1, 5, 10, 1, HEAD},                               /* a kind to come */
};

static void send_lie(member *m, const struct lie *lie)
{
    uint8_t *body = calloc(1, lie->size + HEAD);
    rks_store_u32(body, lie->rank);
    rks_store_u64(body + 8, lie->done);
    rks_store_u64(body + 16, lie->total);
    rks_store_u64(body + 24, lie->samples);
    EXPECT(rks_inbox_send(m->group, 0, lie->kind, body, lie->size, &m->err) == RKS_OK);
    free(body);
}

static void lie_about_work(member *m)
{
    if (!open_group(m, T, 0))
        return;
    for (size_t i = 0; m->rank == 1 && i < sizeof(lies) / sizeof(lies[0]); i++)
        send_lie(m, &lies[i]);
    EXPECT(rks_group_agree(m->group, "lied", RKS_OK, &m->err) == RKS_OK);
    EXPECT(m->rank != 0 || known(m).ranks == 0);
    looked(m);
    /* Numbers that no sum could hold, and more done than there is. */
    const struct lie huge = {MESSAGE_PROGRESS, m->rank, UINT64_MAX, UINT64_MAX, UINT64_MAX, HEAD};
    if (m->rank > 0)
        send_lie(m, &huge);
    EXPECT(rks_group_agree(m->group, "huge", RKS_OK, &m->err) == RKS_OK);
    rks_group_progress all = known(m);
    EXPECT(m->rank != 0 || (all.ranks == 5 && all.total == UINT64_C(5) << 48 &&
                            all.done == all.total && all.samples == UINT64_C(5) << 48));
    looked(m);
    const struct lie more = {MESSAGE_PROGRESS, m->rank, 11, 10, 1, HEAD};
    if (m->rank > 0)
        send_lie(m, &more);
    EXPECT(rks_group_agree(m->group, "more", RKS_OK, &m->err) == RKS_OK);
    all = known(m);
    EXPECT(m->rank != 0 || (all.total == 50 && all.done == 50));
}

static void progress_that_is_malformed_or_another_rank_s_is_ignored(void **state)
{
    (void)state;
    on_threads(6, lie_about_work, NULL);
}

static void count_wait(void *user)
{
    atomic_fetch_add((atomic_uint *)user, 1);
}

/* Rank 2 comes when rank 0 has said so often that it waits. */
static void come_late(member *m, const atomic_uint *waits, uint32_t wanted)
{
    for (uint64_t until_ms = rks_now_ms() + 20000;
         m->rank == 2 && atomic_load(waits) < wanted && rks_now_ms() < until_ms;)
        usleep(1000);
}

static void wait_for_rank_2(member *m)
{
    atomic_uint *waits = m->user;
    if (!open_group(m, T, 0))
        return;
    if (m->rank == 0)
        rks_group_on_wait(m->group, count_wait, waits);
    uint64_t begun_ms = rks_now_ms();
    come_late(m, waits, 2);
    EXPECT(rks_group_agree(m->group, "slow", RKS_OK, &m->err) == RKS_OK);
    uint32_t before = atomic_load(waits);
    EXPECT(before >= 2);
    EXPECT(m->rank != 0 || before * 50 <= rks_now_ms() - begun_ms); /* about each 100 ms */
    rks_group_on_wait(m->group, NULL, NULL);
    looked(m);
    for (uint64_t until_ms = rks_now_ms() + 300; m->rank == 2 && rks_now_ms() < until_ms;)
        rks_check_interrupt(NULL);
    EXPECT(rks_group_agree(m->group, "quiet", RKS_OK, &m->err) == RKS_OK);
    EXPECT(atomic_load(waits) == before);
}

static void a_rank_that_waits_can_say_so_meanwhile(void **state)
{
    (void)state;
    atomic_uint waits = 0;
    on_threads(3, wait_for_rank_2, &waits);
}

typedef struct looker {
    member *m;
    bool saw_all; /* at last */
} looker;

static void look(void *user)
{
    looker *l = user;
    rks_group_progress all = known(l->m);
    l->saw_all = all.ranks == 3 && all.done == 300 && all.total == 300;
}

static void come_last(member *m)
{
    const rks_work work = {.done = 100, .total = 100, .samples = 1};
    looker l = {.m = m};
    if (!open_group(m, T, 0))
        return;
    rks_group_tell_progress(m->group, &work, "");
    if (m->rank == 0)
        rks_group_on_wait(m->group, look, &l);
    for (uint64_t until_ms = rks_now_ms() + 50; m->rank == 0 && rks_now_ms() < until_ms;)
        rks_check_interrupt(NULL);
    EXPECT(rks_group_agree(m->group, "over", RKS_OK, &m->err) == RKS_OK);
    rks_group_tell_progress(m->group, NULL, "");
    EXPECT(m->rank != 0 || l.saw_all);
}

static void a_rank_that_comes_last_can_say_how_all_ended(void **state)
{
    (void)state;
    on_threads(3, come_last, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_knows_the_sum_over_all_ranks_and_the_slowest),
        cmocka_unit_test(one_rank_tells_nobody),
        cmocka_unit_test(progress_that_is_malformed_or_another_rank_s_is_ignored),
        cmocka_unit_test(a_rank_that_waits_can_say_so_meanwhile),
        cmocka_unit_test(a_rank_that_comes_last_can_say_how_all_ended),
    };
    return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
