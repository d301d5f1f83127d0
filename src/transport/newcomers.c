/* SPDX-License-Identifier: Apache-2.0
 *
 * newcomers.c: connections that others open, and how many may be there that have not proved
 * themselves. */
#include "transport/internal.h"

#include <errno.h>

#include "base/error.h"

enum {
    GRACE_SILENT_MS = 50, /* how long a newcomer is safe that has said nothing, if there are too
                           * many */
    NO_MEMORY_MS = 500,
};

/* The oldest newcomer whose time of grace is over; NULL: none. *next: when there may be one. */
static rks_connection *find_victim(const rks_engine *engine, uint64_t now, uint64_t *next)
{
    rks_connection *victim = NULL;
    *next = UINT64_MAX;
    for (rks_connection *c = engine->connections; c != NULL; c = c->next) {
        if (!c->unproven || c->state == RKS_CONNECTION_OVER)
            continue;
        uint64_t until = c->opened_ms + (c->hello.heard ? RKS_LATE_MS : GRACE_SILENT_MS);
        if (until <= now && (victim == NULL || c->opened_ms < victim->opened_ms))
            victim = c;
        if (until < *next)
            *next = until;
    }
    return victim;
}

void rks_engine_admit(rks_engine *engine)
{
    if (engine->admitting || engine->ending || !atomic_load(&engine->joined))
        return;
    engine->admitting = true;
    while (true) {
        uint64_t now = rks_net_now_ms(engine->net);
        uint64_t next;
        if (engine->unproven >= RKS_UNPROVEN_MAX) {
            rks_connection *victim = find_victim(engine, now, &next);
            if (!rks_net_waits(engine->net))
                break;
            if (victim == NULL) {
                rks_engine_alarm_at(engine, next);
                break;
            }
            rks_error why;
            rks_fail(&why, RKS_ERR_PEER, 0, "%d connections had not proved themselves",
                     RKS_UNPROVEN_MAX);
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
