/* SPDX-License-Identifier: Apache-2.0
 *
 * export.h: samples into files that other tools read. One sample in memory at a time.
 *
 * What is written is read back as the same sample, given the same schema, or refused:
 *
 *   jsonl  an object a line: "__key__" where no column holds the keys, then the columns; bytes are
 *          {"base64": "..."}, NaN and infinities strings
 *   tar    as WebDataset has it: members NAME.COLUMN, side by side for each sample
 *   dir    the same members as files, for other programs; what was built from a folder becomes a
 *          folder again
 *   npz    an array a column, [samples, dimensions...]; columns of varying size are one behind the
 *          other, with COLUMN.offsets; the picture is in npz.c
 *   lmdb   an environment (data.mdb) with a record a sample: its key, and the bytes of its column,
 *          or all columns as a line of jsonl where there are several */
#ifndef RKS_EXPORT_EXPORT_H
#define RKS_EXPORT_EXPORT_H

#include "base/buffer.h"
#include "shard/schema.h"

typedef enum rks_export_format {
    RKS_EXPORT_JSONL,
    RKS_EXPORT_TAR,
    RKS_EXPORT_NPZ,
    RKS_EXPORT_DIR,
    RKS_EXPORT_LMDB,
} rks_export_format;

/* Outlives the exporter, with all that it points to. */
typedef struct rks_export_job {
    rks_export_format format;
    const char *path; /* of the file or directory, which is made: nothing may be there */
    const rks_schema *schema;
    const uint32_t *columns; /* which, in the order of the schema */
    uint32_t column_count;
    bool keys_apart;     /* no column of these holds the keys */
    int key_column;      /* which one does, a column of the schema; -1: none. "__key__" names files
                          * also where it holds no keys, which are derived then */
    uint64_t *respelled; /* counts JSON values that are read back in another spelling */
} rks_export_job;

typedef struct rks_exporter rks_exporter;
rks_status rks_exporter_open(const rks_export_job *job, rks_exporter **exporter, rks_error *err);
/* RKS_ERR_DATA says what this format cannot hold of the sample, or that its name is there twice. */
rks_status rks_exporter_add(rks_exporter *exporter, const rks_sample *sample, rks_error *err);
/* All of it is on the disk when this returns. */
rks_status rks_exporter_finish(rks_exporter *exporter, rks_error *err);
/* What was not finished is left as it is: the caller removes it. NULL is accepted. */
void rks_exporter_close(rks_exporter *exporter);

/* ---- for the files of this folder --------------------------------------------------------- */

typedef struct rks_export_ops {
    rks_status (*open)(const rks_export_job *job, void **state, rks_error *err);
    rks_status (*add)(void *state, const rks_sample *sample, rks_error *err);
    rks_status (*finish)(void *state, rks_error *err);
    void (*close)(void *state); /* NULL is accepted */
} rks_export_ops;
extern const rks_export_ops rks_export_jsonl, rks_export_members, rks_export_npz, rks_export_lmdb;

/* The column that holds keys where nothing else is asked for. */
#define RKS_EXPORT_KEY "__key__"

/* jsonl.c: appends the sample as an object, without a line's end. */
rks_status rks_export_object(const rks_export_job *job, const rks_sample *sample, rks_buffer *text,
                             rks_error *err);

/* The value of a json column as build would store it, appended to `text` (NULL: only looked at).
 * RKS_ERR_DATA where it is no JSON, or a null that would be read as missing. */
rks_status rks_export_json(const rks_export_job *job, const rks_column *column,
                           const rks_value *value, rks_buffer *text, rks_error *err);

/* names.c: a relative path that stays below where it is put, whatever the key: letters, digits and
 * some signs are kept, all else is %XX; "." and ".." are no part of it; parts of more than 180
 * bytes, and what is above 230, end in a hash of the key. A slash between parts stays. `dots`: a
 * dot in the last part stays too (but for a first one). `wide`: UTF-8 beyond ASCII stays. Appends a
 * NUL that size does not count. */
rks_status rks_export_name(const void *key, size_t size, bool dots, bool wide, rks_buffer *name,
                           rks_error *err);

#endif
