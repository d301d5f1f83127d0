/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h: reads and writes files, with errors that name them. */
#ifndef RKS_BASE_FILE_H
#define RKS_BASE_FILE_H

#include "rankstore/base.h"

/* Opens /dev/null, read-only, on each of the descriptors 0 to 2 that is closed, as they are in
 * daemons. Otherwise the next file would get that number: text for stderr would go into it, and
 * libuv aborts on such a descriptor. They stay open. Call it before you open files or sockets that
 * stay open; it costs one system call for each open descriptor. */
void rks_hold_standard_files(void);

/* Opens a regular file for reading. Refuses FIFOs, devices and directories, and never blocks.
 * Follows a symbolic link if it leads to a regular file, and if it belongs to this user, to root or
 * to the file's owner: nobody else's link makes this process read a file. A missing file is
 * RKS_ERR_NOT_FOUND, a file of another kind and any other link RKS_ERR_CORRUPT. The caller closes
 * *fd. `size` may be NULL. */
rks_status rks_file_open(const char *path, int *fd, uint64_t *size, rks_error *err);

/* Reads exactly `size` bytes at `offset`. A file that ends earlier is RKS_ERR_CORRUPT. */
rks_status rks_file_read_at(int fd, const char *path, uint64_t offset, void *bytes, size_t size,
                            rks_error *err);

enum { RKS_FILE_PAGE = 4096 };
/* Returns where in `room` to read a large piece of a file that starts at `offset`: the first place
 * with the same position in its page as the piece has in the file's page. `room` must have
 * RKS_FILE_PAGE spare bytes. The reason: the kernel copies with "rep movsb", which on some
 * processors (AMD Zen 3) runs at a quarter of its speed if the target lies 1 to 63 bytes further
 * into its page than the source, as large blocks from malloc do. */
static inline uint8_t *rks_file_place(void *room, uint64_t offset)
{
    return (uint8_t *)room + (offset - (uint64_t)(uintptr_t)room) % RKS_FILE_PAGE;
}

/* Writes all bytes at the file's position. The error names a full disk. */
rks_status rks_file_write(int fd, const char *path, const void *bytes, size_t size, rks_error *err);

/* Puts a copy of the file in its place: who has it open keeps the old one. */
rks_status rks_file_renew(const char *path, rks_error *err);

/* Loads a whole file and adds a NUL. A file larger than `limit` bytes is RKS_ERR_CORRUPT, a missing
 * one RKS_ERR_NOT_FOUND. Free *bytes with rks_free. */
rks_status rks_file_load(const char *path, size_t limit, char **bytes, size_t *size,
                         rks_error *err);
/* Replaces `path` so that a crash leaves the old or the new file: writes a temporary file, fsyncs
 * it, renames it and fsyncs the directory. If only the last step fails, the new file is in place,
 * and the error says that it is not durable. */
rks_status rks_file_replace(const char *path, const void *bytes, size_t size, rks_error *err);
/* The same for a file of `size` bytes that `fill` writes to `fd`, piece by piece. */
typedef rks_status (*rks_file_fill)(void *user, int fd, const char *path, rks_error *err);
rks_status rks_file_replace_by(const char *path, uint64_t size, rks_file_fill fill, void *user,
                               rks_error *err);
/* Fsyncs an existing file and its directory. Call it after rks_file_replace has failed with "not
 * durable". */
rks_status rks_file_make_durable(const char *path, rks_error *err);
/* Fsyncs the directory that holds `path`. */
rks_status rks_file_sync_directory_of(const char *path, rks_error *err);

/* Makes a directory and its parents (mkdir -p). An existing directory is fine. */
rks_status rks_directory_make(const char *path, rks_error *err);

/* Fails a write to `path` of `needed` bytes that failed with errno `error`, and returns the status.
 * Names a full disk (also a quota), or the limit on a file's size if the write would pass it;
 * otherwise says what errno says. LMDB reports both as EIO, so the free space and the limit are
 * looked up here. */
rks_status rks_fail_write(rks_error *err, int error, const char *path, uint64_t needed);

#endif
