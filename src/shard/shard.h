/* SPDX-License-Identifier: Apache-2.0
 *
 * shard.h: reading one sealed shard. Never calls LMDB: manifest, map, locators, every offset
 * checked against the file. Any number of threads and processes. A page that cannot be read
 * (SIGBUS) becomes RKS_ERR_IO or RKS_ERR_CORRUPT of the sample that lies in it. */
#ifndef RKS_SHARD_SHARD_H
#define RKS_SHARD_SHARD_H

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/resident.h"
#include "shard/record.h"
#include "shard/shard_writer.h"

typedef struct rks_shard rks_shard;

/* `path`: NAME.json. Checks the manifest, the file's size and first pages, and maps it. */
rks_status rks_shard_open(const char *path, rks_shard **shard, rks_error *err);
void rks_shard_close(rks_shard *shard); /* NULL is accepted */

rks_digest rks_shard_id(const rks_shard *shard);
rks_digest rks_shard_manifest_digest(const rks_shard *shard);
rks_digest rks_shard_build_id(const rks_shard *shard);
const char *rks_shard_path(const rks_shard *shard); /* of NAME.rks */
uint64_t rks_shard_count(const rks_shard *shard);
uint64_t rks_shard_bytes(const rks_shard *shard);      /* column and key bytes */
uint64_t rks_shard_file_bytes(const rks_shard *shard); /* NAME.rks, .sums and .json */
uint64_t rks_shard_largest(const rks_shard *shard);    /* bytes of the largest stored record */
const rks_schema *rks_shard_schema(const rks_shard *shard);
const rks_unit_summary *rks_shard_units(const rks_shard *shard, size_t *count);
/* Reads all of the file and compares it with its sums, by so many threads (0: the caller's alone).
 * RKS_ERR_CORRUPT: what has changed since it was sealed, or that the sums are missing. */
rks_status rks_shard_check_sums(const rks_shard *shard, uint32_t threads, rks_error *err);
/* What derived keys of the unit begin with; NULL where keys are stored. As long as the shard. */
const char *rks_shard_unit_name(const rks_shard *shard, size_t unit);
bool rks_shard_derived_keys(const rks_shard *shard);
uint64_t rks_shard_unit_size(const rks_shard *shard); /* of its build; 0: not recorded */
size_t rks_shard_index_columns(const rks_shard *shard);
const rks_column *rks_shard_index_column(const rks_shard *shard, size_t column);

/* Copies rows [first, first + count) of the index; checked against the file's bounds, and each
 * segment against its digest in the manifest at its first use. `column` counts index columns. */
rks_status rks_shard_copy_lengths(rks_shard *shard, uint64_t first, uint64_t count,
                                  uint32_t *lengths, rks_error *err);
rks_status rks_shard_copy_key_hashes(rks_shard *shard, uint64_t first, uint64_t count,
                                     uint64_t *hashes, rks_error *err);
rks_status rks_shard_copy_column(rks_shard *shard, size_t column, uint64_t first, uint64_t count,
                                 void *values, rks_error *err);

/* A stored record where it lies in the map (or in received bytes): a 24-byte header, the payload,
 * the key. */
typedef struct rks_record_view {
    const uint8_t *record; /* of `record_size` bytes: what travels between ranks */
    size_t record_size;
    const uint8_t *payload;
    size_t payload_size;
    const uint8_t *key; /* empty where keys are derived */
    size_t key_size;
    uint32_t length;
    uint32_t source_row;
    uint32_t align; /* 8 or 64, of the payload */
} rks_record_view;

/* Where row `row` lies; bounds are checked, contents are not: what has to be right is copied, then
 * rks_shard_faulted(record) must be false, then rks_record_check. Reads the record's header, so a
 * cold page is waited for. A record is never larger than rks_shard_largest. */
rks_status rks_shard_locate(const rks_shard *shard, uint64_t row, rks_record_view *view,
                            rks_error *err);
/* The same for a batch of rows, in less time: the machine fetches what they need side by side. Best
 * for 64 rows and more. All of them or an error, which names the row. */
rks_status rks_shard_locate_many(const rks_shard *shard, const uint64_t *rows, size_t count,
                                 rks_record_view *views, rks_error *err);
/* Reads a record that came from elsewhere: `bytes` of which a record may take all or less. */
rks_status rks_record_parse(const uint8_t *bytes, size_t size, rks_record_view *view,
                            rks_error *err);

/* Compares a record with its checksum: over payload, shard, row, key hash, length and size.
 * `length` and `key_hash` come from the reader's own index. RKS_ERR_CORRUPT says what differs.
 * Copies first: call it on the bytes that you return. */
rks_status rks_record_check(const rks_record_view *view, rks_digest shard_id, uint64_t row,
                            uint64_t key_hash, uint32_t length, rks_error *err);

/* After bytes of [at, at + size) of the map have been read or copied: was one of its pages replaced
 * because the disk would not give it? Cheap. */
bool rks_shard_faulted(const rks_shard *shard, const void *at, size_t size);
/* The error for such a record: RKS_ERR_IO with file, row and offset. */
rks_status rks_shard_read_failed(const rks_shard *shard, uint64_t row, const rks_record_view *view,
                                 rks_error *err);

/* The rest of the name of a row whose key is derived: unit's key name and row in its file. */
rks_status rks_shard_derived_key(const rks_shard *shard, uint64_t row, const char **name,
                                 uint64_t *file_row, rks_error *err);
/* The key of a row, stored or derived, copied into key[RKS_KEY_MAX]. */
rks_status rks_shard_key(const rks_shard *shard, uint64_t row, uint8_t *key, size_t *key_size,
                         rks_error *err);
uint64_t rks_key_hash(const void *key, size_t key_size);

/* ---- reading ahead: advice, which changes no contents ---- */

/* From now on records are read at random: a fault reads its own page alone, so whoever reads asks
 * for records before. The index keeps the system's read-ahead. */
void rks_shard_expect_random(const rks_shard *shard);
/* Bytes [first, end) of NAME.rks hold the record, by the locators alone: the record is not read.
 * Mostly its exact place; a little more or less at the end of a block. False: no such row, or a
 * damaged locator. */
bool rks_shard_extent(const rks_shard *shard, uint64_t row, uint64_t *first, uint64_t *end);
/* Is what rks_shard_extent reads in memory? True for a row that is not there. */
bool rks_shard_place_in_memory(const rks_shard *shard, uint64_t row);
/* The next nine are those of base/resident.h. */
bool rks_shard_in_memory(const rks_shard *shard, uint64_t first, uint64_t end);
rks_resident_state rks_shard_scan(const rks_shard *shard, size_t *budget);
void rks_shard_ask(const rks_shard *shard, uint64_t first, uint64_t end);
bool rks_shard_stream_to(rks_resident_stream *stream, const rks_shard *shard, uint64_t first,
                         uint64_t end, const atomic_bool *stop);
uint64_t rks_shard_follow(const rks_shard *shard, uint64_t first, uint64_t end);
void rks_shard_leave(const rks_shard *shard, uint64_t first, uint64_t end);
void rks_shard_forget(const rks_shard *shard, uint64_t first, uint64_t end);
void rks_shard_drop(const rks_shard *shard);
bool rks_shard_resident_bytes(const rks_shard *shard, uint64_t *bytes);

/* Asks the kernel to read the record's pages (owner side, for others); returns when they are in
 * memory or cannot be. */
void rks_shard_touch(const rks_shard *shard, const rks_record_view *view);

#endif
