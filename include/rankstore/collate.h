/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/collate.h: samples of a batch as arrays. Part of rankstore.h. */
#ifndef RANKSTORE_COLLATE_H
#define RANKSTORE_COLLATE_H

#include "rankstore/schema.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Layouts. A column's items lie along its variable dimensions; str, bytes and json are uint8[*],
 * and are packed in all layouts, neither cut nor filled up.
 *
 * pad    one array a column, [count, sizes...]: every variable dimension is as wide as the widest
 *        sample that has items, the first of them rounded up to a multiple of `to_multiple`, filled
 *        with `pad`
 * pack   one array a column, [total, sizes...]: samples one after another along the first
 *        dimension (the only one that may vary), rounded up to a multiple of `to_multiple` and
 *        filled with `pad`; `offsets` tells where each begins. With `positions`, all columns have
 *        as many items in a sample as the column `follows`: else RKS_ERR_DATA names the sample
 *
 * rows   [rows, row_items, sizes...]: samples one after another in rows of `row_items`, each row
 *        filled with `pad`. A batch of a plan of strategy pack has a row for each bin; without bins
 *        a sample that has no room in a row begins the next one. All columns have as many items in
 *        a sample as the column `follows`, or none. `offsets` tells where each sample begins,
 * counted over all rows; the last one is rows * row_items
 *
 * Columns without a variable dimension are stacked in all: [count, sizes...]. A missing value has
 * no items: if it is stacked, all of its place is `pad`.
 *
 * Pieces (rks_piece): of a sample that is one, values with as many items as the sample is long are
 * cut to it; others stay whole, and so do str, bytes and json. */
typedef struct rks_collate_column {
    const char *column; /* of the schema */
    const char *name;   /* of the array; NULL: the column's */
    const char *type;   /* of the array's items; NULL: as stored. One that holds every value of the
                         * stored type: wider integers, floats that are exact (int16 to float32);
                         * a bool is 0 or 1. complex64 and float8 come from themselves alone */
    double pad;         /* fills up; must be a value of the type (floats are rounded) */
    double first; /* layouts pack and rows: stands for the first item of each sample, all of it
                   * where items have further dimensions, where `mark_first` */
    bool mark_first;
    bool mark_missing; /* one more array "NAME.missing", bool [count]: 1 where the value is missing
                        */
    bool packed;       /* layouts pad and rows: this column is packed instead, and not rounded up;
                        * layout pack with `positions`: its samples may have other numbers of items
                        * than the column that positions follow */
    bool mark_items;   /* one more array "NAME.items", int64 [count]: items along the first variable
                        * dimension, after the cut */
    bool exact; /* layout pad: as wide as the widest sample, not rounded up to `to_multiple` */
    uint8_t reserved[27]; /* zero */
} rks_collate_column;

/* Returns true if `type` of a column whose items are stored as `from` may be `to`. Both are item
 * types ("int32"). */
RKS_API bool rks_collate_converts(const char *from, const char *to);

typedef struct rks_collate_options {
    size_t struct_size;
    const char *layout;                /* "pad" (default), "pack" or "rows" */
    const rks_collate_column *columns; /* NULL: all of them, as stored, filled with 0 */
    size_t column_count;
    uint32_t to_multiple; /* default 1, from 1 */
    uint32_t max_length; /* cuts samples to so many items along the first variable dimension of each
                          * column (see cut_by_length); 0: no cut */
    bool left;           /* pad on the left: samples end at the right edge of the first variable
                          * dimension */
    const char *mask;    /* pad: name of an int64 array [count, width]: 1 where the column `follows`
                          * has items, else 0; NULL: none */
    const char *positions; /* pack: name of an int64 array [total]: the place of each item in its
                            * sample, of that same column; 0 where filled; NULL: none. rows:
                            * [rows, row_items]. What each_multiple fills goes on counting, and the
                            * end of a row counts from 0 */
    const char *follows; /* the column of mask, positions and rows; NULL: the first with a variable
                          * dimension */
    bool cut_by_length;  /* max_length cuts only values that have as many items there as the index
                          * says that the sample is long; default false: all */
    uint32_t row_items;  /* rows, which need it: items of a row */
    uint32_t each_multiple; /* pack, rows: each sample is filled up to a multiple of it; default 1;
                             * row_items is a multiple of it */
    const char *documents;  /* rows: name of an int32 array [rows, row_items]: which sample of its
                             * row an item is of, from 0; -1 where filled; NULL: none */
} rks_collate_options;

RKS_API void rks_collate_options_default(rks_collate_options *options);
RKS_SIZED_DEFAULT(rks_collate_options)
#define rks_collate_options_default(options) rks_collate_options_default_sized(options)

typedef struct rks_array {
    const char *name;
    const char *type; /* of the items: "int64" */
    uint32_t dim_count;
    uint64_t dims[RKS_DIMS_MAX + 1];
    void *data;             /* row-major, aligned to 64 bytes; writable */
    uint64_t size;          /* bytes */
    const int64_t *offsets; /* pack: [count + 1] items along the first dimension; rows: of both
                             * first dimensions; NULL: stacked */
} rks_array;

/* Arrays own their memory: valid until rks_arrays_free (in any thread), also after their store has
 * been closed. */
typedef struct rks_arrays rks_arrays;
RKS_API size_t rks_arrays_count(const rks_arrays *arrays);
/* Returns array i, valid as long as `arrays`; NULL if i is out of range. The order is that of the
 * columns, then mask or positions, then the arrays of mark_missing and mark_items. */
RKS_API const rks_array *rks_arrays_get(const rks_arrays *arrays, size_t i);
RKS_API size_t rks_arrays_samples(const rks_arrays *arrays);
RKS_API const uint64_t *rks_arrays_ids(const rks_arrays *arrays);
/* Returns the lengths of the samples; of a piece, the piece's. */
RKS_API const uint32_t *rks_arrays_lengths(const rks_arrays *arrays);
/* Returns *count pieces in order of `place`; 0 if all samples are whole. */
RKS_API const rks_piece *rks_arrays_pieces(const rks_arrays *arrays, size_t *count);
RKS_API void rks_arrays_free(rks_arrays *arrays); /* NULL is accepted */

/* ---- samples of the caller's own ----------------------------------------------------------------
 */

/* Samples that the caller has changed or made. One thread at a time. `schema`: as for
 * rks_schema_parse. The caller owns *list. */
typedef struct rks_sample_list rks_sample_list;
RKS_API rks_status rks_sample_list_create(const char *schema, rks_sample_list **list,
                                          rks_error *err);
/* Adds a copy of a sample: a value for each column of the schema. `id` and `length` are what
 * rks_arrays_ids and rks_arrays_lengths return of it. RKS_ERR_DATA names the column of a value that
 * its type does not hold. */
RKS_API rks_status rks_sample_list_add(rks_sample_list *list, const rks_value *values, uint64_t id,
                                       uint32_t length, rks_error *err);
/* Collates the samples, like rks_batch_collate; the list does not change. bins[bin_count + 1], for
 * the layout rows: sample bins[k] - bins[0] begins row k. NULL: rows are filled in order. */
RKS_API rks_status rks_sample_list_collate(rks_sample_list *list,
                                           const rks_collate_options *options, const uint32_t *bins,
                                           size_t bin_count, rks_arrays **arrays, rks_error *err);
RKS_API void rks_sample_list_free(rks_sample_list *list); /* NULL is accepted */

/* ---- arenas: the caller's memory for arrays -------------------------------------------------- */

/* Arenas let the caller provide memory, such as memory that is pinned for a GPU, which takes long
 * to make. The batches of an epoch use a few arenas in turn. Any thread.
 *
 * The library never asks the caller for memory. If no arena is free, a batch goes into the
 * library's own memory, and rks_arenas_wanted returns the missing size. So the library's threads
 * wait for nobody, and a caller that cannot make an arena loses only speed. */
typedef struct rks_arenas rks_arenas;
RKS_API rks_status rks_arenas_create(rks_arenas **arenas, rks_error *err);
/* Returns the bytes that the last batch without an arena needed: a power of two, at least 64 KiB.
 * It returns 0 if no batch has lacked an arena since the last call, or if the arenas have ended. It
 * also returns 0 if, with one more arena, there would be more than batches have needed at once so
 * far. */
RKS_API size_t rks_arenas_wanted(rks_arenas *arenas);
/* Gives memory[bytes], at least 64 KiB, to the library until it calls done(user). It calls that
 * once, from any thread, perhaps during this call: if there are more arenas than batches needed at
 * once, or when the epoch is closed and the arrays in the arena are freed. `done` must not wait or
 * call the library; it is not called after an error. The memory of freed arrays is used for the
 * next ones: free arrays only when nothing reads them any more, a GPU's copy included. Counted as
 * RKS_MEMORY_PINNED. */
RKS_API rks_status rks_arenas_add(rks_arenas *arenas, void *memory, size_t bytes,
                                  void (*done)(void *user), void *user, rks_error *err);
/* Ends the arenas: no further arrays use them. Existing arrays stay valid. NULL is accepted. */
RKS_API void rks_arenas_free(rks_arenas *arenas);

#ifdef __cplusplus
}
#endif

#endif
