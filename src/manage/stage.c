/* SPDX-License-Identifier: Apache-2.0
 *
 * stage.c: brings a dataset from its home to local directories ahead of a job. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "dataset/build_directory.h"
#include "home/helper_process.h"
#include "rankstore/home.h"
#include "store/store_reads.h"

static void fill_report(const rks_dataset *dataset, const rks_staging *staging, uint64_t brought,
                        rks_stage_report *report)
{
    const rks_staging_plan *plan = rks_staging_planned(staging);
    const size_t room = report->struct_size;
    rks_stage_report made = {
        .struct_size = room,
        .generation = rks_dataset_number(dataset),
        .shards = dataset->shard_count,
        .bytes = plan->bytes,
        .places = plan->places,
        .wanted_bytes = plan->wanted,
        .here_bytes = plan->here,
        .home_bytes = brought,
    };
    rks_digest_format(dataset->id, made.dataset);
    memcpy(report, &made, room < sizeof(made) ? room : sizeof(made));
}

/* COLLECTIVE. */
static rks_status bring_dataset(rks_group *group, const rks_dataset *dataset, const char *home,
                                const rks_staging_options *wanted, const rks_stage_options *options,
                                rks_stage_report *report, rks_error *err)
{
    rks_staging *staging = NULL;
    rks_status status = home != NULL
                            ? rks_store_make_local(group, dataset, home, wanted, &staging, err)
                            : rks_staging_begin(group, RKS_OK, dataset, wanted, &staging, err);
    if (status != RKS_OK)
        return status;
    status = rks_staging_wait(staging, RKS_ARRIVALS_WHOLE, options->progress,
                              options->progress_user, err);
    uint64_t brought = rks_staging_brought(staging);
    const rks_fact sum = rks_fact_sum(&brought, 1);
    if (status == RKS_OK)
        status = rks_group_agree_on(group, "stage: done", RKS_OK, &sum, 1, NULL, err);
    if (status == RKS_OK && report != NULL)
        fill_report(dataset, staging, brought, report);
    rks_staging_end(staging);
    return status;
}

rks_status rks_set_store_helper(const char *const *arguments, rks_error *err)
{
    return rks_helper_set_program(arguments, err);
}

/* Looks at the dataset in the directory of this rank, in which copies of its shards are made. */
static void look_here(rks_group *group, const char *directory, char **expanded,
                      rks_found_dataset *found)
{
    *found = (rks_found_dataset){.directory = directory};
    found->status = rks_directory_expand_target(group, directory, expanded, &found->error);
    if (found->status == RKS_OK)
        rks_store_look(*expanded, 0, found);
}

rks_status rks_stage(rks_group *group, const char *home, const char *local,
                     const rks_stage_options *options, rks_stage_report *report, rks_error *err)
{
    rks_stage_options chosen = {.struct_size = sizeof(chosen)};
    rks_store_options looking;
    rks_found_dataset found;
    rks_dataset *dataset = NULL;
    char *expanded = NULL;
    rks_folders beside = {0};
    if (options != NULL)
        memcpy(&chosen, options,
               options->struct_size < sizeof(chosen) ? options->struct_size : sizeof(chosen));
    rks_store_options_default(&looking);
    looking.local = local;
    looking.storage_options = chosen.storage_options;
    rks_error why = {0};
    rks_status chose = home == NULL ? RKS_OK : rks_store_choose_local(&home, &looking, &why);
    if (home == NULL)
        look_here(group, local, &expanded, &found);
    else if (chose == RKS_OK)
        rks_store_look_for_all(group, &home, 1, &looking, &expanded, &beside, &found);
    else
        found = (rks_found_dataset){.directory = home, .status = chose, .error = why};
    rks_status status = rks_store_agree_dataset(group, NULL, &found, &dataset, err);
    const rks_staging_options wanted = {.local = home != NULL ? local : expanded,
                                        .copies = chosen.copies,
                                        .room = chosen.local_room,
                                        .everywhere = chosen.everywhere,
                                        .must_copy = true,
                                        .storage_options = chosen.storage_options,
                                        .opened = &found.home};
    if (status == RKS_OK)
        status = bring_dataset(group, dataset, home != NULL ? expanded : NULL, &wanted, &chosen,
                               report, err);
    rks_home_close(found.home);
    rks_folders_free(&beside);
    rks_dataset_free(dataset);
    rks_free(expanded);
    return status;
}
