/* SPDX-License-Identifier: Apache-2.0
 *
 * file_wait.c: the job is owned by the caller and by its thread; who leaves last frees it. */
#include "base/file_wait.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/task_state.h"
#include "base/thread.h"

enum { THREADS_MAX = 16, PLACE_MAX = 256, CANCEL_MS = 1000 };

typedef struct job_thread {
    long id; /* 0: the place is free */
    clockid_t clock;
} job_thread;

/* A question of the work, on the stack of its thread. */
typedef struct asked {
    rks_status (*ask)(void *user, rks_error *err);
    void *user;
    rks_status status;
    rks_error err;
} asked;

struct rks_file_job {
    rks_file_work work;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool ended, left;                /* guarded by mutex */
    asked *asked;                    /* what the caller is to do; guarded by mutex */
    job_thread threads[THREADS_MAX]; /* guarded by mutex */
    char place[PLACE_MAX];           /* guarded by mutex */
    atomic_bool cancelled;
    rks_status status; /* once `ended` is set */
    rks_error err;
};

static _Thread_local rks_file_job *current;

rks_file_job *rks_file_wait_job(void)
{
    return current;
}

void rks_file_wait_at(const char *place)
{
    if (current == NULL)
        return;
    pthread_mutex_lock(&current->mutex);
    snprintf(current->place, sizeof(current->place), "%s", rks_text_end(place, PLACE_MAX - 1));
    pthread_mutex_unlock(&current->mutex);
}

void rks_file_wait_enter(rks_file_job *job)
{
    job_thread one = {.id = syscall(SYS_gettid)};
    if (job == NULL || pthread_getcpuclockid(pthread_self(), &one.clock) != 0)
        return;
    current = job;
    rks_interrupt_from(&job->cancelled);
    pthread_mutex_lock(&job->mutex);
    for (size_t i = 0; i < THREADS_MAX && one.id != 0; i++)
        if (job->threads[i].id == 0) {
            job->threads[i] = one;
            one.id = 0;
        }
    pthread_mutex_unlock(&job->mutex);
}

void rks_file_wait_leave(rks_file_job *job)
{
    const long id = syscall(SYS_gettid);
    if (job == NULL)
        return;
    pthread_mutex_lock(&job->mutex);
    for (size_t i = 0; i < THREADS_MAX; i++)
        if (job->threads[i].id == id)
            job->threads[i].id = 0;
    pthread_mutex_unlock(&job->mutex);
    current = NULL;
}

/* ---- progress ------------------------------------------------------------------------------ */

/* Returns the CPU time of the job's threads, in ns. The mutex must be held. */
static uint64_t time_used(const rks_file_job *job)
{
    uint64_t used = 0;
    for (size_t i = 0; i < THREADS_MAX; i++) {
        struct timespec at;
        if (job->threads[i].id != 0 && clock_gettime(job->threads[i].clock, &at) == 0)
            used += (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
    }
    return used;
}

/* Returns true if a thread waits for nothing but a processor. */
static bool some_is_ready(const rks_file_job *job)
{
    bool ready = false;
    for (size_t i = 0; !ready && i < THREADS_MAX; i++)
        ready = job->threads[i].id != 0 && rks_task_state(getpid(), job->threads[i].id) == 'R';
    return ready;
}

/* ---- the work's thread --------------------------------------------------------------------- */

static void free_job(rks_file_job *job)
{
    pthread_cond_destroy(&job->cond);
    pthread_mutex_destroy(&job->mutex);
    rks_free(job);
}

static void *run_job(void *user)
{
    rks_file_job *job = user;
    rks_file_wait_enter(job);
    job->status = job->work.run(job->work.state, &job->err);
    rks_file_wait_leave(job);
    pthread_mutex_lock(&job->mutex);
    job->ended = true;
    const bool left = job->left;
    pthread_cond_broadcast(&job->cond);
    pthread_mutex_unlock(&job->mutex);
    if (left) {
        job->work.drop(job->work.state);
        free_job(job);
    }
    return NULL;
}

rks_status rks_file_wait_ask(rks_status (*ask)(void *user, rks_error *err), void *user,
                             rks_error *err)
{
    rks_file_job *job = current;
    asked one = {.ask = ask, .user = user};
    if (job == NULL)
        return ask(user, err);
    pthread_mutex_lock(&job->mutex);
    job->asked = &one;
    pthread_cond_broadcast(&job->cond);
    while (job->asked != NULL && !job->left && !atomic_load(&job->cancelled))
        pthread_cond_wait(&job->cond, &job->mutex);
    const bool refused = job->asked != NULL;
    job->asked = NULL;
    pthread_mutex_unlock(&job->mutex);
    if (refused)
        return rks_fail(err, RKS_ERR_CANCELLED, 0, "the caller has gone");
    if (one.status != RKS_OK && err != NULL)
        *err = one.err;
    return one.status;
}

/* ---- the wait ------------------------------------------------------------------------------ */

/* Does what the work asks. The mutex must be held; it is not while the caller is at it. */
static void answer_work(rks_file_job *job)
{
    asked *one = job->asked;
    pthread_mutex_unlock(&job->mutex);
    one->status = one->ask(one->user, &one->err);
    pthread_mutex_lock(&job->mutex);
    job->asked = NULL;
    pthread_cond_broadcast(&job->cond);
}

/* The mutex must be held; it is not while the caller is asked. */
static rks_status hear_caller(rks_file_job *job, uint64_t quiet_ms, rks_error *err)
{
    pthread_mutex_unlock(&job->mutex);
    rks_status status = rks_check_interrupt(err);
    if (status == RKS_OK && job->work.meanwhile != NULL)
        status = job->work.meanwhile(job->work.user, quiet_ms, err);
    pthread_mutex_lock(&job->mutex);
    return status;
}

/* Waits until the job has ended, or until its threads have not run for `limit_ms`. A time in which
 * this thread did not run itself, as that of a stopped process, does not count. */
static rks_status wait_job(rks_file_job *job, uint32_t limit_ms, rks_error *err)
{
    uint64_t used = time_used(job), quiet_ms = 0, before = rks_now_ms();
    while (!job->ended) {
        if (job->asked != NULL) {
            answer_work(job);
            quiet_ms = 0;
            before = rks_now_ms();
            continue;
        }
        rks_cond_wait_ms(&job->cond, &job->mutex, RKS_WAIT_SLICE_MS);
        const uint64_t now = rks_now_ms(), since = now - before, last = used;
        if (job->asked != NULL || since < RKS_WAIT_SLICE_MS / 2)
            continue; /* it came to ask, or it has ended */
        before = now;
        used = time_used(job);
        quiet_ms = used != last ? 0 : quiet_ms + (since < 1000 ? since : RKS_WAIT_SLICE_MS);
        if (!job->ended && quiet_ms >= limit_ms && some_is_ready(job))
            quiet_ms = 0;
        if (job->ended || quiet_ms >= limit_ms)
            break;
        const rks_status status = hear_caller(job, quiet_ms, err);
        if (status != RKS_OK)
            return status;
    }
    return RKS_OK;
}

/* Lets work that is not stuck end at its next look. */
static void cancel_job(rks_file_job *job)
{
    const uint64_t until = rks_now_ns() + UINT64_C(1000000) * CANCEL_MS;
    atomic_store(&job->cancelled, true);
    pthread_cond_broadcast(&job->cond);
    while (!job->ended && rks_cond_wait_until(&job->cond, &job->mutex, until))
        continue;
}

static rks_status fail_hung(const char *place, uint32_t limit_ms, bool fixed, rks_error *err)
{
    return rks_fail(err, RKS_ERR_TIMEOUT, 0,
                    "%s: its storage has not answered for %.1f s%s; see whether `ls` comes back "
                    "there, mount it again, then repeat%s",
                    place, limit_ms / 1000.0, fixed ? "" : " (the silence limit)",
                    fixed ? "" : "; a longer limit waits longer");
}

/* Waits for a job that runs on `thread`, and ends both as far as they come back. */
static rks_status end_job(rks_file_job *job, pthread_t thread, uint32_t limit_ms, bool *left,
                          rks_error *err)
{
    char place[PLACE_MAX];
    pthread_mutex_lock(&job->mutex);
    rks_status status = wait_job(job, limit_ms, err);
    if (status != RKS_OK)
        cancel_job(job);
    job->left = !job->ended;
    *left = job->left;
    pthread_cond_broadcast(&job->cond); /* what it asks is refused now */
    const bool fixed = job->work.limit_is_fixed;
    memcpy(place, job->place, sizeof(place));
    pthread_mutex_unlock(&job->mutex);
    if (*left) { /* the job is the thread's now */
        pthread_detach(thread);
        rks_hang_seen();
        return status == RKS_OK ? fail_hung(place, limit_ms, fixed, err) : status;
    }
    pthread_join(thread, NULL);
    if (status == RKS_OK && job->status != RKS_OK && err != NULL)
        *err = job->err;
    status = status == RKS_OK ? job->status : status;
    free_job(job);
    return status;
}

rks_status rks_file_wait(const rks_file_work *work, uint32_t limit_ms, bool *left, rks_error *err)
{
    pthread_t thread;
    rks_file_job *job = rks_alloc(1, sizeof(*job), err);
    *left = false;
    if (job == NULL)
        return RKS_ERR_MEMORY;
    job->work = *work;
    if (pthread_mutex_init(&job->mutex, NULL) != 0 || rks_cond_init(&job->cond) != 0) {
        rks_free(job);
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: condition variable");
    }
    const int code = rks_thread_start_reader(&thread, run_job, job);
    if (code != 0) {
        free_job(job);
        return rks_fail_start(err, code, "a thread that reads files");
    }
    return end_job(job, thread, limit_ms, left, err);
}
