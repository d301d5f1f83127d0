/* SPDX-License-Identifier: Apache-2.0
 *
 * file_wait.h: reads files on a thread of its own, so that storage that hangs does not keep the
 * caller for ever. A thread in such a read cannot be woken. So the caller passes a whole
 * stretch of work on, and gives it up if the storage does not answer: the thread is then left alone
 * with what it uses, and ends when the storage heals.
 *
 * Laws
 * - Slow storage does not end a wait: the limit holds for a time in which no thread of the work has
 *   run at all. A thread that gets something from the storage runs, if only for a moment, and the
 *   system counts that in its CPU time. One that is ready and gets no processor does not hang.
 * - Once the call returns, no thread is left, unless *left is set.
 * - What `run` asks of the caller (rks_file_wait_ask) is done on the caller's thread, or refused,
 * and the time that it takes counts as an answer of the storage. */
#ifndef RKS_BASE_FILE_WAIT_H
#define RKS_BASE_FILE_WAIT_H

#include <stdbool.h>

#include "rankstore/base.h"

typedef struct rks_file_work {
    rks_status (*run)(void *state, rks_error *err);
    /* For work that was given up, once its thread ends after all: frees the state. */
    void (*drop)(void *state);
    void *state; /* with all that `run` uses; the thread's own if *left is set */
    /* Asked every 100 ms on the caller's thread, with the time since the storage last answered;
     * anything but RKS_OK ends the wait with it. NULL: not asked. */
    rks_status (*meanwhile)(void *user, uint64_t quiet_ms, rks_error *err);
    void *user;
    bool limit_is_fixed; /* the limit is not the user's silence limit: the error does not name it */
} rks_file_work;

/* Runs the work and returns its status. RKS_ERR_TIMEOUT names the place whose storage has not
 * answered for `limit_ms`, RKS_ERR_CANCELLED that the interrupt callback has ended the wait; both,
 * and what `meanwhile` says, set *left if the work goes on. RKS_ERR_IO: no thread could be
 * started. */
rks_status rks_file_wait(const rks_file_work *work, uint32_t limit_ms, bool *left, rks_error *err);

/* For `run`: names what it reads from now on, for the error. Elsewhere it does nothing. */
void rks_file_wait_at(const char *place);

/* For `run`, of whose threads one may ask at a time: has the caller's thread call `ask`, and
 * returns its status. RKS_ERR_CANCELLED, without a call: the caller has gone. `user` lies in the
 * work's state. Elsewhere it calls `ask` itself. */
rks_status rks_file_wait_ask(rks_status (*ask)(void *user, rks_error *err), void *user,
                             rks_error *err);

/* For threads that `run` starts and joins: they belong to the same work. `run` takes the handle,
 * and each thread enters with it first, and leaves last. NULL, outside of such work, is accepted.
 */
typedef struct rks_file_job rks_file_job;
rks_file_job *rks_file_wait_job(void);
void rks_file_wait_enter(rks_file_job *job);
void rks_file_wait_leave(rks_file_job *job);

#endif
