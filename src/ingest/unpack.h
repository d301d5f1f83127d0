/* SPDX-License-Identifier: Apache-2.0
 *
 * unpack.h: the bytes of an input file from its first on, unpacked where it is compressed.
 *
 * The first bytes say how it is packed: gzip, zstd, xz, bzip2; several packed pieces behind each
 * other are one. Their checks are made (the CRC of gzip's and bzip2's members, xz's checks, zstd's
 * where it has one). Memory is the unpacker's own: at most 128 MiB for zstd, 1 GiB for xz, else
 * less than 10 MiB. */
#ifndef RKS_INGEST_UNPACK_H
#define RKS_INGEST_UNPACK_H

#include "ingest/unit.h"

enum {
    /* A file that unpacks to more than 1 GiB and to more than so many times its size is refused: no
     * data is like that. gzip cannot do more than 1,032. */
    RKS_UNPACK_RATIO = 10000,
};

/* By the file's first bytes. A name that ends like a packed one with other content, and nothing in
 * it, is RKS_ERR_DATA. */
rks_status rks_packing_find(const rks_input_file *file, rks_packing *packing, rks_error *err);
/* Bytes at the end of `name` that say how it is packed (".gz": 3); 0 where there are none. */
size_t rks_packing_ending(const char *name);

typedef struct rks_unpack rks_unpack;

/* A packed file that holds more than file->max_total: RKS_ERR_DATA naming the option, when reading
 * comes there. A plain file may be read from any `offset` on, a packed one from 0. */
rks_status rks_unpack_open(const rks_input_file *file, uint64_t offset, rks_unpack **stream,
                           rks_error *err);
/* At most `size` bytes; *got is 0 at the end alone. Damaged or cut: RKS_ERR_DATA naming the file
 * and how far it was read. Interrupts are noticed. */
rks_status rks_unpack_read(rks_unpack *stream, void *bytes, size_t size, size_t *got,
                           rks_error *err);
/* All of `size` bytes; RKS_ERR_DATA where the file ends before. */
rks_status rks_unpack_read_all(rks_unpack *stream, uint8_t *bytes, size_t size, rks_error *err);
/* Of a plain file before its end, which would say it: RKS_ERR_DATA where it has changed. */
rks_status rks_unpack_unchanged(const rks_unpack *stream, rks_error *err);
/* The limits, of `made` unpacked bytes and `more` to come, from `taken` bytes of the file. */
rks_status rks_unpack_check(const rks_input_file *file, uint64_t taken, uint64_t made,
                            uint64_t more, rks_error *err);
uint64_t rks_unpack_taken(const rks_unpack *stream); /* bytes of the file that have been read */
void rks_unpack_close(rks_unpack *stream);           /* NULL is accepted */

#endif
