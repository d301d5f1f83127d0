/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nccl_kept.c: memory=keep when something fails: what one exchange has left for the next one
 * of its group, and beside another group. */
#include "nccl_case.h"

/* ---- one group ------------------------------------------------------------------------------- */

/* What is kept may fail later, as what is new. */
static void what_was_kept_may_fail(void **state)
{
    (void)state;
    static const char *const calls[] = {"ncclGroupEnd", "cuEventRecord", "ncclGetVersion"};
    for (int i = 0; i < 3; i++) {
        nccl_case *all = nccl_case_new("nccl:memory=keep", 3);
        all->repeats = 2;
        nccl_set_fault(all, 2, calls[i], 1, DOUBLE_FAILS);
        nccl_run_case(all, 100);
        for (int rank = 0; rank < 3; rank++) {
            const nccl_result *result = &all->results[rank];
            if (i < 2)
                assert_int_not_equal(result->status, RKS_OK);
            assert_int_equal(nccl_holds(&result->at_end), 0);
        }
        nccl_case_free(all);
    }
}

/* The second exchange uses what the first one kept. */
static void a_killed_rank_ends_those_that_keep(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl:memory=keep", 3);
    all->repeats = 2;
    nccl_set_fault(all, 1, "ncclGroupEnd", 3, DOUBLE_KILLS);
    nccl_run_case(all, 100);
    nccl_check_lost(all, 1);
    for (int rank = 0; rank < 3; rank += 2)
        assert_int_equal(nccl_holds(&all->results[rank].at_end), 0);
    nccl_case_free(all);
}

/* An abort that never returns leaves its memory behind. Frees would wait for that: the exchange
 * that drops it fails, and the next one of the process goes another way. */
static void what_was_left_behind_ends_the_use_of_nccl(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl:memory=keep", 3);
    all->abort_ms = 1000;
    all->repeats = 2;
    all->then = "nccl:rails=off"; /* what was kept is dropped, by abort */
    nccl_set_fault(all, 0, "ncclCommAbort", 1, DOUBLE_HANGS);
    all->once_more = "nccl";
    nccl_run_case(all, 100);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(all->results[rank].status, RKS_ERR_UNSUPPORTED);
        assert_int_equal(all->results[rank].err.rank, 0);
        assert_contains(all->results[rank].err.text, "could not be ended in an earlier exchange");
        assert_int_equal(all->results[rank].at_end.communicators, rank == 0); /* none was made */
    }
    nccl_case_free(all);
}

/* ---- two groups ------------------------------------------------------------------------------ */

typedef struct two_groups {
    nccl_case all;
    bool loses;                         /* rank 0 cannot end NCCL in the third exchange */
    nccl_result results[5][NCCL_RANKS]; /* of each exchange */
} two_groups;

static void exchange_as(two_groups *t, rks_group *group, int turn, const char *backend)
{
    uint32_t rank = rks_group_rank(group);
    nccl_exchange(group, &t->all, backend);
    t->results[turn][rank] = t->all.results[rank];
}

/* Each keeps what it has; then the first one exchanges again, and the second one. */
static int two_groups_main(const rks_bootstrap *bootstrap, void *user)
{
    two_groups *t = user;
    nccl_double gpu = nccl_double_load();
    uint32_t rank = bootstrap->rank;
    rks_group *first = NULL, *second = NULL;
    rks_error err;
    rks_communicator_abort_ms = 1000;
    if (nccl_group(bootstrap, &t->all, &gpu, &first, &err) != RKS_OK ||
        nccl_group(bootstrap, &t->all, &gpu, &second, &err) != RKS_OK)
        return 2;
    exchange_as(t, first, 0, "nccl:memory=keep");
    exchange_as(t, second, 1, "nccl:memory=keep");
    if (t->loses && rank == 0)
        gpu.set_fault("ncclCommAbort", 1, DOUBLE_HANGS);
    if (t->loses && rank == 2)
        gpu.set_fault("ncclGroupEnd", 2, DOUBLE_NEVER_DONE);
    exchange_as(t, first, 2, "nccl:timeout=1,memory=keep");
    exchange_as(t, second, 3, "nccl:memory=keep");
    rks_group_close(first);
    exchange_as(t, second, 4, "nccl:memory=keep");
    gpu.figures(&t->all.results[rank].figures);
    rks_group_close(second);
    gpu.figures(&t->all.results[rank].at_end);
    if (t->loses)
        _exit(0); /* what is left behind is meant, and no leak */
    return 0;
}

static two_groups *run_two_groups(bool loses)
{
    two_groups *t =
        mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(t, MAP_FAILED);
    nccl_case *model = nccl_case_new("nccl", 3);
    t->all = *model;
    nccl_case_free(model);
    t->loses = loses;
    rks_error err;
    int code = -1;
    alarm(100);
    assert_ok(rks_launch(3, two_groups_main, t, &code, &err), &err);
    alarm(0);
    assert_int_equal(code, 0);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(t->all.results[rank].at_end.complaints, 0);
    return t;
}

static void two_groups_keep_apart_what_they_have(void **state)
{
    (void)state;
    two_groups *t = run_two_groups(false);
    for (int rank = 0; rank < 3; rank++) {
        for (int turn = 0; turn < 5; turn++)
            assert_int_equal(t->results[turn][rank].status, RKS_OK);
        assert_int_equal(t->all.results[rank].figures.communicators, 1); /* the first is closed */
        assert_int_equal(t->all.results[rank].at_end.aborts, 0);
        assert_int_equal(nccl_holds(&t->all.results[rank].at_end), 0);
    }
    munmap(t, sizeof(*t));
}

/* The GPU of that process never becomes idle, so nothing on it can be freed: the other group's
 * communicator is left, too, and nobody waits for it. */
static void what_another_group_keeps_is_left_when_nccl_is_lost(void **state)
{
    (void)state;
    two_groups *t = run_two_groups(true);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(t->results[1][rank].status, RKS_OK);
        assert_int_equal(t->results[2][rank].status, RKS_ERR_TIMEOUT);
        for (int turn = 3; turn < 5; turn++) {
            assert_int_equal(t->results[turn][rank].status, RKS_ERR_UNSUPPORTED);
            assert_int_equal(t->results[turn][rank].err.rank, 0);
            assert_contains(t->results[turn][rank].err.text, "could not be ended in an earlier");
        }
        assert_int_equal(t->all.results[rank].at_end.communicators, rank == 0 ? 2 : 0);
        assert_int_equal(t->all.results[rank].at_end.pushed, 0);
    }
    munmap(t, sizeof(*t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_kept_may_fail),
        cmocka_unit_test(a_killed_rank_ends_those_that_keep),
        cmocka_unit_test(what_was_left_behind_ends_the_use_of_nccl),
        cmocka_unit_test(two_groups_keep_apart_what_they_have),
        cmocka_unit_test(what_another_group_keeps_is_left_when_nccl_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
