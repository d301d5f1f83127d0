/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.c: finds the lines in a window with memchr.
 *
 * A line starts at byte 0 and after each newline, if the file has a byte there. A range [offset,
 * offset + size) holds the lines that start in it. So reading starts one byte early, to see whether
 * a line starts at `offset`, and the last line may end after the range. Thus each line is in
 * exactly one range, wherever the cuts are. */
#include "ingest/lines.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "codec/input_file.h"

enum { CHUNK = 1 << 20 };

/* Skips bytes up to and including the next newline, but beyond `stop` at most what is buffered. */
static rks_status discard(rks_window *window, uint64_t stop, rks_error *err)
{
    for (;;) {
        uint8_t *at = window->data + window->begin;
        size_t left = window->filled - window->begin;
        const uint8_t *newline = left == 0 ? NULL : memchr(at, '\n', left);
        if (newline != NULL) {
            rks_window_pass(window, (size_t)(newline - at) + 1);
            return RKS_OK;
        }
        rks_window_pass(window, left);
        if (window->position >= stop || window->ended)
            return RKS_OK;
        rks_status status = rks_window_fill(window, err);
        if (status != RKS_OK)
            return status;
    }
}

rks_status rks_lines_open(rks_lines *lines, const rks_input_file *file, uint64_t offset,
                          uint64_t size, uint64_t limit, rks_error *err)
{
    uint64_t before = offset > 0; /* the byte that shows whether a line starts at `offset` */
    *lines = (rks_lines){.limit = limit, .is_inside = offset > 0};
    return rks_window_open(&lines->window, file, offset - before, size + before, err);
}

static void emit(rks_lines *lines, size_t size, size_t step, rks_line *line)
{
    uint8_t *text;
    rks_window_trim(&lines->window, &text, &size);
    *line = (rks_line){.text = text,
                       .size = size,
                       .readable = rks_window_readable(&lines->window, text),
                       .too_long = size > lines->limit};
    rks_window_pass(&lines->window, step);
}

rks_status rks_lines_next(rks_lines *lines, rks_line *line, rks_error *err)
{
    rks_window *window = &lines->window;
    *line = (rks_line){0};
    if (lines->is_inside) {
        rks_status status = discard(window, window->stop, err);
        if (status != RKS_OK)
            return status;
        lines->is_inside = false;
    }
    if (window->position >= window->stop)
        return rks_window_unchanged(window, err);
    size_t looked = 0; /* bytes of this line that were searched */
    for (;;) {
        const uint8_t *at = window->data + window->begin;
        size_t left = window->filled - window->begin;
        const uint8_t *newline = left == looked ? NULL : memchr(at + looked, '\n', left - looked);
        if (newline != NULL) {
            emit(lines, (size_t)(newline - at), (size_t)(newline - at) + 1, line);
            return RKS_OK;
        }
        if (window->ended && left > 0)
            emit(lines, left, left, line);
        if (window->ended)
            return RKS_OK; /* a packed file's end is known only now */
        if (rks_window_above(window, lines->limit)) {
            uint64_t begin = window->position;
            rks_status status = discard(window, UINT64_MAX, err);
            if (status == RKS_OK)
                *line = (rks_line){.text = window->data,
                                   .size = (size_t)(window->position - begin),
                                   .too_long = true};
            return status;
        }
        looked = left;
        rks_status status = rks_window_fill(window, err);
        if (status != RKS_OK)
            return status;
    }
}

void rks_lines_close(rks_lines *lines)
{
    rks_window_close(&lines->window);
}

/* Counts in runs whose count fits a byte, so that the compiler compares many bytes at once. */
static uint64_t count_newlines(const uint8_t *data, size_t size)
{
    uint64_t lines = 0;
    while (size > 0) {
        size_t run = size < 255 ? size : 255;
        uint8_t found = 0;
        for (size_t i = 0; i < run; i++)
            found = (uint8_t)(found + (data[i] == '\n'));
        lines += found;
        data += run;
        size -= run;
    }
    return lines;
}

rks_status rks_lines_count(const rks_input_file *file, uint64_t offset, uint64_t size,
                           uint64_t *count, rks_error *err)
{
    rks_input_handle *handle = NULL;
    uint8_t *data = NULL;
    uint64_t lines = offset == 0 && size > 0; /* the one at byte 0 follows no newline */
    rks_status status = rks_input_file_open(file, &handle, err);
    if (status != RKS_OK)
        return status;
    uint64_t end = offset + size;
    rks_input_file_until(handle, end);
    uint64_t at = offset == 0 ? 0 : offset - 1;
    size_t room = size < CHUNK ? (size_t)size + 1 : CHUNK;
    data = rks_alloc_raw(room + RKS_FILE_PAGE, 1, err);
    if (data == NULL) {
        status = RKS_ERR_MEMORY;
        goto out;
    }
    while (at + 1 < end) {
        size_t got = 0;
        uint64_t want = end - 1 - at;
        uint8_t *into = rks_file_place(data, at);
        status = rks_check_interrupt(err);
        if (status == RKS_OK)
            status = rks_input_file_read(file, handle, at, into, want < room ? (size_t)want : room,
                                         &got, err);
        if (status != RKS_OK)
            goto out;
        lines += count_newlines(into, got);
        at += got;
    }
    *count = lines;
out:
    rks_free(data);
    rks_input_file_close(handle);
    return status;
}
