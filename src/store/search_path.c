/* SPDX-License-Identifier: Apache-2.0
 *
 * search_path.c: in which folders a rank looks for a dataset and for its shards. First come the
 * folders of the dataset's name (several if it has a `*`), then those of the option `shards`, then
 * those of RKS_PATH. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file_wait.h"
#include "base/memory.h"
#include "dataset/build_directory.h"
#include "store/store.h"

static rks_status fail_two(const char *pattern, const rks_found_dataset *one,
                           const rks_found_dataset *other, rks_error *err)
{
    char ids[2][RKS_DIGEST_TEXT], advice[256];
    uint64_t first = rks_dataset_number(one->dataset), second = rks_dataset_number(other->dataset);
    rks_digest_format(one->dataset->id, ids[0]);
    rks_digest_format(other->dataset->id, ids[1]);
    if (first == second)
        snprintf(advice, sizeof(advice), "a name with * is one dataset, a list of names several");
    else
        snprintf(advice, sizeof(advice),
                 "if one grew out of the other, %.150s@%" PRIu64 " opens what both have", pattern,
                 first < second ? first : second);
    return rks_fail(err, RKS_ERR_STATE, 0,
                    "%s: %s has dataset %.8s, generation %" PRIu64 ", and %s has dataset %.8s, "
                    "generation %" PRIu64 "; %s",
                    pattern, one->directory, ids[0], first, other->directory, ids[1], second,
                    advice);
}

/* Looks into one more of the folders of a pattern. `found` keeps the last revision that was seen,
 * of equal ones the first. */
static rks_status look_into(const char *pattern, const char *directory, uint64_t generation,
                            rks_found_dataset *found, rks_error *err)
{
    rks_found_dataset looked;
    rks_dataset_description before = {0}, now = {0};
    rks_store_look(directory, generation, &looked);
    rks_status status = rks_store_dataset_description(&looked, &now, err);
    if (status == RKS_OK && looked.dataset != NULL && found->dataset != NULL) {
        status = rks_store_dataset_description(found, &before, err);
        if (status == RKS_OK && !rks_store_same_samples(&before, &now))
            status = fail_two(pattern, found, &looked, err);
    }
    if (status == RKS_OK && looked.dataset != NULL &&
        (found->dataset == NULL || rks_store_replaces(&now, &before))) {
        rks_dataset_free(found->dataset);
        *found = looked;
        looked.dataset = NULL;
    }
    rks_dataset_free(looked.dataset);
    return status;
}

static rks_status look_into_all(const char *pattern, uint64_t generation,
                                const rks_folders *folders, rks_found_dataset *found,
                                rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < folders->count; i++)
        status = look_into(pattern, folders->paths[i], generation, found, err);
    if (status != RKS_OK || found->dataset != NULL)
        return status;
    if (folders->count == 0)
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0, "%s: no folder has such a name", pattern);
    return rks_fail(err, RKS_ERR_NOT_FOUND, 0, "%s: no dataset in %s%s", pattern, folders->paths[0],
                    folders->count > 1 ? ", nor in the others that are named so" : "");
}

/* Of a name with a `*`: *name becomes the folder that has the dataset, `beside` gets the others. */
static rks_status look_by_pattern(char **name, uint64_t generation, rks_folders *beside,
                                  rks_found_dataset *found, rks_error *err)
{
    rks_folders folders = {0};
    char *directory = NULL;
    rks_status status = rks_folders_find(&folders, *name, err);
    if (status == RKS_OK)
        status = look_into_all(*name, generation, &folders, found, err);
    for (size_t i = 0; i < folders.count && (status == RKS_OK || status == RKS_ERR_NOT_FOUND); i++)
        if ((status != RKS_OK || strcmp(folders.paths[i], found->directory) != 0) &&
            rks_folders_add(beside, folders.paths[i], err) != RKS_OK)
            status = RKS_ERR_MEMORY;
    if (status == RKS_OK) {
        directory = rks_strdup(found->directory, err);
        status = directory == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    if (status == RKS_OK) {
        rks_free(*name);
        *name = directory;
        found->directory = directory;
    } else {
        rks_dataset_free(found->dataset);
    }
    rks_folders_free(&folders);
    return status;
}

void rks_store_look_for(rks_group *group, const char *pattern, char **directory,
                        rks_folders *beside, rks_found_dataset *found)
{
    *found = (rks_found_dataset){.directory = pattern};
    char *name = NULL;
    rks_error why;
    rks_status status = rks_directory_expand(group, pattern, &name, &why);
    rks_file_wait_at(status == RKS_OK ? name : pattern);
    uint64_t generation = status == RKS_OK ? rks_dataset_take_generation(name) : 0;
    if (status == RKS_OK && !rks_folders_is_pattern(name)) {
        rks_store_look(name, generation, found);
    } else if (status == RKS_OK) {
        status = look_by_pattern(&name, generation, beside, found, &why);
        if (status != RKS_OK)
            *found = (rks_found_dataset){.directory = name, .status = status, .error = why};
    } else {
        found->status = status;
        found->error = why;
    }
    *directory = name;
}

/* ---- folders of shards ------------------------------------------------------------------- */

rks_status rks_store_take_folders(rks_store *store, const rks_folders *beside, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && beside != NULL && i < beside->count; i++)
        status = rks_folders_add(&store->folders, beside->paths[i], err);
    return status;
}

rks_status rks_store_find_folders(rks_store *store, const char *const *shards, size_t count,
                                  rks_error *err)
{
    return rks_folders_of_shards(&store->folders, store->group, shards, count, &store->fitting_none,
                                 err);
}

void rks_store_put_looked(const rks_store *store, char *text, size_t room)
{
    enum { SHOWN = 3 };
    const rks_folders *folders = &store->folders;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < folders->count && i < SHOWN && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%s",
                                 i == 0 ? "; also looked in " : ", ", folders->paths[i]);
    if (folders->count > SHOWN && used < room)
        used += (size_t)snprintf(text + used, room - used, " and %zu more", folders->count - SHOWN);
    if (store->fitting_none != NULL && used < room)
        snprintf(text + used, room - used, "; no folder is named %s", store->fitting_none);
}
