/* SPDX-License-Identifier: Apache-2.0
 *
 * connection.c: one stream: its opening, its handshake and its end. Until the peer has proved the
 * secret, a connection accepts only a hello and a proof, and allocates nothing for them. */
#include "transport/connection.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "transport/listener.h"
#include "transport/peer.h"

enum { REFUSALS_LOGGED_EACH_MS = 60000 };

/* ---- end ---------------------------------------------------------------------------------- */

static void connection_free(rks_connection *connection)
{
    if (connection->link != NULL) {
        *connection->link = connection->next;
        if (connection->next != NULL)
            connection->next->link = connection->link;
    }
    rks_record_layer_free(connection->layer);
    rks_free(connection);
}

void rks_connection_unref(rks_connection *connection)
{
    connection->references--;
    if (connection->references == 0 && connection->state == RKS_CONNECTION_OVER &&
        !connection->stream_open)
        connection_free(connection);
}

static void log_refusal(rks_connection *connection, const rks_error *why)
{
    rks_engine *engine = connection->engine;
    char from[64];
    atomic_fetch_add(&engine->refused, 1);
    uint64_t now = rks_net_now_ms(engine->net);
    if (engine->refusal_logged_ms != 0 && now - engine->refusal_logged_ms < REFUSALS_LOGGED_EACH_MS)
        return;
    engine->refusal_logged_ms = now;
    rks_stream_name(connection->stream, from, sizeof(from));
    rks_log("rank %u refused a connection from %s: %s", engine->options.rank, from, why->text);
}

static void forget_frame_in(rks_connection *connection)
{
    if (connection->request != NULL)
        rks_request_drop(connection->request);
    else if (connection->body != NULL && connection->frame.type == RKS_FRAME_NOTE)
        rks_free(connection->body);
    connection->request = NULL;
    connection->receiving = NULL;
    connection->body = NULL;
}

/* Stops counting a connection as unproven: it is proven, or over before that. */
static void proven(rks_connection *connection)
{
    if (!connection->unproven)
        return;
    connection->unproven = false;
    rks_wipe(connection->hello.key, sizeof(connection->hello.key));
    connection->engine->events->settled(connection);
}

/* Returns true if the peer abandoned this connection because it took the one that this side
 * opened. */
static bool left_by_peer(const rks_connection *connection)
{
    return connection->hung_up && connection->line == &connection->engine->admission.heard &&
           connection->engine->peers[connection->rank].connection != NULL;
}

void rks_connection_lose(rks_connection *connection, const rks_error *why)
{
    rks_engine *engine = connection->engine;
    if (connection->state == RKS_CONNECTION_OVER)
        return;
    bool was_open = connection->state == RKS_CONNECTION_OPEN;
    connection->state = RKS_CONNECTION_OVER;
    if (connection->receiving != NULL)
        rks_connection_drop_reply(connection); /* the call stays among the peer's calls */
    forget_frame_in(connection);
    rks_connection_forget_parked(connection);
    if (was_open) { /* the next connection of this rank has only what they leave of its share */
        connection->serving_old = true;
        engine->peers[connection->rank].old_serving += connection->serving;
        engine->peers[connection->rank].old_at_pool += connection->at_pool;
    }
    if (connection->initiator || was_open || connection->held)
        engine->events->ended(connection, why);
    else if (!engine->ending && !connection->ending && !connection->crossed &&
             !left_by_peer(connection))
        log_refusal(connection, why);
    if (connection->stream_open)
        rks_stream_close(connection->stream);
    proven(connection);
}

void rks_connection_lose_all(rks_engine *engine)
{
    rks_error over = {.status = RKS_OK, .rank = -1};
    for (rks_connection *c = engine->connections; c != NULL; c = c->next)
        rks_connection_lose(c, &over);
}

void rks_connection_fail(rks_connection *connection, rks_status status, int64_t cause,
                         const char *format, ...)
{
    char text[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    rks_error why;
    rks_fail(&why, status, cause, "%s", text);
    rks_connection_lose(connection, &why);
}

void rks_connection_drop_reply(rks_connection *connection)
{
    connection->receiving = NULL;
    connection->body = NULL;
}

/* ---- handshake ---------------------------------------------------------------------------- */

static void say_hello(rks_connection *connection)
{
    rks_hello_encode(&connection->hello, connection->says_hello.body);
    rks_connection_say(connection, &connection->says_hello, RKS_FRAME_HELLO, RKS_HELLO_BODY);
}

static void say_proof(rks_connection *connection)
{
    rks_hello_prove(&connection->hello, connection->says_proof.body);
    rks_connection_say(connection, &connection->says_proof, RKS_FRAME_PROOF, RKS_PROOF_SIZE);
}

void rks_connection_receive_hello(rks_connection *connection)
{
    rks_error err;
    if (connection->hello.heard) {
        rks_connection_fail(connection, RKS_ERR_PEER, 0, "said hello twice");
        return;
    }
    rks_hello *hello = &connection->hello;
    connection->hello_ms = rks_net_now_ms(connection->engine->net);
    rks_status status = rks_hello_receive(hello, connection->small, &err);
    bool is_hello = status == RKS_OK || status == RKS_ERR_UNSUPPORTED;
    if (is_hello && !connection->initiator) {
        connection->rank = hello->peer_rank;
        if (connection->engine->events->bind(connection->engine, hello, &err) != RKS_OK)
            status = (rks_status)err.status;
    }
    if (status == RKS_OK && !rks_hello_trusted(hello))
        status = rks_fail(&err, RKS_ERR_PEER, 0,
                          connection->initiator ? "answered without the job's secret"
                                                : "said hello without the job's secret");
    /* Answers also if this side refuses: the other side learns why from this side's version and
     * tag. */
    if (is_hello && !connection->initiator)
        say_hello(connection);
    if (status != RKS_OK)
        rks_connection_lose(connection, &err);
    else if (connection->crossed)
        rks_connection_fail(connection, RKS_OK, 0, "crossed");
    else if (connection->initiator)
        say_proof(connection);
    else if (connection->unproven)
        connection->engine->events->heard(connection);
}

void rks_connection_distrust(rks_connection *connection, rks_error *why)
{
    why->cause = EBADMSG;
    rks_error_place(why, connection->engine->options.rank, connection->engine->address.host);
    rks_connection_say_why(connection, why);
    rks_connection_lose(connection, why);
}

static void refusal_sent(rks_frame *frame)
{
    rks_free((uint8_t *)frame - offsetof(rks_note, frame));
}

void rks_connection_refuse(rks_connection *connection, rks_error *why)
{
    log_refusal(connection, why);
    rks_error_place(why, connection->engine->options.rank, connection->engine->address.host);
    if (connection->state == RKS_CONNECTION_HELLO)
        say_proof(connection);
    rks_note *note = rks_alloc(1, sizeof(*note) + sizeof(*why), NULL);
    if (note != NULL) {
        memcpy(note->body, why, sizeof(*why));
        note->frame.sent = refusal_sent;
        rks_frame_set(&note->frame, RKS_FRAME_ERROR, 0, 0, note->body, sizeof(*why));
        rks_connection_send(connection, &note->frame);
    }
    connection->ending = true;
    rks_connection_finish(connection);
}

/* Opens a connection whose two sides are proven. */
static void open_proven(rks_connection *connection)
{
    rks_error err;
    const rks_connection_events *events = connection->engine->events;
    if (rks_record_layer_create(&connection->hello, &connection->layer, &err) != RKS_OK) {
        rks_connection_lose(connection, &err);
        return;
    }
    if (!connection->initiator && events->accepted(connection, &err) != RKS_OK) {
        rks_connection_refuse(connection, &err);
        return;
    }
    connection->state = RKS_CONNECTION_OPEN;
    connection->proved = true;
    connection->heard_ms = connection->proved_ms = rks_net_now_ms(connection->engine->net);
    if (!connection->initiator)
        say_proof(connection);
    proven(connection);
    events->opened(connection);
}

void rks_connection_use_held(rks_connection *connection)
{
    connection->held = false;
    open_proven(connection);
}

void rks_connection_receive_proof(rks_connection *connection)
{
    if (connection->ending || connection->held ||
        !rks_hello_proved(&connection->hello, connection->small))
        rks_connection_fail(connection, RKS_ERR_PEER, 0,
                            connection->initiator ? "answered without the job's secret"
                                                  : "did not prove the job's secret");
    else if (connection->crossed)
        rks_connection_fail(connection, RKS_OK, 0, "crossed");
    else if (connection->initiator || !connection->engine->events->holds(connection))
        open_proven(connection);
}

/* ---- the stream -------------------------------------------------------------------------- */

static void on_ended(void *user, int error)
{
    rks_connection *connection = user;
    if (connection->state == RKS_CONNECTION_OVER)
        return;
    if (connection->finished) {
        rks_error over = {.status = RKS_OK, .rank = -1};
        rks_connection_lose(connection, &over);
        return;
    }
    connection->hung_up = error == 0 || error == ECONNRESET || error == EPIPE;
    bool hello = connection->state == RKS_CONNECTION_HELLO;
    if (connection->hung_up && !hello) /* its process ended, or the network ended the connection */
        rks_connection_fail(connection, RKS_ERR_PEER, error,
                            error == 0 ? "closed the connection" : "the connection was reset");
    else if (error == 0)
        rks_connection_fail(connection, RKS_ERR_PEER, 0,
                            "closed the connection before it proved itself");
    else {
        rks_error why;
        rks_fail_errno(&why, error, "connection lost");
        why.status = error == ETIMEDOUT ? RKS_ERR_TIMEOUT : RKS_ERR_PEER;
        rks_connection_lose(connection, &why);
    }
}

bool rks_is_unreachable(int64_t error)
{
    return error == ENETUNREACH || error == EHOSTUNREACH || error == ENETDOWN ||
           error == EHOSTDOWN || error == EAGAIN;
}

/* ---- begin -------------------------------------------------------------------------------- */

static void begin_hello(rks_connection *connection)
{
    connection->state = RKS_CONNECTION_HELLO;
    connection->spoke = true;
    rks_stream_tune(connection->stream, connection->engine->options.silence_ms);
    int error = rks_stream_read(connection->stream, true);
    if (error != 0)
        rks_connection_fail(connection, RKS_ERR_IO, error, "reading failed");
    else if (connection->initiator)
        say_hello(connection);
}

static void on_connected(void *user, int error)
{
    rks_connection *connection = user;
    if (connection->state == RKS_CONNECTION_OVER)
        return;
    if (error == 0) {
        begin_hello(connection);
        return;
    }
    char where[64];
    rks_address_format(&connection->engine->addresses[connection->rank], where, sizeof(where));
    rks_error why;
    rks_fail_errno(&why, error, "no connection to %s", where);
    why.status = error == ETIMEDOUT ? RKS_ERR_TIMEOUT : RKS_ERR_PEER;
    rks_connection_lose(connection, &why);
}

static void on_written(void *user, int error)
{
    rks_connection_written(user, error);
}

static void on_closed(void *user)
{
    rks_connection *connection = user;
    rks_engine *engine = connection->engine;
    connection->stream_open = false;
    rks_connection_forget_frames(connection);
    if (connection->references == 0)
        connection_free(connection);
    engine->events->closed(engine);
}

static const rks_stream_events STREAM_EVENTS = {
    on_connected, rks_connection_room, rks_connection_received, on_ended, on_written, on_closed,
};

/* Frees a connection without a stream. */
static void connection_discard(rks_connection *connection)
{
    rks_wipe(&connection->hello.key, sizeof(connection->hello.key));
    rks_free(connection);
}

static rks_connection *connection_new(rks_engine *engine, bool initiator, uint32_t rank,
                                      rks_error *err)
{
    rks_connection *connection = rks_alloc(1, sizeof(*connection), err);
    if (connection == NULL)
        return NULL;
    connection->engine = engine;
    connection->serial = engine->serial++;
    connection->initiator = initiator;
    connection->rank = rank;
    connection->opened_ms = rks_net_now_ms(engine->net);
    connection->heard_ms = connection->opened_ms;
    connection->hello = (rks_hello){.session = engine->session,
                                    .ranks = engine->options.size,
                                    .own_rank = engine->options.rank,
                                    .peer_rank = rank,
                                    .connected = initiator};
    if ((initiator && engine->events->bind(engine, &connection->hello, err) != RKS_OK) ||
        rks_hello_start(&connection->hello, err) != RKS_OK) {
        connection_discard(connection);
        return NULL;
    }
    return connection;
}

/* Registers a connection whose stream is open. From now on the end of the stream ends it. */
static void connection_link(rks_connection *connection)
{
    rks_engine *engine = connection->engine;
    connection->stream_open = true;
    engine->streams++;
    connection->next = engine->connections;
    connection->link = &engine->connections;
    if (connection->next != NULL)
        connection->next->link = &connection->next;
    engine->connections = connection;
}

rks_status rks_connection_open(rks_engine *engine, uint32_t rank, rks_error *err)
{
    const rks_address *address = &engine->addresses[rank];
    rks_connection *connection = connection_new(engine, true, rank, err);
    if (connection == NULL)
        return (rks_status)err->status;
    int error =
        rks_net_connect(engine->net, address, &STREAM_EVENTS, connection, &connection->stream);
    if (error != 0) {
        char where[64];
        rks_address_format(address, where, sizeof(where));
        rks_status status = rks_fail_errno(err, error, "no connection to %s", where);
        if (error == ECONNREFUSED || error == EDESTADDRREQ || rks_is_unreachable(error))
            status = err->status = error == EAGAIN ? RKS_ERR_TIMEOUT : RKS_ERR_PEER;
        connection_discard(connection);
        return status;
    }
    connection_link(connection);
    connection->unproven = true;
    engine->opening++;
    engine->peers[rank].connection = connection;
    rks_stream_tune(connection->stream, engine->options.silence_ms);
    return RKS_OK;
}

static void accepted(rks_connection *connection)
{
    connection_link(connection);
    connection->unproven = true;
    connection->engine->events->entered(connection);
    uint32_t silence_ms = connection->engine->options.silence_ms;
    rks_engine_alarm_at(connection->engine,
                        connection->opened_ms +
                            (silence_ms < RKS_SILENT_MS ? silence_ms : RKS_SILENT_MS));
    begin_hello(connection);
}

int rks_connection_accept(rks_engine *engine)
{
    rks_connection *connection = connection_new(engine, false, UINT32_MAX, NULL);
    if (connection == NULL)
        return ENOMEM;
    int error = rks_net_accept(engine->net, &STREAM_EVENTS, connection, &connection->stream);
    if (error != 0)
        connection_discard(connection);
    else
        accepted(connection);
    return error;
}
