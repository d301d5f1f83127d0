/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.h: NAME.json, which makes NAME.rks a sealed shard, and the unit list that a segment of
 * the shard holds. manifest.c and unit_list.c draw the formats. */
#ifndef RKS_SHARD_MANIFEST_H
#define RKS_SHARD_MANIFEST_H

#include "base/buffer.h"
#include "base/checksum.h"
#include "shard/schema.h"
#include "shard/shard_writer.h"

enum { RKS_MANIFEST_MAX = 1 << 20 };

typedef enum rks_segment_kind {
    RKS_SEGMENT_LENGTHS,    /* u32 a row */
    RKS_SEGMENT_KEY_HASHES, /* u64 a row */
    RKS_SEGMENT_LOCATORS,   /* rks_locators_get */
    RKS_SEGMENT_OFFSETS,    /* u64 a row: used if locators would not fit */
    RKS_SEGMENT_COLUMN,     /* an index column: one item a row */
    RKS_SEGMENT_UNITS,      /* its rows are units; rks_unit_list_decode */
} rks_segment_kind;

typedef struct rks_segment {
    rks_segment_kind kind;
    uint32_t column; /* of the schema, for RKS_SEGMENT_COLUMN; else 0 */
    uint64_t first_row;
    uint64_t rows;
    uint64_t offset; /* in NAME.rks; a multiple of 8 */
    uint64_t size;
    uint64_t check; /* XXH3-64 of these bytes */
} rks_segment;

/* A manifest owns all that it points to; free with rks_manifest_free. */
typedef struct rks_manifest {
    rks_digest shard_id;
    rks_digest build_id;
    uint64_t file_size;
    uint32_t page_size;
    rks_digest head;    /* XXH3-128 of the file's first two pages */
    uint64_t main_page; /* file offset of the page of LMDB's main database, which names the shard */
    rks_digest main;    /* XXH3-128 of that page */
    rks_digest sums;    /* XXH3-128 of NAME.sums */
    uint64_t samples;
    uint64_t bytes;   /* column and key bytes */
    uint64_t largest; /* bytes of the largest record: header, payload, key */
    rks_schema *schema;
    bool derived_keys;
    uint64_t unit_size; /* bytes of input in a unit of the build; 0: samples from memory */
    uint32_t *index;    /* columns of the schema that are in the index */
    size_t index_count;
    uint64_t unit_count;
    rks_segment
        *segments; /* sorted by (kind, column, first row); locators and offsets count as one */
    size_t segment_count;
    rks_digest digest; /* of the manifest's own text */
    size_t text_size;  /* bytes of that text, as decoded */
} rks_manifest;

/* Prints the manifest with its own digest; does not read manifest->digest. `digest` may be NULL.
 * Free *text with rks_free. */
rks_status rks_manifest_encode(const rks_manifest *manifest, char **text, size_t *size,
                               rks_digest *digest, rks_error *err);
/* Parses and checks a manifest, whose text may be hostile: format and features are known or refused
 * by name; each kind of segment covers [0, samples) once, in order, with the right sizes and inside
 * the file. `path` is for messages. */
rks_status rks_manifest_decode(const char *text, size_t size, const char *path,
                               rks_manifest **manifest, rks_error *err);
rks_status rks_manifest_load(const char *path, rks_manifest **manifest, rks_error *err);
void rks_manifest_free(rks_manifest *manifest); /* NULL is accepted */

/* The units of a shard, in file order. Free with rks_unit_list_free. */
typedef struct rks_unit_list {
    size_t count;
    rks_unit_summary *summaries;
    uint64_t *first_rows; /* in the shard */
    char **key_names;     /* entries are NULL if keys are stored */
} rks_unit_list;

/* Appends a unit; copies `key_name`, which may be NULL. */
rks_status rks_unit_list_add(rks_unit_list *list, const rks_unit_summary *summary,
                             uint64_t first_row, const char *key_name, rks_error *err);
/* Appends one unit's stored form to `bytes`. */
rks_status rks_unit_encode(const rks_unit_summary *summary, uint64_t first_row, uint64_t end_block,
                           const char *key_name, rks_buffer *bytes, rks_error *err);
/* Puts a checksum into one stored unit, for the database `units`: no segment's checksum covers
 * it. */
void rks_unit_stamp(uint8_t *bytes, size_t size);
/* Reads the numbers of one stored unit, of which at least 96 bytes are there, without a check.
 * Returns its first row. */
uint64_t rks_unit_load(const uint8_t *bytes, rks_unit_summary *summary);
/* A unit's stored form, beside its summary. */
typedef struct rks_unit_stored {
    size_t size;
    uint64_t end_block; /* the block after its last one */
} rks_unit_stored;
/* Reads one unit at `bytes` and appends it. Checks the unit itself, and that it starts where the
 * one before it ends. `stamped`: it is from the database `units`. */
rks_status rks_unit_decode(const uint8_t *bytes, size_t size, bool stamped, const char *path,
                           rks_unit_list *list, rks_unit_stored *stored, rks_error *err);
/* What a manifest says of all units of its shard. */
typedef struct rks_unit_totals {
    size_t count;
    uint64_t samples;
    uint64_t bytes;
} rks_unit_totals;
/* Reads the whole segment, whose units must be as the manifest says. */
rks_status rks_unit_list_decode(const uint8_t *bytes, size_t size, const rks_unit_totals *expected,
                                const char *path, rks_unit_list *list, rks_error *err);
/* Frees the contents; leaves {0}. {0} is accepted. */
void rks_unit_list_free(rks_unit_list *list);

#endif
