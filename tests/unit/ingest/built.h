/* SPDX-License-Identifier: Apache-2.0
 *
 * built.h: a file through the real writer into a sealed shard, as a build of one rank does. */
#ifndef RKS_TESTS_BUILT_H
#define RKS_TESTS_BUILT_H

#include "scratch.h"

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "ingest/ingest.h"
#include "shard/shard.h"

static rks_error err;

typedef struct built {
    uint64_t samples, seen, filtered, bad;
    rks_buffer bad_list;
    uint64_t ticks;
    uint64_t last_tick;
    rks_shard *shard; /* NULL where the build failed */
} built;

static inline rks_status tick(void *user, uint64_t unit_bytes, uint64_t samples, rks_error *error)
{
    (void)samples, (void)error;
    built *out = user;
    out->ticks++;
    out->last_tick = unit_bytes;
    return RKS_OK;
}

/* *first, which is that of the unit before, becomes that of unit `u`. */
static inline rks_status count_first_rows(const rks_input *input, size_t u, uint64_t *first)
{
    uint64_t rows = 0;
    if (input->units[u].first_of_file) {
        *first = 0;
        return RKS_OK;
    }
    rks_status status = rks_unit_count_rows(input, u - 1, &rows, &err);
    *first += rows;
    return status;
}

static inline rks_status write_units(const rks_input *input, const rks_schema *schema,
                                     const rks_ingest_options *options, rks_shard_writer *writer,
                                     rks_selector *selector, built *out)
{
    const rks_ingest_progress progress = {.tick = tick, .user = out};
    const rks_ingest_reading with = {input, schema, options, selector, &out->bad_list};
    rks_status status = RKS_OK;
    uint64_t first = 0;
    for (size_t u = 0; status == RKS_OK && u < input->unit_count; u++) {
        status = count_first_rows(input, u, &first);
        if (status == RKS_OK)
            status = rks_ingest_unit(&with, u, first, writer, &progress, NULL, &err);
    }
    if (status != RKS_OK)
        return status;
    size_t count = 0;
    const rks_unit_summary *units = rks_shard_writer_units(writer, &count);
    for (size_t u = 0; u < count; u++) {
        out->samples += units[u].samples;
        out->seen += units[u].seen;
        out->filtered += units[u].filtered;
        out->bad += units[u].bad;
    }
    return rks_shard_writer_seal(writer, &err);
}

/* What a build of one rank does. */
static inline rks_status build(const char *source, const rks_ingest_options *asked, built *out)
{
    static unsigned number;
    char name[32], path[128];
    snprintf(name, sizeof(name), "shard%u", number++);
    *out = (built){0};
    rks_ingest_options options = *asked;
    rks_input *input = NULL;
    rks_schema *schema = NULL;
    rks_selector *selector = NULL;
    rks_shard_writer *writer = NULL;
    char *inferred = NULL;
    rks_status status = rks_input_open(&source, 1, &options, &input, &err);
    if (status == RKS_OK)
        rks_input_options(input, &options);
    if (status == RKS_OK && options.schema == NULL)
        status = rks_ingest_infer(input, 0, &inferred, &err);
    if (status == RKS_OK)
        status =
            rks_schema_parse(options.schema != NULL ? options.schema : inferred, &schema, &err);
    if (status == RKS_OK)
        status = rks_selector_create(schema, &options, &selector, &err);
    if (status == RKS_OK) {
        rks_shard_options shard = {.schema = schema,
                                   .max_sample = options.max_sample,
                                   .derived_keys = rks_selector_derived_keys(selector)};
        status = rks_shard_writer_open(scratch_dir, name, &shard, &writer, &err);
    }
    if (status == RKS_OK)
        status = write_units(input, schema, &options, writer, selector, out);
    rks_shard_writer_close(writer);
    rks_selector_free(selector);
    rks_schema_free(schema);
    rks_input_free(input);
    rks_free(inferred);
    snprintf(path, sizeof(path), "%s/%s.json", scratch_dir, name);
    return status == RKS_OK ? rks_shard_open(path, &out->shard, &err) : status;
}

static inline void done(built *out)
{
    rks_shard_close(out->shard);
    rks_buffer_free(&out->bad_list);
}

#endif
