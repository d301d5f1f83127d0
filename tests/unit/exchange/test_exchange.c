/* SPDX-License-Identifier: Apache-2.0
 *
 * test_exchange.c: ranks as threads (local and pull) and as processes (pull over TCP) get each
 * other's streams, whole or not at all. */
#include "exchange/exchange.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "base/memory.h"
#include "exchange/exchange_backend.h"
#include "exchange_case.h"

static const char *const backends[] = {"local", "pull"};
static const exchange_case whole = {.chunk = 4096, .receivers = 0xff};

static void run_threads(exchange_case *all, uint32_t ranks)
{
    rks_error err;
    int code = 0;
    alarm(600); /* nothing here may hang */
    assert_ok(rks_launch_threads(ranks, case_main, all, &code, &err), &err);
    alarm(0);
}

/* ---- what arrives ---------------------------------------------------------------------------- */

/* Every shape on one group each: sizes, chunk. */
typedef struct many_cases {
    exchange_case *cases;
    size_t count;
} many_cases;

static int run_many(const rks_bootstrap *bootstrap, void *user)
{
    many_cases *many = user;
    rks_group *group = NULL;
    rks_error err;
    if (open_group_on(bootstrap, NULL, 0, &group, &err) != RKS_OK)
        return 2;
    int code = 0;
    for (size_t i = 0; i < many->count; i++)
        code |= case_run(group, &many->cases[i]);
    rks_group_close(group);
    return code;
}

enum { SHAPES = 6, CHUNKS = 4 };
static const uint64_t shapes[SHAPES][CASE_RANKS] = {
    {1000, 1, 4096, 0, 70001, 8191, 30000, 5}, /* uneven */
    {0, 0, 0, 0, 0, 0, 0, 0},                  /* empty */
    {0, 0, 0, 99999, 0, 0, 0, 0},              /* one sender */
    {0, 20000, 20000, 20000, 20000, 20000, 20000, 0},
    {4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096},
    {1, 1, 1, 1, 1, 1, 1, 1},
};
static const uint32_t chunks[CHUNKS] = {313, 4096, 65536, 1 << 20};

static size_t make_shapes(exchange_case *cases, const char *backend)
{
    size_t count = 0;
    for (int shape = 0; shape < SHAPES; shape++) {
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            exchange_case *made = &cases[count++];
            *made = whole;
            made->backend = backend;
            made->chunk = chunks[chunk];
            memcpy(made->sizes, shapes[shape], sizeof(made->sizes));
        }
    }
    /* Two nodes of four: leaders receive, and skip what their node has. */
    exchange_case *nodes = &cases[count++];
    *nodes = cases[0];
    nodes->receivers = 0x11;
    nodes->skips[0] = 0x0f;
    nodes->skips[4] = 0xf0;
    exchange_case *nobody = &cases[count++];
    *nobody = cases[0];
    nobody->receivers = 0;
    return count;
}

static void eight_threads_get_the_same_bytes(void **state)
{
    (void)state;
    rks_error err;
    for (int backend = 0; backend < 2; backend++) {
        exchange_case *cases = calloc(SHAPES * CHUNKS + 2, sizeof(*cases));
        many_cases many = {cases, make_shapes(cases, backends[backend])};
        int code = -1;
        alarm(600);
        assert_ok(rks_launch_threads(8, run_many, &many, &code, &err), &err);
        alarm(0);
        for (size_t i = 0; i < many.count; i++)
            case_check_good(&cases[i], 8, backends[backend]);
        assert_int_equal(code, 0);
        assert_int_equal(cases[many.count - 2].results[0].received, 70001 + 8191 + 30000 + 5);
        assert_int_equal(cases[many.count - 2].results[1].received, 0);
        free(cases);
        assert_int_equal(rks_memory_in_use(), 0);
        assert_int_equal(counted_memory(), 0);
    }
}

static void processes_get_the_same_bytes_over_tcp(void **state)
{
    (void)state;
    rks_error err;
    size_t size = (SHAPES * CHUNKS + 2) * sizeof(exchange_case);
    exchange_case *cases =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(cases, MAP_FAILED);
    many_cases many = {cases, make_shapes(cases, "auto")};
    int code = -1;
    alarm(600);
    assert_ok(rks_launch(4, run_many, &many, &code, &err), &err);
    alarm(0);
    for (size_t i = 0; i < many.count; i++)
        case_check_good(&cases[i], 4, "pull");
    assert_int_equal(code, 0);
    munmap(cases, size);
}

/* Nodes of two, three (the last one smaller) and four, streams of many shapes, boundaries anywhere,
 * close together, and further apart than a chunk. */
static const uint32_t grains[] = {0, 1000, 9000};
enum { SHARED = SHAPES * 2 * 3 };

static void make_shared(exchange_case *cases, const char *backend, uint32_t of_a_node)
{
    size_t count = 0;
    for (int shape = 0; shape < SHAPES; shape++) {
        for (int chunk = 1; chunk < 3; chunk++) {
            for (int grain = 0; grain < 3; grain++) {
                exchange_case *made = &cases[count++];
                *made = whole;
                made->backend = backend;
                made->chunk = chunks[chunk];
                made->of_a_node = of_a_node;
                made->grain = grains[grain];
                memcpy(made->sizes, shapes[shape], sizeof(made->sizes));
            }
        }
    }
}

static int run_shared(const rks_bootstrap *bootstrap, void *user)
{
    many_cases *many = user;
    rks_group *group = NULL;
    rks_error err;
    char node[16];
    snprintf(node, sizeof(node), "n%u", bootstrap->rank / many->cases[0].of_a_node);
    if (open_group_on(bootstrap, node, 0, &group, &err) != RKS_OK)
        return 2;
    int code = 0;
    for (size_t i = 0; i < many->count; i++)
        code |= case_run(group, &many->cases[i]);
    rks_group_close(group);
    return code;
}

static void check_shared(const exchange_case *cases, uint32_t ranks, const char *used)
{
    for (size_t i = 0; i < SHARED; i++) {
        case_check_good(&cases[i], ranks, used);
        case_check_shared(&cases[i], ranks);
    }
}

static void the_ranks_of_a_node_share_what_it_receives(void **state)
{
    (void)state;
    rks_error err;
    exchange_case *cases = calloc(SHARED, sizeof(*cases));
    for (int backend = 0; backend < 2; backend++) {
        for (uint32_t of = 2; of <= 4; of++) {
            many_cases many = {cases, SHARED};
            make_shared(cases, backends[backend], of);
            int code = -1;
            alarm(100);
            assert_ok(rks_launch_threads(8, run_shared, &many, &code, &err), &err);
            alarm(0);
            check_shared(cases, 8, backends[backend]);
            assert_int_equal(code, 0);
            assert_int_equal(rks_memory_in_use(), 0);
            assert_int_equal(counted_memory(), 0);
        }
    }
    free(cases);
}

static void each_rank_of_a_node_takes_an_even_part(void **state)
{
    (void)state;
    exchange_case all = whole;
    all.backend = "pull";
    all.of_a_node = 4;
    all.grain = 1000;
    all.sizes[0] = 400000; /* of one sender */
    run_threads(&all, 8);
    case_check_good(&all, 8, "pull");
    case_check_shared(&all, 8);
    for (int rank = 4; rank < 8; rank++) {
        assert_int_equal(all.results[rank].received, 100000);
        assert_int_equal(all.results[rank].begins[0], 100000 * (rank - 4));
    }
    for (int rank = 1; rank < 4; rank++)
        assert_int_equal(all.results[rank].received, 0);
}

/* Streams of one size: a rank takes those of its own place on the other nodes. */
static void even_streams_come_from_ranks_at_the_same_place(void **state)
{
    (void)state;
    exchange_case all = whole;
    all.backend = "pull";
    all.of_a_node = 2;
    all.grain = 1000;
    for (int rank = 0; rank < 8; rank++)
        all.sizes[rank] = 7000;
    run_threads(&all, 8);
    case_check_good(&all, 8, "pull");
    case_check_shared(&all, 8);
    for (int rank = 0; rank < 8; rank++)
        for (int sender = 0; sender < 8; sender++)
            assert_int_equal(all.results[rank].ends[sender] > 0,
                             sender % 2 == rank % 2 && sender != rank);
}

static void shares_arrive_over_tcp(void **state)
{
    (void)state;
    rks_error err;
    size_t size = SHARED * sizeof(exchange_case);
    exchange_case *cases =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(cases, MAP_FAILED);
    many_cases many = {cases, SHARED};
    make_shared(cases, "auto", 2);
    int code = -1;
    alarm(100);
    assert_ok(rks_launch(4, run_shared, &many, &code, &err), &err);
    alarm(0);
    check_shared(cases, 4, "pull");
    assert_int_equal(code, 0);
    munmap(cases, size);
}

static void a_rank_alone_has_nothing_to_do(void **state)
{
    (void)state;
    exchange_case all = whole;
    all.backend = "auto";
    all.sizes[0] = 10000;
    run_threads(&all, 1);
    case_check_good(&all, 1, all.results[0].used);
}

static void ranks_may_ask_for_different_chunks(void **state)
{
    (void)state;
    exchange_case all = whole;
    all.backend = "auto"; /* threads: local */
    all.chunk = all.other_chunk = 777;
    memcpy(all.sizes, shapes[0], sizeof(all.sizes));
    run_threads(&all, 8);
    case_check_good(&all, 8, "local");
}

static void staging_memory_does_not_grow_with_the_streams(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        uint64_t peak[2];
        for (int big = 0; big < 2; big++) {
            exchange_case all = whole;
            all.backend = backends[backend];
            for (int rank = 0; rank < 4; rank++)
                all.sizes[rank] = big ? 1 << 20 : 1 << 15;
            run_threads(&all, 4);
            case_check_good(&all, 4, backends[backend]);
            peak[big] = 0;
            for (int rank = 0; rank < 4; rank++) {
                const rks_exchange_stats *stats = &all.results[rank].stats;
                peak[big] = stats->peak_bytes > peak[big] ? stats->peak_bytes : peak[big];
                uint64_t due = 3 * all.sizes[rank];
                assert_true(stats->bytes_received >= due);
                assert_true(stats->bytes_received <= due + due / 100 + 4096);
                assert_true(stats->bytes_sent >= due);
            }
        }
        uint64_t limit = 2 * 4 * (4096 + 64); /* four lanes in, four replies out */
        assert_true(peak[0] >= 4096 && peak[0] <= limit);
        assert_true(peak[1] >= 4096 && peak[1] <= limit);
    }
}

/* Threads of this process that serve requests. */
static unsigned count_io_threads(void)
{
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], name[16] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
        FILE *comm = fopen(path, "r");
        if (comm != NULL && fgets(name, sizeof(name), comm) != NULL)
            count += strcmp(name, "rks-io\n") == 0;
        if (comm != NULL)
            fclose(comm);
    }
    closedir(tasks);
    return count;
}

typedef struct threads_case {
    exchange_case all;
    unsigned threads;
} threads_case;

static int run_and_count(const rks_bootstrap *bootstrap, void *user)
{
    threads_case *c = user;
    rks_group *group = NULL;
    rks_error err;
    if (open_group_on(bootstrap, NULL, 0, &group, &err) != RKS_OK)
        return 2;
    int code = case_run(group, &c->all);
    if (code == 0 && bootstrap->rank == 0) /* the others wait for it */
        c->threads = count_io_threads();
    rks_status status = rks_group_agree(group, "counted", RKS_OK, &err);
    rks_group_close(group);
    return status == RKS_OK ? code : 2;
}

/* A thread that is started or woken for each costs more than the copy. */
static void small_chunks_need_no_other_thread(void **state)
{
    (void)state;
    for (int large = 0; large < 2; large++) {
        rks_error err;
        int code = 0;
        threads_case c = {.all = whole};
        c.all.backend = "pull";
        c.all.chunk = large ? 1 << 20 : 1 << 16;
        for (int rank = 0; rank < CASE_RANKS; rank++)
            c.all.sizes[rank] = large ? 1 << 20 : 100000;
        alarm(600);
        assert_ok(rks_launch_threads(CASE_RANKS, run_and_count, &c, &code, &err), &err);
        alarm(0);
        case_check_good(&c.all, CASE_RANKS, "pull");
        assert_int_equal(c.threads > 0, large);
    }
}

/* ---- what fails ------------------------------------------------------------------------------ */

/* Each rank's source or sink fails; `of_a_node`: ranks that share, 0: each is a node. */
static void check_each_failing(uint32_t of_a_node)
{
    for (int backend = 0; backend < 2; backend++) {
        for (uint32_t rank = 0; rank < 4; rank++) {
            for (int sink = 0; sink < 2; sink++) {
                exchange_case all = whole;
                all.backend = backends[backend];
                all.of_a_node = of_a_node;
                all.fault = sink ? FAULT_SINK : FAULT_SOURCE;
                all.fault_rank = rank;
                for (int i = 0; i < 4; i++)
                    all.sizes[i] = 100000;
                run_threads(&all, 4);
                case_check_failed(&all, 4, sink ? RKS_ERR_IO : RKS_ERR_DATA, (int32_t)rank,
                                  sink ? "the sink is full" : "the source is broken");
                assert_int_equal(all.results[3].err.cause, sink ? 5 : 7);
            }
        }
        assert_int_equal(rks_memory_in_use(), 0);
        assert_int_equal(counted_memory(), 0);
    }
}

static void a_failing_source_or_sink_ends_all_with_its_error(void **state)
{
    (void)state;
    check_each_failing(whole.of_a_node);
}

static void a_failing_share_ends_all_with_its_error(void **state)
{
    (void)state;
    check_each_failing(2);
}

/* All ranks are on one node. */
static int share_on_one_node(const rks_bootstrap *bootstrap, void *user)
{
    exchange_case *all = user;
    case_result *result = &all->results[bootstrap->rank];
    rks_group *group = NULL;
    result->status = open_group_on(bootstrap, NULL, 0, &group, &result->err);
    if (result->status == RKS_OK)
        case_run(group, all);
    rks_group_close(group);
    return 0;
}

static void a_node_that_shares_has_one_receiver(void **state)
{
    (void)state;
    rks_error err;
    exchange_case all = whole;
    int code = -1;
    all.backend = "pull";
    all.of_a_node = 2;
    for (int i = 0; i < 4; i++)
        all.sizes[i] = 1000;
    alarm(100);
    assert_ok(rks_launch_threads(4, share_on_one_node, &all, &code, &err), &err);
    alarm(0);
    case_check_failed(&all, 4, RKS_ERR_ARGUMENT, -1,
                      "ranks 0 and 2 receive for one node that shares");
}

static void a_sender_that_receives_nothing_may_fail(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        exchange_case all = whole;
        all.backend = backends[backend];
        all.receivers = 1;
        all.fault = FAULT_SOURCE;
        all.fault_rank = 3;
        for (int i = 0; i < 4; i++)
            all.sizes[i] = 100000;
        run_threads(&all, 4);
        case_check_failed(&all, 4, RKS_ERR_DATA, 3, "the source is broken");
    }
}

static void a_rank_that_leaves_ends_the_others(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        exchange_case all = whole;
        all.backend = backends[backend];
        all.silence_ms = 2000;
        all.fault = FAULT_LEAVE;
        all.fault_rank = 2;
        for (int i = 0; i < 4; i++)
            all.sizes[i] = 100000;
        run_threads(&all, 4);
        for (int i = 0; i < 4; i++)
            if (i != 2)
                assert_int_not_equal(all.results[i].status, RKS_OK);
    }
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

static void a_killed_process_ends_the_others(void **state)
{
    (void)state;
    rks_error err;
    exchange_case *all =
        mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    *all = whole;
    all->backend = "pull";
    all->silence_ms = 200000; /* longer than the alarm: it is not by its silence that they know */
    all->fault = FAULT_KILL;
    all->fault_rank = 2;
    for (int i = 0; i < 4; i++)
        all->sizes[i] = 1 << 20;
    int code = 0;
    alarm(600);
    assert_ok(rks_launch(4, case_main, all, &code, &err), &err);
    alarm(0);
    assert_int_not_equal(code, 0);
    for (int i = 0; i < 4; i++) {
        if (i == 2)
            continue;
        if (strstr(all->results[i].err.text, "rank 2") == NULL)
            print_error("rank %d: %s\n", i, all->results[i].err.text);
        assert_int_equal(all->results[i].status, RKS_ERR_PEER);
        assert_string_equal(all->results[i].wrong, "");
    }
    munmap(all, sizeof(*all));
}

static void a_backend_that_cannot_run_is_refused_on_all_ranks(void **state)
{
    (void)state;
    exchange_case all = whole;
    all.backend = "mpi";
    run_threads(&all, 3);
    case_check_failed(&all, 3, RKS_ERR_UNSUPPORTED, 0, "mpirun");
    all = whole;
    all.backend = "pull";
    all.other_backend = "carrier pigeon";
    run_threads(&all, 3);
    case_check_failed(&all, 3, RKS_ERR_ARGUMENT, 1, "carrier pigeon");
    all = whole;
    all.backend = "pull";
    all.other_backend = "local";
    run_threads(&all, 3);
    case_check_failed(&all, 3, RKS_ERR_ARGUMENT, -1, "ranks 0 and 1");
}

static int local_in_a_process(const rks_bootstrap *bootstrap, void *user)
{
    exchange_case *all = user;
    case_main(bootstrap, user);
    case_result *result = &all->results[bootstrap->rank];
    return result->status == RKS_ERR_UNSUPPORTED && strstr(result->err.text, "threads") != NULL ? 0
                                                                                                : 1;
}

static void local_is_refused_between_processes(void **state)
{
    (void)state;
    rks_error err;
    exchange_case all = whole;
    all.backend = "local";
    int code = -1;
    alarm(600);
    assert_ok(rks_launch(2, local_in_a_process, &all, &code, &err), &err);
    alarm(0);
    assert_int_equal(code, 0);
}

/* This rank hears that it must stop, of an error that no rank brings. */
static atomic_int misled = -1;

rks_status __real_rks_group_must_stop(rks_group *group, rks_error *err);
rks_status __wrap_rks_group_must_stop(rks_group *group, rks_error *err);

rks_status __wrap_rks_group_must_stop(rks_group *group, rks_error *err)
{
    if (atomic_load(&misled) == (int)rks_group_rank(group))
        return rks_fail(err, RKS_ERR_PEER, 0, "another rank failed");
    return __real_rks_group_must_stop(group, err);
}

static void a_rank_that_stops_for_nobody_s_error_fails_on_all_ranks(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        exchange_case all = whole;
        all.backend = backends[backend];
        for (int i = 0; i < 4; i++)
            all.sizes[i] = 100000;
        atomic_store(&misled, 2);
        run_threads(&all, 4);
        atomic_store(&misled, -1);
        case_check_failed(&all, 4, RKS_ERR_STATE, -1, "stopped, but no rank has an error");
    }
}

static atomic_int questions;

static int interrupt_soon(void *user)
{
    (void)user;
    return atomic_fetch_add(&questions, 1) > 40;
}

static void an_interrupt_ends_it(void **state)
{
    (void)state;
    for (int backend = 0; backend < 2; backend++) {
        exchange_case all = whole;
        all.backend = backends[backend];
        all.silence_ms = 2000;
        all.chunk = 16;
        for (int i = 0; i < 4; i++)
            all.sizes[i] = 1 << 20;
        atomic_store(&questions, 0);
        rks_set_interrupt(interrupt_soon, NULL);
        run_threads(&all, 4);
        rks_set_interrupt(NULL, NULL);
        for (int i = 0; i < 4; i++)
            assert_int_not_equal(all.results[i].status, RKS_OK);
    }
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

/* ---- allocations ----------------------------------------------------------------------------- */

static void each_failing_allocation_of_a_rank_alone_is_an_error(void **state)
{
    (void)state;
    rks_error err;
    rks_group *group = NULL;
    assert_ok(open_group_on(NULL, NULL, 0, &group, &err), &err);
    long before = rks_memory_in_use();
    bool passed = false;
    for (long nth = 1; !passed; nth++) {
        assert_true(nth < 100);
        exchange_case all = whole;
        all.backend = "pull";
        all.sizes[0] = 10000;
        rks_memory_fail_at(nth);
        passed = case_run(group, &all) == 0;
        rks_memory_fail_at(0);
        if (!passed)
            assert_int_equal(all.results[0].status, RKS_ERR_MEMORY);
        if (rks_group_failed(group)) { /* it could not take its own result in */
            rks_group_close(group);
            assert_ok(open_group_on(NULL, NULL, 0, &group, &err), &err);
        }
        /* A group keeps what its last agreement brought. */
        assert_ok(rks_group_agree(group, "test: nothing", RKS_OK, &err), &err);
        assert_int_equal(rks_memory_in_use(), before);
    }
    rks_group_close(group);
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

typedef struct alloc_case {
    exchange_case all;
    long nth;
} alloc_case;

static int fail_one_allocation(const rks_bootstrap *bootstrap, void *user)
{
    alloc_case *failing = user;
    rks_group *group = NULL;
    rks_error err;
    if (open_group_on(bootstrap, NULL, 2000, &group, &err) != RKS_OK)
        return 2;
    /* All are connected when rank 0 begins. */
    rks_status status = rks_group_agree(group, "test: first", RKS_OK, &err);
    if (status == RKS_OK)
        status = rks_group_agree(group, "test: second", RKS_OK, &err);
    if (status == RKS_OK) {
        if (bootstrap->rank == 0)
            rks_memory_fail_at(failing->nth);
        case_run(group, &failing->all);
    }
    rks_group_close(group);
    return status == RKS_OK ? 0 : 2;
}

/* Any rank's, and also those of engine and group: then it may end differently on each, but it ends,
 * and no rank has wrong bytes. */
static void each_failing_allocation_ends_all(void **state)
{
    (void)state;
    rks_error err;
    for (int backend = 0; backend < 2; backend++) {
        int passes = 0;
        for (long nth = 1; passes < 3; nth++) {
            assert_true(nth < 1000);
            alloc_case failing = {whole, nth};
            failing.all.backend = backends[backend];
            for (int i = 0; i < 3; i++)
                failing.all.sizes[i] = 10000;
            int code = -1;
            alarm(600);
            assert_ok(rks_launch_threads(3, fail_one_allocation, &failing, &code, &err), &err);
            alarm(0);
            rks_memory_fail_at(0);
            int good = 0;
            for (int i = 0; i < 3; i++) {
                good += failing.all.results[i].status == RKS_OK;
                assert_string_equal(failing.all.results[i].wrong, "");
            }
            passes = good == 3 ? passes + 1 : 0;
            assert_int_equal(rks_memory_in_use(), 0);
            assert_int_equal(counted_memory(), 0);
        }
    }
}

/* The view of rank 1 of four, all of which send and receive. */
static void each_failing_allocation_of_a_backend_is_an_error(void **state)
{
    (void)state;
    rks_error err;
    rks_group *group = NULL;
    assert_ok(open_group_on(NULL, NULL, 0, &group, &err), &err);
    long before = rks_memory_in_use();
    const rks_exchange_backend *const both[] = {&rks_exchange_local, &rks_exchange_pull};
    for (int backend = 0; backend < 2; backend++) {
        bool passed = false;
        for (long nth = 1; !passed; nth++) {
            assert_true(nth < 100);
            rks_exchange_job job = {.size = 1000, .receives = true};
            uint64_t sizes[4] = {1000, 1000, 1000, 1000};
            bool wanted[4] = {true, false, true, true}, wanters[4] = {true, false, true, true};
            rks_exchange_plan plan = {.group = group,
                                      .job = &job,
                                      .rank = 1,
                                      .size = 4,
                                      .chunk = 100,
                                      .room = 100,
                                      .send_room = 100,
                                      .sizes = sizes,
                                      .wanted = wanted,
                                      .wanters = wanters};
            void *prepared = NULL;
            uint64_t token = 0;
            rks_memory_fail_at(nth);
            rks_status status = both[backend]->prepare(&plan, &prepared, &token, &err);
            rks_memory_fail_at(0);
            passed = status == RKS_OK;
            if (!passed) {
                assert_int_equal(status, RKS_ERR_MEMORY);
                assert_null(prepared);
            } else {
                assert_true(plan.stats.peak_bytes >= 100);
                both[backend]->close(&plan, prepared);
            }
            assert_int_equal(rks_memory_in_use(), before);
        }
    }
    rks_group_close(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_get_the_same_bytes_over_tcp),
        cmocka_unit_test(even_streams_come_from_ranks_at_the_same_place),
        cmocka_unit_test(shares_arrive_over_tcp),
        cmocka_unit_test(a_killed_process_ends_the_others),
        cmocka_unit_test(local_is_refused_between_processes),
        cmocka_unit_test(eight_threads_get_the_same_bytes),
        cmocka_unit_test(the_ranks_of_a_node_share_what_it_receives),
        cmocka_unit_test(each_rank_of_a_node_takes_an_even_part),
        cmocka_unit_test(a_failing_share_ends_all_with_its_error),
        cmocka_unit_test(a_node_that_shares_has_one_receiver),
        cmocka_unit_test(a_rank_alone_has_nothing_to_do),
        cmocka_unit_test(ranks_may_ask_for_different_chunks),
        cmocka_unit_test(staging_memory_does_not_grow_with_the_streams),
        cmocka_unit_test(small_chunks_need_no_other_thread),
        cmocka_unit_test(a_failing_source_or_sink_ends_all_with_its_error),
        cmocka_unit_test(a_sender_that_receives_nothing_may_fail),
        cmocka_unit_test(a_rank_that_leaves_ends_the_others),
        cmocka_unit_test(a_rank_that_stops_for_nobody_s_error_fails_on_all_ranks),
        cmocka_unit_test(a_backend_that_cannot_run_is_refused_on_all_ranks),
        cmocka_unit_test(an_interrupt_ends_it),
        cmocka_unit_test(each_failing_allocation_of_a_rank_alone_is_an_error),
        cmocka_unit_test(each_failing_allocation_of_a_backend_is_an_error),
        cmocka_unit_test(each_failing_allocation_ends_all),
    };
    return cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
}
