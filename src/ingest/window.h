/* SPDX-License-Identifier: Apache-2.0
 *
 * window.h: the part of a file, unpacked where it is packed, in which lines or records are found:
 * it moves on, and grows where one is longer than it. */
#ifndef RKS_INGEST_WINDOW_H
#define RKS_INGEST_WINDOW_H

#include <string.h>

#include "ingest/unpack.h"

enum { RKS_BOM_SIZE = 3, RKS_WINDOW_PADDING = 64 };

/* What is not consumed yet is data[begin, filled), with a zero byte behind it: numbers end.
 * RKS_WINDOW_PADDING bytes behind it may be read. */
typedef struct rks_window {
    const rks_input_file *file;
    rks_unpack *stream;
    bool ended;        /* there is no more than what is filled */
    uint64_t stop;     /* what is wanted begins before it; UINT64_MAX where the file is packed */
    uint64_t position; /* of data[begin] in the file, unpacked */
    uint64_t read_to;  /* of data[filled] */
    uint8_t *data;
    size_t begin;
    size_t filled;
    size_t room;
} rks_window;

/* From `offset` on, which is 0 where the file is packed; what is wanted begins before
 * offset + size. To be closed in every case. */
rks_status rks_window_open(rks_window *window, const rks_input_file *file, uint64_t offset,
                           uint64_t size, rks_error *err);
/* Reads on: at least a byte, or `ended` is set. Notices interrupts. */
rks_status rks_window_fill(rks_window *window, rks_error *err);
/* Where no more is read of a plain file: RKS_ERR_DATA where it has changed. */
rks_status rks_window_unchanged(const rks_window *window, rks_error *err);
/* Bytes of the file that are done, packed ones where it is packed. */
static inline uint64_t rks_window_done(const rks_window *window)
{
    return window->file->packing == RKS_PACKING_NONE ? window->position
                                                     : rks_unpack_taken(window->stream);
}
void rks_window_close(rks_window *window);

static inline void rks_window_pass(rks_window *window, size_t bytes)
{
    window->begin += bytes;
    window->position += bytes;
}

/* A line's or a record's bytes from data[begin] on, without a BOM at the file's start and a
 * carriage return at its end. */
static inline void rks_window_trim(const rks_window *window, uint8_t **text, size_t *size)
{
    *text = window->data + window->begin;
    if (window->position == 0 && *size >= RKS_BOM_SIZE &&
        memcmp(*text, "\xef\xbb\xbf", RKS_BOM_SIZE) == 0) {
        *text += RKS_BOM_SIZE;
        *size -= RKS_BOM_SIZE;
    }
    if (*size > 0 && (*text)[*size - 1] == '\r')
        --*size;
}

/* Bytes from `text` on, which lies in the window, that may be read. */
static inline size_t rks_window_readable(const rks_window *window, const uint8_t *text)
{
    return (size_t)(window->data + window->filled + RKS_WINDOW_PADDING - text);
}

/* More bytes than `limit` without an end, not counting what is trimmed. */
bool rks_window_above(const rks_window *window, uint64_t limit);

#endif
