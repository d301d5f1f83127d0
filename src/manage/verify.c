/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c: rks_verify: is this dataset, or this shard, what was sealed?
 *
 * Every problem with the data is a finding, and the search goes on after it as far as it can.
 * Only if looking itself fails (memory, permission, too many files) is there an error. */
#include "manage/verify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/stream.h"
#include "dataset/dataset.h"
#include "home/address.h"
#include "shard/checksum_file.h"
#include "shard/shard.h"
#include "store/store.h"

/* ---- a dataset ---------------------------------------------------------------------------- */

/* Verifies a shard that lies in one of the folders for shards. */
static rks_status look_in_folders(rks_verify_job *job, const rks_dataset *dataset, uint32_t at,
                                  bool *found, rks_error *err)
{
    rks_status status = RKS_OK;
    *found = false;
    for (size_t i = 0; status == RKS_OK && !*found && i < job->folders.count; i++) {
        struct stat info;
        const char *folder = job->folders.paths[i], *name = dataset->shards[at].name;
        char *stem = rks_format(err, "%s/%s", folder, name);
        char *data = rks_format(err, "%s/%s.rks", folder, name);
        status = stem == NULL || data == NULL ? RKS_ERR_MEMORY : RKS_OK;
        *found = status == RKS_OK && lstat(data, &info) == 0;
        if (*found)
            status = rks_verify_shard(job, stem, dataset, at, err);
        rks_free(stem);
        rks_free(data);
    }
    return status;
}

/* Passes on the ids of the samples in a lost shard, run by run. */
static void list_lost(rks_verify_job *job, const rks_dataset *dataset, uint32_t at)
{
    const rks_verify_units *units = &job->units;
    if (job->options.lost == NULL)
        return;
    job->dataset = dataset;
    job->shard = at;
    job->unit_first_row = job->unit_end_row = 0;
    for (size_t i = units->begin[at]; i < units->begin[at + 1]; i++) {
        const rks_dataset_unit *unit = &dataset->units[units->order[i]];
        int64_t first = -1, next = -1;
        for (uint64_t row = 0; row < unit->summary.samples; row++) {
            int64_t id = rks_verify_sample_id(job, unit->first_row + row);
            if (id < 0)
                continue;
            if (id != next && first >= 0)
                job->options.lost(job->user, (uint64_t)first, (uint64_t)(next - first));
            first = id != next || first < 0 ? id : first;
            next = id + 1;
        }
        if (first >= 0)
            job->options.lost(job->user, (uint64_t)first, (uint64_t)(next - first));
    }
    job->dataset = NULL;
}

static void report_lost(rks_verify_job *job, const rks_verify_beside *beside,
                        const rks_dataset *dataset, uint32_t at, const char *data)
{
    char what[128];
    snprintf(what, sizeof(what), "missing: %s lists this shard, and it is not here%s",
             RKS_VERIFY_DATASET,
             beside->count + job->folders.count > 0 ? ", nor in the other directories" : "");
    const rks_finding finding = {.file = data, .what = what, .sample_id = -1, .lost = true};
    job->findings++;
    if (job->found != NULL)
        job->found(job->user, &finding);
    list_lost(job, dataset, at);
}

/* Handles a shard that is not in the directory. One that no directory has is verified in the
 * folders for shards, or reported, once. */
static rks_status look_beside(rks_verify_job *job, const rks_verify_beside *beside,
                              const rks_dataset *dataset, uint32_t at, const char *data,
                              rks_error *err)
{
    bool found = false;
    rks_status status = rks_verify_beside_has(beside, dataset, at, &found, err);
    if (status == RKS_OK && !found && beside->first)
        status = look_in_folders(job, dataset, at, &found, err);
    if (status != RKS_OK || found || !beside->first)
        return status;
    if (job->counts_missing)
        job->elsewhere++;
    else
        report_lost(job, beside, dataset, at, data);
    return RKS_OK;
}

/* *found: the directory has a copy of the shard, which is verified in its place, as a shard alone:
 * its name and manifest are not those that the dataset lists. */
static rks_status verify_copy(rks_verify_job *job, const char *directory,
                              const rks_dataset *dataset, size_t at, bool *found, rks_error *err)
{
    rks_shard *copy = NULL;
    rks_status status = rks_dataset_open_copies(dataset, directory, at, 1, &copy, err);
    *found = copy != NULL;
    if (copy == NULL)
        return status;
    const char *path = rks_shard_path(copy);
    char *stem = rks_format(err, "%.*s", (int)(strlen(path) - strlen(".rks")), path);
    status = stem == NULL ? RKS_ERR_MEMORY : rks_verify_shard(job, stem, NULL, 0, err);
    rks_shard_close(copy);
    rks_free(stem);
    return status;
}

static rks_status verify_listed(rks_verify_job *job, const char *directory,
                                const rks_dataset *dataset, const rks_verify_beside *beside,
                                uint32_t at, rks_error *err)
{
    struct stat info;
    const char *name = dataset->shards[at].name;
    rks_status status = RKS_ERR_MEMORY;
    char *stem = rks_format(err, "%s/%s", directory, name);
    char *data = rks_format(err, "%s/%s.rks", directory, name);
    if (stem == NULL || data == NULL)
        goto out;
    bool found = lstat(data, &info) == 0 || errno != ENOENT;
    if (found)
        status = rks_verify_shard(job, stem, dataset, at, err);
    else
        status = verify_copy(job, directory, dataset, at, &found, err);
    if (status == RKS_OK && !found)
        status = look_beside(job, beside, dataset, at, data, err);
out:
    rks_free(data);
    rks_free(stem);
    return status;
}

static rks_status verify_all_listed(rks_verify_job *job, const char *directory, uint64_t generation,
                                    const rks_dataset *dataset, rks_error *err)
{
    rks_verify_beside beside;
    rks_status status = rks_verify_beside_open(job->options.together, job->options.together_count,
                                               directory, generation, dataset, &beside, err);
    if (status == RKS_OK)
        status = rks_verify_units_sort(dataset, &job->units, err);
    for (size_t i = 0; status == RKS_OK && i < dataset->shard_count; i++)
        status = verify_listed(job, directory, dataset, &beside, (uint32_t)i, err);
    rks_verify_units_free(&job->units);
    rks_verify_beside_close(&beside);
    return status;
}

/* Reported as a leftover, not as damage: readers never look at it. */
static void report_leftover(rks_verify_job *job, const char *data)
{
    rks_finding finding = {.file = data,
                           .what = "not listed in dataset.json: left by a build that did not end, "
                                   "which the same command goes on with and 'rankstore prune DIR' "
                                   "removes",
                           .sample_id = -1,
                           .leftover = true};
    job->leftovers++;
    if (job->found != NULL)
        job->found(job->user, &finding);
}

/* Reports parts that dataset.json does not list, but are no copies of what it lists; all parts if
 * there is no readable one. */
static rks_status verify_others(rks_verify_job *job, const char *directory,
                                const rks_dataset *dataset, rks_error *err)
{
    char **names = NULL;
    size_t count = 0;
    rks_shard_names listed = {0};
    rks_status status = rks_shard_names_add(&listed, dataset, err);
    if (status == RKS_OK)
        status = rks_dataset_parts(directory, &names, &count, err);
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        if (rks_shard_names_have(&listed, names[i]) ||
            (dataset != NULL && rks_dataset_is_copy(dataset, directory, names[i])))
            continue;
        char *stem = rks_format(err, "%s/%s", directory, names[i]);
        char *data = rks_format(err, "%s/%s.rks", directory, names[i]);
        if (stem == NULL || data == NULL)
            status = RKS_ERR_MEMORY;
        else if (dataset != NULL)
            report_leftover(job, data);
        else
            status = rks_verify_shard(job, stem, NULL, 0, err);
        rks_free(stem);
        rks_free(data);
    }
    rks_shard_names_free(&listed);
    rks_dataset_parts_free(names, count);
    return status;
}

/* Checked on every level: it is small beside the shards, and every reader needs all of it. */
static rks_status verify_excluded(rks_verify_job *job, const char *directory, rks_dataset *dataset,
                                  rks_error *err)
{
    rks_error what = {0};
    char *file = rks_format(err, "%s/%s", directory, dataset->excluded.name);
    if (file == NULL)
        return RKS_ERR_MEMORY;
    rks_status found = rks_dataset_load_excluded(directory, dataset, &what);
    rks_status status = rks_verify_absorb(job, file, 0, found, &what);
    if (status != RKS_OK && err != NULL)
        *err = what;
    rks_free(file);
    return status;
}

/* `generation` 0: the newest, and with it the parts that no dataset.json lists. */
static rks_status verify_dataset(rks_verify_job *job, const char *directory, uint64_t generation,
                                 rks_error *err)
{
    rks_dataset *dataset = NULL;
    rks_error what = {0};
    char *file = rks_format(err, "%s/%s", directory, RKS_VERIFY_DATASET);
    if (file == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = generation == 0
                            ? rks_dataset_load_json(directory, &dataset, &what)
                            : rks_dataset_load_generation(directory, generation, &dataset, &what);
    if (status == RKS_ERR_NOT_FOUND && generation > 0) {
        if (err != NULL)
            *err = what;
        goto out;
    }
    if (status != RKS_OK && status != RKS_ERR_NOT_FOUND)
        status = rks_verify_absorb(job, file, 0, status, &what);
    if (status != RKS_OK) {
        if (err != NULL)
            *err = what;
        goto out;
    }
    if (dataset != NULL) {
        rks_verify_totals(job, file, dataset);
        status = verify_excluded(job, directory, dataset, err);
        if (status == RKS_OK)
            status = rks_verify_index_files(job, directory, dataset, err);
        if (status == RKS_OK)
            status = verify_all_listed(job, directory, generation, dataset, err);
    }
    if (status == RKS_OK && generation == 0)
        status = verify_others(job, directory, dataset, err);
out:
    rks_dataset_free(dataset);
    rks_free(file);
    return status;
}

/* ---- the calls ---------------------------------------------------------------------------- */

/* Returns the size of `path` without the ending of one of a shard's files; 0 if it has none. */
static size_t stem_size(const char *path)
{
    static const char *const endings[] = {".rks", ".sums", ".json"};
    size_t size = strlen(path);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t ending = strlen(endings[i]);
        if (size > ending && strcmp(path + size - ending, endings[i]) == 0)
            return size - ending;
    }
    return 0;
}

static rks_status verify_generation(rks_verify_job *job, const char *path, bool *named,
                                    rks_error *err)
{
    char *directory = rks_strdup(path, err);
    if (directory == NULL)
        return RKS_ERR_MEMORY;
    uint64_t generation = rks_dataset_take_generation(directory);
    *named = generation > 0;
    rks_status status = *named ? verify_dataset(job, directory, generation, err) : RKS_OK;
    rks_free(directory);
    return status;
}

/* Verifies the index files that the dataset in the directory names. */
static rks_status verify_index(rks_verify_job *job, const char *directory, rks_error *err)
{
    rks_dataset *dataset = NULL;
    rks_status status = rks_dataset_load_json(directory, &dataset, err);
    if (status == RKS_OK)
        status = rks_verify_index_files(job, directory, dataset, err);
    rks_dataset_free(dataset);
    return status;
}

/* Verifies DIRECTORY, DIRECTORY@N, DIRECTORY/dataset.json, an index file or one of a shard's three
 * files. */
static rks_status verify_path(rks_verify_job *job, const char *path, rks_error *err)
{
    struct stat info;
    bool generation = false;
    rks_home_address address;
    rks_status status = rks_home_address_of(path, &address, err);
    if (status != RKS_OK)
        return status;
    if (address.stored)
        return rks_verify_stored(job, path, err);
    path = address.path;
    status = verify_generation(job, path, &generation, err);
    if (status != RKS_OK || generation)
        return status;
    if (lstat(path, &info) != 0 && errno == ENOENT)
        return rks_fail(err, RKS_ERR_NOT_FOUND, ENOENT, "%s: no such file or directory", path);
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return verify_dataset(job, path, 0, err);
    bool whole = strcmp(name, RKS_VERIFY_DATASET) == 0, index = rks_index_file_is_name(name);
    size_t size = stem_size(path);
    if (!whole && !index && size == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "%s: neither a dataset's directory nor a file of a shard (NAME.rks)", path);
    char *stem = !whole && !index ? rks_format(err, "%.*s", (int)size, path)
                 : slash == NULL  ? rks_strdup(".", err)
                                  : rks_format(err, "%.*s", (int)(name - path), path);
    if (stem == NULL)
        return RKS_ERR_MEMORY;
    status = whole   ? verify_dataset(job, stem, 0, err)
             : index ? verify_index(job, stem, err)
                     : rks_verify_shard(job, stem, NULL, 0, err);
    rks_free(stem);
    return status;
}

void(rks_verify_options_default)(rks_verify_options *options)
{
    *options = (rks_verify_options){.struct_size = sizeof(*options)};
}

static bool is_good_path(const char *path)
{
    return path != NULL && path[0] != '\0';
}

rks_status rks_verify_with(const char *path, const rks_verify_options *options,
                           rks_finding_fn found, void *user, rks_verify_counts *counts,
                           rks_error *err)
{
    rks_verify_job job = {.found = found, .user = user, .sample_id = -1};
    rks_verify_options_default(&job.options);
    if (options != NULL)
        memcpy(&job.options, options,
               options->struct_size < sizeof(job.options) ? options->struct_size
                                                          : sizeof(job.options));
    int level = (int)job.options.level;
    bool good = is_good_path(path);
    for (size_t i = 0; good && i < job.options.together_count; i++)
        good = is_good_path(job.options.together[i]);
    if (!good || level < RKS_VERIFY_FAST || level > RKS_VERIFY_DEEP)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "verify: no path, or no level %d", level);
    rks_status status = rks_store_read_missing(job.options.missing, &job.counts_missing, err);
    char *none = NULL;
    if (status == RKS_OK)
        status = rks_folders_of_shards(&job.folders, NULL, job.options.shards,
                                       job.options.shard_count, &none, err);
    if (status == RKS_OK)
        status = verify_path(&job, path, err);
    rks_folders_free(&job.folders);
    rks_free(none);
    if (status != RKS_OK || counts == NULL)
        return status;
    rks_verify_counts made = {.struct_size = counts->struct_size,
                              .samples = job.samples,
                              .findings = job.findings,
                              .elsewhere = job.elsewhere,
                              .leftovers = job.leftovers};
    memcpy(counts, &made, made.struct_size < sizeof(made) ? made.struct_size : sizeof(made));
    return RKS_OK;
}

rks_status rks_verify(const char *path, rks_verify_level level, rks_finding_fn found, void *user,
                      uint64_t *samples, uint64_t *findings, rks_error *err)
{
    rks_verify_options options;
    rks_verify_counts counts = {.struct_size = sizeof(counts)};
    rks_verify_options_default(&options);
    options.level = level;
    rks_status status = rks_verify_with(path, &options, found, user, &counts, err);
    if (status != RKS_OK)
        return status;
    if (samples != NULL)
        *samples = counts.samples;
    if (findings != NULL)
        *findings = counts.findings;
    return RKS_OK;
}
