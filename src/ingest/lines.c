/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.c: large reads into one buffer, in which memchr finds the lines.
 *
 * A line begins at byte 0 and behind each newline, as long as the file has a byte there. The range
 * [offset, offset + size) holds the lines that begin in it, so reading starts one byte early, to
 * see whether a line begins at `offset`, and the last line may end behind the range. Thus each line
 * is in exactly one range, wherever the cuts are. */
#include "ingest/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

enum { CHUNK = 1 << 20, OVERLAP = 64 << 10 };

static const uint8_t BOM[3] = {0xef, 0xbb, 0xbf};

rks_status rks_input_file_open(const rks_input_file *file, int *fd, rks_error *err)
{
    int opened = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened < 0) {
        if (errno == ENOENT)
            return rks_fail(err, RKS_ERR_NOT_FOUND, errno, "%s: no such file", file->path);
        return rks_fail_errno(err, errno, "%s", file->path);
    }
    rks_status status = rks_input_file_unchanged(file, opened, err);
    if (status != RKS_OK) {
        close(opened);
        return status;
    }
    if (file->size > CHUNK) /* else the first read asks for all of it */
        posix_fadvise(opened, 0, 0, POSIX_FADV_SEQUENTIAL);
    *fd = opened;
    return RKS_OK;
}

rks_status rks_input_file_unchanged(const rks_input_file *file, int fd, rks_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return rks_fail_errno(err, errno, "%s", file->path);
    if (!S_ISREG(info.st_mode))
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: not a regular file", file->path);
    if ((uint64_t)info.st_size != file->size)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: changed during the build: %" PRIu64 " bytes at first, now %" PRIu64,
                        file->path, file->size, (uint64_t)info.st_size);
    return RKS_OK;
}

rks_status rks_input_file_read(const rks_input_file *file, int fd, uint64_t offset, void *bytes,
                               size_t size, size_t *got, rks_error *err)
{
    ssize_t count;
    do
        count = pread(fd, bytes, size, (off_t)offset);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        return rks_fail_errno(err, errno, "%s: reading at %" PRIu64, file->path, offset);
    if (count == 0)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: changed during the build: %" PRIu64 " bytes at first, now %" PRIu64,
                        file->path, file->size, offset);
    *got = (size_t)count;
    return RKS_OK;
}

rks_status rks_input_file_read_all(const rks_input_file *file, int fd, uint64_t offset,
                                   uint8_t *bytes, size_t size, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t at = 0, got = 0; status == RKS_OK && at < size; at += got)
        status = rks_input_file_read(file, fd, offset + at, bytes + at, size - at, &got, err);
    return status;
}

/* Moves what is left to the front, makes room and reads on. Not at the file's end. */
static rks_status fill(rks_lines *lines, rks_error *err)
{
    rks_status status = rks_check_interrupt(err);
    if (status != RKS_OK)
        return status;
    size_t left = lines->filled - lines->begin;
    if (lines->begin > 0) {
        memmove(lines->data, lines->data + lines->begin, left);
        lines->begin = 0;
        lines->filled = left;
    }
    if (lines->filled == lines->room) {
        uint8_t *grown = rks_realloc(lines->data, lines->room * 2, 1, err);
        if (grown == NULL)
            return RKS_ERR_MEMORY;
        lines->data = grown;
        lines->room *= 2;
    }
    size_t got = 0;
    uint64_t want = lines->room - lines->filled;
    if (lines->stream != NULL) {
        status =
            rks_unpack_read(lines->stream, lines->data + lines->filled, (size_t)want, &got, err);
        lines->ended = got == 0;
        lines->filled += got;
        lines->read_to += got;
        return status;
    }
    if (want > lines->file->size - lines->read_to)
        want = lines->file->size - lines->read_to;
    /* Behind the range only the last line's end is needed. */
    if (lines->read_to < lines->end && want > lines->end - lines->read_to + OVERLAP)
        want = lines->end - lines->read_to + OVERLAP;
    status = rks_input_file_read(lines->file, lines->fd, lines->read_to,
                                 lines->data + lines->filled, (size_t)want, &got, err);
    if (status != RKS_OK)
        return status;
    lines->filled += got;
    lines->read_to += got;
    lines->ended = lines->read_to == lines->file->size;
    return RKS_OK;
}

static void advance(rks_lines *lines, size_t bytes)
{
    lines->begin += bytes;
    lines->position += bytes;
}

/* Passes over bytes up to and with the next newline, but not beyond `stop` by more than what is
 * buffered. */
static rks_status discard(rks_lines *lines, uint64_t stop, rks_error *err)
{
    for (;;) {
        uint8_t *at = lines->data + lines->begin;
        size_t left = lines->filled - lines->begin;
        const uint8_t *newline = left == 0 ? NULL : memchr(at, '\n', left);
        if (newline != NULL) {
            advance(lines, (size_t)(newline - at) + 1);
            return RKS_OK;
        }
        advance(lines, left);
        if (lines->position >= stop || lines->ended)
            return RKS_OK;
        rks_status status = fill(lines, err);
        if (status != RKS_OK)
            return status;
    }
}

rks_status rks_lines_open(rks_lines *lines, const rks_input_file *file, uint64_t offset,
                          uint64_t size, uint64_t limit, rks_error *err)
{
    *lines = (rks_lines){.file = file, .fd = -1, .end = offset + size, .limit = limit};
    bool packed = file->packing != RKS_PACKING_NONE;
    rks_status status = packed ? rks_unpack_open(file, &lines->stream, err)
                               : rks_input_file_open(file, &lines->fd, err);
    if (status != RKS_OK)
        return status;
    if (packed)
        lines->end = UINT64_MAX;
    lines->position = lines->read_to = offset == 0 ? 0 : offset - 1;
    lines->ended = !packed && lines->read_to == file->size;
    lines->room = size < CHUNK - OVERLAP && !packed ? (size_t)size + OVERLAP : CHUNK;
    lines->data = rks_alloc_raw(lines->room, 1, err);
    if (lines->data == NULL)
        return RKS_ERR_MEMORY;
    return offset == 0 ? RKS_OK : discard(lines, lines->end, err);
}

static void emit(rks_lines *lines, size_t size, size_t step, rks_line *line)
{
    const uint8_t *text = lines->data + lines->begin;
    if (lines->position == 0 && size >= sizeof(BOM) && memcmp(text, BOM, sizeof(BOM)) == 0) {
        text += sizeof(BOM);
        size -= sizeof(BOM);
    }
    if (size > 0 && text[size - 1] == '\r')
        size--;
    *line = (rks_line){.text = text, .size = size, .too_long = size > lines->limit};
    advance(lines, step);
}

rks_status rks_lines_next(rks_lines *lines, rks_line *line, rks_error *err)
{
    *line = (rks_line){0};
    if (lines->position >= lines->end)
        return rks_input_file_unchanged(lines->file, lines->fd, err);
    if (lines->ended && lines->begin == lines->filled)
        return RKS_OK; /* the stream has looked at the file */
    size_t looked = 0; /* at bytes of this line without finding its end */
    for (;;) {
        const uint8_t *at = lines->data + lines->begin;
        size_t left = lines->filled - lines->begin;
        const uint8_t *newline = left == looked ? NULL : memchr(at + looked, '\n', left - looked);
        if (newline != NULL) {
            emit(lines, (size_t)(newline - at), (size_t)(newline - at) + 1, line);
            return RKS_OK;
        }
        if (lines->ended && left == 0)
            return RKS_OK; /* packed: only now it is known */
        if (lines->ended) {
            emit(lines, left, left, line);
            return RKS_OK;
        }
        /* A BOM and a carriage return do not count. */
        if (left > lines->limit && left - lines->limit > sizeof(BOM) + 1) {
            uint64_t begin = lines->position;
            rks_status status = discard(lines, UINT64_MAX, err);
            if (status == RKS_OK)
                *line = (rks_line){.text = lines->data,
                                   .size = (size_t)(lines->position - begin),
                                   .too_long = true};
            return status;
        }
        looked = left;
        rks_status status = fill(lines, err);
        if (status != RKS_OK)
            return status;
    }
}

uint64_t rks_lines_done(const rks_lines *lines)
{
    return lines->stream != NULL ? rks_unpack_taken(lines->stream) : lines->position;
}

void rks_lines_close(rks_lines *lines)
{
    rks_unpack_close(lines->stream);
    if (lines->fd >= 0)
        close(lines->fd);
    rks_free(lines->data);
    *lines = (rks_lines){.fd = -1};
}

rks_status rks_lines_count(const rks_input_file *file, uint64_t offset, uint64_t size,
                           uint64_t *count, rks_error *err)
{
    int fd = -1;
    uint8_t *data = NULL;
    uint64_t lines = offset == 0 && size > 0; /* the one at byte 0 follows no newline */
    rks_status status = rks_input_file_open(file, &fd, err);
    if (status != RKS_OK)
        return status;
    uint64_t end = offset + size;
    uint64_t at = offset == 0 ? 0 : offset - 1;
    size_t room = size < CHUNK ? (size_t)size + 1 : CHUNK;
    data = rks_alloc_raw(room, 1, err);
    if (data == NULL) {
        status = RKS_ERR_MEMORY;
        goto out;
    }
    while (at + 1 < end) {
        size_t got = 0;
        uint64_t want = end - 1 - at;
        status = rks_check_interrupt(err);
        if (status == RKS_OK)
            status = rks_input_file_read(file, fd, at, data, want < room ? (size_t)want : room,
                                         &got, err);
        if (status != RKS_OK)
            goto out;
        for (size_t i = 0; i < got; i++)
            lines += data[i] == '\n';
        at += got;
    }
    *count = lines;
out:
    rks_free(data);
    close(fd);
    return status;
}
