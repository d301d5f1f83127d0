/* SPDX-License-Identifier: Apache-2.0
 *
 * collated.h: arrays of the samples of a batch. */
#ifndef RKS_FETCH_COLLATED_H
#define RKS_FETCH_COLLATED_H

#include "fetch/batch.h"

/* Makes the arrays of all samples of the batch, the last task of a fetch with `collate`. Reads
 * local samples from their maps; the others have been received and checked. *bytes counts columns
 * and keys of local ones. */
rks_status rks_fetch_make_arrays(rks_batch *batch, rks_collate *collate, rks_arrays **arrays,
                                 uint64_t *bytes, rks_error *err);

#endif
