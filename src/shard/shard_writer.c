/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_writer.c: writes units of samples into the blocks of one LMDB file. */
#include "shard/shard_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "shard/part_check.h"
#include "shard/checksum_file.h"
#include "shard/writer_state.h"

static const uint64_t BLOCK_DEFAULT = UINT64_C(1) << 20, BLOCK_LEAST = UINT64_C(4) << 10,
                      BLOCK_MOST = UINT64_C(64) << 20, SAMPLE_DEFAULT = UINT64_C(1) << 30;

/* LMDB writes a block in one call, which Linux ends at 2^31 - 4096 bytes, and puts 16 bytes before
 * it. A block of one sample has its record's header and key besides. */
_Static_assert(RKS_SAMPLE_MAX + (32 << 10) < (UINT64_C(1) << 31) - 4096, "a block is one write");

/* ---- opening ---- */

static rks_status set_index(rks_shard_writer *writer, const rks_shard_options *options,
                            rks_error *err)
{
    writer->index = rks_alloc(options->index_count, sizeof(*writer->index), err);
    if (writer->index == NULL)
        return RKS_ERR_MEMORY;
    writer->index_count = options->index_count;
    return rks_schema_index(writer->schema, options->index, options->index_count, writer->index,
                            err);
}

static rks_status set_shard_options(rks_shard_writer *writer, const rks_shard_options *options,
                                    rks_error *err)
{
    writer->max_sample = options->max_sample == 0 ? SAMPLE_DEFAULT : options->max_sample;
    if (writer->max_sample > RKS_SAMPLE_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "largest sample %" PRIu64 ": at most %" PRIu64 " bytes can be stored",
                        writer->max_sample, RKS_SAMPLE_MAX);
    uint64_t block = options->block_size == 0 ? BLOCK_DEFAULT : options->block_size;
    if (block < BLOCK_LEAST || block > BLOCK_MOST)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "block size %" PRIu64 ": must be %" PRIu64 " to %" PRIu64 " bytes", block,
                        BLOCK_LEAST, BLOCK_MOST);
    writer->block_limit = (size_t)block; /* open_part rounds it to pages */
    writer->build_id = options->build_id;
    writer->shard_id = options->id;
    writer->derived_keys = options->derived_keys;
    writer->unit_size = options->unit_size;
    writer->threads = options->threads;
    rks_status status = rks_schema_parse(rks_schema_text(options->schema), &writer->schema, err);
    return status == RKS_OK ? set_index(writer, options, err) : status;
}

static rks_status make_paths(rks_shard_writer *writer, const char *directory, const char *name,
                             char **lock_path, rks_error *err)
{
    writer->data_path = rks_format(err, "%s/%s.rks", directory, name);
    writer->sums_path = rks_format(err, "%s/%s.sums", directory, name);
    writer->manifest_path = rks_format(err, "%s/%s.json", directory, name);
    *lock_path = rks_format(err, "%s/%s.lock", directory, name);
    return writer->data_path == NULL || writer->sums_path == NULL ||
                   writer->manifest_path == NULL || *lock_path == NULL
               ? RKS_ERR_MEMORY
               : RKS_OK;
}

static rks_status open_part(rks_shard_writer *writer, rks_error *err)
{
    struct stat info;
    if (lstat(writer->manifest_path, &info) == 0)
        return rks_fail(err, RKS_ERR_STATE, 0, "%s: this shard is sealed", writer->manifest_path);
    if (errno != ENOENT)
        return rks_fail_errno(err, errno, "%s", writer->manifest_path);
    if (lstat(writer->data_path, &info) == 0 && !S_ISREG(info.st_mode))
        return rks_fail(err, RKS_ERR_STATE, 0, "%s: not a regular file", writer->data_path);
    rks_status status = rks_part_discard_damaged(writer->data_path, err);
    if (status == RKS_OK)
        status = rks_lmdb_open(writer->data_path, false, &writer->env, err);
    if (status != RKS_OK)
        return status;
    uint64_t page = rks_lmdb_page_size(writer->env);
    uint64_t pages = rks_round_up(writer->block_limit, page);
    writer->block_limit = (size_t)((pages < 2 * page ? 2 * page : pages) - RKS_VALUE_IN_PAGE);
    status = rks_writer_resume(writer, err);
    return status == RKS_OK ? rks_committer_create(writer->env, &writer->committer, err) : status;
}

/* A writer of another host may go on after it was stopped. It has its file open: from here on we
 * write into another one of that name. What it wrote while we copied, the digests of the part
 * show. */
static rks_status leave_file_to_other(const rks_shard_writer *writer, rks_error *err)
{
    struct stat info;
    if (!rks_lock_file_is_taken_over(writer->lock) || lstat(writer->data_path, &info) != 0)
        return RKS_OK;
    return rks_file_renew(writer->data_path, err);
}

static rks_status lock_shard(const char *path, const rks_shard_options *options,
                             rks_lock_file **lock, rks_error *err)
{
    const rks_lock_wish wish = {.path = path,
                                .held = "another process writes this shard",
                                .optional = options->no_lock,
                                .quiet = true};
    return rks_lock_file_take(&wish, lock, err);
}

rks_status rks_shard_writer_open(const char *directory, const char *name,
                                 const rks_shard_options *options, rks_shard_writer **writer,
                                 rks_error *err)
{
    char *lock_path = NULL;
    rks_shard_writer *opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = set_shard_options(opened, options, err);
    if (status == RKS_OK)
        status = make_paths(opened, directory, name, &lock_path, err);
    if (status == RKS_OK)
        status = lock_shard(lock_path, options, &opened->lock, err);
    if (status == RKS_OK)
        status = leave_file_to_other(opened, err);
    if (status == RKS_OK)
        status = open_part(opened, err);
    if (status == RKS_OK && rks_lock_file_is_taken_over(opened->lock))
        opened->resumed_blocks = UINT64_MAX; /* the seal checks them all */
    if (status == RKS_OK) {
        *writer = opened;
        opened = NULL;
    }
    rks_free(lock_path);
    rks_shard_writer_close(opened);
    return status;
}

const rks_unit_summary *rks_shard_writer_units(const rks_shard_writer *writer, size_t *count)
{
    *count = writer->units.count;
    return writer->units.summaries;
}

/* ---- units ---- */

rks_status rks_shard_writer_usable(const rks_shard_writer *writer, bool in_unit, rks_error *err)
{
    if (writer->sealed || writer->broken)
        return rks_fail(err, RKS_ERR_STATE, 0, "%s: the shard %s", writer->data_path,
                        writer->sealed ? "is sealed" : "failed before");
    if (writer->in_unit != in_unit)
        return rks_fail(err, RKS_ERR_STATE, 0, "%s: %s", writer->data_path,
                        in_unit ? "no unit has begun" : "a unit has begun and not ended");
    return RKS_OK;
}

rks_status rks_shard_writer_begin(rks_shard_writer *writer, uint64_t unit, const char *key_name,
                                  uint64_t first_source_row, rks_error *err)
{
    rks_unit_writer *begun = NULL;
    rks_status status = rks_shard_writer_usable(writer, false, err);
    if (status == RKS_OK)
        status = rks_unit_writer_create(writer, unit, key_name, &begun, err);
    if (status == RKS_OK)
        status = rks_unit_writer_place(begun, first_source_row, err);
    if (status == RKS_OK) {
        writer->unit = begun;
        begun = NULL;
    }
    rks_unit_writer_free(begun);
    return status;
}

rks_status rks_shard_writer_add(rks_shard_writer *writer, const rks_value *values, const void *key,
                                size_t key_size, uint32_t length, uint32_t source_row,
                                rks_error *err)
{
    rks_status status = rks_shard_writer_usable(writer, true, err);
    return status == RKS_OK
               ? rks_unit_writer_add(writer->unit, values, key, key_size, length, source_row, err)
               : status;
}

rks_status rks_shard_writer_end(rks_shard_writer *writer, uint64_t seen, uint64_t filtered,
                                uint64_t bad, rks_error *err)
{
    rks_status status = rks_shard_writer_usable(writer, true, err);
    if (status == RKS_OK)
        status = rks_unit_writer_end(writer->unit, seen, filtered, bad, err);
    if (status == RKS_OK) {
        rks_unit_writer_free(writer->unit);
        writer->unit = NULL;
    }
    return status;
}

/* ---- the end ---- */

/* Computes size, first pages and sums of the finished file, which nobody writes any more, then
 * writes the manifest. */
static rks_status finish_file(rks_shard_writer *writer, rks_manifest *manifest, rks_error *err)
{
    int fd = -1;
    uint8_t *head = NULL;
    char *text = NULL;
    size_t size = 0;
    rks_status status = rks_file_open(writer->data_path, &fd, &manifest->file_size, err);
    if (status != RKS_OK)
        return status;
    head = rks_alloc_raw(2, manifest->page_size, err);
    status = head == NULL ? RKS_ERR_MEMORY
                          : rks_file_read_at(fd, writer->data_path, 0, head,
                                             2 * (size_t)manifest->page_size, err);
    if (status == RKS_OK) {
        manifest->head = rks_checksum128(head, 2 * (size_t)manifest->page_size);
        status = rks_file_read_at(fd, writer->data_path, manifest->main_page, head,
                                  manifest->page_size, err);
    }
    if (status == RKS_OK)
        manifest->main = rks_checksum128(head, manifest->page_size);
    if (status == RKS_OK)
        status = rks_sums_write(writer->data_path, manifest->file_size, writer->sums_path,
                                writer->threads, &manifest->sums, err);
    if (status == RKS_OK)
        status = rks_manifest_encode(manifest, &text, &size, NULL, err);
    if (status == RKS_OK)
        status = rks_file_replace(writer->manifest_path, text, size, err);
    rks_free(text);
    rks_free(head);
    close(fd);
    return status;
}

rks_status rks_shard_writer_seal(rks_shard_writer *writer, rks_error *err)
{
    rks_status status = rks_shard_writer_usable(writer, false, err);
    if (status != RKS_OK)
        return status;
    rks_manifest manifest = {.shard_id = writer->shard_id,
                             .build_id = writer->build_id,
                             .page_size = rks_lmdb_page_size(writer->env),
                             .samples = writer->rows,
                             .schema = writer->schema,
                             .derived_keys = writer->derived_keys,
                             .unit_size = writer->unit_size,
                             .index = writer->index,
                             .index_count = writer->index_count,
                             .unit_count = writer->units.count};
    for (size_t i = 0; i < writer->units.count; i++)
        manifest.bytes += writer->units.summaries[i].bytes;
    status = rks_committer_flush(writer->committer, err);
    rks_committer_free(writer->committer);
    writer->committer = NULL;
    writer->broken = true; /* opening the part again repairs whatever fails here */
    if (status == RKS_OK && !rks_lock_file_is_ours(writer->lock))
        status = rks_fail(err, RKS_ERR_STATE, 0,
                          "%s: another process has taken over this shard, since this one gave no "
                          "sign of life; nothing is sealed",
                          writer->data_path);
    if (status == RKS_OK)
        status = rks_seal_index(writer, &manifest, err);
    rks_lmdb_close(writer->env);
    writer->env = NULL;
    if (status == RKS_OK)
        status = finish_file(writer, &manifest, err);
    rks_free(manifest.segments);
    if (status == RKS_OK) {
        writer->sealed = true;
        writer->broken = false;
        rks_lock_file_release(writer->lock);
        writer->lock = NULL;
    }
    return status;
}

void rks_shard_writer_close(rks_shard_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->committer != NULL) {
        rks_unit_writer_free(writer->unit);
        rks_committer_free(writer->committer); /* commits the finished units */
    }
    rks_lmdb_close(writer->env);
    rks_lock_file_release(writer->lock);
    rks_unit_list_free(&writer->units);
    rks_row_log_free(&writer->log);
    rks_schema_free(writer->schema);
    rks_free(writer->index);
    rks_free(writer->data_path);
    rks_free(writer->sums_path);
    rks_free(writer->manifest_path);
    rks_free(writer);
}
