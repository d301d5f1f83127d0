/* SPDX-License-Identifier: Apache-2.0
 *
 * assign.c: large shards first, each to the place that has most of it, then to the one that is
 * least full. Fullness counts in sixteenths of a disk's share; its share goes by its room, of which
 * no more counts than the dataset needs. */
#include "home/assign.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

__extension__ typedef unsigned __int128 wide;

typedef struct disk {
    uint32_t node;
    uint64_t number;
    uint64_t left;  /* room for new bytes */
    uint64_t held;  /* bytes that lie there */
    uint64_t used;  /* bytes assigned to it */
    uint64_t share; /* of all bytes to assign; at least 1 */
} disk;

typedef struct assignment {
    const rks_assign_shard *shards;
    size_t shard_count;
    const rks_place *places;
    size_t place_count;
    uint32_t copies;
    disk *disks;
    size_t disk_count;
    size_t *disk_of; /* by place */
    size_t *order;   /* shards, the largest first */
    int32_t *holders;
} assignment;

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t add_up(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t bytes_here(const assignment *a, size_t place, size_t shard)
{
    return smaller(a->places[place].here[shard], a->shards[shard].bytes);
}

static void find_disks(assignment *a)
{
    for (size_t i = 0; i < a->place_count; i++) {
        const rks_place *place = &a->places[i];
        size_t d = 0;
        while (d < a->disk_count &&
               (a->disks[d].node != place->node || a->disks[d].number != place->disk))
            d++;
        if (d == a->disk_count)
            a->disks[a->disk_count++] =
                (disk){.node = place->node, .number = place->disk, .left = place->room};
        a->disks[d].left = smaller(a->disks[d].left, place->room);
        a->disk_of[i] = d;
        for (size_t s = 0; s < a->shard_count; s++) {
            uint64_t here = bytes_here(a, i, s);
            a->disks[d].held = add_up(a->disks[d].held, here);
            if (here == a->shards[s].bytes)
                a->disks[d].used = add_up(a->disks[d].used, here);
        }
    }
}

static void choose_shares(assignment *a)
{
    uint64_t whole = 0;
    wide weights = 0;
    for (size_t s = 0; s < a->shard_count; s++)
        whole = add_up(whole, a->shards[s].bytes);
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t d = 0; d < a->disk_count; d++) {
            uint64_t weight = smaller(whole, add_up(a->disks[d].left, a->disks[d].held));
            weight = weight == 0 ? 1 : weight;
            if (pass == 0) {
                weights += weight;
                continue;
            }
            /* in two steps: whole * copies * weight may need more than 128 bits */
            wide share = (wide)whole * weight / weights * a->copies;
            a->disks[d].share = share == 0 ? 1 : share > UINT64_MAX ? UINT64_MAX : (uint64_t)share;
        }
}

static int compare_sizes(const void *x, const void *y, void *user)
{
    const assignment *a = user;
    const rks_assign_shard *one = &a->shards[*(const size_t *)x];
    const rks_assign_shard *other = &a->shards[*(const size_t *)y];
    if (one->bytes != other->bytes)
        return one->bytes > other->bytes ? -1 : 1;
    if (one->id.high != other->id.high)
        return one->id.high < other->id.high ? -1 : 1;
    return one->id.low < other->id.low ? -1 : one->id.low > other->id.low;
}

static uint64_t hash_of(const assignment *a, size_t shard, size_t place)
{
    const uint64_t words[3] = {a->shards[shard].id.low, a->shards[shard].id.high,
                               a->places[place].id};
    return rks_checksum64(words, sizeof(words));
}

/* Returns true if a copy may go to the node of `place`: none of the shard's holders is on it. */
static bool is_other_node(const assignment *a, const int32_t *holders, size_t place)
{
    for (uint32_t i = 0; i < a->copies && holders[i] >= 0; i++)
        if (a->places[holders[i]].node == a->places[place].node)
            return false;
    return true;
}

/* How well a place suits a shard. */
typedef struct fitness {
    uint64_t here; /* more is better */
    uint64_t fill; /* less is better, as of `hash` */
    uint64_t hash;
} fitness;

static bool is_better(const fitness *one, const fitness *other)
{
    if (one->here != other->here)
        return one->here > other->here;
    if (one->fill != other->fill)
        return one->fill < other->fill;
    return one->hash < other->hash;
}

/* Returns the best place for one more copy of the shard; -1: none has room. */
static int32_t choose_place(const assignment *a, size_t shard, const int32_t *holders)
{
    const uint64_t bytes = a->shards[shard].bytes;
    fitness best = {0};
    int32_t chosen = -1;
    for (size_t i = 0; i < a->place_count; i++) {
        const disk *d = &a->disks[a->disk_of[i]];
        fitness one = {.here = bytes_here(a, i, shard)};
        bool whole = one.here == bytes;
        if (!is_other_node(a, holders, i) || (!whole && d->left < bytes - one.here))
            continue;
        if (!whole) {
            wide fill = (wide)16 * add_up(d->used, bytes) / d->share;
            one.fill = fill > UINT64_MAX ? UINT64_MAX : (uint64_t)fill;
        }
        one.hash = hash_of(a, shard, i);
        if (chosen < 0 || is_better(&one, &best)) {
            chosen = (int32_t)i;
            best = one;
        }
    }
    return chosen;
}

static uint32_t count_nodes(const assignment *a)
{
    uint32_t nodes = 0;
    for (size_t d = 0; d < a->disk_count; d++) {
        bool seen = false;
        for (size_t other = 0; other < d; other++)
            seen = seen || a->disks[other].node == a->disks[d].node;
        nodes += !seen;
    }
    return nodes;
}

static uint64_t assign_shards(assignment *a)
{
    uint64_t lacking = 0;
    uint32_t nodes = count_nodes(a), wanted = a->copies < nodes || nodes == 0 ? a->copies : nodes;
    for (size_t k = 0; k < a->shard_count; k++) {
        size_t shard = a->order[k];
        int32_t *holders = a->holders + shard * a->copies;
        for (uint32_t copy = 0; copy < wanted; copy++) {
            int32_t place = choose_place(a, shard, holders);
            holders[copy] = place;
            if (place < 0) {
                lacking = add_up(lacking, a->shards[shard].bytes);
                break;
            }
            uint64_t here = bytes_here(a, (size_t)place, shard);
            disk *d = &a->disks[a->disk_of[place]];
            if (here == a->shards[shard].bytes)
                continue; /* counted before */
            d->left -= a->shards[shard].bytes - here;
            d->used = add_up(d->used, a->shards[shard].bytes);
        }
    }
    return lacking;
}

rks_status rks_assign(const rks_cluster *cluster, int32_t *holders, uint64_t *lacking,
                      rks_error *err)
{
    const size_t shards = cluster->shard_count, places = cluster->place_count;
    assignment a = {.shards = cluster->shards,
                    .shard_count = shards,
                    .places = cluster->places,
                    .place_count = places,
                    .copies = cluster->copies,
                    .disks = rks_alloc(places, sizeof(*a.disks), err),
                    .disk_of = rks_alloc(places, sizeof(*a.disk_of), err),
                    .order = rks_alloc(shards, sizeof(*a.order), err),
                    .holders = holders};
    bool ready = a.disks != NULL && a.disk_of != NULL && a.order != NULL;
    *lacking = 0;
    if (ready) {
        for (size_t i = 0; i < shards; i++)
            a.order[i] = i;
        for (size_t i = 0; i < shards * a.copies; i++)
            holders[i] = -1;
        qsort_r(a.order, shards, sizeof(*a.order), compare_sizes, &a);
        find_disks(&a);
        choose_shares(&a);
        *lacking = assign_shards(&a);
    }
    rks_free(a.disks);
    rks_free(a.disk_of);
    rks_free(a.order);
    return ready ? RKS_OK : RKS_ERR_MEMORY;
}
