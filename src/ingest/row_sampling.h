/* SPDX-License-Identifier: Apache-2.0
 *
 * row_sampling.h: a random number for each row of a unit, which decides whether a sample of the
 * input takes it. It depends only on seed, unit and row, so all ranks and all later runs agree. */
#ifndef RKS_INGEST_ROW_SAMPLING_H
#define RKS_INGEST_ROW_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

/* Returns a number that is uniform over 64 bits; different rows of a unit have different
 * numbers. */
uint64_t rks_draw(uint64_t seed, uint64_t unit, uint64_t row);

/* Returns a limit: rows with a number below it are taken, which is the share `rate` of them. 0
 * means all. */
uint64_t rks_draw_limit(double rate);
bool rks_row_is_sampled(uint64_t limit, uint64_t seed, uint64_t unit, uint64_t row);
/* Counts how many of the unit's first `rows` rows are not taken. */
uint64_t rks_draw_left_out(uint64_t limit, uint64_t seed, uint64_t unit, uint64_t rows);

#endif
