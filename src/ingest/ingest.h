/* SPDX-License-Identifier: Apache-2.0
 *
 * ingest.h: reads units into a shard.
 *
 * Rows     Lines of a file, counted from 0: a row's line number is row + 1. Blank lines of JSONL
 *          are rows without a sample (only `seen` counts them); an empty line of text is an empty
 *          sample. Lines end in LF or CRLF, which the last one may lack. A BOM at the file's start
 *          is skipped. A line above max_sample is malformed, whatever it holds.
 * Schema   Text takes one column, str or bytes. A folder takes "path" (str) and "data" (bytes) or
 *          "text" (str). JSONL takes any schema: row.h says how values are converted. Members
 *          without a column are skipped if the user gave the schema (options->schema), and
 *          malformed if it was inferred or belongs to the dataset that is appended to.
 * Sample   A row that sample_rate does not take is not read: it is neither blank nor malformed, and
 *          counts as filtered.
 * Bad rows Only one row (or one file of a folder) is wrong: JSON, types, UTF-8, size, key, length.
 *          What a callback refuses, and a file that changes, always end the build. */
#ifndef RKS_INGEST_INGEST_H
#define RKS_INGEST_INGEST_H

#include "base/buffer.h"
#include "ingest/sample_selection.h"
#include "ingest/unit.h"
#include "rankstore/input.h"
#include "shard/shard_writer.h"

/* Infers a schema from a unit's first rows (1,000 rows or 8 MiB), as JSON; *schema_text is
 * allocated (rks_free), or NULL if the unit has no rows.
 *   Text    {"text": "str"}
 *   Folder  {"data": "bytes", "path": "str"}, or {"text": "str", "path": "str"} if all files
 *           read are UTF-8 without NUL
 *   JSONL   integers are int64, numbers with a fraction float64, true/false bool, strings str,
 *           lists of numbers int64[*] or float64[*] (lists of lists of equal length [*,n]), other
 *           values json. null or a missing name makes a column nullable, except json, which holds
 *           null itself. Only nulls or empty lists are "json?", which yields to any other type.
 *           Lists that are numbers in one row and json in another, or differ in depth, are json.
 * With skip_bad, skips malformed rows; otherwise they are errors. Types that conflict are
 * RKS_ERR_DATA naming the column, both types and the line. */
rks_status rks_ingest_infer(const rks_input *input, size_t unit, char **schema_text,
                            rks_error *err);
/* Merges two inferred schemas: int64 with float64 is float64, null makes nullable, a list with
 * json is json; "data" and "text" of a folder are "data". Any other conflict is RKS_ERR_DATA
 * naming the column and both types ("give schema"). The columns of a keep their order; those
 * that only b has follow. Associative: units merged in their order give the same schema however
 * they are grouped. */
rks_status rks_ingest_merge(const char *a, const char *b, char **merged, rks_error *err);

typedef struct rks_ingest_progress {
    /* Called about every MiB and at the end, with the bytes read and samples kept of this unit. If
     * it fails, the unit fails. May be NULL. */
    rks_status (*tick)(void *user, uint64_t unit_bytes, uint64_t samples, rks_error *err);
    void *user;
    /* Stores a schema that is too long for an error's text where the user can read it, and returns
     * how to pass it to --schema ("\"$(cat FILE)\""; rks_free). Returns NULL if it cannot. May be
     * NULL. */
    char *(*keep_schema)(void *user, const char *schema);
} rks_ingest_progress;

/* For units that threads read in parallel: they end in order. A unit's turn comes when all units
 * before it have ended. Until then its samples wait in memory, up to 64 MiB (and
 * within input_bytes, if they are of stored inputs), and it does not know
 * which row of its file comes first. */
typedef struct rks_ingest_turn {
    /* Waits for the turn and sets *first_row. Fails if a unit before it failed or the build is
     * given up; then this unit's result does not matter. */
    rks_status (*wait)(void *user, uint64_t *first_row, rks_error *err);
    bool (*has_come)(void *user);
    void *user;
} rks_ingest_turn;

/* What units are read with. */
typedef struct rks_ingest_reading {
    const rks_input *input;
    const rks_schema *schema;
    const rks_ingest_options *options; /* they come from rks_input_options() */
    rks_selector *selector;
    rks_buffer *bad; /* lines that name malformed rows */
} rks_ingest_reading;

/* Reads one unit into the shard. Rows count in their file from `first_row`, or from what `turn`
 * says if it is not NULL. With a turn, `bad`, the shard's units and `progress->keep_schema` are
 * used only during the unit's turn, and the selector and the tick must belong to this thread.
 * Malformed rows are RKS_ERR_DATA naming file and line (counted from 1), or with skip_bad a line in
 * *bad (kept under 64 KiB) and a count. A row whose
 * type does not fit the schema is malformed; the error names the column. Checks for interrupts.
 * `progress` may be NULL. */
rks_status rks_ingest_unit(const rks_ingest_reading *with, size_t unit, uint64_t first_row,
                           rks_shard_writer *writer, const rks_ingest_progress *progress,
                           const rks_ingest_turn *turn, rks_error *err);

/* Reads a unit and compares it with one that is there, by counts and digest. Nothing is written.
 * `max_sample` as in rks_shard_options, but not 0. */
rks_status rks_ingest_check(const rks_ingest_reading *with, size_t unit, uint64_t max_sample,
                            const rks_ingest_progress *progress, const rks_unit_summary *wanted,
                            bool *same, rks_error *err);

/* Like rks_ingest_unit, but without a shard: passes what the selector keeps to the sink, with its
 * key, stored or derived, and its number in the file. *left_out counts what the selector did not
 * keep, *bad_rows what skip_bad skipped. */
rks_status rks_ingest_read(const rks_ingest_reading *with, size_t unit, uint64_t first_row,
                           rks_sink *sink, uint64_t *left_out, uint64_t *bad_rows, rks_error *err);

#endif
