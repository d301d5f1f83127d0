/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h: what every rank knows of every sample: length, key hash, index columns, and where it
 * lies. One copy per node, in memory that ranks share by descriptor. Sample ids are positions in
 * (unit, row) order.
 *
 * A shard's rows are its units one after another; a unit's rows are consecutive ids. So a
 * shard's columns are scattered into id order unit by unit, in plain copies. */
#ifndef RKS_INDEX_INDEX_H
#define RKS_INDEX_INDEX_H

#include "rankstore/index.h"

/* Where a run of consecutive ids lies. */
typedef struct rks_span {
    uint64_t first_id;
    uint64_t count;
    uint32_t shard;     /* number in the dataset's list */
    uint64_t first_row; /* in that shard */
} rks_span;

typedef struct rks_index_column {
    char name[256];
    uint32_t item_size;
    char type[32];
} rks_index_column;

/* `spans`: the dataset's units with at least one sample, by first_id, without gaps; copied. */
typedef struct rks_index_layout {
    uint64_t count;
    const rks_span *spans;
    size_t span_count;
    const rks_index_column *columns;
    size_t column_count;
} rks_index_layout;

/* Bytes of the shared memory: 12 a sample and the columns, in whole pages. count must be below 2^32
 * (RKS_ERR_UNSUPPORTED says so). */
rks_status rks_index_size(const rks_index_layout *layout, uint64_t *bytes, rks_error *err);
/* The descriptor that a node's leader makes: see rks_shared_memory. */
rks_status rks_index_memory(const rks_index_layout *layout, const char *directory, int *fd,
                            rks_error *err);
/* Maps it for writing; after rks_index_seal the map is read-only. The leader, once all ranks of the
 * node have written, also seals a memfd: no descriptor gives a writable map any more. The index
 * owns the descriptor from then on, on success. Spans with gaps or with a row in two of them are
 * RKS_ERR_ARGUMENT, memory of another size RKS_ERR_STATE. */
rks_status rks_index_open(const rks_index_layout *layout, int fd, rks_index **index,
                          rks_error *err);
rks_status rks_index_seal(rks_index *index, bool leader, rks_error *err);
/* One more owner; each ends with rks_index_close, the last one frees it. */
rks_index *rks_index_share(rks_index *index);

/* The sorted order of the lengths (a map that plans borrow; NULL until it is given) lives as long
 * as they do. One thread at a time. */
const void *rks_index_order(const rks_index *index);
void rks_index_keep_order(rks_index *index, void *map, uint64_t bytes);

uint64_t rks_index_count(const rks_index *index);
uint32_t *rks_index_lengths(rks_index *index);
uint64_t *rks_index_key_hashes(rks_index *index);
void *rks_index_column_data(rks_index *index, size_t column);
uint64_t rks_index_bytes(const rks_index *index);

/* Where a sample lies. id < count. A few nanoseconds: a table of spans by id block, then a short
 * search. */
void rks_index_locate(const rks_index *index, uint64_t id, uint32_t *shard, uint64_t *row);
/* The inverse; false if out of range. */
bool rks_index_id_of(const rks_index *index, uint32_t shard, uint64_t row, uint64_t *id);

/* The ids whose key hash is `hash`, ascending: calls visit for each until it returns false. The
 * first call builds a table of this process's own, 5 to 6 bytes a sample, above 96 MiB in a file that
 * may be paged out (base/scratch.h); any threads, at once. */
rks_status rks_index_find(rks_index *index, uint64_t hash, bool (*visit)(void *user, uint64_t id),
                          void *user, rks_error *err);

/* Pairs of ids with equal hashes among the hashes with hash % parts == part: candidates for
 * duplicates, by ascending hash; k ids with one hash give the k - 1 pairs of neighbours. Memory:
 * 16 bytes for each of these hashes, about count / parts of them, but at most 257 MiB: more of them
 * are looked at range by range, with one pass over all hashes for each 16 Mi. */
rks_status rks_index_equal_hashes(const rks_index *index, uint32_t part, uint32_t parts,
                                  rks_status (*pair)(void *user, uint64_t a, uint64_t b,
                                                     rks_error *err),
                                  void *user, rks_error *err);

/* For tests: so many hashes at a time, in place of 16 Mi. */
void rks_index_entries_max(size_t entries);

/* The stream in which a shard's part of the index travels: its samples in id order, in pieces of 64
 * Ki (the last one smaller), across spans; index_stream.c draws them. A piece is complete in
 * itself: a head of 24 bytes with a checksum, then lengths, key hashes and columns. So 12 bytes a
 * sample, the columns, and 24 bytes a piece. */
uint64_t rks_index_stream_size(const rks_index *index, uint32_t shard);
/* Cuts [offset, offset + size) of the stream out of a filled index. Any threads, at once. A piece's
 * checksum is computed when it is first read and kept, 8 bytes a piece: the shard's samples must
 * not change from then on. */
rks_status rks_index_stream_read(rks_index *index, uint32_t shard, uint64_t offset, void *bytes,
                                 size_t size, rks_error *err);
/* The first place from `offset` on where a piece begins, or the stream ends: there it may be cut
 * for two takers. */
uint64_t rks_index_stream_boundary(const rks_index *index, uint32_t shard, uint64_t offset);
/* Takes a stream in from `offset` (where a piece begins), in order, in cuts of any size; holds at
 * most one piece beside the index. Hostile bytes: each piece must be the next one of this shard and
 * match its checksum (RKS_ERR_CORRUPT), and reaches the index only then. Nothing is accepted after
 * an error. Intakes of different shards, or of different parts of one, may be written to at once.
 */
typedef struct rks_index_intake rks_index_intake;
rks_status rks_index_intake_create(rks_index *index, uint32_t shard, uint64_t offset,
                                   rks_index_intake **intake, rks_error *err);
rks_status rks_index_intake_write(rks_index_intake *intake, const void *bytes, size_t size,
                                  rks_error *err);
/* RKS_ERR_CORRUPT if it ends inside a piece. *taken (may be NULL): the bytes that have come; the
 * caller knows how many there must be. */
rks_status rks_index_intake_end(rks_index_intake *intake, uint64_t *taken, rks_error *err);
void rks_index_intake_free(rks_index_intake *intake); /* NULL is accepted */

#endif
