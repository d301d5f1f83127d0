/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.h: starts threads of the library, and ends them.
 *
 * A thread that reads a mapped file of storage that hangs never comes back, and no signal reaches
 * it. So whoever ends such threads waits for a limited time. If that is over, the thread is left
 * alone, with all memory that it may use. Of what such threads are still waited for after that, in
 * the next seconds, little is expected: a close has several waits, and together they take one
 * limit. */
#ifndef RKS_BASE_THREAD_H
#define RKS_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "rankstore/base.h"

/* Like pthread_create, but the thread blocks all signals, which are for the program's own
 * threads. */
int rks_thread_start(pthread_t *thread, void *(*run)(void *user), void *user);

/* The same for a thread that reads mapped files: it takes SIGBUS and SIGSEGV, for a fault in a
 * map. */
int rks_thread_start_reader(pthread_t *thread, void *(*run)(void *user), void *user);

/* Fails for a thread or process that could not be started: "starting ...: REASON". EAGAIN names the
 * limits to raise. */
rks_status rks_fail_start(rks_error *err, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the time, as rks_now_ms, until which to wait for what may hang. */
uint64_t rks_hang_until(uint32_t limit_ms);
/* Says that such a wait was given up. */
void rks_hang_seen(void);
/* Joins a thread that may hang. Returns false if it did not end in time; it is detached then. */
bool rks_thread_join_within(pthread_t thread, uint32_t limit_ms);

#endif
