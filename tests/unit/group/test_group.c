/* SPDX-License-Identifier: Apache-2.0
 *
 * test_group.c: ranks that agree, share out and fail together, in groups of many sizes and shapes.
 */
#include "ranks.h"
#include "group/agreement.h"

enum { T = 15000, T_SHORT = 3000 };

static uint32_t per_node;

static void gather_uneven(member *m)
{
    uint8_t mine[64];
    rks_gathered all = {0};
    if (!open_group(m, T, per_node))
        return;
    memset(mine, (int)m->rank, sizeof(mine));
    EXPECT(rks_group_allgather(m->group, "uneven", RKS_OK, mine, m->rank % 7, &all, &m->err) ==
           RKS_OK);
    for (uint32_t other = 0; all.bytes != NULL && other < m->size; other++) {
        EXPECT(all.offsets[other + 1] - all.offsets[other] == other % 7);
        for (uint64_t at = all.offsets[other]; at < all.offsets[other + 1]; at++)
            EXPECT(all.bytes[at] == (uint8_t)other);
    }
    rks_free(all.bytes);
    rks_free(all.offsets);
    EXPECT(rks_group_agree(m->group, "done", RKS_OK, &m->err) == RKS_OK);
}

static void uneven_bytes_reach_every_rank_in_rank_order(void **state)
{
    (void)state;
    for (per_node = 0; per_node <= 3; per_node++) {
        on_threads(1, gather_uneven, NULL);
        on_threads(2, gather_uneven, NULL);
        on_threads(8, gather_uneven, NULL);
    }
    per_node = 0;
}

static void gather_large(member *m)
{
    enum { SIZE = 3 << 20 };
    uint8_t *mine = calloc(SIZE, 1);
    rks_gathered all = {0};
    memset(mine, (int)m->rank + 1, SIZE);
    if (!open_group(m, T, per_node))
        return;
    EXPECT(rks_group_allgather(m->group, "large", RKS_OK, mine, SIZE - m->rank, &all, &m->err) ==
           RKS_OK);
    EXPECT(all.bytes != NULL && all.bytes[0] == 1 && all.bytes[all.offsets[1]] == 2 &&
           all.bytes[all.offsets[3] - 1] == 3);
    rks_free(all.bytes);
    rks_free(all.offsets);
    free(mine);
}

static void a_message_larger_than_a_note_arrives_whole(void **state)
{
    (void)state;
    on_threads(3, gather_large, NULL);
}

static void fail_some(member *m)
{
    rks_status status = RKS_OK;
    if (!open_group(m, T, per_node))
        return;
    if (m->rank == 2 || m->rank == 4) {
        status = rks_fail(&m->err, RKS_ERR_DATA, 17, "file %u: line 9 is odd", m->rank);
        memset(m->err.reserved, 0xff, sizeof(m->err.reserved)); /* a caller of another mind */
    }
    EXPECT(rks_group_agree(m->group, "reading", status, &m->err) == RKS_ERR_DATA);
    EXPECT(m->err.rank == 2 && m->err.cause == 17 && m->err.host[0] != '\0');
    EXPECT(is_plain(&m->err));
    EXPECT(strcmp(m->err.text, "file 2: line 9 is odd") == 0);
    EXPECT(rks_group_agree(m->group, "going on", RKS_OK, &m->err) == RKS_OK);
}

static void the_lowest_failing_rank_s_error_is_every_rank_s(void **state)
{
    (void)state;
    on_threads(5, fail_some, NULL);
    per_node = 2;
    on_threads(6, fail_some, NULL);
    per_node = 0;
}

static void stop_early(member *m)
{
    rks_status status = RKS_OK;
    if (!open_group(m, T, per_node))
        return;
    EXPECT(m->rank != 3 ||
           rks_group_must_stop(m->group, &m->err) == RKS_OK); /* others may hear at once */
    if (m->rank == 3)
        status = rks_fail(&m->err, RKS_ERR_IO, 5, "disk of rank 3");
    uint64_t until = rks_now_ms() + 20000;
    while (status == RKS_OK && rks_now_ms() < until)
        status = rks_group_must_stop(m->group, &m->err);
    EXPECT(rks_group_agree(m->group, "long work", status, &m->err) == RKS_ERR_IO);
    EXPECT(m->err.rank == 3 && strcmp(m->err.text, "disk of rank 3") == 0 && is_plain(&m->err));
}

static void long_work_hears_of_a_failure_before_it_ends(void **state)
{
    (void)state;
    on_threads(4, stop_early, NULL);
}

/* Rank 3 brings its error only when all others have heard of it; a later phase hears nothing. */
static void stop_before(member *m)
{
    atomic_int *heard = m->user;
    if (!open_group(m, T, per_node))
        return;
    rks_status status = RKS_OK;
    uint64_t until = rks_now_ms() + 20000;
    if (m->rank == 3)
        rks_group_stop(m->group);
    while (status == RKS_OK && rks_now_ms() < until)
        status = rks_group_must_stop(m->group, &m->err);
    EXPECT(is_plain(&m->err));
    atomic_fetch_add(heard, status == RKS_ERR_PEER);
    while (m->rank == 3 && atomic_load(heard) < 4 && rks_now_ms() < until)
        ;
    if (m->rank == 3)
        status = rks_fail(&m->err, RKS_ERR_DATA, 0, "row 7 of rank 3");
    EXPECT(rks_group_agree(m->group, "long work", status, &m->err) == RKS_ERR_DATA);
    EXPECT(m->err.rank == 3 && strcmp(m->err.text, "row 7 of rank 3") == 0);
    EXPECT(rks_group_must_stop(m->group, &m->err) == RKS_OK);
    EXPECT(rks_group_agree(m->group, "next", RKS_OK, &m->err) == RKS_OK);
}

static void a_failure_is_told_before_its_call(void **state)
{
    (void)state;
    atomic_int heard = 0;
    on_threads(4, stop_before, &heard);
    assert_int_equal(heard, 4);
}

static void mismatch(member *m)
{
    if (!open_group(m, T, per_node))
        return;
    EXPECT(rks_group_agree(m->group, m->rank == 1 ? "gather" : "plan", RKS_OK, &m->err) ==
           RKS_ERR_STATE);
    EXPECT(strstr(m->err.text, "'gather'") != NULL && strstr(m->err.text, "'plan'") != NULL);
}

static void ranks_in_different_calls_find_out(void **state)
{
    (void)state;
    on_threads(3, mismatch, NULL);
}

static void differ(member *m)
{
    rks_group_options options;
    rks_group_options_default(&options);
    options.bootstrap = m->bootstrap;
    options.silence_ms = m->rank == 2 ? 2000 : T;
    EXPECT(rks_group_open(&options, &m->group, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(strstr(m->err.text, "silence_ms") != NULL && strstr(m->err.text, "rank 2") != NULL);
}

static void an_option_that_differs_is_named_with_two_ranks(void **state)
{
    (void)state;
    on_threads(3, differ, NULL);
}

static void agree_many(member *m)
{
    rks_gathered all = {0};
    if (!open_group(m, T, *(const uint32_t *)m->user))
        return;
    uint32_t words[3] = {m->rank, m->rank * m->rank, ~m->rank};
    EXPECT(rks_group_allgather(m->group, "words", RKS_OK, words, sizeof(uint32_t) * (m->rank % 4),
                               &all, &m->err) == RKS_OK);
    for (uint32_t other = 0; all.bytes != NULL && other < m->size; other++) {
        uint32_t theirs[3] = {other, other * other, ~other};
        EXPECT(all.offsets[other + 1] - all.offsets[other] == sizeof(uint32_t) * (other % 4));
        EXPECT(memcmp(all.bytes + all.offsets[other], theirs, sizeof(uint32_t) * (other % 4)) == 0);
    }
    rks_free(all.bytes);
    rks_free(all.offsets);
    rks_status mine = RKS_OK;
    if (m->rank >= m->size / 2)
        mine = rks_fail(&m->err, RKS_ERR_DATA, m->rank, "rank %u has had enough", m->rank);
    EXPECT(rks_group_agree(m->group, "enough", mine, &m->err) == RKS_ERR_DATA);
    EXPECT(m->err.rank == (int32_t)(m->size / 2) && m->err.cause == m->size / 2);
    EXPECT(rks_group_agree(m->group, "end", RKS_OK, &m->err) == RKS_OK);
}

static void groups_of_many_sizes_and_shapes_agree(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 5, 16, 48};
    static const uint32_t on_a_node[] = {0, 1, 6};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (size_t j = 0; j < sizeof(on_a_node) / sizeof(on_a_node[0]); j++)
            on_threads(sizes[i], agree_many, (void *)(uintptr_t)&on_a_node[j]);
}

static void call_differently(member *m)
{
    int what = *(const int *)m->user;
    uint8_t bytes[8] = {0};
    rks_gathered all = {0};
    rks_status status;
    if (!open_group(m, T, 2))
        return;
    if (what == 0 && m->rank == 3) /* the same name, another call */
        status = rks_group_allgather(m->group, "step", RKS_OK, bytes, 8, &all, &m->err);
    else if (what == 0 || m->rank != 3)
        status = rks_group_agree(m->group, "step", RKS_OK, &m->err);
    else { /* an agreement with another number of facts */
        const rks_fact fact = rks_fact_bytes(bytes, 8, 8);
        rks_agreed agreed;
        status = rks_group_agree_on(m->group, "step", RKS_OK, &fact, 1, &agreed, &m->err);
    }
    EXPECT(status == RKS_ERR_STATE && strstr(m->err.text, "'step'") != NULL &&
           strstr(m->err.text, "rank 3") != NULL);
}

static void calls_that_differ_in_more_than_their_name_find_out(void **state)
{
    (void)state;
    for (int what = 0; what < 2; what++)
        on_threads(4, call_differently, &what);
}

static void work_long(member *m)
{
    if (!open_group(m, T_SHORT, per_node))
        return;
    if (m->rank == 1)
        usleep(3 * T_SHORT * 1000); /* no call meanwhile, as in a callback */
    EXPECT(rks_group_agree(m->group, "work", RKS_OK, &m->err) == RKS_OK);
}

static void a_rank_that_works_longer_than_the_silence_limit_is_waited_for(void **state)
{
    (void)state;
    on_threads(3, work_long, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uneven_bytes_reach_every_rank_in_rank_order),
        cmocka_unit_test(a_message_larger_than_a_note_arrives_whole),
        cmocka_unit_test(the_lowest_failing_rank_s_error_is_every_rank_s),
        cmocka_unit_test(long_work_hears_of_a_failure_before_it_ends),
        cmocka_unit_test(a_failure_is_told_before_its_call),
        cmocka_unit_test(ranks_in_different_calls_find_out),
        cmocka_unit_test(an_option_that_differs_is_named_with_two_ranks),
        cmocka_unit_test(groups_of_many_sizes_and_shapes_agree),
        cmocka_unit_test(calls_that_differ_in_more_than_their_name_find_out),
        cmocka_unit_test(a_rank_that_works_longer_than_the_silence_limit_is_waited_for),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
