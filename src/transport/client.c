/* SPDX-License-Identifier: Apache-2.0
 *
 * client.c: the callers' side: puts requests, notes and other commands into the mailbox. */
#include "transport/engine.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "transport/mailbox.h"
#include "transport/peer.h"

static rks_status check_call(rks_engine *engine, uint32_t peer, rks_error *err)
{
    if (!atomic_load(&engine->joined))
        return rks_fail(err, RKS_ERR_STATE, 0, "the engine has not joined its peers");
    if (peer >= engine->options.size)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "rank %" PRIu32 " is out of range: the job has %" PRIu32 " ranks", peer,
                        engine->options.size);
    return RKS_OK;
}

static void run_note(rks_engine *engine, rks_command *command)
{
    rks_peer_note(engine, (rks_note *)(void *)command); /* the note's first member */
}

static void run_keep(rks_engine *engine, rks_command *command)
{
    rks_peer_keep(engine, (rks_note *)(void *)command);
}

static void run_call(rks_engine *engine, rks_command *command)
{
    rks_peer_call(engine, (rks_call *)(void *)((uint8_t *)command - offsetof(rks_call, command)));
}

static rks_status check_frame(rks_engine *engine, enum rks_frame_type type, uint32_t peer,
                              int service, size_t size, rks_error *err)
{
    uint64_t limit = rks_frame_limit(engine, (uint16_t)type);
    rks_status status = check_call(engine, peer, err);
    if (status != RKS_OK)
        return status;
    if (service < 0 || service >= RKS_SERVICES)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "no service has number %d", service);
    if (size > limit)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "%zu bytes for rank %" PRIu32 " are above the limit of %" PRIu64, size,
                        peer, limit);
    return RKS_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

rks_status rks_engine_call_all(rks_engine *engine, rks_call *first, rks_error *err)
{
    rks_call *last = first;
    if (atomic_load(&engine->closing))
        return rks_fail(err, RKS_ERR_STATE, 0, "the engine is closing");
    for (rks_call *call = first; call != NULL; call = call->next) {
        rks_status status =
            check_frame(engine, RKS_FRAME_REQUEST, call->peer, call->service, call->size, err);
        if (status != RKS_OK)
            return status;
        call->ended = 0;
        call->asked = call->again = call->placed = false;
        call->engine = engine;
        call->command.run = run_call;
        call->command.next = call->next == NULL ? NULL : &call->next->command;
        call->frame.sent = rks_call_sent;
        last = call;
    }
    if (rks_engine_post_calls(engine, &first->command, &last->command))
        return RKS_OK;
    return rks_fail(err, RKS_ERR_STATE, 0, "the engine is closed");
}

rks_status rks_engine_call(rks_engine *engine, rks_call *call, rks_error *err)
{
    call->next = NULL;
    return rks_engine_call_all(engine, call, err);
}

/* A call that the engine allocates. */
typedef struct own_call {
    rks_call call;
    rks_reply_sink sink;
    uint8_t body[];
} own_call;

static void *own_place(rks_call *call, size_t size)
{
    const rks_reply_sink *sink = &((own_call *)(void *)call)->sink;
    return sink->place(sink->user, size);
}

static void own_come(rks_call *call)
{
    const rks_reply_sink *sink = &((own_call *)(void *)call)->sink;
    if (sink->come != NULL)
        sink->come(sink->user);
}

static void own_done(rks_call *call, const rks_error *err)
{
    const rks_reply_sink *sink = &((own_call *)(void *)call)->sink;
    sink->done(sink->user, err);
}

static void own_over(rks_call *call)
{
    rks_free(call); /* the call is its first member */
}

rks_status rks_engine_request(rks_engine *engine, uint32_t peer, const rks_outgoing *request,
                              const rks_reply_sink *sink, rks_error *err)
{
    static const rks_call_ops ops = {own_place, own_come, own_done, own_over};
    rks_status status =
        check_frame(engine, RKS_FRAME_REQUEST, peer, (int)request->service, request->size, err);
    if (status != RKS_OK)
        return status;
    own_call *own = rks_alloc_raw(1, sizeof(*own) + request->size, err);
    if (own == NULL)
        return RKS_ERR_MEMORY;
    memset(own, 0, sizeof(*own));
    own->sink = *sink;
    if (request->size > 0)
        memcpy(own->body, request->body, request->size);
    own->call.ops = &ops;
    own->call.phase = request->phase;
    own->call.body = own->body;
    own->call.size = request->size;
    own->call.peer = peer;
    own->call.service = (uint16_t)request->service;
    status = rks_engine_call(engine, &own->call, err);
    if (status != RKS_OK)
        rks_free(own);
    return status;
}

/* ---- notes ----------------------------------------------------------------------------------- */

/* Checks the arguments and makes a note with a copy of the body. */
static rks_status note_new(rks_engine *engine, uint32_t peer, enum rks_service service,
                           const void *body, size_t size, rks_note **note, rks_error *err)
{
    rks_status status = check_frame(engine, RKS_FRAME_NOTE, peer, (int)service, size, err);
    if (status != RKS_OK)
        return status;
    rks_note *made = rks_alloc_raw(1, sizeof(*made) + size, err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    memset(made, 0, sizeof(*made));
    made->command.run = run_note;
    made->engine = engine;
    made->peer = peer;
    made->service = (uint16_t)service;
    made->size = size;
    if (size > 0)
        memcpy(made->body, body, size);
    *note = made;
    return RKS_OK;
}

static rks_status post(rks_engine *engine, rks_note *note, rks_error *err)
{
    if (rks_engine_post(engine, &note->command))
        return RKS_OK;
    rks_free(note);
    return rks_fail(err, RKS_ERR_STATE, 0, "the engine is closed");
}

rks_status rks_engine_note(rks_engine *engine, uint32_t peer, enum rks_service service,
                           const void *body, size_t size, rks_error *err)
{
    rks_note *note = NULL;
    rks_status status = note_new(engine, peer, service, body, size, &note, err);
    if (status != RKS_OK)
        return status;
    return post(engine, note, err);
}

rks_status rks_engine_keep(rks_engine *engine, uint32_t peer, rks_error *err)
{
    rks_note *note = NULL;
    rks_status status = note_new(engine, peer, RKS_SERVICE_GROUP, NULL, 0, &note, err);
    if (status != RKS_OK)
        return status;
    note->command.run = run_keep;
    return post(engine, note, err);
}

/* ---- giving up ------------------------------------------------------------------------------- */

typedef struct surrender {
    rks_command command;
    uint32_t peer;
    rks_error err;
} surrender;

static void run_give_up(rks_engine *engine, rks_command *command)
{
    surrender *given = (surrender *)(void *)command;
    rks_peer_give_up(engine, given->peer, &given->err);
    rks_free(given);
}

void rks_engine_give_up(rks_engine *engine, uint32_t peer, const rks_error *err)
{
    if (check_call(engine, peer, NULL) != RKS_OK)
        return;
    surrender *given = NULL;
    /* If memory is short, the peer's requests still end: the peer has failed and falls silent, so
     * they time out after T. */
    given = rks_alloc(1, sizeof(*given), NULL);
    if (given == NULL)
        return;
    given->command.run = run_give_up;
    given->peer = peer;
    given->err = *err;
    if (!rks_engine_post(engine, &given->command))
        rks_free(given);
}

/* ---- asking and waiting ---------------------------------------------------------------------- */

/* Shared by the caller and the engine thread. The last to leave frees it. */
typedef struct waiter {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t users; /* guarded by mutex, as all below */
    bool done;
    size_t max_reply;
    uint8_t *reply;
    size_t size;
    rks_status too_large;
    rks_status status;
    rks_error err;
} waiter;

static void waiter_leave(waiter *w)
{
    pthread_mutex_lock(&w->mutex);
    bool last = --w->users == 0;
    pthread_mutex_unlock(&w->mutex);
    if (!last)
        return;
    pthread_cond_destroy(&w->cond);
    pthread_mutex_destroy(&w->mutex);
    rks_free(w->reply);
    rks_free(w);
}

static waiter *waiter_new(size_t max_reply, rks_error *err)
{
    waiter *w = rks_alloc(1, sizeof(*w), err);
    if (w == NULL)
        return NULL;
    w->users = 2;
    w->max_reply = max_reply;
    pthread_mutex_init(&w->mutex, NULL);
    int error = rks_cond_init(&w->cond);
    if (error == 0)
        return w;
    rks_fail_errno(err, error, "condition variable");
    pthread_mutex_destroy(&w->mutex);
    rks_free(w);
    return NULL;
}

/* Needs no lock: only the engine thread touches the reply before `done`. */
static void *waiter_place(void *user, size_t size)
{
    waiter *w = user;
    w->size = size;
    if (size > w->max_reply) {
        w->too_large = RKS_ERR_PEER;
        return NULL;
    }
    w->reply = rks_alloc_raw(size, 1, NULL);
    return w->reply;
}

static void waiter_done(void *user, const rks_error *err)
{
    waiter *w = user;
    pthread_mutex_lock(&w->mutex);
    w->done = true;
    if (err != NULL) {
        w->err = *err;
        w->status = (rks_status)err->status;
    }
    if (w->too_large != RKS_OK)
        w->status =
            rks_fail(&w->err, w->too_large, 0, "the reply has %zu bytes, above the limit of %zu",
                     w->size, w->max_reply);
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mutex);
    waiter_leave(w);
}

rks_status rks_engine_ask(rks_engine *engine, uint32_t peer, const rks_outgoing *request,
                          size_t max_reply, uint8_t **reply, size_t *reply_size, rks_error *err)
{
    waiter *w = waiter_new(max_reply, err);
    if (w == NULL)
        return RKS_ERR_MEMORY;
    rks_reply_sink sink = {.place = waiter_place, .done = waiter_done, .user = w};
    rks_status status = rks_engine_request(engine, peer, request, &sink, err);
    if (status != RKS_OK) {
        w->users = 1; /* the engine has not seen it */
        waiter_leave(w);
        return status;
    }
    pthread_mutex_lock(&w->mutex);
    while (!w->done && status == RKS_OK) {
        rks_cond_wait_ms(&w->cond, &w->mutex, RKS_WAIT_SLICE_MS);
        if (w->done)
            break;
        pthread_mutex_unlock(&w->mutex);
        status = rks_check_interrupt(err);
        pthread_mutex_lock(&w->mutex);
    }
    if (status == RKS_OK)
        status = w->status;
    if (status == RKS_OK) {
        *reply = w->reply;
        *reply_size = w->size;
        w->reply = NULL;
    } else if (w->done && w->status == status && err != NULL)
        *err = w->err;
    pthread_mutex_unlock(&w->mutex);
    waiter_leave(w);
    return status;
}
