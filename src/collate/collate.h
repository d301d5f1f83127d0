/* SPDX-License-Identifier: Apache-2.0
 *
 * collate.h: samples into arrays. It works on decoded values and knows nothing of where they come
 * from; rankstore.h says what layouts and options mean. */
#ifndef RKS_COLLATE_COLLATE_H
#define RKS_COLLATE_COLLATE_H

#include "base/blocks.h"
#include "collate/arenas.h"
#include "shard/record.h"

/* Options, checked against a schema and copied. They never change, so any thread may use them. */
typedef struct rks_collate rks_collate;
/* Checks options and copies them. NULL: the default options. `schema` must live as long as
 * `columns` of rks_collate_run's source are used; arrays do not need it. RKS_ERR_ARGUMENT names the
 * column and the rule that it breaks. */
rks_status rks_collate_create(const rks_schema *schema, const rks_collate_options *options,
                              rks_collate **collate, rks_error *err);
void rks_collate_hold(rks_collate *collate);
void rks_collate_release(rks_collate *collate); /* the last call frees it; NULL is allowed */

/* Makes new arrays lie in these arenas if one is free. `collate` holds a reference. Call it before
 * the first rks_collate_run. */
void rks_collate_use(rks_collate *collate, rks_arenas *arenas);
/* Returns its arenas; NULL if it uses none. */
rks_arenas *rks_collate_arenas(const rks_collate *collate);

/* Returns true for the layout rows. */
bool rks_collate_has_rows(const rks_collate *collate);
/* Returns the columns that the arrays are made from. */
const rks_record_pick *rks_collate_pick(const rks_collate *collate);

/* Where samples come from. Each sample is asked for twice, in order: for its sizes, then for its
 * items. The sizes must be the same both times, else RKS_ERR_CORRUPT. */
typedef struct rks_collate_source {
    size_t count;
    /* Points `values` (one a column of the schema) at sample i, as rks_record_decode_picked does.
     */
    rks_status (*sizes)(void *user, size_t i, rks_value *values, rks_error *err);
    rks_status (*items)(void *user, size_t i, rks_value *values, rks_error *err);
    /* The sample's length in the index, for cut_by_length. NULL: not known, so no value is cut by
     * it. */
    uint32_t (*length)(void *user, size_t i);
    /* Samples of which only a part is taken, by place, and measured by `length`. */
    const rks_piece *pieces;
    size_t piece_count;
    /* Layout rows: sample bins[k] - bins[0] begins row k. NULL: rows are filled in order. */
    const uint32_t *bins;
    size_t bin_count;
    /* Called when the items have been read. NULL: nothing to do. */
    rks_status (*done)(void *user, size_t i, rks_error *err);
    void *user;
} rks_collate_source;

/* Makes the arrays of all samples, in an arena or else in memory of the pool. The caller enters the
 * arenas before and leaves them after it has filled ids and lengths. RKS_ERR_MEMORY before anything
 * is allocated if no memory can hold the sizes. */
rks_status rks_collate_run(rks_collate *collate, const rks_collate_source *source, rks_blocks *pool,
                           rks_arrays **arrays, rks_error *err);
uint64_t *rks_arrays_ids_room(rks_arrays *arrays);
uint32_t *rks_arrays_lengths_room(rks_arrays *arrays);
/* Returns the bytes that the arrays take. */
uint64_t rks_arrays_memory(const rks_arrays *arrays);

#endif
