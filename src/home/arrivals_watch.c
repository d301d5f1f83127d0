/* SPDX-License-Identifier: Apache-2.0
 *
 * arrivals_watch.c: finds threads that hang in the local file system. One that has a job and has
 * used no CPU time since the last look, and is not ready to run, waits in a call of the system;
 * waits for home and for locks come back ten times a second. */
#include <inttypes.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/task_state.h"
#include "base/thread.h"
#include "home/arrivals_state.h"

enum { WATCH_MS = 500 };

rks_arrivals_worker *rks_arrivals_begin_worker(rks_arrivals *set)
{
    rks_arrivals_worker *own = &set->workers[set->begun++];
    if (pthread_getcpuclockid(pthread_self(), &own->clock) == 0)
        own->id = syscall(SYS_gettid);
    return own;
}

/* `since_ms` is the time since the last look. */
static void look_at_worker(rks_arrivals_worker *w, uint64_t since_ms)
{
    struct timespec at = {0};
    if (w->id == 0 || clock_gettime(w->clock, &at) != 0)
        return;
    const uint64_t used = (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
    const bool runs = !w->at_work || used != w->used || rks_task_state(getpid(), w->id) == 'R';
    w->used = used;
    w->quiet_ms = runs ? 0 : w->quiet_ms + since_ms;
}

/* With the mutex. Returns the longest time for which a thread with a job has not run. A time in
 * which the watch did not run itself, as that of a stopped process, does not count. */
static uint64_t look_at_workers(rks_arrivals *set, uint64_t since_ms)
{
    uint64_t quiet_ms = 0;
    since_ms = since_ms < 2 * WATCH_MS ? since_ms : WATCH_MS;
    for (size_t i = 0; i < set->begun; i++) {
        look_at_worker(&set->workers[i], since_ms);
        quiet_ms = set->workers[i].quiet_ms > quiet_ms ? set->workers[i].quiet_ms : quiet_ms;
    }
    return quiet_ms;
}

static void *watch_main(void *user)
{
    rks_arrivals *set = user;
    const rks_arrival_wish *wish = &set->shards[0].wish;
    rks_home_limits limits = wish->home == NULL ? (rks_home_limits){0} : wish->home->limits;
    uint64_t before = rks_now_ms();
    rks_home_limits_fill(&limits);
    pthread_mutex_lock(&set->mutex);
    while (!set->stop) {
        rks_cond_wait_ms(&set->watch_ends, &set->mutex, WATCH_MS);
        const uint64_t now = rks_now_ms(), quiet_ms = look_at_workers(set, now - before);
        before = now;
        set->told_ms = quiet_ms < set->told_ms ? 0 : set->told_ms;
        if (quiet_ms - set->told_ms >= limits.tell_ms) {
            set->told_ms = quiet_ms;
            rks_log("%s: has waited %" PRIu64 " s for its file system", wish->directory,
                    quiet_ms / 1000);
        }
        if (quiet_ms >= limits.hang_ms && !set->over) {
            rks_error why;
            rks_fail(&why, RKS_ERR_TIMEOUT, 0,
                     "%s: its storage has not answered for %.1f s; see whether `ls` comes back "
                     "there, mount it again, then repeat",
                     wish->directory, (double)quiet_ms / 1000);
            rks_arrivals_give_up(set, &why);
        }
    }
    pthread_mutex_unlock(&set->mutex);
    return NULL;
}

rks_status rks_arrivals_watch(rks_arrivals *set, rks_error *err)
{
    const int error = rks_thread_start(&set->watch, watch_main, set);
    if (error != 0)
        return rks_fail_start(err, error, "a thread that watches those that bring shards");
    set->watched = true;
    return RKS_OK;
}
