/* SPDX-License-Identifier: Apache-2.0
 *
 * window.c: large reads into one buffer. */
#include "ingest/window.h"

#include <string.h>

#include "base/memory.h"

enum { CHUNK = 1 << 20, OVERLAP = 64 << 10 };

rks_status rks_window_open(rks_window *window, const rks_input_file *file, uint64_t offset,
                           uint64_t size, rks_error *err)
{
    bool packed = file->packing != RKS_PACKING_NONE;
    *window = (rks_window){.file = file,
                           .stop = packed ? UINT64_MAX : offset + size,
                           .position = offset,
                           .read_to = offset,
                           .ended = !packed && offset == file->size,
                           .room = CHUNK};
    if (!packed && size < CHUNK - OVERLAP)
        window->room = (size_t)size + OVERLAP;
    window->data = rks_alloc_raw(window->room + RKS_WINDOW_PADDING, 1, err);
    return window->data == NULL ? RKS_ERR_MEMORY
                                : rks_unpack_open(file, offset, &window->stream, err);
}

void rks_window_close(rks_window *window)
{
    rks_unpack_close(window->stream);
    rks_free(window->data);
    *window = (rks_window){0};
}

rks_status rks_window_fill(rks_window *window, rks_error *err)
{
    size_t left = window->filled - window->begin, got = 0;
    if (window->begin > 0) {
        memmove(window->data, window->data + window->begin, left);
        window->begin = 0;
        window->filled = left;
    }
    if (window->filled == window->room) {
        uint8_t *grown = rks_realloc(window->data, window->room * 2 + RKS_WINDOW_PADDING, 1, err);
        if (grown == NULL)
            return RKS_ERR_MEMORY;
        window->data = grown;
        window->room *= 2;
    }
    uint64_t want = window->room - window->filled;
    /* Behind the range only the last line's end is needed. */
    uint64_t wanted = window->stop > window->read_to ? window->stop - window->read_to : want;
    if (wanted < want && want - wanted > OVERLAP)
        want = wanted + OVERLAP;
    rks_status status =
        rks_unpack_read(window->stream, window->data + window->filled, (size_t)want, &got, err);
    window->filled += got;
    window->data[window->filled] = '\0';
    window->read_to += got;
    window->ended = got == 0 || (window->file->packing == RKS_PACKING_NONE &&
                                 window->read_to == window->file->size);
    return status;
}

rks_status rks_window_unchanged(const rks_window *window, rks_error *err)
{
    return rks_unpack_unchanged(window->stream, err);
}

bool rks_window_above(const rks_window *window, uint64_t limit)
{
    size_t left = window->filled - window->begin;
    return left > limit && left - limit > RKS_BOM_SIZE + 1;
}
