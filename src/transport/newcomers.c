/* SPDX-License-Identifier: Apache-2.0
 *
 * newcomers.c: connections that others open, until they have proved themselves.
 *
 * A rank says hello as soon as it is connected, and its hello has a tag that takes the job's secret
 * to make. So there are two kinds of newcomers: those whose hello was right, and those that have said
 * nothing, who may be strangers. There is room for some thousands, more than the job has ranks.
 *
 * If it is full, a newcomer takes the place of a silent one: the oldest of the address that has the
 * most. So addresses share the room in equal parts, and none takes what is left of another's part.
 * Ranks come first by what they know, not by their addresses, which strangers of the same host have,
 * too: one whose hello was right goes only where nobody is silent. Whoever is cut all the same tries
 * again (peer.c).
 *
 * Who has recorded hellos between hosts can send them again, and prove nothing. Each connection has
 * a nonce of its own, so the last nonces of each rank are remembered, and a hello counts once. And of
 * each rank only some may be heard at a time: the next one takes the place of the oldest of the same
 * rank. */
#include "transport/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"

enum {
    GRACE_SILENT_MS = 50,  /* how long a newcomer is safe that has said nothing */
    GRACE_HEARD_MS = 1000, /* and one whose hello was right */
    NO_MEMORY_MS = 500,
    HEARD_OF_A_RANK = 16, /* a rank has a connection or two */
    REMEMBERED = 64,      /* hellos of a rank: more than it opens while others are lost */
};

/* ---- lines ----------------------------------------------------------------------------------- */

static void line_add(rks_line *line, rks_connection *connection)
{
    connection->line = line;
    connection->line_next = NULL;
    connection->line_before = line->last;
    if (line->last == NULL)
        line->first = connection;
    else
        line->last->line_next = connection;
    line->last = connection;
    line->count++;
}

static void line_remove(rks_connection *connection)
{
    rks_line *line = connection->line;
    if (connection->line_next == NULL)
        line->last = connection->line_before;
    else
        connection->line_next->line_before = connection->line_before;
    if (connection->line_before == NULL)
        line->first = connection->line_next;
    else
        connection->line_before->line_next = connection->line_next;
    line->count--;
    connection->line = NULL;
}

rks_line *rks_lobby_line(rks_lobby *lobby, uint64_t origin)
{
    uint8_t from[16];
    rks_store_u64(from, origin);
    rks_store_u64(from + 8, lobby->salt);
    return &lobby->silent[rks_checksum64(from, sizeof(from)) % RKS_LOBBY_LINES];
}

void rks_lobby_enter(rks_connection *connection)
{
    rks_lobby *lobby = &connection->engine->lobby;
    line_add(rks_lobby_line(lobby, rks_stream_origin(connection->stream)), connection);
    lobby->count++;
}

/* False: it has been said before. Without memory for it a hello counts as new. */
static bool remember(rks_connection *connection)
{
    rks_peer *peer = &connection->engine->peers[connection->rank];
    uint64_t nonce = rks_checksum64(connection->hello.peer_nonce, RKS_NONCE_SIZE);
    if (peer->said == NULL)
        peer->said = rks_alloc(REMEMBERED, sizeof(*peer->said), NULL);
    uint32_t count = peer->said_count < REMEMBERED ? peer->said_count : REMEMBERED;
    for (uint32_t i = 0; i < count && peer->said != NULL; i++)
        if (peer->said[i] == nonce)
            return false;
    if (peer->said != NULL)
        peer->said[peer->said_count++ % REMEMBERED] = nonce;
    return true;
}

void rks_lobby_heard(rks_connection *connection)
{
    if (!remember(connection)) {
        rks_connection_fail(connection, RKS_ERR_PEER, 0, "a hello that was said before");
        return;
    }
    rks_line *heard = &connection->engine->lobby.heard;
    rks_connection *oldest = NULL;
    uint32_t count = 0;
    for (rks_connection *one = heard->first; one != NULL; one = one->line_next) {
        if (one->rank != connection->rank)
            continue;
        oldest = oldest == NULL ? one : oldest;
        count++;
    }
    line_remove(connection);
    line_add(heard, connection);
    if (count >= HEARD_OF_A_RANK)
        rks_connection_fail(oldest, RKS_ERR_PEER, 0,
                            "too busy: %d connections of rank %" PRIu32
                            " have said hello and not proved themselves",
                            HEARD_OF_A_RANK, connection->rank);
}

void rks_lobby_leave(rks_connection *connection)
{
    line_remove(connection);
    connection->engine->lobby.count--;
}

/* ---- admission ------------------------------------------------------------------------------- */

/* Who goes if the lobby is full; NULL: nobody yet. *next: when there may be one. */
static rks_connection *find_victim(const rks_lobby *lobby, uint64_t now, uint64_t *next)
{
    const rks_line *longest = &lobby->silent[0];
    for (size_t i = 1; i < RKS_LOBBY_LINES; i++)
        if (lobby->silent[i].count > longest->count)
            longest = &lobby->silent[i];
    uint64_t grace_ms = GRACE_SILENT_MS;
    if (longest->count == 0) {
        longest = &lobby->heard;
        grace_ms = GRACE_HEARD_MS;
    }
    rks_connection *oldest = longest->first; /* the lobby is not empty */
    *next = oldest->opened_ms + grace_ms;
    return *next <= now ? oldest : NULL;
}

void rks_engine_admit(rks_engine *engine)
{
    rks_lobby *lobby = &engine->lobby;
    if (engine->admitting || engine->ending || !atomic_load(&engine->joined))
        return;
    engine->admitting = true;
    while (true) {
        uint64_t now = rks_net_now_ms(engine->net);
        uint64_t next;
        if (lobby->count >= lobby->max) {
            if (!rks_net_waits(engine->net))
                break;
            rks_connection *victim = find_victim(lobby, now, &next);
            if (victim == NULL) {
                rks_engine_alarm_at(engine, next);
                break;
            }
            rks_error why;
            rks_fail(&why, RKS_ERR_PEER, 0, "too busy: %u connections have not proved themselves",
                     lobby->max);
            rks_connection_lose(victim, &why);
        }
        int error = rks_connection_accept(engine);
        if (error == EAGAIN)
            break;
        if (error == ENOMEM) {
            rks_engine_alarm_at(engine, now + NO_MEMORY_MS);
            break;
        }
    }
    engine->admitting = false;
}

void rks_newcomers_incoming(void *user)
{
    rks_engine_admit(user);
}

void rks_newcomers_join(rks_engine *engine, rks_command *command)
{
    (void)command;
    if (!engine->ending)
        (void)rks_net_listen(engine->net, NULL); /* cannot fail: peers connect already */
}
