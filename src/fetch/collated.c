/* SPDX-License-Identifier: Apache-2.0
 *
 * collated.c: samples of a batch as arrays. */
#include <inttypes.h>

#include "base/error.h"
#include "fetch/fetcher.h"

static rks_status decode(void *user, size_t i, rks_value *values, rks_error *err)
{
    const rks_batch *batch = user;
    const rks_record_view *view = &batch->views[i];
    rks_error inner;
    if (rks_record_decode(batch->schema, view->payload, view->payload_size, values, &inner) ==
        RKS_OK)
        return RKS_OK;
    return rks_fetcher_blame(batch->fetcher, &batch->wanted[i], &inner, err);
}

rks_status rks_batch_arrays(rks_batch *batch, rks_collate *collate, rks_arrays **arrays,
                            rks_error *err)
{
    rks_arrays *made = NULL;
    const rks_collate_source source = {
        .count = batch->count, .sizes = decode, .items = decode, .user = batch};
    rks_status status = rks_collate_run(collate, &source, batch->fetcher->pool, &made, err);
    if (status != RKS_OK)
        return status;
    uint64_t *ids = rks_arrays_ids_room(made);
    uint32_t *lengths = rks_arrays_lengths_room(made);
    for (size_t i = 0; i < batch->count; i++) {
        ids[i] = batch->wanted[i].id;
        lengths[i] = batch->wanted[i].length;
    }
    *arrays = made;
    return RKS_OK;
}

rks_status rks_batch_collate(rks_batch *batch, const rks_collate_options *options,
                             rks_arrays **arrays, rks_error *err)
{
    rks_collate *collate = NULL;
    rks_status status = rks_collate_create(batch->schema, options, &collate, err);
    if (status == RKS_OK)
        status = rks_batch_arrays(batch, collate, arrays, err);
    rks_collate_release(collate);
    return status;
}
