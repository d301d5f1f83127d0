/* SPDX-License-Identifier: Apache-2.0
 *
 * holder.h: another rank of the job as a home (home/home.h): it sends files of the shards that its
 * local directory has whole, over the connection between the two ranks. So a further copy of a
 * shard costs its home nothing.
 *
 *   request   0  16  the dataset's id
 *            16   8  first, 24  8  end of the range; a whole file: 0 and the most that is wanted
 *            32   1  which file: 0 NAME.rks, 1 NAME.sums, 2 NAME.json
 *            33   1  1: the whole file
 *            34   n  NAME
 *   reply     the bytes. An error of RKS_ERR_NOT_FOUND: the shard is not whole there yet */
#ifndef RKS_STAGING_HOLDER_H
#define RKS_STAGING_HOLDER_H

#include "dataset/dataset.h"
#include "group/group.h"
#include "home/requests.h"

typedef struct rks_holding rks_holding;

/* Sends files of the dataset's shards in `directory` to ranks that ask, from now on. The caller
 * owns *holding. */
rks_status rks_holding_open(rks_group *group, const rks_dataset *dataset, const char *directory,
                            rks_holding **holding, rks_error *err);
/* Refuses later requests. Those that are being answered keep what they need. NULL is accepted. */
void rks_holding_close(rks_holding *holding);

/* Opens the home that is what `rank` holds of the dataset. It can only be read. Reads of a shard
 * that is not whole there are tried again until it is, or the rank is lost. Close it with
 * rks_home_close. */
rks_status rks_holder_open(rks_group *group, uint32_t rank, const rks_dataset *dataset,
                           rks_home **home, rks_error *err);

#endif
