/* SPDX-License-Identifier: Apache-2.0
 *
 * row_writer.c: one unit of this rank's part, open from the first row to the commit. */
#include "builder/row_writer.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "builder/build.h"
#include "builder/input.h"
#include "ingest/sample_selection.h"

struct rks_row_writer {
    rks_group *group;
    rks_build_options options;
    const char *directory;
    char *options_text;
    rks_schema *schema;
    rks_selector *selector; /* measures lengths */
    rks_parts *parts;
    rks_shard_writer *shard;
    uint32_t rows;
    bool committed;
};

static rks_status prepare(rks_row_writer *writer, const char *schema, rks_error *err)
{
    rks_build_options *o = &writer->options;
    rks_build_options_default(o);
    o->own_keys = true;
    o->max_sample = RKS_SAMPLE_MAX;
    rks_status status = rks_schema_parse(schema, &writer->schema, err);
    if (status != RKS_OK)
        return status;
    o->length = rks_build_default_length(writer->schema, o);
    status = rks_build_options_text(o, &writer->options_text, err);
    const rks_ingest_options reading = rks_build_ingest_options(o);
    return status == RKS_OK ? rks_selector_create(writer->schema, &reading, &writer->selector, err)
                            : status;
}

/* COLLECTIVE. `own`: this rank's status. */
static rks_status open_parts(rks_row_writer *writer, rks_error *err)
{
    rks_status own = RKS_OK;
    rks_parts_options options = {
        .no_lock = true, /* no other rank uses the directory */
        .no_index = true,
        .build_options = writer->options_text,
        .selection = rks_build_selection(&writer->options),
        .shard = {.schema = writer->schema,
                  .block_size = writer->options.block_size,
                  .max_sample = writer->options.max_sample,
                  .threads = rks_build_threads(writer->group, &writer->options)},
    };
    const rks_digest none = {0};
    own = rks_build_id("memory", none, writer->schema, writer->options_text,
                       &options.shard.build_id, err);
    rks_status status =
        rks_parts_open(writer->group, writer->directory, &own, &options, &writer->parts, err);
    return status == RKS_OK ? rks_parts_settle(writer->parts, own, err) : status;
}

static rks_status begin_unit(rks_row_writer *writer, const rks_key_words *words, rks_error *err)
{
    char name[32];
    uint32_t rank = rks_group_rank(writer->group);
    snprintf(name, sizeof(name), "rank %u", rank);
    rks_parts_describe_keys(writer->parts, words);
    rks_status status = rks_parts_writer(writer->parts, &writer->shard, err);
    if (status == RKS_OK)
        status = rks_shard_writer_begin(writer->shard, rank, name, 0, err);
    return rks_group_agree(writer->group, "rows: begin", status, err);
}

rks_status rks_row_writer_open(rks_group *group, rks_status status, const char *directory,
                               const char *schema, const rks_key_words *words,
                               rks_row_writer **writer, rks_error *err)
{
    const rks_digest none = {0};
    rks_fact facts[RKS_BUILD_SAME];
    rks_row_writer empty = {0};
    rks_row_writer *opened = status == RKS_OK ? rks_alloc(1, sizeof(*opened), err) : NULL;
    if (opened != NULL) {
        opened->group = group;
        opened->directory = directory;
        status = prepare(opened, schema, err);
    } else if (status == RKS_OK) {
        status = RKS_ERR_MEMORY;
    }
    const rks_row_writer *made = opened == NULL ? &empty : opened;
    rks_build_same(facts, "source", &none, made->schema, &made->options, made->options_text);
    status = rks_group_agree_on(group, "rows: options", status, facts, RKS_BUILD_SAME, NULL, err);
    if (status == RKS_OK)
        status = open_parts(opened, err);
    if (status == RKS_OK)
        status = begin_unit(opened, words, err);
    if (status != RKS_OK) {
        rks_row_writer_close(opened);
        return status;
    }
    *writer = opened;
    return RKS_OK;
}

rks_status rks_row_writer_add(rks_row_writer *writer, const rks_value *values, const void *key,
                              size_t key_size, rks_error *err)
{
    bool keep = false;
    uint32_t length = 0;
    if (writer->rows == UINT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "more than 2^32 - 1 rows of one rank");
    rks_status status =
        rks_selector_apply(writer->selector, values, &keep, &length, &key, &key_size, err);
    if (status == RKS_OK)
        status =
            rks_shard_writer_add(writer->shard, values, key, key_size, length, writer->rows, err);
    writer->rows += status == RKS_OK;
    return status;
}

uint32_t rks_row_writer_columns(const rks_row_writer *writer)
{
    return rks_schema_columns(writer->schema);
}

rks_status rks_row_writer_commit(rks_row_writer *writer, rks_status status, rks_error *err)
{
    rks_build_report report = {.struct_size = sizeof(report)};
    const rks_buffer none = {0};
    if (status == RKS_OK && writer->committed)
        status = rks_fail(err, RKS_ERR_STATE, 0, "the rows are committed already");
    if (status == RKS_OK)
        status = rks_shard_writer_end(writer->shard, writer->rows, 0, 0, err);
    if (status == RKS_OK)
        status = rks_parts_seal(writer->parts, err);
    writer->committed = true;
    status = rks_parts_commit(writer->parts, status, &none, &report, err);
    if (status == RKS_OK)
        rks_parts_end_commit(writer->parts);
    return status;
}

void rks_row_writer_close(rks_row_writer *writer)
{
    if (writer == NULL)
        return;
    rks_parts_close(writer->parts);
    rks_selector_free(writer->selector);
    rks_schema_free(writer->schema);
    rks_free(writer->options_text);
    rks_free(writer);
}
