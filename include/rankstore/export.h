/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/export.h: datasets in other formats. Part of rankstore.h. */
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
 * npz    an array a column; columns of varying size are concatenated, with COLUMN.offsets (and
 *        .shapes); .missing if a type has `?`
 * lmdb   an environment with a record a sample: its key, and its column's bytes, or a line of jsonl
 *        if there are several columns
 *
 * Names of files and members come from keys: other bytes than letters, digits and some signs are
 * %XX, and long parts end in a hash. No name leads out of the target. */
typedef struct rks_export_options {
    size_t struct_size;
    const char *to;    /* "jsonl", "tar", "dir", "npz", "lmdb"; NULL: by the target's ending, else
                        * dir */
    const char *where; /* as rks_build_options.where; NULL: all */
    const char *const *columns; /* NULL: all */
    size_t column_count;
    bool force; /* replaces an existing target; a directory only if an export made it */
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
    uint64_t respelled; /* JSON values that come back as the same JSON but not as the same bytes:
                         * spaces, escapes or digits differ */
    bool keys_left;     /* derived keys were not written, because a column is named "__key__" */
    uint64_t left_out;  /* samples in quarantine, or of shards that no rank has */
} rks_export_report;

/* COLLECTIVE. Writes the samples of a store, in the order of ids, into `target`. Rank 0 writes; the
 * others send it the samples that they serve. A few batches are in memory at once. The target
 * appears when it is complete and durable, or not at all; the next export removes what a killed one
 * left. RKS_ERR_ARGUMENT if the target exists and `force` is not set; RKS_ERR_STATE if another
 * export writes it. RKS_ERR_DATA names sample and column if the format cannot hold a value. With
 * the store's schema and key, a build from the jsonl or tar has the same samples (rks_diff: equal);
 * one from a dir, too, if the store was built from a folder. Derived keys are written as "__key__",
 * unless a column has that name. Then a build from the tar uses that column, the members' names, as
 * keys, or, with the key "", derives them from the tar's name. `report` may be NULL. */
RKS_API rks_status rks_store_export(rks_store *store, const char *target,
                                    const rks_export_options *options, rks_export_report *report,
                                    rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
