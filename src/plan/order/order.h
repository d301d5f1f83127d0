/* SPDX-License-Identifier: Apache-2.0
 *
 * order.h: the order of the ids that an epoch plans. */
#ifndef RKS_PLAN_ORDER_ORDER_H
#define RKS_PLAN_ORDER_ORDER_H

#include "plan/epoch.h"
#include "plan/order/random.h"

/* sample_pieces.c */
/* Splits the samples that are too long, and adds the lengths of their pieces to *tokens, which
 * counts 1 for each such sample already. Does nothing unless too_long is "split".
 * RKS_ERR_UNSUPPORTED if samples and pieces together are 2^32 or more. */
rks_status rks_plan_split(rks_plan_input *in, uint64_t *tokens, rks_error *err);
/* Returns how many pieces cut sample number `cut` has; sets *first to the id of the first one. */
uint32_t rks_plan_pieces_of(const rks_plan_input *in, size_t cut, uint32_t *first);
/* Merges `count` ids of whole samples, longest first, and all pieces into one list, longest first.
 * Of equal lengths, whole samples come first. */
void rks_plan_merge_pieces(const rks_plan_input *in, const uint32_t *order, uint64_t count,
                           uint32_t *merged);
/* Returns the number, from 0 among all pieces, of the piece of sample `id` that begins at
 * `start`. */
uint32_t rks_plan_piece_number(const rks_plan_input *in, uint32_t id, uint32_t start);
/* Returns the share of a sample's cost config.balance that items [start, start + count) have. The
 * shares of all pieces add up to the cost. */
uint64_t rks_plan_part_of_balance(const rks_plan_input *in, uint32_t id, uint32_t start,
                                  uint32_t count);
/* Replaces piece ids in image->ids by the ids of their samples, and fills image->pieces.
 */
rks_status rks_plan_show_pieces(const rks_plan_input *in, rks_epoch_image *image, rks_error *err);
/* Sets *pieces and *piece_count to the pieces of a batch from rks_plan_at. The plan owns them. */
void rks_plan_pieces_at(const rks_epoch_image *image, const uint32_t *ids, size_t count,
                        const rks_piece **pieces, size_t *piece_count);
void rks_plan_free_pieces(rks_plan_input *in);

/* length_order.c: advises the kernel to use huge pages for a large array. Without them, page faults
 * and address translation take a third of the time. It is only advice and cannot fail. */
void rks_plan_advise(void *memory, uint64_t bytes);

/* base_order.c: writes the base into image->ids, which has room for rks_plan_kept() ids.
 * `struck` has a bit for each id, set if the base leaves it out; NULL leaves out none. */
rks_status rks_plan_base_fill(const rks_plan_input *in, rks_epoch_image *image,
                              const uint8_t *struck, rks_plan_base *base, rks_error *err);

/* shuffle.c: shuffles uniformly. Allocates 4 bytes an item during the call if there are more than
 * half a million. */
rks_status rks_plan_shuffle(uint64_t key, uint32_t *items, uint64_t count, rks_error *err);
/* Shuffles ids of equal length in image->ids, which are sorted by length. So lengths and
 * bounds stay as they are. */
rks_status rks_plan_shuffle_equals(const rks_plan_input *in, rks_epoch_image *image,
                                   const rks_plan_base *base, uint64_t key, rks_error *err);

#endif
