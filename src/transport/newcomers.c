/* SPDX-License-Identifier: Apache-2.0
 *
 * newcomers.c: connections that others open: from the listener or the hub, and how many may be
 * there that have not proved themselves. */
#include "transport/internal.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

enum {
    GRACE_SILENT_MS = 50,  /* how long a newcomer is safe that has said nothing, when there are */
    GRACE_HEARD_MS = 1000, /* too many; and one that has said hello */
    NO_MEMORY_MS = 500,
};

/* A socket from the hub. */
typedef struct adoption {
    rks_command command;
    int fd;
} adoption;

/* The oldest newcomer whose time of grace is over; NULL: none. *next: when there may be one. */
static rks_connection *find_victim(const rks_engine *engine, uint64_t now, uint64_t *next)
{
    rks_connection *victim = NULL;
    *next = UINT64_MAX;
    for (rks_connection *c = engine->connections; c != NULL; c = c->next) {
        if (!c->unproven || c->state == RKS_CONNECTION_OVER)
            continue;
        uint64_t until = c->opened_ms + (c->hello.heard ? GRACE_HEARD_MS : GRACE_SILENT_MS);
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
        uint64_t now = rks_now_ms();
        uint64_t next;
        if (engine->unproven >= RKS_UNPROVEN_MAX) {
            rks_connection *victim = find_victim(engine, now, &next);
            if (!rks_loop_waits(engine->loop))
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

static void adopt(rks_engine *engine, adoption *given)
{
    if (engine->ending || rks_connection_adopt(engine, given->fd) != 0)
        close(given->fd); /* the other side tries again, or hears that this one is closed */
    rks_free(given);
}

static void run_adopt(rks_engine *engine, rks_command *command)
{
    if (atomic_load(&engine->joined) || engine->ending) {
        adopt(engine, (adoption *)(void *)command);
        return;
    }
    command->next = engine->held;
    engine->held = command;
}

bool rks_newcomers_hub(void *user, int fd)
{
    rks_engine *engine = user;
    adoption *given = rks_alloc(1, sizeof(*given), NULL);
    if (given == NULL)
        return false;
    given->command.run = run_adopt;
    given->fd = fd;
    if (rks_engine_post(engine, &given->command))
        return true;
    rks_free(given);
    return false;
}

void rks_newcomers_adopt_held(rks_engine *engine)
{
    while (engine->held != NULL) {
        adoption *given = (adoption *)(void *)engine->held;
        engine->held = given->command.next;
        adopt(engine, given);
    }
}

void rks_newcomers_join(rks_engine *engine, rks_command *command)
{
    (void)command;
    rks_newcomers_adopt_held(engine);
    if (engine->listen_fd < 0 || engine->ending)
        return;
    /* Cannot fail: the socket listens already. */
    if (rks_loop_listen(engine->loop, engine->listen_fd, NULL) == RKS_OK)
        engine->listen_fd = -1;
}
