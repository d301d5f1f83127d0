/* SPDX-License-Identifier: Apache-2.0
 *
 * server.h: requests of peers, and who answers them. */
#ifndef RKS_TRANSPORT_SERVER_H
#define RKS_TRANSPORT_SERVER_H

#include <stdatomic.h>

#include "transport/engine.h"

enum {
    RKS_ASKED_MAX = 32 << 20, /* most bytes of unanswered requests to one peer */
    RKS_POOL_SHARE = 4,       /* requests of one peer in service at a time, for each thread */
};

typedef struct rks_connection rks_connection;
typedef struct rks_pool rks_pool;

/* A request from a peer, from its header to its answer. */
struct rks_request {
    rks_command command; /* its reply */
    rks_command aside;   /* rks_request_aside; the mailbox keeps it before the reply */
    rks_engine *engine;  /* counted in engine->references */
    rks_connection *connection;
    struct rks_request *next; /* guarded by the pool's mutex */
    uint64_t id;
    uint32_t sender;
    uint16_t service;
    size_t size;
    bool at_engine;      /* the engine thread holds it, and sends its answer at once */
    bool at_pool;        /* counted in connection->at_pool */
    rks_frame frame;     /* of the reply */
    struct iovec *parts; /* copied parts of the reply; NULL: not copied */
    void (*release)(void *user);
    void *user;
    rks_error error;
    uint8_t body[];
};

/* The functions of a service, or of the watch (number 0). */
typedef struct rks_handler {
    rks_serve_fn serve;
    rks_quick_fn quick;
    rks_note_fn note;
    rks_lost_fn lost;
    void *user;
} rks_handler;

/* Stores a handler so that reading takes no lock: server.c. */
typedef struct rks_handler_place {
    _Atomic(rks_serve_fn) serve;
    _Atomic(rks_quick_fn) quick;
    _Atomic(rks_note_fn) note;
    _Atomic(rks_lost_fn) lost;
    void *_Atomic user;
    atomic_uint version; /* odd while the fields change, under handlers_mutex */
    atomic_uint running; /* calls that have started */
    atomic_uint waiting; /* threads that wait for `running` to become 0 */
} rks_handler_place;

rks_status rks_pool_create(rks_engine *engine, uint32_t threads, rks_pool **pool, rks_error *err);
/* Refuses requests that have not started, waits for those that have, and ends the threads. Returns
 * false if one hangs: it may use the pool and the engine later. */
bool rks_pool_stop(rks_pool *pool);
void rks_pool_free(rks_pool *pool);
/* Serves a request at once or queues it for the threads. Takes it over. Engine thread. */
void rks_pool_serve(rks_engine *engine, rks_request *request);
/* Pass the queued requests to the threads (flush), and wake more threads if they are slow (hurry).
 * Engine thread. */
void rks_pool_flush(rks_engine *engine);
void rks_pool_hurry(rks_engine *engine);
/* Returns a request with room for a body of `size` bytes; NULL if memory is short. */
rks_request *rks_request_create(rks_connection *connection, const rks_frame_header *header,
                                size_t size);
/* Returns the bytes of memory that the owner needs for a request of `size` bytes. */
static inline uint64_t rks_request_room(size_t size)
{
    return sizeof(rks_request) + size;
}
/* Frees a request that no service has seen. */
void rks_request_drop(rks_request *request);
/* Call the service or the watch, if there is one. */
void rks_handlers_note(rks_engine *engine, uint16_t service, uint32_t from, const uint8_t *body,
                       size_t size);
void rks_handlers_lost(rks_engine *engine, uint32_t rank, const rks_error *err);

#endif
