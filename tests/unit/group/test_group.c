/* SPDX-License-Identifier: Apache-2.0
 *
 * test_group.c: ranks that agree, share out and fail together, in groups of many sizes and shapes.
 */
#include "ranks.h"

enum { T = 1000 };

static uint32_t per_node;

static int gather_uneven(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank, size = bootstrap->size;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    uint8_t *all = NULL, mine[64];
    uint64_t *offsets = NULL;
    (void)user;
    EXPECT(open_group(bootstrap, T, per_node, &group, &err) == RKS_OK);
    if (group == NULL)
        return 1;
    memset(mine, (int)rank, sizeof(mine));
    EXPECT(rks_group_allgather(group, "uneven", RKS_OK, mine, rank % 7, &all, &offsets, &err) ==
           RKS_OK);
    for (uint32_t other = 0; all != NULL && other < size; other++) {
        EXPECT(offsets[other + 1] - offsets[other] == other % 7);
        for (uint64_t at = offsets[other]; at < offsets[other + 1]; at++)
            EXPECT(all[at] == (uint8_t)other);
    }
    rks_free(all);
    rks_free(offsets);
    uint32_t word = rank;
    EXPECT(rks_group_broadcast(group, "word", size - 1, &word, sizeof(word), &err) == RKS_OK);
    EXPECT(word == size - 1);
    EXPECT(rks_group_agree(group, "done", RKS_OK, &err) == RKS_OK);
    rks_group_close(group);
    return failures;
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

static int gather_large(const rks_bootstrap *bootstrap, void *user)
{
    enum { SIZE = 3 << 20 };
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    uint8_t *all = NULL, *mine = calloc(SIZE, 1);
    uint64_t *offsets = NULL;
    (void)user;
    memset(mine, (int)rank + 1, SIZE);
    EXPECT(open_group(bootstrap, T, per_node, &group, &err) == RKS_OK);
    EXPECT(rks_group_allgather(group, "large", RKS_OK, mine, SIZE - rank, &all, &offsets, &err) ==
           RKS_OK);
    EXPECT(all != NULL && all[0] == 1 && all[offsets[1]] == 2 && all[offsets[3] - 1] == 3);
    rks_free(all);
    rks_free(offsets);
    free(mine);
    rks_group_close(group);
    return failures;
}

static void a_message_larger_than_a_note_arrives_whole(void **state)
{
    (void)state;
    on_threads(3, gather_large, NULL);
}

static int fail_some(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_status status = RKS_OK;
    (void)user;
    EXPECT(open_group(bootstrap, T, per_node, &group, &err) == RKS_OK);
    if (rank == 2 || rank == 4)
        status = rks_fail(&err, RKS_ERR_DATA, 17, "file %u: line 9 is odd", rank);
    EXPECT(rks_group_agree(group, "reading", status, &err) == RKS_ERR_DATA);
    EXPECT(err.rank == 2 && err.cause == 17 && err.host[0] != '\0');
    EXPECT(strcmp(err.text, "file 2: line 9 is odd") == 0);
    EXPECT(rks_group_agree(group, "going on", RKS_OK, &err) == RKS_OK);
    rks_group_close(group);
    return failures;
}

static void the_lowest_failing_rank_s_error_is_every_rank_s(void **state)
{
    (void)state;
    on_threads(5, fail_some, NULL);
    per_node = 2;
    on_threads(6, fail_some, NULL);
    per_node = 0;
}

static int stop_early(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_status status = RKS_OK;
    (void)user;
    EXPECT(open_group(bootstrap, T, per_node, &group, &err) == RKS_OK);
    EXPECT(rank != 3 || rks_group_must_stop(group, &err) == RKS_OK); /* others may hear at once */
    if (rank == 3)
        status = rks_fail(&err, RKS_ERR_IO, 5, "disk of rank 3");
    uint64_t until = rks_now_ms() + 20000;
    while (status == RKS_OK && rks_now_ms() < until)
        status = rks_group_must_stop(group, &err);
    EXPECT(rks_group_agree(group, "long work", status, &err) == RKS_ERR_IO);
    EXPECT(err.rank == 3 && strcmp(err.text, "disk of rank 3") == 0);
    rks_group_close(group);
    return failures;
}

static void long_work_hears_of_a_failure_before_it_ends(void **state)
{
    (void)state;
    on_threads(4, stop_early, NULL);
}

/* Rank 3 brings its error only when all others have heard of it; a later phase hears nothing. */
static int stop_before(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    atomic_int *heard = user;
    EXPECT(open_group(bootstrap, T, per_node, &group, &err) == RKS_OK);
    rks_status status = RKS_OK;
    uint64_t until = rks_now_ms() + 20000;
    if (rank == 3)
        rks_group_stop(group);
    while (status == RKS_OK && rks_now_ms() < until)
        status = rks_group_must_stop(group, &err);
    atomic_fetch_add(heard, status == RKS_ERR_PEER);
    while (rank == 3 && atomic_load(heard) < 4 && rks_now_ms() < until)
        ;
    if (rank == 3)
        status = rks_fail(&err, RKS_ERR_DATA, 0, "row 7 of rank 3");
    EXPECT(rks_group_agree(group, "long work", status, &err) == RKS_ERR_DATA);
    EXPECT(err.rank == 3 && strcmp(err.text, "row 7 of rank 3") == 0);
    EXPECT(rks_group_must_stop(group, &err) == RKS_OK);
    EXPECT(rks_group_agree(group, "next", RKS_OK, &err) == RKS_OK);
    rks_group_close(group);
    return failures;
}

static void a_failure_is_told_before_its_call(void **state)
{
    (void)state;
    atomic_int heard = 0;
    on_threads(4, stop_before, &heard);
    assert_int_equal(heard, 4);
}

static int mismatch(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    (void)user;
    EXPECT(open_group(bootstrap, T, per_node, &group, &err) == RKS_OK);
    EXPECT(rks_group_agree(group, rank == 1 ? "gather" : "plan", RKS_OK, &err) == RKS_ERR_STATE);
    EXPECT(strstr(err.text, "'gather'") != NULL && strstr(err.text, "'plan'") != NULL);
    rks_group_close(group);
    return failures;
}

static void ranks_in_different_calls_find_out(void **state)
{
    (void)state;
    on_threads(3, mismatch, NULL);
}

static int differ(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_group_options options;
    (void)user;
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    options.silence_ms = rank == 2 ? 2000 : T;
    EXPECT(rks_group_open(&options, &group, &err) == RKS_ERR_ARGUMENT);
    EXPECT(strstr(err.text, "silence_ms") != NULL && strstr(err.text, "rank 2") != NULL);
    return failures;
}

static void an_option_that_differs_is_named_with_two_ranks(void **state)
{
    (void)state;
    on_threads(3, differ, NULL);
}

static int agree_many(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank, size = bootstrap->size;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    EXPECT(open_group(bootstrap, 5000, *(const uint32_t *)user, &group, &err) == RKS_OK);
    if (group == NULL)
        return 1;
    uint32_t words[3] = {rank, rank * rank, ~rank};
    EXPECT(rks_group_allgather(group, "words", RKS_OK, words, sizeof(uint32_t) * (rank % 4), &all,
                               &offsets, &err) == RKS_OK);
    for (uint32_t other = 0; all != NULL && other < size; other++) {
        uint32_t theirs[3] = {other, other * other, ~other};
        EXPECT(offsets[other + 1] - offsets[other] == sizeof(uint32_t) * (other % 4));
        EXPECT(memcmp(all + offsets[other], theirs, sizeof(uint32_t) * (other % 4)) == 0);
    }
    rks_free(all);
    rks_free(offsets);
    rks_status mine = RKS_OK;
    if (rank >= size / 2)
        mine = rks_fail(&err, RKS_ERR_DATA, rank, "rank %u has had enough", rank);
    EXPECT(rks_group_agree(group, "enough", mine, &err) == RKS_ERR_DATA);
    EXPECT(err.rank == (int32_t)(size / 2) && err.cause == size / 2);
    EXPECT(rks_group_agree(group, "end", RKS_OK, &err) == RKS_OK);
    rks_group_close(group);
    return failures;
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

static int broadcast_large(const rks_bootstrap *bootstrap, void *user)
{
    enum { SIZE = (9 << 20) + 17 }; /* more pieces than may be under way */
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    uint8_t *bytes = calloc(SIZE, 1);
    (void)user;
    EXPECT(open_group(bootstrap, 5000, 2, &group, &err) == RKS_OK);
    for (size_t i = 0; rank == 3 && i < SIZE; i++)
        bytes[i] = (uint8_t)(i * 31 >> 3);
    EXPECT(rks_group_broadcast(group, "bytes of rank 3", 3, bytes, SIZE, &err) == RKS_OK);
    size_t wrong = 0;
    for (size_t i = 0; i < SIZE; i++)
        wrong += bytes[i] != (uint8_t)(i * 31 >> 3);
    EXPECT(wrong == 0);
    free(bytes);
    rks_group_close(group);
    return failures;
}

static void a_broadcast_larger_than_the_window_arrives_whole(void **state)
{
    (void)state;
    on_threads(5, broadcast_large, NULL);
}

static int call_differently(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0, what = *(const int *)user;
    rks_error err = {0};
    rks_group *group = NULL;
    uint8_t bytes[8] = {0}, *all = NULL;
    uint64_t *offsets = NULL;
    rks_status status;
    EXPECT(open_group(bootstrap, 2000, 2, &group, &err) == RKS_OK);
    if (what == 0 && rank == 3) /* the same name, another call */
        status = rks_group_allgather(group, "step", RKS_OK, bytes, 8, &all, &offsets, &err);
    else if (what == 0)
        status = rks_group_agree(group, "step", RKS_OK, &err);
    else
        status = rks_group_broadcast(group, "step", 0, bytes, rank == 3 ? 4 : 8, &err);
    EXPECT(status == RKS_ERR_STATE && strstr(err.text, "'step'") != NULL &&
           strstr(err.text, "rank 3") != NULL);
    rks_group_close(group);
    return failures;
}

static void calls_that_differ_in_more_than_their_name_find_out(void **state)
{
    (void)state;
    for (int what = 0; what < 2; what++)
        on_threads(4, call_differently, &what);
}

static int work_long(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    (void)user;
    EXPECT(open_group(bootstrap, T, per_node, &group, &err) == RKS_OK);
    if (rank == 1) { /* works for five times T without a call, as in a callback */
        volatile uint64_t sum = 0;
        for (uint64_t until = rks_now_ms() + 5 * T; rks_now_ms() < until;)
            sum += rks_now_ns();
    }
    EXPECT(rks_group_agree(group, "work", RKS_OK, &err) == RKS_OK);
    rks_group_close(group);
    return failures;
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
        cmocka_unit_test(a_broadcast_larger_than_the_window_arrives_whole),
        cmocka_unit_test(calls_that_differ_in_more_than_their_name_find_out),
        cmocka_unit_test(a_rank_that_works_longer_than_the_silence_limit_is_waited_for),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
