/* SPDX-License-Identifier: Apache-2.0
 *
 * sort_pairs.c: American flag sort (McIlroy, Bostic and McIlroy, 1993), from the highest digit
 * down. */
#include "base/sort_pairs.h"

#include <stdbool.h>

enum { SMALL = 32, DIGITS = 16 };

static bool is_less(const rks_pair *a, const rks_pair *b)
{
    return a->first != b->first ? a->first < b->first : a->second < b->second;
}

/* Returns one of sixteen digits of 8 bits: those of `first`, then those of `second`. */
static unsigned digit_of(const rks_pair *e, int digit)
{
    uint64_t word = digit < 8 ? e->first >> (56 - 8 * digit) : e->second >> (120 - 8 * digit);
    return (unsigned)(word & 0xff);
}

static void sort_small(rks_pair *entries, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        rks_pair moved = entries[i];
        size_t at = i;
        for (; at > 0 && is_less(&moved, &entries[at - 1]); at--)
            entries[at] = entries[at - 1];
        entries[at] = moved;
    }
}

/* Sorts in place from the highest digit down: no second array, and at most DIGITS passes whatever
 * the numbers are. */
static void sort_entries(rks_pair *entries, size_t count, int digit)
{
    if (count <= SMALL || digit == DIGITS) {
        sort_small(entries, count);
        return;
    }
    size_t next[256], end[256], sizes[256] = {0};
    for (size_t i = 0; i < count; i++)
        sizes[digit_of(&entries[i], digit)]++;
    size_t at = 0;
    for (unsigned d = 0; d < 256; d++) {
        next[d] = at;
        at += sizes[d];
        end[d] = at;
    }
    for (unsigned d = 0; d < 256; d++) {
        while (next[d] < end[d]) {
            rks_pair moved = entries[next[d]];
            unsigned to;
            while ((to = digit_of(&moved, digit)) != d) {
                rks_pair other = entries[next[to]];
                entries[next[to]++] = moved;
                moved = other;
            }
            entries[next[d]++] = moved;
        }
    }
    for (unsigned d = 0; d < 256; d++)
        if (sizes[d] > 1)
            sort_entries(entries + (end[d] - sizes[d]), sizes[d], digit + 1);
}

void rks_pairs_sort(rks_pair *pairs, size_t count)
{
    sort_entries(pairs, count, 0);
}
