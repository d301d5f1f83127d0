/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h: monotonic time, deadlines, and waits that notice an interrupt. */
#ifndef RKS_BASE_CLOCK_H
#define RKS_BASE_CLOCK_H

#include <pthread.h>
#include <stdatomic.h>

#include "rankstore/base.h"

enum { RKS_WAIT_SLICE_MS = 100 };

uint64_t rks_now_ns(void); /* CLOCK_MONOTONIC */
uint64_t rks_now_ms(void);

/* RKS_ERR_CANCELLED where the process's interrupt callback asks for it. */
rks_status rks_check_interrupt(rks_error *err);
/* From now on it asks nobody but *asked on this thread: another one hears of interrupts, and sets
 * it. */
void rks_interrupt_from(const atomic_bool *asked);
/* This thread has got RKS_ERR_CANCELLED from it since it last forgot. */
bool rks_interrupt_heard(void);
void rks_interrupt_forget(void);

/* A condition variable on the monotonic clock; 0 or an errno value. */
int rks_cond_init(pthread_cond_t *cond);
/* Waits at most `ms`; the mutex is held. True: signalled (or woken), false: time is over. */
bool rks_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t ms);
/* The same, until rks_now_ns() is `until_ns`. */
bool rks_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns);

#endif
