/* SPDX-License-Identifier: Apache-2.0
 *
 * collate.h: samples into arrays. It works on decoded values and knows nothing of where they come
 * from; rankstore.h says what layouts and options mean. */
#ifndef RKS_COLLATE_COLLATE_H
#define RKS_COLLATE_COLLATE_H

#include "base/blocks.h"
#include "collate/arenas.h"
#include "shard/record.h"

/* Options that were checked against a schema and copied. Read-only, so any number of threads. */
typedef struct rks_collate rks_collate;
/* NULL options: the default ones. `schema` must stay until `columns` of rks_collate_run's source
 * are no longer used; arrays don't need it. RKS_ERR_ARGUMENT names the column and the rule that it
 * breaks. */
rks_status rks_collate_create(const rks_schema *schema, const rks_collate_options *options,
                              rks_collate **collate, rks_error *err);
void rks_collate_hold(rks_collate *collate);
void rks_collate_release(rks_collate *collate); /* the last one frees it; NULL is accepted */

/* From now on its arrays lie there where an arena is free; it holds them. Before the first
 * rks_collate_run. */
void rks_collate_use(rks_collate *collate, rks_arenas *arenas);
/* NULL: it uses none. */
rks_arenas *rks_collate_arenas(const rks_collate *collate);

/* Is the layout rows? */
bool rks_collate_has_rows(const rks_collate *collate);
/* The columns that the arrays are made of. */
const rks_record_pick *rks_collate_pick(const rks_collate *collate);

/* Where samples come from. Each is asked for twice, in order: for its sizes, then for its items
 * (with the same sizes: others are RKS_ERR_CORRUPT). */
typedef struct rks_collate_source {
    size_t count;
    /* Points `values` (one a column of the schema) at sample i, as rks_record_decode_picked does.
     */
    rks_status (*sizes)(void *user, size_t i, rks_value *values, rks_error *err);
    rks_status (*items)(void *user, size_t i, rks_value *values, rks_error *err);
    /* As the index has it, for cut_by_length. NULL: not known, so no value is cut by it. */
    uint32_t (*length)(void *user, size_t i);
    /* Sparse, by place: samples of which a part alone is taken, by `length`. */
    const rks_piece *pieces;
    size_t piece_count;
    /* Layout rows: sample bins[k] - bins[0] begins row k. NULL: rows are filled in order. */
    const uint32_t *bins;
    size_t bin_count;
    /* The items have been read. NULL: nothing to do. */
    rks_status (*done)(void *user, size_t i, rks_error *err);
    void *user;
} rks_collate_source;

/* Arrays of all samples in an arena, or else in memory of the pool; the caller fills ids and lengths,
 * and has entered the arenas until then. Sizes that no memory holds are RKS_ERR_MEMORY, before
 * anything is allocated. */
rks_status rks_collate_run(rks_collate *collate, const rks_collate_source *source, rks_blocks *pool,
                           rks_arrays **arrays, rks_error *err);
uint64_t *rks_arrays_ids_room(rks_arrays *arrays);
uint32_t *rks_arrays_lengths_room(rks_arrays *arrays);
/* Bytes that they take. */
uint64_t rks_arrays_memory(const rks_arrays *arrays);

#endif
