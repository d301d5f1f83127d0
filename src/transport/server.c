/* SPDX-License-Identifier: Apache-2.0
 *
 * server.c: the I/O threads that answer requests, and the handlers of services.
 *
 * A service that can answer without waiting does so on the engine thread, without an I/O thread.
 * Other answers from memory take a few microseconds, less than it takes to wake a thread. So the
 * engine wakes one thread, which serves all requests that it finds. If requests still wait after a
 * millisecond, because the disk is slow or there are many, the engine wakes or starts as many
 * threads as there are requests. Idle threads stay and sleep. */
#include "transport/server.h"

#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "transport/connection.h"
#include "transport/mailbox.h"
#include "transport/peer.h"

enum { HURRY_MS = 1, WAIT_MS = 20 };

struct rks_pool {
    rks_engine *engine;
    /* engine thread only: requests since the last flush */
    rks_request *come;
    rks_request **come_last;
    uint32_t come_count;
    bool nudged; /* rks_pool_hurry is scheduled */

    pthread_mutex_t mutex;
    pthread_cond_t work;
    rks_request *first; /* guarded by mutex, as all below */
    rks_request **last;
    pthread_t *threads;
    uint32_t room;
    uint32_t started;
    uint32_t idle;    /* threads that sleep */
    uint32_t roused;  /* sleeping threads that have been signalled */
    uint32_t waiting; /* requests in the list */
    bool stopping;
};

/* ---- handlers ------------------------------------------------------------------------------- */

/* Each request and note looks up its handler, so the look-up takes no lock:
 *
 *   enter  counts itself as running, then copies the fields between two reads of `version`
 *   set    makes `version` odd, changes the fields, makes it even, and then waits for `running`
 *
 * So set waits for a call that started before the change, and a later call sees the change. Only an
 * enter that runs into a change takes the mutex. */

static rks_handler read_handler(rks_handler_place *place)
{
    return (rks_handler){
        .serve = atomic_load(&place->serve),
        .quick = atomic_load(&place->quick),
        .note = atomic_load(&place->note),
        .lost = atomic_load(&place->lost),
        .user = atomic_load(&place->user),
    };
}

static void handler_leave(rks_engine *engine, uint16_t number)
{
    rks_handler_place *place = &engine->handlers[number];
    if (atomic_fetch_sub(&place->running, 1) != 1 || atomic_load(&place->waiting) == 0)
        return;
    pthread_mutex_lock(&engine->handlers_mutex);
    pthread_cond_broadcast(&engine->handlers_idle);
    pthread_mutex_unlock(&engine->handlers_mutex);
}

/* Copies the handler and counts the call as running. Returns false if there is no handler. */
static bool handler_enter(rks_engine *engine, uint16_t number, rks_handler *handler)
{
    if (number >= RKS_SERVICES)
        return false;
    rks_handler_place *place = &engine->handlers[number];
    atomic_fetch_add(&place->running, 1);
    unsigned version = atomic_load(&place->version);
    *handler = read_handler(place);
    if (version % 2 != 0 || atomic_load(&place->version) != version) {
        pthread_mutex_lock(&engine->handlers_mutex);
        *handler = read_handler(place);
        pthread_mutex_unlock(&engine->handlers_mutex);
    }
    if (handler->serve != NULL || handler->note != NULL || handler->lost != NULL)
        return true;
    handler_leave(engine, number);
    return false;
}

/* Returns false if a call hangs. */
static bool handler_set(rks_engine *engine, uint16_t number, const rks_handler *handler)
{
    bool ended = true;
    bool none = handler->serve == NULL && handler->note == NULL && handler->lost == NULL;
    /* The engine thread must not wait for itself. */
    bool may_wait = none && !pthread_equal(pthread_self(), engine->thread);
    rks_handler_place *place = &engine->handlers[number];
    pthread_mutex_lock(&engine->handlers_mutex);
    atomic_fetch_add(&place->version, 1);
    atomic_store(&place->serve, handler->serve);
    atomic_store(&place->quick, handler->quick);
    atomic_store(&place->note, handler->note);
    atomic_store(&place->lost, handler->lost);
    atomic_store(&place->user, handler->user);
    atomic_fetch_add(&place->version, 1);
    if (may_wait) {
        atomic_fetch_add(&place->waiting, 1);
        uint64_t until = rks_hang_until(engine->options.silence_ms);
        while (atomic_load(&place->running) > 0 && rks_now_ms() < until)
            rks_cond_wait_ms(&engine->handlers_idle, &engine->handlers_mutex, WAIT_MS);
        atomic_fetch_sub(&place->waiting, 1);
        ended = atomic_load(&place->running) == 0;
    }
    pthread_mutex_unlock(&engine->handlers_mutex);
    if (!ended)
        rks_hang_seen();
    return ended;
}

bool rks_engine_serve(rks_engine *engine, enum rks_service service, rks_serve_fn serve,
                      rks_note_fn note, void *user)
{
    return handler_set(engine, (uint16_t)service,
                       &(rks_handler){.serve = serve, .note = note, .user = user});
}

void rks_engine_serve_quick(rks_engine *engine, enum rks_service service, rks_quick_fn quick)
{
    atomic_store(&engine->handlers[service].quick, quick);
}

void rks_engine_watch(rks_engine *engine, rks_lost_fn lost, void *user)
{
    handler_set(engine, 0, &(rks_handler){.lost = lost, .user = user});
}

void rks_handlers_note(rks_engine *engine, uint16_t service, uint32_t from, const uint8_t *body,
                       size_t size)
{
    rks_handler handler;
    if (service == 0 || !handler_enter(engine, service, &handler)) {
        atomic_fetch_add(&engine->strays, 1);
        return;
    }
    if (handler.note != NULL)
        handler.note(handler.user, from, body, size);
    else
        atomic_fetch_add(&engine->strays, 1);
    handler_leave(engine, service);
}

void rks_handlers_lost(rks_engine *engine, uint32_t rank, const rks_error *err)
{
    rks_handler handler;
    if (!handler_enter(engine, 0, &handler))
        return;
    handler.lost(handler.user, rank, err);
    handler_leave(engine, 0);
}

/* ---- requests ------------------------------------------------------------------------------- */

rks_request *rks_request_create(rks_connection *connection, const rks_frame_header *header,
                                size_t size)
{
    rks_request *request = rks_alloc_raw(1, sizeof(*request) + size, NULL);
    if (request == NULL)
        return NULL;
    memset(request, 0, sizeof(*request));
    request->engine = connection->engine;
    request->connection = connection;
    request->id = header->id;
    request->sender = connection->rank;
    request->service = header->service;
    request->size = size;
    request->at_engine = true;
    atomic_fetch_add(&request->engine->references, 1);
    connection->references++;
    connection->serving += rks_request_room(size);
    return request;
}

static void request_free(rks_request *request)
{
    rks_engine *engine = request->engine;
    if (request->release != NULL)
        request->release(request->user);
    if (request->parts != NULL)
        rks_free(request->parts);
    rks_free(request);
    rks_engine_release(engine);
}

void rks_request_drop(rks_request *request)
{
    rks_connection *connection = request->connection;
    connection->serving -= rks_request_room(request->size);
    connection->references--; /* the caller still uses the connection */
    request_free(request);
}

uint32_t rks_request_sender(const rks_request *request)
{
    return request->sender;
}

const uint8_t *rks_request_body(const rks_request *request, size_t *size)
{
    *size = request->size;
    return request->body;
}

static void reply_sent(rks_frame *frame)
{
    rks_request *request = (rks_request *)(void *)((uint8_t *)frame - offsetof(rks_request, frame));
    rks_connection *connection = request->connection;
    connection->replies -= request->frame.total + rks_request_room(request->size);
    request_free(request);
    rks_connection_unref(connection);
}

/* Counts a request as served whose connection is over. */
static void served_late(rks_request *request)
{
    rks_peer *peer = &request->engine->peers[request->sender];
    peer->old_serving -= rks_request_room(request->size);
    peer->old_at_pool -= request->at_pool;
    if (peer->connection != NULL)
        rks_connection_unpause(peer->connection);
}

/* Sends the answer. Engine thread. */
static void run_reply(rks_engine *engine, rks_command *command)
{
    (void)engine;
    rks_request *request = (rks_request *)(void *)command; /* the request's first member */
    rks_connection *connection = request->connection;
    connection->serving -= rks_request_room(request->size);
    if (connection->serving_old)
        served_late(request);
    connection->replies += request->frame.total + rks_request_room(request->size);
    connection->at_pool -= request->at_pool;
    rks_connection_send(connection, &request->frame);
}

/* Gives its place among those of its sender back. Engine thread. */
static void run_aside(rks_engine *engine, rks_command *command)
{
    rks_request *request =
        (rks_request *)(void *)((uint8_t *)command - offsetof(rks_request, aside));
    rks_connection *connection = request->connection;
    rks_peer *peer = &engine->peers[request->sender];
    if (!request->at_pool)
        return;
    request->at_pool = false;
    if (connection->serving_old)
        peer->old_at_pool--;
    else
        connection->at_pool--;
    if (peer->connection != NULL)
        rks_connection_unpause(peer->connection);
    rks_pool_flush(engine);
}

void rks_request_aside(rks_request *request)
{
    if (request->aside.run != NULL)
        return;
    request->aside.run = run_aside;
    (void)rks_engine_post(request->engine, &request->aside); /* after the engine's end nothing waits
                                                              * for a place */
}

static void send_reply(rks_request *request)
{
    request->frame.sent = reply_sent;
    request->command.run = run_reply;
    if (request->at_engine)
        run_reply(request->engine, &request->command);
    else if (!rks_engine_post(request->engine, &request->command))
        request_free(request); /* the engine has ended */
}

static void set_error(rks_request *request, const rks_error *err)
{
    request->error = *err;
    rks_error_place(&request->error, request->engine->options.rank, request->engine->address.host);
    rks_frame_set(&request->frame, RKS_FRAME_ERROR, request->id, 0, &request->error,
                  sizeof(request->error));
}

void rks_request_fail(rks_request *request, const rks_error *err)
{
    set_error(request, err);
    send_reply(request);
}

static void reply_with(rks_request *request, struct iovec *parts, size_t count)
{
    rks_error err;
    uint64_t total = 0;
    for (size_t i = 1; i < count; i++)
        if (__builtin_add_overflow(total, parts[i].iov_len, &total))
            total = UINT64_MAX / 2;
    if (total > request->engine->options.max_frame) {
        rks_fail(&err, RKS_ERR_DATA, 0,
                 "a reply of %" PRIu64 " bytes is above the limit of %" PRIu64, total,
                 request->engine->options.max_frame);
        rks_request_fail(request, &err);
        return;
    }
    rks_frame_header header = {.size = total, .id = request->id, .type = RKS_FRAME_REPLY};
    rks_frame_encode(&header, NULL, request->frame.header);
    parts[0] = (struct iovec){request->frame.header, sizeof(request->frame.header)};
    request->frame.parts = parts;
    request->frame.count = count;
    request->frame.total = RKS_FRAME_HEADER + total;
    send_reply(request);
}

void rks_request_reply_with(rks_request *request, struct iovec *parts, size_t count,
                            void (*release)(void *user), void *user)
{
    request->release = release;
    request->user = user;
    reply_with(request, parts, count);
}

void rks_request_reply(rks_request *request, const struct iovec *parts, size_t count,
                       void (*release)(void *user), void *user)
{
    rks_error err;
    request->release = release;
    request->user = user;
    request->parts = rks_alloc_raw(count + 1, sizeof(*request->parts), &err);
    if (request->parts == NULL) {
        rks_request_fail(request, &err);
        return;
    }
    if (count > 0)
        memcpy(request->parts + 1, parts, count * sizeof(*parts));
    reply_with(request, request->parts, count + 1);
}

/* ---- I/O threads ---------------------------------------------------------------------------- */

static void refuse(rks_request *request, rks_status status, const char *why)
{
    rks_error err;
    rks_fail(&err, status, 0, "service %u of rank %" PRIu32 " %s", request->service,
             request->engine->options.rank, why);
    rks_request_fail(request, &err);
}

static void serve(rks_request *request)
{
    rks_engine *engine = request->engine; /* the engine outlives the pool's threads */
    uint16_t service = request->service;
    rks_handler handler;
    if (service == 0 || !handler_enter(engine, service, &handler)) {
        refuse(request, RKS_ERR_PEER, "is not open (that rank has closed it, or left)");
        return;
    }
    if (handler.serve != NULL)
        handler.serve(handler.user, request);
    else
        refuse(request, RKS_ERR_STATE, "takes no requests");
    handler_leave(engine, service);
}

static void *pool_thread(void *argument)
{
    rks_pool *pool = argument;
    pthread_setname_np(pthread_self(), "rks-io");
    pthread_mutex_lock(&pool->mutex);
    while (true) {
        while (pool->first == NULL && !pool->stopping) {
            pool->idle++;
            pthread_cond_wait(&pool->work, &pool->mutex);
            pool->idle--;
            pool->roused -= pool->roused > 0;
        }
        if (pool->first == NULL)
            break;
        rks_request *request = pool->first;
        bool stopping = pool->stopping;
        pool->first = request->next;
        pool->waiting--;
        pthread_mutex_unlock(&pool->mutex);
        if (stopping)
            refuse(request, RKS_ERR_PEER, "is closing");
        else
            serve(request);
        pthread_mutex_lock(&pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

rks_status rks_pool_create(rks_engine *engine, uint32_t threads, rks_pool **pool, rks_error *err)
{
    rks_pool *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->threads = rks_alloc(threads, sizeof(*made->threads), err);
    if (made->threads == NULL) {
        rks_free(made);
        return RKS_ERR_MEMORY;
    }
    made->engine = engine;
    made->room = threads;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->work, NULL);
    *pool = made;
    return RKS_OK;
}

/* Starts one more thread. Threads inherit the engine thread's signal mask: no signals. The mutex
 * must be held. */
static int start_thread(rks_pool *pool)
{
    int error = pthread_create(&pool->threads[pool->started], NULL, pool_thread, pool);
    if (error == 0)
        pool->started++;
    return error;
}

/* Returns how many threads serve or look for requests. The mutex must be held. */
static uint32_t awake(const rks_pool *pool)
{
    return pool->started - (pool->idle - pool->roused);
}

/* Gets one more thread to work. *signals counts the threads to wake after the mutex is released.
 * Returns false if there is no thread left. The mutex must be held. */
static bool add_worker(rks_pool *pool, uint32_t *signals, int *error)
{
    if (pool->idle > pool->roused) {
        pool->roused++;
        ++*signals;
        return true;
    }
    /* No new thread during stop, which joins the others: it would outlive the pool. */
    if (pool->started == pool->room || pool->stopping)
        return false;
    *error = start_thread(pool);
    return *error == 0;
}

/* Serves a request on the engine thread. Returns false if the request needs a thread that may
 * wait. */
static bool serve_quick(rks_engine *engine, rks_request *request)
{
    uint16_t service = request->service;
    rks_handler handler;
    if (service == 0 || !handler_enter(engine, service, &handler))
        return false;
    bool served = handler.quick != NULL && handler.quick(handler.user, request);
    handler_leave(engine, service);
    return served;
}

void rks_pool_serve(rks_engine *engine, rks_request *request)
{
    rks_pool *pool = engine->pool;
    if (serve_quick(engine, request))
        return;
    request->at_engine = false;
    request->at_pool = true;
    request->connection->at_pool++;
    request->next = NULL;
    if (pool->come == NULL)
        pool->come_last = &pool->come;
    *pool->come_last = request;
    pool->come_last = &request->next;
    pool->come_count++;
}

/* Fails requests that no thread will serve. */
static void refuse_all(rks_engine *engine, rks_request *first, int error)
{
    while (first != NULL) {
        rks_request *next = first->next;
        rks_error err;
        first->at_engine = true;
        if (error != 0)
            rks_fail_errno(&err, error, "no thread to serve a request");
        else
            rks_fail(&err, RKS_ERR_PEER, 0, "rank %" PRIu32 " is closing", engine->options.rank);
        rks_request_fail(first, &err);
        first = next;
    }
}

void rks_pool_flush(rks_engine *engine)
{
    rks_pool *pool = engine->pool;
    rks_request *come = pool->come;
    if (come == NULL)
        return;
    int error = 0;
    uint32_t signals = 0;
    pool->come = NULL;
    pthread_mutex_lock(&pool->mutex);
    if (!pool->stopping && (awake(pool) > 0 || add_worker(pool, &signals, &error))) {
        if (pool->first == NULL)
            pool->last = &pool->first;
        *pool->last = come;
        pool->last = pool->come_last;
        pool->waiting += pool->come_count;
        come = NULL;
    }
    pthread_mutex_unlock(&pool->mutex);
    if (signals > 0)
        pthread_cond_signal(&pool->work);
    pool->come_count = 0;
    refuse_all(engine, come, error);
    if (come == NULL && !pool->nudged) {
        pool->nudged = true;
        rks_net_nudge(engine->net, HURRY_MS);
    }
}

void rks_pool_hurry(rks_engine *engine)
{
    rks_pool *pool = engine->pool;
    int error = 0;
    pthread_mutex_lock(&pool->mutex);
    uint32_t signals = 0;
    uint32_t waiting = pool->waiting;
    while (pool->roused < waiting && add_worker(pool, &signals, &error))
        ;
    pthread_mutex_unlock(&pool->mutex);
    while (signals-- > 0)
        pthread_cond_signal(&pool->work);
    pool->nudged = waiting > 0;
    if (pool->nudged)
        rks_net_nudge(engine->net, HURRY_MS);
}

bool rks_pool_stop(rks_pool *pool)
{
    bool ended = true;
    if (pool == NULL)
        return true;
    pthread_mutex_lock(&pool->mutex);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work);
    uint32_t started = pool->started;
    pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i < started; i++)
        ended = rks_thread_join_within(pool->threads[i], pool->engine->options.silence_ms) && ended;
    pool->started = 0;
    return ended;
}

void rks_pool_free(rks_pool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->work);
    rks_free(pool->threads);
    rks_free(pool);
}
