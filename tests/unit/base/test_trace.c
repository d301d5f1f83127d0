/* SPDX-License-Identifier: Apache-2.0
 *
 * test_trace.c: spans in rings. */
#include "support/check.h"

#include <pthread.h>

#include "base/trace.h"

static rks_error err;

enum { ROOM = 16 };

static size_t drain(rks_trace_event **events, uint64_t *dropped)
{
    size_t count = 0;
    assert_ok(rks_trace_drain(events, &count, dropped, &err), &err);
    return count;
}

static void what_is_traced_while_off_is_nothing(void **state)
{
    (void)state;
    rks_trace_event *events = NULL;
    uint64_t dropped = 0;
    rks_trace_stop();
    assert_int_equal(rks_trace_begin(), 0);
    rks_trace_end(rks_trace_begin(), RKS_TRACE_WAIT, -1, 1, 2);
    assert_int_equal(drain(&events, &dropped), 0);
    rks_release(events);
}

static void too_large_a_ring_is_refused(void **state)
{
    (void)state;
    assert_fails(RKS_ERR_ARGUMENT, rks_trace_start(RKS_TRACE_EVENTS_MAX + 1, &err));
    assert_int_equal(rks_trace_begin(), 0);
}

static void a_full_ring_keeps_the_last_and_counts_the_others(void **state)
{
    (void)state;
    rks_trace_event *events = NULL;
    uint64_t dropped = 0;
    assert_ok(rks_trace_start(ROOM, &err), &err);
    for (uint64_t i = 0; i < ROOM + 5; i++)
        rks_trace_end(rks_trace_begin(), RKS_TRACE_FETCH, 3, i, 2 * i);
    assert_int_equal(drain(&events, &dropped), ROOM);
    assert_int_equal(dropped, 5);
    for (uint64_t i = 0; i < ROOM; i++) {
        assert_int_equal(events[i].samples, i + 5);
        assert_int_equal(events[i].bytes, 2 * (i + 5));
        assert_int_equal(events[i].peer, 3);
        assert_int_equal(events[i].kind, RKS_TRACE_FETCH);
        assert_true(i == 0 || events[i].begin_ns >= events[i - 1].begin_ns);
    }
    rks_release(events);
    assert_int_equal(drain(&events, &dropped), 0); /* they are forgotten */
    assert_int_equal(dropped, 0);
    rks_release(events);
}

static void *trace_some(void *user)
{
    for (int i = 0; i < 4; i++)
        rks_trace_end(rks_trace_begin(), RKS_TRACE_COPY, -1, *(uint64_t *)user, 0);
    return NULL;
}

static void threads_have_numbers_and_their_rings_are_used_again(void **state)
{
    (void)state;
    rks_trace_event *events = NULL;
    uint64_t dropped = 0, seen = 0;
    assert_ok(rks_trace_start(0, &err), &err); /* rings keep the first size */
    for (uint64_t round = 0; round < 3; round++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, trace_some, &round), 0);
        pthread_join(thread, NULL);
    }
    size_t count = drain(&events, &dropped);
    assert_int_equal(count, 12);
    assert_int_equal(dropped, 0);
    for (size_t i = 0; i < count; i++)
        seen |= UINT64_C(1) << events[i].thread;
    assert_int_equal(__builtin_popcountll(seen), 3); /* three threads, though one ring did */
    rks_release(events);
    rks_trace_stop();
}

static void *trace_until_stopped(void *user)
{
    uint64_t *added = user;
    uint64_t begun;
    while ((begun = rks_trace_begin()) != 0) {
        rks_trace_end(begun, RKS_TRACE_WAIT, -1, 0, 0);
        ++*added;
    }
    return NULL;
}

static void a_drain_while_others_trace_loses_nothing_uncounted(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    uint64_t added[THREADS] = {0}, all = 0, got = 0, gone = 0, dropped = 0;
    rks_trace_event *events = NULL;
    assert_ok(rks_trace_start(0, &err), &err);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, trace_until_stopped, &added[i]), 0);
    while (got < 10000) {
        got += drain(&events, &dropped);
        gone += dropped;
        rks_release(events);
    }
    rks_trace_stop();
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        all += added[i];
    }
    got += drain(&events, &dropped);
    gone += dropped;
    rks_release(events);
    assert_int_equal(got + gone, all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_traced_while_off_is_nothing),
        cmocka_unit_test(too_large_a_ring_is_refused),
        cmocka_unit_test(a_full_ring_keeps_the_last_and_counts_the_others),
        cmocka_unit_test(threads_have_numbers_and_their_rings_are_used_again),
        cmocka_unit_test(a_drain_while_others_trace_loses_nothing_uncounted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
