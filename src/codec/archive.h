/* SPDX-License-Identifier: Apache-2.0
 *
 * archive.h: the members of an archive, through libarchive; or what one compressed file holds, as
 * its only member. It writes no file: it only reports names. */
#ifndef RKS_CODEC_ARCHIVE_H
#define RKS_CODEC_ARCHIVE_H

#include "codec/input_file.h"

typedef struct rks_archive rks_archive;

typedef enum rks_archive_kind {
    RKS_ARCHIVE_RAW, /* zstd, xz or bzip2 without an archive inside */
    RKS_ARCHIVE_TAR, /* plain or packed */
    RKS_ARCHIVE_ZIP, /* plain; members by the central directory, in the order of their bytes */
} rks_archive_kind;

typedef struct rks_member {
    const char *name; /* as it is in the archive; valid until the next call */
    uint64_t size;
    uint64_t position;  /* in a plain tar: of its first header */
    bool folder;        /* passed over everywhere */
    const char *refuse; /* what it is that is not taken ("a symbolic link"), or NULL */
} rks_member;

/* A plain tar may be opened at any member's position. */
rks_status rks_archive_open(rks_archive_kind kind, const rks_input_file *file, uint64_t offset,
                            rks_archive **archive, rks_error *err);
/* *end instead of a member. What is not read of the one before is passed over. A malformed archive
 * is RKS_ERR_DATA, naming the file and how far it was read. Interrupts are noticed. */
rks_status rks_archive_next(rks_archive *archive, rks_member *member, bool *end, rks_error *err);
/* As rks_unpack_read(), of the member. */
rks_status rks_archive_read(rks_archive *archive, void *bytes, size_t size, size_t *got,
                            rks_error *err);
/* The member's first bytes: `room`, or all there are. */
rks_status rks_archive_read_head(rks_archive *archive, uint8_t *bytes, size_t room, size_t *size,
                                 rks_error *err);
uint64_t rks_archive_taken(const rks_archive *archive); /* bytes of the file that were read */
void rks_archive_close(rks_archive *archive);           /* NULL is accepted */

/* "libarchive 3.6.2 zlib/1.2.13 ...": it, and what it unpacks with. Static. */
const char *rks_archive_library(void);

#endif
