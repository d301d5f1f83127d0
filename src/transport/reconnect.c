/* SPDX-License-Identifier: Apache-2.0
 *
 * reconnect.c: makes a connection again that broke between two ranks. The laws are in peer.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "transport/peer.h"

enum {
    BREAKS_MOST = 3, /* connections that may break without any progress between them */
    WRONG_MOST = 2,  /* answers to hellos that may be wrong in a row: a changed bit, or a
                      * stranger at the rank's address */
    PAUSE_MS = 2000, /* least time between two times that a connection is made again; an eighth
                      * of T at most */
    HIGHER_MS = 20,  /* the higher rank leaves the lower one so much time to do it */
    LOGGED_EACH_MS = 60000,
};

static bool has_use_for(const rks_peer *peer)
{
    return rks_peer_expects(peer) || peer->wanted || peer->notes.first != NULL;
}

/* Returns true if the connection ended without a reason that counts for the next one, too. */
static bool is_break(const rks_connection *connection, const rks_error *why)
{
    return connection->proved && !connection->refused && !connection->bye &&
           connection->rank != connection->engine->options.rank &&
           (why->status == RKS_ERR_PEER || why->status == RKS_ERR_IO);
}

static uint64_t pause_ms(const rks_engine *engine)
{
    uint64_t most = engine->options.silence_ms / 8;
    return most < PAUSE_MS ? most : PAUSE_MS;
}

/* Connects at that time, unless the peer connects first. The time for connecting starts now. */
static void dial_at(rks_engine *engine, uint32_t rank, uint64_t at_ms)
{
    rks_peer *peer = &engine->peers[rank];
    uint64_t now = rks_net_now_ms(engine->net);
    peer->since_ms = now;
    peer->retry_ms = at_ms;
    engine->retries++;
    if (at_ms > now)
        rks_engine_alarm_at(engine, at_ms);
    else
        rks_peer_next(engine);
}

void rks_peer_take_back(rks_engine *engine, uint32_t rank)
{
    rks_peer *peer = &engine->peers[rank];
    for (rks_call *call = peer->calls; call != NULL; call = call->next) {
        if (!call->asked)
            continue;
        if (call->ended == 0) { /* the connection has its frame until its stream is closed */
            call->again = true;
        } else {
            call->ended = 0;
            rks_frame_queue_add(&peer->waiting, &call->frame);
        }
    }
    rks_notes_return(&peer->notes);
}

bool rks_peer_mend(rks_connection *connection, const rks_error *why)
{
    rks_engine *engine = connection->engine;
    rks_peer *peer = &engine->peers[connection->rank];
    uint64_t now = rks_net_now_ms(engine->net), at = now;
    if (engine->ending || peer->gone || !is_break(connection, why) || !has_use_for(peer))
        return false;
    if (now - connection->proved_ms >= engine->options.silence_ms)
        peer->breaks = 0;
    if (++peer->breaks > BREAKS_MOST)
        return false;
    snprintf(peer->broke, sizeof(peer->broke), "%.95s", why->text);
    peer->broke_ms = now;
    peer->connection = NULL;
    rks_peer_take_back(engine, connection->rank);
    if (peer->mended_ms != 0 && peer->mended_ms + pause_ms(engine) > now)
        at = peer->mended_ms + pause_ms(engine);
    if (engine->options.rank > connection->rank)
        at += HIGHER_MS;
    dial_at(engine, connection->rank, at);
    return true;
}

bool rks_peer_try_again(const rks_connection *connection, const rks_error *why)
{
    rks_peer *peer = &connection->engine->peers[connection->rank];
    return connection->spoke && !connection->refused &&
           (why->status == RKS_ERR_PEER || why->status == RKS_ERR_UNSUPPORTED) &&
           peer->wrong++ < WRONG_MOST;
}

void rks_peer_mended(rks_engine *engine, uint32_t rank)
{
    rks_peer *peer = &engine->peers[rank];
    if (peer->broke_ms == 0)
        return;
    uint64_t now = rks_net_now_ms(engine->net);
    if (engine->mended_logged_ms == 0 || now - engine->mended_logged_ms >= LOGGED_EACH_MS) {
        engine->mended_logged_ms = now;
        rks_log("rank %" PRIu32 ": the connection to rank %" PRIu32
                " (%s) broke (%s); it was made again after %" PRIu64 " ms",
                engine->options.rank, rank, rks_engine_host(engine, rank), peer->broke,
                now - peer->broke_ms);
    }
    peer->mended_ms = now;
    peer->broke_ms = 0;
}

void rks_peer_say_broken(const rks_engine *engine, uint32_t rank, rks_error *why)
{
    const rks_peer *peer = &engine->peers[rank];
    rks_error last = *why;
    if (peer->breaks > BREAKS_MOST)
        rks_fail(why, RKS_ERR_PEER, ENOLINK,
                 "the link failed, not the rank: %" PRIu32 " connections broke, the last one: %s",
                 peer->breaks, last.text);
    else if (peer->broke_ms != 0)
        rks_fail(why, (rks_status)last.status, last.cause, "%s, and then %s", peer->broke,
                 last.text);
}

void rks_peer_resumed(rks_connection *connection, uint64_t instance, uint64_t taken)
{
    rks_engine *engine = connection->engine;
    rks_peer *peer = &engine->peers[connection->rank];
    bool is_own = connection->rank == engine->options.rank && peer->connection != connection;
    if (is_own)
        return; /* of this process, or of another one that asks as this rank */
    if (peer->instance != 0 && peer->instance != instance) {
        rks_error why;
        rks_fail(&why, RKS_ERR_PEER, 0,
                 "another process has connected as rank %" PRIu32 "; do two run as it?",
                 connection->rank);
        rks_connection_refuse(connection, &why);
        return;
    }
    peer->instance = instance;
    if (peer->connection == connection && rks_notes_resume(connection, taken))
        rks_notes_send(engine, connection->rank);
}
