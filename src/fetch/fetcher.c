/* SPDX-License-Identifier: Apache-2.0
 *
 * fetcher.c: the requester's side: what a fetcher knows, its checks and its counters. */
#include "fetch/fetcher.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
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

bool rks_fetcher_is_remote(const rks_fetcher *fetcher)
{
    for (size_t i = 0; i < fetcher->options.shard_count; i++)
        if (fetcher->shards[i] == NULL)
            return true;
    return false;
}

uint64_t rks_fetcher_home_waits(const rks_fetcher *fetcher)
{
    return atomic_load_explicit(&fetcher->home_waits, memory_order_relaxed);
}

void rks_fetcher_forget_cache(rks_fetcher *fetcher)
{
    rks_disk_reader_rescan(&fetcher->disk);
    rks_disk_reader_forget(&fetcher->disk);
}

void rks_fetcher_stats(rks_fetcher *fetcher, rks_fetch_stats *stats)
{
    stats->samples = atomic_load(&fetcher->samples);
    stats->local_bytes = atomic_load(&fetcher->local_bytes);
    stats->remote_bytes = atomic_load(&fetcher->remote_bytes);
    stats->bytes = stats->local_bytes + stats->remote_bytes;
    stats->wait_ns = atomic_load(&fetcher->wait_ns);
    stats->disk_reads = atomic_load(&fetcher->disk.disk_reads);
    stats->disk_bytes = atomic_load(&fetcher->disk.disk_bytes);
    stats->peak_batch_bytes = rks_blocks_peak(fetcher->pool);
    stats->peak_inflight_bytes = atomic_load(&fetcher->peak_inflight);
}

/* Checks the key of a sample against the index. rks_record_check compares stored keys with their
 * hash. A derived key is not covered by the checksum, but its source row comes from the record. */
static rks_status check_key(const rks_fetcher *fetcher, const rks_wanted *wanted,
                            const rks_record_view *view, rks_error *err)
{
    const rks_fetcher_options *options = &fetcher->options;
    if (options->derive_key == NULL)
        return view->key_size != 0
                   ? RKS_OK
                   : rks_fail(err, RKS_ERR_CORRUPT, 0, "row %" PRIu64 ": the record has no key",
                              wanted->row);
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
    rks_disk_reader_begin(&fetcher->disk, fetcher->shards, count);
    return RKS_OK;
}

/* Returns `ranks`, or more if the owner or the rank asked in its place is not below it. */
static size_t highest(size_t ranks, const rks_fetcher_options *options, uint32_t owner)
{
    size_t most = owner;
    if (options->asks != NULL && options->asks[owner] > owner)
        most = options->asks[owner];
    return most >= ranks ? most + 1 : ranks;
}

/* Allocates the times at which owners were last heard. */
static rks_status make_heard(rks_fetcher *fetcher, rks_error *err)
{
    const rks_fetcher_options *options = &fetcher->options;
    size_t ranks = 1;
    for (size_t i = 0; options->owners != NULL && i < options->shard_count; i++)
        for (const int32_t *owner = options->owners[i]; owner != NULL && *owner >= 0; owner++)
            ranks = highest(ranks, options, (uint32_t)*owner);
    fetcher->ranks = ranks;
    fetcher->heard_ms = rks_alloc(ranks, sizeof(*fetcher->heard_ms), err);
    return fetcher->heard_ms == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

static rks_status make_layouts(rks_fetcher *fetcher, rks_error *err)
{
    const rks_fetcher_options *options = &fetcher->options;
    const rks_schema **schemas = rks_alloc(options->shard_count, sizeof(*schemas), err);
    if (schemas == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < options->shard_count; i++) {
        const rks_record_fit *fit = options->fits == NULL ? NULL : options->fits[i];
        schemas[i] = fit == NULL ? options->schema : fit->pick.schema;
    }
    rks_status status =
        rks_payload_layouts_create(schemas, options->shard_count, &fetcher->layouts, err);
    rks_free(schemas);
    return status;
}

rks_status rks_fetcher_decode(const rks_fetcher *fetcher, const rks_wanted *wanted,
                              const rks_record_pick *pick, const rks_record_view *view,
                              rks_value *values, rks_error *err)
{
    rks_error inner;
    const rks_fetcher_options *options = &fetcher->options;
    const rks_record_fit *fit = options->fits == NULL ? NULL : options->fits[wanted->shard];
    rks_status status;
    if (fit != NULL)
        status = rks_record_decode_fit(fit, view->payload, view->payload_size, values, &inner);
    else if (pick != NULL)
        status = rks_record_decode_picked(pick, view->payload, view->payload_size, values, &inner);
    else
        status =
            rks_record_decode(options->schema, view->payload, view->payload_size, values, &inner);
    return status == RKS_OK ? RKS_OK : rks_fetcher_blame(fetcher, wanted, &inner, err);
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
    pthread_cond_init(&made->cold_work_comes, NULL);
    rks_status status = copy_tables(made, options, err);
    if (status == RKS_OK)
        status = make_heard(made, err);
    if (status == RKS_OK)
        status = rks_blocks_create(&made->pool, err);
    if (status == RKS_OK)
        status = make_layouts(made, err);
    if (status != RKS_OK) {
        made->options.release = NULL;
        rks_fetcher_release(made);
        return status;
    }
    *fetcher = made;
    return RKS_OK;
}

void rks_fetcher_end_waits(rks_fetcher *fetcher)
{
    atomic_store(&fetcher->ending, true);
    rks_hang_seen(); /* they have been waited for */
}

void rks_fetcher_release(rks_fetcher *fetcher)
{
    if (atomic_fetch_sub(&fetcher->references, 1) != 1)
        return;
    pthread_cond_destroy(&fetcher->cold_work_comes);
    pthread_cond_destroy(&fetcher->work_comes);
    pthread_mutex_destroy(&fetcher->mutex);
    rks_blocks_release(fetcher->pool);
    rks_payload_layouts_free(&fetcher->layouts);
    rks_free(fetcher->heard_ms);
    rks_free(fetcher->largest);
    rks_free(fetcher->shard_ids);
    rks_free(fetcher->shards);
    if (fetcher->options.release != NULL)
        fetcher->options.release(fetcher->options.user);
    rks_free(fetcher);
}
