/* SPDX-License-Identifier: Apache-2.0
 *
 * inside.h: options as options.c checked them, for arrays.c. */
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
        RKS_FIELD_ITEMS
    } what;
    bool pack; /* samples lie behind each other; else stacked */
    bool text; /* str, bytes, json: always packed, neither rounded up nor cut */
    uint32_t to_multiple;
    uint32_t max_length; /* UINT32_MAX: none */
    uint32_t column;     /* of the schema */
    uint32_t follows;    /* all but columns: the field whose items they tell of */
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
    uint32_t to_multiple; /* of all fields but text */
    uint32_t max_length;  /* UINT32_MAX: none */
    bool cut_by_length;   /* max_length is for values as long as their sample alone */
    bool left;
};

#endif
