/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_writer.h: writing one shard: units of samples in, a sealed file with sums and manifest
 * out. Files: NAME.rks (LMDB), NAME.sums, NAME.json, and NAME.lock while a
 * writer lives. A shard without NAME.json is not sealed.
 *
 * Threads  One at a time, but for units that are written ahead (rks_unit_writer): each of them by a
 *          thread of its own; they get their places in order. The file's bytes are the same. */
#ifndef RKS_SHARD_SHARD_WRITER_H
#define RKS_SHARD_SHARD_WRITER_H

#include "base/checksum.h"
#include "shard/schema.h"

typedef struct rks_shard_writer rks_shard_writer;

typedef struct rks_shard_options {
    const rks_schema *schema;
    rks_digest build_id;
    uint64_t block_size;      /* 0: 1 MiB */
    uint64_t max_sample;      /* 0: 1 GiB */
    const char *const *index; /* index columns: names of scalar numeric columns of the schema */
    size_t index_count;
    bool no_lock;      /* write all the same where the file system has no locks */
    bool derived_keys; /* keys are not stored: "unit name:row" */
    uint64_t unit_size; /* of the build, for the record; 0: its units have none */
    uint32_t threads;   /* that compute the file's sums; 0: the caller's alone */
} rks_shard_options;

/* What a unit held, once finished. */
typedef struct rks_unit_summary {
    uint64_t unit;    /* its number in the dataset */
    uint64_t seen;    /* source rows, kept or not */
    uint64_t samples; /* kept */
    uint64_t filtered;
    uint64_t bad;
    uint64_t bytes;            /* column and key bytes of the kept */
    uint64_t first_source_row; /* row in its file of the unit's first row */
    rks_digest digest; /* of keys, lengths and contents, in row order; the same in any shard */
} rks_unit_summary;

/* Makes or resumes NAME.rks ("directory/name"): finished units stay, what an interrupted writer
 * left of an unfinished one is dropped. RKS_ERR_STATE names pid and host of another writer. An
 * existing part of another build_id is RKS_ERR_STATE. */
rks_status rks_shard_writer_open(const char *directory, const char *name,
                                 const rks_shard_options *options, rks_shard_writer **writer,
                                 rks_error *err);
/* Units that are finished already, in file order; valid until the next call. */
const rks_unit_summary *rks_shard_writer_units(const rks_shard_writer *writer, size_t *count);

/* `key_name`: what derived keys begin with; may be NULL where keys are stored. */
rks_status rks_shard_writer_begin(rks_shard_writer *writer, uint64_t unit, const char *key_name,
                                  uint64_t first_source_row, rks_error *err);
/* One sample. Derived key: key NULL, and the key is "key_name:(first_source_row + source_row)". */
rks_status rks_shard_writer_add(rks_shard_writer *writer, const rks_value *values, const void *key,
                                size_t key_size, uint32_t length, uint32_t source_row,
                                rks_error *err);
/* The unit's end: its record goes into the transaction of its last block. */
rks_status rks_shard_writer_end(rks_shard_writer *writer, uint64_t seen, uint64_t filtered,
                                uint64_t bad, rks_error *err);
/* A unit that is written ahead, while the units before it are written too. Without a place it keeps
 * its blocks in memory. */
typedef struct rks_unit_writer rks_unit_writer;

/* Any thread. */
rks_status rks_unit_writer_create(rks_shard_writer *shard, uint64_t unit, const char *key_name,
                                  rks_unit_writer **writer, rks_error *err);
/* As rks_shard_writer_add, but without a place the error about a sample that is too large names the
 * wrong row in a derived key; nothing was added then, and the call can be made again. */
rks_status rks_unit_writer_add(rks_unit_writer *unit, const rks_value *values, const void *key,
                               size_t key_size, uint32_t length, uint32_t source_row,
                               rks_error *err);
/* Bytes of the blocks that wait. */
uint64_t rks_unit_writer_kept(const rks_unit_writer *unit);
/* From here to the end it is this unit's turn: all units before it in the file have ended, and no
 * other thread uses the shard but to create units and to add to them. */
rks_status rks_unit_writer_place(rks_unit_writer *unit, uint64_t first_source_row, rks_error *err);
rks_status rks_unit_writer_end(rks_unit_writer *unit, uint64_t seen, uint64_t filtered,
                               uint64_t bad, rks_error *err);
/* Before the shard is sealed or closed. What has not ended is lost. NULL is accepted. */
void rks_unit_writer_free(rks_unit_writer *unit);

/* Commits, builds the index, sums and manifest, makes all of it durable. The writer is then only
 * closed. */
rks_status rks_shard_writer_seal(rks_shard_writer *writer, rks_error *err);
/* Where not sealed, what was committed stays for a resume. NULL is accepted. */
void rks_shard_writer_close(rks_shard_writer *writer);

#endif
