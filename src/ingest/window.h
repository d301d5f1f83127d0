/* SPDX-License-Identifier: Apache-2.0
 *
 * window.h: a moving window over a file (unpacked if it is packed), in which lines or records are
 * found. It grows if a line or record is longer than it. */
#ifndef RKS_INGEST_WINDOW_H
#define RKS_INGEST_WINDOW_H

#include <string.h>

#include "ingest/unpack.h"

enum { RKS_BOM_SIZE = 3, RKS_WINDOW_PADDING = 64 };
/* After its range a window reads at least so much, for the end of the last line. */
enum { RKS_WINDOW_OVERLAP = 64 << 10 };

/* Bytes not consumed yet are data[begin, filled). A zero byte follows, so that numbers end there.
 * RKS_WINDOW_PADDING bytes after `filled` may be read. */
typedef struct rks_window {
    const rks_input_file *file;
    rks_unpack *stream;
    bool ended;        /* the file has no more bytes */
    uint64_t stop;     /* wanted bytes start before it; UINT64_MAX if the file is packed */
    uint64_t position; /* of data[begin] in the unpacked file */
    uint64_t read_to;  /* of data[filled] */
    uint8_t *data;
    size_t begin;
    size_t filled;
    size_t room;
} rks_window;

/* Opens a window at `offset`, which must be 0 if the file is packed. Wanted lines start before
 * offset + size. Close it also on failure. */
rks_status rks_window_open(rks_window *window, const rks_input_file *file, uint64_t offset,
                           uint64_t size, rks_error *err);
/* Says that no line or record that begins at `end` or later will be wanted. */
void rks_window_until(rks_window *window, uint64_t end);
/* Reads at least one more byte, or sets `ended`. Checks for interrupts. */
rks_status rks_window_fill(rks_window *window, rks_error *err);
/* Checks a plain file when no more is read: RKS_ERR_DATA if it has changed. */
rks_status rks_window_unchanged(const rks_window *window, rks_error *err);
/* Returns the bytes of the file that are done; packed bytes if it is packed. */
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

/* Gets a line's or record's bytes from data[begin] on, without a BOM at the file's start and a
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

/* Returns how many bytes may be read from `text` on, which lies in the window. */
static inline size_t rks_window_readable(const rks_window *window, const uint8_t *text)
{
    return (size_t)(window->data + window->filled + RKS_WINDOW_PADDING - text);
}

/* Returns true if the window holds more than `limit` bytes, not counting what would be trimmed. */
bool rks_window_above(const rks_window *window, uint64_t limit);

#endif
