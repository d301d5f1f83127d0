/* SPDX-License-Identifier: Apache-2.0
 *
 * samples.h: samples as decoded values in memory, for the tests of collating. */
#ifndef RKS_TESTS_COLLATE_SAMPLES_H
#define RKS_TESTS_COLLATE_SAMPLES_H

#include "support/check.h"

#include "base/error.h"
#include "base/memory.h"
#include "collate/collate.h"

typedef struct samples {
    size_t count;
    uint32_t columns;
    rks_value *values;       /* count x columns */
    const uint32_t *lengths; /* NULL: all 0 */
    const rks_piece *pieces;
    size_t piece_count;
    const uint32_t *bins; /* NULL: none */
    size_t bin_count;
    rks_arenas *arenas; /* NULL: none */
} samples;

static inline rks_status samples_get(void *user, size_t i, rks_value *values, rks_error *err)
{
    const samples *s = user;
    (void)err;
    memcpy(values, s->values + i * s->columns, s->columns * sizeof(*values));
    return RKS_OK;
}

static inline uint32_t samples_length(void *user, size_t i)
{
    const samples *s = user;
    return s->lengths == NULL ? 0 : s->lengths[i];
}

static inline rks_status samples_collate(const char *schema_text, samples *s,
                                         const rks_collate_options *options, rks_arrays **arrays,
                                         rks_error *err)
{
    rks_schema *schema = NULL;
    rks_collate *collate = NULL;
    rks_blocks *pool = NULL;
    const rks_collate_source source = {
        .count = s->count,
        .sizes = samples_get,
        .items = samples_get,
        .length = samples_length,
        .pieces = s->pieces,
        .piece_count = s->piece_count,
        .bins = s->bins,
        .bin_count = s->bin_count,
        .user = s,
    };
    rks_status status = rks_schema_parse(schema_text, &schema, err);
    if (status == RKS_OK) {
        s->columns = rks_schema_columns(schema);
        status = rks_blocks_create(&pool, err);
    }
    if (status == RKS_OK)
        status = rks_collate_create(schema, options, &collate, err);
    if (status == RKS_OK && s->arenas != NULL)
        rks_collate_use(collate, s->arenas);
    if (status == RKS_OK)
        status = rks_collate_run(collate, &source, pool, arrays, err);
    rks_collate_release(collate); /* arrays live on without all of these */
    rks_blocks_release(pool);
    rks_schema_free(schema);
    return status;
}

#endif
