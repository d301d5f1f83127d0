/* SPDX-License-Identifier: Apache-2.0
 *
 * reader.c: rks_reader: passes an input's samples to the caller. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "builder/build.h"
#include "builder/input.h"
#include "ingest/format.h"
#include "ingest/ingest.h"
#include "rankstore/reader.h"

struct rks_reader {
    rks_build_options options;
    const char *given_key; /* the key in the caller's options */
    rks_input *input;
    rks_schema *schema;
    rks_selector *selector;
    uint64_t *first_rows; /* by unit: number of its first row in its file */
};

/* This rank's own part: infers the schema of its share of the input, or takes the given one. */
static rks_status look_at_input(rks_reader *reader, const rks_group *group,
                                const char *const *sources, size_t source_count,
                                const rks_build_options *options, char **inferred, rks_error *err)
{
    rks_status status = rks_build_options_take(options, &reader->options, err);
    if (status == RKS_OK && source_count == 0)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "no source given");
    reader->options.index_count = 0;
    reader->given_key = reader->options.key;
    if (status == RKS_OK)
        status = rks_input_look(sources, source_count, &reader->options, &reader->input, err);
    if (status == RKS_OK && reader->options.schema != NULL)
        status = rks_input_schema(&reader->options, reader->options.schema, &reader->schema, err);
    else if (status == RKS_OK)
        status = rks_input_infer(group, reader->input, inferred, err);
    return status;
}

static rks_status choose_schema(rks_reader *reader, const rks_agreed *agreed, rks_error *err)
{
    char *joined = NULL;
    rks_status status = RKS_OK;
    if (reader->schema == NULL)
        status = rks_input_join(reader->input, agreed, 2, &joined, err);
    if (status == RKS_OK && reader->schema == NULL)
        status = rks_input_schema(&reader->options, joined, &reader->schema, err);
    if (status == RKS_OK)
        rks_input_key(reader->input, reader->given_key, reader->schema, &reader->options);
    const rks_ingest_options reading = rks_build_ingest_options(&reader->options);
    if (status == RKS_OK)
        status = rks_selector_create(reader->schema, &reading, &reader->selector, err);
    rks_free(joined);
    return status;
}

rks_status rks_reader_open(rks_group *group, const char *const *sources, size_t source_count,
                           const rks_build_options *options, rks_reader **reader, rks_error *err)
{
    rks_reader *opened = rks_alloc(1, sizeof(*opened), err);
    const rks_schema *schema = NULL;
    rks_digest digest = {0};
    char *inferred = NULL;
    rks_agreed agreed;
    rks_status status = opened == NULL ? RKS_ERR_MEMORY
                                       : look_at_input(opened, group, sources, source_count,
                                                       options, &inferred, err);
    if (status == RKS_OK) {
        digest = rks_input_digest(opened->input);
        schema = opened->schema;
    }
    const rks_fact facts[] = {
        rks_fact_same_bytes("the list of input files", &digest, sizeof(digest), NULL),
        rks_fact_same("the schema", schema == NULL ? NULL : rks_schema_text(schema)),
        rks_input_inferred(group, inferred)};
    status = rks_group_agree_on(group, "read: input", status, facts, 3, &agreed, err);
    rks_free(inferred);
    if (status == RKS_OK) {
        status = choose_schema(opened, &agreed, err);
        status = rks_input_first_rows(group, status, opened->input, NULL, true, &opened->first_rows,
                                      err);
    }
    if (status != RKS_OK) {
        rks_reader_close(opened);
        return status;
    }
    *reader = opened;
    return RKS_OK;
}

const rks_schema *rks_reader_schema(const rks_reader *reader)
{
    return reader->schema;
}

uint64_t rks_reader_unit_size(const rks_reader *reader)
{
    return reader->input->unit_size;
}

uint64_t rks_reader_units(const rks_reader *reader)
{
    return reader->input->unit_count;
}

static rks_status check_unit(const rks_reader *reader, uint64_t unit, rks_error *err)
{
    size_t count = reader->input->unit_count;
    if (unit < count)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %" PRIu64 " of %zu", unit, count);
}

rks_status rks_reader_unit(const rks_reader *reader, uint64_t unit, const char **name,
                           uint64_t *bytes, rks_error *err)
{
    rks_status status = check_unit(reader, unit, err);
    if (status != RKS_OK)
        return status;
    const rks_input_unit *found = &reader->input->units[unit];
    *name = reader->input->files[found->first_file].name;
    *bytes = found->size;
    return RKS_OK;
}

rks_status rks_reader_read(rks_reader *reader, uint64_t unit, rks_read_fn take, void *user,
                           rks_read_report *report, rks_error *err)
{
    rks_buffer bad = {0};
    rks_read_report made = {.struct_size = sizeof(made)};
    const rks_ingest_taker taker = {take, user};
    const rks_ingest_options reading = rks_build_ingest_options(&reader->options);
    const rks_ingest_reading with = {reader->input, reader->schema, &reading, reader->selector,
                                     &bad};
    rks_status status = check_unit(reader, unit, err);
    if (status == RKS_OK)
        status = rks_ingest_read(&with, (size_t)unit, reader->first_rows[unit], &taker,
                                 &made.filtered, &made.bad, err);
    if (status == RKS_OK && report != NULL) {
        size_t size = report->struct_size;
        rks_text_lines(bad.data, bad.size, made.bad_first, sizeof(made.bad_first));
        memcpy(report, &made, size < sizeof(made) ? size : sizeof(made));
        report->struct_size = size;
    }
    rks_buffer_free(&bad);
    return status;
}

void rks_reader_close(rks_reader *reader)
{
    if (reader == NULL)
        return;
    rks_selector_free(reader->selector);
    rks_schema_free(reader->schema);
    rks_input_free(reader->input);
    rks_free(reader->first_rows);
    rks_free(reader);
}

rks_status rks_source_format(const char *const *sources, size_t source_count,
                             const rks_build_options *options, const char **format, rks_error *err)
{
    rks_build_options taken;
    rks_input *input = NULL;
    rks_status status = rks_build_options_take(options, &taken, err);
    if (status == RKS_OK && source_count == 0)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "no source given");
    rks_ingest_options reading = rks_build_ingest_options(&taken);
    reading.unit_size = INT64_MAX; /* finding places to cut would read whole files */
    if (status == RKS_OK)
        status = rks_input_open(sources, source_count, &reading, &input, err);
    if (status == RKS_OK)
        *format = input->format->name;
    rks_input_free(input);
    return status;
}
