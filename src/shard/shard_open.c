/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_open.c: opens a sealed shard, and checks that the file is the one that the manifest was
 * written for. Its size, its first two pages, which LMDB rewrites with each commit, and the page
 * that names the shard show that without reading the rest. */
#include "shard/shard_state.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "shard/lmdb_check.h"
#include "shard/lmdb_env.h"
#include "shard/checksum_file.h"

/* Finds NAME.rks beside NAME.json. */
static rks_status name_data(const char *path, char **data, rks_error *err)
{
    size_t size = strlen(path);
    if (size <= 5 || strcmp(path + size - 5, ".json") != 0 || path[size - 6] == '/')
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: not the name of a manifest (NAME.json)",
                        path);
    *data = rks_format(err, "%.*s.rks", (int)(size - 5), path);
    return *data == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

/* Reports damage of NAME.rks to a caller that wants to go on; otherwise returns it as an error. */
static rks_status report_damage(rks_shard_damage_fn damage, void *user, uint64_t offset,
                                rks_status status, const rks_error *what)
{
    if (damage == NULL || (status != RKS_ERR_CORRUPT && status != RKS_ERR_IO))
        return status;
    damage(user, offset, what);
    return RKS_OK;
}

/* Pages of the file that the manifest has a digest of. */
typedef struct page_range {
    uint64_t offset;
    size_t size;
    rks_digest digest;
    const char *what; /* for the message */
} page_range;

/* Reads pages and compares them with their digest. Free *bytes with rks_free, also after an
 * error. */
static rks_status read_pages(const rks_shard *shard, int fd, const page_range *range,
                             uint8_t **bytes, rks_error *err)
{
    *bytes = rks_alloc_raw(range->size, 1, err);
    if (*bytes == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_file_read_at(fd, shard->path, range->offset, *bytes, range->size, err);
    if (status == RKS_OK && !rks_digest_equal(rks_checksum128(*bytes, range->size), range->digest))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %s changed since it was sealed",
                          shard->path, range->what);
    return status;
}

/* Checks the first two pages and the one that names the shard. *at is the offset of the damaged
 * one. */
static rks_status check_pages(const rks_shard *shard, int fd, uint64_t *at, rks_error *err)
{
    const rks_manifest *manifest = shard->manifest;
    uint8_t *pages = NULL;
    size_t size = manifest->page_size;
    const page_range head = {0, 2 * size, manifest->head, "its first two pages have"};
    const page_range last = {manifest->main_page, size, manifest->main,
                             "the page with its main database has"};
    rks_status status = read_pages(shard, fd, &head, &pages, err);
    rks_free(pages);
    *at = status == RKS_OK ? manifest->main_page : 0;
    if (status != RKS_OK)
        return status;
    status = read_pages(shard, fd, &last, &pages, err);
    const uint8_t *id = status == RKS_OK
                            ? rks_lmdb_leaf_find(pages, size, RKS_MAIN_SHARD_KEY, RKS_DIGEST_SIZE)
                            : NULL;
    if (status == RKS_OK && id == NULL)
        status =
            rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: its main database names no shard", shard->path);
    else if (status == RKS_OK && (rks_load_u64(id) != manifest->shard_id.low ||
                                  rks_load_u64(id + 8) != manifest->shard_id.high))
        status = rks_fail_other_shard(shard->path, rks_load_u64(id + 8), manifest->shard_id, err);
    rks_free(pages);
    return status;
}

/* Checks whether a file that is not the sealed one names another shard. One matching half of the id
 * is enough: damage of the name itself leaves the other half intact. */
static rks_status check_name(const rks_shard *shard, int fd, rks_error *err)
{
    uint8_t id[RKS_DIGEST_SIZE];
    rks_digest own = shard->manifest->shard_id;
    if (!rks_lmdb_main_find(fd, shard->path, RKS_MAIN_SHARD_KEY, id, sizeof(id)) ||
        rks_load_u64(id) == own.low || rks_load_u64(id + 8) == own.high)
        return RKS_OK;
    return rks_fail_other_shard(shard->path, rks_load_u64(id + 8), own, err);
}

/* Checks the size, and the pages that name the shard or change with every commit. For a caller that
 * wants to go on, only another shard's file and a file that is too short are errors. */
static rks_status check_file(const rks_shard *shard, int fd, uint64_t size,
                             rks_shard_damage_fn damage, void *user, rks_error *err)
{
    const rks_manifest *manifest = shard->manifest;
    rks_status sized = RKS_OK, whole = RKS_OK;
    rks_error why = {0};
    uint64_t at = 0;
    if (size != manifest->file_size)
        sized =
            rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %" PRIu64 " bytes, it was sealed with %" PRIu64,
                     shard->path, size, manifest->file_size);
    if (size >= manifest->file_size)
        whole = check_pages(shard, fd, &at, &why);
    rks_status status = sized == RKS_OK && whole == RKS_OK ? RKS_OK : check_name(shard, fd, err);
    if (status == RKS_OK && sized != RKS_OK)
        status = size < manifest->file_size
                     ? sized
                     : report_damage(damage, user, manifest->file_size, sized, err);
    if (status != RKS_OK || whole == RKS_OK)
        return status;
    *err = why;
    return report_damage(damage, user, at, whole, err);
}

static rks_status open_file(rks_shard *shard, rks_shard_damage_fn damage, void *user,
                            rks_error *err)
{
    int fd = -1;
    uint64_t size = 0;
    rks_error local;
    if (err == NULL)
        err = &local;
    const char *path = shard->arriving_path == NULL ? shard->path : shard->arriving_path;
    rks_status status = rks_file_open(path, &fd, &size, err);
    if (status == RKS_ERR_NOT_FOUND && path != shard->path) /* it is sealed at this moment */
        status = rks_file_open(shard->path, &fd, &size, err);
    if (status != RKS_OK)
        return status;
    status = check_file(shard, fd, size, damage, user, err);
    if (status == RKS_OK)
        status =
            rks_guarded_map_open(fd, shard->path, shard->manifest->file_size, &shard->map, err);
    if (status == RKS_OK)
        status = rks_resident_open(fd, path, shard->map, &shard->resident, err);
    if (status == RKS_OK && path != shard->path)
        rks_resident_also(shard->resident, shard->path);
    close(fd);
    return status;
}

static rks_status place_locators(rks_shard *shard, rks_error *err)
{
    const rks_manifest *manifest = shard->manifest;
    shard->row_segments = (size_t)(manifest->samples / RKS_SEGMENT_ROWS +
                                   (manifest->samples % RKS_SEGMENT_ROWS != 0));
    shard->locators = rks_alloc(shard->row_segments, sizeof(*shard->locators), err);
    shard->segment_good = rks_alloc(manifest->segment_count, sizeof(*shard->segment_good), err);
    if (shard->locators == NULL || shard->segment_good == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < shard->row_segments; i++) {
        const rks_segment *segment =
            &manifest->segments[RKS_SHARD_LOCATORS * shard->row_segments + i];
        const uint8_t *at = shard->map->bytes + segment->offset;
        uint64_t groups = (segment->rows + RKS_LOCATOR_GROUP - 1) / RKS_LOCATOR_GROUP;
        shard->locators[i] = segment->kind == RKS_SEGMENT_OFFSETS
                                 ? (rks_locators){NULL, at}
                                 : (rks_locators){at, at + groups * 8};
    }
    return RKS_OK;
}

static rks_status read_units(rks_shard *shard, rks_shard_damage_fn damage, void *user,
                             rks_error *err)
{
    const rks_manifest *manifest = shard->manifest;
    rks_error local;
    if (err == NULL)
        err = &local;
    if (manifest->unit_count == 0) {
        if (manifest->samples != 0)
            return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %" PRIu64 " samples but no unit",
                            shard->path, manifest->samples);
        return RKS_OK;
    }
    const rks_segment *segment = &manifest->segments[manifest->segment_count - 1];
    const uint8_t *bytes = shard->map->bytes + segment->offset;
    rks_status status = rks_shard_check_segment(shard, manifest->segment_count - 1, err);
    if (status == RKS_OK)
        status = rks_unit_list_decode(bytes, segment->size,
                                      &(rks_unit_totals){.count = (size_t)manifest->unit_count,
                                                         .samples = manifest->samples,
                                                         .bytes = manifest->bytes},
                                      shard->path, &shard->units, err);
    if (status == RKS_OK && rks_guarded_map_faulted(shard->map, bytes, segment->size)) {
        rks_unit_list_free(&shard->units);
        status = rks_fail(err, RKS_ERR_IO, EIO, "%s: the unit list" UNREADABLE, shard->path);
    }
    return status == RKS_OK ? RKS_OK : report_damage(damage, user, segment->offset, status, err);
}

/* Checks that block 0 names this shard, in a version that is read. If the block of row 0 is
 * damaged, this passes: whoever reads its samples finds out. */
static rks_status check_owner(const rks_shard *shard, rks_error *err)
{
    const rks_guarded_map *map = shard->map;
    uint64_t record = shard->manifest->samples == 0 ? UINT64_MAX : rks_shard_locator(shard, 0);
    for (uint32_t align = 8; align <= 64 && record < map->size; align += 56) {
        uint64_t before = rks_record_place(RKS_BLOCK_HEADER, align);
        if (record < before || !rks_block_begins(map->bytes + record - before))
            continue;
        const uint8_t *block = map->bytes + record - before;
        uint64_t left = map->size - (record - before), size = rks_load_u64(block + 32);
        rks_block_info info;
        if (left < RKS_BLOCK_HEADER || size > left - RKS_BLOCK_HEADER)
            continue;
        rks_status status = rks_block_open(block, RKS_BLOCK_HEADER + (size_t)size, shard->path,
                                           record - before, &info, err);
        if (status == RKS_OK)
            return rks_block_check_shard(&info, shard->manifest->shard_id, shard->path, err);
        if (status == RKS_ERR_UNSUPPORTED)
            return status;
    }
    return RKS_OK;
}

rks_status rks_shard_open_damaged(const char *path, rks_shard_damage_fn damage, void *user,
                                  rks_shard **shard, rks_error *err)
{
    rks_shard *opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = name_data(path, &opened->path, err);
    if (status == RKS_OK)
        status = rks_manifest_load(path, &opened->manifest, err);
    if (status == RKS_OK)
        status = open_file(opened, damage, user, err);
    if (status == RKS_OK)
        status = place_locators(opened, err);
    if (status == RKS_OK)
        status = read_units(opened, damage, user, err);
    if (status == RKS_OK)
        status = check_owner(opened, err);
    if (status == RKS_OK) {
        *shard = opened;
        opened = NULL;
    }
    rks_shard_close(opened);
    return status;
}

rks_status rks_shard_open(const char *path, rks_shard **shard, rks_error *err)
{
    return rks_shard_open_damaged(path, NULL, NULL, shard, err);
}

static rks_status name_arriving(rks_shard *shard, const char *path, char **manifest, rks_error *err)
{
    shard->path = rks_format(err, "%s.rks", path);
    shard->arriving_path = rks_format(err, "%s.arriving", path);
    *manifest = rks_format(err, "%s.manifest", path);
    return shard->path == NULL || shard->arriving_path == NULL || *manifest == NULL ? RKS_ERR_MEMORY
                                                                                    : RKS_OK;
}

/* What was not sealed when this looked may be sealed when it opens. */
static rks_status open_sealed(const char *path, rks_shard **shard, rks_error *err)
{
    char *manifest = rks_format(err, "%s.json", path);
    rks_status status = manifest == NULL ? RKS_ERR_MEMORY : rks_shard_open(manifest, shard, err);
    rks_free(manifest);
    return status;
}

rks_status rks_shard_open_arriving(const char *path, rks_pieces *pieces, rks_shard **shard,
                                   rks_error *err)
{
    char *manifest = NULL;
    rks_shard *opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = name_arriving(opened, path, &manifest, err);
    if (status == RKS_OK) {
        opened->pieces = rks_pieces_hold(pieces);
        atomic_store(&opened->arriving, true);
        status = rks_manifest_load(manifest, &opened->manifest, err);
    }
    if (status == RKS_OK)
        status = open_file(opened, NULL, NULL, err);
    if (status == RKS_OK)
        status = place_locators(opened, err);
    if (status == RKS_OK)
        status = read_units(opened, NULL, NULL, err);
    if (status == RKS_OK) {
        opened->rows_here =
            rks_alloc((size_t)opened->manifest->samples + 1, sizeof(*opened->rows_here), err);
        status = opened->rows_here == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    rks_free(manifest);
    if (status == RKS_OK) {
        *shard = opened;
        return RKS_OK;
    }
    rks_shard_close(opened);
    return status == RKS_ERR_NOT_FOUND ? open_sealed(path, shard, err) : status;
}

void rks_shard_close(rks_shard *shard)
{
    if (shard == NULL)
        return;
    rks_resident_close(shard->resident);
    rks_guarded_map_close(shard->map);
    rks_unit_list_free(&shard->units);
    rks_free(shard->locators);
    rks_free((void *)shard->segment_good);
    rks_manifest_free(shard->manifest);
    rks_pieces_close(shard->pieces);
    rks_free((void *)shard->rows_here);
    rks_free(shard->arriving_path);
    rks_free(shard->path);
    rks_free(shard);
}
