/* SPDX-License-Identifier: Apache-2.0
 *
 * fetch_tasks.c: how tasks of a fetch become ready and end, and with the last one the fetch. */
#include "fetch/fetch_tasks.h"

#include "base/memory.h"
#include "fetch/workers.h"

void rks_fetch_set_failed(rks_fetch *fetch, const rks_error *err)
{
    if (rks_fetch_is_over(fetch))
        return;
    fetch->status = (rks_status)err->status;
    fetch->error = *err;
    atomic_store(&fetch->over, true);
    pthread_cond_broadcast(&fetch->changed);
}

void rks_fetch_wake(rks_fetch *fetch)
{
    rks_fetcher *fetcher = fetch->fetcher;
    if (fetch->ahead && !fetch->queued && (!fetch->waited_for || fetch->left)) {
        fetch->queued = true;
        fetch->next = NULL;
        atomic_fetch_add(&fetch->references, 1);
        *fetcher->work_end = fetch;
        fetcher->work_end = &fetch->next;
        rks_fetcher_wake_workers(fetcher);
    }
    pthread_cond_broadcast(&fetch->changed);
}

bool rks_fetch_end_task(rks_fetch *fetch)
{
    if (--fetch->tasks != 0 || rks_fetch_is_over(fetch))
        return false;
    atomic_store_explicit(&fetch->memory,
                          fetch->arrays != NULL ? rks_arrays_memory(fetch->arrays)
                                                : fetch->batch->bytes,
                          memory_order_relaxed);
    atomic_store(&fetch->over, true);
    return fetch->waited_for;
}

bool rks_fetch_finish(rks_fetch *fetch, rks_block **block, uint64_t remote_bytes,
                      const rks_error *err)
{
    if (block == NULL) {
        rks_fetch_set_failed(fetch, err);
        return false;
    }
    rks_batch_add(fetch->batch, *block);
    *block = NULL; /* the batch owns it now */
    fetch->remote_bytes += remote_bytes;
    return rks_fetch_end_task(fetch);
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
