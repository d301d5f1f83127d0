/* SPDX-License-Identifier: Apache-2.0
 *
 * lost_shards.c: whether all shards of a finished dataset are there, before a build keeps it; and
 * which of those that nobody has this build can make again. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "builder/lost_shards.h"
#include "builder/parts_state.h"
#include "dataset/search_folders.h"
#include "group/agreement.h"
#include "shard/shard.h"
#include "store/store.h"

/* ---- which are there ------------------------------------------------------------------------ */

static int compare_part_names(const void *name, const void *listed)
{
    return strcmp(name, *(const char *const *)listed);
}

static bool lists_name(char **names, size_t count, const char *name)
{
    return count > 0 && bsearch(name, names, count, sizeof(*names), compare_part_names) != NULL;
}

/* Sets seen[i] for the shards of the dataset that lie in the directory, under their own names, with
 * their manifests: an opening finds no others. */
static rks_status see_names(const char *directory, const rks_dataset *dataset, uint8_t *seen,
                            rks_error *err)
{
    char **parts = NULL, **sealed = NULL;
    size_t part_count = 0, sealed_count = 0;
    rks_status status = rks_dataset_parts(directory, &parts, &part_count, err);
    if (status == RKS_OK)
        status = rks_dataset_sealed(directory, &sealed, &sealed_count, err);
    for (size_t i = 0; status == RKS_OK && i < dataset->shard_count; i++)
        seen[i] |= lists_name(parts, part_count, dataset->shards[i].name) &&
                   lists_name(sealed, sealed_count, dataset->shards[i].name);
    rks_dataset_parts_free(parts, part_count);
    rks_dataset_parts_free(sealed, sealed_count);
    return status == RKS_ERR_NOT_FOUND ? RKS_OK : status; /* no directory: no shards */
}

/* Sets seen[i] also for those of which there is a copy. */
static rks_status see_copies(const char *directory, const rks_dataset *dataset, uint8_t *seen,
                             rks_error *err)
{
    size_t count = dataset->shard_count;
    rks_shard **copies = rks_alloc(count, sizeof(*copies), err);
    if (copies == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_dataset_open_copies(dataset, directory, 0, count, copies, err);
    for (size_t i = 0; i < count; i++) {
        seen[i] = seen[i] || copies[i] != NULL;
        rks_shard_close(copies[i]);
    }
    rks_free(copies);
    return status;
}

/* The same wherever this rank looks. */
static rks_status see_shards(const rks_group *group, const rks_shard_search *search,
                             const rks_dataset *dataset, uint8_t *seen, rks_error *err)
{
    rks_folders folders = {0};
    char *none = NULL;
    rks_status status = rks_folders_add(&folders, search->directory, err);
    if (status == RKS_OK)
        status =
            rks_folders_of_shards(&folders, group, search->shards, search->shard_count, &none, err);
    for (size_t i = 0; status == RKS_OK && i < folders.count; i++) {
        status = see_names(folders.paths[i], dataset, seen, err);
        if (status == RKS_OK)
            status = see_copies(folders.paths[i], dataset, seen, err);
    }
    rks_folders_free(&folders);
    rks_free(none);
    return status;
}

/* What a rank reports: the shards that lie here, and whether a file may show late. */
enum { SEES_SHARDS, SEES_LATE, SEES_FACTS };

/* After the agreement, for all ranks alike. */
static void add_up_seen(const rks_dataset *dataset, const rks_agreed *agreed,
                        rks_lost_shards *shards)
{
    memset(shards->lost, 1, dataset->shard_count);
    shards->count = dataset->shard_count;
    for (uint32_t rank = 0; rank < rks_group_size(agreed->group); rank++) {
        const uint8_t *seen = rks_agreed_get(agreed, rank, SEES_SHARDS, NULL);
        shards->held[rank] = 0;
        for (size_t i = 0; i < dataset->shard_count; i++) {
            if (seen[i] == 0)
                continue;
            shards->held[rank] += dataset->shards[i].bytes;
            shards->count -= shards->lost[i];
            shards->lost[i] = 0;
        }
    }
}

/* COLLECTIVE. *late: some shards may only not show yet. `status`: this rank's own. */
static rks_status look_once(rks_group *group, const rks_shard_search *search, rks_status status,
                            const rks_dataset *dataset, rks_lost_shards *shards, bool *late,
                            rks_error *err)
{
    rks_agreed agreed;
    uint8_t shows_late = status == RKS_OK && rks_store_shows_late(search->directory);
    uint8_t *seen = status == RKS_OK ? rks_alloc(dataset->shard_count, 1, err) : NULL;
    if (status == RKS_OK)
        status = seen == NULL ? RKS_ERR_MEMORY : see_shards(group, search, dataset, seen, err);
    const rks_fact facts[SEES_FACTS] = {[SEES_SHARDS] = rks_fact_fixed(seen, dataset->shard_count),
                                        [SEES_LATE] =
                                            rks_fact_fixed(&shows_late, sizeof(shows_late))};
    status =
        rks_group_agree_on(group, "build: shards there", status, facts, SEES_FACTS, &agreed, err);
    rks_free(seen);
    if (status != RKS_OK)
        return status;
    *late = false;
    for (uint32_t rank = 0; rank < rks_group_size(group); rank++)
        *late = *late || *(const uint8_t *)rks_agreed_get(&agreed, rank, SEES_LATE, NULL) != 0;
    add_up_seen(dataset, &agreed, shards);
    return RKS_OK;
}

rks_status rks_lost_shards_find(rks_group *group, const rks_shard_search *search,
                                const rks_dataset *dataset, rks_lost_shards *shards, rks_error *err)
{
    bool late = true;
    *shards =
        (rks_lost_shards){.lost = rks_alloc(dataset->shard_count, 1, err),
                          .held = rks_alloc(rks_group_size(group), sizeof(*shards->held), err)};
    rks_status status = shards->lost == NULL || shards->held == NULL ? RKS_ERR_MEMORY : RKS_OK;
    status = look_once(group, search, status, dataset, shards, &late, err);
    for (uint32_t looks = 0;
         status == RKS_OK && shards->count > 0 && late && looks < RKS_STORE_LOOKS_AGAIN; looks++) {
        rks_status waited = rks_store_wait_for_late(err);
        status = look_once(group, search, waited, dataset, shards, &late, err);
    }
    return status;
}

void rks_lost_shards_free(rks_lost_shards *shards)
{
    rks_free(shards->lost);
    rks_free(shards->held);
    *shards = (rks_lost_shards){0};
}

/* ---- which can be made again ---------------------------------------------------------------- */

/* Clears lost[i] for shards that another build wrote, or another addition of the same input. */
static void choose_own(const rks_parts *parts, const rks_dataset *dataset, rks_lost_shards *own,
                       uint64_t *first_unit)
{
    uint8_t *lost = own->lost;
    own->count = 0;
    for (size_t i = 0; i < dataset->shard_count; i++) {
        if (lost[i] == 0)
            continue;
        lost[i] =
            rks_digest_equal(rks_dataset_build_of(dataset, i), parts->options.shard.build_id) &&
            (own->count == 0 || dataset->shards[i].first_unit == *first_unit);
        if (lost[i] != 0 && own->count++ == 0)
            *first_unit = dataset->shards[i].first_unit;
    }
}

/* `all`: how many shards are lost; `first`: the first of them. */
static rks_status fail_lost(const rks_parts *parts, const rks_dataset *dataset, size_t all,
                            size_t first, rks_error *err)
{
    const rks_dataset_shard *shard = &dataset->shards[first];
    const char *more = all > 1 ? ", ..." : "";
    const char *by = shard->origin[0] != '\0' ? "; built by " : "";
    if (parts->options.repair)
        return rks_fail(err, RKS_ERR_ARGUMENT, ESTALE,
                        "%s: %zu of %zu shards are lost, but none of them was built from this "
                        "input with these options: %s%s%s%s",
                        parts->directory, all, dataset->shard_count, shard->name, more, by,
                        shard->origin);
    return rks_fail(err, RKS_ERR_NOT_FOUND, 0,
                    "%s: the dataset of this input is here, but %zu of %zu shards, which earlier "
                    "builds wrote, are on no rank's disk: %s%s%s%s; bring the files, run on nodes "
                    "that have them, or repair with the input of those builds",
                    parts->directory, all, dataset->shard_count, shard->name, more, by,
                    shard->origin);
}

/* Lists the units of this build that are not lost as finished ones. */
static rks_status list_finished(rks_parts *parts, const rks_dataset *dataset, uint64_t first_unit,
                                rks_error *err)
{
    const rks_digest build = parts->options.shard.build_id;
    parts->finished = rks_alloc(dataset->unit_count, sizeof(*parts->finished), err);
    if (parts->finished == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        if (parts->lost.lost[unit->shard] != 0 ||
            dataset->shards[unit->shard].first_unit != first_unit ||
            !rks_digest_equal(rks_dataset_build_of(dataset, unit->shard), build))
            continue;
        parts->finished[parts->finished_count] = unit->summary;
        parts->finished[parts->finished_count++].unit -= first_unit;
    }
    return RKS_OK;
}

static void say_what_is_lost(const rks_parts *parts, const rks_dataset *dataset, size_t all)
{
    size_t units = 0, own = parts->lost.count;
    for (size_t i = 0; i < dataset->unit_count; i++)
        units += parts->lost.lost[dataset->units[i].shard];
    if (rks_group_rank(parts->group) != 0)
        return;
    rks_log("%s: %zu of %zu shards are lost; %zu of %zu units are built again", parts->directory,
            all, dataset->shard_count, units, dataset->unit_count);
    if (own < all)
        rks_log("%s: the other lost shards (%zu) were built from another input: repair with that "
                "one, too",
                parts->directory, all - own);
}

rks_status rks_parts_find_lost(rks_parts *parts, const rks_dataset *dataset, rks_error *err)
{
    uint64_t first_unit = 0;
    rks_lost_shards *lost = &parts->lost;
    const rks_shard_search search = {parts->directory, parts->options.shards,
                                     parts->options.shard_count};
    rks_status status = rks_lost_shards_find(parts->group, &search, dataset, lost, err);
    if (status != RKS_OK || lost->count == 0)
        return status;
    size_t all = lost->count, first = 0;
    while (lost->lost[first] == 0)
        first++;
    choose_own(parts, dataset, lost, &first_unit);
    if (lost->count == 0)
        return fail_lost(parts, dataset, all, first, err);
    status = list_finished(parts, dataset, first_unit, err);
    status = rks_group_agree(parts->group, "build: what is lost", status, err);
    if (status == RKS_OK)
        say_what_is_lost(parts, dataset, all);
    return status;
}
