/* SPDX-License-Identifier: Apache-2.0
 *
 * index_file.h: lengths, key hashes and index columns of consecutive samples, in a file beside
 * dataset.json. With it a node knows all of them without the shards. The picture of the file is in
 * index_file.c.
 *
 * A dataset names files for all of its samples, in the order of their ids, or none. A build writes
 * one for what it adds, and takes into it those before it that have fewer than twice as many
 * samples. So generations share files, and a sample is written about log2(samples) times. A
 * directory may lack the files: then its shards say the same. */
#ifndef RKS_DATASET_INDEX_FILE_H
#define RKS_DATASET_INDEX_FILE_H

#include "base/checksum.h"

enum {
    RKS_INDEX_FILES_MAX = 40,
    RKS_INDEX_FILE_ARRAYS = 2, /* lengths and key hashes, which come before the columns */
    RKS_INDEX_FILE_ITEM_MAX = 8,
    RKS_INDEX_FILE_ROWS = 4 << 20, /* of a segment */
};

typedef struct rks_index_file {
    char name[64];
    rks_digest digest; /* of its head, which holds the segments' digests */
    uint64_t bytes;
    uint64_t samples;
} rks_index_file;

/* The bytes of an item of each array: 4, 8, then those of the columns. */
typedef struct rks_index_items {
    const uint32_t *sizes;
    size_t count;
} rks_index_items;

/* A part of what a file will hold: the same arrays for `samples` samples. */
typedef struct rks_index_piece {
    const uint8_t *const *arrays;
    uint64_t samples;
} rks_index_piece;

/* "index-DIGITS.columns" */
void rks_index_file_name(rks_digest digest, char name[64]);
/* Returns true if a file has such a name. */
bool rks_index_file_is_name(const char *name);
/* Writes the file of the pieces' samples, one piece after another, so that a crash leaves it whole
 * or not there. Sets all of `made`, also if the writing itself fails. There must be a sample.
 * `directory` NULL: writes nothing. */
rks_status rks_index_file_write(const char *directory, rks_index_items items,
                                const rks_index_piece *pieces, size_t count, rks_index_file *made,
                                rks_error *err);

/* Reads a file segment by segment. `items` must live as long. RKS_ERR_NOT_FOUND if there is no such
 * file, RKS_ERR_CORRUPT if it is not the one that dataset.json names. */
typedef struct rks_index_reader rks_index_reader;
rks_status rks_index_reader_open(const char *directory, const rks_index_file *named,
                                 rks_index_items items, rks_index_reader **reader, rks_error *err);
void rks_index_reader_close(rks_index_reader *reader); /* NULL is accepted */

/* Samples [first, first + count) of one array. */
typedef struct rks_index_segment {
    size_t array;
    uint64_t first;
    uint64_t count;
} rks_index_segment;

uint64_t rks_index_reader_segments(const rks_index_reader *reader);
rks_index_segment rks_index_reader_segment(const rks_index_reader *reader, uint64_t number);
/* Reads and checks a segment. `bytes` has room for its items; RKS_ERR_CORRUPT names the file. */
rks_status rks_index_reader_read(const rks_index_reader *reader, uint64_t number, void *bytes,
                                 rks_error *err);
/* Returns the bytes of the largest segment. */
size_t rks_index_reader_room(const rks_index_reader *reader);

/* For tests: rows of a segment that is written; 0: RKS_INDEX_FILE_ROWS. */
void rks_index_file_rows(uint32_t rows);

#endif
