/* SPDX-License-Identifier: Apache-2.0
 *
 * builder.c: builds from memory: writes the caller's units and samples to this rank's part. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "builder/build.h"
#include "builder/input.h"
#include "builder/parts.h"
#include "dataset/build_directory.h"
#include "dataset/length_description.h"
#include "ingest/row_sampling.h"
#include "ingest/sample_selection.h"

struct rks_builder {
    rks_group *group;
    rks_build_options options;
    char *directory;
    char *options_text;
    char *made_from;
    char **index; /* copies of the names in the options */
    rks_schema *schema;
    bool measures_by_default; /* neither length nor length_fn was given */
    rks_selector *selector;
    rks_parts *parts;
    rks_shard_writer *writer;
    uint64_t begun_in; /* number of the group's collective when it began */
    bool in_unit;
    bool skipping; /* the current unit is already finished */
    bool committed;
    uint64_t unit;
    uint64_t seen; /* rows of derived keys in the current unit */
    uint64_t filtered;
    uint64_t left_out, bad; /* rows that the caller did not add */
};

/* Copies texts that the caller may free. */
static rks_status copy_texts(rks_builder *builder, rks_error *err)
{
    const rks_build_options *o = &builder->options;
    builder->made_from = rks_strdup(o->made_from == NULL ? "" : o->made_from, err);
    builder->index = rks_alloc(o->index_count, sizeof(char *), err);
    if (builder->made_from == NULL || builder->index == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < o->index_count; i++) {
        builder->index[i] = rks_strdup(o->index[i], err);
        if (builder->index[i] == NULL)
            return RKS_ERR_MEMORY;
    }
    return RKS_OK;
}

static rks_status prepare_builder(rks_builder *builder, const char *directory,
                                  const rks_build_options *options, rks_error *err)
{
    rks_build_options *o = &builder->options;
    rks_status status = rks_build_options_take(options, o, err);
    if (status != RKS_OK)
        return status;
    if (o->schema == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: building from memory needs one");
    status = rks_directory_expand_target(builder->group, directory, &builder->directory, err);
    if (status == RKS_OK)
        status = rks_schema_parse(o->schema, &builder->schema, err);
    if (status != RKS_OK)
        return status;
    builder->measures_by_default = o->length == NULL && o->length_fn == NULL;
    if (builder->measures_by_default)
        o->length = rks_build_default_length(builder->schema, o);
    status = rks_build_options_text(o, &builder->options_text, err);
    const rks_ingest_options reading = rks_build_ingest_options(o);
    if (status == RKS_OK)
        status = rks_selector_create(builder->schema, &reading, &builder->selector, err);
    if (status != RKS_OK)
        return status;
    if (o->own_keys && o->key != NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "key: column \"%s\" is named, but own_keys is set", o->key);
    return copy_texts(builder, err);
}

/* The answer is the same on all ranks. The commit refuses another schema. */
static bool inherits_length(const rks_builder *builder)
{
    const rks_dataset *base = rks_parts_base(builder->parts);
    return base != NULL && builder->measures_by_default &&
           strcmp(rks_schema_text(base->schema), rks_schema_text(builder->schema)) == 0;
}

/* Takes the length from the dataset that is appended to. */
static rks_status inherit_length(rks_builder *builder, rks_error *err)
{
    rks_selector *made = NULL;
    rks_ingest_options reading = rks_build_ingest_options(&builder->options);
    json_t *options = json_loads(rks_parts_base(builder->parts)->build_options, 0, NULL);
    const rks_recorded_length recorded = rks_recorded_length_read(options);
    reading.length = rks_recorded_length_name(&recorded, builder->schema, builder->options.key);
    reading.length_unit = recorded.unit != 0 ? recorded.unit : reading.length_unit;
    rks_status status = rks_selector_create(builder->schema, &reading, &made, err);
    json_decref(options);
    if (status != RKS_OK)
        return status;
    rks_selector_free(builder->selector);
    builder->selector = made;
    return RKS_OK;
}

/* COLLECTIVE. `own` is this rank's result so far. */
static rks_status settle(rks_builder *builder, rks_status own, rks_error *err)
{
    if (!inherits_length(builder))
        return rks_parts_settle(builder->parts, own, err);
    if (own == RKS_OK)
        own = inherit_length(builder, err);
    return rks_group_agree(builder->group, "build: lengths", own, err);
}

rks_status rks_builder_open(rks_group *group, const char *directory,
                            const rks_build_options *options, rks_builder **builder, rks_error *err)
{
    return rks_builder_begin(group, RKS_OK, directory, options, builder, err);
}

rks_status rks_builder_begin(rks_group *group, rks_status status, const char *directory,
                             const rks_build_options *options, rks_builder **builder,
                             rks_error *err)
{
    rks_parts_options parts = {0};
    rks_digest input = {0};
    rks_fact facts[RKS_BUILD_SAME];
    rks_builder none = {0};
    rks_builder *opened = status == RKS_OK ? rks_alloc(1, sizeof(*opened), err) : NULL;
    if (opened != NULL) {
        opened->group = group;
        opened->begun_in = rks_group_collectives(group);
        status = prepare_builder(opened, directory, options, err);
    } else if (status == RKS_OK) {
        status = RKS_ERR_MEMORY;
    }
    const rks_builder *made = opened == NULL ? &none : opened;
    if (status == RKS_OK) {
        const char *source = made->options.source;
        if (source != NULL)
            input = rks_checksum128(source, strlen(source));
        status = rks_build_id("memory", input, made->schema, made->options_text,
                              &parts.shard.build_id, err);
    }
    rks_build_same(facts, "source", &input, made->schema, &made->options, made->options_text);
    status = rks_group_agree_on(group, "build: options", status, facts, RKS_BUILD_SAME, NULL, err);
    if (status == RKS_OK) {
        parts.replace = opened->options.replace;
        parts.append = opened->options.append;
        parts.made_from = opened->made_from;
        parts.no_lock = opened->options.no_lock;
        parts.wait = opened->options.wait;
        parts.build_options = opened->options_text;
        parts.selection = rks_build_selection(&opened->options);
        parts.shard.schema = opened->schema;
        parts.shard.block_size = opened->options.block_size;
        parts.shard.max_sample = opened->options.max_sample;
        parts.shard.index = (const char *const *)opened->index;
        parts.shard.index_count = opened->options.index_count;
        parts.shard.unit_size = opened->options.unit_size;
        parts.shard.threads = rks_build_threads(group, &opened->options);
        parts.shard.derived_keys =
            !opened->options.own_keys && rks_selector_derived_keys(opened->selector);
        rks_status own = status;
        status = rks_parts_open(group, opened->directory, &own, &parts, &opened->parts, err);
        if (status == RKS_OK)
            status = settle(opened, own, err);
    }
    if (status != RKS_OK) {
        rks_builder_close(opened);
        return status;
    }
    *builder = opened;
    return RKS_OK;
}

static rks_status end_unit(rks_builder *builder, rks_error *err)
{
    bool open = builder->in_unit && !builder->skipping;
    builder->in_unit = false;
    if (!open)
        return RKS_OK;
    return rks_shard_writer_end(builder->writer, builder->seen,
                                builder->filtered + builder->left_out, builder->bad, err);
}

rks_status rks_builder_unit(rks_builder *builder, uint64_t unit, const char *name, bool *skip,
                            rks_error *err)
{
    if (builder->committed)
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "the build is committed; unit %" PRIu64 " is too late", unit);
    if (name == NULL || name[0] == '\0')
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %" PRIu64 ": the name is empty", unit);
    rks_status status = end_unit(builder, err);
    if (status != RKS_OK)
        return status;
    bool finished = rks_parts_finished(builder->parts, unit) != NULL;
    if (!finished) {
        status = rks_parts_writer(builder->parts, &builder->writer, err);
        if (status == RKS_OK)
            status = rks_shard_writer_begin(builder->writer, unit, name, 0, err);
        if (status != RKS_OK)
            return status;
    }
    builder->in_unit = true;
    builder->skipping = finished;
    builder->unit = unit;
    builder->seen = builder->filtered = builder->left_out = builder->bad = 0;
    if (skip != NULL)
        *skip = finished;
    return RKS_OK;
}

rks_status rks_builder_add(rks_builder *builder, const rks_value *values, const void *key,
                           size_t key_size, rks_error *err)
{
    if (!builder->in_unit)
        return rks_fail(err, RKS_ERR_STATE, 0, "no unit has begun: call rks_builder_unit first");
    if (builder->skipping)
        return RKS_OK;
    if (builder->seen >= UINT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %" PRIu64 ": more than 2^32 samples",
                        builder->unit);
    bool keep = false, own = builder->options.own_keys;
    uint32_t length = 0;
    if (own != (key != NULL))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        own ? "own_keys is set, but no key is given"
                            : "a key is given, but own_keys is not set");
    rks_status status = RKS_OK;
    if (rks_row_is_sampled(rks_draw_limit(builder->options.sample_rate), builder->options.seed,
                           builder->unit, builder->seen))
        status =
            rks_selector_apply(builder->selector, values, &keep, &length, &key, &key_size, err);
    if (status != RKS_OK)
        return status;
    if (keep) {
        status = rks_shard_writer_add(builder->writer, values, key, key_size, length,
                                      (uint32_t)builder->seen, err);
        if (status != RKS_OK)
            return status;
    } else {
        builder->filtered++;
    }
    builder->seen++;
    return RKS_OK;
}

rks_status rks_builder_left_out(rks_builder *builder, uint64_t filtered, uint64_t bad,
                                rks_error *err)
{
    if (!builder->in_unit)
        return rks_fail(err, RKS_ERR_STATE, 0, "no unit has begun: call rks_builder_unit first");
    if (filtered > UINT32_MAX || bad > UINT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "unit %" PRIu64 ": more than 2^32 samples left out", builder->unit);
    builder->left_out += filtered;
    builder->bad += bad;
    return RKS_OK;
}

rks_status rks_builder_commit(rks_builder *builder, rks_status status, rks_build_report *report,
                              rks_error *err)
{
    rks_build_report made = {.struct_size = sizeof(made)};
    const rks_buffer none = {0};
    if (status == RKS_OK && builder->committed)
        status = rks_fail(err, RKS_ERR_STATE, 0, "the build is committed already");
    if (status == RKS_OK)
        status = end_unit(builder, err);
    if (status == RKS_OK)
        status = rks_parts_seal(builder->parts, err);
    builder->committed = true;
    status = rks_parts_commit(builder->parts, status, &none, &made, err);
    made.collectives = rks_group_collectives(builder->group) - builder->begun_in;
    if (status == RKS_OK && report != NULL) {
        size_t room = report->struct_size;
        memcpy(report, &made, room < sizeof(made) ? room : sizeof(made));
        report->struct_size = room;
    }
    return status;
}

uint32_t rks_builder_columns(const rks_builder *builder)
{
    return rks_schema_columns(builder->schema);
}

void rks_builder_describe_keys(rks_builder *builder, const rks_key_words *words)
{
    rks_parts_describe_keys(builder->parts, words);
}

void rks_builder_close(rks_builder *builder)
{
    if (builder == NULL)
        return;
    rks_parts_close(builder->parts);
    rks_selector_free(builder->selector);
    rks_schema_free(builder->schema);
    for (size_t i = 0; builder->index != NULL && i < builder->options.index_count; i++)
        rks_free(builder->index[i]);
    rks_free(builder->index);
    rks_free(builder->options_text);
    rks_free(builder->made_from);
    rks_free(builder->directory);
    rks_free(builder);
}
