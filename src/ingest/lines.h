/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.h: the lines that begin in a byte range of a file. Memory is bounded by the longest line
 * that is permitted, whatever the file holds. */
#ifndef RKS_INGEST_LINES_H
#define RKS_INGEST_LINES_H

#include "ingest/window.h"

typedef struct rks_lines {
    rks_window window;
    uint64_t limit; /* longest line */
} rks_lines;

typedef struct rks_line {
    const uint8_t *text; /* without its end (LF or CRLF), and without a BOM at the file's start;
                          * valid until the next call; NULL behind the last line */
    size_t size;
    size_t readable; /* bytes from `text` on that may be read */
    bool too_long; /* above the limit: size says how long it is, and text is not to be read */
} rks_line;

/* `lines` needs no preparation, and is closed in every case. A packed file is read as a whole:
 * offset is 0, and `size` does not matter. */
rks_status rks_lines_open(rks_lines *lines, const rks_input_file *file, uint64_t offset,
                          uint64_t size, uint64_t limit, rks_error *err);
/* At the end it also looks whether the file has changed. Interrupts are noticed. */
rks_status rks_lines_next(rks_lines *lines, rks_line *line, rks_error *err);
void rks_lines_close(rks_lines *lines);

/* Lines that begin in the range. */
rks_status rks_lines_count(const rks_input_file *file, uint64_t offset, uint64_t size,
                           uint64_t *count, rks_error *err);

#endif
