/* SPDX-License-Identifier: Apache-2.0
 *
 * shard.h: reads one sealed shard: its manifest, a map and locators, with every offset checked
 * against the file. Never calls LMDB. Any number of threads and processes may read. A page that
 * cannot be read (SIGBUS) becomes RKS_ERR_IO or RKS_ERR_CORRUPT for the sample in it. */
#ifndef RKS_SHARD_SHARD_H
#define RKS_SHARD_SHARD_H

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/pieces.h"
#include "base/resident_pages.h"
#include "shard/record.h"
#include "shard/shard_writer.h"

typedef struct rks_shard rks_shard;

/* Opens the shard of `path`, a NAME.json. Checks the manifest, the file's size and first pages, and
 * maps the file. */
rks_status rks_shard_open(const char *path, rks_shard **shard, rks_error *err);
/* Returns true if some of its pieces may not be here, or may be lost: until it is known that the
 * shard was sealed. */
bool rks_shard_arrives(const rks_shard *shard);
/* Opens a shard that still arrives: PATH.manifest and PATH.arriving, of which the pieces say what
 * is here. Its first two pages, the page that names it and its segments must be. If it has been
 * sealed meanwhile, opens it as that. Takes its own hold of `pieces`. */
rks_status rks_shard_open_arriving(const char *path, rks_pieces *pieces, rks_shard **shard,
                                   rks_error *err);
/* Returns true if the row's record is not here yet, or not all of it: then the bytes [*first, *end)
 * are wanted: of the record, or, if the file could not be synced, of its place in the index.
 * Locating such a row is RKS_ERR_STATE. One load for a shard that is sealed. */
bool rks_shard_lacks(const rks_shard *shard, uint64_t row, uint64_t *first, uint64_t *end);
/* Checks whether `bytes` begin with the row's record, by the shard's own index. Returns its size,
 * or 0. */
uint64_t rks_shard_check_record(rks_shard *shard, uint64_t row, const uint8_t *bytes,
                                uint64_t size);
/* The row's record, checked, has been written to its place, and was read when there were so many
 * doubts (base/pieces.h). It counts as here until there is another one. */
void rks_shard_note_record(const rks_shard *shard, uint64_t row, uint32_t doubts);
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
/* Reads the whole file and compares it with its sums, on `threads` threads (0: only the caller's).
 * RKS_ERR_CORRUPT says what has changed since the seal, or that the sums are missing. */
rks_status rks_shard_check_sums(const rks_shard *shard, uint32_t threads, rks_error *err);
/* Returns what the unit's derived keys start with; NULL if keys are stored. Lives as long as the
 * shard. */
const char *rks_shard_unit_name(const rks_shard *shard, size_t unit);
size_t rks_shard_index_columns(const rks_shard *shard);
const rks_column *rks_shard_index_column(const rks_shard *shard, size_t column);

/* Copy rows [first, first + count) of the index. Check the rows against the file, and each segment
 * against its digest in the manifest at its first use. `column` counts index columns. */
rks_status rks_shard_copy_lengths(rks_shard *shard, uint64_t first, uint64_t count,
                                  uint32_t *lengths, rks_error *err);
rks_status rks_shard_copy_key_hashes(rks_shard *shard, uint64_t first, uint64_t count,
                                     uint64_t *hashes, rks_error *err);
rks_status rks_shard_copy_column(rks_shard *shard, size_t column, uint64_t first, uint64_t count,
                                 void *values, rks_error *err);

/* A stored record, where it lies in the map or in received bytes: a 24-byte header, the payload,
 * the key. */
typedef struct rks_record_view {
    const uint8_t *record; /* `record_size` bytes: what ranks send each other */
    size_t record_size;
    const uint8_t *payload;
    size_t payload_size;
    const uint8_t *key; /* empty if keys are derived */
    size_t key_size;
    uint32_t length;
    uint32_t source_row;
    uint32_t align; /* alignment of the payload: 8 or 64 */
} rks_record_view;

/* Finds where row `row` lies. Checks bounds but not contents: copy what has to be right, check that
 * rks_shard_faulted(record) is false, then call rks_record_check. Reads the record's header, so it
 * waits for a cold page. A record is never larger than rks_shard_largest. */
rks_status rks_shard_locate(const rks_shard *shard, uint64_t row, rks_record_view *view,
                            rks_error *err);
/* Does the same for many rows in less time, since the processor fetches what they need in parallel.
 * Best for 64 rows or more. Finds all of them, or fails and names the row. */
rks_status rks_shard_locate_many(const rks_shard *shard, const uint64_t *rows, size_t count,
                                 rks_record_view *views, rks_error *err);
/* Parses a record that came from elsewhere: it takes all of `bytes` or less. */
rks_status rks_record_parse(const uint8_t *bytes, size_t size, rks_record_view *view,
                            rks_error *err);

/* Compares a record with its checksum, which covers payload, shard, row, key hash, length and size.
 * `length` and `key_hash` come from the reader's own index. RKS_ERR_CORRUPT says what differs. Call
 * it on the copy that you return, not on the map. */
rks_status rks_record_check(const rks_record_view *view, rks_digest shard_id, uint64_t row,
                            uint64_t key_hash, uint32_t length, rks_error *err);

/* Returns true if a page of [at, at + size) was replaced because the disk could not deliver it.
 * Call it after you read or copy these bytes of the map. Cheap. */
bool rks_shard_faulted(const rks_shard *shard, const void *at, size_t size);
/* Fails with the error for such a record: RKS_ERR_IO with file, row and offset. Its next read asks
 * the storage again. */
rks_status rks_shard_read_failed(const rks_shard *shard, uint64_t row, const rks_record_view *view,
                                 rks_error *err);

/* Copies a row's key, stored or derived, into key[RKS_KEY_MAX]. */
rks_status rks_shard_key(const rks_shard *shard, uint64_t row, uint8_t *key, size_t *key_size,
                         rks_error *err);
uint64_t rks_key_hash(const void *key, size_t key_size);

/* ---- reading ahead: advice, which changes no contents ---- */

/* Turns off the system's read-ahead for records: a fault then reads its own page alone, so readers
 * must request records beforehand. The index keeps the read-ahead. */
void rks_shard_expect_random(rks_shard *shard);
/* Gets bytes [first, end) of NAME.rks that hold the record, from the locators alone, without
 * reading it. Mostly exact; a little more or less at the end of a block. Returns false if there is
 * no such row or the locator is damaged. */
bool rks_shard_extent(const rks_shard *shard, uint64_t row, uint64_t *first, uint64_t *end);
/* Returns true if the locators that rks_shard_extent reads are in memory, or if there is no such
 * row. */
bool rks_shard_place_in_memory(const rks_shard *shard, uint64_t row);
/* Returns true if the row's place and record are in memory, as far as can be known without reading
 * them: then reading the row does not wait for the storage. */
bool rks_shard_is_ready(const rks_shard *shard, uint64_t row);
/* The next nine are those of base/resident_pages.h. */
bool rks_shard_in_memory(const rks_shard *shard, uint64_t first, uint64_t end);
rks_resident_state rks_shard_scan(rks_shard *shard, size_t *budget);
void rks_shard_ask(const rks_shard *shard, uint64_t first, uint64_t end);
bool rks_shard_stream_to(rks_resident_stream *stream, const rks_shard *shard, uint64_t first,
                         uint64_t end, const atomic_bool *stop);
uint64_t rks_shard_follow(const rks_shard *shard, uint64_t first, uint64_t end);
void rks_shard_leave(const rks_shard *shard, uint64_t first, uint64_t end);
void rks_shard_forget(const rks_shard *shard, uint64_t first, uint64_t end);
void rks_shard_drop(const rks_shard *shard);
bool rks_shard_resident_bytes(const rks_shard *shard, uint64_t *bytes);

/* Reads the record's pages (for the owner, on behalf of others); returns when they are in memory or
 * cannot be. */
void rks_shard_touch(const rks_shard *shard, const rks_record_view *view);

#endif
