/* SPDX-License-Identifier: Apache-2.0
 *
 * lost_units.h: the units of lost shards, which are built again. A rank makes a shard of each lost
 * one, with the same units in the same order: so it has the same rows, and keeps its id. */
#ifndef RKS_BUILDER_LOST_UNITS_H
#define RKS_BUILDER_LOST_UNITS_H

#include "builder/read_units.h"

/* Enters the rows of the source that these units took, by unit. `count`: of the input's units. */
void rks_lost_units_seen(const rks_parts *parts, uint64_t *seen, size_t count);
/* Deals lost shards to ranks, largest first, each whole, to those that have the least: sets
 * owners[u] for the units of the input, UINT32_MAX for those that are not lost. The same on all
 * ranks. RKS_ERR_DATA with cause ESTALE if the input lacks one. */
rks_status rks_lost_units_deal(const rks_parts *parts, const rks_input *input, uint32_t ranks,
                               uint32_t *owners, rks_error *err);
/* Reads the lost shards that are dealt to this rank, each into a part of its own. */
rks_status rks_lost_units_read(const rks_read_units *reading, uint64_t *samples, rks_error *err);
/* For a stream, whose units are dealt by their numbers: begins a part that takes the place of a
 * lost shard if it is the only one that this rank writes and nobody else writes to it. */
rks_status rks_lost_stream_begin(rks_parts *parts, uint32_t rank, uint32_t ranks, rks_error *err);

#endif
