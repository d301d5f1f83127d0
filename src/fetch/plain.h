/* SPDX-License-Identifier: Apache-2.0
 *
 * plain.h: how many column bytes a payload holds, without the layout's own, in a few steps. */
#ifndef RKS_FETCH_PLAIN_H
#define RKS_FETCH_PLAIN_H

#include "shard/shard.h"

/* A column's bytes: unit times its variable dimensions. */
typedef struct rks_plain_column {
    uint64_t unit;
    uint32_t variable_dims;
    bool nullable;
} rks_plain_column;

typedef struct rks_plain {
    rks_plain_column *columns;
    size_t count;
    size_t dims;   /* bytes of the dimensions before the columns */
    size_t prefix; /* with the bitmap of missing values */
} rks_plain;

rks_status rks_plain_create(const rks_schema *schema, rks_plain *plain, rks_error *err);
void rks_plain_free(rks_plain *plain);

/* One a shard; neighbours of the same schema share it. */
typedef struct rks_plains {
    rks_plain **of; /* NULL: nothing is known of that shard */
    size_t count;
} rks_plains;
/* `schemas`: one a shard, NULL where it is not known. */
rks_status rks_plains_create(const rks_schema *const *schemas, size_t count, rks_plains *plains,
                             rks_error *err);
void rks_plains_free(rks_plains *plains);

/* Column and key bytes. Of a record that is not as it should be: any number. */
uint64_t rks_plain_bytes(const rks_plain *plain, const rks_record_view *view);

#endif
