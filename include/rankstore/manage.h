/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/manage.h: datasets on disk: forgetting generations, merging, comparing. Part of
 * rankstore.h. */
#ifndef RANKSTORE_MANAGE_H
#define RANKSTORE_MANAGE_H

#include "rankstore/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- describing ------------------------------------------------------------------------------ */

/* Returns what dataset.json says as JSON, from one read of it and its lists: no shard is opened,
 * and no group is needed. `directory` is as it is, without {rank} or {node}; "DIR@2" is a
 * generation. Members are named like those of rks_store_info_json: schema_version (1), directory,
 * dataset (its id), generation, samples, bytes, file_bytes, schema, keys ("derived" or "stored"),
 * index, build (its options), length (what lengths count, in words), units, filtered, bad,
 * duplicates, sampled_out and, if recorded, unit_size. Others are length_column ("COLUMN",
 * "chars:COLUMN" or "wav:COLUMN"; null for a function, or for 1 each), length_unit and, if
 * recorded, made_from. RKS_ERR_NOT_FOUND: no dataset is there. RKS_ERR_CORRUPT names a damaged
 * file. Free *json with rks_release. */
RKS_API rks_status rks_dataset_info_json(const char *directory, char **json, rks_error *err);

/* Returns where the shards of a dataset lie, as JSON: schema_version (1), dataset, generation, home
 * (null: it has none, or none is known), and two lists. places: {node, host, directory, home,
 * ranks, whole (shards), bytes}, one for each directory. shards: {name, id, bytes, built
 * ("HOST:DIRECTORY" of the build that made it, or null), places: [{place (its number), bytes (that
 * are there)}]}; of a shard that still arrives a part is there. Free *json with rks_release.
 *
 * The first one looks into directories of this machine, without a group: all of one dataset, whose
 * newest generation in the first one counts. RKS_ERR_NOT_FOUND: one has no dataset.
 * RKS_ERR_ARGUMENT: one has another dataset. */
RKS_API rks_status rks_placement_json(const char *const *directories, size_t count, char **json,
                                      rks_error *err);
/* COLLECTIVE. The directories of all ranks; the same text on each. */
RKS_API rks_status rks_store_placement_json(rks_store *store, char **json, rks_error *err);

/* ---- generations ----------------------------------------------------------------------------- */

/* A file that goes: its path or URL, and its bytes. Called on the caller's thread, before it is
 * removed, on the rank that removes it. */
typedef void (*rks_pruned_fn)(void *user, const char *file, uint64_t bytes);

typedef struct rks_prune_options {
    size_t struct_size;
    uint64_t keep;      /* generations that stay, the newest ones; 0: all */
    bool dry_run;       /* names and counts only */
    bool no_lock;       /* as rks_build_options.no_lock; a URL has no lock */
    rks_pruned_fn each; /* NULL: none */
    void *user;
    const char *storage_options; /* of a URL, as in rks_store_options */
} rks_prune_options;

typedef struct rks_prune_report {
    size_t struct_size;
    uint64_t generations; /* forgotten, in all ranks' directories */
    uint64_t files; /* removed: shards that no generation names, unfinished parts, leftovers of
                     * killed processes */
    uint64_t bytes;
} rks_prune_report;

/* COLLECTIVE. Forgets old generations in each rank's `directory`, and removes files that no other
 * generation names. The newest generation always stays. If it is killed, each generation is whole
 * or forgotten; call it again to finish. RKS_ERR_STATE if a build runs there, or if somebody
 * publishes to it; RKS_ERR_NOT_FOUND if there is no dataset (an unfinished build keeps its parts).
 * `options` and `report` may be NULL.
 *
 * `directory` may be the URL of a home, the same on all ranks; rank 0 prunes it. RKS_ERR_IO: the
 * credential may not list, write or remove files there; nothing was removed then.
 * RKS_ERR_TIMEOUT: the store is away. Jobs that still bring shards of a forgotten generation end
 * with an error; what has come to their local directories stays. */
RKS_API rks_status rks_prune(rks_group *group, const char *directory,
                             const rks_prune_options *options, rks_prune_report *report,
                             rks_error *err);

/* ---- merging --------------------------------------------------------------------------------- */

typedef struct rks_merge_options {
    size_t struct_size;
    bool copy; /* copies shards; default: links them if source and target are on one file system */
    rks_progress_fn progress;
    void *progress_user;
    bool no_lock; /* as rks_build_options.no_lock */
} rks_merge_options;

typedef struct rks_merge_report {
    size_t struct_size;
    uint64_t samples;
    uint64_t shards;
    uint64_t linked_bytes; /* of files that are links of the sources', this rank */
    uint64_t copied_bytes;
    char dataset[33]; /* the dataset id, 32 hexadecimal digits */
} rks_merge_report;

/* COLLECTIVE. Makes one dataset in `target` of `count` datasets, 2 or more, without reading a
 * sample. It links or copies the sources' sealed shards and writes a new dataset.json. Samples of
 * the first source come first. Each rank adds the shards that it sees ({rank}, {node} and "DIR@2"
 * as in rks_store_open). RKS_ERR_ARGUMENT if a dataset is in `target`, or if sources differ in
 * schema, index columns, kind of keys or, if their builds were given them, `length` and
 * `length_unit`. RKS_ERR_DATA names a key that two sources have. `options` and `report` may be
 * NULL. Call it again after it was killed. */
RKS_API rks_status rks_merge(rks_group *group, const char *const *sources, size_t count,
                             const char *target, const rks_merge_options *options,
                             rks_merge_report *report, rks_error *err);

/* ---- comparing ------------------------------------------------------------------------------- */

typedef enum rks_difference {
    RKS_ONLY_IN_A = 0, /* the key is in `a` alone */
    RKS_ONLY_IN_B = 1,
    RKS_CHANGED = 2, /* the key is in both, with other contents */
} rks_difference;

/* One difference. An id is UINT64_MAX if that store lacks the key. Valid during the call. */
typedef void (*rks_diff_fn)(void *user, rks_difference kind, const void *key, size_t key_size,
                            uint64_t id_a, uint64_t id_b);

typedef struct rks_diff_options {
    size_t struct_size;
    const char *const *columns; /* compare only these; NULL: all of both */
    size_t column_count;
    uint64_t head; /* report at most so many differences of each kind; default 10 */
    rks_progress_fn progress;
    void *progress_user;
} rks_diff_options;

RKS_API void rks_diff_options_default(rks_diff_options *options);
RKS_SIZED_DEFAULT(rks_diff_options)
#define rks_diff_options_default(options) rks_diff_options_default_sized(options)

typedef struct rks_diff_report {
    size_t struct_size;
    uint64_t same; /* keys with the same contents in both */
    uint64_t only_a;
    uint64_t only_b;
    uint64_t changed;
    char columns[512]; /* columns that only one store has, or whose types differ: "x: int64, not in
                        * b; y: int32 in a, int64 in b"; may be cut. Contents are compared over the
                        * other columns */
} rks_diff_report;

/* COLLECTIVE. Compares the samples of two stores of one group, by key and contents. Order, lengths,
 * shards and ranks do not matter, nor the order of columns, nor `?` in types, nor a column
 * "__key__" that repeats the keys. Samples in a store's quarantine are ignored. Every rank reads
 * the samples that it serves. Rank 0 compares, and only it calls `found`. It takes 14 bytes a
 * sample of `b`, above 96 MiB in a file that may be paged out. All ranks get the same report.
 * RKS_ERR_ARGUMENT if neither store has a column; a damaged sample is an error that names it. */
RKS_API rks_status rks_diff(rks_store *a, rks_store *b, const rks_diff_options *options,
                            rks_diff_fn found, void *user, rks_diff_report *report, rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
