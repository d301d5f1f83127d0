/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/store.h: a dataset, open over a group; fetches, batches and views. Part of
 * rankstore.h. */
#ifndef RANKSTORE_STORE_H
#define RANKSTORE_STORE_H

#include "rankstore/batch.h"
#include "rankstore/group.h"
#include "rankstore/index.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rks_store rks_store;

typedef struct rks_store_options {
    size_t struct_size;
    const char *exchange;    /* "auto", "local", "nccl", "mpi", "pull": how the index travels; auto
                              * needs none on one node. "nccl" takes options: "nccl:rails=off,
                              * timeout=SECONDS,slot=BYTES" (docs/exchange.md) */
    bool no_share;           /* fetch all that this rank does not own over TCP, also on one node */
    bool no_check;           /* do not compare each sample with its checksum */
    uint64_t inflight_bytes; /* replies on their way to this rank; default 256 MiB */
    uint32_t fetch_timeout_ms; /* how long an owner that is alive may send none of the requested
                                * samples (its disk hangs). Then the next owner of the shard is
                                * asked; if there is none, the fetch ends with RKS_ERR_TIMEOUT.
                                * Default 0: without limit while it is alive */
    /* A list of samples to exclude, written by rks_quarantine_write; the name may hold {rank} and
     * {node}; NULL: none. A rank that does not see the file uses the other ranks' lists. If lists
     * differ, a sample that any of them names is excluded. Ids do not change: an excluded sample
     * has the length UINT32_MAX and the owner -1, is in no batch (rks_plan_has_absent), and
     * fetching it is RKS_ERR_NOT_FOUND. RKS_ERR_DATA if the list belongs to another dataset. */
    const char *quarantine;
    /* The only columns to read; NULL: all. RKS_ERR_ARGUMENT if no dataset has one of them. */
    const char *const *columns;
    size_t column_count;
    /* Serves this rank's figures as Prometheus text over HTTP, at port metrics_port + N of
     * 127.0.0.1. N is the rank's place among the ranks of its node, from 0. Any user of the machine
     * can read it. RKS_ERR_IO if the port is taken. Default 0: the port in RKS_METRICS (then a
     * taken port is a warning), else none. `rankstore top` needs no port; RKS_TOP=off hides a
     * process. */
    uint32_t metrics_port;
    /* The directory for the node's index, and for the sorted order of plans, if they exceed 1 GiB
     * or half of the available memory (control groups included). They are unnamed files. The name
     * may hold {rank} and {node}, of the node's first rank, which makes the file. RKS_ERR_IO if the
     * directory does not exist, also for a small index. Default NULL: memory, also above 1 GiB if
     * it takes less than a quarter of what is available; else the first of TMPDIR, /tmp and
     * /var/tmp that is on a disk of the node; RKS_ERR_IO if none is. */
    const char *index_dir;
    /* What to do if no rank has some of the shards: "error" (RKS_ERR_NOT_FOUND on all ranks; the
     * text says how many samples they have, and which hosts built them) or "partial": opens the
     * rest. Ids do not change: a sample of a missing shard has the length UINT32_MAX and the owner
     * -1, and is in no batch (rks_plan_has_absent); rks_store_stats counts them. On a network file
     * system the ranks look again for 4 seconds first. With `local` it is "fetch" alone: they are
     * read from home. Default NULL: "error", or "fetch". */
    const char *missing;
    /* Patterns of folders that may hold more of the dataset's shards: a `*` stands for any text in
     * one part of a path, {rank} and {node} for numbers. A rank opens every shard file there that
     * the dataset names, and leaves files of other datasets alone. The order of search, in which
     * the first file of a shard counts: the directory itself, these folders in their order, then
     * those of the variable RKS_PATH (patterns with colons between them). Folders that a rank lacks
     * are skipped. RKS_ERR_ARGUMENT: a pattern fits more than 16,384. NULL: none. Read while the
     * store is opened. */
    const char *const *shards;
    size_t shard_count;
    /* Opens a dataset that is kept at a home, which is `directory`, from local directories: this is
     * one on a disk of the rank's node, and may hold {rank} and {node}. The shards are spread over
     * the ranks' local directories; those that none has are read from home. What has come stays
     * there, in LOCAL/DATASET-ID, and later jobs find it, on whatever ranks. Shards of the same
     * dataset in another folder of it, such as LOCAL/speech, where this node built them, are linked
     * there (hard links) instead. RKS_ERR_ARGUMENT: it is on a network file system. If home is
     * away, and all shards are local, the generation that was opened last opens. NULL: `directory`
     * itself is read. */
    const char *local;
    uint32_t copies; /* with `local`: on how many nodes each shard will be; more than there are
                      * are as many as there are. A further copy comes from a rank that has the
                      * shard, and from home only if that fails. Default 0: 1 */
    /* With `local`: bytes that the dataset may add to this rank's disk. RKS_ERR_IO with the numbers
     * if the parts do not fit, unless `room` says otherwise. Default 0: three quarters of what is
     * free. */
    uint64_t local_room;
    /* If `directory` is a URL (s3://, gs://, az://, https://, ...): what its store needs, such as
     * credentials, as a JSON object; see rks_set_store_helper. They stay secret: no message and no
     * file shows them. Such a home needs `local`; if that is NULL, the variable RKS_LOCAL names the
     * local directory. NULL: what the environment and the machine give. */
    const char *storage_options;
    /* With `local`: brings only the index and what is read, and takes no room on the disk ahead:
     * for programs that look into a dataset. The shards do not become whole. */
    bool on_demand;
    /* With `local`: what to do with shards for which the local disks have no room. "error":
     * RKS_ERR_IO with the numbers. "through": they are read through: the nodes map them at home,
     * which must be a directory, and keep nothing of them but what the page cache has; they are
     * chosen anew at each opening, and what is local already stays. RKS_ERR_ARGUMENT for a URL.
     * Default NULL: "error". */
    const char *room;
} rks_store_options;

RKS_API void rks_store_options_default(rks_store_options *options);
RKS_SIZED_DEFAULT(rks_store_options)
#define rks_store_options_default(options) rks_store_options_default_sized(options)

/* COLLECTIVE. Opens the dataset in `directory` and exchanges the index. Each rank serves the shards
 * that it sees. The name may hold {rank} and {node}; "DIR@2" is generation 2 of DIR, unless a
 * directory has that name. A name with a `*`, if nothing is named so, is ONE dataset whose shards
 * lie in all the folders that it fits: RKS_ERR_STATE names two with different datasets. Samples
 * have the ids 0 to count - 1. The group must outlive the store. The caller owns *store. */
RKS_API rks_status rks_store_open(rks_group *group, const char *directory,
                                  const rks_store_options *options, rks_store **store,
                                  rks_error *err);

/* COLLECTIVE. Opens the datasets of `count` directories as one and copies nothing. Samples of the
 * first directory have the first ids, then come those of the second, and so on. Directories are
 * written as for rks_store_open. `names` are the names of the sources (NULL: the last part of each
 * directory). Samples have the columns of all sources; a column that a source lacks is missing
 * there. Index columns are those that all sources have. A dataset may appear twice, under two
 * names. The strings are copied. A quarantine list may belong to any one of the datasets.
 * RKS_ERR_ARGUMENT names the sources and the column if types differ (`columns` can leave it out),
 * or a name that appears twice. */
RKS_API rks_status rks_store_open_many(rks_group *group, const char *const *directories,
                                       const char *const *names, size_t count,
                                       const rks_store_options *options, rks_store **store,
                                       rks_error *err);

/* COLLECTIVE. Opens the newest generation, that all ranks see, of the `count` directories that
 * `store` was opened from, as rks_store_open or rks_store_open_many would with `options`; a
 * "DIR@2" means DIR. Samples of `store` keep their ids if it is of one dataset. *newer is NULL if
 * `store` has the newest generation. `store` stays open, and all that was made of it valid: close
 * it when its fetches and epochs have ended. RKS_ERR_STATE if a directory now has a dataset that
 * did not grow out of the open one. The caller owns *newer. */
RKS_API rks_status rks_store_refresh(rks_store *store, const char *const *directories, size_t count,
                                     const rks_store_options *options, rks_store **newer,
                                     rks_error *err);

/* COLLECTIVE. Serves the other ranks until all have closed or `timeout_ms` has passed (0: the
 * group's silence_ms), then frees the store. End its fetches and close its epochs first. Batches,
 * views and arrays may outlive it. NULL is accepted. */
RKS_API void rks_store_close(rks_store *store, uint32_t timeout_ms);

/* Makes calls that wait for samples in other threads fail with RKS_ERR_STATE, now and later: those
 * of this store, before it is closed. Without it they wait as long as the storage, or another rank,
 * does not answer. */
RKS_API void rks_store_end_reads(rks_store *store);

/* Announces that this rank no longer needs the store, and waits at most `timeout_ms` (0: not at
 * all) until all ranks have done so. Returns nonzero if all have, or if there are no other ranks; 0
 * if others still need it. The store serves the others until rks_store_close, which does not wait
 * after a nonzero answer. A failure of the group or an interrupt ends the wait. */
RKS_API int rks_store_leave(rks_store *store, uint32_t timeout_ms);

RKS_API uint64_t rks_store_count(const rks_store *store);
/* Returns the number of units (the steps in which builds resume), in the order of sample ids. Sets
 * first_ids[i], for i below `room`, to the first id of unit i; a unit may be empty. */
RKS_API size_t rks_store_units(const rks_store *store, uint64_t *first_ids, size_t room);
RKS_API const char *rks_store_dataset(const rks_store *store); /* 32 hexadecimal digits */
RKS_API const rks_schema *rks_store_schema(const rks_store *store);
RKS_API rks_group *rks_store_group(const rks_store *store);

/* Return `count` entries in the order of ids. The ranks of a node share them. Read-only, valid as
 * long as the store. */
RKS_API const uint32_t *rks_store_lengths(const rks_store *store);
/* Returns the lengths as they were sealed, also of absent samples; UINT32_MAX where that is not
 * known. Plans use them. */
RKS_API const uint32_t *rks_store_sealed_lengths(const rks_store *store);
RKS_API const uint64_t *rks_store_key_hashes(const rks_store *store);
/* Returns an index column: raw values of its type; NULL if no index column has that name. */
RKS_API const void *rks_store_column(const rks_store *store, const char *name, const char **type);

/* Keeps the arrays of these three functions, and plans of the store, valid until rks_index_close,
 * also after the store has been closed. Any thread. The caller owns the result. */
RKS_API rks_index *rks_store_index(rks_store *store);

/* Returns the rank that serves the sample. -1: the id is out of range, no rank serves the shard, or
 * the sample is in quarantine. */
RKS_API int64_t rks_store_owner(const rks_store *store, uint64_t sample_id);

/* Returns the place of the sample's shard in the list of rks_store_info_json, from 0; -1 if the id
 * is out of range. */
RKS_API int64_t rks_store_shard(const rks_store *store, uint64_t sample_id);

/* Returns the key of a sample, stored or derived. If its shard is on another node, the key is
 * fetched from the owner. */
RKS_API rks_status rks_store_key(rks_store *store, uint64_t sample_id, uint8_t key[RKS_KEY_MAX],
                                 size_t *key_size, rks_error *err);

/* Finds the id of the sample with this key. RKS_ERR_NOT_FOUND names the key. RKS_ERR_ARGUMENT names
 * the sources if several have it: use rks_store_find_in. */
RKS_API rks_status rks_store_find(rks_store *store, const void *key, size_t key_size,
                                  uint64_t *sample_id, rks_error *err);

/* A source: a dataset that was opened, alone or as one of several. Strings are the store's. */
typedef struct rks_source {
    size_t struct_size;
    const char *name;
    const char *directory; /* as this rank sees it */
    char dataset[33];      /* its own id */
    uint64_t first;        /* its samples are first .. first + count - 1 */
    uint64_t count;
    uint64_t bytes; /* of columns and keys */
} rks_source;

RKS_API size_t rks_store_sources(const rks_store *store); /* at least 1 */
/* RKS_ERR_ARGUMENT if `number` is not below rks_store_sources. */
RKS_API rks_status rks_store_source(const rks_store *store, size_t number, rks_source *source,
                                    rks_error *err);
/* What lengths of a source's samples count. */
typedef struct rks_source_length {
    size_t struct_size;
    uint32_t unit;    /* what lengths were divided by, from 1 */
    bool by_function; /* a function measured the samples */
    char name[272];   /* "COLUMN", "chars:COLUMN" or "wav:COLUMN"; empty for a function, or if each
                       * has length 1 */
} rks_source_length;

/* RKS_ERR_ARGUMENT if `number` is not below rks_store_sources. Reads no file. */
RKS_API rks_status rks_store_source_length(const rks_store *store, size_t number,
                                           rks_source_length *length, rks_error *err);
/* Returns the number of the sample's source; -1 if the id is out of range. */
RKS_API int64_t rks_store_source_of(const rks_store *store, uint64_t sample_id);
/* rks_store_find among the samples of one source. */
RKS_API rks_status rks_store_find_in(rks_store *store, size_t source, const void *key,
                                     size_t key_size, uint64_t *sample_id, rks_error *err);

/* Parts of a dataset, for training and validation. */
typedef struct rks_split_part {
    const char *name;
    double weight; /* its share of the samples, relative to the others' */
} rks_split_part;

/* Puts each sample into one of `count` parts (1 to 65535) by the hash of its key. With `by`, the
 * hash is that of its value in this column (NULL: none), so that equal values stay together.
 * `part_of` has an entry for each sample of the store: the part's place in `parts`. It depends only
 * on names, weights, seed and key (or value), not on the order of the parts or on other samples. So
 * a sample stays in its part when the dataset grows. A part of weight 0 gets no sample. If `by` is
 * not an index column, each rank that calls reads it from every sample. RKS_ERR_ARGUMENT names the
 * part or the column. Not collective. */
RKS_API rks_status rks_store_split(rks_store *store, const rks_split_part *parts, size_t count,
                                   uint64_t seed, const char *by, uint16_t *part_of,
                                   rks_error *err);

/* Returns the JSON that `info --json` prints: dataset, schema, shards, lengths. Free it with
 * rks_release. */
RKS_API rks_status rks_store_info_json(rks_store *store, char **json, rks_error *err);

/* Figures of this rank since the store was opened. */
typedef struct rks_store_stats {
    size_t struct_size;
    uint64_t samples;      /* delivered */
    uint64_t bytes;        /* payload delivered: column and key bytes */
    uint64_t local_bytes;  /* of them read from a map of this node */
    uint64_t remote_bytes; /* of them received from other ranks */
    uint64_t served_bytes; /* sent to other ranks */
    uint64_t wait_ns;      /* time in which a caller waited for samples */
    uint64_t peak_inflight_bytes;
    uint64_t peak_batch_bytes; /* memory of batches alive at once */
    uint64_t index_bytes_node; /* index memory of this node */
    uint64_t
        exchange_bytes; /* index bytes that this node received from the ranks, headers included */
    char exchange[16];  /* the backend that ran: "shared", "local", "nccl", "mpi", "pull" */
    char exchange_why[128]; /* why that one: "named", "auto: ..." */
    uint64_t quarantined;   /* samples of the dataset that the quarantine list excludes */
    uint64_t collectives;   /* of the store's group since it was opened: rks_group_collectives */
    /* Bytes of samples that this rank has read from its node's disk, also for other ranks, and its
     * read requests (one for adjacent samples). Pages that were in memory do not count. If the
     * system does not count a thread's bytes (/proc/thread-self/io), these are the requested ones.
     */
    uint64_t disk_bytes;
    uint64_t disk_reads;
    uint64_t shards;          /* of the dataset */
    uint64_t missing_shards;  /* of them on no rank's disk (rks_store_options.missing "partial") */
    uint64_t missing_samples; /* of the dataset, in these shards */
    uint64_t home_bytes;      /* of shards that this rank has read from home
                               * (rks_store_options.local) */
    uint64_t arriving_shards; /* of this rank's local directory, which still come from home */
} rks_store_stats;
RKS_API void rks_store_stats_get(rks_store *store, rks_store_stats *stats);

/* ---- measuring the disk ---- */

/* Returns the bytes of the file that hold the sample: its header, columns and key, and at most a
 * few KiB more. The store owns *path. RKS_ERR_NOT_FOUND if the shard is not on this node. */
RKS_API rks_status rks_store_place(const rks_store *store, uint64_t sample_id, const char **path,
                                   uint64_t *offset, uint64_t *size, rks_error *err);

typedef struct rks_cache_report {
    size_t struct_size;
    uint64_t file_bytes;   /* of this rank's shards */
    uint64_t cached_bytes; /* of them still in memory; UINT64_MAX: unknown, the files belong to
                            * another user, or mincore is forbidden */
} rks_cache_report;

/* Drops the pages of this rank's shards from the system's cache. It needs no privileges. Pages that
 * another process maps stay: if several ranks of a node share files, all must call it, agree
 * (rks_group_agree), and call it again. `report` may be NULL. */
RKS_API void rks_store_drop_cache(rks_store *store, rks_cache_report *report);

/* Fetches `count` samples in the order of `sample_ids`. Ids may repeat; count 0 gives an empty
 * batch. All samples arrive, or none. Blocks until then; an owner's silence ends it.
 * RKS_ERR_ARGUMENT if an id is out of range; RKS_ERR_CORRUPT names the sample. The caller owns
 * *batch. */
RKS_API rks_status rks_store_fetch(rks_store *store, const uint64_t *sample_ids, size_t count,
                                   rks_batch **batch, rks_error *err);

/* Starts such a fetch without waiting. The ids are copied. The caller owns *fetch and ends it with
 * exactly one of rks_fetch_wait, which blocks, or rks_fetch_cancel. */
RKS_API rks_status rks_store_fetch_start(rks_store *store, const uint64_t *sample_ids, size_t count,
                                         rks_fetch **fetch, rks_error *err);

/* Opens one sample read-only and without a copy: in the map of its shard if that is on this node,
 * else fetched. Its checksum is compared once, here. Valid until rks_view_free, also after the
 * store has been closed. If the file is truncated meanwhile, the view reads as zeros.
 * RKS_ERR_ARGUMENT if the id is out of range; RKS_ERR_CORRUPT names the sample. The caller owns
 * *view. */
RKS_API rks_status rks_store_view(rks_store *store, uint64_t sample_id, rks_view **view,
                                  rks_error *err);

/* Copies one sample into the caller's memory if that needs no wait: its shard is mapped here, all
 * of this node's files were in memory at the last look, and its record, with padding, fits into
 * `room` bytes at `to` (aligned to 64). Then *done is true, and `values`, one for each column,
 * point into `to`. Nothing is allocated. If *done is false, nothing was read: use rks_store_fetch.
 * Checks and errors are those of a fetch. */
RKS_API rks_status rks_store_read_now(rks_store *store, uint64_t sample_id, void *to, size_t room,
                                      rks_value *values, bool *done, rks_error *err);

/* Fetches and collates: rks_store_fetch and rks_batch_collate in one. Samples of this node go
 * straight from their map into the arrays. The checked bytes are the ones that arrive, even if
 * somebody writes to the file meanwhile; above 64 KiB a sample this holds only if nobody writes to
 * the sealed file. RKS_ERR_IO names the sample if its file was cut or cannot be read. */
RKS_API rks_status rks_store_collate(rks_store *store, const uint64_t *sample_ids, size_t count,
                                     const rks_collate_options *options, rks_arrays **arrays,
                                     rks_error *err);

/* The samples of a batch of a plan, with its pieces and bins. Borrowed. */
typedef struct rks_planned_batch {
    size_t struct_size;
    const uint64_t *sample_ids;
    size_t count;
    const rks_piece *pieces; /* as rks_plan_pieces gives them; NULL: whole samples */
    size_t piece_count;
    const uint32_t *bounds; /* for layout "rows", as rks_plan_bins gives them; NULL: rows are filled
                             * in order */
    size_t bins;
} rks_planned_batch;

/* Does the same for a batch of a plan. RKS_ERR_ARGUMENT if a piece does not lie in its sample. */
RKS_API rks_status rks_store_collate_planned(rks_store *store, const rks_planned_batch *batch,
                                             const rks_collate_options *options,
                                             rks_arrays **arrays, rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
