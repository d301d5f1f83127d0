/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.c: time from CLOCK_MONOTONIC, which never jumps. */
#include "base/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "base/error.h"

static _Atomic(rks_interrupt_fn) interrupt_fn;
static _Atomic(void *) interrupt_user;
static _Thread_local bool heard;
static _Thread_local const atomic_bool *asked_by; /* in place of the callback */

uint64_t rks_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t rks_now_ms(void)
{
    return rks_now_ns() / 1000000u;
}

void rks_set_interrupt(rks_interrupt_fn interrupt, void *user)
{
    atomic_store(&interrupt_fn, NULL);
    atomic_store(&interrupt_user, user);
    atomic_store(&interrupt_fn, interrupt);
}

rks_status rks_check_interrupt(rks_error *err)
{
    if (asked_by != NULL)
        return atomic_load_explicit(asked_by, memory_order_relaxed)
                   ? rks_fail(err, RKS_ERR_CANCELLED, 0, "interrupted")
                   : RKS_OK;
    rks_interrupt_fn interrupt = atomic_load(&interrupt_fn);
    if (interrupt == NULL || interrupt(atomic_load(&interrupt_user)) == 0)
        return RKS_OK;
    heard = true;
    return rks_fail(err, RKS_ERR_CANCELLED, 0, "interrupted");
}

void rks_interrupt_from(const atomic_bool *asked)
{
    asked_by = asked;
}

bool rks_interrupt_heard(void)
{
    return heard;
}

void rks_interrupt_forget(void)
{
    heard = false;
}

int rks_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error != 0)
        return error;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    error = pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
    return error;
}

bool rks_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns)
{
    struct timespec at = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    return pthread_cond_timedwait(cond, mutex, &at) != ETIMEDOUT;
}

bool rks_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t ms)
{
    return rks_cond_wait_until(cond, mutex, rks_now_ns() + ms * 1000000u);
}
