/* SPDX-License-Identifier: Apache-2.0
 *
 * receiver.c: receives frames. Headers and small frames are read into the engine's stage. The body
 * of a larger frame is read directly into its place. */
#include "transport/connection.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "transport/peer.h"

enum { LARGE = 16 * 1024 }; /* smaller bodies are copied from the stage, many after one read */

static bool in_place(const rks_connection *connection, uint16_t type)
{
    if (connection->state == RKS_CONNECTION_HELLO)
        return type == RKS_FRAME_HELLO || (type == RKS_FRAME_PROOF && connection->hello.heard) ||
               (type == RKS_FRAME_ERROR && connection->initiator); /* and ignored */
    if (!connection->resumed)
        return type == RKS_FRAME_RESUME || type == RKS_FRAME_ERROR;
    return type != RKS_FRAME_HELLO && type != RKS_FRAME_PROOF && type != RKS_FRAME_RESUME;
}

static void begin_request(rks_connection *connection)
{
    size_t size = connection->frame.size;
    connection->request = rks_request_create(connection, &connection->frame, size);
    if (connection->request != NULL) {
        connection->body = connection->request->body;
        return;
    }
    /* A request without its body can still be answered with an error. */
    connection->request = rks_request_create(connection, &connection->frame, 0);
    if (connection->request == NULL)
        rks_connection_fail(connection, RKS_ERR_MEMORY, 0, "no memory for a request of %zu bytes",
                            size);
}

static void begin_reply(rks_connection *connection)
{
    rks_engine *engine = connection->engine;
    size_t size = connection->frame.size;
    rks_call *call = rks_call_find(engine, connection->rank, connection->frame.id);
    if (call == NULL) {
        atomic_fetch_add(&engine->strays, 1);
        return;
    }
    if (!call->placed) {
        call->placed = true;
        call->room = size;
        call->to = call->ops->place(call, size);
    } else if (call->room != size) {
        rks_error err;
        rks_fail(&err, RKS_ERR_PEER, 0, "rank %u replied with %zu bytes, then with %zu",
                 connection->rank, call->room, size);
        engine->events->call_done(engine, call, &err);
        return;
    }
    connection->body = call->to;
    connection->receiving = call;
    if (connection->body == NULL && size > 0) {
        rks_error err;
        rks_fail(&err, RKS_ERR_MEMORY, 0, "no memory for a reply of %zu bytes from rank %u", size,
                 connection->rank);
        connection->receiving = NULL;
        engine->events->call_done(engine, call, &err);
    }
}

static void begin_note(rks_connection *connection)
{
    uint64_t wanted = connection->engine->peers[connection->rank].notes.taken + 1;
    if (connection->frame.id != wanted) {
        rks_error err;
        rks_fail(&err, RKS_ERR_PEER, 0, "note %llu came instead of note %llu",
                 (unsigned long long)connection->frame.id, (unsigned long long)wanted);
        rks_connection_distrust(connection, &err);
    } else if (connection->frame.size > 0) {
        connection->body = rks_alloc_raw(connection->frame.size, 1, NULL);
        if (connection->body == NULL)
            rks_connection_fail(connection, RKS_ERR_MEMORY, 0, "no memory for a note of %llu bytes",
                                (unsigned long long)connection->frame.size);
    }
}

/* Starts a frame whose header is complete. */
static void begin_frame(rks_connection *connection)
{
    rks_error err;
    connection->body = NULL; /* that of the previous frame, which errors below must not free */
    connection->body_got = 0;
    if (rks_frame_decode(connection->header, connection->engine->options.max_frame,
                         &connection->frame, &err) != RKS_OK) {
        rks_connection_distrust(connection, &err);
        return;
    }
    uint16_t type = connection->frame.type;
    uint64_t limit = rks_frame_limit(connection->engine, type);
    if (connection->frame.size > limit) {
        rks_fail(&err, RKS_ERR_PEER, 0, "frame of type %u with %llu bytes, above the limit of %llu",
                 type, (unsigned long long)connection->frame.size, (unsigned long long)limit);
        rks_connection_distrust(connection, &err);
        return;
    }
    if (!in_place(connection, type)) {
        rks_fail(&err, RKS_ERR_PEER, 0, "frame of type %u out of order", type);
        rks_connection_distrust(connection, &err);
        return;
    }
    if (type == RKS_FRAME_HELLO || type == RKS_FRAME_PROOF || type == RKS_FRAME_ERROR ||
        type == RKS_FRAME_RESUME)
        connection->body = connection->small;
    else if (type == RKS_FRAME_REQUEST)
        begin_request(connection);
    else if (type == RKS_FRAME_REPLY)
        begin_reply(connection);
    else if (type == RKS_FRAME_NOTE)
        begin_note(connection);
}

static void handle_request(rks_connection *connection)
{
    rks_request *request = connection->request;
    connection->request = NULL;
    connection->body = NULL;
    if (request->size < connection->frame.size) {
        rks_error err;
        rks_fail(&err, RKS_ERR_MEMORY, 0, "no memory for a request of %llu bytes",
                 (unsigned long long)connection->frame.size);
        rks_request_fail(request, &err);
        return;
    }
    rks_connection_serve(connection, request);
}

static void handle_error(rks_connection *connection)
{
    rks_error err;
    if (connection->state != RKS_CONNECTION_OPEN)
        return; /* the sender is not proven */
    memcpy(&err, connection->small, sizeof(err));
    rks_error_sanitize(&err);
    if (connection->frame.id == 0) {
        rks_connection_fail(
            connection, (rks_status)err.status, err.cause, "%s: %.120s",
            err.cause == EBADMSG ? "ended the connection" : "refused the connection", err.text);
        return;
    }
    rks_call *call = rks_call_find(connection->engine, connection->rank, connection->frame.id);
    if (call == NULL)
        atomic_fetch_add(&connection->engine->strays, 1);
    else
        connection->engine->events->call_done(connection->engine, call, &err);
}

static void handle_bye(rks_connection *connection)
{
    connection->bye = true;
    if (connection->ending && !connection->finished)
        return; /* it still reads what is queued for it */
    rks_error over = {.status = RKS_OK, .rank = -1};
    rks_connection_lose(connection, &over);
}

static void handle_reply(rks_connection *connection)
{
    rks_call *call = connection->receiving;
    connection->receiving = NULL;
    connection->body = NULL;
    if (call != NULL)
        connection->engine->events->call_done(connection->engine, call, NULL);
}

static void handle_note(rks_connection *connection)
{
    uint8_t *body = connection->body;
    size_t size = connection->frame.size;
    connection->body = NULL;
    connection->engine->events->noted(connection, size);
    rks_handlers_note(connection->engine, connection->frame.service, connection->rank,
                      body != NULL ? body : connection->small, size);
    rks_free(body);
}

/* Handles a frame that is complete. */
static void handle_frame(rks_connection *connection)
{
    uint16_t type = connection->frame.type;
    connection->header_got = 0;
    connection->large = connection->frame.size >= LARGE;
    if (type != RKS_FRAME_REPLY && connection->body != NULL &&
        !rks_frame_body_good(connection->header, connection->body, connection->frame.size)) {
        rks_error err;
        rks_fail(&err, RKS_ERR_PEER, 0, "frame body that fails its check");
        rks_connection_distrust(connection, &err);
        return;
    }
    atomic_fetch_add_explicit(&connection->engine->frames_received, 1, memory_order_relaxed);
    switch (type) {
    case RKS_FRAME_HELLO:
        rks_connection_receive_hello(connection);
        break;
    case RKS_FRAME_PROOF:
        rks_connection_receive_proof(connection);
        break;
    case RKS_FRAME_RESUME:
        connection->resumed = true;
        connection->engine->events->resumed(connection, rks_load_u64(connection->small),
                                            rks_load_u64(connection->small + 8));
        break;
    case RKS_FRAME_ACK:
        connection->engine->events->acked(connection, connection->frame.id);
        break;
    case RKS_FRAME_PING:
        connection->engine->events->noted(connection, 0);
        rks_connection_say(connection, &connection->says_pong, RKS_FRAME_PONG, 0);
        break;
    case RKS_FRAME_REQUEST:
        handle_request(connection);
        break;
    case RKS_FRAME_REPLY:
        handle_reply(connection);
        break;
    case RKS_FRAME_ERROR:
        handle_error(connection);
        break;
    case RKS_FRAME_NOTE:
        handle_note(connection);
        break;
    case RKS_FRAME_BYE:
        handle_bye(connection);
        break;
    case RKS_FRAME_KEEP:
        connection->kept = true;
        rks_engine_beat(connection->engine);
        break;
    default: /* a pong: its arrival was all that matters */
        break;
    }
}

static size_t body_left(const rks_connection *connection)
{
    return connection->frame.size - connection->body_got;
}

static bool has_header(const rks_connection *connection)
{
    return connection->header_got == RKS_FRAME_HEADER;
}

static void on_body(rks_connection *connection, size_t size)
{
    rks_call *call = connection->receiving;
    connection->body_got += size;
    if (connection->body_got == connection->frame.size)
        handle_frame(connection);
    else if (call != NULL && call->ops->come != NULL)
        call->ops->come(call);
}

static void feed_records(rks_connection *connection, const uint8_t *bytes, size_t size);

/* Reads bytes in the stage or a record: headers, small bodies, and bytes to drop. */
static void consume(rks_connection *connection, const uint8_t *bytes, size_t size)
{
    bool plain = connection->layer == NULL;
    while (size > 0 && connection->state != RKS_CONNECTION_OVER) {
        if (plain && connection->layer != NULL) { /* that was the proof: the rest is records */
            feed_records(connection, bytes, size);
            return;
        }
        size_t taken;
        if (!has_header(connection)) {
            taken = RKS_FRAME_HEADER - connection->header_got;
            taken = taken < size ? taken : size;
            memcpy(connection->header + connection->header_got, bytes, taken);
            connection->header_got += taken;
            if (has_header(connection)) {
                begin_frame(connection);
                if (connection->state != RKS_CONNECTION_OVER && connection->frame.size == 0)
                    handle_frame(connection);
            }
        } else {
            taken = body_left(connection) < size ? body_left(connection) : size;
            if (connection->body != NULL)
                memcpy(connection->body + connection->body_got, bytes, taken);
            on_body(connection, taken);
        }
        bytes += taken;
        size -= taken;
    }
}

/* Reads the frames of the records that are complete, after `size` bytes more of them. */
static void receive_records(rks_connection *connection, size_t size)
{
    rks_record_layer *layer = connection->layer;
    const uint8_t *bytes;
    rks_error why;
    rks_record_layer_received(layer, size);
    while (connection->state != RKS_CONNECTION_OVER) {
        if (rks_record_layer_next(layer, &bytes, &size, &why) != RKS_OK) {
            rks_connection_distrust(connection, &why);
            return;
        }
        if (bytes == NULL)
            return;
        connection->heard_ms = rks_net_now_ms(connection->engine->net);
        consume(connection, bytes, size);
    }
}

/* Reads records from bytes that were received elsewhere. */
static void feed_records(rks_connection *connection, const uint8_t *bytes, size_t size)
{
    while (size > 0 && connection->state != RKS_CONNECTION_OVER) {
        size_t taken;
        void *room = rks_record_layer_room(connection->layer, &taken);
        taken = taken < size ? taken : size;
        memcpy(room, bytes, taken);
        receive_records(connection, taken);
        bytes += taken;
        size -= taken;
    }
}

void *rks_connection_room(void *user, size_t *size)
{
    rks_connection *connection = user;
    if (connection->layer != NULL) {
        connection->direct = false;
        return rks_record_layer_room(connection->layer, size);
    }
    connection->direct = has_header(connection) && connection->body != NULL;
    if (connection->direct) {
        *size = body_left(connection);
        return connection->body + connection->body_got;
    }
    *size = RKS_STAGE_SIZE;
    if (has_header(connection) && body_left(connection) < RKS_STAGE_SIZE)
        *size = body_left(connection);
    else if (!has_header(connection) && connection->large)
        *size = RKS_FRAME_HEADER - connection->header_got; /* reads the next body directly, too */
    return connection->engine->stage;
}

void rks_connection_received(void *user, size_t size)
{
    rks_connection *connection = user;
    if (connection->state == RKS_CONNECTION_OVER)
        return;
    if (connection->layer == NULL) /* with a layer, only a record with a right tag is a sign of
                                    * life */
        connection->heard_ms = rks_net_now_ms(connection->engine->net);
    atomic_store_explicit(&connection->engine->resting, false, memory_order_relaxed);
    atomic_fetch_add_explicit(&connection->engine->bytes_received, size, memory_order_relaxed);
    if (connection->layer != NULL)
        receive_records(connection, size);
    else if (connection->direct)
        on_body(connection, size);
    else
        consume(connection, connection->engine->stage, size);
}
