/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nccl_faults.c: whatever fails in the nccl exchange, all ranks end with the same error, soon,
 * and hold nothing of the GPU; then they exchange again. */
#include "nccl_case.h"

#include "base/clock.h"

/* ---- a rank's own errors ---------------------------------------------------------------- */

static void a_broken_source_or_sink_is_every_rank_s_error(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        nccl_case *all = nccl_case_new("nccl", 3);
        all->source_fails = rank;
        nccl_run_case(all, 100);
        nccl_check_failed(all, RKS_ERR_DATA, rank, "the source is broken");
        all->source_fails = -1;
        all->sink_fails = rank;
        nccl_run_case(all, 100);
        nccl_check_failed(all, RKS_ERR_IO, rank, "the sink is full");
        nccl_case_free(all);
    }
}

/* A rank of another rail, which shares no communicator with it. */
static void an_error_ends_the_other_rails(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl", 6);
    for (int rank = 0; rank < 6; rank++) {
        all->node[rank] = rank / 2;
        all->gpu[rank] = rank % 2;
        all->sizes[rank] = 400000;
    }
    all->source_fails = 3;
    nccl_run_case(all, 100);
    nccl_check_failed(all, RKS_ERR_DATA, 3, "the source is broken");
    nccl_case_free(all);
}

/* ---- every call ------------------------------------------------------------------------------ */

/* All in one group: rank 1 has a fault at its nth call of CUDA or NCCL; then all exchange without a
 * fault, by NCCL and by another way. The first n without a fault ends it. */
typedef struct sweep {
    nccl_case all;
    uint64_t steps, failed;
    uint64_t slowest_ms;
    char wrong[256];
} sweep;

static bool same_error(rks_group *group, nccl_result *result)
{
    rks_gathered all = {0};
    rks_error err, mine = result->err;
    if (result->status == RKS_OK)
        memset(&mine, 0, sizeof(mine));
    bool same = rks_group_allgather(group, "test: errors", RKS_OK, &mine, sizeof(mine), &all,
                                    &err) == RKS_OK;
    for (uint32_t rank = 0; same && rank < rks_group_size(group); rank++) {
        rks_error theirs;
        memcpy(&theirs, all.bytes + all.offsets[rank], sizeof(theirs));
        same = theirs.status == mine.status && theirs.rank == mine.rank &&
               strcmp(theirs.text, mine.text) == 0;
    }
    rks_release(all.bytes);
    rks_release(all.offsets);
    return same;
}

/* *more: the fault has happened, on the rank that has it. */
static void sweep_step(sweep *s, rks_group *group, const nccl_double *gpu, bool *more)
{
    nccl_case *all = &s->all;
    uint32_t rank = rks_group_rank(group);
    nccl_result *result = &all->results[rank];
    uint64_t calls = 0, before = rks_now_ms();
    if (rank == 1)
        gpu->set_fault(NULL, s->steps + 1, DOUBLE_FAILS);
    rks_status status = nccl_exchange(group, all, "nccl");
    uint64_t took = rks_now_ms() - before;
    double_figures left;
    gpu->figures(&left);
    bool happened = rank == 1 && gpu->happened(&calls);
    if (rank == 1)
        gpu->set_fault(NULL, 0, DOUBLE_FAILS);
    if (!same_error(group, result))
        snprintf(s->wrong, sizeof(s->wrong), "step %llu, rank %u: %s", (unsigned long long)s->steps,
                 rank, status == RKS_OK ? "good" : result->err.text);
    if (nccl_holds(&left))
        snprintf(s->wrong, sizeof(s->wrong), "step %llu, rank %u holds something of the GPU",
                 (unsigned long long)s->steps, rank);
    if (left.complaints > 0)
        snprintf(s->wrong, sizeof(s->wrong), "step %llu, rank %u: the stand-in complains",
                 (unsigned long long)s->steps, rank);
    if (rank == 0 && status != RKS_OK)
        s->failed++;
    if (took > s->slowest_ms)
        s->slowest_ms = took;
    if (nccl_exchange(group, all, s->steps % 2 == 0 ? "nccl" : "pull") != RKS_OK)
        snprintf(s->wrong, sizeof(s->wrong), "after step %llu: %.150s",
                 (unsigned long long)s->steps, result->err.text);
    rks_gathered told = {0};
    rks_error err;
    *more = false;
    if (rks_group_allgather(group, "test: more", RKS_OK, &happened, 1, &told, &err) == RKS_OK)
        *more = told.bytes[1] != 0;
    rks_release(told.bytes);
    rks_release(told.offsets);
}

static int sweep_main(const rks_bootstrap *bootstrap, void *user)
{
    sweep *s = user;
    nccl_double gpu = nccl_double_load();
    rks_group *group = NULL;
    rks_error err;
    if (nccl_group(bootstrap, &s->all, &gpu, &group, &err) != RKS_OK)
        return 2;
    bool more = true;
    while (more && s->wrong[0] == '\0') {
        sweep_step(s, group, &gpu, &more);
        rks_group_agree(group, "test: step", RKS_OK, &err);
        if (rks_group_rank(group) == 0)
            s->steps++;
        rks_group_agree(group, "test: next", RKS_OK, &err);
    }
    rks_group_close(group);
    return 0;
}

static void each_failing_call_is_every_rank_s_error(void **state)
{
    (void)state;
    sweep *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(s, MAP_FAILED);
    nccl_case *model = nccl_case_new("nccl", 3);
    s->all = *model;
    nccl_case_free(model);
    for (int rank = 0; rank < 3; rank++)
        s->all.sizes[rank] = 9000;
    rks_error err;
    int code = -1;
    alarm(600);
    assert_ok(rks_launch(3, sweep_main, s, &code, &err), &err);
    alarm(0);
    assert_string_equal(s->wrong, "");
    assert_int_equal(code, 0);
    print_message("%llu calls, %llu of them end the exchange; the slowest end took %llu ms\n",
                  (unsigned long long)s->steps, (unsigned long long)s->failed,
                  (unsigned long long)s->slowest_ms);
    assert_in_range(s->steps, 60, 400);
    assert_true(s->failed > 40);
    munmap(s, sizeof(*s));
}

/* As CUDA does after a fault of a kernel, the training's too: nothing can be freed any more, and
 * the process uses NCCL no more. */
static void an_error_of_cuda_that_stays_ends_all(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth < 120; nth += 9) {
        nccl_case *all = nccl_case_new("nccl", 3);
        nccl_set_fault(all, 1, "", nth, DOUBLE_STICKS);
        for (int rank = 0; rank < 3; rank++)
            all->sizes[rank] = 9000;
        nccl_run_case(all, 100);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(all->results[rank].status, all->results[1].status);
            assert_string_equal(all->results[rank].err.text, all->results[1].err.text);
            assert_int_equal(all->results[rank].at_end.pushed, 0);
            assert_true(rank == 1 || nccl_holds(&all->results[rank].at_end) == 0);
        }
        if (nth < 90)
            assert_int_not_equal(all->results[0].status, RKS_OK);
        nccl_case_free(all);
    }
}

static void a_round_may_fail_while_it_is_in_progress(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 5; nth += 2) {
        nccl_case *all = nccl_case_new("nccl", 3);
        nccl_set_fault(all, 2, "ncclGroupEnd", nth, DOUBLE_FAILS_LATER);
        nccl_run_case(all, 100);
        nccl_check_failed(all, RKS_ERR_IO, 2, "NCCL");
        nccl_case_free(all);
    }
}

/* Its memory is left as it is, since NCCL may still write to it; all ranks end. */
static void an_abort_that_fails_or_never_returns_is_left_behind(void **state)
{
    (void)state;
    static const double_fault faults[] = {DOUBLE_HANGS, DOUBLE_FAILS};
    for (int i = 0; i < 2; i++) {
        nccl_case *all = nccl_case_new("nccl", 3);
        all->abort_ms = 1000;
        all->source_fails = 1;
        nccl_set_fault(all, 0, "ncclCommAbort", 1, faults[i]);
        nccl_run_case(all, 100);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(all->results[rank].status, RKS_ERR_DATA);
            assert_int_equal(all->results[rank].at_end.pushed, 0);
            assert_int_equal(nccl_holds(&all->results[rank].at_end) != 0, rank == 0);
        }
        nccl_case_free(all);
    }
}

/* An abort may take as long as it likes: all ranks know of the error before one begins, whether it
 * came while the exchange was made ready or in a round. */
static void an_error_is_known_before_anything_is_ended(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuEventRecord", "cuMemcpyHtoDAsync_v2", "ncclGroupEnd",
                                        "ncclGroupEnd"};
    static const uint64_t nth[] = {1, 1, 1, 4}; /* the first round is the warm-up */
    for (int i = 0; i < 4; i++) {
        nccl_case *all = nccl_case_new("nccl", 3);
        nccl_set_fault(all, 1, calls[i], nth[i], DOUBLE_FAILS);
        nccl_run_case(all, 100);
        nccl_check_failed(all, RKS_ERR_IO, 1, "");
        for (int rank = 0; rank < 3; rank++) {
            const nccl_result *result = &all->results[rank];
            assert_int_equal(result->at_end.aborts, 1);
            assert_int_not_equal(result->stats.agreed_ns, 0);
            assert_true(result->stats.agreed_ns <= result->at_end.first_abort_ns);
        }
        nccl_case_free(all);
    }
}

/* A context takes hundreds of MB: ranks that carry nothing make none. */
static void only_carriers_make_a_context(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl", 4);
    for (int rank = 0; rank < 4; rank++) {
        all->node[rank] = rank / 2;
        all->gpu[rank] = 0; /* a GPU a node: the second rank of each node carries nothing */
    }
    nccl_run_case(all, 100);
    nccl_check_good(all, "nccl");
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(all->results[rank].figures.peak_contexts, rank % 2 == 0);
    nccl_case_free(all);
}

static void a_blocking_nccl_is_refused(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl", 2);
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    nccl_run_case(all, 100);
    nccl_check_failed(all, RKS_ERR_UNSUPPORTED, -1,
                      "NCCL_COMM_BLOCKING=1 (environment): a wait for a lost");
    unsetenv("NCCL_COMM_BLOCKING");
    all->setting = 1;
    all->settings = "NCCL_DEBUG=WARN\nNCCL_COMM_BLOCKING=1\n";
    nccl_run_case(all, 100);
    nccl_check_failed(all, RKS_ERR_UNSUPPORTED, 1, "NCCL_COMM_BLOCKING=1 (nccl.conf): a wait");
    setenv("NCCL_COMM_BLOCKING", "0", 1); /* which comes before the file */
    nccl_run_case(all, 100);
    unsetenv("NCCL_COMM_BLOCKING");
    nccl_check_good(all, "nccl");
    nccl_case_free(all);
}

/* ---- ranks that go away, hang, or are late --------------------------------------------------- */

static void a_killed_rank_ends_the_others(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuInit",       "cuMemAlloc_v2", "ncclCommInitRankConfig",
                                        "ncclGroupEnd", "ncclGroupEnd",  "ncclCommFinalize"};
    static const uint64_t nth[] = {1, 2, 1, 1, 5, 1};
    for (int i = 0; i < 6; i++) {
        nccl_case *all = nccl_case_new("nccl", 3);
        nccl_set_fault(all, 1, calls[i], nth[i], DOUBLE_KILLS);
        nccl_run_case(all, 100);
        if (i == 5) /* all have ended the exchange; it may be good for the others */
            assert_int_equal(all->results[0].wrong[0], '\0');
        else
            nccl_check_lost(all, 1);
        nccl_case_free(all);
    }
}

static void a_round_that_is_never_done_ends_by_its_limit(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl:timeout=3", 3);
    nccl_set_fault(all, 2, "ncclGroupEnd", 4, DOUBLE_NEVER_DONE);
    nccl_run_case(all, 100);
    nccl_check_failed(all, RKS_ERR_TIMEOUT, -1, "was not done within 3000 ms");
    nccl_set_fault(all, 2, "ncclGroupEnd", 1, DOUBLE_NEVER_DONE); /* the warm-up */
    nccl_run_case(all, 100);
    nccl_check_failed(all, RKS_ERR_TIMEOUT, -1, "within 3000 ms");
    nccl_case_free(all);
}

/* Ten times as long as a round, 120 s at most. */
static void a_communicator_that_is_never_made_ends_by_its_limit(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl:timeout=1", 3);
    nccl_set_fault(all, 1, "ncclCommInitRankConfig", 1, DOUBLE_NEVER_DONE);
    nccl_run_case(all, 100);
    nccl_check_failed(all, RKS_ERR_TIMEOUT, -1, "not made within 10 s; NCCL_SOCKET_IFNAME names");
    nccl_case_free(all);
}

static void a_late_rank_is_waited_for(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuInit", "ncclCommInitRankConfig", "ncclGroupEnd"};
    for (int i = 0; i < 3; i++) {
        nccl_case *all = nccl_case_new("nccl", 3);
        nccl_set_fault(all, 0, calls[i], 1, DOUBLE_LATE);
        nccl_run_case(all, 100);
        nccl_check_good(all, "nccl");
        nccl_case_free(all);
    }
}

static void a_damaged_round_is_found(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl", 3);
    nccl_set_fault(all, 0, "ncclGroupEnd", 3, DOUBLE_DAMAGES);
    nccl_run_case(all, 100);
    nccl_check_failed(all, RKS_ERR_CORRUPT, 0, "exchange: round 1 from rank 1");
    nccl_case_free(all);
}

/* ---- what cannot run ------------------------------------------------------------------------- */

static void versions_of_nccl_must_be_the_same(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl", 3);
    all->version[2] = 23003;
    nccl_run_case(all, 100);
    nccl_check_failed(all, RKS_ERR_UNSUPPORTED, -1, "NCCL differs: rank 0 (");
    assert_contains(all->results[0].err.text, "2.28.9");
    assert_contains(all->results[0].err.text, "has 2.30.3");
    for (int rank = 0; rank < 3; rank++)
        all->version[rank] = 21700;
    nccl_run_case(all, 100);
    nccl_check_failed(all, RKS_ERR_UNSUPPORTED, 0, "NCCL 2.17 is too old");
    nccl_case_free(all);
}

static void a_node_without_a_gpu_is_named(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl", 3);
    all->gpu[1] = NO_GPU;
    nccl_run_case(all, 100);
    nccl_check_failed(all, RKS_ERR_UNSUPPORTED, 1, "no CUDA-capable device is detected");
    nccl_case_free(all);
}

static void a_capture_is_not_disturbed(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl", 3);
    all->capturing = 2;
    nccl_run_case(all, 100);
    nccl_check_failed(all, RKS_ERR_STATE, 2, "captures a CUDA graph");
    nccl_case_free(all);
}

static void odd_options_are_named(void **state)
{
    (void)state;
    static const char *const backends[] = {
        "nccl:fast",       "nccl:rails=2",   "nccl:timeout=0",     "nccl:slot=-1",
        "nccl:timeout=9x", "pull:rails=off", "nccl:memory=suspend"};
    static const char *const texts[] = {"\"fast\"",
                                        "\"rails=2\"",
                                        "timeout is a number",
                                        "slot is a",
                                        "timeout is a number",
                                        "pull has no options",
                                        "\"memory=suspend\": there are"};
    for (int i = 0; i < 7; i++) {
        nccl_case *all = nccl_case_new(backends[i], 2);
        nccl_run_case(all, 100);
        nccl_check_failed(all, RKS_ERR_ARGUMENT, -1, texts[i]);
        nccl_case_free(all);
    }
}

static int without_libraries(const rks_bootstrap *bootstrap, void *user)
{
    nccl_case *all = user;
    nccl_double gpu = nccl_double_load();
    if (bootstrap->rank == 1)
        setenv(all->call, "/nonexistent/lib.so", 1);
    rks_group *group = NULL;
    nccl_result *result = &all->results[bootstrap->rank];
    if (nccl_group(bootstrap, all, &gpu, &group, &result->err) != RKS_OK)
        return 2;
    nccl_exchange(group, all, all->backend);
    rks_group_close(group);
    return 0;
}

static void a_missing_library_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"RKS_CUDA_LIBRARY", "RKS_NCCL_LIBRARY"};
    static const char *const texts[] = {"no CUDA driver: /nonexistent", "no NCCL: /nonexistent"};
    for (int i = 0; i < 2; i++) {
        nccl_case *all = nccl_case_new("nccl", 2);
        rks_error err;
        int code = -1;
        snprintf(all->call, sizeof(all->call), "%s", names[i]);
        alarm(600);
        assert_ok(rks_launch(2, without_libraries, all, &code, &err), &err);
        alarm(0);
        nccl_check_failed(all, RKS_ERR_UNSUPPORTED, 1, texts[i]);
        nccl_case_free(all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_broken_source_or_sink_is_every_rank_s_error),
        cmocka_unit_test(an_error_ends_the_other_rails),
        cmocka_unit_test(each_failing_call_is_every_rank_s_error),
        cmocka_unit_test(an_error_of_cuda_that_stays_ends_all),
        cmocka_unit_test(a_round_may_fail_while_it_is_in_progress),
        cmocka_unit_test(an_abort_that_fails_or_never_returns_is_left_behind),
        cmocka_unit_test(an_error_is_known_before_anything_is_ended),
        cmocka_unit_test(only_carriers_make_a_context),
        cmocka_unit_test(a_blocking_nccl_is_refused),
        cmocka_unit_test(a_killed_rank_ends_the_others),
        cmocka_unit_test(a_round_that_is_never_done_ends_by_its_limit),
        cmocka_unit_test(a_communicator_that_is_never_made_ends_by_its_limit),
        cmocka_unit_test(a_late_rank_is_waited_for),
        cmocka_unit_test(a_damaged_round_is_found),
        cmocka_unit_test(versions_of_nccl_must_be_the_same),
        cmocka_unit_test(a_node_without_a_gpu_is_named),
        cmocka_unit_test(a_capture_is_not_disturbed),
        cmocka_unit_test(odd_options_are_named),
        cmocka_unit_test(a_missing_library_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
