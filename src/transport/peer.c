/* SPDX-License-Identifier: Apache-2.0
 *
 * peer.c: sends requests and notes to a peer, and ends them when the peer is lost. */
#include "transport/peer.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"

enum {
    RETRY_MS = 100,   /* delay scale of retries, which grow up to eight times that */
    OPENING_MAX = 16, /* most connections being opened at a time, so that at the start of a large
                       * job each rank has few hellos to answer at a time */
};

/* ---- requests that wait ---------------------------------------------------------------------- */

/* Counts one of the two ends of a call: its frame is sent or dropped, and it is done. The second
 * one ends the call. */
static void call_ended(rks_call *call)
{
    if (++call->ended == 2)
        call->ops->over(call);
}

static rks_call *call_of(rks_frame *frame)
{
    return (rks_call *)(void *)((uint8_t *)frame - offsetof(rks_call, frame));
}

static void push(rks_engine *engine, uint32_t rank, rks_frame *frame);

void rks_call_sent(rks_frame *frame)
{
    rks_call *call = call_of(frame);
    if (!call->again || call->ended != 0) {
        call_ended(call);
        return;
    }
    call->again = false;
    push(call->engine, call->peer, frame);
}

/* Returns true if the call fits the limit of unanswered bytes. One call always does. */
static bool may_ask(const rks_peer *peer, const rks_call *call)
{
    return peer->asked == 0 || peer->asked + rks_request_room(call->size) <= RKS_ASKED_MAX;
}

static void ask_peer(rks_engine *engine, rks_call *call)
{
    call->asked = true;
    engine->peers[call->peer].asked += rks_request_room(call->size);
    push(engine, call->peer, &call->frame);
}

/* Sends more calls after one has ended. */
static void ask_next(rks_engine *engine, rks_peer *peer)
{
    while (peer->unasked.first != NULL && may_ask(peer, call_of(peer->unasked.first)))
        ask_peer(engine, call_of(rks_frame_queue_take(&peer->unasked)));
}

/* Drops the queued frames of calls that are all about to fail. */
static void forget_unasked(rks_peer *peer)
{
    rks_frame *frame;
    while ((frame = rks_frame_queue_take(&peer->unasked)) != NULL)
        frame->sent(frame);
}

void rks_call_done(rks_engine *engine, rks_call *call, const rks_error *err)
{
    rks_connection *connection = engine->peers[call->peer].connection;
    if (connection != NULL && connection->receiving == call)
        rks_connection_drop_reply(connection);
    rks_call_table_remove(engine, call);
    rks_peer *peer = &engine->peers[call->peer];
    if (call->asked)
        peer->asked -= rks_request_room(call->size);
    if (err == NULL)
        peer->breaks = 0;
    call->ops->done(call, err);
    call_ended(call);
    ask_next(engine, peer);
}

/* ---- words for a loss ------------------------------------------------------------------------ */

static void describe(const rks_engine *engine, uint32_t rank, const rks_error *why,
                     const char *phase, rks_error *err)
{
    const char *host = rks_engine_host(engine, rank);
    bool closed = why->status == RKS_OK;
    rks_fail(err, closed ? RKS_ERR_PEER : (rks_status)why->status, why->cause,
             "rank %" PRIu32 " (%s): %s%s%s", rank, host, closed ? "has closed" : why->text,
             phase == NULL ? "" : " during ", phase == NULL ? "" : phase);
    rks_error_place(err, rank, host);
}

static void fail_requests(rks_engine *engine, uint32_t rank, const rks_error *why)
{
    rks_peer *peer = &engine->peers[rank];
    forget_unasked(peer);
    while (peer->calls != NULL) {
        rks_error err;
        describe(engine, rank, why, peer->calls->phase, &err);
        rks_call_done(engine, peer->calls, &err);
    }
}

static void drop_waiting(rks_peer *peer)
{
    rks_frame *frame;
    while ((frame = rks_frame_queue_take(&peer->waiting)) != NULL)
        frame->sent(frame);
}

static void stop_retry(rks_engine *engine, rks_peer *peer)
{
    if (peer->retry_ms != 0)
        engine->retries--;
    peer->retry_ms = 0;
}

/* Reports that a peer which either side kept is lost or has closed; once for each peer. */
static void report(rks_engine *engine, uint32_t rank, const rks_error *why)
{
    rks_peer *peer = &engine->peers[rank];
    if (peer->reported || engine->ending)
        return;
    peer->reported = true;
    rks_error err;
    describe(engine, rank, why, NULL, &err);
    if (why->status == RKS_OK)
        err.status = RKS_OK;
    rks_handlers_lost(engine, rank, &err);
}

static void is_gone(rks_engine *engine, uint32_t rank, const rks_error *why)
{
    rks_peer *peer = &engine->peers[rank];
    if (!peer->failed)
        describe(engine, rank, why, NULL, &peer->error);
    peer->failed = true;
    peer->gone = true;
}

/* Handles a connection that ended or could not be opened. `kept` means that the peer kept it. */
static void connection_lost(rks_engine *engine, uint32_t rank, bool kept, const rks_error *why)
{
    rks_peer *peer = &engine->peers[rank];
    peer->connection = NULL;
    stop_retry(engine, peer);
    rks_error told = *why;
    if (why->status != RKS_OK)
        rks_peer_say_broken(engine, rank, &told);
    why = &told;
    peer->broke_ms = 0;
    peer->breaks = peer->wrong = 0;
    if (why->status == RKS_OK || peer->keep || kept)
        is_gone(engine, rank, why);
    drop_waiting(peer);
    rks_notes_drop(engine, rank);
    fail_requests(engine, rank, why);
    if (!peer->keep && !kept)
        return;
    report(engine, rank, why);
    /* Refuse the peer from now on. It may live, and would wait for frames that are lost. */
    peer->lost = peer->keep && why->status != RKS_OK && !engine->ending;
}

/* Returns a delay that grows with each attempt and differs between ranks. */
static uint64_t retry_delay(const rks_engine *engine, uint32_t rank)
{
    uint32_t doublings = engine->peers[rank].cuts < 4 ? engine->peers[rank].cuts : 4;
    uint64_t delay = ((uint64_t)RETRY_MS << doublings) / 2;
    delay += (engine->options.rank * 37u + rank * 11u) % RETRY_MS;
    uint64_t most = engine->options.silence_ms / 8;
    return delay < most ? delay : most;
}

/* Schedules another attempt. Returns false if the time for connecting is over. */
static bool connect_later(rks_engine *engine, uint32_t rank)
{
    rks_peer *peer = &engine->peers[rank];
    uint64_t now = rks_net_now_ms(engine->net);
    uint64_t delay = retry_delay(engine, rank);
    if (engine->ending || now + delay >= peer->since_ms + engine->options.silence_ms)
        return false;
    peer->connection = NULL;
    peer->retry_ms = now + delay;
    engine->retries++;
    rks_engine_alarm_at(engine, peer->retry_ms);
    return true;
}

/* Says that a rank has cut connections during the hello for T. */
static void blame_cuts(rks_engine *engine, const rks_connection *connection, rks_error *why)
{
    uint32_t cuts = engine->peers[connection->rank].cuts;
    if (connection->hello.heard) /* so both sides know the secret */
        rks_fail(why, RKS_ERR_PEER, 0,
                 "too busy: cut %" PRIu32 " connections during the hello within %" PRIu32 " ms",
                 cuts, engine->options.silence_ms);
    else
        rks_fail(why, RKS_ERR_PEER, 0,
                 "closed %" PRIu32 " connections without a hello within %" PRIu32
                 " ms: too busy, or not a rank of this job",
                 cuts, engine->options.silence_ms);
}

/* Takes the peer's held connection after this side's own has failed. Returns true if it is now the
 * peer's connection. */
static bool use_held(rks_engine *engine, uint32_t rank)
{
    rks_peer *peer = &engine->peers[rank];
    rks_connection *held = peer->held;
    if (held == NULL)
        return false;
    peer->held = NULL;
    peer->connection = NULL;
    rks_connection_use_held(held);
    return peer->connection != NULL;
}

void rks_peer_ended(rks_connection *connection, const rks_error *why)
{
    rks_engine *engine = connection->engine;
    uint32_t rank = connection->rank;
    rks_peer *peer = &engine->peers[rank];
    if (peer->held == connection)
        peer->held = NULL;
    if (peer->connection != connection)
        return; /* another one has replaced it */
    if (!connection->proved && use_held(engine, rank))
        return;
    /* The peer was too busy to listen, or out of reach. If it lacked the secret, its hello would
     * have shown that. */
    rks_error busy;
    peer->wanted = peer->wanted || connection->kept;
    if (connection->proved && rks_peer_mend(connection, why))
        return;
    bool cut = !connection->proved && connection->hung_up;
    peer->cuts += cut;
    bool again = !connection->proved &&
                 (cut || rks_is_unreachable(why->cause) || rks_peer_try_again(connection, why));
    if (again && connect_later(engine, rank))
        return;
    if (cut) {
        blame_cuts(engine, connection, &busy);
        why = &busy;
    }
    connection_lost(engine, rank, peer->wanted, why);
}

/* ---- connections ----------------------------------------------------------------------------- */

/* Leaves a peer to rks_peer_retry. Its time for connecting starts only then. */
static void wait_for_turn(rks_engine *engine, rks_peer *peer)
{
    peer->paced = true;
    peer->retry_ms = 1;
    engine->retries++;
}

static void connect_peer(rks_engine *engine, uint32_t rank)
{
    rks_error why;
    rks_peer *peer = &engine->peers[rank];
    if (engine->opening >= OPENING_MAX) {
        wait_for_turn(engine, peer);
        return;
    }
    if (peer->paced || peer->since_ms == 0)
        peer->since_ms = rks_net_now_ms(engine->net);
    peer->paced = false;
    rks_engine_alarm_at(engine, peer->since_ms + engine->options.silence_ms);
    if (rks_connection_open(engine, rank, &why) == RKS_OK ||
        (rks_is_unreachable(why.cause) && connect_later(engine, rank)))
        return;
    connection_lost(engine, rank, peer->wanted, &why);
}

/* Starts at the next rank. Otherwise all ranks of a job would start with the same ones. This way
 * mostly the lower half of a circle connects to the upper half, and few connections cross. */
void rks_peer_retry(rks_engine *engine, uint64_t now_ms)
{
    uint32_t size = engine->options.size, first = engine->options.rank + 1;
    for (uint32_t i = 0; i < size && engine->retries > 0; i++) {
        uint32_t rank = (uint32_t)(((uint64_t)first + i) % size);
        rks_peer *peer = &engine->peers[rank];
        if (peer->retry_ms == 0)
            continue;
        if (peer->retry_ms > now_ms) {
            rks_engine_alarm_at(engine, peer->retry_ms);
            continue;
        }
        if (engine->opening >= OPENING_MAX) {
            peer->retry_ms = 1;
            peer->paced = true; /* its time starts with its turn */
            continue;
        }
        stop_retry(engine, peer);
        connect_peer(engine, rank);
    }
}

void rks_peer_next(rks_engine *engine)
{
    engine->turn = engine->retries > 0;
}

/* ---- the hello ------------------------------------------------------------------------------- */

bool rks_peer_waits_for(const rks_connection *connection)
{
    if (!connection->initiator && !connection->held)
        return false; /* its rank is not proven */
    const rks_peer *peer = &connection->engine->peers[connection->rank];
    return (connection == peer->connection || connection == peer->held) &&
           (peer->waiting.first != NULL || peer->notes.first != NULL);
}

static void leave_crossed(rks_connection *connection)
{
    static const rks_error over = {.status = RKS_OK, .rank = -1};
    connection->crossed = true;
    rks_connection_lose(connection, &over);
}

void rks_peer_opened(rks_connection *connection)
{
    rks_engine *engine = connection->engine;
    rks_peer *peer = &engine->peers[connection->rank];
    rks_frame *frame;
    rks_store_u64(connection->says_resume.body, engine->instance);
    rks_store_u64(connection->says_resume.body + 8, peer->notes.taken);
    peer->notes.told = peer->notes.taken;
    peer->notes.untold = 0;
    rks_connection_say_later(connection, &connection->says_resume, RKS_FRAME_RESUME, 0,
                             RKS_RESUME_BODY);
    if (peer->connection != connection)
        return; /* this rank's other end, if it connects to itself */
    if (peer->held != NULL)
        leave_crossed(peer->held);
    if (peer->keep)
        rks_connection_say_later(connection, &connection->says_keep, RKS_FRAME_KEEP, 0, 0);
    rks_notes_send(engine, connection->rank);
    while ((frame = rks_frame_queue_take(&peer->waiting)) != NULL)
        rks_connection_send(connection, frame);
    peer->cuts = peer->wrong = 0;
    rks_peer_mended(engine, connection->rank);
    if (rks_peer_expects(peer))
        rks_engine_beat(engine);
    if (engine->ending)
        rks_connection_end(connection);
}

bool rks_peer_holds(rks_connection *connection)
{
    rks_engine *engine = connection->engine;
    rks_peer *peer = &engine->peers[connection->rank];
    rks_connection *own = peer->connection;
    if (own == NULL || !own->initiator || engine->options.rank >= connection->rank)
        return false;
    if (own->proved && connection->opened_ms <= own->proved_ms) { /* so the peer has left this
                                                                   * one */
        leave_crossed(connection);
        return true;
    }
    if (own->proved)
        return false;
    if (peer->held != NULL)
        leave_crossed(peer->held);
    connection->held = true;
    peer->held = connection;
    return true;
}

/* Marks this side's connection as replaced by the peer's. It stays until the peer's hello arrives,
 * so that the peer knows whose connection ends. */
static void cross(rks_connection *own)
{
    own->crossed = true;
}

rks_status rks_peer_accepted(rks_connection *connection, rks_error *err)
{
    rks_engine *engine = connection->engine;
    rks_peer *peer = &engine->peers[connection->rank];
    rks_connection *old = peer->connection;
    if (engine->ending && peer->waiting.first == NULL && peer->notes.first == NULL)
        return rks_fail(err, RKS_ERR_PEER, 0, "rank %" PRIu32 " is closing", engine->options.rank);
    if (peer->lost)
        return rks_fail(err, RKS_ERR_PEER, 0, "rank %" PRIu32 " has lost this rank before",
                        engine->options.rank);
    if (connection->rank == engine->options.rank)
        return RKS_OK; /* the rank connects to itself, and uses the other end */
    if (old != NULL && old->proved) {
        static const rks_error why = {.status = RKS_ERR_PEER, .rank = -1};
        if (!old->initiator && connection->serial < old->serial)
            return rks_fail(err, RKS_ERR_PEER, 0, "a later connection has replaced this one");
        /* The old connection broke, and its rank has noticed first. */
        peer->wanted = peer->wanted || old->kept;
        peer->broke_ms = rks_net_now_ms(engine->net);
        snprintf(peer->broke, sizeof(peer->broke), "the peer gave it up");
        peer->connection = connection;
        rks_connection_lose(old, &why);
        rks_peer_take_back(engine, connection->rank);
    } else if (old != NULL)
        cross(old);
    stop_retry(engine, peer);
    peer->paced = false;
    peer->connection = connection;
    return RKS_OK;
}

bool rks_peer_expects(const rks_peer *peer)
{
    return peer->keep || peer->calls != NULL;
}

/* ---- from the mailbox ------------------------------------------------------------------------ */

static bool is_open(const rks_peer *peer)
{
    return peer->connection != NULL && peer->connection->state == RKS_CONNECTION_OPEN;
}

/* Connects, unless that is under way. */
static void dial(rks_engine *engine, uint32_t rank)
{
    rks_peer *peer = &engine->peers[rank];
    if (peer->connection == NULL && peer->retry_ms == 0) {
        peer->since_ms = rks_net_now_ms(engine->net);
        if (engine->options.size <= OPENING_MAX) {
            connect_peer(engine, rank);
        } else {
            wait_for_turn(engine, peer);
            rks_peer_next(engine);
        }
    }
}

static void push(rks_engine *engine, uint32_t rank, rks_frame *frame)
{
    rks_peer *peer = &engine->peers[rank];
    if (is_open(peer)) {
        rks_connection_send(peer->connection, frame);
        return;
    }
    rks_frame_queue_add(&peer->waiting, frame);
    dial(engine, rank);
}

/* Starts to count the peer's silence from now on. */
static void expect(rks_engine *engine, rks_peer *peer)
{
    if (peer->connection != NULL)
        peer->connection->heard_ms = rks_net_now_ms(engine->net);
    rks_engine_beat(engine);
}

void rks_peer_call(rks_engine *engine, rks_call *call)
{
    rks_peer *peer = &engine->peers[call->peer];
    rks_error err;
    rks_status status = RKS_OK;
    if (engine->aborted)
        status = rks_fail(&err, RKS_ERR_STATE, 0, "closed during %s", call->phase);
    else if (peer->failed) {
        err = peer->error;
        status = RKS_ERR_PEER;
    } else {
        if (!rks_peer_expects(peer))
            expect(engine, peer);
        if (!rks_call_table_add(engine, call))
            status = rks_fail(&err, RKS_ERR_MEMORY, 0, "no memory for one more request");
    }
    if (status != RKS_OK) {
        call_ended(call);
        call->ops->done(call, &err);
        call_ended(call);
        return;
    }
    rks_frame_set(&call->frame, RKS_FRAME_REQUEST, call->id, call->service, call->body, call->size);
    if (peer->unasked.first == NULL && may_ask(peer, call))
        ask_peer(engine, call);
    else
        rks_frame_queue_add(&peer->unasked, &call->frame);
}

void rks_peer_note(rks_engine *engine, rks_note *note)
{
    rks_peer *peer = &engine->peers[note->peer];
    uint32_t rank = note->peer;
    if (peer->gone || engine->ending) {
        rks_free(note);
        return;
    }
    rks_notes_add(engine, note);
    if (!is_open(peer))
        dial(engine, rank);
}

void rks_peer_keep(rks_engine *engine, rks_note *note)
{
    rks_peer *peer = &engine->peers[note->peer];
    uint32_t rank = note->peer;
    rks_free(note);
    if (peer->gone && !peer->keep && !peer->reported && !engine->ending) {
        peer->reported = true;
        rks_handlers_lost(engine, rank, &peer->error);
    }
    if (peer->keep || peer->gone || engine->ending)
        return;
    if (!rks_peer_expects(peer))
        expect(engine, peer);
    peer->keep = true;
    if (is_open(peer))
        rks_connection_say_later(peer->connection, &peer->connection->says_keep, RKS_FRAME_KEEP, 0,
                                 0);
    else
        dial(engine, rank);
}

void rks_peer_give_up(rks_engine *engine, uint32_t rank, const rks_error *err)
{
    rks_peer *peer = &engine->peers[rank];
    if (!peer->failed)
        peer->error = *err;
    peer->failed = true;
    forget_unasked(peer);
    while (peer->calls != NULL)
        rks_call_done(engine, peer->calls, err);
}

void rks_peer_abort_all(rks_engine *engine)
{
    engine->aborted = true;
    for (uint32_t rank = 0; rank < engine->options.size; rank++)
        forget_unasked(&engine->peers[rank]);
    for (uint32_t i = 0; i < engine->call_entries_room; i++) {
        rks_call *call = engine->call_entries[i].call;
        if (call == NULL)
            continue;
        rks_error err;
        rks_fail(&err, RKS_ERR_STATE, 0, "closed during %s", call->phase);
        rks_call_done(engine, call, &err);
    }
}

void rks_peer_forget_all(rks_engine *engine)
{
    for (uint32_t rank = 0; rank < engine->options.size; rank++) {
        drop_waiting(&engine->peers[rank]);
        rks_notes_drop(engine, rank);
        rks_free(engine->peers[rank].said);
    }
}
