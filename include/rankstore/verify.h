/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/verify.h: whether what lies on disk is what was written, and whether this machine is
 * fit. Part of rankstore.h. */
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

/* One finding. `key` is empty if the bytes lie in no sample. */
typedef struct rks_finding {
    const char *file;
    uint64_t offset;
    const void *key;
    size_t key_size;
    const char *what;
    int64_t sample_id; /* in the dataset; -1 if the bytes lie in no one sample, or a shard's file
                        * was looked at alone */
    bool leftover; /* no damage: a shard that dataset.json does not list, as a build or an append
                    * that failed leaves it; the same command goes on with it, and rks_prune
                    * removes it */
} rks_finding;
typedef void (*rks_finding_fn)(void *user, const rks_finding *finding);

/* Looks at the dataset in `path`, at its generation N ("DIR@N"; parts that others list are no
 * findings then), or at one shard's file. Calls `found` for each problem, and for each leftover;
 * *samples counts what was checked, *findings the problems, without leftovers. RKS_OK also where
 * problems were found; an error only where looking itself failed. Never writes. */
RKS_API rks_status rks_verify(const char *path, rks_verify_level level, rks_finding_fn found,
                              void *user, uint64_t *samples, uint64_t *findings, rks_error *err);

typedef struct rks_verify_options {
    size_t struct_size;
    rks_verify_level level;
    /* Directories that are verified together, each by a call of its own, `path` among them: a shard
     * that is not in `path` may lie in another one that holds the same dataset, as those of ranks
     * with disks of their own do. What none of them has is reported with the first. */
    const char *const *together; /* NULL: `path` alone */
    size_t together_count;
    bool partial; /* a shard that none of them has is counted, and no finding */
} rks_verify_options;

typedef struct rks_verify_counts {
    size_t struct_size;
    uint64_t samples;   /* checked */
    uint64_t findings;  /* problems */
    uint64_t elsewhere; /* shards that were not at hand, with `partial` */
    uint64_t leftovers; /* reported; not problems */
} rks_verify_counts;

RKS_API void rks_verify_options_default(rks_verify_options *options);
RKS_SIZED_DEFAULT(rks_verify_options)
#define rks_verify_options_default(options) rks_verify_options_default_sized(options)
/* rks_verify with options (NULL: the defaults). The caller sets counts->struct_size; NULL: not
 * wanted. */
RKS_API rks_status rks_verify_with(const char *path, const rks_verify_options *options,
                                   rks_finding_fn found, void *user, rks_verify_counts *counts,
                                   rks_error *err);

/* Writes a list of samples that an open can leave out (FORMAT.md): `count` ids of the dataset in
 * `directory`, in any order; `reasons` holds a line for each, or is NULL. Replaces `path` at once
 * or not at all. RKS_ERR_ARGUMENT for an id out of range. */
RKS_API rks_status rks_quarantine_write(const char *path, const char *directory,
                                        const uint64_t *sample_ids, const char *const *reasons,
                                        size_t count, rks_error *err);

/* ---- doctor ---------------------------------------------------------------------------------- */

/* What this machine and job offer, as `doctor --json` prints it: a list of {name, ok, value,
 * advice}. `directory` may be NULL; where given, the disk under it is tried. Not collective; the
 * group may be NULL. Free with rks_release. */
RKS_API rks_status rks_doctor_json(rks_group *group, const char *directory, char **json,
                                   rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
