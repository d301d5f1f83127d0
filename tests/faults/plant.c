/* SPDX-License-Identifier: Apache-2.0
 *
 * plant.c: loaded before the library, it spoils the second batch of an epoch: PLANT=drop leaves its
 * last sample out, repeat has the first one twice, swap puts one in place of another. The reader
 * must notice. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "rankstore.h"

static rks_store *store;

rks_status rks_epoch_open(rks_store *opened, rks_plan *plan, const rks_epoch_options *options,
                          rks_epoch **epoch, rks_error *err)
{
    rks_status (*real)(rks_store *, rks_plan *, const rks_epoch_options *, rks_epoch **,
                       rks_error *) = dlsym(RTLD_NEXT, "rks_epoch_open");
    store = opened;
    return real(opened, plan, options, epoch, err);
}

static rks_status spoil(rks_batch **batch, rks_error *err)
{
    const char *plant = getenv("PLANT");
    uint64_t ids[4096];
    size_t count = rks_batch_count(*batch);
    if (count < 2 || count + 1 > sizeof(ids) / sizeof(ids[0]))
        return RKS_OK;
    for (size_t i = 0; i < count; i++)
        ids[i] = rks_batch_id(*batch, i);
    if (strcmp(plant, "drop") == 0)
        count--;
    else if (strcmp(plant, "repeat") == 0)
        ids[count++] = ids[0];
    else
        ids[1] = ids[0];
    rks_batch_free(*batch);
    return rks_store_fetch(store, ids, count, batch, err);
}

rks_status rks_epoch_next(rks_epoch *epoch, rks_batch **batch, uint64_t *step, rks_error *err)
{
    static int calls;
    rks_status (*real)(rks_epoch *, rks_batch **, uint64_t *, rks_error *) =
        dlsym(RTLD_NEXT, "rks_epoch_next");
    rks_status status = real(epoch, batch, step, err);
    if (status == RKS_OK && *batch != NULL && ++calls == 2)
        status = spoil(batch, err);
    return status;
}
