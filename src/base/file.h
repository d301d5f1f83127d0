/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h: files, with errors that name them. */
#ifndef RKS_BASE_FILE_H
#define RKS_BASE_FILE_H

#include "rankstore/base.h"

/* Opens /dev/null, for reading only, in the place of each of the descriptors 0 to 2 that is closed, as in
 * daemons: the next file would take it, words for stderr would go into that file, and libuv aborts on
 * such a descriptor. They stay open. Called before files and sockets are opened that stay open; what is
 * open costs a system call each. */
void rks_hold_standard_files(void);

/* Opens a regular file for reading; refuses links in the last place, FIFOs, devices and
 * directories without blocking. *size may be NULL. */
rks_status rks_file_open(const char *path, int *fd, uint64_t *size, rks_error *err);

/* Reads exactly `size` bytes at `offset`; a shorter file is RKS_ERR_CORRUPT. */
rks_status rks_file_read_at(int fd, const char *path, uint64_t offset, void *bytes, size_t size,
                            rks_error *err);

enum { RKS_FILE_PAGE = 4096 };
/* Where to read bytes from `offset` of a file on, in large pieces: the first place in `room` that lies
 * in its page as they lie in the file's. `room` has RKS_FILE_PAGE bytes more than are read. The
 * kernel copies with "rep movsb", at a quarter of its speed on some processors (AMD Zen 3) if the
 * target lies 1 to 63 bytes further in its page than the source: large blocks from malloc do. */
static inline uint8_t *rks_file_place(void *room, uint64_t offset)
{
    return (uint8_t *)room + (offset - (uint64_t)(uintptr_t)room) % RKS_FILE_PAGE;
}

/* Writes all of it at the file's position; a full disk is named as such. */
rks_status rks_file_write(int fd, const char *path, const void *bytes, size_t size, rks_error *err);

/* A whole small file with a NUL behind it; larger than `limit` is RKS_ERR_CORRUPT, a missing one
 * RKS_ERR_NOT_FOUND. Free *bytes with rks_free. */
rks_status rks_file_load(const char *path, size_t limit, char **bytes, size_t *size,
                         rks_error *err);
/* Replaces `path` so that a crash leaves the old or the new file: temporary name, fsync, rename,
 * fsync of the directory. If only the last fails, the new file is in place, and the error says that it
 * is not durable. */
rks_status rks_file_replace(const char *path, const void *bytes, size_t size, rks_error *err);
/* fsync of a file that is there and of its directory: after rks_file_replace has said "not durable". */
rks_status rks_file_make_durable(const char *path, rks_error *err);
/* fsync of the directory that holds `path`. */
rks_status rks_file_sync_directory_of(const char *path, rks_error *err);

/* mkdir -p; an existing directory is fine. */
rks_status rks_directory_make(const char *path, rks_error *err);

/* "disk full: ..." if the file system of `path` has less than `needed` bytes, the limit on a file's
 * size if they would have passed it, else what errno says. LMDB reports both as EIO, so the caller
 * asks here. */
rks_status rks_fail_write(rks_error *err, int error, const char *path, uint64_t needed);

#endif
