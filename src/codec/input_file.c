/* SPDX-License-Identifier: Apache-2.0
 *
 * input_file.c: reads files that may change, or be replaced by something else, meanwhile. */
#include "codec/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

enum { CHUNK = 1 << 20 };

/* Opens `path`, relative to the folder `at`. It is the file's path, or its last part. */
static rks_status open_any(const rks_input_file *file, int at, const char *path, int *fd,
                           rks_error *err)
{
    *fd = openat(at, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd >= 0 && file->size > CHUNK) /* smaller ones are read at once */
        posix_fadvise(*fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    if (*fd >= 0)
        return RKS_OK;
    if (errno == ENOENT)
        return rks_fail(err, RKS_ERR_NOT_FOUND, errno, "%s: no such file", file->path);
    return rks_fail_errno(err, errno, "%s", file->path);
}

static rks_status unchanged(const rks_input_file *file, int fd, rks_error *err)
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

rks_status rks_input_file_open(const rks_input_file *file, rks_input_handle **handle,
                               rks_error *err)
{
    rks_input_handle *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->fd = -1;
    rks_status status = file->store != NULL
                            ? file->store->open(file->store, file, &made->object, err)
                            : open_any(file, AT_FDCWD, file->path, &made->fd, err);
    if (status == RKS_OK && file->store == NULL)
        status = unchanged(file, made->fd, err);
    if (status == RKS_OK) {
        made->store = file->store;
        *handle = made;
    } else {
        rks_input_file_close(made);
    }
    return status;
}

void rks_input_file_close(rks_input_handle *handle)
{
    if (handle == NULL)
        return;
    if (handle->fd >= 0)
        close(handle->fd);
    if (handle->store != NULL)
        handle->store->close(handle->object);
    rks_free(handle);
}

void rks_input_file_until(const rks_input_handle *handle, uint64_t end)
{
    if (handle->store != NULL)
        handle->store->until(handle->object, end);
}

void rks_input_file_ahead(const rks_input_file *file, uint64_t first, uint64_t end)
{
    if (file->store != NULL && first < end)
        file->store->ahead(file->store, file, first, end);
}

rks_status rks_input_file_unchanged(const rks_input_file *file, const rks_input_handle *handle,
                                    rks_error *err)
{
    /* A store compares the version with each read. */
    return handle->store != NULL ? RKS_OK : unchanged(file, handle->fd, err);
}

rks_status rks_input_file_read(const rks_input_file *file, const rks_input_handle *handle,
                               uint64_t offset, void *bytes, size_t size, size_t *got,
                               rks_error *err)
{
    ssize_t count;
    if (handle->store != NULL)
        return handle->store->read(handle->object, offset, bytes, size, got, err);
    do
        count = pread(handle->fd, bytes, size, (off_t)offset);
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

rks_status rks_input_file_read_all(const rks_input_file *file, const rks_input_handle *handle,
                                   uint64_t offset, uint8_t *bytes, size_t size, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t at = 0, got = 0; status == RKS_OK && at < size; at += got)
        status = rks_input_file_read(file, handle, offset + at, bytes + at, size - at, &got, err);
    return status;
}

void rks_input_folder_close(rks_input_folder *folder)
{
    if (folder->path != NULL)
        close(folder->fd);
    *folder = (rks_input_folder){0};
}

/* Opens the file through the open folder of the file before it, if both are in the same one. */
static rks_status open_in(const rks_input_file *file, rks_input_folder *folder, int *fd,
                          rks_error *err)
{
    const char *slash = strrchr(file->path, '/');
    size_t size = slash == NULL ? 0 : (size_t)(slash - file->path) + 1;
    if (size == 0)
        return open_any(file, AT_FDCWD, file->path, fd, err);
    if (folder->path == NULL || folder->size != size ||
        memcmp(folder->path, file->path, size) != 0) {
        rks_input_folder_close(folder);
        char *path = rks_format(err, "%.*s", (int)size, file->path);
        if (path == NULL)
            return RKS_ERR_MEMORY;
        int opened = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        rks_free(path);
        if (opened < 0)
            return open_any(file, AT_FDCWD, file->path, fd, err); /* fails with the reason */
        *folder = (rks_input_folder){.fd = opened, .path = file->path, .size = size};
    }
    return open_any(file, folder->fd, slash + 1, fd, err);
}

static rks_status load_stored(const rks_input_file *file, rks_buffer *data, rks_error *err)
{
    rks_input_handle *handle = NULL;
    rks_status status = rks_buffer_reserve(data, (size_t)file->size + 1, err);
    if (status == RKS_OK && file->size > 0)
        status = rks_input_file_open(file, &handle, err);
    if (status == RKS_OK && file->size > 0)
        rks_input_file_until(handle, file->size);
    if (status == RKS_OK && file->size > 0)
        status = rks_input_file_read_all(file, handle, 0, data->data, (size_t)file->size, err);
    if (status == RKS_OK)
        data->size = (size_t)file->size;
    rks_input_file_close(handle);
    return status;
}

/* Reads one byte more than the listed size: an unchanged file gives exactly its size, but a FIFO, a
 * device or a folder in its place does not. So no other check is needed if the size is right. */
rks_status rks_input_file_load(const rks_input_file *file, rks_input_folder *folder,
                               rks_buffer *data, rks_error *err)
{
    int fd = -1;
    ssize_t count = 1;
    uint64_t room = file->size + 1;
    data->size = 0;
    if (file->store != NULL)
        return load_stored(file, data, err);
    rks_status status = rks_buffer_reserve(data, room, err);
    if (status == RKS_OK)
        status = open_in(file, folder, &fd, err);
    while (status == RKS_OK && count > 0 && data->size < room) {
        uint64_t left = room - data->size;
        status = rks_check_interrupt(err);
        if (status != RKS_OK)
            break;
        do
            count =
                pread(fd, data->data + data->size, left < CHUNK ? left : CHUNK, (off_t)data->size);
        while (count < 0 && errno == EINTR);
        data->size += count > 0 ? (size_t)count : 0;
    }
    if (status == RKS_OK && data->size != file->size) {
        int error = count < 0 ? errno : 0;
        status = unchanged(file, fd, err); /* names what it is now */
        if (status == RKS_OK && error != 0)
            status = rks_fail_errno(err, error, "%s", file->path);
        if (status == RKS_OK)
            status = rks_fail(err, RKS_ERR_DATA, 0, "%s: changed during the build", file->path);
    }
    if (fd >= 0)
        close(fd);
    return status;
}
