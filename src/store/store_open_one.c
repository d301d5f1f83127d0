/* SPDX-License-Identifier: Apache-2.0
 *
 * store_open_one.c: opens the dataset of one directory, which may be a local copy (local_copy.c);
 * the options of openings. */
#include <string.h>

#include "base/memory.h"
#include "store/store.h"
#include "store/store_reads.h"

void(rks_store_options_default)(rks_store_options *options)
{
    *options = (rks_store_options){
        .struct_size = sizeof(*options),
        .exchange = "auto",
        .inflight_bytes = 256u << 20,
    };
}

void rks_store_take_options(const rks_store_options *options, rks_store_options *chosen)
{
    rks_store_options_default(chosen);
    if (options != NULL)
        memcpy(chosen, options,
               options->struct_size < sizeof(*chosen) ? options->struct_size : sizeof(*chosen));
    if (chosen->inflight_bytes == 0)
        chosen->inflight_bytes = 256u << 20;
    if (chosen->exchange == NULL)
        chosen->exchange = "auto";
}

/* A directory that is a local copy lacks shards: opens it once more, and brings them from its home.
 * The failure was that of all ranks, so all come here. */
static rks_status open_and_bring(rks_group *group, const char *directory,
                                 const rks_store_options *options, rks_store **store,
                                 rks_error *err)
{
    char *expanded = NULL, *home = NULL;
    rks_folders beside = {0};
    rks_found_dataset looked;
    rks_loaded_dataset loaded = {.beside = &beside};
    const rks_error failed = *err;
    rks_store_look_for_all(group, &directory, 1, options, &expanded, &beside, &looked);
    rks_status status = rks_store_agree_home(group, expanded, &home, err);
    if (status != RKS_OK || home == NULL) {
        rks_dataset_free(looked.dataset);
        if (status == RKS_OK) {
            *err = failed;
            status = (rks_status)failed.status;
        }
    } else {
        status = rks_store_agree_dataset(group, options->exchange, &looked, &loaded.dataset, err);
        if (status == RKS_OK)
            status = rks_store_load_copy(group, expanded, home, options, &loaded, err);
        if (status == RKS_OK)
            status = rks_store_open_dataset(group, &loaded, options, NULL, store, err);
    }
    rks_folders_free(&beside);
    rks_free(expanded);
    rks_free(home);
    return status;
}

/* `refused`: why this rank cannot look at it, of which all are to know; its status may be RKS_OK.
 */
static rks_status open_one(rks_group *group, const char *directory,
                           const rks_store_options *options, const rks_error *refused,
                           rks_store **store, rks_error *err)
{
    rks_store_options chosen = *options;
    char *expanded = NULL;
    rks_folders beside = {0};
    rks_loaded_dataset loaded = {.beside = &beside};
    rks_found_dataset looked;
    if (refused->status != RKS_OK)
        looked = (rks_found_dataset){
            .directory = directory, .status = (rks_status)refused->status, .error = *refused};
    else
        rks_store_look_for_all(group, &directory, 1, &chosen, &expanded, &beside, &looked);
    rks_status status =
        rks_store_agree_dataset(group, chosen.exchange, &looked, &loaded.dataset, err);
    if (status == RKS_OK && chosen.local != NULL) {
        status = rks_store_load_local(group, expanded, &looked.home, &chosen, &loaded, err);
        chosen.missing = NULL; /* checked; what is missing comes */
    }
    if (chosen.local == NULL)
        loaded.directory = expanded;
    if (status == RKS_OK)
        status = rks_store_open_dataset(group, &loaded, &chosen, NULL, store, err);
    rks_home_close(looked.home);
    rks_folders_free(&beside);
    rks_free(expanded);
    return status;
}

rks_status rks_store_open(rks_group *group, const char *directory, const rks_store_options *options,
                          rks_store **store, rks_error *err)
{
    rks_store_options chosen;
    rks_error unseen = {0};
    if (err == NULL)
        err = &unseen;
    rks_store_take_options(options, &chosen);
    if (chosen.columns != NULL)
        return rks_store_open_many(group, &directory, NULL, 1, options, store, err);
    rks_error refused = {0};
    if (rks_store_choose_local(&directory, &chosen, &refused) == RKS_OK)
        refused = (rks_error){0};
    rks_status status = open_one(group, directory, &chosen, &refused, store, err);
    if (status == RKS_ERR_NOT_FOUND && chosen.local == NULL && chosen.missing == NULL)
        status = open_and_bring(group, directory, &chosen, store, err);
    return status;
}
