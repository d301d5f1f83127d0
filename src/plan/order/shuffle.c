/* SPDX-License-Identifier: Apache-2.0
 *
 * shuffle.c: uniform shuffles that keep to the cache. Items that are too many for it are first
 * scattered over 256 parts at random, then each part is shuffled (Rao 1961, Sandelius 1962). */
#include "plan/order/order.h"

#include <string.h>

#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"

/* NEAR items are 2 MiB. Both numbers are part of the planner's version. */
enum { NEAR = 1 << 19, PARTS = 256 };

static inline void swap_items(uint32_t *items, uint64_t a, uint64_t b)
{
    uint32_t item = items[a];
    items[a] = items[b];
    items[b] = item;
}

/* Shuffles as Fisher and Yates do. Each random number gives two places: the low half of the first
 * product is as good as uniform, and gives the second place (Brackett-Rozinsky and Lemire, "Batched
 * ranged random integer generation", 2024). With at most NEAR items the bias is below 2^-26. */
static void shuffle_near(uint64_t key, uint32_t *items, uint64_t count)
{
    rks_random random = {key};
    uint64_t i = count;
    for (; i > 2; i -= 2) {
        rks_u128 first = (rks_u128)rks_random_next(&random) * i;
        rks_u128 second = (rks_u128)(uint64_t)first * (i - 1);
        swap_items(items, (uint64_t)(first >> 64), i - 1);
        swap_items(items, (uint64_t)(second >> 64), i - 2);
    }
    if (i == 2)
        swap_items(items, rks_random_below(&random, 2), 1);
}

/* Scatters items over the parts. The part of item i is byte i % 8 of random number i / 8. The
 * numbers are drawn twice: to count, then to move. */
static rks_status scatter(uint64_t key, const uint32_t *from, uint64_t count, uint32_t *to,
                          uint64_t ends[PARTS], rks_error *err)
{
    rks_random random = {key};
    uint64_t number = 0;
    rks_status status = RKS_OK;
    memset(ends, 0, PARTS * sizeof(*ends));
    for (uint64_t i = 0, end; i < count && status == RKS_OK;) {
        status = rks_plan_stretch(i, count, &end, err);
        for (; i < end; i++) {
            number = i % 8 == 0 ? rks_random_next(&random) : number >> 8;
            ends[number % PARTS]++;
        }
    }
    uint64_t next = 0;
    for (size_t part = 0; part < PARTS; part++) {
        uint64_t size = ends[part];
        ends[part] = next;
        next += size;
    }
    random.state = key;
    for (uint64_t i = 0, end; i < count && status == RKS_OK;) {
        status = rks_plan_stretch(i, count, &end, err);
        for (; i < end; i++) {
            number = i % 8 == 0 ? rks_random_next(&random) : number >> 8;
            to[ends[number % PARTS]++] = from[i];
        }
    }
    return status;
}

rks_status rks_plan_shuffle(uint64_t key, uint32_t *items, uint64_t count, rks_error *err)
{
    if (count <= NEAR) {
        shuffle_near(key, items, count);
        return RKS_OK;
    }
    uint32_t *scattered = rks_alloc_raw(count, sizeof(*scattered), err);
    if (scattered == NULL)
        return RKS_ERR_MEMORY;
    rks_plan_advise(scattered, count * sizeof(*scattered));
    rks_usage_add(RKS_MEMORY_PLAN, count * sizeof(*scattered));
    uint64_t ends[PARTS];
    rks_status status = scatter(key, items, count, scattered, ends, err);
    uint64_t first = 0, done = 0;
    for (size_t part = 0; part < PARTS && status == RKS_OK; part++) {
        uint64_t size = ends[part] - first;
        shuffle_near(rks_random_key(key, part), scattered + first, size);
        memcpy(items + first, scattered + first, size * sizeof(*items));
        first = ends[part];
        status = rks_plan_pause(&done, size, err);
    }
    rks_usage_sub(RKS_MEMORY_PLAN, count * sizeof(*scattered));
    rks_free(scattered);
    return status;
}

/* ---- equal lengths --------------------------------------------------------------------------- */

/* Returns the end of the run of lengths equal to that at `first`. The ids are sorted. */
static uint64_t run_end(const rks_plan_input *in, const uint32_t *ids, uint64_t first,
                        uint64_t count)
{
    uint32_t length = rks_plan_length(in, ids[first]);
    uint64_t low = first + 1; /* all before are equal */
    uint64_t step = 1;
    while (low < count && rks_plan_length(in, ids[low]) == length) {
        step *= 2;
        uint64_t next = low + step < count ? low + step : count;
        if (rks_plan_length(in, ids[next - 1]) != length) {
            count = next;
            break;
        }
        low = next;
    }
    while (low < count) {
        uint64_t middle = low + (count - low) / 2;
        if (rks_plan_length(in, ids[middle]) == length)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

rks_status rks_plan_shuffle_equals(const rks_plan_input *in, rks_epoch_image *image,
                                   const rks_plan_base *base, uint64_t key, rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t done = 0;
    for (uint64_t i = 0; i < base->count && status == RKS_OK;) {
        uint64_t end = run_end(in, image->ids, i, base->count);
        if (end - i > 1)
            status = rks_plan_shuffle(rks_random_key(key, i), image->ids + i, end - i, err);
        if (status == RKS_OK)
            status = rks_plan_pause(&done, end - i, err);
        i = end;
    }
    return status;
}
