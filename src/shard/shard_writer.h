/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_writer.h: writes one shard: takes units of samples and makes a sealed file with sums and
 * manifest. Files: NAME.rks (LMDB), NAME.sums, NAME.json, and NAME.lock while a writer lives. A
 * shard without NAME.json is not sealed.
 *
 * Threads: one at a time, except for units that are written ahead (rks_unit_writer). Each of those
 * may have its own thread; they get their places in order, and the file's bytes are the same. */
#ifndef RKS_SHARD_SHARD_WRITER_H
#define RKS_SHARD_SHARD_WRITER_H

#include "base/checksum.h"
#include "shard/schema.h"

typedef struct rks_shard_writer rks_shard_writer;

typedef struct rks_shard_options {
    const rks_schema *schema;
    rks_digest build_id;
    rks_digest id; /* of a new shard: that of a lost one which holds the same units in the same
                    * order, so that its records are the same; all zero: a new id */
    uint64_t block_size;      /* 0: 1 MiB */
    uint64_t max_sample;      /* 0: 1 GiB */
    const char *const *index; /* index columns: names of scalar numeric columns of the schema */
    size_t index_count;
    bool no_lock;       /* if the file system has no locks, write without one */
    bool derived_keys;  /* keys are not stored; they are "unit name:row" */
    uint64_t unit_size; /* of the build, recorded in the manifest; 0 if units have none */
    uint32_t threads;   /* for the file's sums; 0: only the caller's */
} rks_shard_options;

/* What a finished unit held. */
typedef struct rks_unit_summary {
    uint64_t unit;    /* its number in the dataset */
    uint64_t seen;    /* source rows, kept or not */
    uint64_t samples; /* kept */
    uint64_t filtered;
    uint64_t bad;
    uint64_t bytes;            /* column and key bytes of the kept rows */
    uint64_t first_source_row; /* row in its file of the unit's first row */
    rks_digest digest; /* of keys, lengths and contents, in row order; the same in any shard */
} rks_unit_summary;

/* Makes or resumes NAME.rks in `directory`. Keeps finished units and drops what an interrupted
 * writer left of an unfinished one. RKS_ERR_STATE if another writer is active (names its pid and
 * host), or if the existing part has another build_id. */
rks_status rks_shard_writer_open(const char *directory, const char *name,
                                 const rks_shard_options *options, rks_shard_writer **writer,
                                 rks_error *err);
/* Returns the finished units, in file order; valid until the next call. */
const rks_unit_summary *rks_shard_writer_units(const rks_shard_writer *writer, size_t *count);

/* Begins a unit. `key_name` is what derived keys start with; it may be NULL if keys are stored. */
rks_status rks_shard_writer_begin(rks_shard_writer *writer, uint64_t unit, const char *key_name,
                                  uint64_t first_source_row, rks_error *err);
/* Adds one sample. If keys are derived, `key` is NULL and the key is "key_name:(first_source_row +
 * source_row)". */
rks_status rks_shard_writer_add(rks_shard_writer *writer, const rks_value *values, const void *key,
                                size_t key_size, uint32_t length, uint32_t source_row,
                                rks_error *err);
/* Ends the unit; its record goes into the transaction of its last block. */
rks_status rks_shard_writer_end(rks_shard_writer *writer, uint64_t seen, uint64_t filtered,
                                uint64_t bad, rks_error *err);
/* A unit that is written ahead, while the units before it are still being written. Until it has a
 * place it keeps its blocks in memory. */
typedef struct rks_unit_writer rks_unit_writer;

/* Makes a unit writer. Any thread may call it. */
rks_status rks_unit_writer_create(rks_shard_writer *shard, uint64_t unit, const char *key_name,
                                  rks_unit_writer **writer, rks_error *err);
/* Like rks_shard_writer_add. Before the unit has a place, the error for a sample that is too large
 * names the wrong row in a derived key. Nothing was added then, so the call can be repeated. */
rks_status rks_unit_writer_add(rks_unit_writer *unit, const rks_value *values, const void *key,
                               size_t key_size, uint32_t length, uint32_t source_row,
                               rks_error *err);
/* Returns the bytes of the blocks that wait in memory. */
uint64_t rks_unit_writer_kept(const rks_unit_writer *unit);
/* Gives the unit its place: from here to its end it is this unit's turn. All units before it in the
 * file have ended, and other threads may use the shard only to create units and to add to them. */
rks_status rks_unit_writer_place(rks_unit_writer *unit, uint64_t first_source_row, rks_error *err);
rks_status rks_unit_writer_end(rks_unit_writer *unit, uint64_t seen, uint64_t filtered,
                               uint64_t bad, rks_error *err);
/* Frees the unit; call it before the shard is sealed or closed. A unit that has not ended is lost.
 * NULL is accepted. */
void rks_unit_writer_free(rks_unit_writer *unit);

/* Commits, builds the index, sums and manifest, and makes everything durable. After that only close
 * the writer. */
rks_status rks_shard_writer_seal(rks_shard_writer *writer, rks_error *err);
/* Closes the writer. If the shard is not sealed, what was committed stays for a resume. NULL is
 * accepted. */
void rks_shard_writer_close(rks_shard_writer *writer);

#endif
