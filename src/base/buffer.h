/* SPDX-License-Identifier: Apache-2.0
 *
 * buffer.h: a growing array of bytes. */
#ifndef RKS_BASE_BUFFER_H
#define RKS_BASE_BUFFER_H

#include <string.h>

#include "rankstore/base.h"

/* Start with {0}; free with rks_buffer_free. `data` may be NULL while `room` is 0. */
typedef struct rks_buffer {
    uint8_t *data;
    size_t size;
    size_t room;
} rks_buffer;

/* Makes room for `more` bytes after `size`. On failure the buffer is unchanged. */
rks_status rks_buffer_reserve(rks_buffer *buffer, size_t more, rks_error *err);

/* Appends `size` bytes. */
static inline rks_status rks_buffer_add(rks_buffer *buffer, const void *bytes, size_t size,
                                        rks_error *err)
{
    if (size > buffer->room - buffer->size) {
        rks_status status = rks_buffer_reserve(buffer, size, err);
        if (status != RKS_OK)
            return status;
    }
    if (size > 0)
        memcpy(buffer->data + buffer->size, bytes, size);
    buffer->size += size;
    return RKS_OK;
}

/* Appends formatted text without its NUL. */
rks_status rks_buffer_print(rks_buffer *buffer, rks_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void rks_buffer_free(rks_buffer *buffer);

#endif
