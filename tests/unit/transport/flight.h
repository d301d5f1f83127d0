/* SPDX-License-Identifier: Apache-2.0
 *
 * flight.h: what the tests of engines watch: requests on their way, those that an owner keeps, and
 * numbered notes. */
#ifndef RKS_TESTS_FLIGHT_H
#define RKS_TESTS_FLIGHT_H

#include "mesh.h"

static rks_error err;

/* A test that is BOTH runs over TCP, and in memory. */
#define BOTH(test)                                                                                 \
    cmocka_unit_test(test),                                                                        \
    {                                                                                              \
        #test " (memory)", test, NULL, NULL, &err                                                  \
    }

static inline bool over_memory(void **state)
{
    return *state != NULL;
}

typedef struct note_log {
    event arrived;
    uint32_t next;
    bool ordered;
} note_log;

static inline void on_numbered_note(void *user, uint32_t from, const uint8_t *body, size_t size)
{
    note_log *log = user;
    uint32_t number = 0;
    if (size >= 4)
        memcpy(&number, body, 4);
    log->ordered = log->ordered && from == 0 && number == log->next && size == 4 + number % 3000;
    log->next++;
    event_add(&log->arrived);
}

/* A request, and what became of it. */
typedef struct flight {
    event *landed;
    uint8_t *reply;
    size_t size;
    rks_status status;
    rks_error err;
    int done;
    bool no_memory;
} flight;

static inline void *flight_place(void *user, size_t size)
{
    flight *f = user;
    f->size = size;
    return f->no_memory ? NULL : (f->reply = malloc(size == 0 ? 1 : size));
}

static inline void flight_done(void *user, const rks_error *why)
{
    flight *f = user;
    f->done++;
    f->status = why == NULL ? RKS_OK : (rks_status)why->status;
    if (why != NULL)
        f->err = *why;
    event_add(f->landed);
}

static inline rks_status fly(rks_engine *engine, uint32_t peer, uint32_t service, const void *body,
                             size_t size, flight *f)
{
    rks_reply_sink sink = {.place = flight_place, .done = flight_done, .user = f};
    return rks_engine_request(engine, peer, &(rks_outgoing){service, body, size, "a flight"}, &sink,
                              &err);
}

/* Keeps requests instead of answering. The engine's threads bring them at the same time. */
typedef struct shelf {
    pthread_mutex_t mutex;
    event kept;
    rks_request *requests[32];
} shelf;

static inline void keep_request(void *user, rks_request *request)
{
    shelf *s = user;
    pthread_mutex_lock(&s->mutex);
    s->requests[event_count(&s->kept)] = request;
    event_add(&s->kept);
    pthread_mutex_unlock(&s->mutex);
}

static inline void fail_all(shelf *s)
{
    rks_error late;
    rks_fail(&late, RKS_ERR_STATE, 0, "late");
    for (uint64_t i = 0; i < s->kept.count; i++)
        rks_request_fail(s->requests[i], &late);
}

#endif
