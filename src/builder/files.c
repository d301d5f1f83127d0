/* SPDX-License-Identifier: Apache-2.0
 *
 * files.c: rks_files: files as an input that another one can wrap. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "builder/build.h"
#include "builder/input.h"
#include "ingest/format.h"
#include "ingest/ingest.h"

enum { BAD_LINES = 512 };

struct rks_files {
    rks_build_options options;
    const char *given_key; /* the key in the caller's options */
    rks_input *input;
    rks_schema *schema;
    rks_selector *selector;
    uint64_t *first_rows; /* by unit: number of its first row in its file */
    char *listing;        /* of sources in stores, if this call has asked them */
};

/* Infers the schema of this rank's share of the input, or takes the given one. The status is its
 * own. */
static rks_status look_at_input(rks_files *files, rks_group *group, const char *const *sources,
                                size_t source_count, const rks_build_options *options,
                                char **inferred, rks_error *err)
{
    rks_status status = rks_build_options_take(options, &files->options, err);
    if (status == RKS_OK && source_count == 0)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "no source given");
    status =
        rks_input_list(group, status, sources, source_count, &files->options, &files->listing, err);
    files->options.index_count = 0;
    files->options.counts_count = 0; /* the build counts */
    files->given_key = files->options.key;
    if (status == RKS_OK)
        status = rks_input_look(sources, source_count, &files->options, &files->input, err);
    if (status == RKS_OK && files->options.schema != NULL)
        status = rks_input_schema(&files->options, files->options.schema, &files->schema, err);
    else if (status == RKS_OK)
        status = rks_input_infer(group, files->input, inferred, err);
    return status;
}

static rks_status choose_schema(rks_files *files, const rks_agreed *agreed, rks_error *err)
{
    char *joined = NULL;
    rks_status status = RKS_OK;
    if (files->schema == NULL)
        status = rks_input_join(files->input, agreed, 2, &joined, err);
    if (status == RKS_OK && files->schema == NULL)
        status = rks_input_schema(&files->options, joined, &files->schema, err);
    if (status == RKS_OK)
        rks_input_key(files->input, files->given_key, files->schema, &files->options);
    const rks_ingest_options reading = rks_build_ingest_options(&files->options);
    if (status == RKS_OK)
        status = rks_selector_create(files->schema, &reading, &files->selector, err);
    rks_free(joined);
    return status;
}

rks_status rks_files_open(rks_group *group, const char *const *sources, size_t source_count,
                          const rks_build_options *options, rks_files **files, rks_error *err)
{
    rks_files *opened = rks_alloc(1, sizeof(*opened), err);
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
        status = rks_input_first_rows(group, status, opened->input,
                                      &(rks_counting){.is_needed = true}, &opened->first_rows, err);
    }
    if (status != RKS_OK) {
        rks_files_close(opened);
        return status;
    }
    *files = opened;
    return RKS_OK;
}

const rks_schema *rks_files_schema(const rks_files *files)
{
    return files->schema;
}

uint64_t rks_files_unit_size(const rks_files *files)
{
    return files->input->unit_size;
}

/* ---- as an input ----------------------------------------------------------------------------- */

static rks_status scan_files(void *input, rks_scan *scan, rks_error *err)
{
    const rks_files *files = input;
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < files->input->unit_count; i++) {
        const rks_input_unit *unit = &files->input->units[i];
        status = scan->unit(scan, files->input->files[unit->first_file].name, unit->size, err);
    }
    return status;
}

static rks_status read_files(void *input, uint64_t unit, rks_sink *sink, rks_error *err)
{
    const rks_files *files = input;
    rks_buffer bad = {0};
    uint64_t filtered = 0, bad_rows = 0;
    char lines[BAD_LINES] = "";
    const rks_ingest_options reading = rks_build_ingest_options(&files->options);
    const rks_ingest_reading with = {files->input, files->schema, &reading, files->selector, &bad};
    if (unit >= files->input->unit_count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %" PRIu64 " of %zu", unit,
                        files->input->unit_count);
    rks_status status = rks_ingest_read(&with, (size_t)unit, files->first_rows[unit], sink,
                                        &filtered, &bad_rows, err);
    if (status == RKS_OK) {
        rks_text_lines(bad.data, bad.size, lines, sizeof(lines));
        status = sink->left_out(sink, filtered, bad_rows, lines, err);
    }
    rks_buffer_free(&bad);
    return status;
}

static void close_files(void *input)
{
    rks_files_close(input);
}

const rks_input_ops *rks_files_input(void)
{
    static const rks_input_ops ops = {
        .struct_size = sizeof(ops), .scan = scan_files, .read = read_files, .close = close_files};
    return &ops;
}

void rks_files_close(rks_files *files)
{
    if (files == NULL)
        return;
    rks_selector_free(files->selector);
    rks_schema_free(files->schema);
    rks_input_free(files->input);
    rks_free(files->first_rows);
    rks_free(files->listing);
    rks_free(files);
}
