/* SPDX-License-Identifier: Apache-2.0
 *
 * mailbox.c: passes commands to the engine thread, and wakes it when needed.
 *
 * A thread that posts sets `mail`, then reads `resting`. The engine thread sets `resting`, then
 * reads `mail`. So at least one of the two sees the other's change, and the engine thread takes the
 * mutex only if there is mail. */
#include "transport/mailbox.h"
#include "transport/engine_state.h"

#include <stddef.h>

static _Thread_local const rks_engine *entered;

void rks_mailbox_enter(rks_engine *engine)
{
    entered = engine;
}

static bool post_all(rks_engine *engine, rks_command *first, rks_command *last)
{
    pthread_mutex_lock(&engine->mutex);
    bool open = !engine->mailbox_closed;
    if (open) {
        bool empty = engine->mailbox == NULL;
        last->next = NULL;
        if (empty)
            engine->mailbox_last = &engine->mailbox;
        *engine->mailbox_last = first;
        engine->mailbox_last = &last->next;
        if (empty)
            atomic_store(&engine->mail, true);
        if (empty && atomic_load(&engine->resting))
            rks_net_wake(engine->net); /* under the mutex, since the net lives until the mailbox
                                        * closes */
    }
    pthread_mutex_unlock(&engine->mutex);
    return open;
}

bool rks_engine_post(rks_engine *engine, rks_command *command)
{
    return post_all(engine, command, command);
}

bool rks_engine_post_calls(rks_engine *engine, rks_command *first, rks_command *last)
{
    if (entered != engine)
        return post_all(engine, first, last);
    if (engine->mailbox_closed) /* this thread has closed it */
        return false;
    if (engine->own == NULL)
        engine->own_last = &engine->own;
    last->next = NULL;
    *engine->own_last = first;
    engine->own_last = &last->next;
    return true;
}

static void run_all(rks_engine *engine, rks_command *command)
{
    while (command != NULL) {
        rks_command *next = command->next;
        command->run(engine, command);
        command = next;
    }
}

bool rks_mailbox_run(rks_engine *engine, bool last)
{
    rks_command *own = engine->own, *posted = NULL;
    engine->own = NULL;
    if (last || atomic_load(&engine->mail)) {
        pthread_mutex_lock(&engine->mutex);
        posted = engine->mailbox;
        engine->mailbox = NULL;
        engine->mailbox_closed = engine->mailbox_closed || last;
        atomic_store(&engine->mail, false);
        pthread_mutex_unlock(&engine->mutex);
    }
    run_all(engine, posted);
    run_all(engine, own);
    return posted != NULL || own != NULL;
}
