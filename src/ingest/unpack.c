/* SPDX-License-Identifier: Apache-2.0
 *
 * unpack.c: chooses one of three readers, and limits what they unpack. A thread of its own unpacks
 * a packed file once the reader goes beyond its first bytes. */
#include "ingest/unpack.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/archive.h"
#include "codec/gunzip.h"
#include "codec/input_file.h"
#include "ingest/format.h"
#include "ingest/unpack_thread.h"

enum { AHEAD_FROM = 1 << 20 }; /* unpacked bytes: inferring a schema often needs fewer */

static const uint64_t RATIO_FROM = UINT64_C(1) << 30;

struct rks_unpack {
    const rks_input_file *file;
    rks_input_handle *plain; /* NULL: it is packed */
    rks_gunzip *gunzip;
    rks_archive *archive;
    rks_unpack_ahead *ahead; /* uses one of the two above */
    bool alone;              /* the thread could not be started */
    uint64_t made;           /* bytes delivered */
    uint64_t taken;          /* packed bytes that they come from, if there is a thread */
};

static const struct {
    const char *ending;
    const char *magic;
    size_t size;
    rks_packing packing;
} PACKINGS[] = {
    {".gz", "\x1f\x8b\x08", 3, RKS_PACKING_GZIP},
    {".zst", "\x28\xb5\x2f\xfd", 4, RKS_PACKING_ZSTD},
    {".xz", "\xfd\x37zXZ\0", 6, RKS_PACKING_XZ},
    {".bz2", "BZh", 3, RKS_PACKING_BZIP2},
};
enum { PACKING_COUNT = sizeof(PACKINGS) / sizeof(PACKINGS[0]), MAGIC_ROOM = 16 };

size_t rks_packing_ending(const char *name)
{
    for (size_t i = 0; i < PACKING_COUNT; i++)
        if (rks_name_ends(name, PACKINGS[i].ending))
            return strlen(PACKINGS[i].ending);
    return 0;
}

static bool is_packed(const uint8_t *bytes, size_t size, size_t i)
{
    if (size < PACKINGS[i].size || memcmp(bytes, PACKINGS[i].magic, PACKINGS[i].size) != 0)
        return false;
    /* "BZh" could be text, so check the magic of a block, or of the end, after the level. */
    return PACKINGS[i].packing != RKS_PACKING_BZIP2 ||
           (size >= 10 && (memcmp(bytes + 4, "1AY&SY", 6) == 0 ||
                           memcmp(bytes + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0));
}

/* Of an object in a store: a request for each would be slow. What is not as its name says is an
 * error when it is read. */
static rks_packing packing_by_name(const char *name)
{
    static const char *const tars[PACKING_COUNT] = {".tgz", ".tzst", ".txz", ".tbz2"};
    for (size_t i = 0; i < PACKING_COUNT; i++)
        if (rks_name_ends(name, PACKINGS[i].ending) || rks_name_ends(name, tars[i]))
            return PACKINGS[i].packing;
    return RKS_PACKING_NONE;
}

rks_status rks_packing_find(const rks_input_file *file, rks_packing *packing, rks_error *err)
{
    uint8_t bytes[MAGIC_ROOM];
    rks_input_handle *handle = NULL;
    size_t size = 0;
    rks_status status = RKS_OK;
    *packing = file->store != NULL ? packing_by_name(file->name) : RKS_PACKING_NONE;
    if (file->store != NULL)
        return RKS_OK;
    if (file->size > 0)
        status = rks_input_file_open(file, &handle, err);
    if (status == RKS_OK && file->size > 0)
        status = rks_input_file_read(file, handle, 0, bytes, sizeof(bytes), &size, err);
    rks_input_file_close(handle);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; i < PACKING_COUNT; i++)
        if (is_packed(bytes, size, i))
            *packing = PACKINGS[i].packing;
    if (*packing == RKS_PACKING_NONE && rks_packing_ending(file->path) > 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: not compressed, or cut, in spite of its name",
                        file->path);
    return RKS_OK;
}

rks_status rks_unpack_open(const rks_input_file *file, uint64_t offset, rks_unpack **stream,
                           rks_error *err)
{
    rks_unpack *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->file = file;
    rks_status status;
    rks_member member;
    bool end = false;
    if (file->packing == RKS_PACKING_NONE) {
        made->made = offset;
        status = rks_input_file_open(file, &made->plain, err);
    } else if (file->packing == RKS_PACKING_GZIP) {
        status = rks_gunzip_open(file, &made->gunzip, err);
    } else {
        status = rks_archive_open(RKS_ARCHIVE_RAW, file, 0, &made->archive, err);
        if (status == RKS_OK)
            status = rks_archive_next(made->archive, &member, &end, err);
        if (end) { /* the packed file is empty */
            rks_archive_close(made->archive);
            made->archive = NULL;
        }
    }
    if (status != RKS_OK) {
        rks_unpack_close(made);
        return status;
    }
    *stream = made;
    return RKS_OK;
}

uint64_t rks_unpack_taken(const rks_unpack *stream)
{
    return stream->ahead != NULL     ? stream->taken
           : stream->gunzip != NULL  ? rks_gunzip_taken(stream->gunzip)
           : stream->archive != NULL ? rks_archive_taken(stream->archive)
           : stream->plain != NULL   ? stream->made
                                     : stream->file->size;
}

static rks_status read_plain(rks_unpack *stream, void *bytes, size_t size, size_t *got,
                             rks_error *err)
{
    uint64_t left = stream->file->size - stream->made;
    rks_status status = rks_check_interrupt(err);
    *got = 0;
    if (status != RKS_OK)
        return status;
    if (left == 0)
        return rks_input_file_unchanged(stream->file, stream->plain, err);
    return rks_input_file_read(stream->file, stream->plain, stream->made, bytes,
                               size < left ? size : (size_t)left, got, err);
}

rks_status rks_unpack_read_all(rks_unpack *stream, uint8_t *bytes, size_t size, rks_error *err)
{
    for (size_t at = 0, got = 0; at < size; at += got) {
        rks_status status = rks_unpack_read(stream, bytes + at, size - at, &got, err);
        if (status == RKS_OK && got == 0)
            status = rks_fail(err, RKS_ERR_DATA, 0, "%s: ends after %" PRIu64 " bytes%s",
                              stream->file->path, stream->made,
                              stream->plain == NULL ? ", unpacked" : "");
        if (status != RKS_OK)
            return status;
    }
    return RKS_OK;
}

rks_status rks_unpack_unchanged(const rks_unpack *stream, rks_error *err)
{
    return stream->plain == NULL ? RKS_OK
                                 : rks_input_file_unchanged(stream->file, stream->plain, err);
}

void rks_unpack_until(const rks_unpack *stream, uint64_t end)
{
    if (stream->plain != NULL)
        rks_input_file_until(stream->plain, end);
}

rks_status rks_unpack_check(const rks_input_file *file, uint64_t taken, uint64_t made,
                            uint64_t more, rks_error *err)
{
    if (more > file->max_total || made > file->max_total - more)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: unpacks to more than max_total (%" PRIu64 " bytes), at byte %" PRIu64
                        " of %" PRIu64,
                        file->path, file->max_total, taken, file->size);
    if (made > RATIO_FROM && made / RKS_UNPACK_RATIO > taken)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: %" PRIu64 " bytes unpacked from %" PRIu64
                        ", more than %d times as many: a bomb",
                        file->path, made, taken, RKS_UNPACK_RATIO);
    return RKS_OK;
}

static rks_status read_packed(void *user, void *bytes, size_t size, size_t *got, uint64_t *taken,
                              rks_error *err)
{
    rks_unpack *stream = user;
    bool gzip = stream->gunzip != NULL;
    rks_status status = gzip ? rks_gunzip_read(stream->gunzip, bytes, size, got, err)
                             : rks_archive_read(stream->archive, bytes, size, got, err);
    *taken = gzip ? rks_gunzip_taken(stream->gunzip) : rks_archive_taken(stream->archive);
    return status;
}

rks_status rks_unpack_read(rks_unpack *stream, void *bytes, size_t size, size_t *got,
                           rks_error *err)
{
    rks_status status = RKS_OK;
    bool packed = stream->gunzip != NULL || stream->archive != NULL;
    *got = 0;
    if (packed && stream->ahead == NULL && stream->made >= AHEAD_FROM && !stream->alone) {
        stream->ahead = rks_unpack_ahead_start(read_packed, stream);
        stream->alone = stream->ahead == NULL;
    }
    if (stream->plain != NULL)
        status = read_plain(stream, bytes, size, got, err);
    else if (stream->ahead != NULL)
        status = rks_unpack_ahead_read(stream->ahead, bytes, size, got, &stream->taken, err);
    else if (packed)
        status = read_packed(stream, bytes, size, got, &stream->taken, err);
    stream->made += *got;
    return status == RKS_OK && stream->plain == NULL
               ? rks_unpack_check(stream->file, rks_unpack_taken(stream), stream->made, 0, err)
               : status;
}

void rks_unpack_close(rks_unpack *stream)
{
    if (stream == NULL)
        return;
    rks_unpack_ahead_close(stream->ahead);
    rks_archive_close(stream->archive);
    rks_gunzip_close(stream->gunzip);
    rks_input_file_close(stream->plain);
    rks_free(stream);
}
