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

/* A run of consecutive ids of one shard. */
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

/* What an index is made of. `spans`: the dataset's units with at least one sample, by first_id,
 * without gaps. They are copied. */
typedef struct rks_index_layout {
    uint64_t count;
    const rks_span *spans;
    size_t span_count;
    const rks_index_column *columns;
    size_t column_count;
} rks_index_layout;

/* Computes the bytes of the shared memory: 12 a sample and the columns, in whole pages.
 * RKS_ERR_UNSUPPORTED if count is 2^32 or more. */
rks_status rks_index_size(const rks_index_layout *layout, uint64_t *bytes, rks_error *err);
/* Makes the memory, on a node's leader. See rks_shared_memory. */
rks_status rks_index_memory(const rks_index_layout *layout, const char *directory, int *fd,
                            rks_error *err);
/* Maps the memory for writing; after rks_index_seal the map is read-only. Once all ranks of the
 * node have written, the leader also seals a memfd, so no descriptor gives a writable map any more.
 * If it succeeds, the index owns the descriptor. RKS_ERR_ARGUMENT for spans with gaps or with a row
 * in two of them, RKS_ERR_STATE for memory of another size. */
rks_status rks_index_open(const rks_index_layout *layout, int fd, rks_index **index,
                          rks_error *err);
rks_status rks_index_seal(rks_index *index, bool leader, rks_error *err);
/* Adds an owner. Each owner calls rks_index_close; the last call frees the index. */
rks_index *rks_index_share(rks_index *index);

/* The sorted order of the lengths, a map that plans borrow. It lives as long as the index; NULL
 * until it is set. One thread at a time. */
const void *rks_index_order(const rks_index *index);
void rks_index_keep_order(rks_index *index, void *map, uint64_t bytes);

uint64_t rks_index_count(const rks_index *index);
uint32_t *rks_index_lengths(rks_index *index);
/* Makes a copy of a sealed index's lengths for this process, to be changed: pages are copied when
 * they are written to. It lives as long as the index; one copy at most. */
rks_status rks_index_copy_lengths(rks_index *index, uint32_t **lengths, rks_error *err);
uint64_t *rks_index_key_hashes(rks_index *index);
void *rks_index_column_data(rks_index *index, size_t column);
uint64_t rks_index_bytes(const rks_index *index);

/* Finds a sample by its id, which must be below count. Takes a few nanoseconds: a table of spans by
 * blocks of ids, then a short search. */
void rks_index_locate(const rks_index *index, uint64_t id, uint32_t *shard, uint64_t *row);

/* Calls `visit` for each id whose key hash is `hash`, in ascending order, until it returns false.
 * The first call builds a table for this process, of 5 to 6 bytes a sample; above 96 MiB it lies in
 * a file that may be paged out (base/scratch.h). Any thread, several at once. */
rks_status rks_index_find(rks_index *index, uint64_t hash, bool (*visit)(void *user, uint64_t id),
                          void *user, rks_error *err);

/* Calls `pair` for pairs of ids with equal hashes, candidates for duplicates, in ascending order of
 * hash. Looks only at hashes with hash % parts == part. Of k ids with one hash it finds the k - 1
 * pairs of neighbours. Memory: 16 bytes for each of these hashes, about count / parts of them, at
 * most 257 MiB. More hashes are looked at range by range, with one pass over all hashes for each 16
 * Mi. */
rks_status rks_index_equal_hashes(const rks_index *index, uint32_t part, uint32_t parts,
                                  rks_status (*pair)(void *user, uint64_t a, uint64_t b,
                                                     rks_error *err),
                                  void *user, rks_error *err);

/* For tests: how many hashes at a time, instead of 16 Mi. */
void rks_index_entries_max(size_t entries);

/* The stream in which a shard's part of the index is sent: its samples in id order, across spans,
 * in sections of 64 Ki samples (the last one may be smaller). index_stream.c draws the format. Each
 * section is complete in itself: a head of 24 bytes with a checksum, then lengths, key hashes and
 * columns. So the stream takes 12 bytes a sample, the columns, and 24 bytes a section. */
uint64_t rks_index_stream_size(const rks_index *index, uint32_t shard);
/* Writes [offset, offset + size) of the stream of a filled index. Any thread, several at once. The
 * checksum of a section is computed when it is first read, and kept (8 bytes a section), so the
 * shard's samples must not change from then on. */
rks_status rks_index_stream_read(rks_index *index, uint32_t shard, uint64_t offset, void *bytes,
                                 size_t size, rks_error *err);
/* Returns the bytes of a full section. A stream may be divided between two receivers at multiples
 * of that. */
uint64_t rks_index_section_size(const rks_index *index);
/* Reads a stream into the index, from `offset`, where a section must begin. The bytes come in
 * order, in parts of any size. An intake holds at most one section beside the index. The bytes may
 * be hostile: each section must be the next one of this shard and match its checksum, else
 * RKS_ERR_CORRUPT; only then is it copied into the index. After an error an intake accepts nothing.
 * Intakes of different shards, or of different parts of one, may be written to at once. */
typedef struct rks_index_intake rks_index_intake;
rks_status rks_index_intake_create(rks_index *index, uint32_t shard, uint64_t offset,
                                   rks_index_intake **intake, rks_error *err);
rks_status rks_index_intake_write(rks_index_intake *intake, const void *bytes, size_t size,
                                  rks_error *err);
/* Fails with RKS_ERR_CORRUPT if the stream ended inside a section. *taken (may be NULL) becomes the
 * bytes received; the caller knows how many there must be. */
rks_status rks_index_intake_end(rks_index_intake *intake, uint64_t *taken, rks_error *err);
void rks_index_intake_free(rks_index_intake *intake); /* NULL is accepted */

#endif
