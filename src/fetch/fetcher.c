/* SPDX-License-Identifier: Apache-2.0
 *
 * fetcher.c: the requester's side: fetches from their start to their end.
 *
 * A synchronous fetch does everything that takes time in the caller's thread. One that was
 * started ahead gives its pieces to two workers too, which are started with the first such
 * fetch. Requests that are on their way when a fetch is cancelled stay with the engine; the
 * fetch's memory goes with the last of them, and so may the fetcher's after its close. */
#include "fetch/fetcher.h"

#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/trace.h"

static const uint64_t LARGEST_RECORD = (uint64_t)1 << 40; /* no shard can hold a larger one */
static const uint64_t DEFAULT_INFLIGHT = (uint64_t)256 << 20;

/* ---- counting and naming ------------------------------------------------------------------ */

rks_status rks_fetcher_blame(const rks_fetcher *fetcher, const rks_wanted *wanted,
                             const rks_error *inner, rks_error *err)
{
    char text[128];
    const char *name = NULL;
    if (fetcher->options.describe != NULL)
        name = fetcher->options.describe(fetcher->options.user, wanted->id, text, sizeof(text));
    if (name == NULL) {
        snprintf(text, sizeof(text), "sample %" PRIu64, wanted->id);
        name = text;
    }
    rks_fail(err, (rks_status)inner->status, inner->cause, "%s: %s", name, inner->text);
    if (inner->rank >= 0)
        rks_error_place(err, (uint32_t)inner->rank, inner->host);
    return (rks_status)inner->status;
}

void rks_fetcher_stats(rks_fetcher *fetcher, rks_fetch_stats *stats)
{
    stats->samples = atomic_load(&fetcher->samples);
    stats->local_bytes = atomic_load(&fetcher->local_bytes);
    stats->remote_bytes = atomic_load(&fetcher->remote_bytes);
    stats->bytes = stats->local_bytes + stats->remote_bytes;
    stats->wait_ns = atomic_load(&fetcher->wait_ns);
    stats->peak_batch_bytes = rks_blocks_peak(fetcher->pool);
    pthread_mutex_lock(&fetcher->mutex);
    stats->peak_inflight_bytes = fetcher->peak_inflight;
    pthread_mutex_unlock(&fetcher->mutex);
}

/* Stored keys are compared with their hash by rks_record_check. A derived one is not among the
 * bytes that the checksum covers, but the source row that it is made of comes from the record. */
static rks_status check_key(const rks_fetcher *fetcher, const rks_wanted *wanted,
                            const rks_record_view *view, rks_error *err)
{
    const rks_fetcher_options *options = &fetcher->options;
    if (options->derive_key == NULL)
        return view->key_size != 0
                   ? RKS_OK
                   : rks_fail(err, RKS_ERR_CORRUPT, 0, "row %" PRIu64 ": no key", wanted->row);
    uint8_t key[RKS_KEY_MAX + 1];
    if (view->key_size != 0)
        return RKS_OK;
    size_t size = options->derive_key(options->user, wanted->id, view->source_row, key);
    if (rks_key_hash(key, size) != wanted->key_hash)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "row %" PRIu64 ": not the key of the index",
                        wanted->row);
    return RKS_OK;
}

rks_status rks_fetcher_check(const rks_fetcher *fetcher, const rks_wanted *wanted,
                             const rks_record_view *view, rks_error *err)
{
    rks_error inner;
    rks_status status = check_key(fetcher, wanted, view, &inner);
    if (status == RKS_OK)
        status = rks_record_check(view, fetcher->shard_ids[wanted->shard], wanted->row,
                                  wanted->key_hash, wanted->length, &inner);
    return status == RKS_OK ? RKS_OK : rks_fetcher_blame(fetcher, wanted, &inner, err);
}

void rks_fetcher_count_delivered(rks_fetcher *fetcher, size_t samples, uint64_t local,
                                 uint64_t remote, uint64_t begin_ns)
{
    atomic_fetch_add_explicit(&fetcher->samples, samples, memory_order_relaxed);
    atomic_fetch_add_explicit(&fetcher->local_bytes, local, memory_order_relaxed);
    if (remote != 0)
        atomic_fetch_add_explicit(&fetcher->remote_bytes, remote, memory_order_relaxed);
    atomic_fetch_add_explicit(&fetcher->wait_ns, rks_now_ns() - begin_ns, memory_order_relaxed);
    if (rks_trace_begin() != 0)
        rks_trace_end(begin_ns, RKS_TRACE_WAIT, -1, samples, local + remote);
}

/* ---- the fetcher's life --------------------------------------------------------------------- */

static rks_status copy_tables(rks_fetcher *fetcher, const rks_fetcher_options *options,
                              rks_error *err)
{
    size_t count = options->shard_count;
    fetcher->shards = rks_alloc(count, sizeof(rks_shard *), err);
    fetcher->shard_ids = fetcher->shards == NULL ? NULL : rks_alloc(count, sizeof(rks_digest), err);
    fetcher->largest = fetcher->shard_ids == NULL ? NULL : rks_alloc(count, sizeof(uint64_t), err);
    if (fetcher->largest == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        fetcher->shards[i] = options->shards == NULL ? NULL : options->shards[i];
        fetcher->shard_ids[i] = options->shard_ids[i];
        fetcher->largest[i] =
            options->largest[i] < LARGEST_RECORD ? options->largest[i] : LARGEST_RECORD;
    }
    return RKS_OK;
}

/* For owners that fall silent. */
static rks_status make_heard(rks_fetcher *fetcher, rks_error *err)
{
    const rks_fetcher_options *options = &fetcher->options;
    size_t ranks = 1;
    for (size_t i = 0; options->owners != NULL && i < options->shard_count; i++)
        for (const int32_t *owner = options->owners[i]; owner != NULL && *owner >= 0; owner++)
            ranks = (size_t)*owner >= ranks ? (size_t)*owner + 1 : ranks;
    fetcher->heard_ms = rks_alloc(ranks, sizeof(*fetcher->heard_ms), err);
    return fetcher->heard_ms == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

rks_status rks_fetcher_open(const rks_fetcher_options *options, rks_fetcher **fetcher,
                            rks_error *err)
{
    rks_fetcher *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->options = *options;
    if (made->options.inflight_bytes == 0)
        made->options.inflight_bytes = DEFAULT_INFLIGHT;
    made->queue_end = &made->queue;
    made->work_end = &made->work;
    atomic_init(&made->references, 1);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->work_comes, NULL);
    pthread_cond_init(&made->idle, NULL);
    rks_status status = copy_tables(made, options, err);
    if (status == RKS_OK)
        status = make_heard(made, err);
    if (status == RKS_OK)
        status = rks_blocks_create(&made->pool, err);
    if (status == RKS_OK)
        status = rks_plain_create(options->schema, &made->plain, err);
    if (status != RKS_OK) {
        made->options.release = NULL;
        rks_fetcher_release(made);
        return status;
    }
    *fetcher = made;
    return RKS_OK;
}

void rks_fetcher_release(rks_fetcher *fetcher)
{
    if (atomic_fetch_sub(&fetcher->references, 1) != 1)
        return;
    pthread_cond_destroy(&fetcher->idle);
    pthread_cond_destroy(&fetcher->work_comes);
    pthread_mutex_destroy(&fetcher->mutex);
    rks_blocks_release(fetcher->pool);
    rks_plain_free(&fetcher->plain);
    rks_free(fetcher->heard_ms);
    rks_free(fetcher->largest);
    rks_free(fetcher->shard_ids);
    rks_free(fetcher->shards);
    if (fetcher->options.release != NULL)
        fetcher->options.release(fetcher->options.user);
    rks_free(fetcher);
}

void rks_fetcher_close(rks_fetcher *fetcher)
{
    if (fetcher == NULL)
        return;
    pthread_mutex_lock(&fetcher->mutex);
    fetcher->closing = true;
    rks_ask *queued = rks_fetch_unqueue(fetcher, NULL);
    pthread_cond_broadcast(&fetcher->work_comes);
    while (fetcher->busy != 0)
        pthread_cond_wait(&fetcher->idle, &fetcher->mutex);
    pthread_mutex_unlock(&fetcher->mutex);
    for (size_t i = 0; i < fetcher->worker_count; i++)
        pthread_join(fetcher->workers[i], NULL);
    rks_ask_free(queued);
    while (fetcher->work != NULL) {
        rks_fetch *fetch = fetcher->work;
        fetcher->work = fetch->next;
        rks_fetch_release(fetch);
    }
    rks_fetcher_release(fetcher);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

bool rks_fetch_is_over(const rks_fetch *fetch)
{
    return fetch->ended || fetch->status != RKS_OK || fetch->pieces == 0;
}

void rks_fetch_set_failed(rks_fetch *fetch, const rks_error *err)
{
    if (rks_fetch_is_over(fetch))
        return;
    fetch->status = (rks_status)err->status;
    fetch->error = *err;
    pthread_cond_broadcast(&fetch->changed);
}

void rks_fetch_wake(rks_fetch *fetch)
{
    rks_fetcher *fetcher = fetch->fetcher;
    if (fetch->ahead && !fetch->queued && !fetch->waited_for) {
        fetch->queued = true;
        fetch->next = NULL;
        atomic_fetch_add(&fetch->references, 1);
        *fetcher->work_end = fetch;
        fetcher->work_end = &fetch->next;
        pthread_cond_signal(&fetcher->work_comes);
    }
    pthread_cond_broadcast(&fetch->changed);
}

void rks_fetch_finish(rks_fetch *fetch, rks_block **block, uint64_t remote_bytes,
                      const rks_error *err)
{
    if (block == NULL) {
        rks_fetch_set_failed(fetch, err);
        return;
    }
    rks_batch_add(fetch->batch, *block);
    *block = NULL; /* the batch's now */
    fetch->remote_bytes += remote_bytes;
    if (--fetch->pieces == 0)
        pthread_cond_broadcast(&fetch->changed);
}

static void do_local(rks_fetch *fetch)
{
    rks_fetcher *fetcher = fetch->fetcher;
    rks_block *block = NULL;
    uint64_t bytes = 0;
    rks_error err;
    fetch->local_waits = false;
    pthread_mutex_unlock(&fetcher->mutex);
    rks_status status = rks_fetch_copy_local(fetch->batch, &block, &bytes, &err);
    pthread_mutex_lock(&fetcher->mutex);
    fetch->local_bytes += bytes;
    rks_fetch_finish(fetch, status == RKS_OK ? &block : NULL, 0, &err);
}

/* All other pieces are done, so nobody else looks at the batch. */
static void do_arrays(rks_fetch *fetch)
{
    rks_fetcher *fetcher = fetch->fetcher;
    rks_arrays *arrays = NULL;
    uint64_t bytes = 0;
    rks_error err;
    fetch->local_waits = false;
    pthread_mutex_unlock(&fetcher->mutex);
    rks_status status = rks_fetch_make_arrays(fetch->batch, fetch->collate, &arrays, &bytes, &err);
    if (status == RKS_OK) {
        rks_batch_free(fetch->batch);
        fetch->batch = NULL;
    }
    pthread_mutex_lock(&fetcher->mutex);
    fetch->local_bytes += bytes;
    fetch->arrays = arrays;
    if (status != RKS_OK)
        rks_fetch_set_failed(fetch, &err);
    else if (--fetch->pieces == 0)
        pthread_cond_broadcast(&fetch->changed);
}

static void do_arrived(rks_fetch *fetch)
{
    rks_fetcher *fetcher = fetch->fetcher;
    rks_ask *ask = fetch->arrived;
    uint64_t bytes = 0;
    rks_error err;
    fetch->arrived = ask->next;
    ask->next = NULL;
    pthread_mutex_unlock(&fetcher->mutex);
    rks_status status = rks_fetch_check_reply(ask, &bytes, &err);
    pthread_mutex_lock(&fetcher->mutex);
    rks_fetch_finish(fetch, status == RKS_OK ? &ask->reply : NULL, bytes, &err);
    rks_ask_free(ask);
}

/* Takes a piece and works on it, meanwhile without the mutex; false: there is none. The caller
 * holds the mutex and a reference. */
static bool work_on(rks_fetch *fetch)
{
    if (rks_fetch_is_over(fetch))
        return false;
    if (fetch->arrived != NULL)
        do_arrived(fetch);
    else if (fetch->local_waits && fetch->collate == NULL)
        do_local(fetch);
    else if (fetch->local_waits && fetch->pieces == 1)
        do_arrays(fetch);
    else
        return false;
    return true;
}

/* The same with the first fetch of the work list, and with all its pieces; the caller holds the
 * mutex. */
static bool work_on_next(rks_fetcher *fetcher)
{
    rks_fetch *fetch = fetcher->work;
    if (fetch == NULL)
        return false;
    fetcher->work = fetch->next;
    if (fetch->next == NULL)
        fetcher->work_end = &fetcher->work;
    fetch->queued = false;
    while (work_on(fetch))
        ;
    pthread_mutex_unlock(&fetcher->mutex);
    rks_fetch_release(fetch); /* of the work list */
    pthread_mutex_lock(&fetcher->mutex);
    return true;
}

static void *worker_main(void *user)
{
    rks_fetcher *fetcher = user;
    sigset_t mask; /* signals are for the program's threads, but a map's fault is ours */
    sigfillset(&mask);
    sigdelset(&mask, SIGBUS);
    sigdelset(&mask, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    pthread_mutex_lock(&fetcher->mutex);
    while (!fetcher->closing)
        if (!work_on_next(fetcher))
            pthread_cond_wait(&fetcher->work_comes, &fetcher->mutex);
    pthread_mutex_unlock(&fetcher->mutex);
    return NULL;
}

/* Who waits works, too: with as many workers as cores they would only take turns (measured on 2
 * cores: 1.2 G padded tokens/s with two, 1.5 G with one). */
static size_t workers_wanted(void)
{
    cpu_set_t cores;
    int count = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
    return count - 1 < 1                   ? 1
           : count - 1 > RKS_FETCH_WORKERS ? RKS_FETCH_WORKERS
                                           : (size_t)count - 1;
}

static rks_status start_workers(rks_fetcher *fetcher, rks_error *err)
{
    int error = 0;
    pthread_mutex_lock(&fetcher->mutex);
    if (fetcher->workers_wanted == 0)
        fetcher->workers_wanted = workers_wanted();
    while (error == 0 && fetcher->worker_count < fetcher->workers_wanted) {
        error =
            pthread_create(&fetcher->workers[fetcher->worker_count], NULL, worker_main, fetcher);
        fetcher->worker_count += error == 0;
    }
    bool none = fetcher->worker_count == 0;
    pthread_mutex_unlock(&fetcher->mutex);
    return none ? rks_fail_errno(err, error, "start a thread for fetching ahead") : RKS_OK;
}

/* ---- fetches --------------------------------------------------------------------------------- */

rks_status rks_fetch_count_remote(const rks_fetcher *fetcher, const rks_wanted *wanted,
                                  size_t count, size_t *remote, rks_error *err)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        if (wanted[i].shard >= fetcher->options.shard_count || wanted[i].row > UINT32_MAX)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "sample %" PRIu64 ": row %" PRIu64 " of shard %" PRIu32
                            " cannot be, there are %zu shards",
                            wanted[i].id, wanted[i].row, wanted[i].shard,
                            fetcher->options.shard_count);
        found += fetcher->shards[wanted[i].shard] == NULL;
    }
    if (count > UINT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "a batch of %zu samples", count);
    *remote = found;
    return RKS_OK;
}

void rks_fetch_release(rks_fetch *fetch)
{
    if (atomic_fetch_sub(&fetch->references, 1) != 1)
        return;
    rks_fetcher *fetcher = fetch->fetcher;
    rks_batch_free(fetch->batch);
    rks_arrays_free(fetch->arrays);
    rks_collate_release(fetch->collate);
    pthread_cond_destroy(&fetch->changed);
    rks_free(fetch);
    rks_fetcher_release(fetcher);
}

/* A fetch with its requests queued, not sent. It takes the batch over, also when it fails. */
static rks_status make_fetch(rks_fetcher *fetcher, rks_batch *batch, size_t remote,
                             rks_collate *collate, bool ahead, rks_fetch **fetch, rks_error *err)
{
    rks_fetch *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL) {
        rks_batch_free(batch);
        return RKS_ERR_MEMORY;
    }
    made->fetcher = fetcher;
    made->batch = batch;
    made->count = batch->count;
    made->ahead = ahead;
    atomic_init(&made->references, 1);
    atomic_fetch_add(&fetcher->references, 1);
    rks_cond_init(&made->changed);
    if (collate != NULL) {
        rks_collate_hold(collate);
        made->collate = collate;
    }
    made->local_waits = remote < batch->count || collate != NULL;
    made->pieces = made->local_waits;
    rks_status status = remote == 0 ? RKS_OK : rks_fetch_ask_all(made, remote, err);
    if (status != RKS_OK) {
        rks_fetch_release(made);
        return status;
    }
    *fetch = made;
    return RKS_OK;
}

rks_status rks_fetch_begin(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                           rks_collate *collate, bool ahead, rks_fetch **fetch, rks_error *err)
{
    rks_batch *batch = NULL;
    rks_fetch *made = NULL;
    size_t remote = 0;
    rks_status status = rks_fetch_count_remote(fetcher, wanted, count, &remote, err);
    if (status == RKS_OK && ahead && count != 0)
        status = start_workers(fetcher, err);
    if (status == RKS_OK)
        status = rks_batch_create(fetcher, wanted, count, &batch, err);
    if (status == RKS_OK)
        status = make_fetch(fetcher, batch, remote, collate, ahead, &made, err);
    if (status != RKS_OK)
        return status;
    if (ahead && (collate == NULL || remote == 0)) {
        pthread_mutex_lock(&fetcher->mutex); /* another thread may have sent what it asks */
        if (made->local_waits)
            rks_fetch_wake(made);
        pthread_mutex_unlock(&fetcher->mutex);
    }
    if (remote != 0)
        rks_fetch_send_queued(fetcher);
    *fetch = made;
    return RKS_OK;
}

rks_status rks_fetcher_start(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                             rks_fetch **fetch, rks_error *err)
{
    return rks_fetch_begin(fetcher, wanted, count, NULL, true, fetch, err);
}

/* Nobody wants it any more: drops what has not been sent or looked at, and the reference. */
static void end_fetch(rks_fetch *fetch)
{
    rks_fetcher *fetcher = fetch->fetcher;
    pthread_mutex_lock(&fetcher->mutex);
    fetch->ended = true;
    rks_ask *arrived = fetch->arrived;
    fetch->arrived = NULL;
    rks_ask *queued = rks_fetch_unqueue(fetcher, fetch);
    pthread_mutex_unlock(&fetcher->mutex);
    rks_ask_free(arrived);
    rks_ask_free(queued);
    rks_fetch_release(fetch);
}

/* Works and waits until it is over. Who waits for a fetch that was started ahead helps with those
 * behind it rather than sleep: they are what it waits for next. */
static rks_status wait_until_over(rks_fetch *fetch, rks_error *err)
{
    rks_fetcher *fetcher = fetch->fetcher;
    rks_status status = RKS_OK;
    pthread_mutex_lock(&fetcher->mutex);
    while (status == RKS_OK && !rks_fetch_is_over(fetch)) {
        if (!work_on(fetch) && !(fetch->ahead && work_on_next(fetcher))) {
            fetch->waited_for = true;
            rks_cond_wait_ms(&fetch->changed, &fetcher->mutex, RKS_WAIT_SLICE_MS);
            fetch->waited_for = false;
        }
        if (rks_fetch_is_over(fetch))
            break;
        pthread_mutex_unlock(&fetcher->mutex);
        status = rks_check_interrupt(err);
        if (status == RKS_OK && fetcher->options.timeout_ms != 0)
            rks_fetch_give_up_silent(fetch);
        pthread_mutex_lock(&fetcher->mutex);
    }
    if (status == RKS_OK && fetch->status != RKS_OK) {
        status = fetch->status;
        if (err != NULL)
            *err = fetch->error;
    }
    pthread_mutex_unlock(&fetcher->mutex);
    return status;
}

/* Of a batch and arrays the one that the fetch brings. */
static rks_status end_wait(rks_fetch *fetch, rks_batch **batch, rks_arrays **arrays, rks_error *err)
{
    uint64_t begin = rks_now_ns();
    rks_status status = wait_until_over(fetch, err);
    if (status == RKS_OK) {
        rks_fetcher_count_delivered(fetch->fetcher, fetch->count, fetch->local_bytes,
                                    fetch->remote_bytes, begin);
        *batch = fetch->batch;
        *arrays = fetch->arrays;
        fetch->batch = NULL;
        fetch->arrays = NULL;
    }
    end_fetch(fetch);
    return status;
}

rks_status rks_fetch_wait(rks_fetch *fetch, rks_batch **batch, rks_error *err)
{
    rks_arrays *none;
    return end_wait(fetch, batch, &none, err);
}

rks_status rks_fetch_wait_arrays(rks_fetch *fetch, rks_arrays **arrays, rks_error *err)
{
    rks_batch *none;
    return end_wait(fetch, &none, arrays, err);
}

bool rks_fetch_ready(rks_fetch *fetch)
{
    pthread_mutex_lock(&fetch->fetcher->mutex);
    bool over = rks_fetch_is_over(fetch);
    pthread_mutex_unlock(&fetch->fetcher->mutex);
    return over;
}

uint64_t rks_fetch_memory(rks_fetch *fetch)
{
    pthread_mutex_lock(&fetch->fetcher->mutex);
    bool good = fetch->status == RKS_OK && fetch->pieces == 0;
    uint64_t bytes = !good                   ? 0
                     : fetch->arrays != NULL ? rks_arrays_memory(fetch->arrays)
                                             : fetch->batch->bytes;
    pthread_mutex_unlock(&fetch->fetcher->mutex);
    return bytes;
}

void rks_fetch_cancel(rks_fetch *fetch)
{
    if (fetch != NULL)
        end_fetch(fetch);
}

/* All samples lie in maps: no fetch is needed. */
static rks_status fetch_local(rks_batch *batch, uint64_t *bytes, rks_error *err)
{
    rks_block *block = NULL;
    if (batch->count == 0)
        return RKS_OK;
    rks_status status = rks_fetch_copy_local(batch, &block, bytes, err);
    if (status == RKS_OK)
        rks_batch_add(batch, block);
    return status;
}

rks_status rks_fetcher_fetch(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                             rks_batch **batch, rks_error *err)
{
    uint64_t begin = rks_now_ns(), bytes = 0;
    rks_batch *made = NULL;
    rks_fetch *fetch = NULL;
    size_t remote = 0;
    rks_status status = rks_fetch_count_remote(fetcher, wanted, count, &remote, err);
    if (status == RKS_OK && remote != 0) {
        status = rks_fetch_begin(fetcher, wanted, count, NULL, false, &fetch, err);
        return status == RKS_OK ? rks_fetch_wait(fetch, batch, err) : status;
    }
    if (status == RKS_OK)
        status = rks_batch_create(fetcher, wanted, count, &made, err);
    if (status != RKS_OK)
        return status;
    status = fetch_local(made, &bytes, err);
    if (status != RKS_OK) {
        rks_batch_free(made);
        return status;
    }
    rks_fetcher_count_delivered(fetcher, count, bytes, 0, begin);
    *batch = made;
    return RKS_OK;
}
