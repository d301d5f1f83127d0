/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.h: reads a large file once or twice from start to end, without displacing other pages. The
 * file is requested 8 MiB ahead. Granules of which nothing was in the system's cache before are
 * dropped from it again: at the end, or right behind the reader if the file is large compared with
 * the memory. One thread at a time. */
#ifndef RKS_BASE_STREAM_H
#define RKS_BASE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rks_stream {
    int fd;         /* -1: all calls do nothing */
    uint8_t *there; /* one bit a granule: some page of it was in memory */
    uint64_t size, looked, asked, left;
    bool large;
} rks_stream;

/* Starts a stream. If the file cannot be opened, or this process cannot see what is in memory, does
 * nothing and leaves the file to the system. */
void rks_stream_begin(rks_stream *stream, const char *path, uint64_t size);
/* Call it before you read the bytes at `offset`; offsets must ascend. */
void rks_stream_reach(rks_stream *stream, uint64_t offset);
/* Checks the whole file now: for a file that is read in order through a map. */
void rks_stream_look(rks_stream *stream);
/* Ends the stream. Nothing more is read, and this process no longer maps the file. */
void rks_stream_end(rks_stream *stream);

#endif
