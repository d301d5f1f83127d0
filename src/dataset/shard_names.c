/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_names.c: the names of a dataset's shards, sorted, so that a directory of many files is
 * compared with a dataset of many shards in n log n. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "dataset/dataset.h"

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The generations of a directory have mostly the same shards: names that are there are not added
 * again. */
rks_status rks_shard_names_add(rks_shard_names *names, const rks_dataset *dataset, rks_error *err)
{
    size_t before = names->count, most = before + (dataset == NULL ? 0 : dataset->shard_count);
    char (*sorted)[128] = NULL;
    for (size_t i = before; i < most; i++) {
        const char *name = dataset->shards[i - before].name;
        if (before > 0 && bsearch(name, names->sorted, before, sizeof(*sorted), by_text) != NULL)
            continue;
        if (sorted == NULL) {
            sorted = rks_realloc(names->sorted, most, sizeof(*sorted), err);
            if (sorted == NULL)
                return RKS_ERR_MEMORY;
            names->sorted = sorted;
        }
        strcpy(sorted[names->count++], name);
    }
    if (names->count > before)
        qsort(names->sorted, names->count, sizeof(*names->sorted), by_text);
    return RKS_OK;
}

bool rks_shard_names_have(const rks_shard_names *names, const char *name)
{
    return names->count > 0 &&
           bsearch(name, names->sorted, names->count, sizeof(*names->sorted), by_text) != NULL;
}

void rks_shard_names_free(rks_shard_names *names)
{
    rks_free(names->sorted);
    *names = (rks_shard_names){0};
}
