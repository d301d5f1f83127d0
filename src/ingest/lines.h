/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.h: the lines that begin in a byte range of a file. Memory is bounded by the longest line
 * that is permitted, whatever the file holds. */
#ifndef RKS_INGEST_LINES_H
#define RKS_INGEST_LINES_H

#include "ingest/unpack.h"

typedef struct rks_lines {
    const rks_input_file *file;
    int fd;             /* of a plain file */
    rks_unpack *stream; /* instead, where it is packed */
    bool ended;         /* all of it is buffered */
    uint64_t end;       /* lines that begin before it are ours */
    uint64_t position;  /* in the file, unpacked, of the next line */
    uint64_t read_to;   /* in the file, unpacked, of the end of what is buffered */
    uint64_t limit;     /* longest line */
    uint8_t *data;
    size_t begin;  /* of the next line in data */
    size_t filled; /* bytes of data that are valid */
    size_t room;
} rks_lines;

typedef struct rks_line {
    const uint8_t *text; /* without its end (LF or CRLF), and without a BOM at the file's start;
                          * valid until the next call; NULL behind the last line */
    size_t size;
    bool too_long; /* above the limit: size says how long it is, and text is not to be read */
} rks_line;

/* Opens an input file for reading (links are followed) without ever blocking. RKS_ERR_DATA where it
 * is no regular file any more, or not as long as it was when it was listed. */
rks_status rks_input_file_open(const rks_input_file *file, int *fd, rks_error *err);
/* RKS_ERR_DATA where the file is not as long as it was when it was listed. */
rks_status rks_input_file_unchanged(const rks_input_file *file, int fd, rks_error *err);
/* Reads at most `size` bytes at `offset`: at least one, or RKS_ERR_DATA where there is none. */
rks_status rks_input_file_read(const rks_input_file *file, int fd, uint64_t offset, void *bytes,
                               size_t size, size_t *got, rks_error *err);
/* Reads all of `size` bytes at `offset`. */
rks_status rks_input_file_read_all(const rks_input_file *file, int fd, uint64_t offset,
                                   uint8_t *bytes, size_t size, rks_error *err);

/* `lines` needs no preparation, and is closed in every case. A packed file is read as a whole:
 * offset is 0, and `size` does not matter. */
rks_status rks_lines_open(rks_lines *lines, const rks_input_file *file, uint64_t offset,
                          uint64_t size, uint64_t limit, rks_error *err);
/* At the end it also looks whether the file has changed. Interrupts are noticed. */
rks_status rks_lines_next(rks_lines *lines, rks_line *line, rks_error *err);
void rks_lines_close(rks_lines *lines);
/* Bytes of the file that are done, packed ones where it is packed. */
uint64_t rks_lines_done(const rks_lines *lines);

/* Lines that begin in the range. */
rks_status rks_lines_count(const rks_input_file *file, uint64_t offset, uint64_t size,
                           uint64_t *count, rks_error *err);

#endif
