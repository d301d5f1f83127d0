/* SPDX-License-Identifier: Apache-2.0
 *
 * store_split.c: parts of a dataset by hash. A sample's hash is that of its key, or of its value in
 * a column; the seed turns it into a point below 2^64, and each part has an interval of points. The
 * intervals follow the sorted names of the parts, so the order of the parts does not matter, and a
 * sample stays where it is when the dataset grows. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/store.h"

enum { PARTS_MAX = 65535, CHUNK = 512, CHUNK_BYTES = 32 << 20 };

/* The finalizer of splitmix64: a bijection. */
static uint64_t mix_bits(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

typedef struct interval {
    const char *name;
    double weight;
    uint16_t part; /* the caller's number of the part */
    uint64_t last; /* its last point, unless the interval is empty */
    bool empty;
} interval;

typedef struct splitting {
    interval *intervals; /* sorted by name */
    size_t count;
    uint64_t seed; /* after mix_bits */
    uint16_t *part_of;
} splitting;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const interval *)a)->name, ((const interval *)b)->name);
}

static rks_status check_parts(const interval *parts, size_t count, rks_error *err)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        const interval *part = &parts[i];
        if (part->name == NULL || part->name[0] == '\0')
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "split: a part has an empty name");
        if (i > 0 && strcmp(part[-1].name, part->name) == 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "split: two parts are named %s", part->name);
        if (!isfinite(part->weight) || part->weight < 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "split: part %s has the weight %g; a weight is a number from 0",
                            part->name, part->weight);
        sum += part->weight;
    }
    if (!(sum > 0) || !isfinite(sum))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "split: the weights of the parts add up to %g",
                        sum);
    return RKS_OK;
}

/* Shares are rounded to multiples of 2^-53 once; everything after that is in integers. */
static rks_status make_intervals(splitting *s, const rks_split_part *parts, size_t count,
                                 rks_error *err)
{
    const double one = 9007199254740992.0; /* 2^53 */
    if (count == 0 || count > PARTS_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "split: %zu parts; from 1 to %d are possible",
                        count, PARTS_MAX);
    s->intervals = rks_alloc(count, sizeof(*s->intervals), err);
    if (s->intervals == NULL)
        return RKS_ERR_MEMORY;
    s->count = count;
    for (size_t i = 0; i < count; i++)
        s->intervals[i] = (interval){
            .name = parts[i].name, .weight = parts[i].weight, .part = (uint16_t)i, .empty = true};
    for (size_t i = 0; i < count; i++)
        if (parts[i].name == NULL)
            s->intervals[i].name = "";
    qsort(s->intervals, count, sizeof(*s->intervals), by_name);
    rks_status status = check_parts(s->intervals, count, err);
    if (status != RKS_OK)
        return status;
    double sum = 0;
    uint64_t end = 0;
    interval *last = NULL; /* the last one that is not empty gets what rounding leaves */
    for (size_t i = 0; i < count; i++)
        sum += s->intervals[i].weight;
    for (size_t i = 0; i < count; i++) {
        interval *at = &s->intervals[i];
        uint64_t share = (uint64_t)(at->weight / sum * one);
        if (share == 0 || end >= (uint64_t)1 << 53)
            continue;
        end = end + share < (uint64_t)1 << 53 ? end + share : (uint64_t)1 << 53;
        at->empty = false;
        at->last = (end << 11) - 1; /* 2^64 - 1 for all of it */
        last = at;
    }
    if (last != NULL)
        last->last = UINT64_MAX;
    return RKS_OK;
}

static void put(const splitting *s, uint64_t id, uint64_t hash)
{
    uint64_t point = mix_bits(hash ^ s->seed);
    size_t i = 0;
    while (s->intervals[i].empty || s->intervals[i].last < point)
        i++;
    s->part_of[id] = s->intervals[i].part;
}

/* ---- hashes ------------------------------------------------------------------------------- */

/* Splits by an index column: nothing is read. */
static void split_by_index(const rks_store *store, const splitting *s, const uint8_t *values,
                           uint32_t item)
{
    for (uint64_t id = 0; id < rks_store_count(store); id++)
        put(s, id, rks_checksum64(values + id * item, item));
}

/* Returns the bytes of the largest sample in the shard of this one. */
static uint64_t largest_beside(const rks_store *store, uint64_t id)
{
    uint32_t shard;
    uint64_t row;
    rks_index_locate(store->index, id, &shard, &row);
    return store->dataset->shards[shard].largest;
}

/* Splits by any other column. Every sample is read, as many at once as fit in CHUNK_BYTES. A
 * missing value is a value of its own. */
static rks_status split_by_reading(rks_store *store, const splitting *s, uint32_t column,
                                   rks_error *err)
{
    uint64_t ids[CHUNK], count = rks_store_count(store);
    rks_status status = RKS_OK;
    const interval *any = s->intervals; /* any part with samples; one of weight 0 is empty */
    while (any->empty)
        any++;
    for (uint64_t next = 0; status == RKS_OK && next < count;) {
        rks_batch *batch = NULL;
        size_t many = 0;
        uint64_t largest = 0;
        for (; many < CHUNK && next < count; next++) {
            s->part_of[next] = any->part; /* for a sample that cannot be read */
            if (rks_store_owner(store, next) < 0)
                continue;
            uint64_t own = largest_beside(store, next);
            largest = own > largest ? own : largest;
            if (many > 0 && largest > CHUNK_BYTES / (many + 1))
                break;
            ids[many++] = next;
        }
        status = rks_check_interrupt(err);
        if (status == RKS_OK)
            status = rks_store_fetch(store, ids, many, &batch, err);
        for (size_t i = 0; status == RKS_OK && i < many; i++) {
            rks_value value;
            status = rks_batch_value(batch, i, column, &value, err);
            if (status == RKS_OK)
                put(s, ids[i],
                    value.data == NULL ? 0 : rks_checksum64(value.data, (size_t)value.size));
        }
        rks_batch_free(batch);
    }
    return status;
}

static rks_status split_by(rks_store *store, const splitting *s, const char *by, rks_error *err)
{
    const rks_schema *schema = rks_store_schema(store);
    int column = rks_schema_find(schema, by);
    const void *values = rks_store_column(store, by, NULL);
    if (column < 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "split: there is no column \"%s\"", by);
    if (values == NULL)
        return split_by_reading(store, s, (uint32_t)column, err);
    split_by_index(store, s, values, rks_schema_column(schema, (uint32_t)column)->item_size);
    return RKS_OK;
}

rks_status rks_store_split(rks_store *store, const rks_split_part *parts, size_t count,
                           uint64_t seed, const char *by, uint16_t *part_of, rks_error *err)
{
    splitting s = {.seed = mix_bits(seed + UINT64_C(0x9e3779b97f4a7c15)), .part_of = part_of};
    rks_status status = make_intervals(&s, parts, count, err);
    if (status == RKS_OK && by != NULL)
        status = split_by(store, &s, by, err);
    for (uint64_t id = 0; status == RKS_OK && by == NULL && id < rks_store_count(store); id++)
        put(&s, id, rks_store_key_hashes(store)[id]);
    rks_free(s.intervals);
    return status;
}
