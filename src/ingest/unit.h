/* SPDX-License-Identifier: Apache-2.0
 *
 * unit.h: the deterministic pieces that input is dealt out in: a byte range of a file that ends at
 * a line's end, or a group of small files. The same list on every rank that sees the same input. */
#ifndef RKS_INGEST_UNIT_H
#define RKS_INGEST_UNIT_H

#include "base/checksum.h"
#include "rankstore.h"

typedef enum rks_format { RKS_FORMAT_JSONL, RKS_FORMAT_TEXT, RKS_FORMAT_FOLDER } rks_format;

typedef struct rks_input_file {
    char *path; /* to open it */
    char *name; /* relative to its source, for keys and messages; unique in the list */
    uint64_t size;
    rks_format format;
} rks_input_file;

typedef struct rks_input_unit {
    uint64_t number;   /* position in the list */
    size_t first_file; /* folder: a run of whole files; else file_count is 1 */
    size_t file_count;
    uint64_t offset; /* nominal byte range; lines that begin inside it are the unit's */
    uint64_t size;
    bool first_of_file;
} rks_input_unit;

typedef struct rks_input {
    rks_input_file *files; /* sorted by name */
    size_t file_count;
    rks_input_unit *units;
    size_t unit_count;
    uint64_t bytes;
} rks_input;

/* Looks at files and folders (recursively, sorted by bytes, links to files followed, hidden names
 * skipped). RKS_ERR_NOT_FOUND names a missing source, RKS_ERR_DATA an empty folder or a source that
 * is no file. */
rks_status rks_input_open(const char *const *sources, size_t count,
                          const rks_build_options *options, rks_input **input, rks_error *err);
void rks_input_free(rks_input *input); /* NULL is accepted */
/* Over names, sizes and ranges, not over paths: part of the build id. */
rks_digest rks_input_digest(const rks_input *input);
/* Deals units to ranks, largest first to the least loaded; owners[unit] is the rank. `done` (may be
 * NULL) marks units that are finished already and go to nobody (UINT32_MAX). Deterministic. */
rks_status rks_input_deal(const rks_input *input, uint32_t ranks, const bool *done,
                          uint32_t *owners, rks_error *err);

/* Lines that begin in a unit, for the row numbers of a file's later units. */
rks_status rks_unit_count_rows(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err);

#endif
