/* SPDX-License-Identifier: Apache-2.0
 *
 * row_log.c: an array that doubles until it is full. */
#include "shard/row_log.h"

#include "base/memory.h"
#include "shard/block.h"

rks_status rks_row_log_reserve(rks_row_log *log, size_t rows, rks_error *err)
{
    log->full = log->full || rows > RKS_SEGMENT_ROWS - log->count;
    if (log->full || log->count + rows <= log->room)
        return RKS_OK;
    size_t room = log->room == 0 ? 1024 : 2 * log->room;
    room = room < log->count + rows ? log->count + rows : room;
    room = room > RKS_SEGMENT_ROWS ? RKS_SEGMENT_ROWS : room;
    rks_logged_row *grown = rks_realloc(log->rows, room, sizeof(*grown), err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    log->rows = grown;
    log->room = room;
    return RKS_OK;
}

void rks_row_log_free(rks_row_log *log)
{
    rks_free(log->rows);
    *log = (rks_row_log){0};
}
