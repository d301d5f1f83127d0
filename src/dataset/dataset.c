/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset.c: the shards that make up a dataset: its id, what must hold, its file, its parts. The
 * picture of dataset.json is in dataset_json.c. */
#include "dataset/dataset.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "dataset/dataset_json.h"
#include "dataset/home_file.h"
#include "shard/block.h"
#include "shard/manifest.h"

static const char PART_END[] = ".rks";

/* f(0) = XXH3-128 of the schema's text; f(i + 1) = XXH3-128 of {f(i) (16), unit digest (16),
 * samples of the unit (8)}. The id is f(number of units). */
rks_digest rks_dataset_fold(const rks_dataset_unit *units, size_t count, const rks_schema *schema)
{
    const char *text = rks_schema_text(schema);
    return rks_dataset_fold_on(rks_checksum128(text, strlen(text)), units, count);
}

rks_digest rks_dataset_fold_on(rks_digest folded, const rks_dataset_unit *units, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t step[40];
        rks_store_u64(step, folded.low);
        rks_store_u64(step + 8, folded.high);
        rks_store_u64(step + 16, units[i].summary.digest.low);
        rks_store_u64(step + 24, units[i].summary.digest.high);
        rks_store_u64(step + 32, units[i].summary.samples);
        folded = rks_checksum128(step, sizeof(step));
    }
    return folded;
}

rks_digest rks_dataset_id(const rks_dataset *dataset)
{
    rks_digest folded = rks_dataset_fold(dataset->units, dataset->unit_count, dataset->schema);
    return rks_dataset_id_without(folded, &dataset->excluded);
}

rks_digest rks_dataset_id_without(rks_digest folded, const rks_excluded *excluded)
{
    uint8_t step[32];
    if (excluded->samples == 0)
        return folded;
    rks_store_u64(step, folded.low);
    rks_store_u64(step + 8, folded.high);
    rks_store_u64(step + 16, excluded->digest.low);
    rks_store_u64(step + 24, excluded->digest.high);
    return rks_checksum128(step, sizeof(step));
}

uint64_t rks_dataset_stored(const rks_dataset *dataset)
{
    return dataset->count + dataset->excluded.samples;
}

uint64_t rks_dataset_bytes(const rks_dataset *dataset)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < dataset->unit_count; i++)
        bytes += dataset->units[i].summary.bytes;
    return bytes - dataset->excluded.bytes;
}

/* ---- what must hold, for what we write and for what we read ---- */

bool rks_dataset_name_good(const char *name)
{
    size_t size = strlen(name);
    if (size == 0 || name[0] == '.' || !rks_utf8_valid(name, size, NULL))
        return false;
    for (const char *at = name; *at != '\0'; at++)
        if (*at == '/' || (uint8_t)*at < 0x20 || *at == 0x7f)
            return false;
    return true;
}

int rks_dataset_compare_ids(rks_digest a, rks_digest b)
{
    if (a.high != b.high)
        return a.high < b.high ? -1 : 1;
    return a.low < b.low ? -1 : a.low > b.low;
}

static int compare_places(const void *a, const void *b)
{
    const rks_dataset_unit *const *left = a, *const *right = b;
    if ((*left)->shard != (*right)->shard)
        return (*left)->shard < (*right)->shard ? -1 : 1;
    if ((*left)->first_row != (*right)->first_row)
        return (*left)->first_row < (*right)->first_row ? -1 : 1;
    if ((*left)->summary.samples == (*right)->summary.samples)
        return 0;
    return (*left)->summary.samples < (*right)->summary.samples ? -1 : 1; /* empty ones first */
}

static rks_status check_unit(const rks_dataset *dataset, size_t i, const char *path,
                             rks_status status, rks_error *err)
{
    const rks_dataset_unit *unit = &dataset->units[i];
    if (i > 0 && unit->summary.unit <= unit[-1].summary.unit)
        return rks_fail(err, status, 0, "%s: unit %" PRIu64 " appears twice or out of order", path,
                        unit->summary.unit);
    if (unit->shard >= dataset->shard_count)
        return rks_fail(err, status, 0, "%s: unit %" PRIu64 " lies in shard %" PRIu32 " of %zu",
                        path, unit->summary.unit, unit->shard, dataset->shard_count);
    bool named =
        unit->key_name != NULL && unit->key_name[0] != '\0' && rks_key_name_fits(unit->key_name);
    if (unit->summary.unit > INT64_MAX || (dataset->derived_keys && !named) ||
        unit->summary.unit < dataset->shards[unit->shard].first_unit)
        return rks_fail(err, status, 0, "%s: unit %" PRIu64 " has no good number or name", path,
                        unit->summary.unit);
    return RKS_OK;
}

/* Checks that units fill their shards without gap or overlap. `places` is room to sort them. */
static rks_status check_places(const rks_dataset *dataset, const rks_dataset_unit **places,
                               const char *path, rks_status status, rks_error *err)
{
    size_t at = 0;
    for (size_t s = 0; s < dataset->shard_count; s++) {
        const rks_dataset_shard *shard = &dataset->shards[s];
        uint64_t rows = 0, bytes = 0;
        bool good = true;
        for (; good && at < dataset->unit_count && places[at]->shard == s; at++) {
            const rks_unit_summary *unit = &places[at]->summary;
            good = places[at]->first_row == rows && unit->samples <= shard->samples - rows &&
                   unit->bytes <= shard->bytes - bytes;
            if (good) {
                rows += unit->samples;
                bytes += unit->bytes;
            }
        }
        if (!good || rows != shard->samples || bytes != shard->bytes)
            return rks_fail(err, status, 0,
                            "%s: the units of shard %s do not make up its %" PRIu64
                            " samples and %" PRIu64 " bytes",
                            path, shard->name, shard->samples, shard->bytes);
    }
    return RKS_OK;
}

static rks_status check_shards(const rks_dataset *dataset, const char *path, rks_status status,
                               rks_error *err)
{
    uint64_t count = 0;
    for (size_t i = 0; i < dataset->shard_count; i++) {
        const rks_dataset_shard *shard = &dataset->shards[i];
        if (!rks_dataset_name_good(shard->name))
            return rks_fail(err, status, 0, "%s: \"%s\" is not the name of a shard", path,
                            shard->name);
        if (shard->samples > UINT32_MAX || shard->bytes > INT64_MAX ||
            shard->file_bytes > INT64_MAX || shard->largest > INT64_MAX)
            return rks_fail(err, status, 0, "%s: shard %s has impossible sizes", path, shard->name);
        count += shard->samples; /* both were checked to be below 2^32 */
        if (count > UINT32_MAX)
            return rks_fail(err, status, 0, "%s: more than %" PRIu32 " samples", path, UINT32_MAX);
    }
    if (count != rks_dataset_stored(dataset))
        return rks_fail(err, status, 0, "%s: %" PRIu64 " samples, its shards have %" PRIu64, path,
                        rks_dataset_stored(dataset), count);
    return RKS_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Refuses two shards with the same name: the file would be read twice. */
static rks_status check_names(const rks_dataset *dataset, const char *path, rks_status status,
                              rks_error *err)
{
    const char **names = rks_alloc(dataset->shard_count, sizeof(*names), err);
    if (names == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < dataset->shard_count; i++)
        names[i] = dataset->shards[i].name;
    qsort(names, dataset->shard_count, sizeof(*names), compare_names);
    rks_status found = RKS_OK;
    for (size_t i = 1; i < dataset->shard_count && found == RKS_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            found = rks_fail(err, status, 0, "%s: two shards are named %s", path, names[i]);
    rks_free(names);
    return found;
}

/* Bounds what is allocated for the list. */
static rks_status check_excluded(const rks_dataset *dataset, const char *path, rks_status status,
                                 rks_error *err)
{
    const rks_excluded *excluded = &dataset->excluded;
    if (excluded->samples == 0 && excluded->run_count == 0)
        return RKS_OK;
    if (excluded->run_count == 0 || excluded->run_count > excluded->samples ||
        excluded->run_count > dataset->count + 1 || excluded->duplicates > excluded->samples ||
        excluded->samples > UINT32_MAX || dataset->count > UINT32_MAX ||
        !rks_dataset_name_good(excluded->name))
        return rks_fail(err, status, 0,
                        "%s: %" PRIu64 " excluded samples in %" PRIu64 " runs cannot be", path,
                        excluded->samples, excluded->run_count);
    return RKS_OK;
}

static rks_status check_index(const rks_dataset *dataset, const char *path, rks_status status,
                              rks_error *err)
{
    for (size_t i = 0; i < dataset->index_count; i++) {
        int column = rks_schema_find(dataset->schema, dataset->index[i]);
        if (column < 0 ||
            !rks_column_indexable(rks_schema_column(dataset->schema, (uint32_t)column)))
            return rks_fail(err, status, 0, "%s: \"%s\" is not an index column", path,
                            dataset->index[i]);
    }
    return RKS_OK;
}

/* Bounds what is allocated for the files. */
static rks_status check_index_files(const rks_dataset *dataset, const char *path, rks_status status,
                                    rks_error *err)
{
    uint64_t left = dataset->count;
    for (size_t i = 0; i < dataset->index_file_count; i++) {
        const rks_index_file *file = &dataset->index_files[i];
        if (file->samples == 0 || file->samples > left)
            return rks_fail(err, status, 0, "%s: %s has %" PRIu64 " samples; %" PRIu64 " are left",
                            path, file->name, file->samples, left);
        left -= file->samples;
    }
    if (dataset->index_file_count > 0 && left > 0)
        return rks_fail(err, status, 0, "%s: no index file has the last %" PRIu64 " samples", path,
                        left);
    return RKS_OK;
}

rks_status rks_dataset_index_items(const rks_dataset *dataset, rks_index_items *items,
                                   rks_error *err)
{
    uint32_t *sizes = rks_alloc(RKS_INDEX_FILE_ARRAYS + dataset->index_count, sizeof(*sizes), err);
    if (sizes == NULL)
        return RKS_ERR_MEMORY;
    sizes[0] = sizeof(uint32_t);
    sizes[1] = sizeof(uint64_t);
    for (size_t i = 0; i < dataset->index_count; i++) { /* rks_dataset_check has found them */
        int column = rks_schema_find(dataset->schema, dataset->index[i]);
        sizes[RKS_INDEX_FILE_ARRAYS + i] =
            rks_schema_column(dataset->schema, (uint32_t)column)->item_size;
    }
    *items = (rks_index_items){sizes, RKS_INDEX_FILE_ARRAYS + dataset->index_count};
    return RKS_OK;
}

rks_status rks_dataset_check(const rks_dataset *dataset, const char *path, rks_status status,
                             rks_error *err)
{
    rks_status found = check_excluded(dataset, path, status, err);
    if (found == RKS_OK)
        found = check_shards(dataset, path, status, err);
    if (found == RKS_OK)
        found = check_names(dataset, path, status, err);
    if (found == RKS_OK)
        found = check_index(dataset, path, status, err);
    if (found == RKS_OK)
        found = check_index_files(dataset, path, status, err);
    for (size_t i = 0; found == RKS_OK && i < dataset->unit_count; i++)
        found = check_unit(dataset, i, path, status, err);
    if (found != RKS_OK)
        return found;
    if (!rks_digest_equal(rks_dataset_id(dataset), dataset->id))
        return rks_fail(err, status, 0, "%s: its id is not that of its units", path);
    const rks_dataset_unit **places = rks_alloc(dataset->unit_count, sizeof(*places), err);
    if (places == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < dataset->unit_count; i++)
        places[i] = &dataset->units[i];
    qsort(places, dataset->unit_count, sizeof(*places), compare_places);
    found = check_places(dataset, places, path, status, err);
    rks_free(places);
    return found;
}

/* ---- the file ---- */

/* Written under a name of its own before the file that refers to it. */
static rks_status write_excluded(const char *directory, const rks_dataset *dataset, rks_error *err)
{
    rks_excluded excluded = dataset->excluded;
    rks_buffer bytes = {0};
    char *path = NULL;
    if (excluded.samples == 0)
        return RKS_OK;
    rks_status status = rks_excluded_encode(&excluded, &bytes, err);
    if (status == RKS_OK) {
        path = rks_format(err, "%s/%s", directory, excluded.name);
        status =
            path == NULL ? RKS_ERR_MEMORY : rks_file_replace(path, bytes.data, bytes.size, err);
    }
    rks_buffer_free(&bytes);
    rks_free(path);
    return status;
}

/* Ranks that open a dataset compare it as one text, so a dataset without such a text is not
 * committed. */
static rks_status check_text(const rks_dataset *dataset, rks_error *err)
{
    enum { SURELY_FIT = 8192 }; /* entries that always fit: each is shorter than 4 KiB */
    char *text = NULL;
    size_t size = 0;
    if (dataset->shard_count + dataset->unit_count <= SURELY_FIT)
        return RKS_OK;
    rks_status status = rks_dataset_encode(dataset, &text, &size, err);
    rks_free(text);
    return status;
}

rks_status rks_dataset_commit(const char *directory, const rks_dataset *dataset, rks_error *err)
{
    char *text = NULL;
    size_t size = 0;
    bool is_there = false; /* the generation before this one exists */
    rks_dataset_summary before;
    rks_dataset_layout layout = {0};
    char *path = rks_format(err, "%s/%s", directory, RKS_DATASET_FILE);
    rks_status status = path == NULL
                            ? RKS_ERR_MEMORY
                            : rks_dataset_check(dataset, RKS_DATASET_FILE, RKS_ERR_ARGUMENT, err);
    if (status == RKS_OK && dataset->generation > 1)
        status = check_text(dataset, err);
    if (status == RKS_OK && dataset->generation > 1)
        status = rks_dataset_keep_generation(directory, dataset->generation - 1, &before, &is_there,
                                             err);
    if (status == RKS_OK)
        status = rks_dataset_lay_out(directory, dataset, is_there ? &before : NULL, &layout, err);
    if (status == RKS_OK)
        status = rks_dataset_encode_file(dataset, &layout, &text, &size, err);
    if (status == RKS_OK)
        status = write_excluded(directory, dataset, err);
    if (status == RKS_OK)
        status = rks_file_replace(path, text, size, err);
    rks_dataset_layout_free(&layout);
    rks_free(text);
    rks_free(path);
    return status;
}

rks_status rks_dataset_make_durable(const char *directory, rks_error *err)
{
    char *path = rks_format(err, "%s/%s", directory, RKS_DATASET_FILE);
    rks_status status = path == NULL ? RKS_ERR_MEMORY : rks_file_make_durable(path, err);
    rks_free(path);
    return status;
}

/* A directory of local copies is given easily in place of one of them. */
static rks_status fail_nothing(const char *directory, rks_error *err)
{
    char *folder, *home;
    rks_home_file_below(directory, &folder, &home);
    if (folder == NULL)
        rks_fail(err, RKS_ERR_NOT_FOUND, ENOENT, "%s: no dataset here", directory);
    else
        rks_fail(err, RKS_ERR_NOT_FOUND, ENOENT,
                 "%s: no dataset here, but local copies in its folders: open %s, or its home %s",
                 directory, folder, home);
    rks_free(folder);
    rks_free(home);
    return RKS_ERR_NOT_FOUND;
}

static rks_status not_found(const char *directory, bool is_file, rks_error *err)
{
    char **names = NULL;
    size_t count = 0;
    uint64_t newest = 0;
    if (is_file)
        return rks_fail(err, RKS_ERR_NOT_FOUND, ENOTDIR,
                        "%s: a file, not the directory of a dataset; a build makes one of it",
                        directory);
    if (rks_dataset_newest_kept(directory, &newest, NULL) == RKS_OK && newest > 0)
        return rks_fail(err, RKS_ERR_NOT_FOUND, ENOENT,
                        "%s: %s is lost; the generation before it is there, %s@%" PRIu64
                        ": to go back to it, rename dataset.%" PRIu64 ".json",
                        directory, RKS_DATASET_FILE, directory, newest, newest);
    if (rks_dataset_parts(directory, &names, &count, NULL) != RKS_OK || count == 0)
        return fail_nothing(directory, err);
    rks_dataset_parts_free(names, count);
    return rks_fail(
        err, RKS_ERR_NOT_FOUND, ENOENT,
        "%s: build not finished (%zu part%s, no %s); run the same build (or merge) again",
        directory, count, count == 1 ? "" : "s", RKS_DATASET_FILE);
}

/* An append and a prune may come between the reading of dataset.json and of the lists that it
 * refers to. */
enum { READ_AGAIN = 5 };

/* Returns true if dataset.json has been replaced meanwhile; *text becomes the new text. */
static bool is_another(const char *path, char **text, size_t *size)
{
    char *now = NULL;
    size_t now_size = 0;
    if (rks_file_load(path, RKS_DATASET_MAX, &now, &now_size, NULL) != RKS_OK)
        return false;
    bool another = now_size != *size || memcmp(now, *text, now_size) != 0;
    char *old = another ? *text : now;
    if (another) {
        *text = now;
        *size = now_size;
    }
    rks_free(old);
    return another;
}

rks_status rks_dataset_load_json(const char *directory, rks_dataset **dataset, rks_error *err)
{
    char *text = NULL;
    size_t size = 0;
    char *path = rks_format(err, "%s/%s", directory, RKS_DATASET_FILE);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    rks_error why;
    rks_status status = rks_file_load(path, RKS_DATASET_MAX, &text, &size, &why);
    if (status == RKS_ERR_NOT_FOUND || (status == RKS_ERR_IO && why.cause == ENOTDIR))
        status = not_found(directory, why.cause == ENOTDIR, err);
    else if (status != RKS_OK && err != NULL)
        *err = why;
    if (status == RKS_OK)
        status = rks_dataset_decode_file(directory, text, size, path, dataset, err);
    for (int again = 0;
         again < READ_AGAIN && status == RKS_ERR_CORRUPT && is_another(path, &text, &size); again++)
        status = rks_dataset_decode_file(directory, text, size, path, dataset, err);
    rks_free(text);
    rks_free(path);
    return status;
}

rks_status rks_dataset_load_excluded(const char *directory, rks_dataset *dataset, rks_error *err)
{
    char *bytes = NULL;
    size_t size = 0;
    if (dataset->excluded.samples == 0)
        return RKS_OK;
    char *path = rks_format(err, "%s/%s", directory, dataset->excluded.name);
    rks_status status = RKS_ERR_MEMORY;
    if (path != NULL)
        status = rks_file_load(path, (size_t)rks_excluded_size(dataset->excluded.run_count), &bytes,
                               &size, err);
    if (status == RKS_OK)
        status = rks_excluded_decode(&dataset->excluded, bytes, size, rks_dataset_stored(dataset),
                                     path, err);
    else if (status == RKS_ERR_NOT_FOUND)
        status = rks_fail(err, RKS_ERR_CORRUPT, ENOENT,
                          "%s: missing: dataset.json leaves out the samples that it lists", path);
    rks_free(bytes);
    rks_free(path);
    return status;
}

rks_status rks_dataset_load(const char *directory, rks_dataset **dataset, rks_error *err)
{
    rks_dataset *loaded = NULL;
    rks_status status = rks_dataset_load_json(directory, &loaded, err);
    if (status == RKS_OK)
        status = rks_dataset_load_excluded(directory, loaded, err);
    if (status == RKS_OK) {
        *dataset = loaded;
        loaded = NULL;
    }
    rks_dataset_free(loaded);
    return status;
}

rks_dataset *rks_dataset_share(const rks_dataset *dataset)
{
    rks_dataset *shared = (rks_dataset *)(uintptr_t)dataset;
    atomic_fetch_add(&shared->sharers, 1);
    return shared;
}

void rks_dataset_free(rks_dataset *dataset)
{
    if (dataset == NULL || atomic_fetch_sub(&dataset->sharers, 1) > 0)
        return;
    for (size_t i = 0; i < dataset->index_count; i++)
        rks_free(dataset->index[i]);
    for (size_t i = 0; i < dataset->unit_count; i++)
        rks_free((char *)dataset->units[i].key_name);
    for (size_t i = 0; i < dataset->source_count; i++) {
        rks_dataset_free(dataset->sources[i].dataset);
        rks_free(dataset->sources[i].name);
        rks_free(dataset->sources[i].directory);
    }
    rks_free(dataset->sources);
    rks_free(dataset->index);
    rks_free(dataset->excluded.runs);
    rks_free(dataset->shards);
    rks_free(dataset->units);
    rks_free(dataset->build_options);
    rks_free(dataset->added_options);
    rks_schema_free(dataset->schema);
    rks_free(dataset);
}

/* ---- parts ---- */

static rks_status add_part(const char *file, const char *ending, char ***names, size_t *count,
                           rks_error *err)
{
    size_t size = strlen(file), end = strlen(ending);
    if (size <= end || strcmp(file + size - end, ending) != 0)
        return RKS_OK;
    char *name = rks_format(err, "%.*s", (int)(size - end), file);
    if (name == NULL)
        return RKS_ERR_MEMORY;
    if (!rks_dataset_name_good(name)) {
        rks_free(name); /* not a part of ours */
        return RKS_OK;
    }
    char **grown = rks_realloc(*names, *count + 1, sizeof(**names), err);
    if (grown == NULL) {
        rks_free(name);
        return RKS_ERR_MEMORY;
    }
    *names = grown;
    grown[(*count)++] = name;
    return RKS_OK;
}

static rks_status list_parts(const char *directory, const char *ending, char ***names,
                             size_t *count, rks_error *err)
{
    char **found = NULL;
    size_t found_count = 0;
    DIR *stream = opendir(directory);
    if (stream == NULL && (errno == ENOENT || errno == ENOTDIR))
        return rks_fail(err, RKS_ERR_NOT_FOUND, errno, "%s: no such directory", directory);
    if (stream == NULL)
        return rks_fail_errno(err, errno, "%s: reading the directory", directory);
    rks_status status = RKS_OK;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (entry == NULL && errno != 0)
            status = rks_fail_errno(err, errno, "%s: reading the directory", directory);
        if (entry == NULL || status != RKS_OK)
            break;
        status = add_part(entry->d_name, ending, &found, &found_count, err);
    }
    closedir(stream);
    if (status != RKS_OK) {
        rks_dataset_parts_free(found, found_count);
        return status;
    }
    if (found_count > 0)
        qsort(found, found_count, sizeof(*found), compare_names);
    *names = found;
    *count = found_count;
    return RKS_OK;
}

rks_status rks_dataset_parts(const char *directory, char ***names, size_t *count, rks_error *err)
{
    return list_parts(directory, PART_END, names, count, err);
}

rks_status rks_dataset_sealed(const char *directory, char ***names, size_t *count, rks_error *err)
{
    return list_parts(directory, ".json", names, count, err);
}

void rks_dataset_parts_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        rks_free(names[i]);
    rks_free(names);
}
