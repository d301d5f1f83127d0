/* SPDX-License-Identifier: Apache-2.0
 *
 * megatron_index.h: reads the two files of a Megatron indexed dataset: NAME.bin holds tokens,
 * NAME.idx the places of sequences. Both are little-endian. There are two kinds of index:
 *
 *   memory-mapped                          older, also fairseq's
 *   0   9  "MMIDIDX\0\0"                   0   8  "TNTIDX\0\0"
 *   9   8  version, 1                      8   8  version, 1
 *   17  1  type of a token                 16  8  type of a token
 *   18  8  sequences n                     24  8  bytes of a token
 *   26  8  documents m                     32  8  sequences n
 *   34     i32[n] tokens of each           40  8  sizes, n if each has one dimension
 *          i64[n] its byte in NAME.bin     48  8  documents m (not in fairseq's)
 *          i64[m] not read                    i64[n + 1] its first size, ascending from 0
 *                                             i64[n + 1] its first token in NAME.bin
 *                                             i64[n] tokens of each
 *                                             i64[m] not read */
#ifndef RKS_INGEST_MEGATRON_INDEX_H
#define RKS_INGEST_MEGATRON_INDEX_H

#include "codec/input_file.h"
#include "shard/schema.h"

enum {
    RKS_MEGATRON_ENDING = 4, /* bytes of ".idx" and ".bin" */
    RKS_MEGATRON_BATCH = 4096,
};

typedef struct rks_megatron {
    rks_input_file index, data; /* they own their paths */
    rks_input_handle *index_handle, *data_handle;
    const char *item; /* "uint16" */
    rks_kind kind;
    uint32_t item_size;
    uint64_t count; /* number of sequences, which the index's size confirms */
    uint64_t head;  /* bytes of the index before its first list */
    bool older;
} rks_megatron;

typedef struct rks_megatron_sequence {
    uint32_t items;
    uint64_t place; /* byte in the data file, which holds the whole sequence */
} rks_megatron_sequence;

/* Returns true for NAME.idx or NAME.bin. */
bool rks_megatron_is_named(const char *name);
/* Returns PATH.idx (rks_free) if PATH.idx and PATH.bin both exist; else NULL. */
char *rks_megatron_of_stem(const char *path);

/* Opens both files; `given` is either of them. Close it also on failure. */
rks_status rks_megatron_open(rks_megatron *pair, const rks_input_file *given, rks_error *err);
/* Reads `count` sequences from `first` on, at most RKS_MEGATRON_BATCH. RKS_ERR_DATA names one that
 * does not lie in the data file. */
rks_status rks_megatron_read(const rks_megatron *pair, uint64_t first, uint64_t count,
                             rks_megatron_sequence *sequences, rks_error *err);
void rks_megatron_close(rks_megatron *pair);

#endif
