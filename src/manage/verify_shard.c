/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_shard.c: one shard: its files, its checksums, and what dataset.json says about it. */
#include "manage/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/stream.h"
#include "shard/checksum_file.h"

typedef struct damage_of {
    rks_verify_job *job;
    const char *file;
} damage_of;

static void on_damage(void *user, uint64_t offset, const rks_error *what)
{
    damage_of *damage = user;
    rks_verify_report(damage->job, damage->file, offset, NULL, 0, "%s", what->text);
}

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

/* Makes one finding of neighbouring granules of the file whose checksums are wrong. */
static void report_span(rks_verify_job *job, const char *path, uint64_t from, uint64_t to)
{
    if (from < to)
        rks_verify_report(job, path, from, NULL, 0,
                          "bytes %" PRIu64 " to %" PRIu64 " have changed since it was sealed", from,
                          to - 1);
}

/* A data file and its checksums. */
typedef struct summed_file {
    const char *path;
    int fd;
    uint64_t size;
    const rks_digest *sums;
    uint8_t *granule; /* room for one */
} summed_file;

static rks_status compare_sums(rks_verify_job *job, const summed_file *file, rks_stream *stream,
                               rks_error *err)
{
    uint64_t bad_from = 0;
    uint64_t bad_to = 0;
    rks_status status = RKS_OK;
    for (uint64_t at = 0; at < file->size && status == RKS_OK; at += RKS_SUMS_CHUNK) {
        size_t size = file->size - at < RKS_SUMS_CHUNK ? (size_t)(file->size - at) : RKS_SUMS_CHUNK;
        rks_error what;
        rks_stream_reach(stream, at);
        rks_status got = rks_file_read_at(file->fd, file->path, at, file->granule, size, &what);
        /* What the storage does not give may be right: that is a finding of its own. */
        bool right = got == RKS_ERR_IO ||
                     (got == RKS_OK && rks_digest_equal(rks_checksum128(file->granule, size),
                                                        file->sums[at / RKS_SUMS_CHUNK]));
        if (!right) {
            bad_from = bad_from == bad_to ? at : bad_from;
            bad_to = at + size;
        } else if (bad_from < bad_to) {
            report_span(job, file->path, bad_from, bad_to);
            bad_from = bad_to = 0;
        }
        if (got != RKS_OK) {
            status = rks_verify_absorb(job, file->path, at, got, &what);
            if (status != RKS_OK && err != NULL)
                *err = what;
            if (got == RKS_ERR_CORRUPT)
                break; /* the file ends here */
        }
        if (status == RKS_OK)
            status = rks_check_interrupt(err);
    }
    report_span(job, file->path, bad_from, bad_to);
    return status;
}

static rks_status check_sums(rks_verify_job *job, const shard_files *files,
                             const rks_manifest *manifest, rks_stream *stream, rks_error *err)
{
    rks_digest *sums = NULL;
    uint8_t *granule = NULL;
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
        status = RKS_OK; /* reported, or returned, by the code that opens the shard */
        goto out;
    }
    granule = rks_alloc_raw(RKS_SUMS_CHUNK + RKS_FILE_PAGE, 1, &what);
    if (granule == NULL) {
        status = RKS_ERR_MEMORY;
        goto out;
    }
    const summed_file file = {files->data, fd, manifest->file_size, sums,
                              rks_file_place(granule, 0)};
    status = compare_sums(job, &file, stream, &what);
out:
    if (status != RKS_OK && err != NULL)
        *err = what;
    if (fd >= 0)
        close(fd);
    rks_free(granule);
    rks_free(sums);
    return status;
}

/* Checks that the checksums exist, in the right size, without reading them. */
static void glance_at_sums(rks_verify_job *job, const shard_files *files,
                           const rks_manifest *manifest)
{
    struct stat info;
    uint64_t size = rks_sums_count(manifest->file_size) * RKS_DIGEST_SIZE;
    if (stat(files->sums, &info) != 0)
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

/* Both lists are by unit number: dataset.json has its units in that order. */
static rks_status compare_units(rks_verify_job *job, const rks_shard *shard,
                                const shard_files *files, const rks_dataset *dataset, uint32_t at,
                                rks_error *err)
{
    const rks_unit_list *units = rks_shard_unit_list(shard);
    size_t *order = rks_alloc(units->count, sizeof(*order), err);
    if (order == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < units->count; i++)
        order[i] = i;
    qsort_r(order, units->count, sizeof(*order), by_unit_number, units->summaries);
    size_t count = 0;
    for (size_t i = job->units.begin[at]; i < job->units.begin[at + 1]; i++) {
        const rks_dataset_unit *listed = &dataset->units[job->units.order[i]];
        size_t place = count < units->count ? order[count] : 0;
        count++;
        if (count > units->count ||
            units->summaries[place].unit + dataset->shards[at].first_unit != listed->summary.unit ||
            units->first_rows[place] != listed->first_row ||
            units->summaries[place].samples != listed->summary.samples ||
            !rks_digest_equal(units->summaries[place].digest, listed->summary.digest)) {
            rks_verify_report(job, files->manifest, 0, NULL, 0,
                              "%s: its unit %" PRIu64 " is not as %s has it", files->data,
                              listed->summary.unit, RKS_VERIFY_DATASET);
            count = units->count; /* one such finding for a shard is enough */
            break;
        }
    }
    if (count < units->count)
        rks_verify_report(job, files->manifest, 0, NULL, 0,
                          "%s: %zu units, %s has %zu of this shard", files->data, units->count,
                          RKS_VERIFY_DATASET, count);
    rks_free(order);
    return RKS_OK;
}

/* Compares the shard with what dataset.json says about it. */
static rks_status compare_with_dataset(rks_verify_job *job, const rks_shard *shard,
                                       const shard_files *files, const rks_dataset *dataset,
                                       uint32_t at, rks_error *err)
{
    const rks_manifest *manifest = rks_shard_manifest(shard);
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
                          RKS_VERIFY_DATASET);
    if (rks_shard_unit_list(shard)->count != manifest->unit_count)
        return RKS_OK; /* the unit list was unreadable, which was reported */
    return compare_units(job, shard, files, dataset, at, err);
}

static rks_status verify_bytes(rks_verify_job *job, const shard_files *files,
                               const rks_manifest *manifest, rks_stream *stream, rks_error *err)
{
    rks_stream_begin(stream, files->data, manifest->file_size);
    if (job->options.level >= RKS_VERIFY_FULL)
        return check_sums(job, files, manifest, stream, err);
    glance_at_sums(job, files, manifest);
    rks_stream_look(stream);
    return RKS_OK;
}

static rks_status verify_contents(rks_verify_job *job, const shard_files *files, rks_error *err)
{
    rks_shard *shard = NULL;
    damage_of damage = {job, files->data};
    rks_status status = rks_shard_open_damaged(files->manifest, on_damage, &damage, &shard, err);
    if (status != RKS_OK)
        return rks_verify_absorb(job, files->data, 0, status, err);
    if (job->dataset != NULL)
        status = compare_with_dataset(job, shard, files, job->dataset, job->shard, err);
    if (status == RKS_OK)
        status = rks_verify_samples(job, shard, err);
    if (status == RKS_OK && job->options.level >= RKS_VERIFY_DEEP)
        status = rks_verify_deep(job, shard, err);
    rks_shard_close(shard);
    return status;
}

static rks_status verify_files(rks_verify_job *job, const shard_files *files, rks_stream *stream,
                               rks_error *err)
{
    rks_manifest *manifest = NULL;
    rks_status status = rks_manifest_load(files->manifest, &manifest, err);
    if (status != RKS_OK)
        return rks_verify_absorb(job, files->manifest, 0, status, err);
    status = verify_bytes(job, files, manifest, stream, err);
    rks_manifest_free(manifest);
    return status == RKS_OK ? verify_contents(job, files, err) : status;
}

rks_status rks_verify_shard(rks_verify_job *job, const char *stem, const rks_dataset *dataset,
                            uint32_t at, rks_error *err)
{
    shard_files files = {0};
    rks_stream stream = {.fd = -1};
    rks_error what = {0};
    job->dataset = dataset;
    job->shard = at;
    job->unit_first_row = job->unit_end_row = 0;
    rks_status status = name_files(stem, &files, &what);
    if (status == RKS_OK)
        status = verify_files(job, &files, &stream, &what);
    if (status != RKS_OK && err != NULL)
        *err = what;
    rks_stream_end(&stream);
    free_files(&files);
    return status;
}
