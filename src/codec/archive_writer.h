/* SPDX-License-Identifier: Apache-2.0
 *
 * archive_writer.h: tar and zip, written. In archive.c, which is the only file that includes
 * libarchive's headers. */
#ifndef RKS_CODEC_ARCHIVE_WRITER_H
#define RKS_CODEC_ARCHIVE_WRITER_H

#include "codec/archive.h"

/* Writes to an open file, which stays the caller's; `path` is for messages and must outlive the
 * writer. Members are stored as they are, and equal contents make equal archives: no owner, no
 * time. One thread at a time. */
typedef struct rks_archive_writer rks_archive_writer;
rks_status rks_archive_writer_open(rks_archive_kind kind, int fd, const char *path,
                                   rks_archive_writer **writer, rks_error *err);
/* One regular file of mode 0644 and exactly `size` bytes, which come in any number of pieces.
 * `name`: a relative path in ASCII. */
rks_status rks_archive_writer_begin(rks_archive_writer *writer, const char *name, uint64_t size,
                                    rks_error *err);
rks_status rks_archive_writer_put(rks_archive_writer *writer, const void *bytes, size_t size,
                                  rks_error *err);
rks_status rks_archive_writer_end(rks_archive_writer *writer, rks_error *err);
/* What ends the archive; without it the file is no whole one. */
rks_status rks_archive_writer_finish(rks_archive_writer *writer, rks_error *err);
void rks_archive_writer_close(rks_archive_writer *writer); /* NULL is accepted */

#endif
