/* SPDX-License-Identifier: Apache-2.0
 *
 * store_epoch.c: the batches of this rank in step order, fetched ahead by plan: the lists of the
 * prefetch ring are the plan's batches. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/trace.h"
#include "fetch/readahead.h"
#include "fetch/prefetch.h"
#include "group/group.h"
#include "rankstore/epoch.h"
#include "store/store.h"
#include "plan/plan_state.h"

struct rks_epoch {
    rks_store *store;
    rks_plan *plan;
    uint64_t epoch;
    uint64_t step; /* the next step to be listed */
    uint64_t steps;
    uint32_t rank;
    rks_readahead *ahead; /* reads this node's disk ahead; NULL: it cannot */
    uint64_t ahead_step;  /* the next step to be read ahead; those from `step` to here have been */
    bool unlisted;        /* the samples of a step cannot be fetched: the step is left out */
    bool at_end;          /* all steps are listed */
    rks_prefetch *prefetch;
    rks_collate *collate; /* NULL: batches come as samples */
    uint64_t traced;      /* rks_trace_begin, when the last batch was returned */
    uint64_t looked_ms;   /* when look_up last ran */
};

/* Shows watchers of the store that a batch has come; step NULL: the epoch has ended. */
static void show_place(rks_epoch *e, const uint64_t *step)
{
    atomic_store_explicit(&e->store->ahead, step == NULL ? 0 : rks_prefetch_ahead(e->prefetch),
                          memory_order_relaxed);
    if (step == NULL)
        return;
    atomic_fetch_add_explicit(&e->store->batches, 1, memory_order_relaxed);
    atomic_store_explicit(&e->store->epoch, e->epoch, memory_order_relaxed);
    atomic_store_explicit(&e->store->step, *step, memory_order_relaxed);
    atomic_store_explicit(&e->store->steps, e->steps, memory_order_relaxed);
}

void(rks_epoch_options_default)(rks_epoch_options *options)
{
    *options = (rks_epoch_options){
        .struct_size = sizeof(*options),
    };
}

/* ---- the disk ------------------------------------------------------------------------------ */

enum { AHEAD_BATCHES = 1024 };

static bool find_sample(void *user, uint32_t id, uint32_t *shard, uint64_t *row)
{
    const rks_epoch *e = user;
    if (id >= e->store->dataset->count)
        return false;
    rks_index_locate(e->store->index, id, shard, row);
    return true;
}

/* Returns true if a change of weights comes before the next step that is read ahead. */
static bool is_not_computed(const rks_epoch *e)
{
    return e->ahead_step > e->step && !rks_plan_is_computed(e->plan, e->epoch, e->ahead_step);
}

/* Passes the plan's next batches to the reader of the disk. A failure here happens again, and is
 * reported, when the batch is listed. */
static void look_ahead(rks_epoch *e)
{
    while (e->ahead != NULL && rks_readahead_wants(e->ahead)) {
        const uint32_t *ids = NULL;
        size_t count = 0;
        uint64_t after = 0;
        if (e->ahead_step < e->step)
            e->ahead_step = e->step;
        if (is_not_computed(e) ||
            rks_plan_next_step(e->plan, e->epoch, e->ahead_step, &e->ahead_step, NULL) != RKS_OK ||
            e->ahead_step == e->steps || e->ahead_step - e->step >= AHEAD_BATCHES ||
            is_not_computed(e) ||
            rks_plan_next_step(e->plan, e->epoch, e->ahead_step + 1, &after, NULL) != RKS_OK ||
            rks_plan_batch(e->plan, e->epoch, e->ahead_step, e->rank, &ids, &count, NULL) != RKS_OK)
            return;
        if (!rks_readahead_push(e->ahead, ids, count, after == e->steps)) {
            rks_readahead_close(e->ahead);
            e->ahead = NULL;
            return;
        }
        e->ahead_step++;
    }
}

static void started(rks_epoch *e, uint64_t step)
{
    const uint32_t *ids = NULL;
    size_t count = 0;
    if (e->ahead != NULL && step < e->ahead_step &&
        rks_plan_batch(e->plan, e->epoch, step, e->rank, &ids, &count, NULL) == RKS_OK)
        rks_readahead_started(e->ahead, count, NULL);
}

/* ---- batches -------------------------------------------------------------------------------- */

/* Sets which of its samples are pieces, and for layout rows its bins. */
static rks_status add_parts(rks_epoch *e, rks_request_list *samples, rks_error *err)
{
    const rks_piece *pieces;
    const uint32_t *bounds;
    size_t count = 0;
    rks_status status = rks_plan_pieces(e->plan, e->epoch, e->step, e->rank, &pieces, &count, err);
    if (status == RKS_OK)
        status = rks_request_list_set_pieces(samples, pieces, count, err);
    if (status != RKS_OK || e->collate == NULL || !rks_collate_has_rows(e->collate))
        return status;
    status = rks_plan_bins(e->plan, e->epoch, e->step, e->rank, &bounds, &count, err);
    return status == RKS_OK ? rks_request_list_set_bins(samples, bounds, count, err) : status;
}

/* Copies the plan's ids into the list of the next batch: the plan's own are gone once it is asked
 * about another epoch. Count 0: the epoch has ended. */
static rks_status next_list(rks_epoch *e, rks_prefetch_list *list, rks_error *err)
{
    const uint32_t *ids = NULL;
    size_t count = 0;
    rks_status status = rks_plan_next_step(e->plan, e->epoch, e->step, &e->step, err);
    if (status != RKS_OK)
        return status;
    *list = (rks_prefetch_list){.tag = e->step};
    if (e->step >= e->steps)
        return RKS_OK;
    look_ahead(e);
    status = rks_plan_batch(e->plan, e->epoch, e->step, e->rank, &ids, &count, err);
    if (status != RKS_OK)
        return status;
    status = rks_store_list32(e->store, ids, count, &list->samples, err);
    e->unlisted = status != RKS_OK;
    if (e->unlisted)
        return status;
    status = add_parts(e, list->samples, err);
    if (status != RKS_OK) {
        rks_request_list_free(list->samples);
        list->samples = NULL;
        return status;
    }
    const rks_wanted *wanted = list->samples->wanted;
    for (size_t i = 0; i < count; i++)
        list->weight += wanted[i].length;
    list->count = count;
    if (e->ahead != NULL && e->step < e->ahead_step)
        rks_readahead_started(e->ahead, count, list->samples);
    e->step++;
    return RKS_OK;
}

/* Starts fetches while the ring has room. */
static rks_status start_ahead(rks_epoch *e, rks_error *err)
{
    bool wants = false;
    rks_status status = rks_prefetch_start(e->prefetch, &wants, err);
    while (status == RKS_OK && wants && !e->at_end) {
        rks_prefetch_list list = {0};
        status = next_list(e, &list, err);
        e->at_end = status == RKS_OK && list.count == 0;
        if (status != RKS_OK || e->at_end)
            break;
        rks_prefetch_push(e->prefetch, &list);
        status = rks_prefetch_start(e->prefetch, &wants, err);
    }
    rks_prefetch_send(e->prefetch);
    return status;
}

/* Skips a step whose list could not be made or started, and would fail again. */
static void skip_failed(rks_epoch *e)
{
    if (rks_prefetch_drop(e->prefetch))
        return;
    if (e->unlisted)
        started(e, e->step);
    e->step += e->unlisted;
    e->unlisted = false;
}

/* Waits for the next batch, and starts later ones while the caller works on it. A failure to start
 * them comes again with the next call. */
static rks_status next_result(rks_epoch *e, rks_batch **batch, rks_arrays **arrays, uint64_t *step,
                              rks_error *err)
{
    rks_status status = start_ahead(e, err);
    if (rks_prefetch_ahead(e->prefetch) == 0 && status != RKS_OK) {
        if (status != RKS_ERR_CANCELLED)
            skip_failed(e);
        return status;
    }
    status = rks_prefetch_next(e->prefetch, batch, arrays, step, err);
    if (status == RKS_OK)
        (void)start_ahead(e, NULL);
    return status;
}

static rks_status prepare_collate(rks_epoch *e, const rks_epoch_options *options, rks_error *err)
{
    if (options->collate == NULL)
        return options->arenas == NULL
                   ? RKS_OK
                   : rks_fail(err, RKS_ERR_ARGUMENT, 0,
                              "arenas: arrays alone lie there; give `collate`, too");
    rks_status status =
        rks_collate_create(rks_store_schema(e->store), options->collate, &e->collate, err);
    if (status == RKS_OK && options->arenas != NULL)
        rks_collate_use(e->collate, options->arenas);
    return status;
}

static rks_status prepare_epoch(rks_epoch *e, const rks_epoch_options *options, rks_error *err)
{
    uint32_t ranks = rks_group_size(e->store->group);
    if (rks_plan_world(e->plan) != ranks)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "the plan is for %u ranks, the group has %u",
                        rks_plan_world(e->plan), ranks);
    rks_status status = rks_plan_steps(e->plan, e->epoch, &e->steps, err);
    if (status != RKS_OK)
        return status;
    if (options->first_step > e->steps)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "first_step: %" PRIu64 " is beyond the epoch's %" PRIu64 " steps",
                        options->first_step, e->steps);
    status = prepare_collate(e, options, err);
    if (status != RKS_OK)
        return status;
    e->step = options->first_step;
    const rks_readahead_options disk = {
        .fetcher = e->store->fetcher,
        .locate = find_sample,
        .user = e,
        .readers = rks_group_node_size(e->store->group, rks_group_node(e->store->group))};
    status = rks_readahead_open(&disk, &e->ahead, err);
    if (status != RKS_OK)
        return status;
    rks_prefetch_options ahead = {
        .fetcher = e->store->fetcher,
        .collate = e->collate,
        .max_batches = options->prefetch_batches,
        .max_bytes = options->prefetch_bytes,
        .ranks = ranks,
        .near = rks_store_expects(e->store),
    };
    return rks_prefetch_open(&ahead, &e->prefetch, err);
}

rks_status rks_epoch_open(rks_store *store, rks_plan *plan, const rks_epoch_options *options,
                          rks_epoch **epoch, rks_error *err)
{
    rks_epoch_options chosen;
    rks_epoch_options_default(&chosen);
    if (options != NULL)
        memcpy(&chosen, options,
               options->struct_size < sizeof(chosen) ? options->struct_size : sizeof(chosen));
    rks_epoch *opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL)
        return RKS_ERR_MEMORY;
    opened->store = store;
    opened->plan = plan;
    opened->epoch = chosen.epoch;
    opened->rank = rks_group_rank(store->group);
    rks_status status = prepare_epoch(opened, &chosen, err);
    if (status != RKS_OK) {
        rks_epoch_close(opened);
        return status;
    }
    *epoch = opened;
    return RKS_OK;
}

/* Runs each time the caller comes back. If batches are always ready, nothing waits, so nothing else
 * would notice an interrupt, or a lost rank from which this one requests nothing. */
static rks_status look_up(rks_epoch *epoch, rks_error *err)
{
    rks_group *group = epoch->store->group;
    rks_trace_end(epoch->traced, RKS_TRACE_BATCH, -1, 0, 0);
    epoch->traced = 0;
    uint64_t now = rks_now_ms();
    if (now - epoch->looked_ms < RKS_WAIT_SLICE_MS / 2)
        return RKS_OK;
    epoch->looked_ms = now;
    rks_status status = rks_check_interrupt(err);
    if (status == RKS_OK && rks_group_failed(group))
        status = rks_group_failure(group, "epoch: next batch", err);
    return status;
}

rks_status rks_epoch_next(rks_epoch *epoch, rks_batch **batch, uint64_t *step, rks_error *err)
{
    if (epoch->collate != NULL)
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "the epoch was opened with `collate`: its batches come as arrays, from "
                        "rks_epoch_next_arrays");
    uint64_t at = 0;
    rks_arrays *none = NULL;
    rks_status status = look_up(epoch, err);
    if (status == RKS_OK)
        status =
            rks_group_explain(epoch->store->group, next_result(epoch, batch, &none, &at, err), err);
    if (status == RKS_OK)
        show_place(epoch, *batch == NULL ? NULL : &at);
    if (status == RKS_OK && step != NULL && *batch != NULL)
        *step = at;
    epoch->traced = rks_trace_begin();
    return status;
}

rks_status rks_epoch_next_arrays(rks_epoch *epoch, rks_arrays **arrays, uint64_t *step,
                                 rks_error *err)
{
    if (epoch->collate == NULL)
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "the epoch was opened without `collate`: its batches come as samples, from "
                        "rks_epoch_next");
    uint64_t at = 0;
    rks_batch *none = NULL;
    rks_status status = look_up(epoch, err);
    if (status == RKS_OK)
        status = rks_group_explain(epoch->store->group, next_result(epoch, &none, arrays, &at, err),
                                   err);
    if (status == RKS_OK)
        show_place(epoch, *arrays == NULL ? NULL : &at);
    if (status == RKS_OK && step != NULL && *arrays != NULL)
        *step = at;
    epoch->traced = rks_trace_begin();
    return status;
}

void rks_epoch_close(rks_epoch *epoch)
{
    if (epoch == NULL)
        return;
    rks_readahead_close(epoch->ahead);
    rks_prefetch_close(epoch->prefetch);
    if (epoch->collate != NULL)
        rks_arenas_end(rks_collate_arenas(epoch->collate));
    rks_collate_release(epoch->collate);
    rks_free(epoch);
}
