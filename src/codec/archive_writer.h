/* SPDX-License-Identifier: Apache-2.0
 *
 * archive_writer.h: writes tar and zip. It is in archive.c, the only file that includes
 * libarchive's headers. */
#ifndef RKS_CODEC_ARCHIVE_WRITER_H
#define RKS_CODEC_ARCHIVE_WRITER_H

#include "codec/archive.h"

/* Writes to an open file, which the caller closes; `path` is for messages and must outlive the
 * writer. Members are stored uncompressed, without owner or time, so equal contents make equal
 * archives. One thread at a time. */
typedef struct rks_archive_writer rks_archive_writer;
rks_status rks_archive_writer_open(rks_archive_kind kind, int fd, const char *path,
                                   rks_archive_writer **writer, rks_error *err);
/* Begins a regular file of mode 0644 and exactly `size` bytes, which rks_archive_writer_put adds in
 * any number of parts. `name` is a relative path in ASCII. */
rks_status rks_archive_writer_begin(rks_archive_writer *writer, const char *name, uint64_t size,
                                    rks_error *err);
rks_status rks_archive_writer_put(rks_archive_writer *writer, const void *bytes, size_t size,
                                  rks_error *err);
rks_status rks_archive_writer_end(rks_archive_writer *writer, rks_error *err);
/* Writes the archive's end; without it the archive is incomplete. */
rks_status rks_archive_writer_finish(rks_archive_writer *writer, rks_error *err);
void rks_archive_writer_close(rks_archive_writer *writer); /* NULL is accepted */

#endif
