/* SPDX-License-Identifier: Apache-2.0
 *
 * send_ahead.c: a queue of shards, and the thread that sends them. */
#include "builder/send_ahead.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_wait.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "builder/publish.h"
#include "store/home_dataset.h"

typedef struct queued_shard queued_shard;
struct queued_shard {
    rks_dataset_shard shard; /* its name and its manifest's digest */
    queued_shard *next;
};

struct rks_send_ahead {
    atomic_uint users; /* the build, and the thread that sends */
    uint32_t silence_ms;
    char *home, *options, *directory;
    rks_digest base;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    queued_shard *first, *last;
    bool closing;     /* begins no further shard */
    atomic_bool stop; /* breaks off */
    bool started, ended;
    bool left; /* a thread hangs in the directory's storage */
    pthread_t thread;
    uint64_t done, total; /* of the shard that is being sent; guarded by mutex */
    rks_sent_ahead sent;  /* the thread's own until it has ended */
};

rks_status rks_send_ahead_open(const rks_send_ahead_wish *wish, rks_send_ahead **ahead,
                               rks_error *err)
{
    rks_send_ahead *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    atomic_init(&made->users, 1);
    made->silence_ms = wish->silence_ms;
    made->base = wish->base;
    made->home = rks_strdup(wish->home, err);
    made->directory = rks_strdup(wish->directory, err);
    made->options = wish->storage_options == NULL ? NULL : rks_strdup(wish->storage_options, err);
    if (made->home == NULL || made->directory == NULL ||
        (wish->storage_options != NULL && made->options == NULL) ||
        pthread_mutex_init(&made->mutex, NULL) != 0) {
        rks_free(made->home);
        rks_free(made->directory);
        rks_free(made->options);
        rks_free(made);
        return RKS_ERR_MEMORY;
    }
    rks_cond_init(&made->changed);
    *ahead = made;
    return RKS_OK;
}

static rks_status must_stop(void *user, rks_error *err)
{
    const rks_send_ahead *ahead = user;
    return atomic_load(&ahead->stop) ? rks_fail(err, RKS_ERR_CANCELLED, 0, "the build has ended")
                                     : RKS_OK;
}

/* Returns true if home holds no dataset, or the one that is appended to. */
static bool home_is_ours(const rks_send_ahead *ahead, rks_home *home)
{
    static const rks_digest none;
    rks_home_dataset there;
    rks_error why;
    rks_status status = rks_home_dataset_read(home, &there, &why);
    if (status != RKS_OK)
        return status == RKS_ERR_NOT_FOUND;
    bool ours =
        !rks_digest_equal(ahead->base, none) && rks_digest_equal(there.dataset->id, ahead->base);
    rks_home_dataset_free(&there);
    return ours;
}

/* Takes the next shard, or waits for one, and shows now and then that it does not hang. NULL: there
 * will be none. */
static queued_shard *next_shard_to_send(rks_send_ahead *ahead)
{
    pthread_mutex_lock(&ahead->mutex);
    while (ahead->first == NULL && !ahead->closing)
        rks_cond_wait_ms(&ahead->changed, &ahead->mutex, RKS_WAIT_SLICE_MS);
    queued_shard *taken = ahead->closing ? NULL : ahead->first;
    if (taken != NULL)
        ahead->first = taken->next;
    if (ahead->first == NULL)
        ahead->last = NULL;
    pthread_mutex_unlock(&ahead->mutex);
    return taken;
}

/* On the sending thread. */
static void note_progress(void *user, const char *phase, uint64_t done, uint64_t total,
                          uint64_t samples)
{
    rks_send_ahead *ahead = user;
    (void)phase, (void)samples;
    pthread_mutex_lock(&ahead->mutex);
    ahead->done = done;
    ahead->total = total;
    pthread_mutex_unlock(&ahead->mutex);
}

static rks_status send_queued(void *user, rks_error *err)
{
    rks_send_ahead *ahead = user;
    const rks_home_limits limits = {
        .must_stop = must_stop, .user = ahead, .options = ahead->options};
    rks_publish_work work = {.directory = ahead->directory,
                             .options = {.progress = note_progress, .progress_user = ahead}};
    rks_status status = rks_home_open(ahead->home, &limits, &work.home, err);
    const bool ours = status == RKS_OK && home_is_ours(ahead, work.home);
    for (queued_shard *next; ours && status == RKS_OK && (next = next_shard_to_send(ahead)) != NULL;
         rks_free(next))
        status = rks_publish_send(&work, ahead->directory, &next->shard, err);
    rks_home_close(work.home);
    ahead->sent = (rks_sent_ahead){work.sent_shards, work.sent_bytes};
    return status;
}

static void leave_ahead(void *user)
{
    rks_send_ahead *ahead = user;
    if (atomic_fetch_sub(&ahead->users, 1) != 1)
        return;
    for (queued_shard *left = ahead->first, *next; left != NULL; left = next) {
        next = left->next;
        rks_free(left);
    }
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->mutex);
    rks_free(ahead->home);
    rks_free(ahead->directory);
    rks_free(ahead->options);
    rks_free(ahead);
}

/* Waits for the thread that sends. */
static void *send_main(void *user)
{
    rks_send_ahead *ahead = user;
    rks_error err = {0};
    rks_interrupt_from(&ahead->stop);
    bool left = false;
    const rks_file_work work = {.run = send_queued, .drop = leave_ahead, .state = ahead};
    atomic_fetch_add(&ahead->users, 1);
    rks_status status = rks_file_wait(&work, ahead->silence_ms, &left, &err);
    if (!left)
        leave_ahead(ahead);
    if (status != RKS_OK && !atomic_load(&ahead->stop))
        rks_log("%s: shards are not sent ahead, but at the end of the build: %s", ahead->home,
                err.text);
    pthread_mutex_lock(&ahead->mutex);
    ahead->left = left;
    ahead->ended = true;
    pthread_cond_broadcast(&ahead->changed);
    pthread_mutex_unlock(&ahead->mutex);
    return NULL;
}

void rks_send_ahead_add(rks_send_ahead *ahead, const char *name, rks_digest manifest)
{
    queued_shard *made = ahead == NULL ? NULL : rks_alloc(1, sizeof(*made), NULL);
    if (made == NULL)
        return; /* publish sends it */
    made->shard.manifest = manifest;
    snprintf(made->shard.name, sizeof(made->shard.name), "%s", name);
    pthread_mutex_lock(&ahead->mutex);
    if (ahead->last == NULL)
        ahead->first = made;
    else
        ahead->last->next = made;
    ahead->last = made;
    pthread_cond_broadcast(&ahead->changed);
    pthread_mutex_unlock(&ahead->mutex);
    if (!ahead->started)
        ahead->started = rks_thread_start(&ahead->thread, send_main, ahead) == 0;
}

/* Waits until the thread has ended. Returns false if the caller was interrupted. */
static bool wait_for_last(rks_send_ahead *ahead, rks_progress_fn progress, void *user)
{
    bool goes_on = true;
    rks_error unused;
    pthread_mutex_lock(&ahead->mutex);
    while (ahead->started && !ahead->ended && goes_on) {
        rks_cond_wait_ms(&ahead->changed, &ahead->mutex, RKS_WAIT_SLICE_MS);
        const uint64_t done = ahead->done, total = ahead->total;
        pthread_mutex_unlock(&ahead->mutex);
        if (progress != NULL && total > 0)
            progress(user, "publish", done, total, 0);
        goes_on = rks_check_interrupt(&unused) == RKS_OK; /* the caller asks again */
        pthread_mutex_lock(&ahead->mutex);
    }
    pthread_mutex_unlock(&ahead->mutex);
    return goes_on;
}

void rks_send_ahead_close(rks_send_ahead *ahead, bool finish, rks_progress_fn progress, void *user,
                          rks_sent_ahead *sent)
{
    *sent = (rks_sent_ahead){0};
    if (ahead == NULL)
        return;
    pthread_mutex_lock(&ahead->mutex);
    ahead->closing = true;
    pthread_cond_broadcast(&ahead->changed);
    pthread_mutex_unlock(&ahead->mutex);
    finish = finish && wait_for_last(ahead, progress, user);
    atomic_store(&ahead->stop, !finish);
    if (ahead->started)
        pthread_join(ahead->thread, NULL);
    if (!ahead->left) /* else that thread may still write it */
        *sent = ahead->sent;
    leave_ahead(ahead);
}
