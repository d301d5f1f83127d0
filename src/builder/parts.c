/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.c: finding and taking over what an interrupted build left, and this rank's writer. */
#include "builder/parts.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/secret.h"
#include "builder/parts_internal.h"
#include "store/store.h"

static void remove_generations(const char *directory)
{
    uint64_t *generations = NULL;
    size_t count = 0;
    if (rks_dataset_generations(directory, &generations, &count, NULL) != RKS_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        char *path = rks_dataset_generation_path(directory, generations[i], NULL);
        if (path != NULL)
            unlink(path);
        rks_free(path);
    }
    rks_free(generations);
}

static void remove_part(const rks_parts *parts, const char *name)
{
    static const char *const endings[] = {"json", "sums", "rks", "lock"};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        char *path = rks_format(NULL, "%s/%s.%s", parts->directory, name, endings[i]);
        if (path != NULL)
            unlink(path);
        rks_free(path);
    }
}

/* Lists of excluded samples that `keep` does not name. */
static void remove_lists(const rks_parts *parts, const rks_dataset *keep)
{
    DIR *directory = opendir(parts->directory);
    if (directory == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        const char *name = entry->d_name;
        size_t size = strlen(name);
        if (strncmp(name, "excluded-", 9) == 0 && size > 14 &&
            strcmp(name + size - 5, ".runs") == 0 && strcmp(name, keep->excluded.name) != 0)
            unlinkat(dirfd(directory), name, 0);
    }
    closedir(directory);
}

void rks_parts_remove_strangers(rks_parts *parts, const rks_dataset *keep)
{
    char **names = NULL;
    size_t count = 0;
    if (rks_dataset_parts(parts->directory, &names, &count, NULL) != RKS_OK)
        return; /* only a clean-up: what stays does no harm */
    if (!parts->options.append)
        remove_generations(parts->directory); /* of what was replaced */
    for (size_t i = 0; i < count; i++) {
        bool kept = false;
        for (size_t k = 0; k < keep->shard_count && !kept; k++)
            kept = strcmp(keep->shards[k].name, names[i]) == 0;
        if (!kept)
            remove_part(parts, names[i]);
    }
    rks_dataset_parts_free(names, count);
    if (!parts->options.append) /* older generations name others */
        remove_lists(parts, keep);
}

static rks_status add_sealed(rks_parts *parts, const char *name, rks_error *err)
{
    rks_shard *shard = NULL;
    char *path = rks_format(err, "%s/%s.json", parts->directory, name);
    rks_status status = path == NULL ? RKS_ERR_MEMORY : rks_shard_open(path, &shard, err);
    rks_free(path);
    if (status != RKS_OK)
        return status;
    rks_shard **sealed = rks_realloc(parts->sealed, parts->sealed_count + 1, sizeof(*sealed), err);
    if (sealed == NULL) {
        rks_shard_close(shard);
        return RKS_ERR_MEMORY;
    }
    parts->sealed = sealed;
    parts->sealed[parts->sealed_count++] = shard;
    return RKS_OK;
}

rks_status rks_parts_seal_writer(rks_parts *parts, rks_error *err)
{
    if (parts->writer == NULL)
        return RKS_OK;
    size_t units = 0;
    rks_shard_writer_units(parts->writer, &units);
    rks_status status = units == 0 ? RKS_OK : rks_shard_writer_seal(parts->writer, err);
    if (status != RKS_OK)
        return status;
    rks_shard_writer_close(parts->writer);
    parts->writer = NULL;
    if (units == 0)
        remove_part(parts, parts->writer_name);
    else
        status = add_sealed(parts, parts->writer_name, err);
    return status;
}

/* An unsealed part: this rank goes on in the first one it takes over, the others are sealed as they
 * are. */
static rks_status take_unsealed(rks_parts *parts, const char *name, rks_error *err)
{
    rks_status status = rks_parts_seal_writer(parts, err);
    if (status != RKS_OK)
        return status;
    status =
        rks_shard_writer_open(parts->directory, name, &parts->options.shard, &parts->writer, err);
    if (status == RKS_OK)
        snprintf(parts->writer_name, sizeof(parts->writer_name), "%s", name);
    return status;
}

static rks_status take_over(rks_parts *parts, const char *name, rks_error *err)
{
    rks_error local;
    rks_status status = add_sealed(parts, name, &local);
    if (status == RKS_ERR_NOT_FOUND)
        return take_unsealed(parts, name, err);
    if (status == RKS_ERR_CORRUPT) {
        rks_log("%s: this part of an unfinished build is damaged; its units are built again",
                local.text);
        remove_part(parts, name);
        return RKS_OK;
    }
    if (status != RKS_OK && err != NULL)
        *err = local;
    return status;
}

/* The names of this build's parts that this rank sees, a line each. A replacing build takes none:
 * the user asked for a new one. */
static rks_status list_parts(const rks_parts *parts, const rks_dataset *old, rks_buffer *list,
                             rks_error *err)
{
    char **names = NULL;
    size_t count = 0;
    rks_status status = parts->options.replace
                            ? RKS_OK
                            : rks_dataset_parts(parts->directory, &names, &count, err);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        bool taken = strncmp(names[i], parts->prefix, strlen(parts->prefix)) != 0;
        for (size_t k = 0; old != NULL && k < old->shard_count && !taken; k++)
            taken = strcmp(old->shards[k].name, names[i]) == 0;
        if (!taken)
            status = rks_buffer_print(list, err, "%s\n", names[i]);
    }
    rks_dataset_parts_free(names, count);
    return status;
}

/* A rank below this one has listed the name too. */
static bool listed_before(const uint8_t *all, uint64_t size, const char *name, size_t name_size)
{
    const uint8_t *at = all;
    while (at < all + size) {
        const uint8_t *end = memchr(at, '\n', (size_t)(all + size - at));
        if (end == NULL)
            return false;
        if ((size_t)(end - at) == name_size && memcmp(at, name, name_size) == 0)
            return true;
        at = end + 1;
    }
    return false;
}

static rks_status take_parts(rks_parts *parts, const rks_dataset *old, rks_error *err)
{
    rks_buffer list = {0};
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    rks_status status = list_parts(parts, old, &list, err);
    status = rks_group_allgather(parts->group, "build: parts", status, list.data, list.size, &all,
                                 &offsets, err);
    if (status != RKS_OK)
        goto out;
    uint32_t rank = rks_group_rank(parts->group);
    for (uint64_t at = offsets[rank]; status == RKS_OK && at < offsets[rank + 1];) {
        const uint8_t *line = all + at;
        const uint8_t *end = memchr(line, '\n', (size_t)(offsets[rank + 1] - at));
        size_t size = (size_t)(end - line); /* our own text: the newline is there */
        char name[128];
        snprintf(name, sizeof(name), "%.*s", (int)size, (const char *)line);
        if (!listed_before(all, offsets[rank], name, size))
            status = take_over(parts, name, err);
        at += size + 1;
    }
    status = rks_group_agree(parts->group, "build: taking over parts", status, err);
out:
    rks_buffer_free(&list);
    rks_free(all);
    rks_free(offsets);
    return status;
}

static int by_unit(const void *a, const void *b)
{
    const rks_unit_summary *left = a, *right = b;
    return left->unit < right->unit ? -1 : left->unit > right->unit;
}

static rks_status agree_finished(rks_parts *parts, rks_error *err)
{
    rks_buffer mine = {0};
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    size_t count = 0;
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < parts->sealed_count; i++) {
        const rks_unit_summary *units = rks_shard_units(parts->sealed[i], &count);
        status = rks_buffer_add(&mine, units, count * sizeof(*units), err);
    }
    if (status == RKS_OK && parts->writer != NULL) {
        const rks_unit_summary *units = rks_shard_writer_units(parts->writer, &count);
        status = rks_buffer_add(&mine, units, count * sizeof(*units), err);
    }
    status = rks_group_allgather(parts->group, "build: finished units", status, mine.data,
                                 mine.size, &all, &offsets, err);
    if (status == RKS_OK) {
        parts->finished = (rks_unit_summary *)(void *)all;
        count = (size_t)(offsets[rks_group_size(parts->group)] / sizeof(*parts->finished));
        qsort(parts->finished, count, sizeof(*parts->finished), by_unit);
        size_t kept = 0;
        for (size_t i = 0; i < count; i++)
            if (kept == 0 || parts->finished[kept - 1].unit != parts->finished[i].unit)
                parts->finished[kept++] = parts->finished[i];
        parts->finished_count = kept;
    }
    rks_buffer_free(&mine);
    rks_free(offsets);
    return status;
}

/* What stands in the directory: 0 nothing, 1 this build's dataset, 2 another one. */
static rks_status look_for_dataset(const rks_parts *parts, rks_dataset **old, uint8_t *what,
                                   rks_error *err)
{
    rks_error local;
    uint64_t kept = 0; /* the newest of older generations: what they name is not to be removed */
    *what = 0;
    rks_status status = rks_dataset_load(parts->directory, old, &local);
    if (status == RKS_ERR_NOT_FOUND && !parts->options.replace) {
        rks_status listed = rks_dataset_newest_kept(parts->directory, &kept, err);
        if (listed != RKS_OK)
            return listed;
    }
    if (status == RKS_OK)
        *what = rks_digest_equal((*old)->build_id, parts->options.shard.build_id) ? 1 : 2;
    else if (status == RKS_ERR_CORRUPT && parts->options.replace)
        *what = 2;
    else if (status != RKS_ERR_NOT_FOUND || kept > 0) {
        if (err != NULL)
            *err = local;
        return status;
    }
    return RKS_OK;
}

/* COLLECTIVE. What is appended to: the dataset that is there, or where this very append has been
 * committed (but not in all directories) the generation before. `found` is consumed. */
static rks_status find_base(rks_parts *parts, rks_dataset *found, bool committed, rks_error *err)
{
    uint64_t generation = found == NULL ? 0 : found->generation;
    rks_found_dataset base = {.directory = parts->directory, .dataset = found};
    if (committed) {
        rks_dataset_free(found);
        base.dataset = NULL;
    }
    if (committed && generation > 1)
        rks_store_look(parts->directory, generation - 1, &base);
    else if (base.dataset == NULL)
        base.status =
            rks_fail(&base.error, RKS_ERR_NOT_FOUND, 0, "%s: no dataset here", parts->directory);
    rks_status status = rks_store_agree_dataset(parts->group, NULL, &base, &parts->base, err);
    return status == RKS_ERR_NOT_FOUND ? RKS_OK : status; /* it was the first generation */
}

/* A finished dataset stops the build, unless it is to be replaced, or is this very build's and some
 * directory still lacks it: then the commit was interrupted, and goes on. *old is what to replace.
 */
static rks_status check_dataset(rks_parts *parts, rks_dataset **old, rks_error *err)
{
    uint8_t what = 0;
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    rks_dataset *found = NULL;
    uint32_t ranks = rks_group_size(parts->group), same = 0, other = 0;
    rks_status status = look_for_dataset(parts, &found, &what, err);
    status =
        rks_group_allgather(parts->group, "build: dataset", status, &what, 1, &all, &offsets, err);
    if (status != RKS_OK)
        goto out;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        same += all[rank] == 1;
        other += all[rank] == 2;
    }
    if (parts->options.append && same == ranks)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "%s: the same input was the last to be added, with the same options",
                          parts->directory);
    else if (parts->options.append) {
        if (same + other > 0)
            status = find_base(parts, found, what == 1, err);
        found = NULL;
    } else if (!parts->options.replace && (other > 0 || same == ranks))
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "%s: holds a finished dataset already; use --replace to build it anew",
                          parts->directory);
    else if (parts->options.replace) {
        *old = found;
        found = NULL;
    }
out:
    rks_free(all);
    rks_free(offsets);
    rks_dataset_free(found);
    return status;
}

rks_status rks_parts_open(rks_group *group, const char *directory, const rks_parts_options *options,
                          rks_parts **parts, rks_error *err)
{
    rks_dataset *old = NULL;
    rks_parts *opened = rks_alloc(1, sizeof(*opened), err);
    rks_status status = opened == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (opened != NULL) {
        char id[RKS_DIGEST_TEXT];
        opened->group = group;
        opened->options = *options;
        opened->options.shard.no_lock = options->no_lock || rks_group_size(group) == 1;
        rks_digest_format(options->shard.build_id, id);
        snprintf(opened->prefix, sizeof(opened->prefix), "part-%.16s-", id);
        opened->directory = rks_strdup(directory, err);
        status = opened->directory == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    status = rks_group_agree(group, "build: begin", status, err);
    if (status == RKS_OK)
        status = rks_directory_lock_take(group, directory, options->no_lock, &opened->lock,
                                         &opened->writes, err);
    if (status == RKS_OK)
        status = check_dataset(opened, &old, err);
    if (status == RKS_OK)
        status = take_parts(opened, opened->base != NULL ? opened->base : old, err);
    if (status == RKS_OK)
        status = agree_finished(opened, err);
    rks_dataset_free(old);
    if (status != RKS_OK) {
        rks_parts_close(opened);
        return status;
    }
    *parts = opened;
    return RKS_OK;
}

void rks_parts_close(rks_parts *parts)
{
    if (parts == NULL)
        return;
    rks_shard_writer_close(parts->writer);
    for (size_t i = 0; i < parts->sealed_count; i++)
        rks_shard_close(parts->sealed[i]);
    rks_free(parts->sealed);
    rks_free(parts->finished);
    rks_lock_file_release(parts->lock);
    rks_dataset_free(parts->base);
    rks_free(parts->directory);
    rks_free(parts);
}

const rks_unit_summary *rks_parts_finished(const rks_parts *parts, uint64_t unit)
{
    rks_unit_summary key = {.unit = unit};
    return parts->finished_count == 0
               ? NULL
               : bsearch(&key, parts->finished, parts->finished_count, sizeof(key), by_unit);
}

size_t rks_parts_finished_count(const rks_parts *parts)
{
    return parts->finished_count;
}

rks_status rks_parts_writer(rks_parts *parts, rks_shard_writer **writer, rks_error *err)
{
    rks_status status = RKS_OK;
    if (parts->writer == NULL) {
        uint64_t random = 0;
        status = rks_random(&random, sizeof(random), err);
        if (status != RKS_OK)
            return status;
        snprintf(parts->writer_name, sizeof(parts->writer_name), "%s%016" PRIx64, parts->prefix,
                 random);
        status = rks_shard_writer_open(parts->directory, parts->writer_name, &parts->options.shard,
                                       &parts->writer, err);
    }
    if (status == RKS_OK)
        *writer = parts->writer;
    return status;
}

void rks_parts_describe_keys(rks_parts *parts, const rks_key_words *words)
{
    parts->words = *words;
}
