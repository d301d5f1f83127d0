/* SPDX-License-Identifier: Apache-2.0
 *
 * row_sampling.c: makes a start from seed and unit, steps from it evenly by row, and mixes each
 * step with a bijective function (SplitMix64). */
#include "ingest/row_sampling.h"

static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

uint64_t rks_draw(uint64_t seed, uint64_t unit, uint64_t row)
{
    const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t start = mix(mix(seed + step) ^ mix(unit * step + 1));
    return mix(start + (row + 1) * step);
}

uint64_t rks_draw_limit(double rate)
{
    if (!(rate > 0) || rate >= 1)
        return 0;
    uint64_t limit = (uint64_t)(rate * 0x1p64);
    return limit == 0 ? 1 : limit; /* 0 means all */
}

bool rks_row_is_sampled(uint64_t limit, uint64_t seed, uint64_t unit, uint64_t row)
{
    return limit == 0 || rks_draw(seed, unit, row) < limit;
}

uint64_t rks_draw_left_out(uint64_t limit, uint64_t seed, uint64_t unit, uint64_t rows)
{
    uint64_t left = 0;
    for (uint64_t row = 0; limit != 0 && row < rows; row++)
        left += !rks_row_is_sampled(limit, seed, unit, row);
    return left;
}
