/* SPDX-License-Identifier: Apache-2.0
 *
 * test_exchange_nccl.c: the nccl exchange over a stand-in of CUDA and NCCL that is loaded as the
 * real ones are: the same bytes as every other exchange, whatever the ranks have. */
#include "nccl_case.h"

static void spread(nccl_case *all, const int *nodes, const int *gpus, const uint64_t *sizes)
{
    for (uint32_t rank = 0; rank < all->ranks; rank++) {
        all->node[rank] = nodes[rank];
        all->gpu[rank] = gpus[rank];
        all->sizes[rank] = sizes[rank];
    }
}

/* A rank a node, as on machines with one GPU. */
static void each_shape_arrives_whole(void **state)
{
    (void)state;
    static const uint64_t shapes[][4] = {
        {1000, 1, 4096, 70001},   {0, 0, 0, 0}, {0, 99999, 0, 0},
        {4096, 4096, 4096, 4096}, {1, 1, 1, 1}, {300000, 0, 17, 65536},
    };
    static const uint32_t chunks[] = {313, 4096, 1 << 20};
    for (size_t shape = 0; shape < 6; shape++) {
        for (size_t chunk = 0; chunk < 3; chunk++) {
            nccl_case *all = nccl_case_new("nccl", 4);
            memcpy(all->sizes, shapes[shape], sizeof(shapes[shape]));
            all->chunk = chunks[chunk];
            nccl_run_case(all, 100);
            nccl_check_good(all, "nccl");
            nccl_case_free(all);
        }
    }
}

static const int two_nodes[] = {0, 0, 0, 1, 1, 1};
static const uint64_t six_sizes[] = {50001, 7, 90000, 30000, 0, 120001};

/* Two GPUs a node and a third rank that shares one of them: two rails, and every carrier takes its
 * part in. */
static void rails_share_a_node_s_stream(void **state)
{
    (void)state;
    static const int gpus[] = {0, 1, 1, 0, 0, 1};
    static const char *const backends[] = {"nccl", "nccl:rails=off", "nccl:slot=65536,rails=on"};
    for (int i = 0; i < 3; i++) {
        nccl_case *all = nccl_case_new(backends[i], 6);
        spread(all, two_nodes, gpus, six_sizes);
        all->piece = 1000;
        nccl_run_case(all, 100);
        nccl_check_good(all, "nccl");
        assert_true(all->results[0].end[5] > 0 || all->results[0].end[3] > 0);
        assert_true(all->results[1].end[5] > 0);
        assert_int_equal(all->results[2].end[5], 0); /* it shares the GPU of rank 1 */
        nccl_case_free(all);
    }
}

/* On one rank: all go by the communicator of all, whose slots serve the next exchange, too. The
 * environment comes before nccl.conf, and the default asks the driver. */
static void without_cumem_there_is_one_communicator(void **state)
{
    (void)state;
    static const int gpus[] = {0, 1, 1, 0, 0, 1};
    static const struct {
        int no_cumem;
        const char *settings, *variable;
        bool flat;
    } cases[] = {
        {-1, "NCCL_DEBUG=WARN\n", NULL, false},
        {4, "", NULL, true},
        {4, "NCCL_CUMEM_ENABLE=-2\n", NULL, true},
        {4, "NCCL_CUMEM_ENABLE=1\n", NULL, false},
        {-1, "# a comment\nNCCL_CUMEM_ENABLE=0", NULL, true},
        {-1, "#NCCL_CUMEM_ENABLE=0\nNCCL_CUMEM_ENABLE_NOT=0\n", NULL, false},
        {-1, "NCCL_RUNTIME_CONNECT=0\n", NULL, true},
        {-1, "NCCL_CUMEM_ENABLE=0\n", "1", false},
        {-1, "", "0x0", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        nccl_case *all = nccl_case_new("nccl:memory=keep", 6);
        spread(all, two_nodes, gpus, six_sizes);
        all->no_cumem = cases[i].no_cumem;
        all->setting = 4;
        all->settings = cases[i].settings;
        all->repeats = 2;
        if (cases[i].variable != NULL)
            setenv("NCCL_CUMEM_ENABLE", cases[i].variable, 1);
        snprintf(all->call, sizeof(all->call), "ncclCommInitRankConfig");
        nccl_run_case(all, 100);
        for (int rank = 0; rank < 6; rank++)
            assert_int_equal(all->results[rank].status, RKS_OK);
        unsetenv("NCCL_CUMEM_ENABLE");
        assert_int_equal(all->results[0].figures.most_ranks, cases[i].flat ? 4 : 2);
        nccl_case_free(all);
    }
}

/* The fewest GPUs of a node count, and a rank without one takes no part. */
static void a_rank_without_a_gpu_takes_no_part(void **state)
{
    (void)state;
    static const int gpus[] = {NO_GPU, 1, 2, 0, NO_GPU, NO_GPU};
    nccl_case *all = nccl_case_new("nccl", 6);
    spread(all, two_nodes, gpus, six_sizes);
    nccl_run_case(all, 100);
    nccl_check_good(all, "nccl");
    assert_int_equal(all->results[0].figures.peak_device_bytes, 0);
    assert_true(all->results[1].end[3] == all->sizes[3]);
    assert_int_equal(all->results[2].figures.peak_device_bytes, 0); /* there is one rail */
    nccl_case_free(all);
}

/* A backend that was named runs, also where nothing has to travel. */
static void one_node_and_one_rank_go_through_the_gpu(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 3; ranks += 2) {
        nccl_case *all = nccl_case_new("nccl", ranks);
        all->always = true;
        for (uint32_t rank = 0; rank < ranks; rank++)
            all->node[rank] = 0;
        nccl_run_case(all, 100);
        nccl_check_good(all, "nccl");
        for (uint32_t sender = 1; sender < ranks; sender++)
            nccl_check_node(all, 0, sender);
        assert_string_equal(all->results[0].stats.why, "named");
        nccl_case_free(all);
    }
}

static void memory_stays_within_two_slots(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl:slot=65536", 3);
    for (int rank = 0; rank < 3; rank++)
        all->sizes[rank] = 4 << 20;
    all->chunk = 1 << 20;
    nccl_run_case(all, 100);
    nccl_check_good(all, "nccl");
    for (int rank = 0; rank < 3; rank++) {
        const nccl_result *result = &all->results[rank];
        assert_true(result->stats.gpu_buffer_bytes <= 2 * 65536);
        assert_true(result->stats.gpu_buffer_bytes > 65536);
        assert_int_equal(result->stats.gpu_buffer_bytes, result->figures.peak_device_bytes);
        assert_int_equal(result->stats.pinned_bytes, result->figures.peak_pinned_bytes);
        assert_true(result->stats.pinned_bytes <= 4 * 65536);
        assert_int_equal(result->stats.gpu_nccl_bytes, 20 << 20); /* what the stand-in takes */
        assert_int_equal(result->stats.gpu_code_bytes, 100 << 20);
        assert_int_equal(result->stats.peak_bytes, 0);
        const rks_memory_figure *kinds = result->memory.kinds;
        assert_int_equal(kinds[RKS_MEMORY_PINNED].peak, result->stats.pinned_bytes);
        assert_int_equal(kinds[RKS_MEMORY_GPU_SLOTS].peak, result->stats.gpu_buffer_bytes);
        assert_int_equal(kinds[RKS_MEMORY_GPU_NCCL].peak, 120 << 20); /* with its code */
    }
    nccl_case_free(all);
}

static nccl_result second_of_two(const char *backend)
{
    nccl_case *all = nccl_case_new(backend, 3);
    all->repeats = 2;
    all->hears = true;
    nccl_run_case(all, 100);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(all->results[rank].status, RKS_OK);
    nccl_result result = all->results[1];
    nccl_case_free(all);
    return result;
}

/* The code is loaded once; what a setting of NCCL's adds is told, and does not pass as code. */
static void more_memory_than_is_meant_is_told(void **state)
{
    (void)state;
    nccl_result second = second_of_two("nccl");
    assert_int_equal(second.stats.gpu_nccl_bytes, 20 << 20);
    assert_int_equal(second.stats.gpu_code_bytes, 0);
    assert_string_equal(second.printed, "");
    assert_string_equal(second_of_two("nccl:memory=keep").printed, "");
    setenv("NCCL_MIN_NCHANNELS", "16", 1);
    second = second_of_two("nccl");
    nccl_result kept = second_of_two("nccl:memory=keep"); /* printed when its group is closed */
    unsetenv("NCCL_MIN_NCHANNELS");
    assert_int_equal(second.stats.gpu_nccl_bytes, 160 << 20);
    assert_int_equal(second.stats.gpu_code_bytes, 0);
    static const char *const line = "rankstore: exchange nccl: it took 160 MiB of GPU memory, more "
                                    "than 128: NCCL_MIN_NCHANNELS is above 2\n";
    assert_contains(second.printed, line);
    assert_string_equal(kept.printed, line);
}

/* ---- kept from one exchange to the next ------------------------------------------------- */

static void check_nothing_left(const nccl_case *all)
{
    for (uint32_t rank = 0; rank < all->ranks; rank++) {
        const nccl_result *result = &all->results[rank];
        const double_figures *left = &result->at_end;
        assert_int_equal(result->status, RKS_OK);
        assert_string_equal(result->wrong, "");
        assert_int_equal(left->device_bytes + left->pinned_bytes + left->nccl_bytes, 0);
        assert_int_equal(left->streams + left->events + left->communicators + left->contexts, 0);
        assert_int_equal(left->pushed, 0);
    }
}

static void what_is_kept_serves_the_next_exchange(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("nccl:memory=keep", 3);
    snprintf(all->call, sizeof(all->call), "ncclCommInitRankConfig");
    all->repeats = 3;
    nccl_run_case(all, 100);
    check_nothing_left(all);
    for (int rank = 0; rank < 3; rank++) {
        const nccl_result *result = &all->results[rank];
        assert_int_equal(result->calls, 0); /* of the last exchange: no communicator was made */
        assert_int_equal(result->figures.communicators, 1);
        assert_int_equal(result->figures.nccl_bytes, 20 << 20);
        assert_int_equal(result->figures.device_bytes, result->stats.gpu_buffer_bytes);
        assert_int_equal(result->figures.pushed, 0);
        assert_int_equal(result->stats.gpu_nccl_bytes, 120 << 20); /* with its code */
        assert_int_equal(result->at_end.aborts, 0);                /* its end is an orderly one */
    }
    nccl_case_free(all);
}

/* Other rails, another size of slots, nothing kept any more: made anew where it must be. */
static void what_is_kept_gives_way(void **state)
{
    (void)state;
    static const char *const then[] = {"nccl:rails=off", "nccl:memory=keep,slot=1048576", "nccl",
                                       "pull"};
    static const uint64_t made[] = {1, 0, 0, 0};
    for (int i = 0; i < 4; i++) {
        nccl_case *all = nccl_case_new("nccl:memory=keep,slot=4096", 3);
        snprintf(all->call, sizeof(all->call), "ncclCommInitRankConfig");
        all->repeats = 2;
        all->then = then[i];
        all->chunk = 65536;
        nccl_run_case(all, 100);
        check_nothing_left(all);
        for (int rank = 0; rank < 3; rank++) {
            assert_int_equal(all->results[rank].calls, made[i]);
            assert_int_equal(all->results[rank].figures.communicators, i == 1 || i == 3);
        }
        nccl_case_free(all);
    }
}

/* ---- auto ------------------------------------------------------------------------------------ */

static int auto_main(const rks_bootstrap *bootstrap, void *user)
{
    rks_exchange_nccl_from(1);
    return nccl_main(bootstrap, user);
}

static void run_auto(nccl_case *all)
{
    nccl_run_by(all, auto_main, 600);
}

static void auto_takes_nccl_where_much_is_to_travel(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("auto", 3);
    run_auto(all);
    nccl_check_good(all, "nccl");
    assert_contains(all->results[1].stats.why, "auto: 0 MB for each of 3 nodes");
    nccl_run_case(all, 100); /* below the size from which on it pays */
    nccl_check_good(all, "pull");
    assert_contains(all->results[1].stats.why, "needs neither MPI nor GPUs");
    assert_int_equal(all->results[1].figures.peak_device_bytes, 0);
    nccl_case_free(all);
}

/* Where NCCL fails, at its start or in the middle, all go on together by another way. */
static void auto_goes_on_without_nccl(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuInit", "ncclCommInitRankConfig", "ncclGroupEnd"};
    for (int i = 0; i < 3; i++) {
        nccl_case *all = nccl_case_new("auto", 3);
        /* The fourth round: bytes have been taken in already. */
        nccl_set_fault(all, 2, calls[i], i == 2 ? 4 : 1, DOUBLE_FAILS);
        run_auto(all);
        nccl_check_good(all, "pull");
        for (int rank = 0; rank < 3; rank++) {
            assert_contains(all->results[rank].stats.why, "auto: nccl failed");
            assert_int_equal(all->results[rank].restarts, 1);
        }
        nccl_case_free(all);
    }
}

/* Its own source or sink would fail again. */
static void auto_does_not_try_again_what_is_broken(void **state)
{
    (void)state;
    nccl_case *all = nccl_case_new("auto", 3);
    all->source_fails = 1;
    run_auto(all);
    nccl_check_failed(all, RKS_ERR_DATA, 1, "the source is broken");
    all->source_fails = -1;
    all->no_restart = true; /* the caller cannot forget what it has taken in */
    nccl_set_fault(all, 2, "ncclGroupEnd", 4, DOUBLE_FAILS);
    run_auto(all);
    nccl_check_failed(all, RKS_ERR_IO, 2, "NCCL");
    nccl_case_free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_shape_arrives_whole),
        cmocka_unit_test(rails_share_a_node_s_stream),
        cmocka_unit_test(without_cumem_there_is_one_communicator),
        cmocka_unit_test(a_rank_without_a_gpu_takes_no_part),
        cmocka_unit_test(one_node_and_one_rank_go_through_the_gpu),
        cmocka_unit_test(memory_stays_within_two_slots),
        cmocka_unit_test(more_memory_than_is_meant_is_told),
        cmocka_unit_test(what_is_kept_serves_the_next_exchange),
        cmocka_unit_test(what_is_kept_gives_way),
        cmocka_unit_test(auto_takes_nccl_where_much_is_to_travel),
        cmocka_unit_test(auto_goes_on_without_nccl),
        cmocka_unit_test(auto_does_not_try_again_what_is_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
