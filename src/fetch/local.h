/* SPDX-License-Identifier: Apache-2.0
 *
 * local.h: samples in maps of this node. */
#ifndef RKS_FETCH_LOCAL_H
#define RKS_FETCH_LOCAL_H

#include "fetch/batch.h"
#include "fetch/fetcher.h"

/* Waits until the samples of this node that still come from home are here. */
rks_status rks_fetch_wait_arriving(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                                   rks_error *err);
/* Locates all samples of the batch whose shards are mapped. *size is the room for their copies. */
rks_status rks_fetch_locate_local(rks_batch *batch, size_t *size, rks_error *err);
/* Asks the disk for all samples of the list whose shards are mapped, unless they are in memory or
 * were already asked for. Does not wait. */
void rks_fetch_ask_disk(rks_request_list *list);
/* Checks whether this thread itself had to read pages of samples [0, count) from the disk. Returns
 * true if it read many pages. */
bool rks_fetch_notice_faults(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count);
/* Does the same for a batch, and reports lost pages to its list's `ahead`. */
void rks_fetch_notice_batch_faults(const rks_batch *batch);
/* Prefetches the bytes of a located local sample a little after the i-th. */
void rks_fetch_prefetch_local(const rks_batch *batch, size_t i);
/* Checks a record that was read from its map. Returns an error if one of its pages could not be
 * read and was replaced. */
rks_status rks_fetch_check_faults(const rks_fetcher *fetcher, const rks_wanted *wanted,
                                  const rks_record_view *in_map, rks_error *err);
/* Copies a record out of its map, and checks the copy unless checks are off. */
rks_status rks_fetch_copy_checked(const rks_fetcher *fetcher, const rks_wanted *wanted,
                                  const rks_record_view *in_map, uint8_t *to, rks_record_view *copy,
                                  rks_error *err);
/* Copies and checks all samples of the batch whose shards are mapped. Uses only their own views, so
 * replies may be checked at the same time. Does not add the block to the batch; *bytes counts
 * columns and keys. */
rks_status rks_fetch_copy_local(rks_batch *batch, rks_block **block, uint64_t *bytes,
                                rks_error *err);

#endif
