/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh.h: a few engines in one process, over TCP or in memory, that know each other. */
#ifndef RKS_TESTS_MESH_H
#define RKS_TESTS_MESH_H

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "support/check.h"
#include "transport/engine.h"
#include "transport/memory_net.h"
#include "transport/tcp.h"

enum { MESH_MAX = 4, MESH_THREADS = 4, WAIT_MS = 120000 };

typedef struct mesh {
    uint32_t size;
    rks_transport *memory; /* NULL: TCP */
    rks_engine *engines[MESH_MAX];
    rks_address addresses[MESH_MAX];
} mesh;

static const uint8_t MESH_SESSION[16] = "session of tests";
static const uint8_t MESH_SECRET[RKS_SECRET_SIZE] = "the secret that all tests share";

/* Over `transport`, which the mesh frees; NULL: TCP. */
static inline void mesh_open_unjoined_over(mesh *m, uint32_t size, rks_transport *transport,
                                           uint32_t silence_ms)
{
    rks_error err;
    memset(m, 0, sizeof(*m));
    m->size = size;
    m->memory = transport;
    for (uint32_t i = 0; i < size; i++) {
        rks_engine_options options;
        rks_engine_options_default(&options);
        options.rank = i;
        options.size = size;
        options.silence_ms = silence_ms;
        options.io_threads = MESH_THREADS;
        options.authenticate = getenv("MESH_AUTHENTICATE") != NULL;
        options.encrypt = getenv("MESH_ENCRYPT") != NULL;
        options.max_request = 64 << 20; /* echoes are as large as what is asked */
        if (transport != NULL)
            options.transport = transport;
        assert_ok(rks_engine_open(&options, &m->engines[i], &err), &err);
        m->addresses[i] = *rks_engine_address(m->engines[i]);
    }
}

static inline void mesh_open_unjoined(mesh *m, uint32_t size, bool memory, uint32_t silence_ms)
{
    rks_error err;
    rks_transport *transport = NULL;
    if (memory)
        assert_ok(rks_memory_transport_create(NULL, &transport, &err), &err);
    mesh_open_unjoined_over(m, size, transport, silence_ms);
}

static inline void mesh_join(mesh *m, uint32_t rank)
{
    rks_error err;
    assert_ok(rks_engine_join(m->engines[rank], m->addresses, MESH_SESSION, MESH_SECRET, &err),
              &err);
}

static inline void mesh_open_over(mesh *m, uint32_t size, rks_transport *transport,
                                  uint32_t silence_ms)
{
    mesh_open_unjoined_over(m, size, transport, silence_ms);
    for (uint32_t i = 0; i < size; i++)
        mesh_join(m, i);
}

static inline void mesh_open(mesh *m, uint32_t size, bool memory, uint32_t silence_ms)
{
    mesh_open_unjoined(m, size, memory, silence_ms);
    for (uint32_t i = 0; i < size; i++)
        mesh_join(m, i);
}

static inline void mesh_close(mesh *m)
{
    for (uint32_t i = 0; i < m->size; i++)
        rks_engine_close(m->engines[i], 0);
    rks_memory_transport_free(m->memory);
}

/* Something that a callback brings about. */
typedef struct event {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint64_t count;
} event;

static inline void event_init(event *e)
{
    pthread_mutex_init(&e->mutex, NULL);
    rks_cond_init(&e->cond);
    e->count = 0;
}

static inline void event_add(event *e)
{
    pthread_mutex_lock(&e->mutex);
    e->count++;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mutex);
}

static inline uint64_t event_count(event *e)
{
    pthread_mutex_lock(&e->mutex);
    uint64_t count = e->count;
    pthread_mutex_unlock(&e->mutex);
    return count;
}

/* Fails the test where it does not come. */
static inline void event_wait(event *e, uint64_t count)
{
    uint64_t until = rks_now_ms() + WAIT_MS;
    pthread_mutex_lock(&e->mutex);
    while (e->count < count && rks_now_ms() < until)
        rks_cond_wait_ms(&e->cond, &e->mutex, 100);
    bool came = e->count >= count;
    pthread_mutex_unlock(&e->mutex);
    assert_true(came);
}

/* A peer that is lost. */
typedef struct loss {
    event lost;
    uint32_t peer;
    rks_error err;
} loss;

static inline void on_lost(void *user, uint32_t peer, const rks_error *why)
{
    loss *l = user;
    l->peer = peer;
    l->err = *why;
    event_add(&l->lost);
}

/* A service that sends the request back, n times over: {u32 n, bytes}. */
static inline void echo(void *user, rks_request *request)
{
    (void)user;
    size_t size;
    const uint8_t *body = rks_request_body(request, &size);
    uint32_t times = 0;
    rks_error err;
    if (size < 4) {
        rks_fail(&err, RKS_ERR_DATA, 77, "too short: %zu bytes", size);
        rks_request_fail(request, &err);
        return;
    }
    memcpy(&times, body, 4);
    struct iovec *parts = rks_alloc(times, sizeof(*parts), &err);
    if (parts == NULL) {
        rks_request_fail(request, &err);
        return;
    }
    for (uint32_t i = 0; i < times; i++)
        parts[i] = (struct iovec){(void *)(uintptr_t)(body + 4), size - 4};
    rks_request_reply(request, parts, times, NULL, NULL);
    rks_free(parts);
}

/* Asks `peer` to send `size` bytes of `fill` `times` times and checks what comes. */
static inline rks_status ask_echo(rks_engine *engine, uint32_t peer, uint32_t times, size_t size,
                                  rks_error *err)
{
    uint8_t *body = rks_alloc(size + 4, 1, err);
    if (body == NULL)
        return RKS_ERR_MEMORY;
    memcpy(body, &times, 4);
    for (size_t i = 0; i < size; i++)
        body[4 + i] = (uint8_t)(i * 7 + i / 251);
    uint8_t *reply = NULL;
    size_t got = 0;
    rks_status status =
        rks_engine_ask(engine, peer, &(rks_outgoing){RKS_SERVICE_FETCH, body, size + 4, "an echo"},
                       (size_t)64 << 20, &reply, &got, err);
    if (status == RKS_OK) {
        bool same = got == times * size;
        for (uint32_t i = 0; i < times && same; i++)
            same = memcmp(reply + i * size, body + 4, size) == 0;
        if (!same)
            status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%zu bytes came, other than asked", got);
    }
    rks_free(reply);
    rks_free(body);
    return status;
}

#endif
