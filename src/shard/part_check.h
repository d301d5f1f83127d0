/* SPDX-License-Identifier: Apache-2.0
 *
 * part_check.h: is an unsealed part whole, as far as its finished units go? Asked before LMDB
 * opens it, since LMDB ends the process on a damaged file. */
#ifndef RKS_SHARD_PART_CHECK_H
#define RKS_SHARD_PART_CHECK_H

#include "base/checksum.h"
#include "rankstore/base.h"

/* Reads NAME.rks once: LMDB's pages, the part's own record, its unit list, and each block of the
 * finished units with its checksum. Blocks behind them are not looked at: the writer drops them.
 * RKS_ERR_CORRUPT says what is damaged; RKS_ERR_NOT_FOUND: there is no such file. */
rks_status rks_part_check(const char *path, rks_error *err);
/* Are these bytes a part's own record (the entry "build"), with the right checksum? */
bool rks_part_record_whole(const uint8_t *bytes, size_t size);

/* What an unsealed part says of its build. `schema` is rks_free'd by the caller. */
typedef struct rks_part_record {
    rks_digest build_id;
    char *schema;       /* its canonical text */
    uint64_t unit_size; /* 0: not recorded */
    size_t units;       /* finished */
} rks_part_record;

/* Reads NAME.rks as rks_part_check does, but no blocks. A file that a writer changes meanwhile is
 * RKS_ERR_CORRUPT or gives what one of its commits held. RKS_ERR_NOT_FOUND: no file, or it says
 * nothing of a build yet. */
rks_status rks_part_look(const char *path, rks_part_record *record, rks_error *err);

/* Removes the part if it is damaged, and logs why: its units are built again. The caller holds the
 * part's lock. */
rks_status rks_part_discard_damaged(const char *path, rks_error *err);

#endif
