/* SPDX-License-Identifier: Apache-2.0
 *
 * payload_size.h: computes how many column bytes a payload holds, without the layout's own, in a
 * few steps. */
#ifndef RKS_FETCH_PAYLOAD_SIZE_H
#define RKS_FETCH_PAYLOAD_SIZE_H

#include "shard/shard.h"

/* A column has `unit` bytes times its variable dimensions. */
typedef struct rks_payload_column {
    uint64_t unit;
    uint32_t variable_dims;
    bool nullable;
} rks_payload_column;

typedef struct rks_payload_layout {
    rks_payload_column *columns;
    size_t count;
    size_t dims;   /* bytes of the dimensions before the columns */
    size_t prefix; /* the same with the bitmap of missing values */
} rks_payload_layout;

rks_status rks_payload_layout_create(const rks_schema *schema, rks_payload_layout *layout,
                                     rks_error *err);
void rks_payload_layout_free(rks_payload_layout *layout);

/* One for each shard; neighbours with the same schema share it. */
typedef struct rks_payload_layouts {
    rks_payload_layout **of; /* NULL: the shard's schema is unknown */
    size_t count;
} rks_payload_layouts;
/* Creates them from one schema for each shard, NULL if unknown. */
rks_status rks_payload_layouts_create(const rks_schema *const *schemas, size_t count,
                                      rks_payload_layouts *layouts, rks_error *err);
void rks_payload_layouts_free(rks_payload_layouts *layouts);

/* Returns the bytes of columns and key. For a malformed record the result is arbitrary. */
uint64_t rks_payload_bytes(const rks_payload_layout *layout, const rks_record_view *view);

#endif
