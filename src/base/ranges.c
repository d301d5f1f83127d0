/* SPDX-License-Identifier: Apache-2.0
 *
 * ranges.c: widens, sorts and merges ranges. */
#include "base/ranges.h"

#include <stdlib.h>

static int by_place(const void *a, const void *b)
{
    const rks_range *left = a, *right = b;
    if (left->file != right->file)
        return left->file < right->file ? -1 : 1;
    return left->first < right->first ? -1 : left->first > right->first;
}

size_t rks_ranges_merge(rks_range *ranges, size_t count, uint64_t page, uint64_t gap)
{
    size_t kept = 0, merged = 0;
    for (size_t i = 0; i < count; i++) {
        rks_range range = ranges[i];
        if (range.first >= range.end)
            continue;
        range.first &= ~(page - 1);
        range.end = range.end > UINT64_MAX - page ? UINT64_MAX - (page - 1)
                                                  : (range.end + page - 1) & ~(page - 1);
        if (range.first < range.end)
            ranges[kept++] = range;
    }
    if (kept > 1)
        qsort(ranges, kept, sizeof(*ranges), by_place);
    for (size_t i = 0; i < kept; i++) {
        rks_range *last = merged == 0 ? NULL : &ranges[merged - 1];
        if (last != NULL && last->file == ranges[i].file &&
            (ranges[i].first <= last->end || ranges[i].first - last->end <= gap)) {
            if (ranges[i].end > last->end)
                last->end = ranges[i].end;
        } else {
            ranges[merged++] = ranges[i];
        }
    }
    return merged;
}
