/* SPDX-License-Identifier: Apache-2.0
 *
 * archive.h: reads the members of an archive through libarchive, or the contents of one compressed
 * file as its only member. It writes no files: it only reports names. */
#ifndef RKS_CODEC_ARCHIVE_H
#define RKS_CODEC_ARCHIVE_H

#include "codec/input_file.h"

typedef struct rks_archive rks_archive;

typedef enum rks_archive_kind {
    RKS_ARCHIVE_RAW, /* zstd, xz or bzip2 without an archive inside */
    RKS_ARCHIVE_TAR, /* plain or packed */
    RKS_ARCHIVE_ZIP, /* plain; members by the central directory, sorted by position */
} rks_archive_kind;

typedef struct rks_member {
    const char *name; /* as it is in the archive; valid until the next call */
    uint64_t size;
    uint64_t position;  /* in a plain tar: position of its first header */
    bool folder;        /* a folder, which all readers skip */
    const char *refuse; /* why it is refused ("a symbolic link"), or NULL */
} rks_member;

/* Opens an archive. A plain tar may be opened at the position of any member. `file` must outlive
 * *archive. */
rks_status rks_archive_open(rks_archive_kind kind, const rks_input_file *file, uint64_t offset,
                            rks_archive **archive, rks_error *err);
/* Moves to the next member, or sets *end if there is none. Skips what was not read of the member
 * before. A malformed archive is RKS_ERR_DATA, naming the file and how far it was read. Checks for
 * interrupts. */
rks_status rks_archive_next(rks_archive *archive, rks_member *member, bool *end, rks_error *err);
/* Like rks_unpack_read(), for the current member. */
rks_status rks_archive_read(rks_archive *archive, void *bytes, size_t size, size_t *got,
                            rks_error *err);
/* Reads the member's first bytes: `room`, or all of them if there are fewer. */
rks_status rks_archive_read_head(rks_archive *archive, uint8_t *bytes, size_t room, size_t *size,
                                 rks_error *err);
uint64_t rks_archive_taken(const rks_archive *archive); /* bytes of the file that were read */
void rks_archive_close(rks_archive *archive);           /* NULL is accepted */

/* Returns the versions of libarchive and of what it unpacks with ("libarchive 3.6.2 zlib/1.2.13
 * ..."). Static. */
const char *rks_archive_library(void);

#endif
