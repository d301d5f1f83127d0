/* SPDX-License-Identifier: Apache-2.0
 *
 * test_closing.c: engines that close, or give up, with requests and notes on their way. */
#include "flight.h"

#include <pthread.h>

static void closing_ends_what_is_outstanding(void **state)
{
    mesh m;
    shelf s = {0};
    event landed;
    event_init(&s.kept);
    event_init(&landed);
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, keep_request, NULL, &s);
    flight f = {.landed = &landed};
    assert_ok(fly(m.engines[0], 1, RKS_SERVICE_FETCH, "x", 1, &f), &err);
    event_wait(&s.kept, 1);
    rks_engine_close(m.engines[0], 1000);
    m.engines[0] = NULL;
    assert_int_equal(f.done, 1);
    assert_int_equal(f.status, RKS_ERR_STATE);
    assert_contains(f.err.text, "a flight");
    fail_all(&s);
    mesh_close(&m);
}

static void a_request_may_be_answered_after_the_owner_has_closed(void **state)
{
    mesh m;
    shelf s = {0};
    event landed;
    event_init(&s.kept);
    event_init(&landed);
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, keep_request, NULL, &s);
    flight f = {.landed = &landed};
    assert_ok(fly(m.engines[0], 1, RKS_SERVICE_FETCH, "x", 1, &f), &err);
    event_wait(&s.kept, 1);
    rks_engine_close(m.engines[1], 1000);
    m.engines[1] = NULL;
    event_wait(&landed, 1);
    assert_int_equal(f.status, RKS_ERR_PEER);
    assert_int_equal(f.err.rank, 1);
    assert_contains(f.err.text, "has closed during a flight");
    fail_all(&s);
    flight g = {.landed = &landed};
    assert_ok(fly(m.engines[0], 1, RKS_SERVICE_FETCH, "x", 1, &g), &err);
    event_wait(&landed, 2);
    assert_int_equal(g.status, RKS_ERR_PEER);
    mesh_close(&m);
}

static void giving_up_fails_requests_now_and_later_but_not_notes(void **state)
{
    mesh m;
    shelf s = {0};
    note_log log = {.ordered = true};
    event landed;
    event_init(&log.arrived);
    event_init(&s.kept);
    event_init(&landed);
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, keep_request, NULL, &s);
    rks_engine_serve(m.engines[1], RKS_SERVICE_GROUP, NULL, on_numbered_note, &log);
    flight f = {.landed = &landed}, g = {.landed = &landed};
    assert_ok(fly(m.engines[0], 1, RKS_SERVICE_FETCH, "x", 1, &f), &err);
    event_wait(&s.kept, 1);
    rks_error why;
    rks_fail(&why, RKS_ERR_TIMEOUT, 0, "rank 1 fell silent elsewhere");
    rks_engine_give_up(m.engines[0], 1, &why);
    event_wait(&landed, 1);
    assert_ok(fly(m.engines[0], 1, RKS_SERVICE_FETCH, "x", 1, &g), &err);
    event_wait(&landed, 2);
    assert_int_equal(f.status, RKS_ERR_TIMEOUT);
    assert_int_equal(g.status, RKS_ERR_TIMEOUT);
    assert_string_equal(g.err.text, "rank 1 fell silent elsewhere");
    fail_all(&s); /* a stray at rank 0 */
    assert_ok(rks_engine_note(m.engines[0], 1, RKS_SERVICE_GROUP, "\0\0\0\0", 4, &err), &err);
    event_wait(&log.arrived, 1);
    mesh_close(&m);
}

static void an_orderly_close_is_told_to_both_sides_after_the_last_note(void **state)
{
    mesh m;
    loss losses[3];
    note_log log = {.ordered = true};
    event_init(&log.arrived);
    mesh_open(&m, 3, over_memory(state), 15000);
    for (uint32_t i = 0; i < 3; i++) {
        event_init(&losses[i].lost);
        rks_engine_watch(m.engines[i], on_lost, &losses[i]);
    }
    rks_engine_serve(m.engines[1], RKS_SERVICE_GROUP, NULL, on_numbered_note, &log);
    assert_ok(rks_engine_keep(m.engines[1], 0, &err), &err);
    assert_ok(rks_engine_keep(m.engines[0], 2, &err), &err);
    for (uint32_t i = 0; i < 500; i++) {
        uint8_t body[504] = {0};
        memcpy(body, &i, 4);
        assert_ok(rks_engine_note(m.engines[0], 1, RKS_SERVICE_GROUP, body, 4 + i, &err), &err);
    }
    /* Both connections must stand, or there is nobody to be told. */
    event_wait(&log.arrived, 1);
    rks_engine_serve(m.engines[2], RKS_SERVICE_FETCH, echo, NULL, NULL);
    assert_ok(ask_echo(m.engines[0], 2, 1, 10, &err), &err);
    rks_engine_serve(m.engines[0], RKS_SERVICE_FETCH, echo, NULL, NULL);
    assert_ok(ask_echo(m.engines[1], 0, 1, 10, &err), &err);
    rks_engine_close(m.engines[0], 5000);
    m.engines[0] = NULL;
    event_wait(&losses[1].lost, 1);
    event_wait(&losses[2].lost, 1);
    assert_int_equal(event_count(&log.arrived), 500);
    assert_true(log.ordered);
    for (uint32_t i = 1; i < 3; i++) {
        assert_int_equal(losses[i].peer, 0);
        assert_int_equal(losses[i].err.status, RKS_OK);
    }
    mesh_close(&m);
}

static void done_at_leisure(void *user, const rks_error *why)
{
    (void)why;
    event *gate = user;
    event_add(gate);
    event_wait(gate, 2);
}

static void *place_nothing(void *user, size_t size)
{
    (void)user;
    (void)size;
    return NULL;
}

static void *close_engine(void *engine)
{
    rks_engine_close(engine, 10000);
    return NULL;
}

static void a_note_sent_just_before_closing_comes_before_the_news_of_it(void **state)
{
    mesh m;
    loss l;
    event gate;
    pthread_t closer;
    note_log log = {.ordered = true};
    event_init(&gate);
    event_init(&log.arrived);
    event_init(&l.lost);
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[0], RKS_SERVICE_FETCH, echo, NULL, NULL);
    rks_engine_serve(m.engines[1], RKS_SERVICE_GROUP, NULL, on_numbered_note, &log);
    rks_engine_watch(m.engines[1], on_lost, &l);
    assert_ok(rks_engine_keep(m.engines[1], 0, &err), &err);
    rks_reply_sink sink = {.place = place_nothing, .done = done_at_leisure, .user = &gate};
    assert_ok(rks_engine_request(m.engines[1], 0,
                                 &(rks_outgoing){RKS_SERVICE_FETCH, "\0\0\0\0", 4, "a test"}, &sink,
                                 &err),
              &err);
    event_wait(&gate, 1);
    /* While rank 1 answers nobody, rank 0, which has no connection of its own yet, sends a note and
     * closes. The pause lets it get as far as it can; without it the test would prove less. */
    assert_ok(rks_engine_note(m.engines[0], 1, RKS_SERVICE_GROUP, "\0\0\0\0", 4, &err), &err);
    pthread_create(&closer, NULL, close_engine, m.engines[0]);
    usleep(100000);
    event_add(&gate);
    event_wait(&l.lost, 1);
    assert_int_equal(l.err.status, RKS_OK);
    assert_int_equal(event_count(&log.arrived), 1);
    pthread_join(closer, NULL);
    m.engines[0] = NULL;
    mesh_close(&m);
}

typedef struct parting {
    rks_engine *engine;
    event closing;
    event may_go_on;
} parting;

/* A callback that sends a note while its engine is being closed. */
static void say_last_word(void *user, const rks_error *why)
{
    parting *p = user;
    rks_error ignored;
    assert_int_equal(why->status, RKS_ERR_STATE);
    event_add(&p->closing);
    event_wait(&p->may_go_on, 1);
    rks_engine_note(p->engine, 1, RKS_SERVICE_GROUP, "\0\0\0\0", 4, &ignored);
}

static void a_note_of_a_callback_during_the_close_still_goes_out(void **state)
{
    mesh m;
    shelf s = {0};
    pthread_t closer;
    parting p = {0};
    note_log log = {.ordered = true};
    event_init(&s.kept);
    event_init(&p.closing);
    event_init(&p.may_go_on);
    event_init(&log.arrived);
    mesh_open(&m, 2, over_memory(state), 15000);
    p.engine = m.engines[0];
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, keep_request, NULL, &s);
    rks_engine_serve(m.engines[1], RKS_SERVICE_GROUP, NULL, on_numbered_note, &log);
    rks_reply_sink sink = {.place = place_nothing, .done = say_last_word, .user = &p};
    assert_ok(rks_engine_request(m.engines[0], 1,
                                 &(rks_outgoing){RKS_SERVICE_FETCH, "x", 1, "a test"}, &sink, &err),
              &err);
    event_wait(&s.kept, 1);
    pthread_create(&closer, NULL, close_engine, m.engines[0]);
    event_wait(&p.closing, 1);
    usleep(50000); /* so that the close gets as far as it can */
    event_add(&p.may_go_on);
    event_wait(&log.arrived, 1);
    pthread_join(closer, NULL);
    m.engines[0] = NULL;
    fail_all(&s);
    mesh_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(closing_ends_what_is_outstanding),
        BOTH(a_request_may_be_answered_after_the_owner_has_closed),
        BOTH(giving_up_fails_requests_now_and_later_but_not_notes),
        BOTH(an_orderly_close_is_told_to_both_sides_after_the_last_note),
        BOTH(a_note_sent_just_before_closing_comes_before_the_news_of_it),
        BOTH(a_note_of_a_callback_during_the_close_still_goes_out),
    };
    int failed = cmocka_run_group_tests_name("closing", tests, NULL, NULL);
    if (rks_memory_in_use() != 0) {
        print_error("%ld allocations are left\n", rks_memory_in_use());
        failed++;
    }
    return failed;
}
