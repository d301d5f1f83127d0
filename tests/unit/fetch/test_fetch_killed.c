/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fetch_killed.c: owners that are processes of their own, killed or stopped while a fetch
 * waits for them; and shards whose file was cut. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "world.h"

enum { SILENCE_MS = 5000 };

/* An owner in a process of its own. */
typedef struct owner {
    pid_t pid;
    int to, from; /* pipes: addresses, then a byte for each request that came */
    rks_engine *engine;
} owner;

static int byte_out = -1;

static void tell_and_hold(void *user, rks_request *request)
{
    (void)user;
    (void)request; /* never answered: this process will be killed */
    if (write(byte_out, "r", 1) != 1)
        _exit(3);
}

static rks_engine *open_engine(uint32_t rank)
{
    rks_engine *engine = NULL;
    rks_engine_options options;
    rks_engine_options_default(&options);
    options.rank = rank;
    options.size = 2;
    options.silence_ms = SILENCE_MS;
    options.io_threads = 2;
    return rks_engine_open(&options, &engine, &err) == RKS_OK ? engine : NULL;
}

static bool join(rks_engine *engine, uint32_t rank, int in, int out)
{
    static const uint8_t session[16] = {1}, secret[RKS_SECRET_SIZE] = {2};
    rks_address addresses[2];
    addresses[rank] = *rks_engine_address(engine);
    return write(out, &addresses[rank], sizeof(rks_address)) == sizeof(rks_address) &&
           read(in, &addresses[1 - rank], sizeof(rks_address)) == sizeof(rks_address) &&
           rks_engine_join(engine, addresses, session, secret, &err) == RKS_OK;
}

static _Noreturn void owner_main(int in, int out, bool honest)
{
    rks_fetch_server *server = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rks_engine *engine = open_engine(1);
    byte_out = out;
    if (engine == NULL || !join(engine, 1, in, out))
        _exit(1);
    if (!honest)
        rks_engine_serve(engine, RKS_SERVICE_FETCH, tell_and_hold, NULL, &w);
    else if (rks_fetch_server_open(engine, RKS_SERVICE_FETCH, w.shards, WORLD_SHARDS, 1, &server,
                                   &err) != RKS_OK)
        _exit(2);
    if (write(out, "s", 1) != 1)
        _exit(3);
    for (;;)
        pause();
}

static void start_owner(owner *o, bool honest)
{
    int down[2], up[2];
    char byte;
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    o->pid = fork();
    assert_true(o->pid >= 0);
    if (o->pid == 0)
        owner_main(down[0], up[1], honest);
    close(down[0]);
    close(up[1]);
    o->to = down[1];
    o->from = up[0];
    o->engine = open_engine(0);
    assert_non_null(o->engine);
    assert_true(join(o->engine, 0, o->from, o->to));
    assert_int_equal(read(o->from, &byte, 1), 1); /* it serves */
}

static void end_owner(owner *o)
{
    int status = 0;
    kill(o->pid, SIGKILL);
    waitpid(o->pid, &status, 0);
    rks_engine_close(o->engine, 0);
    close(o->to);
    close(o->from);
}

static const int32_t ONE[] = {1, -1};
static const int32_t *const OWNERS[] = {ONE, ONE, ONE};

static rks_fetcher *open_fetcher(rks_engine *engine, unsigned mapped)
{
    rks_fetcher *fetcher = NULL;
    rks_fetcher_options options = world_options(0, mapped, OWNERS);
    options.engine = engine;
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    return fetcher;
}

/* A fetch waits for an owner that this signal hits; returns its error and how long it took. */
static rks_status fetch_from_victim(int signal_number, uint64_t *took_ms)
{
    owner o;
    char byte;
    rks_batch *batch = NULL;
    rks_fetch *fetch = NULL;
    rks_wanted wanted[2] = {world_wanted(7), world_wanted(801)};
    start_owner(&o, false);
    rks_fetcher *fetcher = open_fetcher(o.engine, 1);
    assert_ok(world_start(fetcher, wanted, 2, &fetch, &err), &err);
    assert_int_equal(read(o.from, &byte, 1), 1); /* the request has come */
    uint64_t begin = rks_now_ms();
    kill(o.pid, signal_number);
    rks_status status = rks_fetch_wait(fetch, &batch, &err);
    *took_ms = rks_now_ms() - begin;
    assert_null(batch);
    assert_int_equal(err.rank, 1);
    assert_contains(err.text, "sample 801");
    assert_ok(world_fetch(fetcher, wanted, 1, &batch, &err), &err); /* mapped: goes on */
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
    end_owner(&o);
    return status;
}

static void a_killed_owner_ends_the_wait(void **state)
{
    (void)state;
    uint64_t took_ms;
    assert_fails(RKS_ERR_PEER, fetch_from_victim(SIGKILL, &took_ms));
    assert_true(took_ms < 10 * SILENCE_MS); /* at once, but the machine may be busy */
}

static void a_stopped_owner_ends_the_wait_after_the_silence(void **state)
{
    (void)state;
    uint64_t took_ms;
    assert_fails(RKS_ERR_TIMEOUT, fetch_from_victim(SIGSTOP, &took_ms));
    assert_in_range(took_ms, SILENCE_MS / 3, 10 * SILENCE_MS);
}

static void another_process_serves(void **state)
{
    (void)state;
    owner o;
    rks_batch *batch = NULL;
    uint64_t ids[300];
    rks_wanted wanted[300];
    start_owner(&o, true);
    rks_fetcher *fetcher = open_fetcher(o.engine, 0);
    for (size_t i = 0; i < 300; i++)
        ids[i] = i * 4;
    world_wanted_many(ids, 300, wanted);
    assert_ok(world_fetch(fetcher, wanted, 300, &batch, &err), &err);
    world_check_batch(batch, ids, 300);
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
    end_owner(&o);
}

static void a_cut_file_is_an_error_of_its_samples_only(void **state)
{
    (void)state;
    owner o;
    char path[128];
    rks_shard *again = NULL;
    /* cmocka took the handler of SIGBUS for this test; an open takes it back */
    snprintf(path, sizeof(path), "%s/part0.json", w.directory);
    assert_ok(rks_shard_open(path, &again, &err), &err);
    rks_shard_close(again);
    start_owner(&o, true);
    assert_int_equal(truncate(rks_shard_path(w.shards[1]), 8192), 0);
    for (unsigned mapped = 0; mapped < 8; mapped += 7) {
        rks_fetcher *fetcher = open_fetcher(o.engine, mapped);
        rks_batch *batch = NULL;
        rks_wanted bad[2] = {world_wanted(3), world_wanted(777)};
        for (int times = 0; times < 2; times++) {
            assert_fails(RKS_ERR_IO, world_fetch(fetcher, bad, 2, &batch, &err));
            assert_contains(err.text, "sample 777 (key key/777)");
            assert_ok(world_fetch(fetcher, bad, 1, &batch, &err), &err);
            world_check_sample(batch, 0, 3);
            rks_batch_free(batch);
        }
        rks_fetcher_close(fetcher);
    }
    end_owner(&o);
}

static int open_world(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    world_open();
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    world_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_process_serves),
        cmocka_unit_test(a_killed_owner_ends_the_wait),
        cmocka_unit_test(a_stopped_owner_ends_the_wait_after_the_silence),
        cmocka_unit_test(a_cut_file_is_an_error_of_its_samples_only), /* the last: it does harm */
    };
    alarm(600); /* a wait that never ends is a failure, not a stuck job */
    return cmocka_run_group_tests_name("fetch_killed", tests, open_world, close_world);
}
