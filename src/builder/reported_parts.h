/* SPDX-License-Identifier: Apache-2.0
 *
 * reported_parts.h: what a rank reports about the parts that it has sealed, as bytes. */
#ifndef RKS_BUILDER_REPORTED_PARTS_H
#define RKS_BUILDER_REPORTED_PARTS_H

#include "base/buffer.h"
#include "dataset/dataset.h"
#include "shard/shard.h"

/* Writes a part's name: that of its file, without ending. */
void rks_part_name(const rks_shard *shard, char name[128]);
/* Appends what a sealed part holds. */
rks_status rks_reported_parts_put(rks_buffer *bytes, const rks_shard *shard, rks_error *err);
/* Appends the parts that another rank reports, and their units, to the dataset's lists. The bytes
 * may be anything: RKS_ERR_PEER if one is cut short or its name is not a file name.
 * rks_dataset_check checks whether the numbers fit together. */
rks_status rks_reported_parts_take(rks_dataset *dataset, const uint8_t *bytes, size_t size,
                                   rks_error *err);

#endif
