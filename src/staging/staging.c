/* SPDX-License-Identifier: Apache-2.0
 *
 * staging.c: two agreements make the assignment:
 *
 *   stage: directories   node, device, inode and room of each rank's local directory
 *   stage: shards        what lies in each place already, as the place's lowest rank reports it
 *
 * Then each rank knows what it brings (assignment.c), without another word. */
#include "staging/staging_state.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "staging/place_calls.h"

/* ---- what the ranks tell -----------------------------------------------------------------------
 */

/* Numbers the places in the order of their lowest ranks. */
static rks_status number_places(const rks_staging *s, const rks_agreed *agreed,
                                rks_staging_places *p, rks_error *err)
{
    const uint32_t ranks = rks_group_size(s->group);
    p->of_rank = rks_alloc(ranks, sizeof(*p->of_rank), err);
    p->first = rks_alloc(ranks, sizeof(*p->first), err);
    p->list = rks_alloc(ranks, sizeof(*p->list), err);
    if (p->of_rank == NULL || p->first == NULL || p->list == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        rks_place_told told, other;
        const uint32_t node = rks_group_node_of(s->group, rank);
        uint32_t place = 0;
        memcpy(&told, rks_agreed_get(agreed, rank, 0, NULL), sizeof(told));
        for (; place < p->count; place++) {
            memcpy(&other, rks_agreed_get(agreed, p->first[place], 0, NULL), sizeof(other));
            if (p->list[place].node == node && other.device == told.device &&
                other.inode == told.inode)
                break;
        }
        p->of_rank[rank] = place;
        if (place == p->count) {
            p->first[p->count++] = rank;
            p->list[place] =
                (rks_place){.id = told.name, .node = node, .disk = told.device, .room = told.room};
        }
    }
    return RKS_OK;
}

/* Appends {shard, bytes} of those of which something is here, after those that another folder of
 * the local directory has are linked. */
static rks_status put_here(const rks_staging *s, const rks_staging_options *options,
                           const rks_dataset *dataset, rks_buffer *told, rks_error *err)
{
    const rks_place_wish wish = {.local = options->local, .folder = options->folder};
    uint64_t *here = NULL;
    rks_status status = rks_place_call_look(s->group, &wish, dataset, &here, err);
    if (status == RKS_OK)
        status = rks_place_put(here, dataset->shard_count, told, err);
    rks_free(here);
    return status;
}

static rks_status read_here_places(const rks_agreed *agreed, size_t shards, rks_staging_places *p,
                                   rks_error *err)
{
    p->here = rks_alloc(p->count * shards, sizeof(*p->here), err);
    if (p->here == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t place = 0; place < p->count; place++) {
        size_t size = 0;
        const uint8_t *told = rks_agreed_get(agreed, p->first[place], 0, &size);
        p->list[place].here = p->here + place * shards;
        for (size_t at = 0; told != NULL && at + RKS_PLACE_ENTRY <= size; at += RKS_PLACE_ENTRY) {
            uint64_t shard = rks_load_u64(told + at);
            if (shard < shards)
                p->here[place * shards + shard] = rks_load_u64(told + at + 8);
        }
    }
    return RKS_OK;
}

/* ---- begin and end -----------------------------------------------------------------------------
 */

enum { JOB_REQUESTS = 256 }; /* of all ranks, to begin with */

rks_status rks_staging_open_home(const rks_group *group, const char *home,
                                 const char *storage_options, rks_home **opened, rks_error *err)
{
    const uint32_t share = JOB_REQUESTS / rks_group_size(group);
    const rks_home_limits limits = {.options = storage_options, .requests = share == 0 ? 1 : share};
    return rks_home_open(home, &limits, opened, err);
}

static rks_status take_home(rks_staging *s, const rks_staging_options *options, rks_error *err)
{
    if (options->opened != NULL) {
        s->home = *options->opened;
        *options->opened = NULL;
    }
    return s->home != NULL || options->home == NULL
               ? RKS_OK
               : rks_staging_open_home(s->group, options->home, options->storage_options, &s->home,
                                       err);
}

/* Makes the local directory and takes its lease. */
static rks_status take_place(rks_staging *s, const rks_staging_options *options,
                             rks_place_told *told, rks_error *err)
{
    rks_place_made made = {0};
    const rks_place_wish wish = {.local = options->local,
                                 .folder = options->folder,
                                 .room = options->on_demand ? INT64_MAX / 1024 : options->room,
                                 .shares = options->home != NULL};
    rks_status status = rks_place_call_make(s->group, &wish, &made, err);
    if (status != RKS_OK)
        return status;
    s->directory = made.directory;
    s->lease = made.lease;
    *told = made.told;
    return RKS_OK;
}

/* What the rank holds is served before the agreements, so before anybody knows whom to ask. */
static rks_status make_staging(rks_group *group, const rks_dataset *dataset,
                               const rks_staging_options *options, rks_place_told *told,
                               rks_staging **staging, rks_error *err)
{
    rks_staging *s = rks_alloc(1, sizeof(*s), err);
    if (s == NULL)
        return RKS_ERR_MEMORY;
    *staging = s;
    s->group = group;
    s->on_demand = options->on_demand;
    rks_status status = take_home(s, options, err);
    if (status == RKS_OK && options->through && (s->home == NULL || s->home->ops->far))
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "room: \"through\" needs a home that is a directory, whose shards can be "
                          "mapped; give more room, or leave `room` out");
    if (status == RKS_OK)
        status = take_place(s, options, told, err);
    if (status == RKS_OK && rks_group_size(group) > 1)
        status = rks_holding_open(group, dataset, s->directory, &s->holding, err);
    return status;
}

/* What a staging begins with. */
typedef struct beginning {
    rks_group *group;
    const rks_dataset *dataset;
    const rks_staging_options *options;
    rks_place_told told; /* of this rank's directory */
} beginning;

/* COLLECTIVE. */
static rks_status learn_places(const beginning *begun, rks_status status, rks_staging *s,
                               rks_staging_places *p, rks_error *err)
{
    rks_group *group = begun->group;
    const rks_dataset *dataset = begun->dataset;
    const rks_staging_options *options = begun->options;
    rks_agreed agreed;
    rks_buffer here = {0};
    char said[48];
    snprintf(said, sizeof(said), options->everywhere ? "everywhere" : "%" PRIu32, options->copies);
    const rks_fact facts[] = {rks_fact_fixed(&begun->told, sizeof(begun->told)),
                              rks_fact_same_shown("copies", said),
                              rks_fact_same_shown("room", options->through ? "through" : "error")};
    status = rks_group_agree_on(group, "stage: directories", status, facts, 3, &agreed, err);
    if (status != RKS_OK)
        return status;
    status = number_places(s, &agreed, p, err);
    const uint32_t mine = rks_group_rank(group);
    if (status == RKS_OK && p->first[p->of_rank[mine]] == mine)
        status = put_here(s, options, dataset, &here, err);
    const rks_fact shards =
        rks_fact_bytes(here.data, here.size,
                       (uint64_t)RKS_PLACE_ENTRY * dataset->shard_count * rks_group_size(group));
    status = rks_group_agree_on(group, "stage: shards", status, &shards, 1, &agreed, err);
    rks_buffer_free(&here);
    return status == RKS_OK ? read_here_places(&agreed, dataset->shard_count, p, err) : status;
}

static rks_status start_arrivals(rks_staging *s, const rks_dataset *dataset, rks_error *err)
{
    const size_t count = s->plan.shards;
    char id[RKS_DIGEST_TEXT];
    if (count == 0)
        return RKS_OK;
    rks_digest_format(dataset->id, id);
    snprintf(s->dataset, sizeof(s->dataset), "dataset %.8s, generation %" PRIu64, id,
             rks_dataset_number(dataset));
    rks_arrival_wish *wishes = rks_alloc(count, sizeof(*wishes), err);
    s->names = rks_alloc(count, sizeof(*s->names), err);
    s->holders = rks_alloc(rks_group_size(s->group), sizeof(*s->holders), err);
    rks_status status =
        wishes == NULL || s->names == NULL || s->holders == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        const rks_dataset_shard *shard = &dataset->shards[s->mine[i].shard];
        memcpy(s->names[i], shard->name, sizeof(s->names[i]));
        const int32_t holder = s->mine[i].holder;
        if (holder >= 0 && s->holders[holder] == NULL)
            status = rks_holder_open(s->group, (uint32_t)holder, dataset, &s->holders[holder], err);
        wishes[i] = (rks_arrival_wish){.home = s->home,
                                       .holder = holder < 0 ? NULL : s->holders[holder],
                                       .directory = s->directory,
                                       .name = s->names[i],
                                       .manifest = shard->manifest,
                                       .optional = s->mine[i].optional,
                                       .dataset = s->dataset,
                                       .sparse = s->on_demand};
    }
    if (status == RKS_OK)
        status = rks_arrivals_open(wishes, count, true, &s->arrivals, err);
    rks_free(wishes);
    return status;
}

static rks_status describe_own_place(const rks_staging *s, const rks_dataset *dataset,
                                     rks_error *err)
{
    const rks_home_limits none = {0};
    return s->home == NULL
               ? rks_place_call_describe(s->group, &none, s->directory, NULL, dataset, err)
               : rks_place_call_describe(s->group, &s->home->limits, s->directory, s->home->name,
                                         dataset, err);
}

rks_status rks_staging_begin(rks_group *group, rks_status status, const rks_dataset *dataset,
                             const rks_staging_options *options, rks_staging **staging,
                             rks_error *err)
{
    beginning begun = {.group = group, .dataset = dataset, .options = options};
    rks_staging_places p = {0};
    rks_staging *s = NULL;
    if (status == RKS_OK)
        status = make_staging(group, dataset, options, &begun.told, &s, err);
    status = learn_places(&begun, status, s, &p, err);
    if (status == RKS_OK)
        status = rks_staging_assign(s, dataset, options, &p, err);
    if (status == RKS_OK && p.first[p.of_rank[rks_group_rank(group)]] == rks_group_rank(group))
        status = describe_own_place(s, dataset, err);
    if (status == RKS_OK)
        status = start_arrivals(s, dataset, err);
    rks_free(p.of_rank);
    rks_free(p.first);
    rks_free(p.list);
    rks_free(p.here);
    status = rks_group_agree(group, "stage: assignment", status, err);
    if (status != RKS_OK) {
        rks_staging_end(s);
        return status;
    }
    *staging = s;
    return RKS_OK;
}

static void go(rks_staging *s, bool needs_soon)
{
    if (s->arrivals != NULL && !s->on_demand)
        rks_arrivals_go(s->arrivals, needs_soon);
}

void rks_staging_go(rks_staging *staging)
{
    go(staging, true);
}

void rks_staging_stop(rks_staging *staging)
{
    if (staging != NULL)
        rks_arrivals_stop(staging->arrivals);
}

/* Keeps it in reach, for tools that look for lost memory. */
static void leave_behind(rks_staging *staging)
{
    static _Atomic(rks_staging *) last;
    staging->next = atomic_exchange(&last, staging);
}

void rks_staging_end(rks_staging *staging)
{
    if (staging == NULL)
        return;
    const bool ended = rks_arrivals_close(staging->arrivals);
    rks_holding_close(staging->holding);
    rks_leases_end(staging->lease);
    if (!ended) { /* a thread hangs in the local directory, and uses the rest */
        leave_behind(staging);
        return;
    }
    for (uint32_t i = 0; staging->holders != NULL && i < rks_group_size(staging->group); i++)
        rks_home_close(staging->holders[i]);
    rks_free(staging->holders);
    rks_home_close(staging->home);
    rks_free(staging->mine);
    rks_free(staging->names);
    rks_free(staging->through);
    rks_free(staging->directory);
    rks_free(staging);
}

const char *rks_staging_home(const rks_staging *staging)
{
    return staging->home == NULL ? NULL : staging->home->name;
}

const char *rks_staging_directory(const rks_staging *staging)
{
    return staging->directory;
}

const rks_staging_plan *rks_staging_planned(const rks_staging *staging)
{
    return &staging->plan;
}

rks_arrivals *rks_staging_arrivals(const rks_staging *staging)
{
    return staging->arrivals;
}

int64_t rks_staging_find(const rks_staging *staging, const char *shard)
{
    for (size_t i = 0; i < staging->plan.shards; i++)
        if (!staging->mine[i].optional && strcmp(staging->names[i], shard) == 0)
            return (int64_t)i;
    return -1;
}

bool rks_staging_reads_through(const rks_staging *staging, size_t shard)
{
    return staging->through != NULL && staging->through[shard];
}

uint64_t rks_staging_brought(const rks_staging *staging)
{
    rks_arrivals_count count = {0};
    if (staging->arrivals != NULL)
        rks_arrivals_counted(staging->arrivals, &count);
    return count.brought;
}

/* ---- waiting -----------------------------------------------------------------------------------
 */

/* Who follows the progress. */
typedef struct watcher {
    const rks_staging *staging;
    rks_progress_fn progress;
    void *user;
} watcher;

static void show_staging(void *user)
{
    const watcher *w = user;
    const rks_staging *s = w->staging;
    const uint64_t here = s->plan.mine_here + rks_staging_brought(s);
    const uint64_t done = here < s->plan.mine ? here : s->plan.mine;
    char text[96];
    const rks_work work = {.done = done, .total = s->plan.mine};
    snprintf(text, sizeof(text), "%" PRIu64 " of %" PRIu64 " MiB are here", done >> 20,
             s->plan.mine >> 20);
    rks_group_tell_progress(s->group, &work, text);
    if (w->progress != NULL)
        w->progress(w->user, "stage", done, s->plan.mine, s->samples);
}

rks_status rks_staging_wait(rks_staging *s, enum rks_arrivals_until until, rks_progress_fn progress,
                            void *progress_user, rks_error *err)
{
    watcher watching = {s, progress, progress_user};
    rks_status status = RKS_OK;
    bool reached = s->arrivals == NULL;
    if (until != RKS_ARRIVALS_HEADS)
        go(s, false);
    while (status == RKS_OK && !reached) {
        status = rks_arrivals_wait(s->arrivals, until, RKS_WAIT_SLICE_MS, &reached, err);
        if (status == RKS_OK)
            status = rks_group_must_stop(s->group, err);
        show_staging(&watching);
    }
    if (rks_group_rank(s->group) == 0)
        rks_group_on_wait(s->group, show_staging, &watching);
    status = rks_group_agree(s->group, "stage", status, err);
    rks_group_on_wait(s->group, NULL, NULL);
    return status;
}
