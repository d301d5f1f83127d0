/* SPDX-License-Identifier: Apache-2.0
 *
 * arrival.c: the files of one arriving shard. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_room.h"
#include "base/memory.h"
#include "home/arrival_state.h"
#include "shard/checksum_file.h"

/* Returns "DIRECTORY/NAME.ENDING". Free it with rks_free. */
static char *local_path(const rks_arrival *a, const char *ending, rks_error *err)
{
    return rks_format(err, "%s/%s.%s", a->directory, a->name, ending);
}

static bool exists_as(const rks_arrival *a, const char *ending)
{
    char *path = local_path(a, ending, NULL);
    bool exists = path != NULL && access(path, F_OK) == 0;
    rks_free(path);
    return exists;
}

/* ---- from where ------------------------------------------------------------------------------ */

bool rks_arrival_turns_home(rks_arrival *a, rks_home *from, rks_status status)
{
    rks_error unused;
    if (status == RKS_OK || a->home == NULL || from == a->home ||
        rks_check_interrupt(&unused) != RKS_OK)
        return false;
    atomic_store(&a->from, a->home);
    return true;
}

static rks_status read_file(rks_arrival *a, const char *name, size_t most, char **bytes,
                            size_t *size, rks_error *err)
{
    for (;;) {
        char version[RKS_HOME_VERSION] = "";
        rks_home *from = atomic_load(&a->from);
        rks_status status = rks_home_read_all(from, name, most, bytes, size, version, err);
        if (!rks_arrival_turns_home(a, from, status))
            return status;
    }
}

rks_status rks_arrival_borrow(rks_arrival *a, uint64_t first, uint64_t end, rks_home_loan *loan,
                              rks_error *err)
{
    for (;;) {
        /* A thread that was left behind in the local file system may find no home any more. */
        rks_status status = rks_check_interrupt(err);
        *loan = (rks_home_loan){0};
        if (status != RKS_OK)
            return status;
        rks_home *from = atomic_load(&a->from);
        status = rks_known_version_borrow(&a->version, from, a->home_file, first, end, loan, err);
        if (!rks_arrival_turns_home(a, from, status))
            return status;
    }
}

rks_status rks_arrival_read(rks_arrival *a, uint64_t first, uint64_t end, uint8_t *to,
                            rks_error *err)
{
    rks_home_loan got;
    rks_status status = rks_arrival_borrow(a, first, end, &got, err);
    if (status == RKS_OK)
        memcpy(to, got.bytes, (size_t)(end - first));
    rks_home_give_back(&got);
    return status;
}

/* ---- manifest and sums ----------------------------------------------------------------------- */

static void note_manifest(rks_arrival *a, const rks_manifest *manifest)
{
    a->size = manifest->file_size;
    a->sums_digest = manifest->sums;
}

static int parts_by_offset(const void *a, const void *b)
{
    const head_part *one = a, *other = b;
    return one->first < other->first ? -1 : one->first > other->first;
}

/* Lists the parts of the head. */
static rks_status find_head(rks_arrival *a, const rks_manifest *manifest, rks_error *err)
{
    const uint64_t page = manifest->page_size;
    a->head = rks_alloc(manifest->segment_count + 2, sizeof(*a->head), err);
    if (a->head == NULL)
        return RKS_ERR_MEMORY;
    a->head[0] = (head_part){.end = 2 * page, .digest = manifest->head};
    a->head[1] = (head_part){
        .first = manifest->main_page, .end = manifest->main_page + page, .digest = manifest->main};
    for (size_t i = 0; i < manifest->segment_count; i++) {
        const rks_segment *segment = &manifest->segments[i];
        a->head[2 + i] = (head_part){
            segment->offset, segment->offset + segment->size, true, segment->check, {0}};
    }
    a->head_count = manifest->segment_count + 2;
    qsort(a->head, a->head_count, sizeof(*a->head), parts_by_offset);
    return RKS_OK;
}

/* Loads the local file of that ending if it is the manifest that the dataset names; else NULL. */
static rks_manifest *load_manifest(rks_arrival *a, const char *ending)
{
    rks_manifest *manifest = NULL;
    char *path = local_path(a, ending, NULL);
    if (path != NULL && rks_manifest_load(path, &manifest, NULL) == RKS_OK &&
        !rks_digest_equal(manifest->digest, a->manifest)) {
        rks_manifest_free(manifest);
        manifest = NULL;
    }
    rks_free(path);
    if (manifest != NULL)
        note_manifest(a, manifest);
    return manifest;
}

static bool has_manifest(rks_arrival *a, const char *ending)
{
    rks_manifest *manifest = load_manifest(a, ending);
    rks_manifest_free(manifest);
    return manifest != NULL;
}

/* Returns true if the shard is here, sealed. */
static bool is_whole(rks_arrival *a)
{
    struct stat info;
    char *path = local_path(a, "rks", NULL);
    bool whole = path != NULL && has_manifest(a, "json") && stat(path, &info) == 0 &&
                 (uint64_t)info.st_size == a->size;
    rks_free(path);
    return whole;
}

static rks_status write_file(const rks_arrival *a, const char *ending, const void *bytes,
                             size_t size, rks_error *err)
{
    char *path = local_path(a, ending, err);
    rks_status status = path == NULL ? RKS_ERR_MEMORY : rks_file_replace(path, bytes, size, err);
    rks_free(path);
    return status;
}

static rks_status fetch_manifest(rks_arrival *a, rks_manifest **manifest, rks_error *err)
{
    char *bytes = NULL, *shown = NULL;
    size_t size = 0;
    char *name = rks_format(err, "%s.json", a->name);
    rks_status status =
        name == NULL ? RKS_ERR_MEMORY : read_file(a, name, RKS_MANIFEST_MAX, &bytes, &size, err);
    if (status == RKS_OK) {
        shown = rks_format(err, "%s/%s", rks_arrival_source(a), name);
        status =
            shown == NULL ? RKS_ERR_MEMORY : rks_manifest_decode(bytes, size, shown, manifest, err);
    }
    if (status == RKS_OK && !rks_digest_equal((*manifest)->digest, a->manifest))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: not the manifest that dataset.json names",
                          shown);
    if (status == RKS_OK)
        status = write_file(a, "manifest", bytes, size, err);
    rks_free(shown);
    rks_free(bytes);
    rks_free(name);
    return status;
}

static rks_status bring_manifest(rks_arrival *a, rks_error *err)
{
    rks_manifest *manifest = load_manifest(a, "manifest");
    rks_status status = manifest == NULL ? fetch_manifest(a, &manifest, err) : RKS_OK;
    if (status == RKS_OK) {
        note_manifest(a, manifest);
        status = find_head(a, manifest, err);
    }
    rks_manifest_free(manifest);
    return status;
}

static rks_status bring_sums(rks_arrival *a, rks_error *err)
{
    char *bytes = NULL;
    size_t size = 0, expected = (size_t)rks_sums_count(a->size) * RKS_DIGEST_SIZE;
    char *path = local_path(a, "sums", err), *name = rks_format(err, "%s.sums", a->name);
    rks_status status = path == NULL || name == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK &&
        rks_sums_load(path, a->size, a->sums_digest, &a->sums, NULL) != RKS_OK) {
        status = read_file(a, name, expected, &bytes, &size, err);
        if (status == RKS_OK &&
            (size != expected || !rks_digest_equal(rks_checksum128(bytes, size), a->sums_digest)))
            status =
                rks_fail(err, RKS_ERR_CORRUPT, 0, "%s/%s: not the sums that the manifest names",
                         rks_arrival_source(a), name);
        if (status == RKS_OK)
            status = rks_file_replace(path, bytes, size, err);
        if (status == RKS_OK)
            status = rks_sums_load(path, a->size, a->sums_digest, &a->sums, err);
    }
    rks_free(bytes);
    rks_free(path);
    rks_free(name);
    return status;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Takes the room of the whole file at once: a disk that is too small shows now, not in the middle
 * of an epoch. */
static rks_status reserve_file(const rks_arrival *a, rks_error *err)
{
    if (!rks_file_may_have(a->size))
        return rks_fail_write(err, EFBIG, a->file, a->size);
    if (ftruncate(a->fd, 0) != 0)
        return rks_fail_errno(err, errno, "%s: cutting it", a->file);
    if (a->sparse)
        return ftruncate(a->fd, (off_t)a->size) == 0
                   ? RKS_OK
                   : rks_fail_errno(err, errno, "%s: giving it its size", a->file);
    int error = rks_file_take_room(a->fd, 0, a->size);
    return error == 0 ? RKS_OK : rks_fail_write(err, error, a->file, a->size);
}

static rks_status rename_to(rks_arrival *a, const char *from, const char *to, rks_error *err)
{
    char *old = local_path(a, from, err), *now = local_path(a, to, err);
    rks_status status = old == NULL || now == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK && rename(old, now) != 0)
        status = rks_fail_errno(err, errno, "%s: renaming it", old);
    rks_free(old);
    rks_free(now);
    return status;
}

/* A process that was killed while it finished may have left NAME.rks without its manifest: that is
 * the arriving file. One that has another name is not: it is linked from another directory
 * (staging/adopt.h), whose readers map it. */
static rks_status reopen_sealed(const rks_arrival *a, rks_error *err)
{
    struct stat info;
    if (exists_as(a, "arriving") || !exists_as(a, "rks"))
        return RKS_OK;
    char *sealed = local_path(a, "rks", err);
    rks_status status = sealed == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK && lstat(sealed, &info) == 0 && info.st_nlink > 1) {
        if (unlink(sealed) != 0)
            status = rks_fail_errno(err, errno, "%s: removing it", sealed);
    } else if (status == RKS_OK && rename(sealed, a->file) != 0) {
        status = rks_fail_errno(err, errno, "%s: renaming it", sealed);
    }
    rks_free(sealed);
    return status;
}

static rks_status open_file(rks_arrival *a, bool *fresh, rks_error *err)
{
    struct stat info;
    a->fd = open(a->file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (a->fd < 0 || fstat(a->fd, &info) != 0)
        return rks_fail_errno(err, errno, "%s: opening it", a->file);
    if (!S_ISREG(info.st_mode))
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: not a regular file", a->file);
    if ((uint64_t)info.st_size == a->size)
        return RKS_OK;
    *fresh = true;
    rks_status status = reserve_file(a, err);
    if (status != RKS_OK)
        unlink(a->file);
    return status;
}

/* Does all that only one process may do at a time. */
static rks_status prepare_files(void *user, uint64_t *file_size, bool *fresh, rks_error *err)
{
    rks_arrival *a = user;
    a->whole = is_whole(a);
    *file_size = a->size;
    if (a->whole)
        return RKS_OK; /* another one has finished it while the lock came */
    rks_status status = RKS_OK;
    if (exists_as(a, "json")) /* of a shard whose file is lost or cut */
        status = rename_to(a, "json", "manifest", err);
    if (status == RKS_OK)
        status = bring_manifest(a, err);
    if (status == RKS_OK)
        status = bring_sums(a, err);
    if (status == RKS_OK)
        status = reopen_sealed(a, err);
    if (status == RKS_OK)
        status = open_file(a, fresh, err);
    *file_size = a->size;
    return status;
}

static rks_status open_pieces(rks_arrival *a, rks_error *err)
{
    char *path = local_path(a, "pieces", err);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    const rks_pieces_wish wish = {path, a->manifest, prepare_files, a};
    rks_status status = rks_pieces_open(&wish, &a->pieces, err);
    if (status == RKS_OK && a->whole)
        unlink(path);
    rks_free(path);
    return status;
}

/* Waits until the holder of a copy has the shard whole, without the lock of the marks, for which
 * others who need the shard would wait, too. What fails here fails again below, with its error.
 */
static void wait_for_holder(const rks_arrival_wish *wish)
{
    char version[RKS_HOME_VERSION] = "", *bytes = NULL;
    size_t size = 0;
    char *name = rks_format(NULL, "%s.json", wish->name);
    if (name != NULL)
        (void)rks_home_read_all(wish->holder, name, RKS_MANIFEST_MAX, &bytes, &size, version, NULL);
    rks_free(bytes);
    rks_free(name);
}

rks_status rks_arrival_open(const rks_arrival_wish *wish, rks_arrival **arrival, bool *whole,
                            rks_error *err)
{
    rks_arrival *a = rks_alloc(1, sizeof(*a), err);
    if (a == NULL)
        return RKS_ERR_MEMORY;
    a->home = wish->home;
    atomic_init(&a->from, wish->holder != NULL ? wish->holder : wish->home);
    a->manifest = wish->manifest;
    a->sparse = wish->sparse;
    a->fd = -1;
    a->directory = rks_strdup(wish->directory, err);
    a->name = rks_strdup(wish->name, err);
    a->file = rks_format(err, "%s/%s.arriving", wish->directory, wish->name);
    a->home_file = rks_format(err, "%s.rks", wish->name);
    rks_status status =
        a->directory == NULL || a->name == NULL || a->file == NULL || a->home_file == NULL
            ? RKS_ERR_MEMORY
            : RKS_OK;
    if (status == RKS_OK && exists_as(a, "json")) {
        a->whole = is_whole(a);
        if (!a->whole && !has_manifest(a, "json"))
            status = rks_fail(err, RKS_ERR_CORRUPT, 0,
                              "%s/%s.json: not the shard's manifest; remove that shard's files, "
                              "and they are brought from %s",
                              a->directory, a->name, rks_arrival_source(a));
    }
    if (status == RKS_OK && !a->whole && wish->holder != NULL)
        wait_for_holder(wish);
    if (status == RKS_OK && !a->whole)
        status = open_pieces(a, err);
    *whole = status == RKS_OK && a->whole;
    if (status != RKS_OK || *whole) {
        rks_arrival_close(a);
        a = NULL;
    }
    *arrival = a;
    return status;
}

void rks_arrival_close(rks_arrival *arrival)
{
    if (arrival == NULL)
        return;
    rks_pieces_close(arrival->pieces);
    if (arrival->fd >= 0)
        close(arrival->fd);
    rks_free(arrival->sums);
    rks_free(arrival->head);
    rks_free(arrival->home_file);
    rks_free(arrival->file);
    rks_free(arrival->name);
    rks_free(arrival->directory);
    rks_free(arrival);
}

uint64_t rks_arrival_size(const rks_arrival *arrival)
{
    return arrival->size;
}

rks_pieces *rks_arrival_pieces(const rks_arrival *arrival)
{
    return arrival->pieces;
}

bool rks_arrival_has_head(const rks_arrival *arrival)
{
    if (atomic_load(&arrival->head_here))
        return true;
    for (size_t i = 0; i < arrival->head_count; i++)
        if (!rks_pieces_have(arrival->pieces, arrival->head[i].first, arrival->head[i].end))
            return false;
    return true;
}

char *rks_arrival_path(const rks_arrival *arrival, rks_error *err)
{
    return rks_format(err, "%s/%s", arrival->directory, arrival->name);
}

/* ---- the end --------------------------------------------------------------------------------- */

static rks_status sync_file(rks_arrival *a, rks_error *err)
{
    if (fsync(a->fd) == 0)
        return RKS_OK;
    int error = errno;
    /* The kernel counts what it could not write as written, and shows it until the pages go. */
    rks_pieces_doubt(a->pieces);
    posix_fadvise(a->fd, 0, 0, POSIX_FADV_DONTNEED);
    return rks_fail_write(err, error, a->file, a->size);
}

/* Under the lock of the marks: who opens the arrival then sees all of it, or none. The sync, too:
 * the kernel tells a failure once to each who has the file open by then, so another process must
 * not open it, sync it without an error and seal it before the doubt is counted. */
static rks_status seal(void *user, rks_error *err)
{
    rks_arrival *a = user;
    rks_status status = sync_file(a, err);
    if (status == RKS_OK && !rks_pieces_have(a->pieces, 0, a->size))
        status = rks_fail(err, RKS_ERR_IO, 0,
                          "%s: another process could not sync it; its pieces are checked again",
                          a->file);
    /* A try whose sync of the directory failed has given them their names already. */
    if (status == RKS_OK && (exists_as(a, "arriving") || !exists_as(a, "rks")))
        status = rename_to(a, "arriving", "rks", err);
    if (status == RKS_OK && (exists_as(a, "manifest") || !exists_as(a, "json")))
        status = rename_to(a, "manifest", "json", err);
    return status == RKS_OK ? rks_file_sync_directory_of(a->file, err) : status;
}

rks_status rks_arrival_finish(rks_arrival *a, rks_error *err)
{
    char *marks = local_path(a, "pieces", err);
    rks_status status =
        marks == NULL ? RKS_ERR_MEMORY : rks_pieces_end(a->pieces, marks, seal, a, err);
    rks_free(marks);
    return status;
}

static void remove_local(const rks_arrival *a, const char *ending)
{
    char *path = local_path(a, ending, NULL);
    if (path != NULL)
        unlink(path);
    rks_free(path);
}

uint64_t rks_arrival_look(const char *directory, const char *name, rks_digest manifest,
                          uint64_t size)
{
    rks_arrival a = {.directory = (char *)(uintptr_t)directory,
                     .name = (char *)(uintptr_t)name,
                     .manifest = manifest};
    if (is_whole(&a)) {
        remove_local(&a, "pieces");
        return size;
    }
    if (!has_manifest(&a, "manifest") || (!exists_as(&a, "arriving") && !exists_as(&a, "rks")))
        return 0;
    char *path = local_path(&a, "pieces", NULL);
    uint64_t here = path == NULL ? 0 : rks_pieces_look(path, manifest, a.size);
    rks_free(path);
    return here < size ? here : size;
}
