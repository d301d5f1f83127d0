/* SPDX-License-Identifier: Apache-2.0
 *
 * collated.c: makes arrays of the samples of a batch, or of a fetch with `collate`.
 *
 * Such a fetch returns no batch and keeps no copy of its local samples. It reads their sizes in the
 * map. Then it copies one sample at a time into a small buffer, which stays in the processor's
 * cache, and checks and converts it there. So the bytes that were checked are those that arrive, as
 * in local.c, whatever happens to the file in between. For a large sample the copy would cost
 * nearly as much as all the rest, so it is checked and converted in the map. */
#include "fetch/collated.h"

#include "base/error.h"
#include "fetch/local.h"

enum { COPY_MOST = 64 << 10 }; /* largest record that is copied, in bytes */

typedef struct samples {
    const rks_batch *batch;
    const rks_record_pick *pick;
    bool maps;       /* local samples are in their maps, else in the batch */
    uint8_t *copy;   /* of the sample being converted */
    uint64_t *bytes; /* of local samples so far */
} samples;

static bool in_map(const samples *s, size_t i)
{
    return s->maps && rks_request_list_is_local(s->batch->list, i);
}

/* Returns true if a record is converted from a copy. Without checks none is copied. */
static bool is_copied(const samples *s, const rks_record_view *view)
{
    return s->batch->fetcher->options.check && view->record_size <= COPY_MOST;
}

static rks_status decode(const samples *s, size_t i, const rks_record_view *view, rks_value *values,
                         rks_error *err)
{
    return rks_fetcher_decode(s->batch->fetcher, &s->batch->wanted[i], s->pick, view, values, err);
}

/* Returns the error of an unreadable page if the record in the map has one, else `status`. */
static rks_status blame_fault(const samples *s, size_t i, rks_status status, rks_error *err)
{
    const rks_batch *batch = s->batch;
    rks_status fault =
        rks_fetch_check_faults(batch->fetcher, &batch->wanted[i], &batch->views[i], err);
    return fault == RKS_OK ? status : fault;
}

static rks_status read_sizes(void *user, size_t i, rks_value *values, rks_error *err)
{
    const samples *s = user;
    rks_status status = decode(s, i, &s->batch->views[i], values, err);
    return status == RKS_OK || !in_map(s, i) ? status : blame_fault(s, i, status, err);
}

static rks_status read_items(void *user, size_t i, rks_value *values, rks_error *err)
{
    const samples *s = user;
    const rks_fetcher *fetcher = s->batch->fetcher;
    const rks_wanted *wanted = &s->batch->wanted[i];
    const rks_record_view *view = &s->batch->views[i];
    rks_record_view copy;
    rks_status status = RKS_OK;
    if (!in_map(s, i))
        return decode(s, i, view, values, err);
    rks_fetch_prefetch_local(s->batch, i);
    if (is_copied(s, view)) {
        status = rks_fetch_copy_checked(fetcher, wanted, view, s->copy, &copy, err);
        view = &copy;
    } else if (fetcher->options.check) {
        status = rks_fetcher_check(fetcher, wanted, view, err);
    }
    if (status == RKS_OK) {
        *s->bytes += rks_payload_bytes(fetcher->layouts.of[wanted->shard], view);
        status = decode(s, i, view, values, err);
    }
    return status == RKS_OK ? status : blame_fault(s, i, status, err);
}

static uint32_t read_length(void *user, size_t i)
{
    const samples *s = user;
    return s->batch->wanted[i].length;
}

static rks_status end_items(void *user, size_t i, rks_error *err)
{
    const samples *s = user;
    return in_map(s, i) ? blame_fault(s, i, RKS_OK, err) : RKS_OK;
}

static rks_status fill_arrays(samples *s, rks_collate *collate, rks_arrays **arrays, rks_error *err)
{
    const rks_batch *batch = s->batch;
    rks_arrays *made = NULL;
    const rks_collate_source source = {
        .count = batch->count,
        .sizes = read_sizes,
        .items = read_items,
        .length = read_length,
        .pieces = batch->list->pieces,
        .piece_count = batch->list->piece_count,
        .bins = batch->list->bins,
        .bin_count = batch->list->bin_count,
        .done = end_items,
        .user = s,
    };
    rks_status status = rks_collate_run(collate, &source, batch->fetcher->pool, &made, err);
    if (status != RKS_OK)
        return status;
    uint64_t *ids = rks_arrays_ids_room(made);
    uint32_t *lengths = rks_arrays_lengths_room(made);
    for (size_t i = 0; i < batch->count; i++) {
        ids[i] = batch->wanted[i].id;
        lengths[i] = batch->wanted[i].length;
    }
    for (size_t i = 0; i < batch->list->piece_count; i++)
        lengths[batch->list->pieces[i].place] = batch->list->pieces[i].count;
    *arrays = made;
    return RKS_OK;
}

static rks_status run(samples *s, rks_collate *collate, rks_arrays **arrays, rks_error *err)
{
    rks_arenas_enter(rks_collate_arenas(collate));
    rks_status status = fill_arrays(s, collate, arrays, err);
    rks_arenas_leave(rks_collate_arenas(collate));
    return status;
}

/* ---- of a batch ----------------------------------------------------------------------------- */

rks_status rks_batch_collate(rks_batch *batch, const rks_collate_options *options,
                             rks_arrays **arrays, rks_error *err)
{
    rks_collate *collate = NULL;
    rks_status status = rks_collate_create(batch->schema, options, &collate, err);
    if (status == RKS_OK) {
        samples s = {.batch = batch, .pick = rks_collate_pick(collate)};
        status = run(&s, collate, arrays, err);
    }
    rks_collate_release(collate);
    return status;
}

/* ---- of a fetch ----------------------------------------------------------------------------- */

rks_status rks_fetch_make_arrays(rks_batch *batch, rks_collate *collate, rks_arrays **arrays,
                                 uint64_t *bytes, rks_error *err)
{
    rks_fetcher *fetcher = batch->fetcher;
    samples s = {.batch = batch, .pick = rks_collate_pick(collate), .maps = true, .bytes = bytes};
    size_t all = 0, largest = 0;
    rks_fetch_ask_disk(batch->list);
    rks_status status = rks_fetch_locate_local(batch, &all, err);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; i < batch->count; i++)
        if (in_map(&s, i) && is_copied(&s, &batch->views[i]) &&
            batch->views[i].record_size > largest)
            largest = batch->views[i].record_size;
    rks_block *block = rks_blocks_take(fetcher->pool, largest, err);
    if (block == NULL)
        return RKS_ERR_MEMORY;
    s.copy = block->data;
    status = run(&s, collate, arrays, err);
    rks_fetch_notice_batch_faults(batch);
    rks_blocks_give(fetcher->pool, block);
    return status;
}
