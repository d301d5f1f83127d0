/* SPDX-License-Identifier: Apache-2.0
 *
 * build.c: rks_build and rks_build_input: build shards and a dataset of files, or of the rows that
 * a program makes, shared among the ranks.
 *
 *   look at the input ─► agree a schema ─► take over parts ─► count rows ─► deal ─► read ─► commit
 *
 * Each rank does its part and keeps its first error. On one node these agreements carry it:
 *
 *   build: input             the same input and options; the inferred schema; what is appended to
 *   build: lock              the rank that has a directory's lock has written its name
 *   build: parts             what the directories hold, once they are locked
 *   build: finished units    if there are parts: what they hold
 *   build: counting rows     if units begin inside a file; not if one rank reads them all, in order
 *   build: units             of rows: what the input lists
 *   build: streams           of streams: whether two ranks brought the same
 *   build: rows read         the sealed parts; which rows were skipped
 *   open: ...                what was sealed, as a store: for equal keys, and for the index files
 *   build: commit            dataset.json is written
 *
 * That is ten at most, since that store takes three. What the selection leaves out (exclusions.h)
 * is known only after all rows. It takes two more agreements each, on one node:
 *
 *   build: contents, build: duplicates      all hashes are in the node's memory; which samples go
 *   build: sample, build: sample taken      the draws near the last one; which samples go
 *
 * So a build with one of them takes 12 at most. With both it takes 14, since a sample is drawn from
 * what is not a duplicate. Equal keys are looked for among the samples that stay. Between nodes the
 * contents are sent by the exchange.
 *
 * What decides the result (units, schema, options) is the same for any number of ranks, so the
 * dataset id is, too. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "builder/build_state.h"
#include "builder/lost_units.h"
#include "builder/piped_rows.h"
#include "builder/publish.h"
#include "home/address.h"
#include "builder/row_units.h"
#include "ingest/format.h"
#include "ingest/rows.h"

/* ---- parts --------------------------------------------------------------------------------- */

/* The digest of files follows from how they are cut, which may have changed since the first look.
 */
static rks_digest input_of(const rks_build_state *b)
{
    return b->source->ops != NULL ? b->input_digest : rks_input_digest(b->input);
}

static void describe_keys(rks_build_state *b)
{
    bool by_default = b->given_key == NULL && b->base == NULL && b->options.key != NULL &&
                      !b->input->format->named_only;
    const rks_key_words words = {.place = rks_input_describe_row,
                                 .user = b->input,
                                 .advice = by_default
                                               ? "an empty name as key (key='') makes keys of "
                                                 "path and row; if a sample's members lie apart: "
                                                 "tar --sort=name"
                                               : NULL};
    rks_parts_describe_keys(b->parts, &words);
}

/* Those of a URL: a source that is one needs them, too. */
static const char *home_options(const rks_build_state *b)
{
    return rks_home_is_url(b->options.home) ? b->options.storage_options : NULL;
}

static rks_status open_ahead(rks_build_state *b, rks_error *err)
{
    if (b->options.home == NULL)
        return RKS_OK;
    const rks_send_ahead_wish wish = {.home = b->options.home,
                                      .storage_options = home_options(b),
                                      .directory = b->directory,
                                      .base = b->base != NULL ? b->base->id : (rks_digest){0},
                                      .silence_ms = rks_group_silence_ms(b->group)};
    return rks_send_ahead_open(&wish, &b->ahead, err);
}

/* COLLECTIVE. *own: as in rks_parts_open. */
static rks_status open_parts(rks_build_state *b, rks_status *own, rks_error *err)
{
    rks_parts_options options = {.replace = b->options.replace,
                                 .append = b->options.append,
                                 .made_from = b->options.made_from,
                                 .no_lock = b->options.no_lock,
                                 .wait = b->options.wait,
                                 .keep = b->options.keep,
                                 .repair = b->options.repair,
                                 .shards = b->options.shards,
                                 .shard_count = b->options.shard_count};
    if (*own == RKS_OK)
        *own = rks_build_id(b->source->ops != NULL ? "memory" : "files", input_of(b), b->schema,
                            b->options_text, &options.shard.build_id, err);
    if (*own == RKS_OK)
        *own = open_ahead(b, err);
    if (*own == RKS_OK) {
        options.ahead = b->ahead;
        options.build_options = b->options_text;
        options.selection = rks_build_selection(&b->options);
        options.shard.schema = b->schema;
        options.shard.block_size = b->options.block_size;
        options.shard.max_sample = b->options.max_sample;
        options.shard.index = b->options.index;
        options.shard.index_count = b->options.index_count;
        options.shard.unit_size = b->options.unit_size;
        options.shard.threads = b->threads;
        options.shard.derived_keys = !b->options.own_keys && rks_selector_derived_keys(b->selector);
    }
    rks_status status = rks_parts_open(b->group, b->directory, own, &options, &b->parts, err);
    if (status == RKS_OK && b->source->ops == NULL)
        describe_keys(b);
    return status;
}

/* ---- rows and dealing ----------------------------------------------------------------------- */

/* Returns true if one rank alone reads the units of a file in order: it learns each unit's first
 * row by itself. The same on all ranks. */
static bool learns_rows(const rks_build_state *b)
{
    return rks_parts_repaired(b->parts) == NULL &&
           (rks_group_size(b->group) == 1 || b->input->deals_files);
}

static bool is_stream(const rks_build_state *b)
{
    return b->source->ops != NULL && rks_rows_stream(b->input) != RKS_STREAM_NONE;
}

/* COLLECTIVE, if units begin inside a file. Counts the rows of units, except those of parts that
 * were taken over. `status`, and what is returned, are this rank's own. */
static rks_status count_rows(rks_build_state *b, rks_status status, rks_error *err)
{
    size_t units = b->input->unit_count;
    uint64_t *known = NULL;
    if (learns_rows(b)) {
        if (status == RKS_OK)
            b->first_rows = rks_alloc(units, sizeof(*b->first_rows), err);
        return status == RKS_OK && b->first_rows == NULL ? RKS_ERR_MEMORY : status;
    }
    if (status == RKS_OK) {
        known = rks_alloc(units, sizeof(*known), err);
        status = known == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    for (size_t unit = 0; known != NULL && unit < units; unit++) {
        const rks_unit_summary *finished = rks_parts_finished(b->parts, unit);
        known[unit] = finished == NULL ? UINT64_MAX : finished->seen;
    }
    if (known != NULL && rks_parts_repaired(b->parts) != NULL)
        rks_lost_units_seen(b->parts, known, units);
    const rks_counting counting = {
        .known = known, .owners = b->owners, .is_needed = rks_input_begins_inside(b->input)};
    status = rks_input_first_rows(b->group, status, b->input, &counting, &b->first_rows, err);
    rks_free(known);
    return status;
}

static rks_status deal(rks_build_state *b, rks_error *err)
{
    size_t units = b->input->unit_count;
    bool *done = rks_alloc(units, sizeof(*done), err);
    b->owners = rks_alloc(units, sizeof(*b->owners), err);
    rks_status status = done == NULL || b->owners == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK && rks_parts_repaired(b->parts) != NULL) {
        status = rks_lost_units_deal(b->parts, b->input, rks_group_size(b->group), b->owners, err);
    } else if (status == RKS_OK) {
        for (size_t unit = 0; unit < units; unit++)
            done[unit] = rks_parts_finished(b->parts, unit) != NULL;
        status = rks_input_deal(b->input, rks_group_size(b->group), done, b->owners, err);
    }
    for (size_t unit = 0; status == RKS_OK && unit < units; unit++)
        if (b->owners[unit] == rks_group_rank(b->group))
            b->total += b->input->units[unit].size;
    rks_free(done);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

static void report_build_progress(const rks_build_state *b, uint64_t done, uint64_t samples)
{
    const rks_work work = {.done = done, .total = b->total, .samples = samples};
    char text[96];
    if (b->source->ops != NULL)
        snprintf(text, sizeof(text), "%" PRIu64 " samples read", samples);
    else
        snprintf(text, sizeof(text), "%" PRIu64 " of %" PRIu64 " MiB read", done >> 20,
                 b->total >> 20);
    rks_group_tell_progress(b->group, &work, text);
}

static void show(const rks_build_state *b, uint64_t done, uint64_t samples)
{
    const char *phase = b->source->ops != NULL ? "reading" : "build";
    if (b->options.progress != NULL)
        b->options.progress(b->options.progress_user, phase, done, b->total, samples);
}

static rks_status on_progress(void *user, uint64_t bytes, uint64_t samples, rks_error *err)
{
    rks_build_state *b = user;
    uint64_t now = rks_now_ms();
    b->done = bytes;
    b->samples = samples;
    if (now - b->last_tick_ms < 100)
        return RKS_OK;
    b->last_tick_ms = now;
    report_build_progress(b, bytes, samples);
    show(b, bytes, samples);
    return rks_group_must_stop(b->group, err);
}

/* Called while rank 0 has read its share and others have not. */
static void while_others_read(void *user)
{
    const rks_build_state *b = user;
    show(b, b->done, b->samples);
}

static rks_status read_units(rks_build_state *b, rks_error *err)
{
    const rks_ingest_options options = rks_build_ingest_options(&b->options);
    const rks_read_units reading = {
        .input = b->input,
        .parts = b->parts,
        .owners = b->owners,
        .rank = rks_group_rank(b->group),
        .first_rows = b->first_rows,
        .learns_rows = learns_rows(b),
        .max_shard = rks_parts_repaired(b->parts) != NULL ? 0 : b->options.max_shard,
        .threads = b->threads,
        .schema = b->schema,
        .options = &options,
        .bad = &b->bad,
        .page_cache = b->page_cache,
        .tick = on_progress,
        .user = b};
    report_build_progress(b, 0, 0);
    rks_status status =
        is_stream(b) ? rks_row_units_read(&reading, b->input, rks_group_size(b->group), b->more,
                                          &b->samples, err)
        : rks_parts_repaired(b->parts) != NULL ? rks_lost_units_read(&reading, &b->samples, err)
                                               : rks_read_units_run(&reading, &b->samples, err);
    if (status != RKS_OK)
        return status;
    b->done = b->total;
    report_build_progress(b, b->done, b->samples);
    if (b->source->ops != NULL)
        show(b, b->done, b->samples);
    return RKS_OK;
}

/* Reads this rank's share. `status` is its own. COLLECTIVE, if units begin inside a file. */
static rks_status read_share(rks_build_state *b, rks_status status, rks_error *err)
{
    bool repairs_stream = is_stream(b) && rks_parts_repaired(b->parts) != NULL;
    if (status == RKS_OK)
        status = repairs_stream ? rks_lost_stream_begin(b->parts, rks_group_rank(b->group),
                                                        rks_group_size(b->group), err)
                                : deal(b, err);
    status = count_rows(b, status, err);
    if (status == RKS_OK)
        status = read_units(b, err);
    return status;
}

/* A stream that is refused will be another one when it is mended: none of its units stays. What is
 * repaired stays as it is. */
static rks_status discard_if_refused(rks_build_state *b, rks_status status, bool refused)
{
    if (refused && rks_parts_repaired(b->parts) == NULL)
        rks_parts_discard(b->parts);
    return status;
}

/* COLLECTIVE. `status` is this rank's own. *err is never NULL. */
static rks_status read_and_commit(rks_build_state *b, rks_status status, rks_build_report *report,
                                  rks_error *err)
{
    if (b->source->ops != NULL) {
        status = rks_row_units_list(b->group, status, b->input, b->parts, &b->more, err);
        if (status != RKS_OK)
            return status;
    }
    status = read_share(b, status, err);
    if (is_stream(b)) {
        status = rks_row_units_compare(b->group, status, b->input, err);
        if (status != RKS_OK)
            return discard_if_refused(b, status, err->cause == ENOTUNIQ || err->cause == ESTALE);
    }
    if (status == RKS_OK)
        status = rks_parts_seal(b->parts, err);
    if (rks_group_rank(b->group) == 0)
        rks_group_on_wait(b->group, while_others_read, b);
    rks_page_cache_drop_all(b->page_cache, b->input);
    status = rks_parts_commit(b->parts, status, &b->bad, report, err);
    return discard_if_refused(b, status, is_stream(b) && status == RKS_ERR_DATA);
}

/* COLLECTIVE. Reads a stream once more, to find whether the finished dataset is the one that it
 * makes. Any other input is known by its names, or by options->source. */
static rks_status check_kept(rks_build_state *b, rks_status status, rks_error *err)
{
    if (b->source->ops == NULL)
        return status;
    if (status == RKS_OK)
        status = rks_parts_list_kept(b->parts, err);
    status = rks_row_units_list(b->group, status, b->input, b->parts, &b->more, err);
    if (status != RKS_OK || !is_stream(b))
        return status;
    return rks_row_units_compare(b->group, read_units(b, err), b->input, err);
}

static void free_build(rks_build_state *b)
{
    rks_send_ahead_close(b->ahead, false, NULL, NULL, &(rks_sent_ahead){0});
    rks_parts_close(b->parts);
    rks_dataset_free(b->found.dataset);
    rks_dataset_free(b->base);
    rks_free(b->counts);
    json_decref(b->base_options);
    rks_selector_free(b->selector);
    rks_schema_free(b->schema);
    rks_page_cache_free(b->page_cache);
    rks_input_free(b->input);
    rks_buffer_free(&b->bad);
    rks_buffer_free(&b->recorded);
    rks_free(b->directory);
    rks_free(b->listing);
    rks_free(b->inferred);
    rks_free(b->schema_text);
    rks_free(b->options_text);
    rks_free(b->length);
    rks_free(b->first_rows);
    rks_free(b->owners);
}

/* Returns true, on all ranks, if a dataset was made since `inherit` looked, for example by the
 * build that was waited for. The caller then begins anew and inherits from that dataset. */
static bool base_is_new(const rks_build_state *b)
{
    return b->options.append && b->base == NULL && rks_parts_base(b->parts) != NULL;
}

static void fill_report(const rks_build_state *b, const rks_build_report *made,
                        rks_build_report *report)
{
    rks_build_report whole = *made;
    if (b->schema_text != NULL && b->input->format->has_objects)
        rks_build_report_columns(b->schema, b->input->flatten, &whole);
    whole.input_bytes = b->input->bytes;
    whole.hidden = b->input->not_read.hidden;
    whole.linked_folders = b->input->not_read.linked_folders;
    whole.special_files = b->input->not_read.special_files;
    size_t room = report->struct_size;
    memcpy(report, &whole, room < sizeof(whole) ? room : sizeof(whole));
    report->struct_size = room;
}

/* The build has ended, and waits for the shard that goes home. */
static void show_last_shard(void *user, const char *phase, uint64_t done, uint64_t total,
                            uint64_t samples)
{
    const rks_build_state *b = user;
    const rks_work work = {done, total, samples};
    rks_group_tell_progress(b->group, &work, "publishes");
    if (b->options.progress != NULL)
        b->options.progress(b->options.progress_user, phase, done, total, samples);
}

/* COLLECTIVE, if the build has a home. */
static rks_status publish_built(rks_build_state *b, const char *directory, rks_build_report *made,
                                rks_error *err)
{
    rks_sent_ahead ahead;
    if (b->options.home == NULL)
        return RKS_OK;
    rks_send_ahead_close(b->ahead, true, show_last_shard, b, &ahead);
    b->ahead = NULL;
    if (b->options.only_ahead)
        return RKS_OK;
    const rks_publish_options options = {.struct_size = sizeof(options),
                                         .progress = b->options.progress,
                                         .progress_user = b->options.progress_user,
                                         .shards = b->options.shards,
                                         .shard_count = b->options.shard_count,
                                         .storage_options = home_options(b)};
    rks_publish_report published = {.struct_size = sizeof(published)};
    rks_status status =
        rks_publish_built(b->group, directory, b->options.home, &options, &ahead, &published, err);
    made->sent_bytes = published.sent_bytes;
    return status;
}

static rks_status run(rks_group *group, const rks_build_source *from, const char *directory,
                      const rks_build_options *options, rks_build_report *report, rks_error *err)
{
    rks_build_state b = {.group = group, .source = from};
    rks_error unseen = {0};
    if (err == NULL)
        err = &unseen;
    rks_agreed agreed;
    rks_build_report made = {.struct_size = sizeof(made)};
    uint64_t begun = rks_now_ns(), begun_in = rks_group_collectives(group);
    rks_group_announce(group, "looks at its source");
    rks_status status = rks_build_options_take(options, &b.options, err);
    b.given_key = b.options.key;
    b.threads = rks_build_threads(group, &b.options);
    status =
        rks_input_list(group, status, from->paths, from->path_count, &b.options, &b.listing, err);
    if (status == RKS_OK)
        status = rks_build_look(&b, directory, err);
    if (status == RKS_OK && b.options.home != NULL)
        status = rks_publish_check_places(group, b.directory, b.options.home, err);
    status = rks_build_agree(&b, status, &agreed, err);
    rks_status own = status;
    if (status == RKS_OK) {
        own = rks_build_choose(&b, &agreed, err);
        status = open_parts(&b, &own, err);
    }
    if (status == RKS_OK && base_is_new(&b)) {
        free_build(&b);
        return run(group, from, directory, options, report, err);
    }
    const rks_dataset *kept = status == RKS_OK ? rks_parts_kept(b.parts) : NULL;
    if (kept != NULL) {
        status = check_kept(&b, own, err);
        rks_parts_report(b.parts, kept, &made);
        made.kept = true;
    } else if (status == RKS_OK) {
        status = read_and_commit(&b, own, &made, err);
    }
    if (status == RKS_OK)
        status = publish_built(&b, directory, &made, err); /* nothing can fail after this */
    if (status == RKS_OK)
        rks_parts_end_commit(b.parts);
    made.collectives = rks_group_collectives(group) - begun_in;
    made.seconds = (double)(rks_now_ns() - begun) / 1e9;
    if (status == RKS_OK && report != NULL)
        fill_report(&b, &made, report);
    free_build(&b);
    return status;
}

rks_status rks_build(rks_group *group, const char *const *sources, size_t source_count,
                     const char *directory, const rks_build_options *options,
                     rks_build_report *report, rks_error *err)
{
    const rks_build_source files = {.paths = sources, .path_count = source_count};
    if (rks_piped_is_source(sources, source_count))
        return rks_piped_build(group, directory, options, report, err);
    return run(group, &files, directory, options, report, err);
}

rks_status rks_build_input(rks_group *group, const rks_input_ops *ops, void *input,
                           const char *directory, const rks_build_options *options,
                           rks_build_report *report, rks_error *err)
{
    rks_input_ops known = {.struct_size = sizeof(known)};
    memcpy(&known, ops, ops->struct_size < sizeof(known) ? ops->struct_size : sizeof(known));
    const rks_build_source rows = {.ops = &known, .object = input};
    rks_status status = run(group, &rows, directory, options, report, err);
    if (known.close != NULL)
        known.close(input);
    return status;
}
