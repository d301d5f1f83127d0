/* SPDX-License-Identifier: Apache-2.0
 *
 * writer_state.h: what shard_writer.c, unit_writer.c, writer_part.c and shard_seal.c share. */
#ifndef RKS_SHARD_WRITER_STATE_H
#define RKS_SHARD_WRITER_STATE_H

#include "shard/block.h"
#include "shard/committer.h"
#include "shard/lmdb_env.h"
#include "shard/manifest.h"
#include "shard/row_log.h"
#include "base/lock_file.h"
#include "shard/shard_writer.h"

struct rks_shard_writer {
    char *data_path; /* NAME.rks */
    char *sums_path;
    char *manifest_path;
    rks_lock_file *lock;
    rks_lmdb *env;            /* the committer uses it while there is one */
    rks_committer *committer; /* NULL once sealed, or if it failed to start */

    rks_schema *schema;
    rks_digest build_id;
    rks_digest shard_id;
    uint64_t max_sample;
    size_t block_limit; /* bytes of an ordinary block */
    uint32_t *index;    /* columns of the schema */
    size_t index_count;
    bool derived_keys;
    uint64_t unit_size; /* 0: samples from memory */
    uint32_t threads;   /* for the sums */
    bool sealed;
    bool broken; /* a unit lost bytes: only close is allowed */

    rks_unit_list units; /* finished, in file order */
    uint64_t rows;       /* rows in them */
    uint64_t next_block;
    rks_row_log log;         /* of the rows that this writer has put */
    uint64_t resumed_blocks; /* blocks that an earlier writer left: the seal checks them */

    bool in_unit;          /* a unit has its place and has not ended */
    rks_unit_writer *unit; /* the one of rks_shard_writer_begin */
};

/* Checks that the shard is neither sealed nor broken, and in a unit or not as `in_unit` says; else
 * RKS_ERR_STATE. */
rks_status rks_shard_writer_usable(const rks_shard_writer *writer, bool in_unit, rks_error *err);
/* Takes over what is committed and drops what is not finished. A new part gets its id. */
rks_status rks_writer_resume(rks_shard_writer *writer, rks_error *err);
/* Writes the index into the file. The committer has committed everything, and env is ours. On
 * success `manifest` is complete except for the fields that describe the finished file; its
 * identity and schema belong to the writer. */
rks_status rks_seal_index(rks_shard_writer *writer, rks_manifest *manifest, rks_error *err);
/* Keys of the database `index` below this one do not belong to the seal. */
#define RKS_SEGMENT_KEYS_FROM "c"
#define RKS_PART_KEY "build"
#define RKS_PART_UNIT_SIZE_KEY "build_unit_size"

/* The value of that entry, which writer_part.c draws. */
enum { RKS_PART_HEADER = 48, RKS_PART_MAGIC = 0x50534b52 }; /* "RKSP" */
enum { RKS_PART_UNIT_SIZE = 16 };                           /* bytes of the other entry's value */

#endif
