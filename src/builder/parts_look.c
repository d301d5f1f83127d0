/* SPDX-License-Identifier: Apache-2.0
 *
 * parts_look.c: what the ranks' directories hold once they are locked, and what a build does with
 * it:
 *
 *   this build's dataset, whole              keep it, or refuse
 *   the same, its commit was interrupted     make it durable, and keep it
 *   this build's dataset, shards are lost    build those again
 *   parts of this build                      take them over
 *   another dataset                          append to it, replace it, or refuse */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "builder/commit_mark.h"
#include "builder/parts_state.h"
#include "shard/manifest.h"
#include "store/store.h"

/* What a rank reports about its directory. */
enum { LOOK_DATASET, LOOK_FOUND, LOOK_BASE, LOOK_PARTS, LOOK_FACTS };

/* What the directory of a rank holds. */
enum { HOLDS_NOTHING, HOLDS_OURS, HOLDS_COMMITTING, HOLDS_OTHER };

static bool is_ours(uint8_t what)
{
    return what == HOLDS_OURS || what == HOLDS_COMMITTING;
}

/* What a rank sees in its directory. */
typedef struct sight {
    uint8_t what;            /* HOLDS_... */
    rks_found_dataset found; /* this build's dataset */
    rks_found_dataset base;  /* append: what is appended to */
    rks_dataset_description found_described, base_described;
    rks_buffer parts; /* names, a line each */
} sight;

/* ---- parts ---------------------------------------------------------------------------------- */

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

/* ---- one directory -------------------------------------------------------------------------- */

/* *old: the dataset, if there is one. A dataset that is repaired may have been added to since. */
static rks_status look_for_dataset(const rks_parts *parts, rks_dataset **old, uint8_t *what,
                                   rks_error *err)
{
    rks_error local;
    uint64_t kept = 0; /* the newest of the older generations: what they name must stay */
    *what = HOLDS_NOTHING;
    rks_status status = rks_dataset_load(parts->directory, old, &local);
    if (status == RKS_ERR_NOT_FOUND && !parts->options.replace) {
        rks_status listed = rks_dataset_newest_kept(parts->directory, &kept, err);
        if (listed != RKS_OK)
            return listed;
    }
    if (status == RKS_OK) {
        bool ours = rks_digest_equal((*old)->build_id, parts->options.shard.build_id);
        *what = ours || parts->options.repair ? HOLDS_OURS : HOLDS_OTHER;
    }
    if (*what == HOLDS_OURS) { /* the build that wrote it may have ended before it was durable */
        if (rks_commit_mark_is_of(parts->directory, (*old)->build_id))
            *what = HOLDS_COMMITTING;
        return rks_dataset_make_durable(parts->directory, err);
    } else if (status == RKS_ERR_CORRUPT && parts->options.replace)
        *what = HOLDS_OTHER;
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
                          uint64_t generation, rks_found_dataset *base)
{
    if (is_ours(what) && generation > 1)
        rks_store_look(parts->directory, generation - 1, base);
    else
        report_found(parts, what == HOLDS_OTHER ? old : NULL, base);
}

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
    rks_dataset *old = NULL;
    rks_status status = look_for_dataset(parts, &old, &seen->what, err);
    if (status == RKS_OK) {
        uint64_t generation = old == NULL ? 0 : old->generation;
        report_found(parts, is_ours(seen->what) ? &old : NULL, &seen->found);
        status = rks_store_dataset_description(&seen->found, &seen->found_described, err);
        if (parts->options.append)
            look_for_base(parts, seen->what, &old, generation, &seen->base);
    }
    rks_dataset_free(old);
    if (status == RKS_OK && parts->options.append) {
        status = check_base(parts, seen->base.dataset, err);
        if (status == RKS_OK)
            status = rks_store_dataset_description(&seen->base, &seen->base_described, err);
    }
    return status == RKS_OK ? list_parts(parts, &seen->parts, err) : status;
}

/* ---- all directories ------------------------------------------------------------------------ */

/* What all ranks see together. */
typedef struct sights {
    uint32_t same, other; /* ranks with this build's dataset, and ranks with another one */
    bool any_parts;
    bool committing;  /* a rank has this build's dataset, whose commit was interrupted */
    bool parts_alone; /* a rank has parts of this build, but no dataset: the commit was
                       * interrupted */
} sights;

static sights add_up_sights(const rks_parts *parts, const rks_agreed *agreed)
{
    sights all = {0};
    for (uint32_t rank = 0; rank < rks_group_size(parts->group); rank++) {
        size_t size = 0;
        const uint8_t *what = rks_agreed_get(agreed, rank, LOOK_DATASET, NULL);
        all.same += is_ours(*what);
        all.committing = all.committing || *what == HOLDS_COMMITTING;
        all.other += *what == HOLDS_OTHER;
        rks_agreed_get(agreed, rank, LOOK_PARTS, &size);
        all.any_parts = all.any_parts || size > 0;
        all.parts_alone = all.parts_alone || (size > 0 && *what == HOLDS_NOTHING);
    }
    return all;
}

/* Returns true if the commit of this very build is complete. A rank whose directory is empty (a new
 * node, a wiped disk) has no say. */
static bool is_committed(const sights *all)
{
    return all->same > 0 && all->other == 0 && !all->parts_alone;
}

/* A finished dataset stops the build, unless it is to be replaced. If it is this very build's and
 * some directory lacks it, the commit was interrupted and is continued. */
static rks_status check_datasets(const rks_parts *parts, const sights *all, rks_error *err)
{
    const rks_parts_options *options = &parts->options;
    bool committed = is_committed(all);
    if (options->repair && all->same == 0)
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0, "%s: no dataset here to repair",
                        parts->directory);
    if (options->append && committed)
        return rks_fail(err, RKS_ERR_ARGUMENT, EEXIST,
                        "%s: the same input was the last to be added, with the same options",
                        parts->directory);
    if (!options->append && !options->replace && (all->other > 0 || committed))
        return rks_fail(err, RKS_ERR_ARGUMENT, EEXIST,
                        "%s: already holds a finished dataset; use replace to build it anew",
                        parts->directory);
    return RKS_OK;
}

/* COLLECTIVE. `agreed` NULL: another agreement has been made since. */
static rks_status settle_base(rks_parts *parts, const rks_agreed *agreed, sight *seen,
                              rks_error *err)
{
    rks_status status =
        agreed == NULL ? rks_store_agree_dataset(parts->group, "", &seen->base, &parts->base, err)
                       : rks_store_settle_found(parts->group, agreed, LOOK_BASE, &seen->base,
                                                &parts->base, err);
    return status == RKS_ERR_NOT_FOUND ? RKS_OK : status; /* it was the first generation */
}

/* COLLECTIVE. All ranks get this build's dataset from those that have it. If shards of it are lost,
 * *ends: they are built again, and nothing else is to be decided. If it is whole, it may be kept.
 */
static rks_status settle_ours(rks_parts *parts, const rks_agreed *agreed, const sights *all,
                              sight *seen, bool *ends, rks_error *err)
{
    rks_dataset *ours = NULL;
    bool keeps =
        (parts->options.keep || parts->options.repair || all->committing) && is_committed(all);
    rks_status status =
        rks_store_settle_found(parts->group, agreed, LOOK_FOUND, &seen->found, &ours, err);
    if (status == RKS_OK)
        status = rks_parts_find_lost(parts, ours, err);
    if (status != RKS_OK) {
        rks_dataset_free(ours);
        return status;
    }
    parts->revision = ours->revision;
    *ends = parts->lost.count > 0 || keeps;
    if (parts->lost.count > 0)
        parts->repaired = ours;
    else if (keeps)
        parts->kept = ours;
    else
        rks_dataset_free(ours);
    return RKS_OK;
}

/* COLLECTIVE. Decides what is continued, from what all have seen. *own: this rank's result before,
 * and afterwards. */
static rks_status go_on(rks_parts *parts, const rks_agreed *agreed, sight *seen, rks_buffer *chosen,
                        rks_status *own, rks_error *err)
{
    const sights all = add_up_sights(parts, agreed);
    bool ends = false;
    /* Before the next agreement replaces this one. */
    rks_status chose = all.any_parts ? choose_parts(parts->group, agreed, chosen, err) : RKS_OK;
    rks_status status = RKS_OK;
    bool looks = !parts->options.replace && all.same > 0 && all.other == 0;
    if (looks)
        status = settle_ours(parts, agreed, &all, seen, &ends, err);
    if (status != RKS_OK || ends)
        return status;
    status = check_datasets(parts, &all, err);
    if (status != RKS_OK)
        return status;
    *own = chose;
    if (parts->options.append && all.same + all.other > 0) {
        status = settle_base(parts, looks ? NULL : agreed, seen, err);
        if (status != RKS_OK)
            return status;
    }
    if (!all.any_parts)
        return RKS_OK;
    parts->resumes = true;
    if (*own == RKS_OK)
        *own = rks_parts_adopt(parts, chosen, err);
    return rks_parts_agree_finished(parts, own, err);
}

rks_status rks_parts_look(rks_parts *parts, rks_status *own, rks_error *err)
{
    sight seen = {0};
    rks_buffer chosen = {0};
    rks_agreed agreed;
    rks_status status = *own == RKS_OK ? see(parts, &seen, err) : *own;
    const rks_fact facts[LOOK_FACTS] = {
        [LOOK_DATASET] = rks_fact_fixed(&seen.what, sizeof(seen.what)),
        [LOOK_FOUND] = rks_fact_fixed(&seen.found_described, sizeof(seen.found_described)),
        [LOOK_BASE] = rks_fact_fixed(&seen.base_described, sizeof(seen.base_described)),
        [LOOK_PARTS] = rks_fact_bytes(seen.parts.data, seen.parts.size,
                                      rks_group_size(parts->group) * (uint64_t)RKS_DATASET_MAX)};
    status =
        rks_group_agree_on(parts->group, "build: parts", status, facts, LOOK_FACTS, &agreed, err);
    if (status == RKS_OK)
        status = go_on(parts, &agreed, &seen, &chosen, own, err);
    rks_dataset_free(seen.found.dataset);
    rks_dataset_free(seen.base.dataset);
    rks_buffer_free(&seen.parts);
    rks_buffer_free(&chosen);
    return status;
}
