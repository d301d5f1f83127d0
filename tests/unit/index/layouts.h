/* SPDX-License-Identifier: Apache-2.0
 *
 * layouts.h: random layouts, and numbers that depend on a seed alone. */
#ifndef RKS_TESTS_LAYOUTS_H
#define RKS_TESTS_LAYOUTS_H

#include <stdlib.h>

#include "index/index.h"
#include "support/check.h"
#include "support/seed.h"

typedef struct layout_random {
    uint64_t state;
} layout_random;

static inline uint64_t layout_next(layout_random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* SEED repeats a run. */
static inline layout_random layout_seed(void)
{
    return (layout_random){test_seed(0)};
}

/* `span_count` spans of 1..max_samples samples dealt to `shards` shards; rows of a shard lie in an
 * order of their own, with gaps where `gaps`. free(*spans). */
static inline rks_index_layout layout_make(layout_random *random, size_t span_count,
                                           uint64_t max_samples, uint32_t shards, bool gaps,
                                           rks_span **spans)
{
    rks_span *made = calloc(span_count + 1, sizeof(*made));
    uint64_t *rows = calloc(shards, sizeof(*rows));
    size_t *order = calloc(span_count + 1, sizeof(*order));
    rks_index_layout layout = {.spans = made, .span_count = span_count};
    for (size_t i = 0; i < span_count; i++) {
        uint64_t count = 1 + layout_next(random) % max_samples;
        uint32_t shard = (uint32_t)(layout_next(random) % shards);
        made[i] = (rks_span){layout.count, count, shard, 0};
        layout.count += count;
        size_t swap = layout_next(random) % (i + 1);
        order[i] = order[swap];
        order[swap] = i;
    }
    for (size_t i = 0; i < span_count; i++) {
        rks_span *span = &made[order[i]];
        if (gaps)
            rows[span->shard] += layout_next(random) % 3;
        span->first_row = rows[span->shard];
        rows[span->shard] += span->count;
    }
    free(rows);
    free(order);
    *spans = made;
    return layout;
}

static inline rks_index *layout_open(const rks_index_layout *layout)
{
    rks_error err;
    int fd = -1;
    rks_index *index = NULL;
    assert_ok(rks_index_memory(layout, NULL, &fd, &err), &err);
    assert_ok(rks_index_open(layout, fd, &index, &err), &err);
    return index;
}

/* Fills all arrays with numbers that follow from id. */
static inline void layout_fill(rks_index *index, const rks_index_layout *layout, uint64_t seed)
{
    layout_random random = {seed};
    for (uint64_t id = 0; id < layout->count; id++) {
        rks_index_lengths(index)[id] = (uint32_t)layout_next(&random);
        rks_index_key_hashes(index)[id] = layout_next(&random);
    }
    for (size_t column = 0; column < layout->column_count; column++) {
        uint8_t *data = rks_index_column_data(index, column);
        for (uint64_t i = 0; i < layout->count * layout->columns[column].item_size; i++)
            data[i] = (uint8_t)layout_next(&random);
    }
}

static inline void layout_assert_equal(rks_index *a, rks_index *b, const rks_index_layout *layout)
{
    assert_memory_equal(rks_index_lengths(a), rks_index_lengths(b), layout->count * 4);
    assert_memory_equal(rks_index_key_hashes(a), rks_index_key_hashes(b), layout->count * 8);
    for (size_t i = 0; i < layout->column_count; i++)
        assert_memory_equal(rks_index_column_data(a, i), rks_index_column_data(b, i),
                            layout->count * layout->columns[i].item_size);
}

#endif
