/* SPDX-License-Identifier: Apache-2.0
 *
 * segments.c: where streams may be divided. */
#include "exchange/exchange.h"

const rks_exchange_segment *rks_exchange_segment_at(const rks_exchange_segments *segments,
                                                    uint32_t rank, uint64_t offset)
{
    size_t low = segments->first[rank], high = segments->first[rank + 1];
    if (low == high)
        return NULL;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (segments->all[middle].begin <= offset)
            low = middle;
        else
            high = middle;
    }
    const rks_exchange_segment *found = &segments->all[low];
    return offset - found->begin < found->size ? found : NULL;
}

uint64_t rks_exchange_boundary(const rks_exchange_segments *segments, uint32_t rank,
                               uint64_t offset)
{
    const rks_exchange_segment *in = rks_exchange_segment_at(segments, rank, offset);
    if (in == NULL) {
        size_t end = segments->first[rank + 1];
        if (end == segments->first[rank])
            return 0;
        const rks_exchange_segment *last = &segments->all[end - 1];
        return last->begin + last->size;
    }
    uint64_t within = offset - in->begin;
    uint64_t steps = within / in->step + (within % in->step != 0);
    return in->begin + (steps > in->size / in->step ? in->size : steps * in->step);
}
