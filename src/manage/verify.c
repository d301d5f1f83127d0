/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c: rks_verify: is this dataset, or this shard, what was sealed?
 *
 * Every problem with the data is a finding, and the search goes on behind it as far as it can.
 * Only where looking itself fails (memory, permission, too many files) is there an error. */
#include "manage/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
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
#include "shard/sums.h"

static const char DATASET_NAME[] = "dataset.json";

/* ---- findings ----------------------------------------------------------------------------- */

void rks_verify_report(rks_verify_job *job, const char *file, uint64_t offset, const void *key,
                       size_t key_size, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    job->findings++;
    /* An error of another layer names the file, as the finding does. */
    size_t named = strlen(file);
    const char *what = text;
    if (strncmp(text, file, named) == 0 && strncmp(text + named, ": ", 2) == 0)
        what += named + 2;
    rks_finding finding = {.file = file,
                           .offset = offset,
                           .key = key,
                           .key_size = key_size,
                           .what = what,
                           .sample_id = job->sample_id};
    if (job->found != NULL)
        job->found(job->user, &finding);
}

/* Finds the row's unit, unless it is that of the last one. Rows come in order within a unit. */
static bool find_unit(rks_verify_job *job, uint64_t row)
{
    const rks_dataset *dataset = job->dataset;
    uint64_t position = 0;
    bool known = row >= job->unit_first_row && row < job->unit_end_row;
    for (size_t i = 0; !known && i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        known = unit->shard == job->shard && row >= unit->first_row &&
                row - unit->first_row < unit->summary.samples;
        if (known) {
            job->unit_position = position;
            job->unit_first_row = unit->first_row;
            job->unit_end_row = unit->first_row + unit->summary.samples;
            job->runs_before = job->excluded_before = 0;
        }
        position += unit->summary.samples;
    }
    return known;
}

int64_t rks_verify_sample_id(rks_verify_job *job, uint64_t row)
{
    if (job->dataset == NULL || !find_unit(job, row))
        return -1;
    const rks_excluded *excluded = &job->dataset->excluded;
    uint64_t position = job->unit_position + row - job->unit_first_row;
    if (excluded->samples > 0 && excluded->runs == NULL)
        return -1; /* the list is damaged: ids are not known */
    for (; excluded->samples > 0 && job->runs_before < excluded->run_count; job->runs_before++) {
        const rks_excluded_run *run = &excluded->runs[job->runs_before];
        if (position < run->first)
            break;
        if (position - run->first < run->count)
            return -1;
        job->excluded_before += run->count;
    }
    return (int64_t)(position - job->excluded_before);
}

rks_status rks_verify_absorb(rks_verify_job *job, const char *file, uint64_t offset,
                             rks_status status, const rks_error *what)
{
    bool of_the_data = status == RKS_ERR_CORRUPT || status == RKS_ERR_NOT_FOUND ||
                       status == RKS_ERR_UNSUPPORTED || status == RKS_ERR_DATA ||
                       (status == RKS_ERR_IO && what->cause == EIO);
    if (status == RKS_OK || !of_the_data)
        return status;
    rks_verify_report(job, file, offset, NULL, 0, "%s", what->text);
    return RKS_OK;
}

typedef struct damage_of {
    rks_verify_job *job;
    const char *file;
} damage_of;

static void on_damage(void *user, uint64_t offset, const rks_error *what)
{
    damage_of *damage = user;
    rks_verify_report(damage->job, damage->file, offset, NULL, 0, "%s", what->text);
}

/* ---- one shard's files -------------------------------------------------------------------- */

typedef struct shard_files {
    char *data;
    char *sums;
    char *manifest;
} shard_files;

static void free_files(shard_files *files)
{
    rks_free(files->data);
    rks_free(files->sums);
    rks_free(files->manifest);
}

static rks_status name_files(const char *stem, shard_files *files, rks_error *err)
{
    files->data = rks_format(err, "%s.rks", stem);
    files->sums = rks_format(err, "%s.sums", stem);
    files->manifest = rks_format(err, "%s.json", stem);
    return files->data == NULL || files->sums == NULL || files->manifest == NULL ? RKS_ERR_MEMORY
                                                                                 : RKS_OK;
}

/* Neighbouring pieces of the file whose sum is wrong make one finding. */
static void report_span(rks_verify_job *job, const shard_files *files, uint64_t from, uint64_t to)
{
    if (from < to)
        rks_verify_report(job, files->data, from, NULL, 0,
                          "bytes %" PRIu64 " to %" PRIu64 " have changed since it was sealed", from,
                          to - 1);
}

static rks_status compare_sums(rks_verify_job *job, const shard_files *files, int fd,
                               rks_stream *stream, uint64_t file_size, const rks_digest *sums,
                               uint8_t *piece, rks_error *err)
{
    uint64_t bad_from = 0;
    uint64_t bad_to = 0;
    rks_status status = RKS_OK;
    for (uint64_t at = 0; at < file_size && status == RKS_OK; at += RKS_SUMS_CHUNK) {
        size_t size = file_size - at < RKS_SUMS_CHUNK ? (size_t)(file_size - at) : RKS_SUMS_CHUNK;
        rks_error what;
        rks_stream_reach(stream, at);
        rks_status got = rks_file_read_at(fd, files->data, at, piece, size, &what);
        bool right = got == RKS_OK &&
                     rks_digest_equal(rks_checksum128(piece, size), sums[at / RKS_SUMS_CHUNK]);
        if (!right) {
            bad_from = bad_from == bad_to ? at : bad_from;
            bad_to = at + size;
        } else if (bad_from < bad_to) {
            report_span(job, files, bad_from, bad_to);
            bad_from = bad_to = 0;
        }
        if (got != RKS_OK) {
            status = rks_verify_absorb(job, files->data, at, got, &what);
            if (status != RKS_OK && err != NULL)
                *err = what;
            if (got == RKS_ERR_CORRUPT)
                break; /* the file ends here */
        }
        if (status == RKS_OK)
            status = rks_check_interrupt(err);
    }
    report_span(job, files, bad_from, bad_to);
    return status;
}

static rks_status check_sums(rks_verify_job *job, const shard_files *files,
                             const rks_manifest *manifest, rks_stream *stream, rks_error *err)
{
    rks_digest *sums = NULL;
    uint8_t *piece = NULL;
    int fd = -1;
    rks_error what;
    rks_status status =
        rks_sums_load(files->sums, manifest->file_size, manifest->sums, &sums, &what);
    if (status != RKS_OK) {
        status = rks_verify_absorb(job, files->sums, 0, status, &what);
        goto out;
    }
    status = rks_file_open(files->data, &fd, NULL, &what);
    if (status != RKS_OK) {
        status = RKS_OK; /* said, or returned, by who opens the shard */
        goto out;
    }
    piece = rks_alloc_raw(RKS_SUMS_CHUNK, 1, &what);
    status = piece == NULL ? RKS_ERR_MEMORY
                           : compare_sums(job, files, fd, stream, manifest->file_size, sums, piece,
                                          &what);
out:
    if (status != RKS_OK && err != NULL)
        *err = what;
    if (fd >= 0)
        close(fd);
    rks_free(piece);
    rks_free(sums);
    return status;
}

/* Without reading them: are they there, in the right size? */
static void glance_at_sums(rks_verify_job *job, const shard_files *files,
                           const rks_manifest *manifest)
{
    struct stat info;
    uint64_t size = rks_sums_count(manifest->file_size) * RKS_DIGEST_SIZE;
    if (lstat(files->sums, &info) != 0)
        rks_verify_report(job, files->sums, 0, NULL, 0, "%s: no such file", files->sums);
    else if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != size)
        rks_verify_report(job, files->sums, 0, NULL, 0, "%s: not a file of %" PRIu64 " bytes",
                          files->sums, size);
}

static int by_unit_number(const void *a, const void *b, void *user)
{
    const rks_unit_summary *units = user;
    uint64_t left = units[*(const size_t *)a].unit;
    uint64_t right = units[*(const size_t *)b].unit;
    return (left > right) - (left < right);
}

/* Both lists by unit number: dataset.json has its units in that order. */
static rks_status compare_units(rks_verify_job *job, const rks_shard *shard,
                                const shard_files *files, const rks_dataset *dataset, uint32_t at,
                                rks_error *err)
{
    const rks_unit_list *units = &shard->units;
    size_t *order = rks_alloc(units->count, sizeof(*order), err);
    if (order == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < units->count; i++)
        order[i] = i;
    qsort_r(order, units->count, sizeof(*order), by_unit_number, units->summaries);
    size_t count = 0;
    for (size_t i = 0; i < dataset->unit_count; i++) {
        const rks_dataset_unit *listed = &dataset->units[i];
        if (listed->shard != at)
            continue;
        size_t place = count < units->count ? order[count] : 0;
        count++;
        if (count > units->count ||
            units->summaries[place].unit + dataset->shards[at].first_unit != listed->summary.unit ||
            units->first_rows[place] != listed->first_row ||
            units->summaries[place].samples != listed->summary.samples ||
            !rks_digest_equal(units->summaries[place].digest, listed->summary.digest)) {
            rks_verify_report(job, files->manifest, 0, NULL, 0,
                              "%s: its unit %" PRIu64 " is not as %s has it", files->data,
                              listed->summary.unit, DATASET_NAME);
            count = units->count; /* one such finding a shard is enough */
            break;
        }
    }
    if (count < units->count)
        rks_verify_report(job, files->manifest, 0, NULL, 0,
                          "%s: %zu units, %s has %zu of this shard", files->data, units->count,
                          DATASET_NAME, count);
    rks_free(order);
    return RKS_OK;
}

/* Against what dataset.json says of it. */
static rks_status compare_with_dataset(rks_verify_job *job, const rks_shard *shard,
                                       const shard_files *files, const rks_dataset *dataset,
                                       uint32_t at, rks_error *err)
{
    const rks_manifest *manifest = shard->manifest;
    const rks_dataset_shard *listed = &dataset->shards[at];
    const char *differs = !rks_digest_equal(manifest->shard_id, listed->id)       ? "shard id"
                          : !rks_digest_equal(manifest->digest, listed->manifest) ? "manifest"
                          : !rks_digest_equal(manifest->build_id, rks_dataset_build_of(dataset, at))
                              ? "build id"
                          : manifest->samples != listed->samples ? "sample count"
                          : manifest->bytes != listed->bytes     ? "byte count"
                          : manifest->largest != listed->largest ? "size of the largest record"
                          : rks_shard_file_bytes(shard) != listed->file_bytes ? "file size"
                                                                              : NULL;
    if (differs != NULL)
        rks_verify_report(job, files->manifest, 0, NULL, 0,
                          "%s: another %s than %s has for this shard", files->manifest, differs,
                          DATASET_NAME);
    if (shard->units.count != manifest->unit_count)
        return RKS_OK; /* its unit list was unreadable, which was said */
    return compare_units(job, shard, files, dataset, at, err);
}

/* `dataset` may be NULL: the shard alone. */
static rks_status verify_shard(rks_verify_job *job, const char *stem, const rks_dataset *dataset,
                               uint32_t at, rks_error *err)
{
    shard_files files = {0};
    rks_manifest *manifest = NULL;
    rks_shard *shard = NULL;
    rks_stream stream = {.fd = -1};
    rks_error what = {0};
    job->dataset = dataset;
    job->shard = at;
    job->unit_first_row = job->unit_end_row = 0;
    rks_status status = name_files(stem, &files, &what);
    if (status == RKS_OK) {
        status = rks_manifest_load(files.manifest, &manifest, &what);
        if (status != RKS_OK) {
            status = rks_verify_absorb(job, files.manifest, 0, status, &what);
            goto out;
        }
    }
    if (status == RKS_OK)
        rks_stream_begin(&stream, files.data, manifest->file_size);
    if (status == RKS_OK && job->options.level >= RKS_VERIFY_FULL)
        status = check_sums(job, &files, manifest, &stream, &what);
    else if (status == RKS_OK)
        glance_at_sums(job, &files, manifest);
    if (status == RKS_OK && job->options.level < RKS_VERIFY_FULL)
        rks_stream_look(&stream);
    if (status != RKS_OK)
        goto out;
    damage_of damage = {job, files.data};
    status = rks_shard_open_damaged(files.manifest, on_damage, &damage, &shard, &what);
    if (status != RKS_OK) {
        status = rks_verify_absorb(job, files.data, 0, status, &what);
        goto out;
    }
    if (dataset != NULL)
        status = compare_with_dataset(job, shard, &files, dataset, at, &what);
    if (status == RKS_OK)
        status = rks_verify_samples(job, shard, &what);
    if (status == RKS_OK && job->options.level >= RKS_VERIFY_DEEP)
        status = rks_verify_deep(job, shard, &what);
out:
    if (status != RKS_OK && err != NULL)
        *err = what;
    rks_shard_close(shard);
    rks_stream_end(&stream);
    rks_manifest_free(manifest);
    free_files(&files);
    return status;
}

/* ---- a dataset ---------------------------------------------------------------------------- */

/* A shard that is not here. What no directory has is told of once. */
static rks_status look_beside(rks_verify_job *job, const rks_verify_beside *beside,
                              const char *data, const char *name, rks_error *err)
{
    bool found = false;
    rks_status status = rks_verify_beside_has(beside, name, &found, err);
    if (status != RKS_OK || found || !beside->first)
        return status;
    if (job->options.partial)
        job->elsewhere++;
    else
        rks_verify_report(job, data, 0, NULL, 0,
                          "missing: %s lists this shard, and it is not here%s", DATASET_NAME,
                          beside->count > 0 ? ", nor in the other directories" : "");
    return RKS_OK;
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
    status = RKS_OK;
    if (lstat(data, &info) != 0 && errno == ENOENT)
        status = look_beside(job, beside, data, name, err);
    else
        status = verify_shard(job, stem, dataset, at, err);
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
    for (size_t i = 0; status == RKS_OK && i < dataset->shard_count; i++)
        status = verify_listed(job, directory, dataset, &beside, (uint32_t)i, err);
    rks_verify_beside_close(&beside);
    return status;
}

static bool is_listed(const rks_dataset *dataset, const char *name)
{
    for (size_t i = 0; i < dataset->shard_count; i++)
        if (strcmp(dataset->shards[i].name, name) == 0)
            return true;
    return false;
}

/* Readers never look at it: no damage. */
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

/* Parts that dataset.json does not know; where there is no readable one, all of them. */
static rks_status verify_others(rks_verify_job *job, const char *directory,
                                const rks_dataset *dataset, rks_error *err)
{
    char **names = NULL;
    size_t count = 0;
    rks_status status = rks_dataset_parts(directory, &names, &count, err);
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        if (dataset != NULL && is_listed(dataset, names[i]))
            continue;
        char *stem = rks_format(err, "%s/%s", directory, names[i]);
        char *data = rks_format(err, "%s/%s.rks", directory, names[i]);
        if (stem == NULL || data == NULL)
            status = RKS_ERR_MEMORY;
        else if (dataset != NULL)
            report_leftover(job, data);
        else
            status = verify_shard(job, stem, NULL, 0, err);
        rks_free(stem);
        rks_free(data);
    }
    rks_dataset_parts_free(names, count);
    return status;
}

static void check_totals(rks_verify_job *job, const char *file, const rks_dataset *dataset)
{
    uint64_t shards = 0;
    uint64_t units = 0;
    for (size_t i = 0; i < dataset->shard_count; i++)
        shards += dataset->shards[i].samples;
    for (size_t i = 0; i < dataset->unit_count; i++)
        units += dataset->units[i].summary.samples;
    uint64_t stored = rks_dataset_stored(dataset);
    if (shards != stored || units != stored)
        rks_verify_report(job, file, 0, NULL, 0,
                          "%s: %" PRIu64 " samples, its shards have %" PRIu64
                          " and its units %" PRIu64,
                          file, stored, shards, units);
    if (!rks_digest_equal(rks_dataset_id(dataset), dataset->id))
        rks_verify_report(job, file, 0, NULL, 0, "%s: its id does not follow from its units", file);
}

/* Small beside the shards, and every reader needs it whole: looked at on every level. */
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
    char *file = rks_format(err, "%s/%s", directory, DATASET_NAME);
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
        check_totals(job, file, dataset);
        status = verify_excluded(job, directory, dataset, err);
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

/* Size of `path` without the ending of one of a shard's files; 0: it has none. */
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

/* DIRECTORY, DIRECTORY@N, DIRECTORY/dataset.json or one of a shard's three files. */
static rks_status verify_path(rks_verify_job *job, const char *path, rks_error *err)
{
    struct stat info;
    bool generation = false;
    rks_status status = verify_generation(job, path, &generation, err);
    if (status != RKS_OK || generation)
        return status;
    if (lstat(path, &info) != 0 && errno == ENOENT)
        return rks_fail(err, RKS_ERR_NOT_FOUND, ENOENT, "%s: no such file or directory", path);
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return verify_dataset(job, path, 0, err);
    bool whole = strcmp(name, DATASET_NAME) == 0;
    size_t size = stem_size(path);
    if (!whole && size == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "%s: neither a dataset's directory nor a file of a shard (NAME.rks)", path);
    char *stem = !whole          ? rks_format(err, "%.*s", (int)size, path)
                 : slash == NULL ? rks_strdup(".", err)
                                 : rks_format(err, "%.*s", (int)(name - path), path);
    if (stem == NULL)
        return RKS_ERR_MEMORY;
    status = whole ? verify_dataset(job, stem, 0, err) : verify_shard(job, stem, NULL, 0, err);
    rks_free(stem);
    return status;
}

void rks_verify_options_default(rks_verify_options *options)
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
    rks_status status = verify_path(&job, path, err);
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
