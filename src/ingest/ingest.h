/* SPDX-License-Identifier: Apache-2.0
 *
 * ingest.h: reading units into a shard.
 *
 * Rows     Lines of a file, counted from 0, so a row's line number is row + 1. Blank lines of JSONL
 *          are rows that hold no sample (they count in `seen` alone); an empty line of text is an
 *          empty sample. LF and CRLF end a line, the last one may go without; a BOM at the file's
 *          start is passed over. A line above max_sample is malformed, whatever it would become.
 * Schema   Text takes one column, str or bytes. A folder takes "path" (str) and "data" (bytes) or
 *          "text" (str). JSONL takes any: see row.h for how values are converted. Members that are
 *          no column are passed over where the user gave the schema (the options do), and malformed
 *          where it was inferred, or is kept from the dataset that is appended to.
 * Sample   A row that sample_rate does not take is not looked at: it is neither blank nor malformed
 *         and counts as filtered.
 * Bad rows What is wrong with one row (or one file of a folder): JSON, types, UTF-8, size, key,
 *          length. What a callback refuses, and a file that changes, always end the build. */
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
 * nullable, but for json, which takes null itself. Only null or empty lists: "json?", which gives
 * way to any other type. Lists that are numbers in one row and json in another, or of unlike depth:
 * json. Malformed rows are passed over with skip_bad, else an error; types that do not go together
 * are RKS_ERR_DATA naming the column, both types and the line. */
rks_status rks_ingest_infer(const rks_input *input, size_t unit, char **schema_text,
                            rks_error *err);
/* The union of two inferred schemas: int64 with float64 is float64, with null nullable, a list with
 * json is json; "data" and "text" of a folder are "data"; otherwise a conflict is RKS_ERR_DATA
 * naming the column and both types ("give --schema"). Columns keep the order of a; those of b alone
 * follow. Associative: units merged in their order give the same however they are grouped. */
rks_status rks_ingest_merge(const char *a, const char *b, char **merged, rks_error *err);

typedef struct rks_ingest_progress {
    /* About each MiB, and at the end: bytes read and samples kept of this unit so far. A failure
     * ends the unit with it. May be NULL. */
    rks_status (*tick)(void *user, uint64_t unit_bytes, uint64_t samples, rks_error *err);
    void *user;
    /* Keeps a schema that is too long for an error's text where the user can read it, and says how
     * to give it to --schema ("\"$(cat FILE)\""; rks_free). NULL: it cannot. May be NULL. */
    char *(*keep_schema)(void *user, const char *schema);
} rks_ingest_progress;

/* For units that are read at the same time, each by a thread: they end in order. A unit's turn is
 * when all units before it have ended. Until then its samples wait in memory, up to 64 MiB of
 * them, and it does not know which row of its file comes first. */
typedef struct rks_ingest_turn {
    /* Waits for the turn and sets *first_row. Fails where a unit before failed or the build is given
     * up: whatever became of this unit does not matter then. */
    rks_status (*wait)(void *user, uint64_t *first_row, rks_error *err);
    bool (*has_come)(void *user);
    void *user;
} rks_ingest_turn;

/* Reads one unit into the shard. Rows count in their file from `first_row`, or from what `turn`
 * says, if it is not NULL: then `bad`, the shard's units and `progress->keep_schema` are used in the
 * unit's turn alone, and the selector and the tick must be this thread's.
 * `options` are those of rks_input_options(). Malformed rows: RKS_ERR_DATA naming file and line
 * (counted from 1), or with skip_bad a line in
 * *bad (kept under 64 KiB) and a count. A row whose type does not fit the schema is malformed,
 * naming the column. Interrupts are noticed. `progress` may be NULL. */
rks_status rks_ingest_unit(const rks_input *input, size_t unit, uint64_t first_row,
                           const rks_schema *schema, const rks_ingest_options *options,
                           rks_selector *selector, rks_shard_writer *writer, rks_buffer *bad,
                           const rks_ingest_progress *progress, const rks_ingest_turn *turn,
                           rks_error *err);

/* Who gets the samples of a unit in a writer's place. */
typedef struct rks_ingest_taker {
    rks_read_fn take; /* a failure ends the unit, with the row's place in front */
    void *user;
} rks_ingest_taker;

/* The same without a shard: what the selector keeps goes to the taker, with its key, stored or
 * derived. *left_out counts what it did not keep, *bad_rows what skip_bad passed over. */
rks_status rks_ingest_read(const rks_input *input, size_t unit, uint64_t first_row,
                           const rks_schema *schema, const rks_ingest_options *options,
                           rks_selector *selector, const rks_ingest_taker *taker, rks_buffer *bad,
                           uint64_t *left_out, uint64_t *bad_rows, rks_error *err);

#endif
