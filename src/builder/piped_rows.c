/* SPDX-License-Identifier: Apache-2.0
 *
 * piped_rows.c: the first block gives the schema. Each block's rows go to the build, which selects
 * and measures them; the reader here drops none but malformed ones. */
#include "builder/piped_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "builder/build.h"
#include "builder/input.h"
#include "ingest/item_count.h"
#include "dataset/build_directory.h"
#include "dataset/dataset.h"
#include "ingest/ingest.h"
#include "ingest/piped.h"

enum { BAD_LINES = 512, NAME_ROOM = 64 };

#define SOURCE "standard input"

typedef struct piped_rows {
    rks_ingest_options options; /* of the reader */
    rks_piped *piped;
    char *schema_text;
    rks_schema *schema;
    rks_selector *selector;
    char source[NAME_ROOM + RKS_DIGEST_TEXT];
    bool first;           /* the first block was read, to infer the schema */
    bool found;           /* there is a block */
    uint64_t rows;        /* of the block */
    uint64_t number;      /* of the next block */
    json_t *base_options; /* of the dataset that is appended to; NULL: none */
    const char **counts;  /* the rules that these have */
    rks_sink *sink;       /* of the block */
    rks_sink stripped;    /* passes rows on without the key that the reader derives */
} piped_rows;

static rks_status pass_row(rks_sink *sink, const rks_input_row *row, rks_error *err)
{
    rks_sink *to = ((const piped_rows *)sink->user)->sink;
    rks_input_row keyless = *row;
    keyless.key = NULL;
    keyless.key_size = 0;
    return to->row(to, &keyless, err);
}

static rks_status scan_blocks(void *input, rks_scan *scan, rks_error *err)
{
    piped_rows *p = input;
    char name[NAME_ROOM];
    scan->stream = RKS_STREAM_OWN;
    rks_status status = RKS_OK;
    if (p->first)
        p->first = false;
    else
        status = rks_piped_next(p->piped, p->rows, &p->found, err);
    if (status != RKS_OK || !p->found)
        return status;
    if (scan->generation > 1) /* keys that are derived must be new */
        snprintf(name, sizeof(name), "%" PRIu64 "/stdin@%" PRIu64, scan->generation, p->number);
    else
        snprintf(name, sizeof(name), "stdin@%" PRIu64, p->number);
    p->number++;
    return scan->unit(scan, name, rks_piped_input(p->piped)->bytes, err);
}

static rks_status pass_block(void *input, uint64_t unit, rks_sink *sink, rks_error *err)
{
    (void)unit; /* the one that `scan` found */
    piped_rows *p = input;
    rks_buffer bad = {0};
    uint64_t left_out = 0, bad_rows = 0;
    char lines[BAD_LINES] = "";
    const rks_ingest_reading with = {rks_piped_input(p->piped), p->schema, &p->options, p->selector,
                                     &bad};
    p->sink = sink;
    p->stripped = (rks_sink){.struct_size = sizeof(p->stripped),
                             .schema = sink->schema,
                             .drops = sink->drops,
                             .row = pass_row,
                             .user = p};
    rks_status status = rks_unit_count_rows(with.input, 0, &p->rows, err);
    if (status == RKS_OK)
        status = rks_ingest_read(&with, 0, rks_piped_first_row(p->piped), &p->stripped, &left_out,
                                 &bad_rows, err);
    if (status == RKS_OK) {
        rks_text_lines(bad.data, bad.size, lines, sizeof(lines));
        status = sink->left_out(sink, left_out, bad_rows, lines, err);
    }
    rks_buffer_free(&bad);
    return status;
}

/* Of the dataset that is appended to, if there is one: its schema, and its id as part of the
 * source's name, so that the same lines can be added again, and an interrupted append goes on. */
static rks_status look_at_base(const rks_group *group, const char *pattern, rks_build_options *o,
                               piped_rows *p, rks_error *err)
{
    size_t count = 0;
    char *directory = NULL;
    rks_dataset *base = NULL;
    rks_status status = rks_directory_expand_target(group, pattern, &directory, err);
    if (status == RKS_OK && rks_dataset_load(directory, &base, NULL) == RKS_OK) {
        char id[RKS_DIGEST_TEXT];
        rks_digest_format(base->id, id);
        snprintf(p->source, sizeof(p->source), SOURCE " after %s", id);
        if (p->options.schema == NULL)
            p->schema_text = rks_strdup(rks_schema_text(base->schema), err);
        status = p->options.schema == NULL && p->schema_text == NULL ? RKS_ERR_MEMORY : RKS_OK;
        p->base_options = json_loads(base->build_options, 0, NULL);
        if (status == RKS_OK)
            status = rks_recorded_counts(p->base_options, &p->counts, &count, err);
        if (status == RKS_OK && o->counts_count == 0) {
            o->counts = p->counts;
            o->counts_count = count;
        }
    }
    rks_dataset_free(base);
    rks_free(directory);
    return status;
}

/* The build counts, so blocks are read without the columns of `counts`. */
static rks_status row_schema(const rks_build_options *o, const char *text, bool inferred,
                             rks_schema **schema, rks_error *err)
{
    rks_build_options without = *o;
    rks_schema *whole = NULL;
    without.counts_count = 0;
    rks_status status = rks_input_schema(&without, text, &whole, err);
    if (status == RKS_OK)
        status = rks_item_counts_source(whole, o->counts, o->counts_count, inferred, schema, err);
    rks_schema_free(whole);
    return status;
}

static rks_status find_schema(const rks_group *group, const char *directory, rks_build_options *o,
                              piped_rows *p, rks_error *err)
{
    rks_input *input = rks_piped_input(p->piped);
    const char *given = p->options.schema;
    rks_status status = RKS_OK;
    if (o->append)
        status = look_at_base(group, directory, o, p, err);
    input->keeps_schema = p->schema_text != NULL;
    if (status == RKS_OK && given == NULL && p->schema_text == NULL && p->found)
        status = rks_ingest_infer(input, 0, &p->schema_text, err);
    if (status != RKS_OK)
        return status;
    const char *text = given != NULL ? given : p->schema_text;
    if (text == NULL)
        return rks_fail(err, RKS_ERR_DATA, 0, SOURCE ": empty: no row to infer a schema from");
    return row_schema(o, text, given == NULL && p->base_options == NULL, &p->schema, err);
}

static rks_status prepare(const rks_group *group, const char *directory,
                          const rks_build_options *given, rks_build_options *o, piped_rows *p,
                          rks_error *err)
{
    uint32_t ranks = rks_group_size(group);
    if (ranks > 1)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "-: " SOURCE " is read by one rank, and this build has %" PRIu32
                        "; build on one, or write the lines to a file",
                        ranks);
    rks_status status = rks_build_options_take(given, o, err);
    if (status != RKS_OK)
        return status;
    const rks_ingest_options all = rks_build_ingest_options(o);
    p->options = (rks_ingest_options){.format = all.format,
                                      .columns = all.columns,
                                      .json_path = all.json_path,
                                      .flatten = all.flatten,
                                      .dtype = all.dtype,
                                      .schema = all.schema,
                                      .infer_all = all.infer_all,
                                      .extra = all.extra,
                                      .unit_size = all.unit_size,
                                      .max_sample = all.max_sample,
                                      .skip_bad = all.skip_bad};
    status = rks_piped_open(STDIN_FILENO, &p->options, &p->piped, err);
    if (status == RKS_OK)
        status = rks_piped_next(p->piped, 0, &p->found, err);
    p->first = true;
    if (status == RKS_OK)
        status = find_schema(group, directory, o, p, err);
    if (status == RKS_OK)
        status = rks_selector_create(p->schema, &p->options, &p->selector, err);
    return status;
}

bool rks_piped_is_source(const char *const *sources, size_t count)
{
    return count == 1 && sources[0] != NULL && strcmp(sources[0], "-") == 0;
}

rks_status rks_piped_build(rks_group *group, const char *directory,
                           const rks_build_options *options, rks_build_report *report,
                           rks_error *err)
{
    static const rks_input_ops ops = {
        .struct_size = sizeof(ops), .scan = scan_blocks, .read = pass_block};
    piped_rows p = {.source = SOURCE};
    rks_build_options o;
    rks_status status = prepare(group, directory, options, &o, &p, err);
    if (status == RKS_OK) {
        o.schema = rks_schema_text(p.schema);
        o.key = o.key != NULL && o.key[0] == '\0' ? NULL : o.key; /* derived, as by default */
        o.source = p.source;
        status = rks_build_input(group, &ops, &p, directory, &o, report, err);
    }
    if (status == RKS_OK && report != NULL)
        report->input_bytes = rks_piped_bytes(p.piped);
    rks_selector_free(p.selector);
    rks_schema_free(p.schema);
    rks_free(p.schema_text);
    rks_free(p.counts);
    json_decref(p.base_options);
    rks_piped_close(p.piped);
    return status;
}
