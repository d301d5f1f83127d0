/* SPDX-License-Identifier: Apache-2.0
 *
 * part_check.h: checks whether the finished units of an unsealed part are whole. Call it before
 * LMDB opens the part, since LMDB ends the process on a damaged file. */
#ifndef RKS_SHARD_PART_CHECK_H
#define RKS_SHARD_PART_CHECK_H

#include "base/checksum.h"
#include "rankstore/base.h"

/* Reads NAME.rks once and checks LMDB's pages, the part's own record, its unit list, and each
 * block of the finished units with its checksum. Does not read the blocks after them, which the
 * writer drops. RKS_ERR_CORRUPT says what is damaged; RKS_ERR_UNSUPPORTED: another version of the
 * library wrote its blocks; RKS_ERR_NOT_FOUND means that there is no such file. */
rks_status rks_part_check(const char *path, rks_error *err);
/* Returns true if these bytes are a part's own record (the entry "build") with the right
 * checksum. */
bool rks_part_record_whole(const uint8_t *bytes, size_t size);

/* What an unsealed part says of its build. The caller frees `schema` with rks_free. */
typedef struct rks_part_record {
    rks_digest build_id;
    char *schema;       /* its canonical text */
    uint64_t unit_size; /* 0: samples from memory */
    size_t units;       /* finished units */
} rks_part_record;

/* Reads NAME.rks as rks_part_check does, but no blocks. If a writer changes the file meanwhile,
 * returns RKS_ERR_CORRUPT or the state of one of its commits. RKS_ERR_NOT_FOUND: there is no file,
 * or it does not name a build yet. */
rks_status rks_part_look(const char *path, rks_part_record *record, rks_error *err);

/* Removes the part if it is damaged, and logs why; its units are built again. The caller holds the
 * part's lock. */
rks_status rks_part_discard_damaged(const char *path, rks_error *err);

#endif
