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
    bool partial;            /* open although shards are missing; ids do not change */
    uint64_t inflight_bytes; /* replies on their way to this rank; default 256 MiB */
    uint32_t fetch_timeout_ms; /* how long an owner that beats may send nothing of the samples that
                                * were asked of it (its disk hangs): then the next owner of the
                                * shard is asked; if there is none the fetch ends with
                                * RKS_ERR_TIMEOUT. Default 0: as long as it beats */
    /* A list of samples to exclude, as rks_quarantine_write makes it; may hold {rank} and
     * {node}; NULL: none. A rank that does not see it takes the others'; where lists differ, what
     * any of them names is excluded. Ids do not change: such a sample has the length UINT32_MAX and
     * the owner -1, is never planned, and a fetch of it is RKS_ERR_NOT_FOUND. RKS_ERR_DATA: a list
     * of another dataset. */
    const char *quarantine;
    /* Samples have these columns alone; NULL: all. RKS_ERR_ARGUMENT for one that no dataset has. */
    const char *const *columns;
    size_t column_count;
    /* Prometheus text of this rank's figures over HTTP, at port metrics_port + N of 127.0.0.1; N is
     * the rank's place among the ranks of its node, from 0. Any user of the machine can read it. A
     * port that is taken is RKS_ERR_IO. Default 0: what RKS_METRICS says (a port that is taken is
     * a warning then), else none. `rankstore top` needs no port; RKS_TOP=off hides a process. */
    uint32_t metrics_port;
    /* Where the node's index, and the sorted order that plans make, go above 1 GiB: an unnamed file
     * in this directory (RKS_ERR_IO if there is none, also for a small index); may hold {rank} and
     * {node}, those of the node's first rank, which makes the file. Default NULL:
     * memory if it takes less than a quarter of what is available (of the control group, too), else
     * TMPDIR, /tmp or /var/tmp, the first one on a disk of the node; RKS_ERR_IO if there is none. */
    const char *index_dir;
} rks_store_options;

RKS_API void rks_store_options_default(rks_store_options *options);
RKS_SIZED_DEFAULT(rks_store_options)
#define rks_store_options_default(options) rks_store_options_default_sized(options)

/* COLLECTIVE. Opens the dataset in `directory` (may hold {rank} and {node}; "DIR@2" is its
 * generation 2, if no directory has that name), each rank serving the shards it sees, and
 * exchanges the index. Samples are numbered 0..count-1. The group must outlive the store. The
 * caller owns *store. */
RKS_API rks_status rks_store_open(rks_group *group, const char *directory,
                                  const rks_store_options *options, rks_store **store,
                                  rks_error *err);

/* COLLECTIVE. Opens the datasets of `count` directories as one, without copying anything: samples of
 * the first have the first ids, then come those of the second, and on. Each directory is named as
 * for rks_store_open; `names` (NULL: the last part of each directory) tells the sources apart.
 * Samples have the columns of all sources; one that a source lacks is missing there. Index columns
 * are those that all sources have. A dataset may be there twice, under two names. The strings may
 * go afterwards. A quarantine list is that of any one dataset, which may be there twice.
 * RKS_ERR_ARGUMENT names the sources and the column whose types differ (`columns` may leave it out),
 * or a name that is there twice. */
RKS_API rks_status rks_store_open_many(rks_group *group, const char *const *directories,
                                       const char *const *names, size_t count,
                                       const rks_store_options *options, rks_store **store,
                                       rks_error *err);

/* COLLECTIVE. Serves the other ranks until all have closed or `timeout_ms` is over (0: T), then
 * frees the store. End its fetches and close its epochs first; batches, views and arrays may
 * outlive it. NULL is accepted. */
RKS_API void rks_store_close(rks_store *store, uint32_t timeout_ms);

/* Says that this rank needs the store no longer, and waits at most `timeout_ms` (0: not at all) until
 * all ranks have said so. The store goes on serving the others until rks_store_close, which then waits
 * no more if the answer was nonzero. 0: others still need it. A failure of the group and an interrupt
 * end the wait. Nonzero without other ranks. */
RKS_API int rks_store_leave(rks_store *store, uint32_t timeout_ms);

RKS_API uint64_t rks_store_count(const rks_store *store);
RKS_API const char *rks_store_dataset(const rks_store *store); /* 32 hexadecimal digits */
RKS_API const rks_schema *rks_store_schema(const rks_store *store);
RKS_API rks_group *rks_store_group(const rks_store *store);

/* count entries, in id order, shared by the ranks of a node; read-only, valid as long as the store.
 */
RKS_API const uint32_t *rks_store_lengths(const rks_store *store);
RKS_API const uint64_t *rks_store_key_hashes(const rks_store *store);
/* An index column: raw values of its type; NULL if there is none of that name. */
RKS_API const void *rks_store_column(const rks_store *store, const char *name, const char **type);

/* Keeps what these three point to, and plans of the store, valid until rks_index_close, also after
 * the store has been closed. Any threads; the caller owns what is returned. */
RKS_API rks_index *rks_store_index(rks_store *store);

/* The rank that serves the sample; -1 for an id out of range, a shard that nobody serves, or a
 * sample in quarantine. */
RKS_API int64_t rks_store_owner(const rks_store *store, uint64_t sample_id);

/* The shard that holds the sample, as its place in the list that rks_store_info_json prints; -1 for
 * an id out of range. */
RKS_API int64_t rks_store_shard(const rks_store *store, uint64_t sample_id);

/* The key of a sample, stored or derived; read from its owner where its shard is not on this node.
 */
RKS_API rks_status rks_store_key(rks_store *store, uint64_t sample_id, uint8_t key[RKS_KEY_MAX],
                                 size_t *key_size, rks_error *err);

/* The id of the sample with this key. RKS_ERR_NOT_FOUND shows the key, RKS_ERR_ARGUMENT the sources
 * where several have it: then ask one by rks_store_find_in. */
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
/* RKS_ERR_ARGUMENT for a source that is not there. */
RKS_API rks_status rks_store_source(const rks_store *store, size_t number, rks_source *source,
                                    rks_error *err);
/* The source that the sample is of; -1 for an id out of range. */
RKS_API int64_t rks_store_source_of(const rks_store *store, uint64_t sample_id);
/* rks_store_find among the samples of one source. */
RKS_API rks_status rks_store_find_in(rks_store *store, size_t source, const void *key,
                                     size_t key_size, uint64_t *sample_id, rks_error *err);

/* Parts of a dataset, for training and validation. */
typedef struct rks_split_part {
    const char *name;
    double weight; /* its share of the samples, relative to the others' */
} rks_split_part;

/* Puts each sample into one of `count` parts (1 to 65535) by the hash of its key, or of its value in
 * the column `by` (NULL: none), so that equal values stay together: part_of[count of the store] gets
 * the part's place in `parts`. It depends on names, weights, seed and key (or value) alone: not on
 * the order of the parts, nor on other samples, so a sample stays in its part when the dataset
 * grows. A part of weight 0 gets none. A column that is not in the index is read from every sample,
 * by each rank that calls. RKS_ERR_ARGUMENT names the part or the column. Not collective. */
RKS_API rks_status rks_store_split(rks_store *store, const rks_split_part *parts, size_t count,
                                   uint64_t seed, const char *by, uint16_t *part_of,
                                   rks_error *err);

/* What `info --json` prints: dataset, schema, shards, lengths, ... Free with rks_release. */
RKS_API rks_status rks_store_info_json(rks_store *store, char **json, rks_error *err);

/* Figures of this rank since the store was opened. Free the text with rks_release. */
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
        exchange_bytes; /* index bytes that this node took in from the ranks, headers included */
    char exchange[16];  /* the backend that ran: "shared", "local", "nccl", "mpi", "pull" */
    char exchange_why[128]; /* "named", "auto: ...": why that one */
    uint64_t quarantined;   /* samples of the dataset that the quarantine list leaves out */
    uint64_t collectives;   /* of the store's group since that was opened: rks_group_collectives */
    /* What this rank has read from its node's disk for samples, also for other ranks: bytes, and
     * the requests that it made (adjacent samples are one). Pages that were in memory do not count.
     * If the system does not count a thread's bytes (/proc/thread-self/io), those asked for. */
    uint64_t disk_bytes;
    uint64_t disk_reads;
} rks_store_stats;
RKS_API void rks_store_stats_get(rks_store *store, rks_store_stats *stats);

/* ---- measuring the disk ---- */

/* The bytes of the file that hold the sample: its header, columns and key, at most a few KiB more.
 * *path is the store's. RKS_ERR_NOT_FOUND: its shard is not on this node. */
RKS_API rks_status rks_store_place(const rks_store *store, uint64_t sample_id, const char **path,
                                   uint64_t *offset, uint64_t *size, rks_error *err);

typedef struct rks_cache_report {
    size_t struct_size;
    uint64_t file_bytes;   /* of this rank's shards */
    uint64_t cached_bytes; /* of them still in memory; UINT64_MAX: unknown, the files belong to
                            * another user */
} rks_cache_report;

/* Drops the pages of this rank's shards from the system's cache, without privileges. Pages that
 * another process maps stay: if several ranks of a node share files, all call it, agree, and call
 * it again. *report may be NULL. */
RKS_API void rks_store_drop_cache(rks_store *store, rks_cache_report *report);

/* Fetches `count` samples in the order of `sample_ids` (repeats are allowed; count 0 gives an
 * empty batch). All samples arrive or none. Blocks until then; an owner's silence ends it.
 * RKS_ERR_ARGUMENT for an id out of range, RKS_ERR_CORRUPT names the sample. The caller owns
 * *batch. */
RKS_API rks_status rks_store_fetch(rks_store *store, const uint64_t *sample_ids, size_t count,
                                   rks_batch **batch, rks_error *err);

/* The same without waiting. The ids are copied. The caller owns *fetch and ends it with exactly
 * one of rks_fetch_wait (which blocks) or rks_fetch_cancel. */
RKS_API rks_status rks_store_fetch_start(rks_store *store, const uint64_t *sample_ids, size_t count,
                                         rks_fetch **fetch, rks_error *err);

/* One sample read-only and without a copy: in the map of its shard if that lies on this node
 * (checked once, when it is opened), else fetched. Valid until rks_view_free, also after the store
 * has been closed. If the file is truncated underneath, it reads as zeros. RKS_ERR_ARGUMENT for an id
 * out of range, RKS_ERR_CORRUPT names the sample. The caller owns *view. */
RKS_API rks_status rks_store_view(rks_store *store, uint64_t sample_id, rks_view **view,
                                  rks_error *err);

/* One sample into memory of the caller's, if that takes no wait: its shard is mapped here, all of this
 * node's files were in memory when last looked at, and its record, with what aligns it, fits into
 * `room` bytes at `to` (aligned to 64). Then *done is true, and `values`, one a column, point into
 * `to`. Nothing is allocated. *done false: nothing was read; use rks_store_fetch. Checked like a
 * fetch, with the same errors. */
RKS_API rks_status rks_store_read_now(rks_store *store, uint64_t sample_id, void *to, size_t room,
                                      rks_value *values, bool *done, rks_error *err);

/* Fetches and collates: rks_store_fetch and rks_batch_collate in one, samples of this node straight
 * from their map into the arrays. What was checked is what arrives, also where somebody writes to
 * the file meanwhile; for samples above 64 KiB that holds of sealed files that nobody writes to. A
 * file that is cut or cannot be read is RKS_ERR_IO and names the sample. */
RKS_API rks_status rks_store_collate(rks_store *store, const uint64_t *sample_ids, size_t count,
                                     const rks_collate_options *options, rks_arrays **arrays,
                                     rks_error *err);

/* The same for a batch of a plan that has pieces or bins: `pieces` as rks_plan_pieces gives them
 * (RKS_ERR_ARGUMENT for one that does not lie in its sample), and for layout "rows" the bounds of
 * rks_plan_bins; NULL: rows are filled in order. */
RKS_API rks_status rks_store_collate_parts(rks_store *store, const uint64_t *sample_ids,
                                           size_t count, const rks_piece *pieces,
                                           size_t piece_count, const uint32_t *bounds, size_t bins,
                                           const rks_collate_options *options, rks_arrays **arrays,
                                           rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
