/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.c: blocks signals before the start, so that the new thread inherits the mask; and keeps
 * when a thread was last given up. */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "base/c_locale.h"
#include "base/clock.h"
#include "base/error.h"

enum { HUNG_MS = 10000, BRIEFLY_MS = 50, FIRST_PAUSE_NS = 20000, LAST_PAUSE_NS = 5000000 };

static atomic_uint_least64_t hung_until_ms; /* until when waits are brief */

static int start_with(const sigset_t *mask, pthread_t *thread, void *(*run)(void *user), void *user)
{
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, mask, &before);
    int code = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

int rks_thread_start(pthread_t *thread, void *(*run)(void *user), void *user)
{
    sigset_t all;
    sigfillset(&all);
    return start_with(&all, thread, run, user);
}

int rks_thread_start_reader(pthread_t *thread, void *(*run)(void *user), void *user)
{
    sigset_t mask;
    sigfillset(&mask);
    sigdelset(&mask, SIGBUS);
    sigdelset(&mask, SIGSEGV);
    return start_with(&mask, thread, run, user);
}

rks_status rks_fail_start(rks_error *err, int error, const char *format, ...)
{
    char what[256], reason[128];
    va_list arguments;
    va_start(arguments, format);
    rks_vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    if (error != EAGAIN)
        return rks_fail_errno(err, error, "starting %s", what);
    return rks_fail(err, RKS_ERR_IO, error,
                    "starting %s: %s; raise the limit on processes (pids.max of the control group, "
                    "ulimit -u) or on address space (ulimit -v)",
                    what, strerror_r(error, reason, sizeof(reason)));
}

uint64_t rks_hang_until(uint32_t limit_ms)
{
    uint64_t now = rks_now_ms();
    return now +
           (now < atomic_load(&hung_until_ms) && limit_ms > BRIEFLY_MS ? BRIEFLY_MS : limit_ms);
}

void rks_hang_seen(void)
{
    atomic_store(&hung_until_ms, rks_now_ms() + HUNG_MS);
}

/* Looks again and again: joins with a limit by the monotonic clock are newer (glibc 2.31) than the
 * wheel's glibc, and others follow the time of day. */
static int join_until(pthread_t thread, uint64_t until_ms)
{
    long pause_ns = FIRST_PAUSE_NS;
    int code;
    while ((code = pthread_tryjoin_np(thread, NULL)) == EBUSY && rks_now_ms() < until_ms) {
        nanosleep(&(struct timespec){0, pause_ns}, NULL);
        pause_ns = pause_ns < LAST_PAUSE_NS ? pause_ns * 2 : pause_ns;
    }
    return code;
}

bool rks_thread_join_within(pthread_t thread, uint32_t limit_ms)
{
    if (join_until(thread, rks_hang_until(limit_ms)) == 0)
        return true;
    pthread_detach(thread);
    rks_hang_seen();
    return false;
}
