/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fetch_held_up.c: a thread that is held up, for longer than timeout_ms, between taking
 * another fetch's request from the queue and giving it to the engine. The linker puts our
 * rks_engine_call_all and rks_fetch_reply_check before the library's: that is where threads stop.
 *
 *   the fetch   128 rows of rank 1, and 1 row that has no room until the first reply has come
 *   the engine  stops at that reply, before its room goes to those that wait
 *   a sender    begins another fetch, takes the request for the 1 row, and stops before sending it
 *   the engine  goes on: the waiter has all samples but one, gives that request up and asks rank 2
 *   the sender  goes on, after the batch is gone: what is sent lies in the request */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/memory.h"
#include "fetch/wire.h"
#include "world.h"

enum { TIMEOUT_MS = 500, ROWS = 129 };

typedef struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool shut, reached; /* guarded by mutex */
} gate;

static gate reply = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};
static gate write_out = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};
static _Thread_local bool is_sender;

static void pass(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    g->reached = true;
    pthread_cond_broadcast(&g->changed);
    while (g->shut)
        pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

static void set_gate(gate *g, bool shut)
{
    pthread_mutex_lock(&g->mutex);
    g->shut = shut;
    g->reached = false;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
}

static void wait_for_arrival(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    while (!g->reached)
        pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

rks_status __real_rks_engine_call_all(rks_engine *engine, rks_call *first, rks_error *why);
rks_status __wrap_rks_engine_call_all(rks_engine *engine, rks_call *first, rks_error *why);
rks_status __wrap_rks_engine_call_all(rks_engine *engine, rks_call *first, rks_error *why)
{
    if (is_sender)
        pass(&write_out);
    return __real_rks_engine_call_all(engine, first, why);
}

rks_status __real_rks_fetch_reply_check(const uint8_t *bytes, size_t size, size_t asked,
                                        size_t *served, rks_error *why);
rks_status __wrap_rks_fetch_reply_check(const uint8_t *bytes, size_t size, size_t asked,
                                        size_t *served, rks_error *why);
rks_status __wrap_rks_fetch_reply_check(const uint8_t *bytes, size_t size, size_t asked,
                                        size_t *served, rks_error *why)
{
    pass(&reply);
    return __real_rks_fetch_reply_check(bytes, size, asked, served, why);
}

static void begin(rks_fetcher *fetcher, uint64_t first, size_t count, rks_fetch **fetch)
{
    rks_wanted wanted[ROWS];
    for (size_t i = 0; i < count; i++)
        wanted[i] = world_wanted(first + i);
    assert_ok(world_start(fetcher, wanted, count, fetch, &err), &err);
}

typedef struct work {
    rks_fetcher *fetcher;
    rks_fetch *fetch;
    atomic_bool done;
    rks_batch *batch;
} work;

static void *send_other(void *user)
{
    work *other = user;
    is_sender = true;
    begin(other->fetcher, 200, 1, &other->fetch);
    return NULL;
}

/* What was fetched is used and freed at once, as a caller may. */
static void *wait_and_free(void *user)
{
    work *own = user;
    rks_error why;
    uint64_t ids[ROWS];
    for (uint64_t i = 0; i < ROWS; i++)
        ids[i] = i;
    assert_ok(rks_fetch_wait(own->fetch, &own->batch, &why), &why);
    world_check_batch(own->batch, ids, ROWS);
    rks_batch_free(own->batch);
    atomic_store(&own->done, true);
    return NULL;
}

static void a_request_that_is_given_up_while_it_is_sent_needs_no_batch(void **state)
{
    (void)state;
    static const int32_t BOTH[] = {1, 2, -1};
    static const int32_t *const owners[] = {BOTH, BOTH, BOTH};
    rks_fetch_server *servers[2];
    pthread_t sender, waiter;
    alarm(600);
    world_connect(3, 15000);
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(rks_fetch_server_open(w.engines[i + 1], RKS_SERVICE_FETCH, w.shards, WORLD_SHARDS,
                                        1, &servers[i], &err),
                  &err);
    rks_fetcher_options options = world_options(0, 0, owners);
    options.timeout_ms = TIMEOUT_MS;
    options.inflight_bytes = 16 * (w.largest[0] + 1024); /* not 128 rows and another one */
    work own = {0}, other = {0};
    assert_ok(rks_fetcher_open(&options, &own.fetcher, &err), &err);
    other.fetcher = own.fetcher;

    set_gate(&reply, true);
    set_gate(&write_out, true);
    begin(own.fetcher, 0, ROWS, &own.fetch);
    wait_for_arrival(&reply);
    assert_int_equal(pthread_create(&sender, NULL, send_other, &other), 0);
    wait_for_arrival(&write_out);
    set_gate(&reply, false);
    assert_int_equal(pthread_create(&waiter, NULL, wait_and_free, &own), 0);
    for (unsigned i = 0; i < 100000 && !atomic_load(&own.done); i++)
        usleep(1000);
    assert_true(atomic_load(&own.done)); /* by rank 2, and the batch has been freed */
    set_gate(&write_out, false);
    assert_int_equal(pthread_join(sender, NULL), 0);
    assert_int_equal(pthread_join(waiter, NULL), 0);
    assert_ok(rks_fetch_wait(other.fetch, &other.batch, &err), &err);
    rks_batch_free(other.batch);

    rks_fetcher_close(own.fetcher);
    for (size_t i = 0; i < 2; i++)
        rks_fetch_server_close(servers[i]);
    world_disconnect();
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_is_given_up_while_it_is_sent_needs_no_batch),
    };
    return cmocka_run_group_tests_name("fetch_held_up", tests, world_begin, world_end);
}
