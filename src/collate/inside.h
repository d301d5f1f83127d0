/* SPDX-License-Identifier: Apache-2.0
 *
 * inside.h: options as options.c checked them, for arrays.c and put.c, and what these share. */
#ifndef RKS_COLLATE_INSIDE_H
#define RKS_COLLATE_INSIDE_H

#include <stdatomic.h>

#include "collate/collate.h"
#include "collate/item.h"

/* What one array is made of. */
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
    bool pack; /* samples lie after each other; else stacked */
    bool rows; /* after each other in rows; `pack` is set, too */
    bool text; /* str, bytes, json: always packed, neither rounded up nor cut */
    uint32_t to_multiple;
    uint32_t max_length; /* UINT32_MAX: none */
    uint32_t each;       /* packed: a sample is filled up to a multiple of it */
    uint32_t column;     /* of the schema */
    uint32_t follows;    /* all but columns: the field whose items they describe */
    uint32_t dim_count;
    uint32_t dims[RKS_DIMS_MAX]; /* 0: variable */
    uint32_t cut_dim;            /* the first variable one; dim_count: there is none */
    size_t from_size, to_size;   /* of an item */
    rks_convert_fn convert;
    uint8_t pad[8], first[8];
    bool mark_first;
} rks_collate_field;

struct rks_collate {
    atomic_int references;
    rks_collate_field *fields;
    uint32_t count;
    uint32_t columns; /* of the schema */
    rks_record_pick pick;
    rks_arenas *arenas; /* holds a reference; NULL: none */
    uint32_t to_multiple; /* of all fields but text */
    uint32_t max_length;  /* UINT32_MAX: none */
    bool cut_by_length;   /* max_length is for values as long as their sample alone */
    bool left;
    bool rows;
    uint32_t row_items; /* layout rows */
    uint32_t each;
    uint32_t follows; /* rows: the field that tells how many items samples have */
};

/* What an array needs, and how far it is filled. */
typedef struct rks_collate_span {
    uint64_t widths[RKS_DIMS_MAX]; /* stacked: of a sample's place; the variable ones grow */
    uint64_t total;                /* packed: along the first dimension, as measured */
    uint64_t at;                   /* packed: of them filled */
    uint64_t inner;                /* items of an index of the first dimension; of a sample */
    uint64_t items;                /* of the sample at hand, as items_of */
    int64_t *offsets;
    uint8_t *data;
} rks_collate_span;

typedef struct rks_collate_walk {
    const rks_collate *collate;
    const rks_collate_source *source;
    rks_value *values; /* of one sample */
    rks_collate_span *extents;
    size_t pieces; /* of samples before the one at hand, and its own */
    const rks_piece *piece; /* of the sample at hand; NULL: it is whole */
    /* Layout rows: the sample at hand. Places count over all rows. */
    uint64_t begin, end, at; /* its place, and where the next one goes */
    size_t row;              /* rows so far */
    uint64_t items;          /* of it, which all columns of rows have */
    uint32_t document;       /* in its row */
} rks_collate_walk;

static inline uint64_t rks_collate_round(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* put.c: one value */
/* Items along the first variable dimension that are taken of sample i; 0 for a value that is missing
 * or empty. */
uint64_t rks_collate_items(const rks_collate_walk *r, size_t i, const rks_collate_field *field,
                           const rks_value *value);
/* Writes what field f has of sample i; false if that is no longer what was measured. */
bool rks_collate_put(rks_collate_walk *r, uint32_t f, size_t i);
/* Writes what lies after the last one of `samples`, where the packed array has `all` items. */
void rks_collate_put_rest(const rks_collate_field *field, const rks_collate_span *extent,
                          uint64_t all, size_t samples);

#endif
