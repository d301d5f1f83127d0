/* SPDX-License-Identifier: Apache-2.0
 *
 * frame_queue.h: frames that wait to be sent. */
#ifndef RKS_TRANSPORT_FRAME_QUEUE_H
#define RKS_TRANSPORT_FRAME_QUEUE_H

#include "transport/call.h"

typedef struct rks_frame_queue {
    rks_frame *first;
    rks_frame **last; /* valid only if `first` is not NULL */
} rks_frame_queue;

void rks_frame_queue_add(rks_frame_queue *queue, rks_frame *frame);
rks_frame *rks_frame_queue_take(rks_frame_queue *queue); /* NULL: none */
/* Sets header and parts of a frame with at most one body. */
void rks_frame_set(rks_frame *frame, enum rks_frame_type type, uint64_t id, uint16_t service,
                   const void *body, size_t size);

#endif
