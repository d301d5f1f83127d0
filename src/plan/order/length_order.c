/* SPDX-License-Identifier: Apache-2.0
 *
 * length_order.c: sorts ids by length, longest first, equal lengths by id. Lengths below 65,536
 * take one counting pass. Longer ones take a least-significant-digit radix sort of 11 bits a pass.
 */
#include "plan/order/order.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"

enum { DIRECT_LENGTHS = 1 << 16, DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

static rks_status find_longest(const uint32_t *lengths, uint64_t count, uint32_t *longest,
                               rks_error *err)
{
    uint32_t found = 0;
    for (uint64_t i = 0, end; i < count;) {
        rks_status status = rks_plan_stretch(i, count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++)
            found = lengths[i] > found ? lengths[i] : found;
    }
    *longest = found;
    return RKS_OK;
}

/* Turns counts into first positions, the highest value first. */
static void positions_downward(uint32_t *counts, size_t values)
{
    uint32_t next = 0;
    for (size_t value = values; value-- > 0;) {
        uint32_t count = counts[value];
        counts[value] = next;
        next += count;
    }
}

static rks_status sort_direct(const uint32_t *lengths, uint64_t count, uint32_t longest,
                              uint32_t *order, rks_error *err)
{
    rks_status status = RKS_OK;
    uint32_t *next = rks_alloc((size_t)longest + 1, sizeof(*next), err);
    if (next == NULL)
        return RKS_ERR_MEMORY;
    for (uint64_t i = 0, end; i < count && status == RKS_OK;) {
        status = rks_plan_stretch(i, count, &end, err);
        for (; i < end; i++)
            next[lengths[i]]++;
    }
    positions_downward(next, (size_t)longest + 1);
    for (uint64_t i = 0, end; i < count && status == RKS_OK;) {
        status = rks_plan_stretch(i, count, &end, err);
        for (; i < end; i++)
            order[next[lengths[i]]++] = (uint32_t)i;
    }
    rks_free(next);
    return status;
}

/* Sorts by the digit at `shift`. `from` NULL stands for 0, 1, 2, ... */
static rks_status radix_pass(const uint32_t *lengths, uint64_t count, unsigned shift,
                             const uint32_t *from, uint32_t *to, uint32_t *next, rks_error *err)
{
    rks_status status = RKS_OK;
    memset(next, 0, DIGITS * sizeof(*next));
    for (uint64_t i = 0, end; i < count && status == RKS_OK;) {
        status = rks_plan_stretch(i, count, &end, err);
        for (; i < end; i++)
            next[(lengths[i] >> shift) % DIGITS]++;
    }
    positions_downward(next, DIGITS);
    for (uint64_t i = 0, end; i < count && status == RKS_OK;) {
        status = rks_plan_stretch(i, count, &end, err);
        for (; i < end; i++) {
            uint32_t id = from == NULL ? (uint32_t)i : from[i];
            to[next[(lengths[id] >> shift) % DIGITS]++] = id;
        }
    }
    return status;
}

static rks_status sort_radix(const uint32_t *lengths, uint64_t count, uint32_t longest,
                             uint32_t *order, rks_error *err)
{
    rks_status status = RKS_ERR_MEMORY;
    uint32_t *next = NULL;
    uint32_t *other = rks_alloc_raw(count, sizeof(*other), err);
    if (other == NULL)
        goto out;
    rks_plan_advise(other, count * sizeof(*other));
    rks_usage_add(RKS_MEMORY_PLAN, count * sizeof(*other));
    next = rks_alloc(DIGITS, sizeof(*next), err);
    if (next == NULL)
        goto out;
    /* Two passes or three; the last one must end in `order`. */
    unsigned passes = longest >> (2 * DIGIT_BITS) == 0 ? 2 : 3;
    const uint32_t *from = NULL;
    status = RKS_OK;
    for (unsigned pass = 0; pass < passes && status == RKS_OK; pass++) {
        uint32_t *to = (passes - pass) % 2 == 1 ? order : other;
        status = radix_pass(lengths, count, pass * DIGIT_BITS, from, to, next, err);
        from = to;
    }

out:
    rks_free(next);
    rks_usage_sub(RKS_MEMORY_PLAN, other == NULL ? 0 : count * sizeof(*other));
    rks_free(other);
    return status;
}

void rks_plan_advise(void *memory, uint64_t bytes)
{
    enum { WORTH = 4 << 20 };
    if (bytes < WORTH)
        return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE); /* up to 64 KiB on ARM */
    uintptr_t first = ((uintptr_t)memory + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)memory + bytes) & ~(page - 1);
    madvise((void *)first, end - first, MADV_HUGEPAGE);
}

rks_status rks_plan_sort(const uint32_t *lengths, uint64_t count, void *order, rks_error *err)
{
    if (count > UINT32_MAX)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "plan: %" PRIu64 " samples; it is made for less than 2^32", count);
    rks_plan_advise(order, count * sizeof(uint32_t));
    uint32_t longest = 0;
    rks_status status = find_longest(lengths, count, &longest, err);
    if (status != RKS_OK)
        return status;
    if (longest < DIRECT_LENGTHS)
        return sort_direct(lengths, count, longest, order, err);
    return sort_radix(lengths, count, longest, order, err);
}
