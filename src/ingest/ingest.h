/* SPDX-License-Identifier: Apache-2.0
 *
 * ingest.h: reading units into a shard. */
#ifndef RKS_INGEST_INGEST_H
#define RKS_INGEST_INGEST_H

#include "base/buffer.h"
#include "ingest/select.h"
#include "ingest/unit.h"
#include "shard/shard_writer.h"

/* A schema from the first rows (1,000 or 8 MiB) of a unit, as JSON; *schema_text is allocated
 * (rks_free), or NULL where the unit holds no row. Text lines: {"text": "str"}. Folder: {"data":
 * "bytes", "path": "str"}, or
 * {"text": "str", "path": "str"} where every looked-at file is UTF-8 without NUL. JSONL: integers
 * int64, numbers with a fraction float64, true/false bool, strings str, lists of numbers int64[*]
 * or float64[*] (of lists of equal length [*,n]), other values json; null or missing makes a column
 * nullable. */
rks_status rks_ingest_infer(const rks_input *input, size_t unit, char **schema_text,
                            rks_error *err);
/* The union of two inferred schemas: int64 with float64 is float64, with null nullable, otherwise a
 * conflict is RKS_ERR_DATA naming the column and both types ("give --schema"). */
rks_status rks_ingest_merge(const char *a, const char *b, char **merged, rks_error *err);

typedef struct rks_ingest_progress {
    void (*tick)(void *user, uint64_t unit_bytes,
                 uint64_t samples); /* about each MiB; may be NULL */
    void *user;
} rks_ingest_progress;

/* Reads one unit into the writer (begin, add ..., end). Rows count from `first_row` in their file.
 * Malformed rows: RKS_ERR_DATA naming file and line (counted from 1), or with skip_bad a line in
 * *bad (kept under 64 KiB) and a count. A row whose type does not fit the schema is malformed,
 * naming the column. Interrupts are noticed. */
rks_status rks_ingest_unit(const rks_input *input, size_t unit, uint64_t first_row,
                           const rks_schema *schema, const rks_build_options *options,
                           rks_selector *selector, rks_shard_writer *writer, rks_buffer *bad,
                           const rks_ingest_progress *progress, rks_error *err);

#endif
