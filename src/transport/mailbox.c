/* SPDX-License-Identifier: Apache-2.0
 *
 * mailbox.c: what callers give the engine thread to do, and when it has to be woken for it. */
#include "transport/internal.h"

enum { MAILBOX_ROUNDS = 8 }; /* then sockets have their turn */

bool rks_engine_post(rks_engine *engine, rks_command *command)
{
    pthread_mutex_lock(&engine->mutex);
    bool open = !engine->mailbox_closed;
    if (open) {
        bool first = engine->mailbox == NULL;
        command->next = NULL;
        if (first)
            engine->mailbox_last = &engine->mailbox;
        *engine->mailbox_last = command;
        engine->mailbox_last = &command->next;
        if (first && atomic_load(&engine->resting))
            rks_loop_wake(engine->loop);
    }
    pthread_mutex_unlock(&engine->mutex);
    return open;
}

bool rks_mailbox_run(rks_engine *engine, bool last)
{
    pthread_mutex_lock(&engine->mutex);
    rks_command *command = engine->mailbox;
    engine->mailbox = NULL;
    engine->mailbox_closed = engine->mailbox_closed || last;
    pthread_mutex_unlock(&engine->mutex);
    bool some = command != NULL;
    while (command != NULL) {
        rks_command *next = command->next;
        command->run(engine, command);
        command = next;
    }
    return some;
}

void rks_mailbox_rest(void *user)
{
    rks_engine *engine = user;
    rks_pool_flush(engine);
    for (int round = 0; round < MAILBOX_ROUNDS && rks_mailbox_run(engine, false); round++)
        ; /* what is done may ask for more */
    pthread_mutex_lock(&engine->mutex);
    atomic_store(&engine->resting, true);
    if (engine->mailbox != NULL)
        rks_loop_wake(engine->loop);
    pthread_mutex_unlock(&engine->mutex);
}
