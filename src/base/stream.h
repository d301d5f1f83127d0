/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.h: a large file that is read once or twice from its beginning to its end, and then not
 * again. It is asked for 8 MiB ahead. Pieces of which nothing was in the system's cache before
 * leave it again: at the end, or, if the file is large beside the memory, right behind the reader. So
 * reading it pushes out nobody else's pages. One user. */
#ifndef RKS_BASE_STREAM_H
#define RKS_BASE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rks_stream {
    int fd;         /* -1: nothing is done */
    uint8_t *there; /* a bit a piece: a page of it was in memory */
    uint64_t size, looked, asked, left;
    bool large;
} rks_stream;

/* A file that cannot be opened, or of which this process may not know what is in memory, is left to
 * the system. */
void rks_stream_begin(rks_stream *stream, const char *path, uint64_t size);
/* Before bytes at `offset` are read; offsets ascend. */
void rks_stream_reach(rks_stream *stream, uint64_t offset);
/* Looks at all of the file now: for one that is read in order through a map. */
void rks_stream_look(rks_stream *stream);
/* No more is read, and the file is not mapped by this process any more. */
void rks_stream_end(rks_stream *stream);

#endif
