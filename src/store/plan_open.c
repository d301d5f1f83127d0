/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_open.c: a plan over a store's lengths. The sorted order depends on nothing but the lengths,
 * so it is made once a store, by each node's leader, in memory that the ranks of the node share. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/shared_memory.h"
#include "plan/plan.h"
#include "rankstore/epoch.h"
#include "store/store.h"

/* The leader sorts through a map of its own, which is gone when the ranks map it for reading. */
static rks_status sort_into(const rks_store *store, int fd, uint64_t bytes, rks_error *err)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return rks_fail_errno(err, errno, "mapping the sorted order");
    rks_status status = rks_plan_sort(rks_store_lengths(store), rks_store_count(store), map, err);
    munmap(map, bytes);
    return status;
}

static rks_status share_order(rks_store *store, uint64_t bytes, rks_error *err)
{
    int fd = -1, shared = -1;
    void *map = MAP_FAILED;
    rks_status status = RKS_OK;
    if (rks_group_is_leader(store->group)) {
        status = rks_shared_memory("sorted order", bytes, store->directory, &fd, err);
        if (status == RKS_OK)
            status = sort_into(store, fd, bytes, err);
        if (status == RKS_OK)
            status = rks_shared_memory_seal("sorted order", fd, err);
    }
    status = rks_group_agree(store->group, "plan: sorting", status, err);
    if (status == RKS_OK)
        status = rks_group_share_fd(store->group, fd, &shared, err);
    if (status == RKS_OK) {
        map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, shared, 0);
        if (map == MAP_FAILED)
            status = rks_fail_errno(err, errno, "mapping the sorted order");
        close(shared);
        status = rks_group_agree(store->group, "plan: sorted", status, err);
    }
    if (fd >= 0)
        close(fd);
    if (status != RKS_OK) {
        if (map != MAP_FAILED)
            munmap(map, bytes);
        return status;
    }
    rks_index_keep_order(store->index, map, bytes);
    return RKS_OK;
}

static const char *or_default(const char *name, const char *fallback)
{
    return name == NULL ? fallback : name;
}

/* Names the first line in which two lists of options, each of lines, differ. */
static rks_status name_difference(const char *ours, size_t our_size, const char *theirs,
                                  size_t their_size, uint32_t rank, rks_error *err)
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
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "the plan's options differ: rank 0 has %.*s, rank %u has %.*s",
                    (int)(end - ours - (ptrdiff_t)line), ours + line, rank,
                    (int)(their_end - theirs - (ptrdiff_t)line), theirs + line);
}

/* COLLECTIVE. Ranks that plan differently would lose samples without a word. */
static rks_status agree_options(rks_group *group, const rks_plan_options *options,
                                rks_status status, rks_error *err)
{
    char text[1024] = "";
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    int size = snprintf(
        text, sizeof(text),
        "strategy %.16s\nbatch_size %u\nmax_tokens %" PRIu64 "\ncost %.16s\nmax_length %u\n"
        "too_long %.16s\ntail %.16s\nsteps %.16s\nbatch_multiple %u\nno_shuffle %d\n"
        "world %u\nseed %" PRIu64 "\ncapacity %u\nlength_multiple %u\nmicro_batches %u\nmixed %d\n"
        "cost_linear %a\ncost_quadratic %a\n",
        or_default(options->strategy, "bucket"), options->batch_size, options->max_tokens,
        or_default(options->cost, "padded"), options->max_length,
        or_default(options->too_long, "error"), or_default(options->tail, "split"),
        or_default(options->steps, "constant"), options->batch_multiple, options->no_shuffle,
        options->world, options->seed, options->capacity, options->length_multiple,
        options->micro_batches, options->mixed, options->cost_linear, options->cost_quadratic);
    status = rks_group_allgather(group, "plan", status, text, (size_t)size, &all, &offsets, err);
    for (uint32_t rank = 1; status == RKS_OK && rank < rks_group_size(group); rank++) {
        const char *first = (const char *)all, *other = first + offsets[rank];
        size_t other_size = (size_t)(offsets[rank + 1] - offsets[rank]);
        if (other_size != offsets[1] || memcmp(first, other, other_size) != 0)
            status = name_difference(first, (size_t)offsets[1], other, other_size, rank, err);
    }
    rks_free(all);
    rks_free(offsets);
    return status;
}

rks_status rks_plan_open(rks_store *store, const rks_plan_options *options, rks_plan **plan,
                         rks_error *err)
{
    rks_plan_options chosen;
    rks_plan *opened = NULL;
    uint64_t bytes = 0;
    rks_plan_options_default(&chosen);
    if (options != NULL)
        memcpy(&chosen, options,
               options->struct_size < sizeof(chosen) ? options->struct_size : sizeof(chosen));
    if (chosen.world == 0)
        chosen.world = rks_group_size(store->group);
    chosen.struct_size = sizeof(chosen);
    rks_status status = rks_plan_order_bytes(rks_store_count(store), &chosen, &bytes, err);
    status = agree_options(store->group, &chosen, status, err);
    if (status == RKS_OK && bytes > 0 && rks_index_order(store->index) == NULL)
        status = share_order(store, bytes, err);
    if (status == RKS_OK)
        status =
            rks_group_agree(store->group, "plan: made",
                            rks_plan_create_sorted(rks_store_lengths(store), rks_store_count(store),
                                                   rks_index_order(store->index), store->id_text,
                                                   &chosen, &opened, err),
                            err);
    if (status != RKS_OK) {
        rks_plan_free(opened);
        return status;
    }
    *plan = opened;
    return RKS_OK;
}
