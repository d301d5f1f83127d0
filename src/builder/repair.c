/* SPDX-License-Identifier: Apache-2.0
 *
 * repair.c: rks_repair: finds lost shards, and runs the builds that made them again, with the
 * options that the dataset has recorded. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "builder/build.h"
#include "builder/lost_shards.h"
#include "dataset/build_directory.h"
#include "rankstore/build.h"
#include "store/store.h"

typedef struct repair {
    rks_group *group;
    char *directory;
    const char *const *sources;
    size_t source_count;
    rks_repair_options options;
    rks_dataset *dataset; /* the newest generation */
    rks_lost_shards lost;
    rks_repair_report report;
} repair;

/* ---- options of a build, as it recorded them --------------------------------------------------
 */

static const char *text_of(const json_t *recorded, const char *name)
{
    return json_string_value(json_object_get(recorded, name));
}

static uint64_t number_of(const json_t *recorded, const char *name)
{
    json_int_t number = json_integer_value(json_object_get(recorded, name));
    return number > 0 ? (uint64_t)number : 0;
}

/* Reads what rks_build_options_text wrote. Texts belong to `recorded`; `index` has room for its
 * columns. */
static void read_options(const json_t *recorded, const rks_dataset *dataset, const char **index,
                         rks_build_options *options)
{
    const json_t *names = json_object_get(recorded, "index");
    rks_build_options_default(options);
    for (size_t i = 0; i < json_array_size(names); i++)
        index[i] = json_string_value(json_array_get(names, i));
    options->schema = rks_schema_text(dataset->schema);
    options->index = index;
    options->index_count = json_array_size(names);
    options->format = text_of(recorded, "format");
    options->key = text_of(recorded, "key");
    options->length = text_of(recorded, "length");
    options->length_unit = (uint32_t)number_of(recorded, "length_unit");
    options->where = text_of(recorded, "where");
    options->skip_bad = json_is_true(json_object_get(recorded, "skip_bad"));
    options->min_length = (uint32_t)number_of(recorded, "min_length");
    options->max_length = (uint32_t)number_of(recorded, "max_length");
    options->sample_rate = json_number_value(json_object_get(recorded, "sample_rate"));
    options->sample = number_of(recorded, "sample");
    options->seed = number_of(recorded, "seed");
    options->columns = text_of(recorded, "columns");
    options->json_path = text_of(recorded, "json_path");
    options->flatten = json_is_true(json_object_get(recorded, "flatten"));
    options->dtype = text_of(recorded, "dtype");
    options->extra = text_of(recorded, "extra");
    options->dedup = json_is_true(json_object_get(recorded, "dedup"));
    options->max_sample = RKS_SAMPLE_MAX; /* the samples were small enough once */
}

/* Refuses what only the program that built it can make again. */
static rks_status check_recorded(const repair *r, bool from_memory, const json_t *recorded,
                                 rks_error *err)
{
    bool function = json_is_true(json_object_get(recorded, "filter")) ||
                    json_is_true(json_object_get(recorded, "length_fn"));
    if (!function && !from_memory)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                    "%s: %s, so only the program that built it can repair it: run the same build "
                    "again, and it makes the lost shards alone",
                    r->directory,
                    function ? "a function of the program chose or measured its samples"
                             : "its samples came from a program");
}

/* COLLECTIVE. Runs the build again that made the newest samples of a generation; or, if `first`,
 * the oldest ones, whose unit size is then not known. */
static rks_status build_again(repair *r, const rks_dataset *dataset, bool first, rks_error *err)
{
    rks_build_options options;
    rks_build_report built = {.struct_size = sizeof(built)};
    const char *text =
        first || dataset->added_options == NULL ? dataset->build_options : dataset->added_options;
    json_t *recorded = json_loads(text, 0, NULL);
    const char **counts = NULL;
    size_t counts_count = 0;
    const char **index =
        rks_alloc(json_array_size(json_object_get(recorded, "index")), sizeof(*index), err);
    rks_status status = recorded == NULL || index == NULL
                            ? rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: build options")
                            : check_recorded(r, !first && dataset->unit_size == 0, recorded, err);
    if (status == RKS_OK)
        status = rks_recorded_counts(recorded, &counts, &counts_count, err);
    status = rks_group_agree(r->group, "repair: options", status, err);
    if (status == RKS_OK) {
        read_options(recorded, dataset, index, &options);
        options.counts = counts;
        options.counts_count = counts_count;
        options.unit_size = first ? 0 : dataset->unit_size;
        options.repair = true;
        options.wait = true;
        options.threads = r->options.threads;
        options.max_total = r->options.max_total;
        options.no_lock = r->options.no_lock;
        options.unchecked = r->options.unchecked;
        options.shards = r->options.shards;
        options.shard_count = r->options.shard_count;
        options.progress = r->options.progress;
        options.progress_user = r->options.progress_user;
        status =
            rks_build(r->group, r->sources, r->source_count, r->directory, &options, &built, err);
    }
    if (status == RKS_OK) {
        r->report.shards_rebuilt += built.shards_rebuilt;
        r->report.units_rebuilt += built.units_rebuilt;
    }
    rks_free(index);
    rks_free(counts);
    json_decref(recorded);
    return status;
}

/* ---- which build ------------------------------------------------------------------------------
 */

static bool has_lost(const repair *r, rks_digest build)
{
    for (size_t i = 0; i < r->dataset->shard_count; i++)
        if (r->lost.lost[i] != 0 && rks_digest_equal(rks_dataset_build_of(r->dataset, i), build))
            return true;
    return false;
}

/* Returns true if what was tried last is not the build of the input. */
static bool is_another(rks_status status, const rks_error *err)
{
    return status == RKS_ERR_NOT_FOUND || status == RKS_ERR_UNSUPPORTED ||
           (status == RKS_ERR_ARGUMENT && err->cause == ESTALE);
}

/* COLLECTIVE. Tries the builds that wrote lost shards, the newest first, until one is that of the
 * input. A generation's file names the build that made it; if those are pruned, the options of the
 * first build are still known. */
static rks_status find_build(repair *r, rks_error *err)
{
    rks_status status =
        rks_fail(err, RKS_ERR_NOT_FOUND, 0,
                 "%s: the options of the build that wrote the lost shards are not known any more: "
                 "its generation was pruned; build the dataset anew",
                 r->directory);
    if (has_lost(r, r->dataset->build_id))
        status = build_again(r, r->dataset, false, err);
    uint64_t generation = rks_dataset_number(r->dataset);
    while (is_another(status, err) && --generation > 0) {
        rks_error why;
        rks_dataset *older = NULL;
        rks_found_dataset found;
        rks_store_look(r->directory, generation, &found);
        rks_status looked = rks_store_agree_dataset(r->group, "", &found, &older, &why);
        if (looked == RKS_OK && has_lost(r, older->build_id))
            status = build_again(r, older, false, err);
        rks_dataset_free(older);
        if (looked != RKS_OK && looked != RKS_ERR_NOT_FOUND) {
            *err = why;
            return looked;
        }
    }
    if (is_another(status, err) && r->dataset->added_options != NULL)
        status = build_again(r, r->dataset, true, err);
    return status;
}

/* ---- the whole --------------------------------------------------------------------------------
 */

static void describe_lost(repair *r)
{
    const rks_dataset *dataset = r->dataset;
    rks_repair_report *report = &r->report;
    report->shards = dataset->shard_count;
    report->samples = dataset->count;
    report->units = dataset->unit_count;
    report->lost_shards = r->lost.count;
    for (size_t i = 0; i < dataset->shard_count; i++)
        report->lost_samples += r->lost.lost[i] != 0 ? dataset->shards[i].samples : 0;
    for (size_t i = 0; i < dataset->unit_count; i++)
        report->lost_units += r->lost.lost[dataset->units[i].shard];
    rks_digest_format(dataset->id, report->dataset);
    snprintf(report->made_from, sizeof(report->made_from), "%s", dataset->made_from);
    rks_dataset_put_origins(dataset, r->lost.lost, report->origins, sizeof(report->origins));
}

/* COLLECTIVE. */
static rks_status look_for_all(repair *r, const char *directory, rks_error *err)
{
    rks_found_dataset found = {.directory = directory};
    found.status = rks_directory_expand_target(r->group, directory, &r->directory, &found.error);
    if (found.status == RKS_OK)
        rks_store_look(r->directory, 0, &found);
    rks_status status = rks_store_agree_dataset(r->group, "", &found, &r->dataset, err);
    if (status == RKS_OK)
        status = rks_lost_shards_find(
            r->group, &(rks_shard_search){r->directory, r->options.shards, r->options.shard_count},
            r->dataset, &r->lost, err);
    if (status == RKS_OK)
        describe_lost(r);
    return status;
}

rks_status rks_repair(rks_group *group, const char *directory, const char *const *sources,
                      size_t source_count, const rks_repair_options *options,
                      rks_repair_report *report, rks_error *err)
{
    rks_error unseen = {0};
    repair r = {.group = group,
                .sources = sources,
                .source_count = source_count,
                .options = {.struct_size = sizeof(r.options)},
                .report = {.struct_size = sizeof(r.report)}};
    if (err == NULL)
        err = &unseen;
    if (options != NULL)
        memcpy(&r.options, options,
               options->struct_size < sizeof(r.options) ? options->struct_size : sizeof(r.options));
    uint64_t begun = rks_now_ns();
    rks_status status = look_for_all(&r, directory, err);
    if (status == RKS_OK && r.lost.count > 0 && source_count > 0)
        status = find_build(&r, err);
    r.report.seconds = (double)(rks_now_ns() - begun) / 1e9;
    if (status == RKS_OK && report != NULL) {
        size_t room = report->struct_size;
        memcpy(report, &r.report, room < sizeof(r.report) ? room : sizeof(r.report));
        report->struct_size = room;
    }
    rks_lost_shards_free(&r.lost);
    rks_dataset_free(r.dataset);
    rks_free(r.directory);
    return status;
}
