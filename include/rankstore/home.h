/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/home.h: a home keeps a dataset whole: a directory on a shared file system, or on
 * another disk, or a URL of an object store, that outlives the disks of the nodes. Part of
 * rankstore.h. */
#ifndef RANKSTORE_HOME_H
#define RANKSTORE_HOME_H

#include "rankstore/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- object stores --------------------------------------------------------------------------- */

/* Sets the program, with its arguments (up to 8 words, then NULL), that each rank starts to reach
 * an object store: it speaks the lines of src/home/helper_wire.h. The variable RKS_HOME_HELPER, a
 * program without arguments, comes first. The Python package sets its own. The words are copied;
 * NULL: none. RKS_ERR_ARGUMENT: too many, or too long ones. */
RKS_API rks_status rks_set_store_helper(const char *const *arguments, rks_error *err);

/* ---- publishing ------------------------------------------------------------------------------ */

typedef struct rks_publish_options {
    size_t struct_size;
    bool dry_run; /* looks and counts only; what would be sent is in the report */
    rks_progress_fn progress;
    void *progress_user;
    const char *const *shards; /* folders that may hold shards of the dataset, too, as in
                                * rks_store_options */
    size_t shard_count;
    const char *storage_options; /* of `home`, as in rks_store_options */
} rks_publish_options;

/* The same on all ranks. */
typedef struct rks_publish_report {
    size_t struct_size;
    char dataset[33];     /* the dataset id, 32 hexadecimal digits */
    uint64_t generation;  /* that was published */
    uint64_t before;      /* the generation that home had; 0: none */
    bool nothing_to_do;   /* home had this generation, or a later one, from somewhere else */
    uint64_t shards;      /* of the dataset */
    uint64_t sent_shards; /* of them those that home did not have */
    uint64_t sent_bytes;  /* of all files that were sent, by all ranks */
    uint64_t there_bytes; /* of all files that home had */
} rks_publish_report;

/* COLLECTIVE. Copies the dataset in each rank's `directory` ({rank}, {node} and `*` as in
 * rks_store_open) to `home`, a directory that all ranks see, and that is made if it is not there,
 * or a URL of an object store. One rank sends each shard, and compares every MiB with the shard's
 * sums as it sends it: RKS_ERR_CORRUPT names damage, and nothing of it counts. Files that home has
 * are not sent again, so call it again after it was killed. dataset.json comes last: until then
 * readers see what was there before.
 *
 * A home that has an older generation of the dataset gets those that are newer. RKS_ERR_STATE: home
 * has another dataset, or another process publishes something else there; of two that publish at
 * once one succeeds. RKS_ERR_ARGUMENT: home is the directory, or lies in it, or ranks see different
 * directories as home. RKS_ERR_NOT_FOUND: a shard is on no rank's disk, nor at home.
 * RKS_ERR_TIMEOUT: home is away, or a rank's storage does not answer for the silence limit.
 * `options` and `report` may be NULL. */
RKS_API rks_status rks_publish(rks_group *group, const char *directory, const char *home,
                               const rks_publish_options *options, rks_publish_report *report,
                               rks_error *err);

/* ---- staging --------------------------------------------------------------------------------- */

typedef struct rks_stage_options {
    size_t struct_size;
    uint32_t copies;     /* on how many nodes each shard will be; further ones come from ranks that
                          * have it; default 0: 1 */
    bool everywhere;     /* each node gets all shards; `copies` is ignored */
    uint64_t local_room; /* as in rks_store_options */
    rks_progress_fn progress;
    void *progress_user;
    const char *storage_options; /* of `home`, as in rks_store_options */
} rks_stage_options;

/* The same on all ranks. */
typedef struct rks_stage_report {
    size_t struct_size;
    char dataset[33]; /* the dataset id, 32 hexadecimal digits */
    uint64_t generation;
    uint64_t shards;
    uint64_t bytes;        /* of the shards, each once */
    uint64_t places;       /* local directories */
    uint64_t wanted_bytes; /* of all copies */
    uint64_t here_bytes;   /* of them that were in a local directory before */
    uint64_t home_bytes;   /* that were read from home now */
} rks_stage_report;

/* COLLECTIVE. Brings the shards of the dataset at `home` ("DIR@2": its generation 2) to the ranks'
 * local directories, as rks_store_open with `local` does, and returns when they are there: a job
 * that opens it with the same `local` then reads nothing from home. What has come before is not
 * read again, so call it again after it was killed. `local` may hold {rank} and {node}. Errors are
 * those of that opening; a copy that cannot be made is one, too. `options` and `report` may be
 * NULL.
 *
 * `home` NULL: the dataset that was built in the ranks' directories, `local`, gets further copies
 * of its shards on other nodes (options->copies, options->everywhere), over the ranks' connections:
 * a node may then be lost without a home. RKS_ERR_NOT_FOUND: a shard is in no rank's directory. */
RKS_API rks_status rks_stage(rks_group *group, const char *home, const char *local,
                             const rks_stage_options *options, rks_stage_report *report,
                             rks_error *err);

/* ---- local directories ----------------------------------------------------------------------- */

typedef struct rks_prune_local_options {
    size_t struct_size;
    bool dry_run;                /* looks and counts only */
    const char *storage_options; /* of homes that are object stores, as in rks_store_options */
} rks_prune_local_options;

/* The same on all ranks. */
typedef struct rks_prune_local_report {
    size_t struct_size;
    uint64_t datasets; /* local copies that were looked at */
    uint64_t shards;   /* removed; in a dry run, that would be */
    uint64_t arrivals; /* removed shards of which only a part had come */
    uint64_t files;
    uint64_t bytes; /* that this frees on the disks: none for a file that has another name, as a
                     * shard that was linked from where it was built */
} rks_prune_local_report;

/* COLLECTIVE. Removes the shards in each rank's local directory, of all datasets in it; `local` may
 * also be the folder of one of them, LOCAL/DATASET-ID. Asks each dataset's home first: removes
 * nothing on any rank unless home names each shard, and has it with the same digests and size.
 * Shards of which only a part had come go without that question. home.json and dataset.json stay,
 * so the directory still says where its dataset is kept.
 *
 * RKS_ERR_STATE: a process has a dataset open from there, or home lacks a shard.
 * RKS_ERR_NOT_FOUND: no such directory, or no dataset at home. RKS_ERR_TIMEOUT: home is away, or
 * the directory's storage does not answer for the silence limit.
 * RKS_ERR_UNSUPPORTED: the file system has no locks. `options` and `report` may be NULL. */
RKS_API rks_status rks_prune_local(rks_group *group, const char *local,
                                   const rks_prune_local_options *options,
                                   rks_prune_local_report *report, rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
