/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.h: the lines that start in a byte range of a file. The longest permitted line bounds the
 * memory, whatever the file holds. */
#ifndef RKS_INGEST_LINES_H
#define RKS_INGEST_LINES_H

#include "ingest/window.h"

typedef struct rks_lines {
    rks_window window;
    uint64_t limit; /* longest permitted line */
    bool is_inside; /* the position may lie in a line that began before the range */
} rks_lines;

typedef struct rks_line {
    const uint8_t *text; /* without its end (LF or CRLF) and without a BOM at the file's start;
                          * valid until the next call; NULL after the last line */
    size_t size;
    size_t readable; /* bytes from `text` on that may be read */
    bool too_long;   /* above the limit: `size` is its length, and `text` must not be read */
} rks_line;

/* Opens a range. `lines` needs no preparation; close it also on failure. A packed file is read as a
 * whole: pass offset 0; `size` is ignored. */
rks_status rks_lines_open(rks_lines *lines, const rks_input_file *file, uint64_t offset,
                          uint64_t size, uint64_t limit, rks_error *err);
/* Reads the next line. At the end, also checks whether the file has changed. Checks for
 * interrupts. */
rks_status rks_lines_next(rks_lines *lines, rks_line *line, rks_error *err);
void rks_lines_close(rks_lines *lines);

/* Counts the lines that start in the range. */
rks_status rks_lines_count(const rks_input_file *file, uint64_t offset, uint64_t size,
                           uint64_t *count, rks_error *err);

#endif
