/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.h: what the parts of rks_verify share: verify.c (datasets), verify_findings.c,
 * verify_shard.c (one shard's files), verify_samples.c (its index, blocks and samples),
 * verify_deep.c (LMDB's own view), verify_index.c (index files), shard_search.c (directories that
 * are verified together), verify_units.c (units by shard), verify_home.c (what lies in an object
 * store).
 */
#ifndef RKS_MANAGE_VERIFY_H
#define RKS_MANAGE_VERIFY_H

#include "dataset/dataset.h"
#include "dataset/search_folders.h"
#include "rankstore/verify.h"
#include "shard/shard_check.h"

#define RKS_VERIFY_DATASET "dataset.json"

/* The units of shard s are those at order[begin[s], begin[s + 1]), in the dataset's order. */
typedef struct rks_verify_units {
    size_t *begin; /* by shard, then the end */
    size_t *order;
    uint64_t *positions; /* by unit: how many stored samples come before it */
} rks_verify_units;
/* Free it also if this fails. */
rks_status rks_verify_units_sort(const rks_dataset *dataset, rks_verify_units *units,
                                 rks_error *err);
void rks_verify_units_free(rks_verify_units *units);

typedef struct rks_verify_job {
    rks_verify_options options;
    bool counts_missing;  /* options.missing is "partial" */
    rks_folders folders;  /* of options.shards and RKS_PATH */
    rks_finding_fn found; /* may be NULL */
    void *user;
    uint64_t samples;
    uint64_t findings;
    uint64_t elsewhere; /* listed shards that no given directory holds, if that is allowed */
    uint64_t leftovers; /* shards that no dataset.json lists */
    /* The dataset of the current shard, and its number there; NULL: the shard is verified alone. */
    const rks_dataset *dataset;
    rks_verify_units units; /* the dataset's, if there is one */
    uint32_t shard;
    int64_t sample_id; /* of the current finding; -1: no sample */
    /* The unit of the last sample that was reported: its rows are first_row to before end_row. Also
     * the position of its first row, and how many runs of excluded samples, and samples in them,
     * come before it. */
    uint64_t unit_position, unit_first_row, unit_end_row, runs_before, excluded_before;
} rks_verify_job;

/* The other directories with a dataset, among those that are verified together. */
typedef struct rks_verify_beside {
    char **directories;
    size_t count;
    bool first; /* the current directory comes before all of them */
} rks_verify_beside;
/* Opens those of `paths`, which may include `directory` itself, or DIRECTORY@N for its generation.
 * Close it also if this fails. */
rks_status rks_verify_beside_open(const char *const *paths, size_t count, const char *directory,
                                  uint64_t generation, const rks_dataset *dataset,
                                  rks_verify_beside *beside, rks_error *err);
/* *found: one of them has the data of the shard, or a copy. */
rks_status rks_verify_beside_has(const rks_verify_beside *beside, const rks_dataset *dataset,
                                 size_t shard, bool *found, rks_error *err);
void rks_verify_beside_close(rks_verify_beside *beside);

/* Reports one finding. `key` may be NULL. */
void rks_verify_report(rks_verify_job *job, const char *file, uint64_t offset, const void *key,
                       size_t key_size, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* Returns the id of a row of the job's shard; -1 if no unit of the dataset has it, or it is
 * excluded. */
int64_t rks_verify_sample_id(rks_verify_job *job, uint64_t row);
/* Makes a finding of an error in the data and returns RKS_OK; returns any other error. */
rks_status rks_verify_absorb(rks_verify_job *job, const char *file, uint64_t offset,
                             rks_status status, const rks_error *what);

/* Verifies the shard whose files begin with `stem`. `dataset` lists it as number `at`; NULL: it is
 * verified alone. */
rks_status rks_verify_shard(rks_verify_job *job, const char *stem, const rks_dataset *dataset,
                            uint32_t at, rks_error *err);
/* Checks that the dataset's numbers and its id follow from its shards and units. */
void rks_verify_totals(rks_verify_job *job, const char *file, const rks_dataset *dataset);
/* Verifies the dataset at a URL, or a generation of it ("URL@N"). */
rks_status rks_verify_stored(rks_verify_job *job, const char *url, rks_error *err);
/* Verifies those index files of the dataset that lie in the directory. */
rks_status rks_verify_index_files(rks_verify_job *job, const char *directory,
                                  const rks_dataset *dataset, rks_error *err);
/* Verifies index segments, blocks and samples of an open shard. */
rks_status rks_verify_samples(rks_verify_job *job, rks_shard *shard, rks_error *err);
/* Opens the file with LMDB and walks all that it holds, in a child that may die or never end. */
rks_status rks_verify_deep(rks_verify_job *job, const rks_shard *shard, rks_error *err);

#endif
