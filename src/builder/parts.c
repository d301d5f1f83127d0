/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.c: takes over what an interrupted build left, and opens this rank's writer. */
#include "builder/parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/secret.h"
#include "builder/parts_state.h"
#include "shard/manifest.h"
#include "store/store.h"

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

/* The part that was added last goes home, if there is one. */
static void send_sealed(rks_parts *parts, const char *name)
{
    const rks_shard *shard = parts->sealed[parts->sealed_count - 1];
    rks_send_ahead_add(parts->options.ahead, name, rks_shard_manifest_digest(shard));
}

rks_status rks_parts_seal(rks_parts *parts, rks_error *err)
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
        rks_parts_remove(parts, parts->writer_name);
    else
        status = add_sealed(parts, parts->writer_name, err);
    return status;
}

uint64_t rks_parts_unsealed_bytes(const rks_parts *parts)
{
    size_t count = 0;
    uint64_t bytes = 0;
    if (parts->writer == NULL)
        return 0;
    const rks_unit_summary *units = rks_shard_writer_units(parts->writer, &count);
    for (size_t i = 0; i < count; i++)
        bytes += units[i].bytes;
    return bytes;
}

rks_status rks_parts_seal_full(rks_parts *parts, uint64_t max_shard, rks_error *err)
{
    if (max_shard == 0 || rks_parts_unsealed_bytes(parts) < max_shard)
        return RKS_OK;
    rks_status status = rks_parts_seal(parts, err);
    if (status == RKS_OK)
        send_sealed(parts, parts->writer_name); /* the last one is left to publish and its bar */
    return status;
}

/* Takes over an unsealed part. This rank continues the first one; the others are sealed as they
 * are. */
static rks_status reopen_unsealed(rks_parts *parts, const char *name, rks_error *err)
{
    rks_status status = rks_parts_seal(parts, err);
    if (status != RKS_OK)
        return status;
    status =
        rks_shard_writer_open(parts->directory, name, &parts->options.shard, &parts->writer, err);
    if (status == RKS_OK)
        snprintf(parts->writer_name, sizeof(parts->writer_name), "%s", name);
    return status;
}

/* Reads a sealed part whole, like an unsealed one: otherwise it would not be checked before the
 * dataset is used. */
static rks_status adopt_sealed(rks_parts *parts, const char *name, rks_error *err)
{
    rks_status status = add_sealed(parts, name, err);
    if (status != RKS_OK)
        return status;
    status = rks_shard_check_sums(parts->sealed[parts->sealed_count - 1],
                                  parts->options.shard.threads, err);
    if (status == RKS_OK)
        send_sealed(parts, name);
    else
        rks_shard_close(parts->sealed[--parts->sealed_count]);
    return status;
}

static rks_status adopt_part(rks_parts *parts, const char *name, rks_error *err)
{
    rks_error local;
    rks_status status = adopt_sealed(parts, name, &local);
    if (status == RKS_ERR_NOT_FOUND)
        return reopen_unsealed(parts, name, err);
    if (status == RKS_ERR_CORRUPT) {
        rks_log("%s: this part of an unfinished build is damaged; its units are built again",
                local.text);
        rks_parts_remove(parts, name);
        return RKS_OK;
    }
    if (status != RKS_OK && err != NULL)
        *err = local;
    return status;
}

static bool names_shard(const rks_dataset *dataset, const char *name)
{
    for (size_t i = 0; dataset != NULL && i < dataset->shard_count; i++)
        if (strcmp(dataset->shards[i].name, name) == 0)
            return true;
    return false;
}

rks_status rks_parts_adopt(rks_parts *parts, rks_buffer *chosen, rks_error *err)
{
    rks_status status = rks_buffer_add(chosen, "", 1, err);
    char *rest = (char *)chosen->data;
    for (char *name; status == RKS_OK && (name = strsep(&rest, "\n")) != NULL && *name != '\0';)
        if (!names_shard(parts->base, name))
            status = adopt_part(parts, name, err);
    return status;
}

static int by_unit(const void *a, const void *b)
{
    const rks_unit_summary *left = a, *right = b;
    return left->unit < right->unit ? -1 : left->unit > right->unit;
}

/* Lists the units of this rank's parts. */
static rks_status list_finished(const rks_parts *parts, rks_buffer *list, rks_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < parts->sealed_count; i++) {
        const rks_unit_summary *units = rks_shard_units(parts->sealed[i], &count);
        rks_status status = rks_buffer_add(list, units, count * sizeof(*units), err);
        if (status != RKS_OK)
            return status;
    }
    if (parts->writer == NULL)
        return RKS_OK;
    const rks_unit_summary *units = rks_shard_writer_units(parts->writer, &count);
    return rks_buffer_add(list, units, count * sizeof(*units), err);
}

/* Joins the units of all ranks, by number, each once. */
static rks_status join_finished(rks_parts *parts, const rks_agreed *agreed, rks_error *err)
{
    rks_buffer all = {0};
    for (uint32_t rank = 0; rank < rks_group_size(parts->group); rank++) {
        size_t size = 0;
        const void *theirs = rks_agreed_get(agreed, rank, 0, &size);
        rks_status status = rks_buffer_add(&all, theirs, size, err);
        if (status != RKS_OK) {
            rks_buffer_free(&all);
            return status;
        }
    }
    rks_unit_summary *units = (rks_unit_summary *)(void *)all.data;
    size_t count = all.size / sizeof(*units), kept = 0;
    if (count > 0)
        qsort(units, count, sizeof(*units), by_unit);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || units[kept - 1].unit != units[i].unit)
            units[kept++] = units[i];
    parts->finished = units;
    parts->finished_count = kept;
    return RKS_OK;
}

rks_status rks_parts_agree_finished(rks_parts *parts, rks_status *own, rks_error *err)
{
    rks_buffer mine = {0};
    rks_agreed agreed;
    if (*own == RKS_OK)
        *own = list_finished(parts, &mine, err);
    const rks_fact fact = rks_fact_bytes(mine.data, mine.size, RKS_PARTS_REPORTED_MAX);
    rks_status status =
        rks_group_agree_on(parts->group, "build: finished units", *own, &fact, 1, &agreed, err);
    rks_buffer_free(&mine);
    if (status == RKS_OK)
        *own = join_finished(parts, &agreed, err);
    return status;
}

rks_status rks_parts_open(rks_group *group, const char *directory, rks_status *own,
                          const rks_parts_options *options, rks_parts **parts, rks_error *err)
{
    rks_status status = *own;
    rks_parts *opened = status == RKS_OK ? rks_alloc(1, sizeof(*opened), err) : NULL;
    if (status == RKS_OK && opened == NULL)
        status = RKS_ERR_MEMORY;
    if (status == RKS_OK) {
        char id[RKS_DIGEST_TEXT];
        opened->group = group;
        opened->options = *options;
        opened->options.shard.no_lock = options->no_lock || rks_group_size(group) == 1;
        rks_digest_format(options->shard.build_id, id);
        snprintf(opened->prefix, sizeof(opened->prefix), "part-%.16s-", id);
        opened->directory = rks_strdup(directory, err);
        status = opened->directory == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    *own = status;
    status = rks_parts_lock(group, opened, own, err);
    if (status == RKS_OK) {
        if (*own == RKS_OK && opened->lock != NULL)
            rks_directory_remove_temporaries(directory); /* no rank of this build writes yet */
        status = rks_parts_look(opened, own, err);
    }
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
    rks_dataset_free(parts->kept);
    rks_dataset_free(parts->repaired);
    rks_lost_shards_free(&parts->lost);
    rks_free(parts->directory);
    rks_free(parts);
}

rks_status rks_parts_settle(rks_parts *parts, rks_status own, rks_error *err)
{
    return parts->resumes ? rks_group_agree(parts->group, "build: finished units known", own, err)
                          : RKS_OK;
}

const rks_dataset *rks_parts_kept(const rks_parts *parts)
{
    return parts->kept;
}

const rks_dataset *rks_parts_repaired(const rks_parts *parts)
{
    return parts->repaired;
}

bool rks_parts_is_lost(const rks_parts *parts, size_t shard)
{
    return parts->lost.lost[shard] != 0;
}

uint64_t rks_parts_held(const rks_parts *parts, uint32_t rank)
{
    return parts->lost.held[rank];
}

rks_status rks_parts_begin_lost(rks_parts *parts, size_t shard, rks_error *err)
{
    rks_status status = rks_parts_seal(parts, err);
    parts->options.shard.id =
        shard == SIZE_MAX ? (rks_digest){0} : parts->repaired->shards[shard].id;
    return status;
}

rks_status rks_parts_list_kept(rks_parts *parts, rks_error *err)
{
    const rks_dataset *kept = parts->kept;
    parts->finished = rks_alloc(kept->unit_count, sizeof(*parts->finished), err);
    if (parts->finished == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < kept->unit_count; i++)
        parts->finished[i] = kept->units[i].summary;
    parts->finished_count = kept->unit_count;
    return RKS_OK;
}

const rks_dataset *rks_parts_base(const rks_parts *parts)
{
    return parts->base;
}

const rks_unit_summary *rks_parts_finished(const rks_parts *parts, uint64_t unit)
{
    rks_unit_summary key = {.unit = unit};
    return parts->finished_count == 0
               ? NULL
               : bsearch(&key, parts->finished, parts->finished_count, sizeof(key), by_unit);
}

uint64_t rks_parts_finished_last(const rks_parts *parts)
{
    return parts->finished_count == 0 ? 0 : parts->finished[parts->finished_count - 1].unit;
}

void rks_parts_discard(rks_parts *parts)
{
    char **names = NULL;
    size_t count = 0;
    rks_dataset *finished =
        NULL; /* its shards may be of this very build, which was to replace it */
    rks_shard_writer_close(parts->writer);
    parts->writer = NULL;
    rks_status status = rks_dataset_load(parts->directory, &finished, NULL);
    if (status != RKS_OK && status != RKS_ERR_NOT_FOUND)
        return;
    if (rks_dataset_parts(parts->directory, &names, &count, NULL) == RKS_OK) {
        for (size_t i = 0; i < count; i++)
            if (strncmp(names[i], parts->prefix, strlen(parts->prefix)) == 0 &&
                !names_shard(finished, names[i]))
                rks_parts_remove(parts, names[i]);
        rks_dataset_parts_free(names, count);
    }
    rks_dataset_free(finished);
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
