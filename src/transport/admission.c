/* SPDX-License-Identifier: Apache-2.0
 *
 * admission.c: admits connections that others open, until they have proved themselves.
 *
 * A rank says hello as soon as it is connected. Making the tag in its hello takes the job's secret.
 * So there are two kinds of newcomers: those whose hello was right, and silent ones, who may be
 * strangers. The admission has room for thousands, more than the job has ranks.
 *
 * If the admission is full, a newcomer replaces a silent one: the oldest from the address that has
 * the most. So addresses get equal shares of the room, and none takes the rest of another's share.
 * Knowledge of the secret comes before the address, which strangers on the same host share: a
 * newcomer whose hello was right is replaced only if none is silent. A rank that is cut tries again
 * (peer.c).
 *
 * An attacker who has recorded hellos between hosts can replay them, but cannot prove the secret.
 * Each connection has a fresh nonce, so the admission remembers the last nonces of each rank and
 * counts a hello once. It also limits the connections of another rank that have said hello: one
 * more replaces the oldest of the same rank. As this rank itself, any number of processes may ask.
 */
#include "transport/admission.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "transport/peer.h"

enum {
    GRACE_SILENT_MS = 50,  /* time for which a silent newcomer is safe */
    GRACE_HEARD_MS = 1000, /* the same for one whose hello was right */
    NO_MEMORY_MS = 500,
    HEARD_OF_A_RANK = 16, /* a rank needs one or two */
    REMEMBERED = 64,      /* hellos of a rank: more than it opens while others are cut */
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

rks_line *rks_admission_line(rks_admission *admission, uint64_t origin)
{
    uint8_t from[16];
    rks_store_u64(from, origin);
    rks_store_u64(from + 8, admission->salt);
    return &admission->silent[rks_checksum64(from, sizeof(from)) % RKS_LOBBY_LINES];
}

void rks_admission_enter(rks_connection *connection)
{
    rks_admission *admission = &connection->engine->admission;
    line_add(rks_admission_line(admission, rks_stream_origin(connection->stream)), connection);
    admission->count++;
}

/* Remembers a hello. Returns false if it was said before. If memory is short, the hello counts as
 * new. */
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

void rks_admission_heard(rks_connection *connection)
{
    if (!remember(connection)) {
        rks_connection_fail(connection, RKS_ERR_PEER, 0, "repeated an earlier hello");
        return;
    }
    const rks_engine *engine = connection->engine;
    rks_line *heard = &connection->engine->admission.heard;
    uint32_t most = connection->rank == engine->options.rank ? UINT32_MAX : HEARD_OF_A_RANK;
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
    if (count >= most)
        rks_connection_fail(oldest, RKS_ERR_PEER, 0,
                            "too busy: %d connections of rank %" PRIu32
                            " have said hello and not proved themselves",
                            HEARD_OF_A_RANK, connection->rank);
}

void rks_admission_leave(rks_connection *connection)
{
    line_remove(connection);
    connection->engine->admission.count--;
}

/* ---- admission ------------------------------------------------------------------------------- */

/* Returns the newcomer to replace in a full admission; NULL if all are safe. *next is when one will
 * not be. */
static rks_connection *find_victim(const rks_admission *admission, uint64_t now, uint64_t *next)
{
    const rks_line *longest = &admission->silent[0];
    for (size_t i = 1; i < RKS_LOBBY_LINES; i++)
        if (admission->silent[i].count > longest->count)
            longest = &admission->silent[i];
    uint64_t grace_ms = GRACE_SILENT_MS;
    if (longest->count == 0) {
        longest = &admission->heard;
        grace_ms = GRACE_HEARD_MS;
    }
    rks_connection *oldest = longest->first; /* the admission is not empty */
    *next = oldest->opened_ms + grace_ms;
    return *next <= now ? oldest : NULL;
}

void rks_engine_admit(rks_engine *engine)
{
    rks_admission *admission = &engine->admission;
    if (engine->admitting || engine->ending || !atomic_load(&engine->joined))
        return;
    engine->admitting = true;
    while (true) {
        uint64_t now = rks_net_now_ms(engine->net);
        uint64_t next;
        if (admission->count >= admission->max) {
            if (!rks_net_waits(engine->net))
                break;
            rks_connection *victim = find_victim(admission, now, &next);
            if (victim == NULL) {
                rks_engine_alarm_at(engine, next);
                break;
            }
            rks_error why;
            rks_fail(&why, RKS_ERR_PEER, 0, "too busy: %u connections have not proved themselves",
                     admission->max);
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

void rks_admission_incoming(void *user)
{
    rks_engine_admit(user);
}

void rks_admission_join(rks_engine *engine, rks_command *command)
{
    (void)command;
    if (!engine->ending)
        (void)rks_net_listen(engine->net, NULL); /* cannot fail: the socket has listened since
                                                  * rks_net_open */
}
