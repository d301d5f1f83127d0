/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_spread.c: how large batches are, in padded tokens: the largest and where it is, and the
 * sizes of the others. */
#include "plan/epoch.h"

static void swap(uint64_t *a, uint64_t *b)
{
    uint64_t kept = *a;
    *a = *b;
    *b = kept;
}

/* Returns the entry that would be at `place` if all were sorted (quickselect). Leaves nothing
 * larger before that place. The median of three splits, so that sorted entries are not the worst
 * case. */
static uint64_t select_place(uint64_t *entries, uint64_t count, uint64_t place)
{
    uint64_t first = 0, last = count - 1;
    while (first < last) {
        uint64_t middle = first + (last - first) / 2;
        if (entries[middle] < entries[first])
            swap(&entries[middle], &entries[first]);
        if (entries[last] < entries[first])
            swap(&entries[last], &entries[first]);
        if (entries[last] < entries[middle])
            swap(&entries[last], &entries[middle]);
        uint64_t split = entries[middle], low = first, high = last;
        while (low <= high) {
            while (entries[low] < split)
                low++;
            while (entries[high] > split)
                high--;
            if (low > high)
                break;
            swap(&entries[low++], &entries[high]);
            if (high-- == 0)
                break;
        }
        if (high != UINT64_MAX && place <= high)
            last = high;
        else if (place >= low)
            first = low;
        else
            break; /* between both: equal to `split` */
    }
    return entries[place];
}

/* Returns the least of the ranks' largest batches, or of the steps'. Entries of one rank or step
 * are `inner_stride` apart. */
static uint64_t least_largest(const uint64_t *tokens, uint64_t outer, uint64_t outer_stride,
                              uint64_t inner, uint64_t inner_stride)
{
    uint64_t least = UINT64_MAX;
    for (uint64_t i = 0; i < outer; i++) {
        uint64_t largest = 0;
        for (uint64_t j = 0; j < inner; j++) {
            uint64_t one = tokens[i * outer_stride + j * inner_stride];
            largest = one > largest ? one : largest;
        }
        least = largest < least ? largest : least;
    }
    return least;
}

void rks_plan_spread(uint64_t *tokens, uint64_t steps, uint32_t world, rks_plan_report *report)
{
    uint64_t count = steps * world, at = 0;
    for (uint64_t i = 1; i < count; i++)
        at = tokens[i] > tokens[at] ? i : at;
    report->largest_batch = tokens[at];
    report->largest_batch_step = at / world;
    report->largest_batch_rank = (uint32_t)(at % world);
    report->least_largest_of_ranks = least_largest(tokens, world, 1, steps, world);
    report->least_largest_of_steps = least_largest(tokens, steps, world, world, 1);
    /* Each search leaves the smaller entries before its place. */
    report->p95_batch = select_place(tokens, count, count - 1 - count / 20);
    report->median_batch = select_place(tokens, count - count / 20, (count - 1) / 2);
    report->smallest_batch = select_place(tokens, (count + 1) / 2, 0);
}
