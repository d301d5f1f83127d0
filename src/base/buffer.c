/* SPDX-License-Identifier: Apache-2.0
 *
 * buffer.c: grows by doubling; checks sums for overflow. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "base/memory.h"

rks_status rks_buffer_reserve(rks_buffer *buffer, size_t more, rks_error *err)
{
    size_t needed;
    if (__builtin_add_overflow(buffer->size, more, &needed))
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: %zu + %zu bytes", buffer->size,
                        more);
    if (needed <= buffer->room)
        return RKS_OK;
    size_t room = buffer->room < SIZE_MAX / 4 ? buffer->room * 2 : needed;
    if (room < needed)
        room = needed;
    if (room < 256)
        room = 256;
    uint8_t *data = rks_realloc(buffer->data, room, 1, err);
    if (data == NULL)
        return RKS_ERR_MEMORY;
    buffer->data = data;
    buffer->room = room;
    return RKS_OK;
}

rks_status rks_buffer_print(rks_buffer *buffer, rks_error *err, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int size = rks_vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    rks_status status = rks_buffer_reserve(buffer, size < 0 ? 0 : (size_t)size + 1, err);
    if (status == RKS_OK && size > 0) {
        rks_vsnprintf((char *)buffer->data + buffer->size, (size_t)size + 1, format, again);
        buffer->size += (size_t)size;
    }
    va_end(again);
    return status;
}

void rks_buffer_free(rks_buffer *buffer)
{
    rks_free(buffer->data);
    *buffer = (rks_buffer){0};
}
