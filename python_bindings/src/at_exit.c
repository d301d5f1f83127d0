/* SPDX-License-Identifier: Apache-2.0
 *
 * at_exit.c: groups whose end waits for the exit code. Python runs its atexit functions before it
 * knows how the process ends: only the C library sees a script's `sys.exit(3)`. So what is still
 * open by then is closed here, and the other ranks learn the exit code after the interpreter's end.
 * The interpreter's end may itself wait for other ranks. If it takes longer than the silence limit,
 * the other ranks learn earlier that this rank makes no further collective calls. No function here
 * calls Python. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "handles.h"

typedef struct last_group {
    rks_group *group;
    core_parked *parked; /* stores that other ranks may still use */
    struct last_group *next;
} last_group;

static last_group *last_groups;
static pid_t last_process; /* the process that owns them */
static bool is_registered; /* on_end runs at the end, also in a forked child */

/* The thread that watches whether the end takes long. */
static pthread_t watcher;
static bool watches;
static uint32_t patience_ms;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t known;    /* signalled when the exit code is known */
static bool is_known, has_left; /* guarded by mutex; so is last_groups while the thread watches */

static void *watch(void *unused)
{
    (void)unused;
    struct timespec until;
    int waited = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += patience_ms / 1000 + 1;
    pthread_mutex_lock(&mutex);
    while (!is_known && waited == 0)
        waited = pthread_cond_timedwait(&known, &mutex, &until);
    has_left = !is_known;
    for (last_group *last = last_groups; has_left && last != NULL; last = last->next)
        rks_group_leave(last->group, RKS_OK, NULL);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* Starts the watching thread, which blocks signals: they are for the program's own threads. If it
 * cannot start, the other ranks learn at once. */
static void start_watcher(void)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&known, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    watches = pthread_create(&watcher, NULL, watch, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    has_left = !watches;
}

static void end_watcher(void)
{
    pthread_mutex_lock(&mutex);
    is_known = true;
    pthread_cond_signal(&known);
    pthread_mutex_unlock(&mutex);
    if (watches)
        pthread_join(watcher, NULL);
}

/* Serves the other ranks as long as they live: their work may take its time, and this process has
 * ended well. */
static void serve_out(rks_store *store, rks_group *group)
{
    enum { SAY_MS = 60000 };
    while (!rks_store_leave(store, SAY_MS) && rks_group_must_stop(group, NULL) == RKS_OK)
        fprintf(stderr,
                "rankstore: rank %u has ended its work and serves a dataset that other ranks "
                "still use\n",
                rks_group_rank(group));
}

static void end(last_group *last, int code)
{
    for (core_parked *one = last->parked; one != NULL; one = one->next) {
        if (code == 0)
            serve_out(one->store, last->group);
        rks_store_close(one->store, 1);
    }
    rks_group_close(last->group);
}

/* The parent of this process sees the lowest eight bits. */
static void on_end(int status, void *unused)
{
    (void)unused;
    int code = status & 0xff;
    rks_error err;
    char text[48];
    if (getpid() != last_process)
        return;
    end_watcher();
    rks_set_interrupt(NULL, NULL); /* Python's signals are over */
    snprintf(text, sizeof(text), "ended with exit code %d", code);
    core_set_error(&err, code == 0 ? RKS_OK : RKS_ERR_PEER, text);
    for (last_group *last = last_groups; last != NULL; last = last->next)
        rks_group_leave(last->group, (rks_status)err.status, &err);
    for (last_group *last = last_groups; last != NULL; last = last->next)
        end(last, code);
}

/* Runs in a forked child: groups and watcher are its parent's, and it has none of their threads. */
static void forget_parent(void)
{
    pthread_mutex_init(&mutex, NULL);
    last_groups = NULL;
    watches = is_known = has_left = false;
}

int core_close_at_exit(rks_group *group, core_parked *parked, uint32_t silence_ms)
{
    last_group *last = calloc(1, sizeof(*last));
    if (last == NULL || (!is_registered && on_exit(on_end, NULL) != 0)) {
        free(last);
        return -1;
    }
    is_registered = true;
    if (last_process != getpid())
        forget_parent();
    if (last_groups == NULL) {
        patience_ms = silence_ms;
        start_watcher();
    }
    last_process = getpid();
    pthread_mutex_lock(&mutex);
    *last = (last_group){.group = group, .parked = parked, .next = last_groups};
    last_groups = last;
    if (has_left)
        rks_group_leave(group, RKS_OK, NULL);
    pthread_mutex_unlock(&mutex);
    return 0;
}
