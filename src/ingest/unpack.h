/* SPDX-License-Identifier: Apache-2.0
 *
 * unpack.h: reads an input file from its first byte on, and unpacks it if it is compressed.
 *
 * The first bytes show the compression: gzip, zstd, xz, bzip2. Several packed streams one after the
 * other count as one. Checksums are verified (the CRC of gzip's and bzip2's members, xz's checks,
 * zstd's if it has one). The memory is the unpacker's own: at most 128 MiB for zstd, 1 GiB for xz,
 * else less than 10 MiB. */
#ifndef RKS_INGEST_UNPACK_H
#define RKS_INGEST_UNPACK_H

#include "ingest/unit.h"

enum {
    /* A file that unpacks to more than 1 GiB and to more than this many times its size is refused:
     * no real data is like that. gzip cannot exceed 1,032. */
    RKS_UNPACK_RATIO = 10000,
};

/* Finds the compression by the file's first bytes; of an object in a store by its name.
 * RKS_ERR_DATA if a name ends like a packed file
 * but the content is not packed, or empty. */
rks_status rks_packing_find(const rks_input_file *file, rks_packing *packing, rks_error *err);
/* Returns the bytes of the ending that shows the compression (".gz": 3); 0 if there is none. */
size_t rks_packing_ending(const char *name);

typedef struct rks_unpack rks_unpack;

/* Opens a file. A plain file may be read from any `offset` on, a packed one from 0. Reading more
 * than file->max_total bytes from a packed file is RKS_ERR_DATA naming the option. */
rks_status rks_unpack_open(const rks_input_file *file, uint64_t offset, rks_unpack **stream,
                           rks_error *err);
/* Reads at most `size` bytes; *got is 0 only at the end. A damaged or cut file is RKS_ERR_DATA
 * naming the file and how far it was read. Checks for interrupts. */
rks_status rks_unpack_read(rks_unpack *stream, void *bytes, size_t size, size_t *got,
                           rks_error *err);
/* Reads exactly `size` bytes; RKS_ERR_DATA if the file ends before. */
rks_status rks_unpack_read_all(rks_unpack *stream, uint8_t *bytes, size_t size, rks_error *err);
/* Checks a plain file that is not read to its end: RKS_ERR_DATA if it has changed. */
rks_status rks_unpack_unchanged(const rks_unpack *stream, rks_error *err);
/* Says that no byte of a plain file from `end` on will be wanted. */
void rks_unpack_until(const rks_unpack *stream, uint64_t end);
/* Checks the limits for `made` unpacked bytes and `more` to come, from `taken` bytes of the
 * file. */
rks_status rks_unpack_check(const rks_input_file *file, uint64_t taken, uint64_t made,
                            uint64_t more, rks_error *err);
uint64_t rks_unpack_taken(const rks_unpack *stream); /* bytes of the file that were read */
void rks_unpack_close(rks_unpack *stream);           /* NULL is accepted */

#endif
