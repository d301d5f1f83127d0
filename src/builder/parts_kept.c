/* SPDX-License-Identifier: Apache-2.0
 *
 * parts_kept.c: whether all shards of a finished dataset are there, before a build keeps it. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "builder/parts_state.h"
#include "group/agreement.h"

static int compare_part_names(const void *name, const void *listed)
{
    return strcmp(name, *(const char *const *)listed);
}

/* Sets seen[i] for the shards of the dataset that lie in this rank's directory. */
static rks_status see_shards(const rks_parts *parts, const rks_dataset *dataset, uint8_t *seen,
                             rks_error *err)
{
    char **names = NULL;
    size_t count = 0;
    rks_status status = rks_dataset_parts(parts->directory, &names, &count, err);
    for (size_t i = 0; status == RKS_OK && count > 0 && i < dataset->shard_count; i++)
        seen[i] = bsearch(dataset->shards[i].name, names, count, sizeof(*names),
                          compare_part_names) != NULL;
    rks_dataset_parts_free(names, count);
    return status;
}

rks_status rks_parts_check_shards(const rks_parts *parts, const rks_dataset *dataset,
                                  rks_error *err)
{
    rks_agreed agreed;
    size_t missing = 0, first = 0;
    uint8_t *seen = rks_alloc(dataset->shard_count, 1, err);
    rks_status status = seen == NULL ? RKS_ERR_MEMORY : see_shards(parts, dataset, seen, err);
    const rks_fact fact = rks_fact_fixed(seen, dataset->shard_count);
    status =
        rks_group_agree_on(parts->group, "build: shards there", status, &fact, 1, &agreed, err);
    for (size_t i = dataset->shard_count; status == RKS_OK && i-- > 0;) {
        bool there = false;
        for (uint32_t rank = 0; rank < rks_group_size(parts->group); rank++)
            there = there || ((const uint8_t *)rks_agreed_get(&agreed, rank, 0, NULL))[i] != 0;
        missing += !there;
        first = there ? first : i;
    }
    rks_free(seen);
    if (missing == 0)
        return status;
    const rks_dataset_shard *lost = &dataset->shards[first];
    return rks_fail(err, RKS_ERR_NOT_FOUND, 0,
                    "%s: the dataset of this input is here, but %zu of %zu shards are on no rank's "
                    "disk: %s%s%s%s; bring the files, run on nodes that have them, or use replace "
                    "to build it anew",
                    parts->directory, missing, dataset->shard_count, lost->name,
                    missing > 1 ? ", ..." : "", lost->origin[0] != '\0' ? "; built by " : "",
                    lost->origin);
}
