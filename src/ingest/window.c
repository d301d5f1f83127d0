/* SPDX-License-Identifier: Apache-2.0
 *
 * window.c: reads large runs into one buffer, at the same positions in pages as in the file
 * (rks_file_place). */
#include "ingest/window.h"

#include <string.h>

#include "base/file.h"
#include "base/memory.h"

enum { CHUNK = 1 << 20 };

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
    if (!packed && size < CHUNK - RKS_WINDOW_OVERLAP)
        window->room = (size_t)size + RKS_WINDOW_OVERLAP;
    window->data = rks_alloc_raw(window->room + RKS_WINDOW_PADDING, 1, err);
    if (window->data == NULL)
        return RKS_ERR_MEMORY;
    window->begin = window->filled = (size_t)(rks_file_place(window->data, offset) - window->data);
    rks_status status = rks_unpack_open(file, offset, &window->stream, err);
    if (status == RKS_OK && !packed)
        rks_unpack_until(window->stream, window->stop + RKS_WINDOW_OVERLAP);
    return status;
}

void rks_window_until(rks_window *window, uint64_t end)
{
    if (end < window->stop)
        rks_unpack_until(window->stream, end + RKS_WINDOW_OVERLAP);
}

void rks_window_close(rks_window *window)
{
    rks_unpack_close(window->stream);
    rks_free(window->data);
    *window = (rks_window){0};
}

static rks_status grow_window(rks_window *window, rks_error *err)
{
    size_t left = window->filled - window->begin;
    uint8_t *grown = rks_alloc_raw(2 * window->room + RKS_WINDOW_PADDING, 1, err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    uint8_t *place = rks_file_place(grown, window->position);
    memcpy(place, window->data + window->begin, left);
    rks_free(window->data);
    window->data = grown;
    window->begin = (size_t)(place - grown);
    window->filled = window->begin + left;
    window->room *= 2;
    return RKS_OK;
}

rks_status rks_window_fill(rks_window *window, rks_error *err)
{
    size_t left = window->filled - window->begin, first = window->begin % RKS_FILE_PAGE, got = 0;
    if (window->begin != first) {
        memmove(window->data + first, window->data + window->begin, left);
        window->begin = first;
        window->filled = first + left;
    }
    if (window->filled == window->room && grow_window(window, err) != RKS_OK)
        return RKS_ERR_MEMORY;
    uint64_t want = window->room - window->filled;
    /* After the range only the last line's end is needed. */
    uint64_t wanted = window->stop > window->read_to ? window->stop - window->read_to : want;
    if (wanted < want && want - wanted > RKS_WINDOW_OVERLAP)
        want = wanted + RKS_WINDOW_OVERLAP;
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
