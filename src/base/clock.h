/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h: monotonic time, deadlines, and the check for interrupts that long waits make. */
#ifndef RKS_BASE_CLOCK_H
#define RKS_BASE_CLOCK_H

#include <pthread.h>
#include <stdatomic.h>

#include "rankstore/base.h"

enum { RKS_WAIT_SLICE_MS = 100 };

uint64_t rks_now_ns(void); /* CLOCK_MONOTONIC */
uint64_t rks_now_ms(void);

/* Returns RKS_ERR_CANCELLED if the process's interrupt callback (rks_set_interrupt) returns
 * non-zero. */
rks_status rks_check_interrupt(rks_error *err);
/* Makes rks_check_interrupt look at *asked instead of the callback, on this thread only; NULL
 * restores the callback. Another thread polls the callback and sets *asked. */
void rks_interrupt_from(const atomic_bool *asked);
/* Returns true if the callback has cancelled a call of this thread since rks_interrupt_forget. */
bool rks_interrupt_heard(void);
void rks_interrupt_forget(void);

/* Initialises a condition variable on the monotonic clock. Returns 0 or an errno value. */
int rks_cond_init(pthread_cond_t *cond);
/* Waits at most `ms` with the mutex held. Returns false if the time is over, true if the thread was
 * woken (which may be spurious). */
bool rks_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t ms);
/* Waits until rks_now_ns() is `until_ns`; otherwise like rks_cond_wait_ms. */
bool rks_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns);

#endif
