/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum_file.c: computes, writes and compares the sums of a shard's file, on several threads. */
#include "shard/checksum_file.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"

enum { EACH_LEAST = 16 }; /* chunks a thread: fewer are not worth one */

/* A file whose sums several threads compute; each takes the next free chunk. */
typedef struct summing {
    int fd;
    const char *path;
    uint64_t file_size;
    uint8_t *sums;
    atomic_uint_fast64_t next; /* chunk */
    atomic_bool stop;          /* a thread has failed */
} summing;

typedef struct summer {
    summing *file;
    pthread_t thread;
    rks_status status;
    rks_error error;
} summer;

static rks_status sum_chunks(summing *file, rks_error *err)
{
    uint8_t *room = rks_alloc_raw(RKS_SUMS_CHUNK + RKS_FILE_PAGE, 1, err);
    uint8_t *bytes = room == NULL ? NULL : rks_file_place(room, 0); /* offsets of chunks are whole
                                                                     * pages */
    rks_status status = room == NULL ? RKS_ERR_MEMORY : RKS_OK;
    while (status == RKS_OK && !file->stop) {
        uint64_t chunk = atomic_fetch_add(&file->next, 1), at = chunk * RKS_SUMS_CHUNK;
        if (at >= file->file_size)
            break;
        uint64_t left = file->file_size - at;
        size_t size = left < RKS_SUMS_CHUNK ? (size_t)left : RKS_SUMS_CHUNK;
        status = rks_file_read_at(file->fd, file->path, at, bytes, size, err);
        if (status == RKS_OK)
            status = rks_check_interrupt(err);
        if (status != RKS_OK)
            break;
        rks_digest sum = rks_checksum128(bytes, size);
        uint8_t *entry = file->sums + chunk * RKS_DIGEST_SIZE;
        rks_store_u64(entry, sum.low);
        rks_store_u64(entry + 8, sum.high);
    }
    if (status != RKS_OK)
        file->stop = true;
    rks_free(room);
    return status;
}

static void *summer_main(void *user)
{
    summer *self = user;
    rks_interrupt_from(&self->file->stop); /* the caller's thread polls for interrupts */
    self->status = sum_chunks(self->file, &self->error);
    return NULL;
}

static bool start_summer(summer *made, summing *file)
{
    *made = (summer){.file = file};
    return rks_thread_start(&made->thread, summer_main, made) == 0;
}

static rks_status compute(int fd, const char *path, uint64_t file_size, uint32_t threads,
                          uint8_t *sums, rks_error *err)
{
    summing file = {.fd = fd, .path = path, .file_size = file_size, .sums = sums};
    summer others[RKS_SUMS_THREADS - 1];
    uint64_t chunks = rks_sums_count(file_size);
    uint32_t started = 0;
    threads = threads < RKS_SUMS_THREADS ? threads : RKS_SUMS_THREADS;
    while (started + 1 < threads && started + 1 < chunks / EACH_LEAST &&
           start_summer(&others[started], &file))
        started++;
    rks_status status = sum_chunks(&file, err);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(others[i].thread, NULL);
        /* A thread that stopped because of another one's failure does not matter. */
        if (status == RKS_OK && others[i].status != RKS_OK &&
            others[i].status != RKS_ERR_CANCELLED) {
            status = others[i].status;
            if (err != NULL)
                *err = others[i].error;
        }
    }
    return status;
}

/* Computes the sums of the file as it is. Free *sums with rks_free, also after an error. */
static rks_status sum_file(const char *path, uint64_t file_size, uint32_t threads, uint8_t **sums,
                           rks_error *err)
{
    int fd = -1;
    uint64_t found = 0;
    rks_status status = rks_file_open(path, &fd, &found, err);
    if (status != RKS_OK)
        return status;
    if (found != file_size)
        status = rks_fail(err, RKS_ERR_IO, 0,
                          "%s: %" PRIu64 " bytes, not %" PRIu64 ": another process writes to it",
                          path, found, file_size);
    if (status == RKS_OK) {
        *sums = rks_alloc_raw((size_t)rks_sums_count(file_size), RKS_DIGEST_SIZE, err);
        status = *sums == NULL ? RKS_ERR_MEMORY : compute(fd, path, file_size, threads, *sums, err);
    }
    close(fd);
    return status;
}

rks_status rks_sums_write(const char *path, uint64_t file_size, const char *sums_path,
                          uint32_t threads, rks_digest *digest, rks_error *err)
{
    uint8_t *sums = NULL;
    size_t size = (size_t)rks_sums_count(file_size) * RKS_DIGEST_SIZE;
    rks_status status = sum_file(path, file_size, threads, &sums, err);
    if (status == RKS_OK)
        status = rks_file_replace(sums_path, sums, size, err);
    if (status == RKS_OK)
        *digest = rks_checksum128(sums, size);
    rks_free(sums);
    return status;
}

static rks_digest sum_at(const uint8_t *sums, uint64_t chunk)
{
    const uint8_t *entry = sums + chunk * RKS_DIGEST_SIZE;
    return (rks_digest){rks_load_u64(entry), rks_load_u64(entry + 8)};
}

rks_status rks_sums_load(const char *sums_path, uint64_t file_size, rks_digest digest,
                         rks_digest **sums, rks_error *err)
{
    char *bytes = NULL;
    rks_digest *loaded = NULL;
    size_t size = 0;
    uint64_t count = rks_sums_count(file_size);
    rks_status status =
        rks_file_load(sums_path, (size_t)count * RKS_DIGEST_SIZE, &bytes, &size, err);
    if (status != RKS_OK)
        return status;
    if (size != count * RKS_DIGEST_SIZE || !rks_digest_equal(rks_checksum128(bytes, size), digest))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0,
                          "%s: %zu bytes that do not match the manifest's digest of the sums",
                          sums_path, size);
    if (status == RKS_OK) {
        loaded = rks_alloc((size_t)count, sizeof(*loaded), err);
        status = loaded == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    for (uint64_t i = 0; status == RKS_OK && i < count; i++)
        loaded[i] = sum_at((const uint8_t *)bytes, i);
    if (status == RKS_OK) {
        *sums = loaded;
        loaded = NULL;
    }
    rks_free(loaded);
    rks_free(bytes);
    return status;
}

rks_status rks_sums_check(const char *path, uint64_t file_size, const char *sums_path,
                          rks_digest digest, uint32_t threads, rks_error *err)
{
    rks_digest *sums = NULL;
    uint8_t *found = NULL;
    rks_status status = rks_sums_load(sums_path, file_size, digest, &sums, err);
    if (status == RKS_ERR_NOT_FOUND)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: is missing", sums_path);
    if (status == RKS_OK)
        status = sum_file(path, file_size, threads, &found, err);
    for (uint64_t i = 0; status == RKS_OK && i < rks_sums_count(file_size); i++)
        if (!rks_digest_equal(sum_at(found, i), sums[i]))
            status = rks_fail(err, RKS_ERR_CORRUPT, 0,
                              "%s: offset %" PRIu64 ": the MiB there has changed since it was "
                              "sealed",
                              path, i * RKS_SUMS_CHUNK);
    rks_free(found);
    rks_free(sums);
    return status;
}
