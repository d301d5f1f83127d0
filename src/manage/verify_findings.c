/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_findings.c: problems with the data become findings; what a dataset says of itself must
 * hold together. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "manage/verify.h"

void rks_verify_report(rks_verify_job *job, const char *file, uint64_t offset, const void *key,
                       size_t key_size, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    job->findings++;
    /* An error of another layer names the file, and the finding names it, too. */
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
    const rks_verify_units *units = &job->units;
    bool known = row >= job->unit_first_row && row < job->unit_end_row;
    for (size_t i = units->begin[job->shard]; !known && i < units->begin[job->shard + 1]; i++) {
        const rks_dataset_unit *unit = &job->dataset->units[units->order[i]];
        known = row >= unit->first_row && row - unit->first_row < unit->summary.samples;
        if (known) {
            job->unit_position = units->positions[units->order[i]];
            job->unit_first_row = unit->first_row;
            job->unit_end_row = unit->first_row + unit->summary.samples;
            job->runs_before = job->excluded_before = 0;
        }
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
        return -1; /* the list is damaged, so ids are not known */
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

void rks_verify_totals(rks_verify_job *job, const char *file, const rks_dataset *dataset)
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
