/* SPDX-License-Identifier: Apache-2.0
 *
 * heartbeat.c: the engine's alarm: pings peers, ends connections that are silent for too long, and
 * sets the time of the next look. */
#include "transport/heartbeat.h"

#include <inttypes.h>

#include "base/error.h"
#include "transport/mailbox.h"
#include "transport/peer.h"

static void lose_silent(rks_connection *connection, const char *what, uint64_t ms)
{
    rks_error why;
    rks_fail(&why, RKS_ERR_TIMEOUT, 0, "%s %" PRIu64 " ms", what, ms);
    rks_connection_lose(connection, &why);
}

/* Watches a connection that is not proven. Returns when to look again. */
static uint64_t watch_hello(rks_connection *connection, uint64_t now)
{
    rks_engine *engine = connection->engine;
    uint64_t limit = engine->options.silence_ms;
    uint64_t since = connection->opened_ms;
    if (connection->held)
        return UINT64_MAX; /* the connection that it waits for has its own limit */
    if (connection->hello.heard) {
        since = connection->hello_ms; /* it lives, and has the same time again for its proof */
    } else if (connection->initiator) {
        since = connection->crossed ? since : engine->peers[connection->rank].since_ms;
    } else if (engine->admission.count > engine->admission.max / 2) {
        limit = limit < RKS_SILENT_MS ? limit : RKS_SILENT_MS;
    }
    if (now < since + limit)
        return since + limit;
    lose_silent(connection,
                connection->state == RKS_CONNECTION_CONNECTING ? "no connection within"
                : connection->initiator                        ? "no answer to the hello within"
                                                               : "did not prove itself within",
                limit);
    return UINT64_MAX;
}

/* Watches an open connection. Returns when to look again. Sets *beats if it needs pings or
 * pongs. */
static uint64_t watch_open(rks_connection *connection, uint64_t now, bool beat, bool *beats)
{
    rks_engine *engine = connection->engine;
    rks_peer *peer = &engine->peers[connection->rank];
    bool pings = rks_peer_expects(peer) && !connection->ending;
    bool expects = pings || connection->kept;
    size_t unsent = rks_stream_unsent(connection->stream);
    if (unsent != connection->unsent)
        connection->heard_ms = now; /* the peer accepts bytes */
    else if (connection->paused && unsent == 0)
        connection->heard_ms = now; /* this side does not read it, and has sent all */
    connection->unsent = unsent;
    if (expects && now >= connection->heard_ms + engine->options.silence_ms) {
        lose_silent(connection, "silent for", engine->options.silence_ms);
        return UINT64_MAX;
    }
    *beats = *beats || expects || connection->paused;
    if (beat && pings)
        rks_connection_say(connection, &connection->says_ping, RKS_FRAME_PING, 0);
    else if (beat && connection->paused)
        rks_connection_say(connection, &connection->says_pong, RKS_FRAME_PONG, 0);
    return expects ? connection->heard_ms + engine->options.silence_ms : UINT64_MAX;
}

/* Extends all limits if this process itself was stopped or starved: bytes that peers sent meanwhile
 * are still unread. */
static void extend_limits(rks_engine *engine, uint64_t now)
{
    uint64_t late = now - engine->alarm_ms;
    if (now < engine->alarm_ms || late < engine->options.silence_ms / 15)
        return;
    for (rks_connection *c = engine->connections; c != NULL; c = c->next) {
        c->heard_ms = c->heard_ms + late < now ? c->heard_ms + late : now;
        c->opened_ms = c->opened_ms + late < now ? c->opened_ms + late : now;
        c->hello_ms = c->hello_ms + late < now ? c->hello_ms + late : now;
        c->proved_ms = c->proved_ms + late < now ? c->proved_ms + late : now; /* keeps it after the
                                                                               * others */
        if (c->initiator && c == engine->peers[c->rank].connection)
            engine->peers[c->rank].since_ms += late;
    }
}

void rks_heartbeat_alarm(void *user)
{
    rks_engine *engine = user;
    atomic_store(&engine->resting, false);
    uint64_t now = rks_net_now_ms(engine->net);
    uint64_t due = UINT64_MAX;
    bool beat = engine->beat_ms != 0 && now >= engine->beat_ms;
    bool beats = false;
    extend_limits(engine, now);
    engine->alarm_ms = 0;
    if (engine->draining && now >= engine->deadline_ms) {
        engine->draining = false;
        rks_engine_post(engine, &engine->finish);
    } else if (engine->draining) {
        rks_engine_drain(engine);
    }
    if (engine->ending && now >= engine->deadline_ms) {
        rks_connection_lose_all(engine);
        return;
    }
    /* rks_connection_lose never frees the connection here. The stream's last callback does. */
    for (rks_connection *c = engine->connections; c != NULL; c = c->next) {
        uint64_t next = UINT64_MAX;
        if (c->state == RKS_CONNECTION_OPEN)
            next = watch_open(c, now, beat, &beats);
        else if (c->state != RKS_CONNECTION_OVER)
            next = watch_hello(c, now);
        due = next < due ? next : due;
    }
    if (beat || !beats)
        engine->beat_ms = beats ? now + engine->options.silence_ms / 3 : 0;
    if (engine->beat_ms != 0 && engine->beat_ms < due)
        due = engine->beat_ms;
    if (engine->ending && engine->deadline_ms < due)
        due = engine->deadline_ms;
    if (due != UINT64_MAX)
        rks_engine_alarm_at(engine, due);
    if (engine->retries > 0)
        rks_peer_retry(engine, now);
    rks_engine_admit(engine);
}
