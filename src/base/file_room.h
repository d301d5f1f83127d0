/* SPDX-License-Identifier: Apache-2.0
 *
 * file_room.h: room for a stretch of a file, before anybody writes there. Then no write meets a
 * full disk, and no write to a map a SIGBUS. */
#ifndef RKS_BASE_FILE_ROOM_H
#define RKS_BASE_FILE_ROOM_H

#include <stdbool.h>
#include <stdint.h>

/* Gives [at, at + bytes) of the file its blocks. Bytes that are there stay; a file that ends
 * earlier grows. Uses fallocate. Where that is forbidden or missing, it writes zeros into the
 * holes: nobody else may write into a hole of the stretch meanwhile. Returns 0, or an errno: ENOSPC
 * or EDQUOT for a full disk, EFBIG for a stretch past the limit on a file's size (ulimit -f), which
 * would be a SIGXFSZ in the caller. */
int rks_file_take_room(int fd, uint64_t at, uint64_t bytes);

/* Returns false if the limit on a file's size (ulimit -f) is below `bytes`: a write or a cut to
 * that size would be a SIGXFSZ. */
bool rks_file_may_have(uint64_t bytes);

#endif
