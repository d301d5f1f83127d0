/* SPDX-License-Identifier: Apache-2.0
 *
 * test_room.c: what a rank keeps in memory for another: requests that are not answered, and those
 * that come while it closes; and ranks that are stopped, or busy, meanwhile. */
#include "stranger_pair.h"

#include <malloc.h>

#include "flight.h"
#include "transport/server.h"

/* ---- two ranks that ask each other -------------------------------------------------------------
 */

enum { MANY = 140, LARGE_SIZE = 1 << 20 };

/* Calls that share one body, and one place for what comes. */
typedef struct volley {
    uint8_t *place;
    event over;
    rks_error failure; /* the first; engine thread only until all are over */
} volley;

typedef struct volley_call {
    rks_call call;
    volley *all;
} volley_call;

static void *volley_place(rks_call *call, size_t size)
{
    const volley_call *own = (const volley_call *)(const void *)call;
    return size <= LARGE_SIZE ? own->all->place : NULL;
}

static void volley_done(rks_call *call, const rks_error *why)
{
    volley_call *own = (volley_call *)(void *)call;
    if (why != NULL && own->all->failure.status == RKS_OK)
        own->all->failure = *why;
}

static void volley_over(rks_call *call)
{
    event_add(&((volley_call *)(void *)call)->all->over);
}

/* More than two ranks keep for each other: neither may stop to read. */
static void two_ranks_ask_each_other_for_more_than_they_keep(void **state)
{
    static const rks_call_ops ops = {volley_place, NULL, volley_done, volley_over};
    (void)state;
    mesh m;
    volley all[2] = {0};
    uint8_t *body = calloc(1, LARGE_SIZE);
    body[0] = 1;
    mesh_open(&m, 2, false, 8000);
    volley_call *calls = calloc(2 * (size_t)MANY, sizeof(*calls));
    for (uint32_t i = 0; i < 2; i++) {
        event_init(&all[i].over);
        all[i].place = malloc(LARGE_SIZE);
        rks_engine_serve(m.engines[i], RKS_SERVICE_FETCH, echo, NULL, NULL);
    }
    for (uint32_t k = 0; k < 2 * MANY; k++) {
        uint32_t from = k % 2;
        calls[k] = (volley_call){.call = {.ops = &ops,
                                          .phase = "a volley",
                                          .body = body,
                                          .size = LARGE_SIZE,
                                          .peer = 1 - from,
                                          .service = RKS_SERVICE_FETCH},
                                 .all = &all[from]};
        assert_ok(rks_engine_call(m.engines[from], &calls[k].call, &err), &err);
    }
    for (uint32_t i = 0; i < 2; i++) {
        event_wait(&all[i].over, MANY);
        assert_ok(all[i].failure.status, &all[i].failure);
    }
    mesh_close(&m);
    for (uint32_t i = 0; i < 2; i++)
        free(all[i].place);
    free(calls);
    free(body);
}

/* ---- an owner that takes its time ---------------------------------------------------------------
 */

/* It has as many bytes of requests as it keeps, and its peer, which beats, hears from it. */
static void a_rank_whose_requests_wait_is_not_silent(void **state)
{
    enum { ASKED = 3, SIZE = 33 << 20, T_MS = 6000 };
    (void)state;
    mesh m;
    event landed;
    shelf kept = {0};
    loss lost[2] = {0};
    flight flights[ASKED] = {0};
    uint8_t *body = calloc(1, SIZE);
    event_init(&landed);
    event_init(&kept.kept);
    mesh_open(&m, 2, false, T_MS);
    for (uint32_t i = 0; i < 2; i++) {
        event_init(&lost[i].lost);
        rks_engine_watch(m.engines[i], on_lost, &lost[i]);
    }
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, keep_request, NULL, &kept);
    assert_ok(rks_engine_keep(m.engines[0], 1, &err), &err);
    for (uint32_t k = 0; k < ASKED; k++) {
        flights[k].landed = &landed;
        assert_ok(fly(m.engines[0], 1, RKS_SERVICE_FETCH, body, SIZE, &flights[k]), &err);
    }
    event_wait(&kept.kept, 1);
    usleep(5 * T_MS / 2 * 1000); /* how long it takes is what this is about */
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(event_count(&lost[i].lost), 0);
    for (uint32_t k = 0; k < ASKED; k++) {
        event_wait(&kept.kept, k + 1);
        rks_request_reply(kept.requests[k], NULL, 0, NULL, NULL);
    }
    event_wait(&landed, ASKED);
    for (uint32_t k = 0; k < ASKED; k++) {
        assert_ok(flights[k].status, &flights[k].err);
        free(flights[k].reply);
    }
    free(body);
    mesh_close(&m);
}

static void keep_aside(void *user, rks_request *request)
{
    rks_request_aside(request);
    keep_request(user, request);
}

/* More requests wait for something else than a peer may have in service: its others are served. */
static void requests_put_aside_leave_their_places_to_others(void **state)
{
    enum { ASIDE = 30, SHARE = MESH_THREADS * RKS_POOL_SHARE };
    (void)state;
    mesh m;
    event landed, answered;
    shelf kept = {0};
    flight flights[ASIDE] = {0}, other = {.landed = &answered};
    assert_true(ASIDE > SHARE);
    event_init(&landed);
    event_init(&answered);
    event_init(&kept.kept);
    mesh_open(&m, 2, false, 8000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, keep_aside, NULL, &kept);
    rks_engine_serve(m.engines[1], RKS_SERVICE_KEYS, echo, NULL, NULL);
    for (uint32_t k = 0; k < ASIDE; k++) {
        flights[k].landed = &landed;
        assert_ok(fly(m.engines[0], 1, RKS_SERVICE_FETCH, "row", 3, &flights[k]), &err);
    }
    event_wait(&kept.kept, ASIDE);
    assert_ok(fly(m.engines[0], 1, RKS_SERVICE_KEYS, "\1\0\0\0key", 7, &other), &err);
    event_wait(&answered, 1);
    assert_ok(other.status, &other.err);
    assert_int_equal(event_count(&landed), 0);
    for (uint32_t k = 0; k < ASIDE; k++)
        rks_request_reply(kept.requests[k], NULL, 0, NULL, NULL);
    event_wait(&landed, ASIDE);
    for (uint32_t k = 0; k < ASIDE; k++) {
        assert_ok(flights[k].status, &flights[k].err);
        free(flights[k].reply);
    }
    free(other.reply);
    mesh_close(&m);
}

/* ---- a rank that closes ------------------------------------------------------------------------
 */

static void *close_slowly(void *engine)
{
    rks_engine_close(engine, WAIT_MS);
    return NULL;
}

static uint64_t received(const mesh *m)
{
    rks_engine_stats stats;
    rks_engine_stats_get(m->engines[1], &stats);
    return stats.bytes_received;
}

static size_t memory_in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* A member that asks on and reads nothing, while its owner waits to send what it has. */
static void requests_to_a_rank_that_closes_take_no_memory(void **state)
{
    enum { REPLIES = 70, SMALL = 64 * 1024, TIMES = 15, REQUESTS = 30, LARGE = (4 << 20) - 4096 };
    (void)state;
    mesh m;
    pthread_t closer;
    open_pair_for(&m, 15000, 0, 0, NULL);
    rks_hello hello = stranger_hello(2, 1, 3, true);
    int fd = stranger_connect(&m.addresses[1]);
    assert_true(stranger_enter(fd, &hello));
    uint8_t *body = calloc(1, LARGE);
    body[0] = TIMES;
    uint64_t begin = received(&m);
    for (uint64_t id = 1; id <= REPLIES; id++)
        stranger_frame(fd, RKS_FRAME_REQUEST, id, RKS_SERVICE_FETCH, body, 4 + SMALL);
    uint64_t until = rks_now_ms() + WAIT_MS;
    while (received(&m) < begin + REPLIES * (uint64_t)SMALL && rks_now_ms() < until)
        usleep(1000);
    usleep(200000); /* they are served */
    size_t before = memory_in_use();
    pthread_create(&closer, NULL, close_slowly, m.engines[1]);
    uint64_t large = received(&m) + REQUESTS * (uint64_t)LARGE;
    for (uint64_t id = 1; id <= REQUESTS; id++)
        stranger_frame(fd, RKS_FRAME_REQUEST, REPLIES + id, RKS_SERVICE_FETCH, body, LARGE);
    while (received(&m) < large && rks_now_ms() < until)
        usleep(1000);
    assert_true(received(&m) >= large);
    usleep(100000);
    size_t after = memory_in_use();
    assert_true(after < before + REQUESTS * (uint64_t)LARGE / 4);
    close(fd);
    pthread_join(closer, NULL);
    m.engines[1] = NULL;
    free(body);
    mesh_close(&m);
}

/* ---- a rank that stands still ------------------------------------------------------------------
 */

enum { STILL_MS = 2500, STILL_T_MS = 3000 };

static void stand_still(void *user, uint32_t from, const uint8_t *body, size_t size)
{
    (void)from, (void)body, (void)size;
    usleep(STILL_MS * 1000); /* on the engine's thread, as if the process were stopped */
    event_add(user);
}

/* Rank 2 has opened a connection, and then taken the one of rank 0: it leaves its own. That it was
 * opened before the other one was proven is still known when both have waited. */
static void connections_that_crossed_are_known_after_a_stop(void **state)
{
    (void)state;
    int listener;
    mesh m;
    answer a;
    event stood;
    event_init(&stood);
    open_pair(&m, STILL_T_MS, &listener);
    rks_engine_serve(m.engines[0], RKS_SERVICE_GROUP, NULL, stand_still, &stood);
    rks_hello own = stranger_hello(2, 0, 3, true), hello;
    int crossing = stranger_connect(&m.addresses[0]);
    stranger_say_hello(crossing, &own);
    assert_true(stranger_take_hello(crossing, &own));
    request_of(&m, &a);
    int fd = accept_member(listener, &hello);
    uint64_t id = take_request(fd);
    stranger_frame(fd, RKS_FRAME_NOTE, 1, RKS_SERVICE_GROUP, "still", 5);
    event_wait(&stood, 1);
    usleep(200000); /* the alarm that was late rings */
    stranger_say_proof(crossing, &own);
    assert_int_equal(stranger_drain(crossing), 0);
    stranger_frame(fd, RKS_FRAME_REPLY, id, 0, "fine", 4);
    event_wait(&a.done, 1);
    assert_ok(a.status, &a.err);
    rks_engine_stats stats;
    rks_engine_stats_get(m.engines[0], &stats);
    assert_int_equal(stats.refused, 0);
    close(crossing);
    close(fd);
    close(listener);
    mesh_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_ask_each_other_for_more_than_they_keep),
        cmocka_unit_test(a_rank_whose_requests_wait_is_not_silent),
        cmocka_unit_test(requests_put_aside_leave_their_places_to_others),
        cmocka_unit_test(requests_to_a_rank_that_closes_take_no_memory),
        cmocka_unit_test(connections_that_crossed_are_known_after_a_stop),
    };
    return cmocka_run_group_tests_name("room", tests, NULL, NULL);
}
