/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/export.h: datasets written in other forms. Part of rankstore.h. */
#ifndef RANKSTORE_EXPORT_H
#define RANKSTORE_EXPORT_H

#include "rankstore/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- exporting ------------------------------------------------------------------------------- */

/* Formats
 * jsonl  an object a line: "__key__" if no column holds the keys, then the columns; bytes are
 *        {"base64": "..."}, NaN and infinities strings, integers above 2^63 - 1 strings
 * tar    as WebDataset has it: members KEY.COLUMN, side by side for each sample
 * dir    the same as files; samples {path, data} or {path, text} become a folder again
 * npz    an array a column; columns of varying size lie one behind the other, with COLUMN.offsets
 *        (and .shapes); .missing if a type has `?`
 * lmdb   an environment with a record a sample: its key, and its column's bytes, or a line of jsonl
 *        if there are several columns
 *
 * In names of files and members all but letters, digits and some signs of a key is %XX, and long
 * parts end in a hash; no name leads out of the target. */
typedef struct rks_export_options {
    size_t struct_size;
    const char *to;    /* "jsonl", "tar", "dir", "npz", "lmdb"; NULL: by the target's ending, else
                        * dir */
    const char *where; /* as rks_build_options.where; NULL: all */
    const char *const *columns; /* NULL: all */
    size_t column_count;
    bool force; /* an existing target is replaced; a directory only where an export made it */
    rks_progress_fn progress;
    void *progress_user;
} rks_export_options;

RKS_API void rks_export_options_default(rks_export_options *options);
RKS_SIZED_DEFAULT(rks_export_options)
#define rks_export_options_default(options) rks_export_options_default_sized(options)

typedef struct rks_export_report {
    size_t struct_size;
    uint64_t samples;  /* written */
    uint64_t filtered; /* dropped by where */
    uint64_t bytes;    /* of the written ones: the chosen columns' and the keys' */
    double seconds;
    char to[8];         /* the format */
    uint64_t respelled; /* JSON values whose text build would write in another way: spaces, escapes,
                         * digits. The same JSON is read back, not the same bytes */
    bool keys_left;     /* keys are derived, and not written, since a column "__key__" is */
    uint64_t left_out;  /* in quarantine, or of shards that no rank has */
} rks_export_report;

/* COLLECTIVE. Writes the samples of a store, in id order, into `target`: rank 0 writes, the others
 * send it what they serve; a few batches are in memory at once. The target is there when all of it
 * is written, durable, or not at all; what a killed export left is removed by the next one.
 * RKS_ERR_ARGUMENT where something is there and `force` is not set; RKS_ERR_STATE where another
 * export writes it. What a format cannot hold is refused, RKS_ERR_DATA naming sample and column:
 * jsonl and tar are built into the same samples again (rks_diff: equal) with the store's schema and
 * key, dir if the store was built from a folder. Derived keys are written as "__key__" unless
 * a column has that name: then they are not, and a tar is built again under that column's, the
 * members' names, or with the key "" under keys derived from its own name. *report may be NULL. */
RKS_API rks_status rks_store_export(rks_store *store, const char *target,
                                    const rks_export_options *options, rks_export_report *report,
                                    rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
