/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.c: finds and takes over what an interrupted build left, and opens this rank's writer. */
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
    if (status != RKS_OK)
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

/* What a rank reports about its directory. */
enum { LOOK_DATASET, LOOK_BASE, LOOK_PARTS, LOOK_FACTS };

/* Lists the names of this build's parts that this rank sees, a line each. A replacing build takes
 * over none: the user asked for a new one. */
static rks_status list_parts(const rks_parts *parts, rks_buffer *list, rks_error *err)
{
    char **names = NULL;
    size_t count = 0;
    rks_status status =
        parts->options.replace ? RKS_OK : rks_dataset_parts(parts->directory, &names, &count, err);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        if (strncmp(names[i], parts->prefix, strlen(parts->prefix)) == 0)
            status = rks_buffer_print(list, err, "%s\n", names[i]);
    rks_dataset_parts_free(names, count);
    return status;
}

static bool lists_part(const void *list, size_t size, const char *name, size_t name_size)
{
    const uint8_t *at = list, *all_end = at + size;
    while (at < all_end) {
        const uint8_t *end = memchr(at, '\n', (size_t)(all_end - at));
        if (end == NULL)
            return false;
        if ((size_t)(end - at) == name_size && memcmp(at, name, name_size) == 0)
            return true;
        at = end + 1;
    }
    return false;
}

/* Chooses, from the parts that this rank lists, those that no lower rank has listed. */
static rks_status choose_parts(rks_group *group, const rks_agreed *agreed, rks_buffer *chosen,
                               rks_error *err)
{
    uint32_t rank = rks_group_rank(group);
    size_t size = 0, other_size = 0;
    rks_status status = RKS_OK;
    const char *line = rks_agreed_get(agreed, rank, LOOK_PARTS, &size), *end = line + size;
    while (status == RKS_OK && line < end) {
        const char *next = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1;
        bool before = false; /* the text is our own, so there is a newline */
        for (uint32_t other = 0; other < rank && !before; other++) {
            const void *list = rks_agreed_get(agreed, other, LOOK_PARTS, &other_size);
            before = lists_part(list, other_size, line, (size_t)(next - line) - 1);
        }
        if (!before)
            status = rks_buffer_add(chosen, line, (size_t)(next - line), err);
        line = next;
    }
    return status;
}

/* Skips those that belong to the dataset that is appended to. */
static rks_status adopt_parts(rks_parts *parts, rks_buffer *chosen, rks_error *err)
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

/* COLLECTIVE. *own: the result of taking over; afterwards that of this rank's list of all finished
 * units. */
static rks_status agree_finished(rks_parts *parts, rks_status *own, rks_error *err)
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

/* Sets *what the directory holds: 0 nothing, 1 this build's dataset, 2 another one. */
static rks_status look_for_dataset(const rks_parts *parts, rks_dataset **old, uint8_t *what,
                                   rks_error *err)
{
    rks_error local;
    uint64_t kept = 0; /* the newest of the older generations: what they name must stay */
    *what = 0;
    rks_status status = rks_dataset_load(parts->directory, old, &local);
    if (status == RKS_ERR_NOT_FOUND && !parts->options.replace) {
        rks_status listed = rks_dataset_newest_kept(parts->directory, &kept, err);
        if (listed != RKS_OK)
            return listed;
    }
    if (status == RKS_OK)
        *what = rks_digest_equal((*old)->build_id, parts->options.shard.build_id) ? 1 : 2;
    if (*what == 1) /* the build that wrote it may have ended before it was durable */
        return rks_dataset_make_durable(parts->directory, err);
    else if (status == RKS_ERR_CORRUPT && parts->options.replace)
        *what = 2;
    else if (status != RKS_ERR_NOT_FOUND || kept > 0) {
        if (err != NULL)
            *err = local;
        return status;
    }
    return RKS_OK;
}

/* Moves *dataset into what this rank reports to the others; NULL, or *dataset NULL: it has none. */
static void report_found(const rks_parts *parts, rks_dataset **dataset, rks_found_dataset *found)
{
    *found = (rks_found_dataset){.directory = parts->directory};
    if (dataset != NULL && *dataset != NULL) {
        found->dataset = *dataset;
        *dataset = NULL;
    } else {
        found->status =
            rks_fail(&found->error, RKS_ERR_NOT_FOUND, 0, "%s: no dataset here", parts->directory);
    }
}

/* Finds what is appended to, as this rank sees it: the dataset that is there; or, if this very
 * append was committed, but not in all directories, the generation before it. */
static void look_for_base(const rks_parts *parts, uint8_t what, rks_dataset **old,
                          rks_found_dataset *base)
{
    uint64_t generation = *old == NULL ? 0 : (*old)->generation;
    if (what == 1 && generation > 1) {
        rks_store_look(parts->directory, generation - 1, base);
        return;
    }
    report_found(parts, what == 2 ? old : NULL, base);
}

/* What all ranks see together. */
typedef struct sights {
    uint32_t same, other; /* ranks with this build's dataset, and ranks with another one */
    bool any_parts;
    bool parts_alone; /* a rank has parts of this build, but no dataset: the commit was
                       * interrupted */
} sights;

/* Returns true if the finished dataset is kept. A rank whose directory is empty (a new node, a
 * wiped disk) has no say. */
static bool keeps(const rks_parts *parts, const sights *all)
{
    if (!parts->options.keep || parts->options.replace)
        return false;
    return parts->options.append ? all->same == rks_group_size(parts->group)
                                 : all->same > 0 && all->other == 0 && !all->parts_alone;
}

/* A finished dataset stops the build, unless it is to be replaced. If it is this very build's and
 * some directory lacks it, the commit was interrupted and is continued. */
static rks_status check_datasets(const rks_parts *parts, uint32_t same, uint32_t other,
                                 rks_error *err)
{
    bool all = same == rks_group_size(parts->group);
    if (parts->options.append && all)
        return rks_fail(err, RKS_ERR_ARGUMENT, EEXIST,
                        "%s: the same input was the last to be added, with the same options",
                        parts->directory);
    if (!parts->options.append && !parts->options.replace && (other > 0 || all))
        return rks_fail(err, RKS_ERR_ARGUMENT, EEXIST,
                        "%s: already holds a finished dataset; use replace to build it anew",
                        parts->directory);
    return RKS_OK;
}

/* What a rank sees in its directory. */
typedef struct sight {
    uint8_t what; /* see look_for_dataset */
    rks_dataset *found;
    rks_found_dataset base;
    rks_dataset_description described; /* of the base */
    rks_buffer parts;                  /* names, a line each */
} sight;

/* Refuses to append to what an earlier version built: the shard of unit 0 shows that. A shard that
 * is damaged or elsewhere is for readers to find. */
static rks_status check_base(const rks_parts *parts, const rks_dataset *base, rks_error *err)
{
    rks_manifest *manifest = NULL;
    if (base == NULL || base->unit_count == 0)
        return RKS_OK;
    char *path =
        rks_format(err, "%s/%s.json", parts->directory, base->shards[base->units[0].shard].name);
    rks_status status = path == NULL ? RKS_ERR_MEMORY : rks_manifest_load(path, &manifest, err);
    rks_manifest_free(manifest);
    rks_free(path);
    return status == RKS_ERR_MEMORY || status == RKS_ERR_UNSUPPORTED ? status : RKS_OK;
}

static rks_status see(const rks_parts *parts, sight *seen, rks_error *err)
{
    rks_status status = look_for_dataset(parts, &seen->found, &seen->what, err);
    if (status != RKS_OK)
        return status;
    if (parts->options.append) {
        look_for_base(parts, seen->what, &seen->found, &seen->base);
        status = check_base(parts, seen->base.dataset, err);
    } else if (parts->options.keep && !parts->options.replace) {
        report_found(parts, seen->what == 1 ? &seen->found : NULL, &seen->base);
    }
    if (status == RKS_OK && seen->base.directory != NULL)
        status = rks_store_dataset_description(&seen->base, &seen->described, err);
    if (status != RKS_OK)
        return status;
    return list_parts(parts, &seen->parts, err);
}

static sights add_up_sights(const rks_parts *parts, const rks_agreed *agreed)
{
    sights all = {0};
    for (uint32_t rank = 0; rank < rks_group_size(parts->group); rank++) {
        size_t size = 0;
        const uint8_t *what = rks_agreed_get(agreed, rank, LOOK_DATASET, NULL);
        all.same += *what == 1;
        all.other += *what == 2;
        rks_agreed_get(agreed, rank, LOOK_PARTS, &size);
        all.any_parts = all.any_parts || size > 0;
        all.parts_alone = all.parts_alone || (size > 0 && *what == 0);
    }
    return all;
}

/* COLLECTIVE. */
static rks_status settle_base(rks_parts *parts, const rks_agreed *agreed, sight *seen,
                              rks_error *err)
{
    rks_status status =
        rks_store_settle_found(parts->group, agreed, LOOK_BASE, &seen->base, &parts->base, err);
    return status == RKS_ERR_NOT_FOUND ? RKS_OK : status; /* it was the first generation */
}

/* COLLECTIVE. Keeps the dataset on all ranks; those without it get it from another. */
static rks_status keep_dataset(rks_parts *parts, const rks_agreed *agreed, sight *seen,
                               rks_error *err)
{
    if (parts->options.append) { /* then all ranks have it, and `base` is the one before it */
        parts->kept = seen->found;
        seen->found = NULL;
        return rks_parts_check_shards(parts, parts->kept, err);
    }
    rks_status status =
        rks_store_settle_found(parts->group, agreed, LOOK_BASE, &seen->base, &parts->kept, err);
    return status == RKS_OK ? rks_parts_check_shards(parts, parts->kept, err) : status;
}

/* COLLECTIVE. Decides what is continued, from what all have seen. *own: as in look_around. */
static rks_status go_on(rks_parts *parts, const rks_agreed *agreed, sight *seen, rks_buffer *chosen,
                        rks_status *own, rks_error *err)
{
    const sights all = add_up_sights(parts, agreed);
    if (keeps(parts, &all))
        return keep_dataset(parts, agreed, seen, err);
    rks_status status = check_datasets(parts, all.same, all.other, err);
    if (status != RKS_OK)
        return status;
    if (all.any_parts) /* before the next agreement replaces this one */
        *own = choose_parts(parts->group, agreed, chosen, err);
    if (parts->options.append && all.same + all.other > 0) {
        status = settle_base(parts, agreed, seen, err);
        if (status != RKS_OK)
            return status;
    }
    if (!all.any_parts)
        return RKS_OK;
    parts->resumes = true;
    if (*own == RKS_OK)
        *own = adopt_parts(parts, chosen, err);
    return agree_finished(parts, own, err);
}

/* COLLECTIVE. Looks, with the lock held, at what the directories hold, and decides what is
 * continued. *own: this rank's result before, and afterwards. */
static rks_status look_around(rks_parts *parts, rks_status *own, rks_error *err)
{
    sight seen = {0};
    rks_buffer chosen = {0};
    rks_agreed agreed;
    rks_status status = *own == RKS_OK ? see(parts, &seen, err) : *own;
    const rks_fact facts[LOOK_FACTS] = {
        [LOOK_DATASET] = rks_fact_fixed(&seen.what, sizeof(seen.what)),
        [LOOK_BASE] = rks_fact_fixed(&seen.described, sizeof(seen.described)),
        [LOOK_PARTS] = rks_fact_bytes(seen.parts.data, seen.parts.size,
                                      rks_group_size(parts->group) * (uint64_t)RKS_DATASET_MAX)};
    status =
        rks_group_agree_on(parts->group, "build: parts", status, facts, LOOK_FACTS, &agreed, err);
    if (status == RKS_OK)
        status = go_on(parts, &agreed, &seen, &chosen, own, err);
    rks_dataset_free(seen.found);
    rks_dataset_free(seen.base.dataset);
    rks_buffer_free(&seen.parts);
    rks_buffer_free(&chosen);
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
        status = look_around(opened, own, err);
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
