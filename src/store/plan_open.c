/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_open.c: a plan over a store's lengths. The sorted order depends on nothing but the lengths,
 * so it is made once a store, by each node's leader, in memory that the ranks of the node share.
 * They share the epochs of the plan, too (plan/cache/epoch_cache.h). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/shared_memory.h"
#include "rankstore/epoch.h"
#include "store/store.h"
#include "plan/plan_state.h"
#include "plan/cache/epoch_cache.h"
#include "plan/planner_mark.h"

/* The group finds a rank that is silent. A rank that lives may work for long between two signs. */
enum { WRITER_SILENCES = 4 };

/* The leader sorts in a map of its own, which is closed before the ranks map it for reading. */
static rks_status sort_into(const rks_store *store, int fd, uint64_t bytes, rks_error *err)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return rks_fail_errno(err, errno, "mapping the sorted order");
    rks_status status =
        rks_plan_sort(rks_store_sealed_lengths(store), rks_store_count(store), map, err);
    munmap(map, bytes);
    return status;
}

/* The sorted order, on its way to the ranks of a node. */
typedef struct ordering {
    uint64_t bytes; /* 0: the plan needs none, or the store has it */
    int fd;         /* the leader's */
    rks_fd_offer *offer;
    void *map; /* this rank's map */
} ordering;

static rks_status begin_order(const rks_store *store, ordering *o, rks_error *err)
{
    rks_status status = RKS_OK;
    if (o->bytes > 0 && rks_group_is_leader(store->group)) {
        status = rks_shared_memory("sorted order", o->bytes, store->index_dir, &o->fd, err);
        if (status == RKS_OK)
            status = sort_into(store, o->fd, o->bytes, err);
        if (status == RKS_OK)
            status = rks_shared_memory_seal("sorted order", o->fd, err);
    }
    return status == RKS_OK && o->bytes > 0 ? rks_fd_offer_open(store->group, o->fd, &o->offer, err)
                                            : status;
}

static rks_status map_order(ordering *o, const rks_agreed *agreed, size_t fact, rks_error *err)
{
    int shared = -1;
    if (o->bytes == 0)
        return RKS_OK;
    rks_status status = rks_fd_offer_take(o->offer, agreed, fact, &shared, err);
    if (status != RKS_OK)
        return status;
    o->map = mmap(NULL, o->bytes, PROT_READ, MAP_SHARED, shared, 0);
    if (o->map == MAP_FAILED)
        status = rks_fail_errno(err, errno, "mapping the sorted order");
    close(shared);
    return status;
}

/* The memory for the epochs that the ranks of a node share. */
typedef struct sharing {
    bool wanted;
    int fd;     /* the leader's, until all ranks have theirs */
    int shared; /* this rank's; -1: none */
    rks_fd_offer *offer;
} sharing;

/* A leader without such memory offers none, and the ranks of its node make their own epochs. */
static rks_status begin_sharing(const rks_store *store, sharing *s, rks_error *err)
{
    rks_error why;
    if (!s->wanted)
        return RKS_OK;
    if (rks_group_is_leader(store->group)) {
        if (store->options.no_share)
            return RKS_OK;
        if (rks_plan_share_memory(&s->fd, &why) != RKS_OK) {
            rks_log("plan: %s; each rank of this node makes its own copy", why.text);
            return RKS_OK;
        }
    }
    return rks_fd_offer_open(store->group, s->fd, &s->offer, err);
}

static rks_status receive_sharing(const rks_store *store, sharing *s, const rks_agreed *agreed,
                                  size_t fact, rks_error *err)
{
    rks_group *group = store->group;
    uint32_t leader = rks_group_leader(group, rks_group_node_of(group, rks_group_rank(group)));
    if (!s->wanted || rks_agreed_get(agreed, leader, fact, NULL) == NULL)
        return RKS_OK;
    return rks_fd_offer_take(s->offer, agreed, fact, &s->shared, err);
}

static void end_sharing(sharing *s)
{
    rks_fd_offer_close(s->offer);
    if (s->fd >= 0)
        close(s->fd);
    if (s->shared >= 0)
        close(s->shared);
}

/* Called while a rank waits for another one's epoch: a job that has failed stops waiting. The plan
 * may outlive the group. */
static rks_status job_has_failed(void *user, rks_error *err)
{
    return rks_group_link_ask(user, "plan: epoch", err);
}

/* The store keeps the order if all ranks have it. */
static void end_order(rks_store *store, ordering *o, rks_status status)
{
    rks_fd_offer_close(o->offer);
    if (o->fd >= 0)
        close(o->fd);
    if (o->map == MAP_FAILED)
        return;
    if (status == RKS_OK)
        rks_index_keep_order(store->index, o->map, o->bytes);
    else
        munmap(o->map, o->bytes);
}

static const char *or_default(const char *name, const char *fallback)
{
    return name == NULL ? fallback : name;
}

/* Names the first line in which two lists of options differ. An option is a line. */
static rks_status name_difference(const char *name, const char *ours, size_t our_size,
                                  const char *theirs, size_t their_size, uint32_t rank,
                                  rks_error *err)
{
    size_t at = 0, line = 0;
    while (at < our_size && at < their_size && ours[at] == theirs[at]) {
        at++;
        line = ours[at - 1] == '\n' ? at : line;
    }
    const char *end = memchr(ours + line, '\n', our_size - line);
    const char *their_end = memchr(theirs + line, '\n', their_size - line);
    if (end == NULL || their_end == NULL)
        return rks_fail(err, RKS_ERR_PEER, 0, "rank %u sent malformed plan options", rank);
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s differ: rank 0 has %.*s, rank %u has %.*s", name,
                    (int)(end - ours - (ptrdiff_t)line), ours + line, rank,
                    (int)(their_end - theirs - (ptrdiff_t)line), theirs + line);
}

static rks_status name_planners(const char *name, const char *ours, size_t our_size,
                                const char *theirs, size_t their_size, uint32_t rank,
                                rks_error *err)
{
    (void)name;
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "libraries of these ranks make different plans: rank 0 has %.*s, rank %u has "
                    "%.*s; install the same build of Rankstore on all of them",
                    (int)our_size, ours, rank, (int)their_size, theirs);
}

/* What names this library's planner: ranks whose planners differ would lose samples silently. */
static rks_status planner_text(const rks_store *store, char *text, size_t room, rks_error *err)
{
    uint64_t mark = 0;
    rks_status status = rks_group_size(store->group) == 1 ? RKS_OK : rks_planner_mark(&mark, err);
    snprintf(text, room, "version %s, planner %d, plans %016" PRIx64, rks_version(),
             RKS_PLAN_VERSION, mark);
    return status;
}

static uint64_t balance_digest(const rks_store *store, const rks_plan_options *options)
{
    size_t size = rks_store_count(store) * sizeof(*options->balance);
    return options->balance == NULL ? 0 : rks_checksum64(options->balance, size);
}

static uint64_t skip_digest(const rks_plan_options *options)
{
    bool none = options->skip == NULL || options->skips == 0;
    return none ? 0 : rks_checksum64(options->skip, options->skips * sizeof(*options->skip));
}

/* All options as text: ranks that plan differently would lose samples silently. */
static int options_text(const rks_plan_options *options, uint64_t samples, uint64_t balance,
                        char *text, size_t room)
{
    int size = snprintf(
        text, room,
        "strategy %.16s\nbatch_size %u\nmax_tokens %" PRIu64 "\ncost %.16s\nmax_length %u\n"
        "too_long %.16s\ntail %.16s\nsteps %.16s\nbatch_multiple %u\nno_shuffle %d\n"
        "world %u\nseed %" PRIu64 "\ncapacity %u\nlength_multiple %u\nmicro_batches %u\nmixed %d\n"
        "cost_linear %a\ncost_quadratic %a\npack_window %u\norder %.16s\nbalance %016" PRIx64
        "\nskip %zu ranges of steps (%016" PRIx64 ")\n",
        or_default(options->strategy, "bucket"), options->batch_size, options->max_tokens,
        or_default(options->cost, "padded"), options->max_length,
        or_default(options->too_long, "error"), or_default(options->tail, "split"),
        or_default(options->steps, "constant"), options->batch_multiple, options->no_shuffle,
        options->world, options->seed, options->capacity, options->length_multiple,
        options->micro_batches, options->mixed, options->cost_linear, options->cost_quadratic,
        options->pack_window, or_default(options->order, "plan"), balance, options->skips,
        skip_digest(options));
    if (options->mix == NULL)
        return size;
    char mix[768];
    rks_mix_describe(options->mix, samples, mix, sizeof(mix), NULL);
    return size + snprintf(text + size, room - (size_t)size, "mix %s\n", mix);
}

static void set_plan_options(const rks_store *store, const rks_plan_options *options,
                             rks_plan_options *chosen)
{
    rks_plan_options_default(chosen);
    if (options != NULL)
        memcpy(chosen, options,
               options->struct_size < sizeof(*chosen) ? options->struct_size : sizeof(*chosen));
    if (chosen->world == 0)
        chosen->world = rks_group_size(store->group);
    chosen->struct_size = sizeof(*chosen);
}

/* This rank's part before the agreement: what the node's leader offers. */
static rks_status begin_plan(rks_store *store, const rks_plan_options *chosen, ordering *order,
                             sharing *share, rks_error *err)
{
    rks_status status = rks_plan_order_bytes(rks_store_count(store), chosen, &order->bytes, err);
    if (rks_index_order(store->index) != NULL)
        order->bytes = 0;
    share->wanted = chosen->mix == NULL && rks_plan_shares(rks_store_count(store));
    if (status != RKS_OK)
        return status;
    status = begin_order(store, order, err);
    return status == RKS_OK ? begin_sharing(store, share, err) : status;
}

static rks_status tell_earlier(const rks_store *store, rks_plan *plan, rks_error *err)
{
    rks_generation *earlier = NULL;
    size_t count = 0;
    rks_status status = rks_store_earlier(store, &earlier, &count, err);
    if (status == RKS_OK)
        status = rks_plan_know_earlier(plan, earlier, count, err);
    if (status == RKS_OK)
        status = rks_store_tell_earlier_sources(store, plan, err);
    rks_release(earlier);
    return status;
}

/* This rank's part after the agreement. */
static rks_status make_plan(rks_store *store, const rks_plan_options *chosen,
                            const rks_agreed *agreed, ordering *order, sharing *share,
                            rks_plan **plan, rks_error *err)
{
    rks_status status = map_order(order, agreed, 1, err);
    if (status != RKS_OK)
        return status;
    status = receive_sharing(store, share, agreed, 2, err);
    if (status != RKS_OK)
        return status;
    const void *sorted = order->bytes > 0 ? order->map : rks_index_order(store->index);
    const rks_plan_share_options shared = {
        .fd = share->shared,
        .rank = rks_group_rank(store->group),
        .silence_ms = WRITER_SILENCES * rks_group_silence_ms(store->group),
        .stopped = job_has_failed,
        .user = rks_group_link_of(store->group),
        .hold = rks_group_link_hold,
        .release = rks_group_link_release,
    };
    bool shares = share->shared >= 0 && !store->options.no_share;
    const rks_plan_samples samples = {.lengths = rks_store_sealed_lengths(store),
                                      .count = rks_store_count(store),
                                      .order = sorted,
                                      .dataset = store->id_text,
                                      .absent = store->absent,
                                      .absent_count = chosen->whole ? 0 : store->absent_count};
    status = rks_plan_create_shared(&samples, chosen, shares ? &shared : NULL, plan, err);
    return status == RKS_OK ? tell_earlier(store, *plan, err) : status;
}

rks_status rks_plan_open(rks_store *store, const rks_plan_options *options, rks_plan **plan,
                         rks_error *err)
{
    rks_plan_options chosen;
    rks_plan *opened = NULL;
    ordering order = {.fd = -1, .map = MAP_FAILED};
    sharing share = {.fd = -1, .shared = -1};
    char text[2048], planner[96];
    rks_agreed agreed;
    set_plan_options(store, options, &chosen);
    rks_status status = planner_text(store, planner, sizeof(planner), err);
    if (status == RKS_OK)
        status = begin_plan(store, &chosen, &order, &share, err);
    int size = options_text(&chosen, rks_store_count(store), balance_digest(store, &chosen), text,
                            sizeof(text));
    const rks_fact facts[] = {
        rks_fact_same_bytes("the plan's options", text, (size_t)size, name_difference),
        rks_fd_offer_fact(order.offer), rks_fd_offer_fact(share.offer),
        rks_fact_same_bytes("the planner", planner, strlen(planner), name_planners)};
    status = rks_group_agree_on(store->group, "plan", status, facts, 4, &agreed, err);
    if (status == RKS_OK) {
        status = make_plan(store, &chosen, &agreed, &order, &share, &opened, err);
        status = rks_group_agree(store->group, "plan: made", status, err);
    }
    end_order(store, &order, status);
    end_sharing(&share);
    if (status != RKS_OK) {
        rks_plan_free(opened);
        return status;
    }
    *plan = opened;
    return RKS_OK;
}
