/* SPDX-License-Identifier: Apache-2.0
 *
 * mend.c: puts the shards that were built again in the places of the lost ones. Their units must be
 * those that the dataset names, with the same digests: these prove that the source is the same. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "builder/parts_state.h"
#include "builder/reported_parts.h"

static int by_unit_number(const void *a, const void *b)
{
    const rks_dataset_unit *left = a, *right = b;
    return left->summary.unit < right->summary.unit ? -1 : left->summary.unit > right->summary.unit;
}

static const rks_dataset_unit *find_built(const rks_dataset *built, uint64_t number)
{
    const rks_dataset_unit key = {.summary = {.unit = number}};
    return built->unit_count == 0
               ? NULL
               : bsearch(&key, built->units, built->unit_count, sizeof(key), by_unit_number);
}

/* Collects the parts of all ranks. Their units get the numbers that they have in the dataset. */
static rks_status collect(const rks_parts *parts, const rks_agreed *agreed, size_t fact,
                          uint64_t first_unit, rks_dataset **built, rks_error *err)
{
    rks_status status = RKS_OK;
    rks_dataset *made = rks_alloc(1, sizeof(*made), err);
    *built = made;
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->derived_keys = parts->repaired->derived_keys;
    for (uint32_t rank = 0; status == RKS_OK && rank < rks_group_size(parts->group); rank++) {
        size_t size = 0;
        const uint8_t *report = rks_agreed_get(agreed, rank, fact, &size);
        status = rks_reported_parts_take(made, report, size, err);
    }
    for (size_t i = 0; status == RKS_OK && i < made->unit_count; i++)
        made->units[i].summary.unit += first_unit;
    if (status == RKS_OK && made->unit_count > 0)
        qsort(made->units, made->unit_count, sizeof(*made->units), by_unit_number);
    return status;
}

static rks_status fail_changed(const rks_parts *parts, const rks_dataset_unit *unit,
                               const char *how, rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, ESTALE,
                    "%s: unit %" PRIu64 " of the lost shard %s %s: the source, an option or the "
                    "code has changed since it was built; nothing is changed here; repair with the "
                    "old source, or use replace to build all of it anew",
                    parts->directory, unit->summary.unit, parts->repaired->shards[unit->shard].name,
                    how);
}

/* Checks that the built units are those of the lost shards, each once. */
static rks_status check_built(const rks_parts *parts, const rks_dataset *built, rks_error *err)
{
    const rks_dataset *old = parts->repaired;
    size_t wanted = 0;
    for (size_t i = 0; i < old->unit_count; i++) {
        const rks_dataset_unit *unit = &old->units[i];
        if (parts->lost.lost[unit->shard] == 0)
            continue;
        const rks_dataset_unit *again = find_built(built, unit->summary.unit);
        wanted++;
        if (again == NULL)
            return fail_changed(parts, unit, "is not there any more", err);
        if (again->summary.samples != unit->summary.samples ||
            !rks_digest_equal(again->summary.digest, unit->summary.digest) ||
            (old->derived_keys && strcmp(again->key_name, unit->key_name) != 0))
            return fail_changed(parts, unit, "has other samples now", err);
    }
    if (built->unit_count != wanted)
        return rks_fail(err, RKS_ERR_DATA, ESTALE,
                        "%s: the source has %zu units more than when it was built: it has changed; "
                        "repair with the old source, or use replace to build all of it anew",
                        parts->directory, built->unit_count - wanted);
    return RKS_OK;
}

/* Replaces the lost shards of `made`, a copy of the old dataset, by the built ones. */
static rks_status put_in(const rks_parts *parts, const rks_dataset *built, uint64_t first_unit,
                         rks_digest build, rks_dataset *made, rks_error *err)
{
    size_t kept = 0, count = made->shard_count - parts->lost.count + built->shard_count;
    rks_dataset_shard *shards = rks_alloc(count, sizeof(*shards), err);
    uint32_t *place = rks_alloc(made->shard_count, sizeof(*place), err);
    if (shards == NULL || place == NULL) {
        rks_free(shards);
        rks_free(place);
        return RKS_ERR_MEMORY;
    }
    for (size_t i = 0; i < made->shard_count; i++) {
        place[i] = (uint32_t)kept;
        if (parts->lost.lost[i] == 0)
            shards[kept++] = made->shards[i];
    }
    for (size_t i = 0; i < built->shard_count; i++) {
        shards[kept + i] = built->shards[i];
        shards[kept + i].build = build;
        shards[kept + i].first_unit = first_unit;
    }
    for (size_t i = 0; i < made->unit_count; i++) {
        rks_dataset_unit *unit = &made->units[i];
        if (parts->lost.lost[unit->shard] == 0) {
            unit->shard = place[unit->shard];
            continue;
        }
        const rks_dataset_unit *again = find_built(built, unit->summary.unit);
        unit->shard = (uint32_t)(kept + again->shard);
        unit->first_row = again->first_row;
    }
    rks_free(place);
    rks_free(made->shards);
    made->shards = shards;
    made->shard_count = count;
    return RKS_OK;
}

rks_status rks_parts_mend(const rks_parts *parts, const rks_agreed *agreed, size_t fact,
                          rks_dataset **mended, rks_error *err)
{
    const rks_dataset *old = parts->repaired;
    rks_dataset *built = NULL, *made = NULL;
    size_t first = 0;
    while (parts->lost.lost[first] == 0)
        first++;
    const rks_digest build = old->shards[first].build; /* zeros stay zeros */
    const uint64_t first_unit = old->shards[first].first_unit;
    rks_status status = collect(parts, agreed, fact, first_unit, &built, err);
    if (status == RKS_OK)
        status = check_built(parts, built, err);
    if (status == RKS_OK)
        status = rks_dataset_copy(old, &made, err);
    if (status == RKS_OK)
        status = put_in(parts, built, first_unit, build, made, err);
    if (status == RKS_OK)
        status = rks_dataset_order_shards(made, RKS_DATASET_FILE, err);
    if (status == RKS_OK) {
        made->revision++;
        status = rks_commit_check_names(made, NULL, err);
    }
    if (status == RKS_OK) /* checked before anything is allocated because of a rank's report */
        status = rks_dataset_check(made, RKS_DATASET_FILE, RKS_ERR_ARGUMENT, err);
    rks_dataset_free(built);
    if (status != RKS_OK) {
        rks_dataset_free(made);
        return status;
    }
    *mended = made;
    return RKS_OK;
}
