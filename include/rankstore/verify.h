/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/verify.h: checks of a dataset's files, and of this machine. Part of rankstore.h. */
#ifndef RANKSTORE_VERIFY_H
#define RANKSTORE_VERIFY_H

#include "rankstore/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- verifying ------------------------------------------------------------------------------- */

typedef enum rks_verify_level {
    RKS_VERIFY_FAST = 0, /* manifests, sizes, every sample */
    RKS_VERIFY_FULL = 1, /* and every byte of every file by the sums */
    RKS_VERIFY_DEEP = 2, /* and LMDB's own view, in a child process with a time limit */
} rks_verify_level;

/* One finding. `key` is empty if the bytes belong to no sample. */
typedef struct rks_finding {
    const char *file;
    uint64_t offset;
    const void *key;
    size_t key_size;
    const char *what;
    int64_t sample_id; /* in the dataset; -1 if the bytes belong to no single sample, or if a
                        * shard's file was checked alone */
    bool leftover; /* no damage: a shard that dataset.json does not list, left by a build or append
                    * that failed. The same command resumes with it; rks_prune removes it */
    bool lost;     /* a listed shard that is in none of the directories */
} rks_finding;
typedef void (*rks_finding_fn)(void *user, const rks_finding *finding);
/* Samples [first_id, first_id + count) of a lost shard. */
typedef void (*rks_lost_samples_fn)(void *user, uint64_t first_id, uint64_t count);

/* Checks the dataset in `path`, its generation N ("DIR@N"; parts of other generations are then no
 * findings), or one shard's file; or the dataset at a URL: manifests, sums and sizes, and with
 * RKS_VERIFY_FULL every byte of its shards; RKS_VERIFY_DEEP is RKS_ERR_ARGUMENT there. Calls
 * `found` for each problem and each leftover. *samples counts the checked samples, *findings the
 * problems without leftovers. Returns RKS_OK even if it finds problems; an error means that the
 * check itself failed. Never writes. */
RKS_API rks_status rks_verify(const char *path, rks_verify_level level, rks_finding_fn found,
                              void *user, uint64_t *samples, uint64_t *findings, rks_error *err);

typedef struct rks_verify_options {
    size_t struct_size;
    rks_verify_level level;
    /* Directories of one dataset that are verified together, `path` among them, each by a call of
     * its own: those of ranks with their own disks. A shard that is not in `path` may be in another
     * one. A shard that none of them has is reported with the first. */
    const char *const *together; /* NULL: `path` alone */
    size_t together_count;
    /* What a shard is that none of them has: "error", a finding; "partial": it is only counted.
     * Default NULL: "error". */
    const char *missing;
    /* Patterns of folders that may hold shards of the dataset that none of them has, as for
     * rks_store_options; the folders of RKS_PATH come after them. NULL: none. */
    const char *const *shards;
    size_t shard_count;
    /* Called, after the finding of a lost shard, for the samples in it; with rks_verify_with's
     * `user`. NULL: not asked. */
    rks_lost_samples_fn lost;
} rks_verify_options;

typedef struct rks_verify_counts {
    size_t struct_size;
    uint64_t samples;   /* checked */
    uint64_t findings;  /* problems */
    uint64_t elsewhere; /* missing shards, with missing "partial" */
    uint64_t leftovers; /* reported; not problems */
} rks_verify_counts;

RKS_API void rks_verify_options_default(rks_verify_options *options);
RKS_SIZED_DEFAULT(rks_verify_options)
#define rks_verify_options_default(options) rks_verify_options_default_sized(options)
/* Does the same with options (NULL: the defaults). `counts` may be NULL; else set
 * counts->struct_size first. */
RKS_API rks_status rks_verify_with(const char *path, const rks_verify_options *options,
                                   rks_finding_fn found, void *user, rks_verify_counts *counts,
                                   rks_error *err);

/* Writes a list of samples that an open can exclude (FORMAT.md): `count` ids of the dataset in
 * `directory`, in any order. `reasons` has a line for each, or is NULL. It replaces `path`
 * atomically. RKS_ERR_ARGUMENT if an id is out of range. */
RKS_API rks_status rks_quarantine_write(const char *path, const char *directory,
                                        const uint64_t *sample_ids, const char *const *reasons,
                                        size_t count, rks_error *err);

/* ---- doctor ---------------------------------------------------------------------------------- */

/* Returns what this machine and job offer as the JSON of `doctor --json`: a list of {name, ok,
 * value, advice}. `directory` may be NULL; else its disk is tested, or the store that the URL
 * names: a small object is put there, and removed. `group` may be NULL. Not collective. Free *json
 * with rks_release. */
RKS_API rks_status rks_doctor_json(rks_group *group, const char *directory, char **json,
                                   rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
