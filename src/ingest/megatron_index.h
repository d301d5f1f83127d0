/* SPDX-License-Identifier: Apache-2.0
 *
 * megatron_index.h: a pair of files of Megatron's indexed dataset: NAME.bin holds tokens, NAME.idx
 * says where sequences lie. Both little-endian. There are two kinds of index:
 *
 *   memory-mapped                          older, also fairseq's
 *   0   9  "MMIDIDX\0\0"                   0   8  "TNTIDX\0\0"
 *   9   8  version, 1                      8   8  version, 1
 *   17  1  type of a token                 16  8  type of a token
 *   18  8  sequences n                     24  8  bytes of a token
 *   26  8  documents m                     32  8  sequences n
 *   34     i32[n] tokens of each           40  8  sizes, n where each has one dimension
 *          i64[n] its byte in NAME.bin     48  8  documents m (not in fairseq's)
 *          i64[m] not looked at               i64[n + 1] its first size, ascending from 0
 *                                             i64[n + 1] its first token in NAME.bin
 *                                             i64[n] tokens of each
 *                                             i64[m] not looked at
 */
#ifndef RKS_INGEST_MEGATRON_INDEX_H
#define RKS_INGEST_MEGATRON_INDEX_H

#include "codec/input_file.h"
#include "shard/schema.h"

enum {
    RKS_MEGATRON_ENDING = 4, /* bytes of ".idx" and ".bin" */
    RKS_MEGATRON_BATCH = 4096,
};

typedef struct rks_megatron {
    rks_input_file index, data; /* paths are their own */
    int index_fd, data_fd;
    const char *item; /* "uint16" */
    rks_kind kind;
    uint32_t item_size;
    uint64_t count; /* of sequences; the index is as large as they need */
    uint64_t head;  /* bytes of the index before its first list */
    bool older;
} rks_megatron;

typedef struct rks_megatron_sequence {
    uint32_t items;
    uint64_t place; /* in the data file, in bytes; all of it lies there */
} rks_megatron_sequence;

/* NAME.idx or NAME.bin. */
bool rks_megatron_is_named(const char *name);
/* The .idx file where PATH.idx and PATH.bin are there (rks_free); NULL where they are not. */
char *rks_megatron_of_stem(const char *path);

/* `given` is either file. To be closed in every case. */
rks_status rks_megatron_open(rks_megatron *pair, const rks_input_file *given, rks_error *err);
/* At most RKS_MEGATRON_BATCH sequences from `first` on. RKS_ERR_DATA names one that does not lie in
 * the data file. */
rks_status rks_megatron_read(const rks_megatron *pair, uint64_t first, uint64_t count,
                             rks_megatron_sequence *sequences, rks_error *err);
void rks_megatron_close(rks_megatron *pair);

#endif
