/* SPDX-License-Identifier: Apache-2.0
 *
 * export.h: writes samples to files that other tools read, with one sample in memory at a time.
 *
 * A written sample is read back as the same sample, given the same schema, or it is refused:
 *
 *   jsonl  an object a line: "__key__" if no column holds the keys, then the columns; bytes are
 *          {"base64": "..."}, NaN and infinities strings
 *   tar    as in WebDataset: members NAME.COLUMN, side by side for each sample
 *   dir    the same members as files, for other programs; what was built from a folder becomes a
 *          folder again
 *   npz    an array a column, [samples, dimensions...]; a column of varying size is one array of
 *          all items with COLUMN.offsets; npz_writer.c draws it
 *   lmdb   an environment (data.mdb) with a record a sample: its key, and the bytes of its column,
 *          or a line of jsonl if there are several columns */
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

/* The job, with all that it points to, must outlive the exporter. */
typedef struct rks_export_job {
    rks_export_format format;
    const char *path; /* of the file or directory to make; it must not exist */
    const rks_schema *schema;
    const uint32_t *columns; /* columns to export, in the order of the schema */
    uint32_t column_count;
    bool keys_apart;     /* none of these columns holds the keys */
    int key_column;      /* the schema's column that holds the keys; -1 if none. "__key__" also
                          * names files if it does not hold the keys, which are derived then */
    uint64_t *respelled; /* counts JSON values that are read back in another spelling */
} rks_export_job;

typedef struct rks_exporter rks_exporter;
rks_status rks_exporter_open(const rks_export_job *job, rks_exporter **exporter, rks_error *err);
/* Adds a sample. RKS_ERR_DATA says what this format cannot hold of it, or that its name appears
 * twice. */
rks_status rks_exporter_add(rks_exporter *exporter, const rks_sample *sample, rks_error *err);
/* Finishes; everything is durable when this returns. */
rks_status rks_exporter_finish(rks_exporter *exporter, rks_error *err);
/* Closes. An unfinished file stays as it is: the caller removes it. NULL is accepted. */
void rks_exporter_close(rks_exporter *exporter);

/* ---- for the files of this folder --------------------------------------------------------- */

typedef struct rks_export_ops {
    rks_status (*open)(const rks_export_job *job, void **state, rks_error *err);
    rks_status (*add)(void *state, const rks_sample *sample, rks_error *err);
    rks_status (*finish)(void *state, rks_error *err);
    void (*close)(void *state); /* NULL is accepted */
} rks_export_ops;
extern const rks_export_ops rks_export_jsonl, rks_export_members, rks_export_npz, rks_export_lmdb;

/* The column that holds keys by default. */
#define RKS_EXPORT_KEY "__key__"

/* Appends the sample as an object, without a line end; in jsonl_writer.c. */
rks_status rks_export_object(const rks_export_job *job, const rks_sample *sample, rks_buffer *text,
                             rks_error *err);

/* Appends the value of a json column to `text` as a build would store it. If `text` is NULL, only
 * checks it. RKS_ERR_DATA if it is not JSON, or a null that would be read as missing. */
rks_status rks_export_json(const rks_export_job *job, const rks_column *column,
                           const rks_value *value, rks_buffer *text, rks_error *err);

/* Makes a relative path that stays below its folder whatever the key is; in member_names.c.
 * Letters, digits and some signs are kept, all else becomes %XX. "." and ".." are never parts of
 * it. Parts of more than 180 bytes, and paths above 230, end in a hash of the key. A slash between
 * parts stays. `dots`: a dot in the last part stays, too, unless it is the first character. `wide`:
 * UTF-8 beyond ASCII stays. Appends a NUL that `size` does not count. */
rks_status rks_export_name(const void *key, size_t size, bool dots, bool wide, rks_buffer *name,
                           rks_error *err);

#endif
