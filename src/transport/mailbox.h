/* SPDX-License-Identifier: Apache-2.0
 *
 * mailbox.h: commands for the engine thread. */
#ifndef RKS_TRANSPORT_MAILBOX_H
#define RKS_TRANSPORT_MAILBOX_H

#include "transport/call.h"

/* Posts a command. Returns false if the engine thread has ended; the command then stays the
 * caller's. Any thread. */
bool rks_engine_post(rks_engine *engine, rks_command *command);
/* Posts calls, linked from `first` by `next` to `last`; returns as rks_engine_post. On the engine
 * thread it appends them to a list of its own, which runs before the loop sleeps. Their order
 * relative to posted calls does not matter. */
bool rks_engine_post_calls(rks_engine *engine, rks_command *first, rks_command *last);
/* Marks this thread as the engine's. */
void rks_mailbox_enter(rks_engine *engine);
/* Runs the posted commands. Returns false if there were none. `last` closes the mailbox. */
bool rks_mailbox_run(rks_engine *engine, bool last);

#endif
