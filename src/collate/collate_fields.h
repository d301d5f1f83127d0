/* SPDX-License-Identifier: Apache-2.0
 *
 * collate_fields.h: options as collate_options.c checked them, for collated_arrays.c and
 * value_copy.c, and what these share. */
#ifndef RKS_COLLATE_COLLATE_FIELDS_H
#define RKS_COLLATE_COLLATE_FIELDS_H

#include <stdatomic.h>

#include "collate/collate.h"
#include "collate/item.h"

/* What one array is made from. */
typedef struct rks_collate_field {
    char *name;
    char type[16];
    enum {
        RKS_FIELD_COLUMN,
        RKS_FIELD_MASK,
        RKS_FIELD_POSITIONS,
        RKS_FIELD_MISSING,
        RKS_FIELD_ITEMS,
        RKS_FIELD_DOCUMENTS
    } what;
    bool pack;  /* samples lie one after another; false: stacked */
    bool rows;  /* one after another in rows; then `pack` is set, too */
    bool apart; /* packed without regard to the items of other fields */
    bool text;  /* str, bytes, json: always packed, never rounded up or cut */
    uint32_t to_multiple;
    uint32_t max_length; /* UINT32_MAX: none */
    uint32_t each;       /* packed: a sample's items are rounded up to a multiple of it */
    uint32_t column;     /* its column in the schema */
    uint32_t follows;    /* arrays that are not columns: the field whose items they describe */
    uint32_t dim_count;
    uint32_t dims[RKS_DIMS_MAX]; /* 0: variable */
    uint32_t cut_dim;            /* the first variable dimension; dim_count if there is none */
    bool is_row;                 /* stacked, of one dimension, which varies, padded on the right */
    size_t from_size, to_size;   /* bytes of an item */
    rks_convert_fn convert;
    uint8_t pad[8], first[8];
    bool mark_first;
} rks_collate_field;

struct rks_collate {
    atomic_int references;
    rks_collate_field *fields;
    uint32_t count;
    uint32_t columns; /* columns of the schema */
    rks_record_pick pick;
    rks_arenas *arenas;   /* a reference; NULL: none */
    uint32_t to_multiple; /* for all fields but text */
    uint32_t max_length;  /* UINT32_MAX: none */
    bool cut_by_length;   /* max_length applies only to values that are as long as their sample */
    bool left;
    bool rows;
    uint32_t row_items; /* layout rows */
    uint32_t each;
    bool has_positions; /* packed, with positions that count the items of all fields alike */
    uint32_t follows;   /* rows, positions: the field that decides how many items samples have */
};

/* The size of an array, and how far it is filled. */
typedef struct rks_collate_span {
    uint64_t widths[RKS_DIMS_MAX]; /* stacked: dimensions of a sample's place; the variable ones
                                    * grow */
    uint64_t total;                /* packed: items of the first dimension, as measured */
    uint64_t at;                   /* packed: how many of them are filled */
    uint64_t inner;                /* items in one index of the first dimension; stacked: in one
                                    * sample */
    uint64_t items;                /* of the current sample, see rks_collate_items */
    int64_t *offsets;
    uint8_t *data;
} rks_collate_span;

typedef struct rks_collate_walk {
    const rks_collate *collate;
    const rks_collate_source *source;
    rks_value *values; /* values of one sample */
    rks_collate_span *extents;
    size_t pieces;          /* pieces of the samples before the current one, and its own */
    const rks_piece *piece; /* the piece of the current sample; NULL: it is whole */
    /* Layout rows: the current sample. Places count over all rows. */
    uint64_t begin, end, at; /* its place, and the place of the next one */
    size_t row;              /* its row */
    uint64_t items;          /* its items, the same in all columns of rows; with positions, too */
    uint32_t document;       /* its number in its row */
} rks_collate_walk;

static inline uint64_t rks_collate_round(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* value_copy.c: one value. */
/* Returns how many items along the first variable dimension are taken from sample i; 0 for a value
 * that is missing or empty. */
uint64_t rks_collate_items(const rks_collate_walk *r, size_t i, const rks_collate_field *field,
                           const rks_value *value);
/* Writes field f of sample i. Returns false if its sizes differ from what was measured. */
bool rks_collate_put(rks_collate_walk *r, uint32_t f, size_t i);
/* Fills a packed array of `all` items after the last one of `samples` samples. */
void rks_collate_put_rest(const rks_collate_field *field, const rks_collate_span *extent,
                          uint64_t all, size_t samples);

#endif
