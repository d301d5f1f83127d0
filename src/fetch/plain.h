/* SPDX-License-Identifier: Apache-2.0
 *
 * plain.h: computes how many column bytes a payload holds, without the layout's own, in a few
 * steps. */
#ifndef RKS_FETCH_PLAIN_H
#define RKS_FETCH_PLAIN_H

#include "shard/shard.h"

/* A column has `unit` bytes times its variable dimensions. */
typedef struct rks_plain_column {
    uint64_t unit;
    uint32_t variable_dims;
    bool nullable;
} rks_plain_column;

typedef struct rks_plain {
    rks_plain_column *columns;
    size_t count;
    size_t dims;   /* bytes of the dimensions before the columns */
    size_t prefix; /* the same with the bitmap of missing values */
} rks_plain;

rks_status rks_plain_create(const rks_schema *schema, rks_plain *plain, rks_error *err);
void rks_plain_free(rks_plain *plain);

/* One for each shard; neighbours with the same schema share it. */
typedef struct rks_plains {
    rks_plain **of; /* NULL: the shard's schema is unknown */
    size_t count;
} rks_plains;
/* Creates them from one schema for each shard, NULL if unknown. */
rks_status rks_plains_create(const rks_schema *const *schemas, size_t count, rks_plains *plains,
                             rks_error *err);
void rks_plains_free(rks_plains *plains);

/* Returns the bytes of columns and key. For a malformed record the result is arbitrary. */
uint64_t rks_plain_bytes(const rks_plain *plain, const rks_record_view *view);

#endif
