/* SPDX-License-Identifier: Apache-2.0
 *
 * publish_files.c: sends files to a home. A shard's manifest comes last, so that its presence means
 * that the shard is whole. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/stream.h"
#include "builder/publish.h"
#include "dataset/dataset_json.h"
#include "dataset/list_keys.h"
#include "shard/checksum_file.h"
#include "shard/manifest.h"

enum { TICK_MS = 100 };
_Static_assert((int)RKS_HOME_PIECE == (int)RKS_SUMS_CHUNK, "a piece that is sent has one sum");

/* What is put: bytes in memory, or a file, whose pieces are compared with `sums`. */
typedef struct sent_bytes {
    rks_publish_work *work;
    const char *bytes; /* NULL: a file */
    int fd;
    const char *path;
    rks_stream stream;
    const rks_digest *sums; /* NULL: none */
} sent_bytes;

/* On the caller's thread. */
static rks_status show_progress(void *user, rks_error *err)
{
    const rks_publish_work *work = user;
    (void)err;
    const rks_work done = {work->done, work->total, work->dataset->count};
    rks_group_tell_progress(work->group, &done, "publishes");
    if (work->options.progress != NULL)
        work->options.progress(work->options.progress_user, "publish", work->done, work->total,
                               work->dataset->count);
    return RKS_OK;
}

static void tick(rks_publish_work *work, uint64_t bytes)
{
    uint64_t now = rks_now_ms();
    work->done += bytes;
    if (now - work->ticked_ms < TICK_MS)
        return;
    work->ticked_ms = now;
    if (work->group != NULL)
        (void)rks_file_wait_ask(show_progress, work, NULL);
    else
        work->options.progress(work->options.progress_user, "publish", work->done, work->total, 0);
}

static rks_status hear_all(void *user, rks_error *err)
{
    const rks_publish_work *work = user;
    rks_status status = rks_check_interrupt(err);
    return status == RKS_OK && work->group != NULL ? rks_group_must_stop(work->group, err) : status;
}

rks_status rks_publish_hear(rks_publish_work *work, rks_error *err)
{
    return rks_file_wait_ask(hear_all, work, err);
}

static rks_status give_piece(void *user, uint64_t first, uint8_t *to, size_t size, rks_error *err)
{
    sent_bytes *from = user;
    rks_status status = rks_publish_hear(from->work, err);
    if (status != RKS_OK)
        return status;
    if (from->bytes != NULL) {
        memcpy(to, from->bytes + first, size);
        return RKS_OK;
    }
    rks_stream_reach(&from->stream, first);
    status = rks_file_read_at(from->fd, from->path, first, to, size, err);
    if (status == RKS_OK && from->sums != NULL &&
        !rks_digest_equal(rks_checksum128(to, size), from->sums[first / RKS_SUMS_CHUNK]))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0,
                          "%s: MiB %" PRIu64 " does not match its sum: it was damaged after it was "
                          "built, so it is not published; repair it, or build it again",
                          from->path, first / RKS_SUMS_CHUNK);
    if (status == RKS_OK && from->sums != NULL)
        tick(from->work, size);
    return status;
}

/* Fails unless home's file of that name, which is whole, has that size. */
static rks_status check_home_size(rks_publish_work *work, const char *name, uint64_t size,
                                  uint64_t found, rks_error *err)
{
    return found == size ? RKS_OK
                         : rks_fail(err, RKS_ERR_STATE, EEXIST,
                                    "%s/%s: has %" PRIu64 " bytes, %" PRIu64
                                    " expected: remove it, and publish again",
                                    work->home->name, name, found, size);
}

/* Sets *there if home has the file, which then must have that size. */
static rks_status look_for(rks_publish_work *work, const char *name, uint64_t size, bool *there,
                           rks_error *err)
{
    uint64_t found = 0;
    rks_status status = rks_home_size(work->home, name, &found, NULL, err);
    *there = status == RKS_OK;
    if (status == RKS_ERR_NOT_FOUND)
        return RKS_OK;
    return status == RKS_OK ? check_home_size(work, name, size, found, err) : status;
}

/* Puts a file unless home has it. */
static rks_status send_file(rks_publish_work *work, const char *name, uint64_t size,
                            sent_bytes *from, bool *there, rks_error *err)
{
    char version[RKS_HOME_VERSION] = "";
    const rks_home_bytes bytes = {.size = size, .give = give_piece, .user = from};
    rks_status status = look_for(work, name, size, there, err);
    if (status == RKS_OK && !*there && !work->options.dry_run) {
        status =
            work->home->ops->put(work->home->state, name, &bytes, RKS_PUT_ABSENT, version, err);
        if (status == RKS_ERR_STATE) /* another one was faster */
            status = look_for(work, name, size, there, err);
    }
    if (status == RKS_OK)
        *(*there ? &work->there_bytes : &work->sent_bytes) += size;
    return status;
}

rks_status rks_publish_text(rks_publish_work *work, const char *name, const char *text, size_t size,
                            bool *there, rks_error *err)
{
    sent_bytes from = {.work = work, .bytes = text, .fd = -1, .stream = {.fd = -1}};
    return send_file(work, name, size, &from, there, err);
}

rks_status rks_publish_replace(rks_publish_work *work, const char *name, const char *text,
                               size_t size, const char *version, rks_error *err)
{
    char now[RKS_HOME_VERSION];
    sent_bytes from = {.work = work, .bytes = text, .fd = -1, .stream = {.fd = -1}};
    const rks_home_bytes bytes = {
        .size = size, .give = give_piece, .user = &from, .claim = RKS_HOME_CLAIM};
    strcpy(now, version);
    rks_status status =
        work->home->ops->put(work->home->state, name, &bytes,
                             version[0] == '\0' ? RKS_PUT_ABSENT : RKS_PUT_SAME, now, err);
    if (status == RKS_OK)
        work->sent_bytes += size;
    return status;
}

/* Sends a file of a folder, whose pieces have these sums (NULL: none). */
static rks_status send_from_disk(rks_publish_work *work, const char *folder, const char *name,
                                 const rks_digest *sums, bool *there, rks_error *err)
{
    sent_bytes from = {.work = work, .fd = -1, .stream = {.fd = -1}, .sums = sums};
    uint64_t size = 0;
    char *path = rks_format(err, "%s/%s", folder, name);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    rks_file_wait_at(path);
    rks_status status = rks_file_open(path, &from.fd, &size, err);
    if (status == RKS_OK) {
        from.path = path;
        rks_stream_begin(&from.stream, path, size);
        status = send_file(work, name, size, &from, there, err);
        rks_stream_end(&from.stream);
    }
    if (from.fd >= 0)
        close(from.fd);
    rks_free(path);
    return status;
}

rks_status rks_publish_file(rks_publish_work *work, const char *name, rks_error *err)
{
    bool there = false;
    rks_status status = send_from_disk(work, work->directory, name, NULL, &there, err);
    return status == RKS_ERR_NOT_FOUND ? RKS_OK : status;
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* A shard's names, and its manifest as this rank has it. */
typedef struct sent_shard {
    const rks_dataset_shard *shard;
    char names[3][160]; /* .rks, .sums, .json */
    char *text;         /* of the manifest */
    size_t text_size;
    rks_manifest *manifest;
} sent_shard;

enum { DATA, SUMS, MANIFEST };

static void name_files(sent_shard *s, const rks_dataset_shard *shard)
{
    static const char *const endings[] = {".rks", ".sums", ".json"};
    *s = (sent_shard){.shard = shard};
    for (int i = 0; i < 3; i++)
        snprintf(s->names[i], sizeof(s->names[i]), "%s%s", shard->name, endings[i]);
}

static void free_shard(sent_shard *s)
{
    rks_manifest_free(s->manifest);
    rks_free(s->text);
}

/* Decodes s->text, which must be the manifest that the dataset names. */
static rks_status decode_manifest(sent_shard *s, const char *place, rks_error *err)
{
    char *path = rks_format(err, "%s/%s", place, s->names[MANIFEST]);
    rks_status status = path == NULL
                            ? RKS_ERR_MEMORY
                            : rks_manifest_decode(s->text, s->text_size, path, &s->manifest, err);
    if (status == RKS_OK && !rks_digest_equal(s->manifest->digest, s->shard->manifest))
        status =
            rks_fail(err, RKS_ERR_CORRUPT, 0,
                     "%s: belongs to another shard than the one that dataset.json names", path);
    rks_free(path);
    return status;
}

rks_status rks_publish_look_for_shard(rks_publish_work *work, size_t shard, rks_error *err)
{
    const char *name = work->dataset->shards[shard].name;
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && !work->here[shard] && i < work->folders.count; i++) {
        char *manifest = rks_format(err, "%s/%s.json", work->folders.paths[i], name);
        char *data = rks_format(err, "%s/%s.rks", work->folders.paths[i], name);
        status = manifest == NULL || data == NULL ? RKS_ERR_MEMORY : RKS_OK;
        if (status == RKS_OK)
            work->here[shard] = access(manifest, F_OK) == 0 && access(data, F_OK) == 0;
        work->folder_of[shard] = work->folders.paths[i];
        rks_free(manifest);
        rks_free(data);
    }
    return status;
}

/* Looks whether home has the shard: its manifest, and the others in their sizes. */
static rks_status look_at_home(rks_publish_work *work, const rks_dataset_shard *shard, bool *whole,
                               rks_error *err)
{
    sent_shard there;
    name_files(&there, shard);
    *whole = false;
    rks_status status = rks_home_read_all(work->home, there.names[MANIFEST], RKS_MANIFEST_MAX,
                                          &there.text, &there.text_size, NULL, err);
    if (status == RKS_ERR_NOT_FOUND)
        return RKS_OK;
    uint64_t sums = 0;
    bool has_data = false, has_sums = false;
    if (status == RKS_OK)
        status = decode_manifest(&there, work->home->name, err);
    if (status == RKS_OK) {
        sums = rks_sums_count(there.manifest->file_size) * RKS_DIGEST_SIZE;
        status = look_for(work, there.names[DATA], there.manifest->file_size, &has_data, err);
    }
    if (status == RKS_OK)
        status = look_for(work, there.names[SUMS], sums, &has_sums, err);
    *whole = status == RKS_OK && has_data && has_sums;
    if (*whole)
        work->there_bytes += there.manifest->file_size + sums + there.text_size;
    free_shard(&there);
    return status;
}

static rks_status send_sums(rks_publish_work *work, const sent_shard *s, const rks_digest *sums,
                            rks_error *err)
{
    uint64_t count = rks_sums_count(s->manifest->file_size);
    bool there = false;
    uint8_t *bytes = rks_alloc_raw((size_t)count, RKS_DIGEST_SIZE, err);
    if (bytes == NULL)
        return RKS_ERR_MEMORY;
    for (uint64_t i = 0; i < count; i++) {
        rks_store_u64(bytes + i * RKS_DIGEST_SIZE, sums[i].low);
        rks_store_u64(bytes + i * RKS_DIGEST_SIZE + 8, sums[i].high);
    }
    rks_status status = rks_publish_text(work, s->names[SUMS], (const char *)bytes,
                                         (size_t)count * RKS_DIGEST_SIZE, &there, err);
    rks_free(bytes);
    return status;
}

static rks_status send_shard(rks_publish_work *work, const char *folder, sent_shard *s,
                             rks_error *err)
{
    bool there = false;
    rks_digest *sums = NULL;
    char *manifest = rks_format(err, "%s/%s", folder, s->names[MANIFEST]);
    char *path = rks_format(err, "%s/%s", folder, s->names[SUMS]);
    rks_file_wait_at(folder);
    rks_status status =
        manifest == NULL || path == NULL
            ? RKS_ERR_MEMORY
            : rks_file_load(manifest, RKS_MANIFEST_MAX, &s->text, &s->text_size, err);
    if (status == RKS_OK)
        status = decode_manifest(s, folder, err);
    if (status == RKS_OK && work->group == NULL) { /* a bar for each shard */
        work->done = 0;
        work->total = s->manifest->file_size;
    }
    if (status == RKS_OK)
        status = rks_sums_load(path, s->manifest->file_size, s->manifest->sums, &sums, err);
    if (status == RKS_OK)
        status = send_from_disk(work, folder, s->names[DATA], sums, &there, err);
    if (status == RKS_OK)
        status = send_sums(work, s, sums, err);
    if (status == RKS_OK)
        status = rks_publish_text(work, s->names[MANIFEST], s->text, s->text_size, &there, err);
    if (status == RKS_OK)
        work->sent_shards++;
    rks_free(sums);
    rks_free(path);
    rks_free(manifest);
    return status;
}

rks_status rks_publish_send(rks_publish_work *work, const char *folder,
                            const rks_dataset_shard *shard, rks_error *err)
{
    sent_shard s;
    bool whole = false;
    rks_status status = look_at_home(work, shard, &whole, err);
    if (status == RKS_OK && !whole) {
        name_files(&s, shard);
        status = send_shard(work, folder, &s, err);
        free_shard(&s);
    }
    return status;
}

rks_status rks_publish_shard(rks_publish_work *work, size_t number, rks_error *err)
{
    const rks_dataset_shard *shard = &work->dataset->shards[number];
    bool whole = false;
    uint64_t done = work->done;
    if (work->senders[number] != RKS_SENDER_HOME) {
        rks_status status = rks_publish_send(work, work->folder_of[number], shard, err);
        tick(work, done + shard->file_bytes - work->done);
        return status;
    }
    rks_status status = look_at_home(work, shard, &whole, err);
    return status != RKS_OK || whole
               ? status
               : rks_fail(err, RKS_ERR_NOT_FOUND, 0,
                          "%s: shard %s is not on any rank's disk, and %s does not have it; copy "
                          "its files to one of the nodes, or repair it",
                          work->directory, shard->name, work->home->name);
}

/* ---- beside the shards ----------------------------------------------------------------------- */

/* Sends a small file of this rank's directory, which has this digest. */
static rks_status send_checked(rks_publish_work *work, const char *name, uint64_t most,
                               rks_digest digest, rks_error *err)
{
    char *text = NULL, *path = rks_format(err, "%s/%s", work->directory, name);
    size_t size = 0;
    bool there = false;
    rks_status status =
        path == NULL ? RKS_ERR_MEMORY : rks_file_load(path, (size_t)most, &text, &size, err);
    if (status == RKS_OK && !rks_digest_equal(rks_checksum128(text, size), digest))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: does not match its digest in dataset.json",
                          path);
    if (status == RKS_OK)
        status = rks_publish_text(work, name, text, size, &there, err);
    rks_free(text);
    rks_free(path);
    return status;
}

static rks_status check_index_file(const rks_publish_work *work, const rks_index_file *named,
                                   rks_index_items items, rks_error *err)
{
    rks_index_reader *reader = NULL;
    rks_status status = rks_index_reader_open(work->directory, named, items, &reader, err);
    if (status != RKS_OK)
        return status;
    uint64_t segments = rks_index_reader_segments(reader);
    uint8_t *bytes = rks_alloc_raw(rks_index_reader_room(reader), 1, err);
    status = bytes == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (uint64_t i = 0; status == RKS_OK && i < segments; i++)
        status = rks_index_reader_read(reader, i, bytes, err);
    rks_free(bytes);
    rks_index_reader_close(reader);
    return status;
}

/* Sends the index files that this rank has: a directory may lack them. */
static rks_status send_index_files(rks_publish_work *work, const rks_dataset *dataset,
                                   rks_error *err)
{
    rks_index_items items;
    bool there = false;
    rks_status status = rks_dataset_index_items(dataset, &items, err);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; status == RKS_OK && i < dataset->index_file_count; i++) {
        const rks_index_file *named = &dataset->index_files[i];
        status = look_for(work, named->name, named->bytes, &there, err);
        if (status == RKS_OK && there)
            work->there_bytes += named->bytes;
        else if (status == RKS_OK)
            status = check_index_file(work, named, items, err);
        if (status == RKS_OK && !there)
            status = send_from_disk(work, work->directory, named->name, NULL, &there, err);
        if (status == RKS_ERR_NOT_FOUND)
            status = RKS_OK;
    }
    rks_free((void *)(uintptr_t)items.sizes);
    return status;
}

rks_status rks_publish_lists(rks_publish_work *work, const rks_dataset *dataset, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < dataset->list_count; i++) {
        char keys[64];
        rks_list_keys_name(&dataset->lists[i], keys);
        status = send_checked(work, dataset->lists[i].name, RKS_DATASET_MAX,
                              dataset->lists[i].digest, err);
        if (status == RKS_OK)
            status = rks_publish_file(work, keys, err);
    }
    if (status == RKS_OK && dataset->excluded.samples > 0)
        status = send_checked(work, dataset->excluded.name,
                              rks_excluded_size(dataset->excluded.run_count),
                              dataset->excluded.digest, err);
    return status == RKS_OK ? send_index_files(work, dataset, err) : status;
}
