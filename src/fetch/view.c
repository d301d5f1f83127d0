/* SPDX-License-Identifier: Apache-2.0
 *
 * view.c: reads one sample without a copy, or without an allocation. */
#include <inttypes.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/trace.h"
#include "fetch/local.h"
#include "fetch/slow.h"
#include "fetch/wire.h"

struct rks_view {
    rks_fetcher *fetcher; /* holds a reference, which keeps the map */
    rks_batch *batch;     /* of this one sample; NULL: it is in the map, and in memory */
    uint32_t columns;
    rks_value values[];
};

static rks_status find_in_map(rks_fetcher *fetcher, const rks_wanted *wanted,
                              rks_record_view *record, rks_error *err)
{
    const rks_shard *shard = fetcher->shards[wanted->shard];
    rks_error inner;
    rks_range range;
    rks_status status = rks_fetch_wait_arriving(fetcher, wanted, 1, err);
    if (status != RKS_OK)
        return status;
    if (!rks_disk_reader_is_warm(&fetcher->disk) &&
        rks_disk_reader_range(&fetcher->disk, wanted->shard, wanted->row, &range))
        rks_disk_reader_follow(&fetcher->disk, &range);
    if (rks_shard_locate_many(shard, &wanted->row, 1, record, &inner) != RKS_OK)
        return rks_fetcher_blame(fetcher, wanted, &inner, err);
    status = fetcher->options.check ? rks_fetcher_check(fetcher, wanted, record, err) : RKS_OK;
    rks_fetch_notice_faults(fetcher, wanted, 1);
    if (!rks_shard_faulted(shard, record->record, record->record_size))
        return status;
    rks_shard_read_failed(shard, wanted->row, record, &inner);
    return rks_fetcher_blame(fetcher, wanted, &inner, err);
}

/* Returns true if the sample is read here, perhaps once it has come. */
static bool is_mapped(const rks_fetcher *fetcher, const rks_wanted *wanted)
{
    const rks_arriving *arriving = fetcher->options.arriving;
    const rks_shard *map =
        wanted->shard < fetcher->options.shard_count ? fetcher->shards[wanted->shard] : NULL;
    return map != NULL && (arriving == NULL || !arriving->beside ||
                           !rks_arriving_is_elsewhere(arriving, wanted->shard, map, wanted->row));
}

static rks_status fetch_one(rks_fetcher *fetcher, const rks_wanted *wanted, rks_batch **batch,
                            rks_error *err)
{
    rks_request_list *list = NULL;
    rks_status status = rks_request_list_create(fetcher, 1, &list, err);
    if (status != RKS_OK)
        return status;
    list->wanted[0] = *wanted;
    return rks_fetcher_fetch(fetcher, list, batch, err);
}

rks_status rks_fetcher_bring(rks_fetcher *fetcher, const rks_wanted *wanted, rks_error *err)
{
    rks_batch *batch = NULL;
    if (!rks_fetch_may_wait(fetcher, wanted))
        return RKS_OK;
    rks_status status = fetch_one(fetcher, wanted, &batch, err);
    rks_batch_free(batch);
    return status == RKS_ERR_CANCELLED || status == RKS_ERR_STATE ? status : RKS_OK;
}

static rks_status fill_view(rks_view *view, const rks_wanted *wanted, rks_error *err)
{
    rks_fetcher *fetcher = view->fetcher;
    rks_record_view record;
    uint64_t begin = rks_now_ns();
    bool mapped = is_mapped(fetcher, wanted) && !rks_fetch_may_wait(fetcher, wanted);
    rks_status status = mapped ? find_in_map(fetcher, wanted, &record, err)
                               : fetch_one(fetcher, wanted, &view->batch, err);
    if (status != RKS_OK)
        return status;
    if (mapped)
        rks_fetcher_count_delivered(
            fetcher, 1, rks_payload_bytes(fetcher->layouts.of[wanted->shard], &record), 0, begin);
    else
        record = view->batch->views[0];
    return rks_fetcher_decode(fetcher, wanted, NULL, &record, view->values, err);
}

rks_status rks_fetcher_view(rks_fetcher *fetcher, const rks_wanted *wanted, rks_view **view,
                            rks_error *err)
{
    uint32_t columns = rks_schema_columns(fetcher->options.schema);
    rks_view *made = rks_alloc(1, sizeof(*made) + columns * sizeof(rks_value), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->fetcher = fetcher;
    made->columns = columns;
    atomic_fetch_add(&fetcher->references, 1);
    rks_status status = fill_view(made, wanted, err);
    if (status != RKS_OK) {
        rks_view_free(made);
        return status;
    }
    *view = made;
    return RKS_OK;
}

rks_status rks_view_value(const rks_view *view, uint32_t column, rks_value *value, rks_error *err)
{
    if (column >= view->columns)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "column %" PRIu32 " is out of range: a sample has %" PRIu32 " columns",
                        column, view->columns);
    *value = view->values[column];
    return RKS_OK;
}

void rks_view_free(rks_view *view)
{
    if (view == NULL)
        return;
    rks_fetcher *fetcher = view->fetcher;
    rks_batch_free(view->batch);
    rks_free(view);
    rks_fetcher_release(fetcher);
}

/* ---- at once --------------------------------------------------------------------------------- */

rks_status rks_fetcher_read_now(rks_fetcher *fetcher, const rks_wanted *wanted, uint8_t *to,
                                size_t room, rks_value *values, bool *done, rks_error *err)
{
    rks_record_view in_map, copy;
    *done = false;
    if (wanted->shard >= fetcher->options.shard_count || fetcher->shards[wanted->shard] == NULL ||
        !rks_disk_reader_is_warm(&fetcher->disk) || rks_trace_begin() != 0)
        return RKS_OK;
    /* If it cannot be located, a fetch will report the error. */
    if (rks_shard_locate_many(fetcher->shards[wanted->shard], &wanted->row, 1, &in_map, NULL) !=
        RKS_OK)
        return RKS_OK;
    size_t place = rks_fetch_record_place(0, &in_map);
    if (place > room || in_map.record_size > room - place)
        return RKS_OK;
    rks_status status = rks_fetch_copy_checked(fetcher, wanted, &in_map, to + place, &copy, err);
    rks_fetch_notice_faults(fetcher, wanted, 1);
    if (status == RKS_OK)
        status = rks_fetcher_decode(fetcher, wanted, NULL, &copy, values, err);
    if (status != RKS_OK)
        return status;
    uint64_t bytes = rks_payload_bytes(fetcher->layouts.of[wanted->shard], &copy);
    atomic_fetch_add_explicit(&fetcher->samples, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&fetcher->local_bytes, bytes, memory_order_relaxed);
    *done = true;
    return RKS_OK;
}
