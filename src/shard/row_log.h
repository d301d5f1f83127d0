/* SPDX-License-Identifier: Apache-2.0
 *
 * row_log.h: logs what the index needs of the rows that this writer has written, so that the seal
 * need not read their blocks again. It holds at most one segment of rows; the seal walks the
 * rest. */
#ifndef RKS_SHARD_ROW_LOG_H
#define RKS_SHARD_ROW_LOG_H

#include <stddef.h>

#include "rankstore/base.h"

typedef struct rks_logged_row {
    uint64_t key_hash;
    uint32_t length;
    uint32_t place; /* of the record in its block, in units of RKS_RECORD_STEP */
} rks_logged_row;

/* Start with {.first = the shard's rows}. */
typedef struct rks_row_log {
    rks_logged_row *rows;
    uint64_t first; /* the first logged row, counted in the shard */
    size_t count, room;
    uint64_t largest; /* bytes of the largest logged record */
    bool full;
} rks_row_log;

/* Makes room for the next block's rows. Either all of them are logged or none. */
rks_status rks_row_log_reserve(rks_row_log *log, size_t rows, rks_error *err);
/* Logs the next row; it must have room. */
static inline void rks_row_log_add(rks_row_log *log, rks_logged_row row, uint64_t record_size)
{
    if (log->full)
        return;
    log->rows[log->count++] = row;
    log->largest = record_size > log->largest ? record_size : log->largest;
}
/* Returns NULL if the row is not logged. */
static inline const rks_logged_row *rks_row_log_at(const rks_row_log *log, uint64_t row)
{
    return row < log->first || row - log->first >= log->count ? NULL : &log->rows[row - log->first];
}
void rks_row_log_free(rks_row_log *log);

#endif
