/* SPDX-License-Identifier: Apache-2.0
 *
 * draw.h: a number for each row of a unit, which decides whether a sample takes it. It follows from
 * seed, unit and row alone: any rank, and any later one, comes to the same. */
#ifndef RKS_INGEST_DRAW_H
#define RKS_INGEST_DRAW_H

#include <stdbool.h>
#include <stdint.h>

/* Even over all 64 bits; different rows of a unit have different numbers. */
uint64_t rks_draw(uint64_t seed, uint64_t unit, uint64_t row);

/* Rows whose number is below it are taken: the share `rate` of them; 0 where all are. */
uint64_t rks_draw_limit(double rate);
bool rks_draw_takes(uint64_t limit, uint64_t seed, uint64_t unit, uint64_t row);
/* How many of the unit's first `rows` rows are not taken. */
uint64_t rks_draw_left_out(uint64_t limit, uint64_t seed, uint64_t unit, uint64_t rows);

#endif
