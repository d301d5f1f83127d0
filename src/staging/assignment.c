/* SPDX-License-Identifier: Apache-2.0
 *
 * assignment.c: who brings what. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "staging/staging_state.h"

/* The first copies first, the large ones of them first. */
static int by_priority(const void *a, const void *b, void *user)
{
    const rks_dataset *dataset = user;
    const rks_staging_lacking *one = a, *other = b;
    uint64_t x = dataset->shards[one->shard].file_bytes;
    uint64_t y = dataset->shards[other->shard].file_bytes;
    if (one->optional != other->optional)
        return one->optional ? 1 : -1;
    return x != y ? (x > y ? -1 : 1) : one->shard < other->shard ? -1 : one->shard > other->shard;
}

static int in_order(const void *a, const void *b)
{
    const rks_staging_lacking *one = a, *other = b;
    if (one->optional != other->optional)
        return one->optional ? 1 : -1;
    return one->shard < other->shard ? -1 : one->shard > other->shard;
}

/* Divides the shards that the place lacks among its ranks: each to the rank with the least bytes.
 * Keeps this rank's. */
static rks_status divide(rks_staging *s, const rks_dataset *dataset, const rks_staging_places *p,
                         rks_staging_lacking *list, size_t count, rks_error *err)
{
    const uint32_t ranks = rks_group_size(s->group), mine = rks_group_rank(s->group);
    const uint64_t *here = p->list[p->of_rank[mine]].here;
    uint64_t *load = rks_alloc(ranks, sizeof(*load), err);
    s->mine = rks_alloc(count, sizeof(*s->mine), err);
    if (load == NULL || s->mine == NULL) {
        rks_free(load);
        return RKS_ERR_MEMORY;
    }
    qsort_r(list, count, sizeof(*list), by_priority, (void *)(uintptr_t)dataset);
    for (size_t i = 0; i < count; i++) {
        uint32_t least = UINT32_MAX;
        for (uint32_t rank = 0; rank < ranks; rank++)
            if (p->of_rank[rank] == p->of_rank[mine] &&
                (least == UINT32_MAX || load[rank] < load[least]))
                least = rank;
        const uint64_t bytes = dataset->shards[list[i].shard].file_bytes;
        load[least] += bytes - here[list[i].shard];
        if (least != mine)
            continue;
        s->mine[s->plan.shards++] = list[i];
        s->plan.mine += list[i].optional ? 0 : bytes;
        s->plan.mine_here += list[i].optional ? 0 : here[list[i].shard];
    }
    qsort(s->mine, s->plan.shards, sizeof(*s->mine), in_order);
    rks_free(load);
    return RKS_OK;
}

/* Writes "1.5 GB". */
static const char *print_bytes(uint64_t bytes, char text[32])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double number = (double)bytes;
    size_t unit = 0;
    while (number >= 1000 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        number /= 1000;
        unit++;
    }
    snprintf(text, 32, "%.*f %s", unit == 0 ? 0 : 1, number, units[unit]);
    return text;
}

static rks_status fail_no_room(const rks_staging *s, const rks_staging_places *p, uint64_t bytes,
                               rks_error *err)
{
    uint64_t room = 0;
    char texts[3][32];
    for (uint32_t i = 0; i < p->count; i++)
        room += p->list[i].room;
    return rks_fail(err, RKS_ERR_IO, 0,
                    "local: no room for %s of %s of shards; %" PRIu32
                    " local director%s room for %s more; give more room (local_room), use more "
                    "nodes or fewer copies, or open it with room=\"through\"",
                    print_bytes(bytes, texts[0]), print_bytes(s->plan.wanted + bytes, texts[1]),
                    p->count, p->count == 1 ? "y has" : "ies have", print_bytes(room, texts[2]));
}

/* Returns a place that has the shard whole; -1: none. Each place begins to look behind itself, so
 * that not all ask the same one. */
static int32_t find_holder(const rks_staging_places *p, uint32_t place, size_t shard,
                           uint64_t bytes)
{
    for (uint32_t i = 1; i <= p->count; i++) {
        const uint32_t other = (place + i) % p->count;
        if (p->list[other].here[shard] >= bytes)
            return (int32_t)other;
    }
    return -1;
}

/* Chooses the shards that this rank's place lacks, of those that it will hold. */
static rks_status choose_mine(rks_staging *s, const rks_dataset *dataset,
                              const rks_staging_places *p, const int32_t *holders, uint32_t copies,
                              bool must_copy, rks_error *err)
{
    const int32_t place = (int32_t)p->of_rank[rks_group_rank(s->group)];
    rks_staging_lacking *list = rks_alloc(dataset->shard_count, sizeof(*list), err);
    size_t count = 0;
    if (list == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < dataset->shard_count; i++) {
        const uint64_t bytes = dataset->shards[i].file_bytes;
        const int32_t holds = find_holder(p, (uint32_t)place, i, bytes);
        const int32_t first = holds >= 0 ? holds : holders[i * copies];
        if (holds < 0 && s->home == NULL) {
            rks_free(list);
            return rks_fail(err, RKS_ERR_NOT_FOUND, 0,
                            "copies: shard %s is in no rank's directory; repair the dataset, or "
                            "move the shard there",
                            dataset->shards[i].name);
        }
        for (uint32_t copy = 0; copy < copies && holders[i * copies + copy] >= 0; copy++) {
            const int32_t holder = holders[i * copies + copy];
            const uint64_t here = p->list[holder].here[i];
            s->plan.wanted += bytes;
            s->plan.here += here;
            if (holder == place && here < bytes)
                list[count++] =
                    (rks_staging_lacking){i, !must_copy && first != place,
                                          first == place ? -1 : (int32_t)p->first[first]};
        }
    }
    rks_status status = divide(s, dataset, p, list, count, err);
    rks_free(list);
    return status;
}

/* Shards that no place holds or has room for are read through. Further copies without room are left
 * out. */
static rks_status choose_through(rks_staging *s, const rks_dataset *dataset, const int32_t *holders,
                                 uint32_t copies, rks_error *err)
{
    char text[32];
    s->through = rks_alloc(dataset->shard_count, sizeof(*s->through), err);
    if (s->through == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < dataset->shard_count; i++) {
        s->through[i] = holders[i * copies] < 0;
        s->plan.through_shards += s->through[i];
        s->plan.through_bytes += s->through[i] ? dataset->shards[i].file_bytes : 0;
    }
    if (s->plan.through_shards > 0 && rks_group_rank(s->group) == 0)
        rks_log("local: no room for %zu of %zu shards, %s: they are read through, from %s",
                s->plan.through_shards, dataset->shard_count,
                print_bytes(s->plan.through_bytes, text), s->home->name);
    return RKS_OK;
}

rks_status rks_staging_assign(rks_staging *s, const rks_dataset *dataset,
                              const rks_staging_options *options, const rks_staging_places *p,
                              rks_error *err)
{
    const size_t shards = dataset->shard_count;
    uint32_t copies = options->copies == 0 ? 1 : options->copies;
    copies = options->everywhere || copies > p->count ? p->count : copies;
    uint64_t without = 0;
    rks_assign_shard *list = rks_alloc(shards, sizeof(*list), err);
    int32_t *holders = rks_alloc(shards * copies, sizeof(*holders), err);
    rks_status status = list == NULL || holders == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < shards; i++) {
        list[i] = (rks_assign_shard){dataset->shards[i].id, dataset->shards[i].file_bytes};
        s->plan.bytes += list[i].bytes;
    }
    s->plan.places = p->count;
    s->samples = dataset->count;
    if (status == RKS_OK)
        status = rks_assign(&(rks_cluster){list, shards, p->list, p->count, copies}, holders,
                            &without, err);
    if (status == RKS_OK)
        status = choose_mine(s, dataset, p, holders, copies,
                             options->must_copy || options->everywhere, err);
    if (status == RKS_OK && without > 0 && options->through)
        status = choose_through(s, dataset, holders, copies, err);
    else if (status == RKS_OK && without > 0)
        status = fail_no_room(s, p, without, err);
    rks_free(list);
    rks_free(holders);
    return status;
}
