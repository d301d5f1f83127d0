/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory.c: the transport in memory under rules: slow, in small pieces, silent, cut. */
#include <stdatomic.h>

#include "flight.h"

typedef struct laws {
    atomic_uint turn;
    _Atomic uint64_t delay_ns;
} laws;

static uint64_t delay(void *user, uint32_t from, uint32_t to, size_t size)
{
    laws *l = user;
    (void)from;
    (void)to;
    (void)size;
    return atomic_load(&l->delay_ns);
}

/* Sometimes nothing, mostly a few bytes. */
static size_t few(void *user, uint32_t from, uint32_t to, size_t size, bool writing)
{
    laws *l = user;
    (void)from;
    (void)to;
    unsigned turn = atomic_fetch_add(&l->turn, 1);
    if (writing && turn % 5 == 0)
        return 0;
    size_t most = 1 + turn * 7919 % 3001;
    return size < most ? size : most;
}

static void open_ruled(mesh *m, const rks_memory_rules *rules, uint32_t silence_ms)
{
    rks_transport *transport = NULL;
    assert_ok(rks_memory_transport_create(rules, &transport, &err), &err);
    mesh_open_over(m, 3, transport, silence_ms);
    for (uint32_t i = 0; i < 3; i++)
        rks_engine_serve(m->engines[i], RKS_SERVICE_FETCH, echo, NULL, NULL);
}

static void slow_bytes_in_small_pieces_arrive_in_order(void **state)
{
    (void)state;
    laws l = {.delay_ns = 200000};
    const rks_memory_rules rules = {.user = &l, .delay_ns = delay, .some = few};
    mesh m;
    open_ruled(&m, &rules, 15000);
    for (uint32_t peer = 1; peer < 3; peer++) {
        assert_ok(ask_echo(m.engines[0], peer, 3, 40000, &err), &err);
        assert_ok(ask_echo(m.engines[peer], 0, 1, 300000, &err), &err);
    }
    mesh_close(&m);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void a_cut_connection_fails_its_requests_and_is_made_again(void **state)
{
    (void)state;
    mesh m;
    open_ruled(&m, NULL, 15000);
    assert_ok(ask_echo(m.engines[0], 1, 1, 1000, &err), &err);
    rks_memory_transport_cut(m.memory, 0, 2, RKS_CUT_RESET); /* other ranks' */
    assert_ok(ask_echo(m.engines[0], 1, 1, 1000, &err), &err);
    rks_memory_transport_cut(m.memory, 1, 0, RKS_CUT_RESET);
    rks_status status = ask_echo(m.engines[0], 1, 1, 1000, &err);
    assert_true(status == RKS_OK || status == RKS_ERR_PEER); /* it may have heard in time */
    assert_ok(ask_echo(m.engines[0], 1, 1, 1000, &err), &err);
    mesh_close(&m);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void nobody_connects_to_a_killed_rank(void **state)
{
    (void)state;
    mesh m;
    open_ruled(&m, NULL, 15000);
    assert_ok(ask_echo(m.engines[0], 1, 1, 1000, &err), &err);
    rks_memory_transport_kill(m.memory, 1);
    ask_echo(m.engines[0], 1, 1, 1000, &err); /* over the old connection, or refused */
    assert_fails(RKS_ERR_PEER, ask_echo(m.engines[0], 1, 1, 1000, &err));
    assert_non_null(strstr(err.text, "rank 1"));
    assert_fails(RKS_ERR_PEER, ask_echo(m.engines[1], 2, 1, 1000, &err));
    assert_ok(ask_echo(m.engines[0], 2, 1, 1000, &err), &err);
    mesh_close(&m);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void bytes_that_never_arrive_are_silence(void **state)
{
    (void)state;
    laws l = {.delay_ns = 0};
    const rks_memory_rules rules = {.user = &l, .delay_ns = delay};
    mesh m;
    open_ruled(&m, &rules, 300);
    assert_ok(ask_echo(m.engines[0], 1, 1, 1000, &err), &err);
    atomic_store(&l.delay_ns, RKS_NEVER);
    assert_fails(RKS_ERR_TIMEOUT, ask_echo(m.engines[0], 1, 1, 1000, &err)); /* it was open */
    assert_fails(RKS_ERR_TIMEOUT, ask_echo(m.engines[0], 2, 1, 1000, &err)); /* it never is */
    mesh_close(&m);
    assert_int_equal(rks_memory_in_use(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_bytes_in_small_pieces_arrive_in_order),
        cmocka_unit_test(a_cut_connection_fails_its_requests_and_is_made_again),
        cmocka_unit_test(nobody_connects_to_a_killed_rank),
        cmocka_unit_test(bytes_that_never_arrive_are_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
