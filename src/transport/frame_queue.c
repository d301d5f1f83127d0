/* SPDX-License-Identifier: Apache-2.0
 *
 * frame_queue.c: frames that wait to be sent. */
#include "transport/frame_queue.h"

void rks_frame_queue_add(rks_frame_queue *queue, rks_frame *frame)
{
    frame->next = NULL;
    if (queue->first == NULL)
        queue->last = &queue->first;
    *queue->last = frame;
    queue->last = &frame->next;
}

rks_frame *rks_frame_queue_take(rks_frame_queue *queue)
{
    rks_frame *frame = queue->first;
    if (frame != NULL)
        queue->first = frame->next;
    return frame;
}

void rks_frame_set(rks_frame *frame, enum rks_frame_type type, uint64_t id, uint16_t service,
                   const void *body, size_t size)
{
    rks_frame_header header = {.size = size, .id = id, .type = (uint16_t)type, .service = service};
    rks_frame_encode(&header, body, frame->header);
    frame->few[0] = (struct iovec){frame->header, sizeof(frame->header)};
    frame->few[1] = (struct iovec){(void *)(uintptr_t)body, size};
    frame->parts = frame->few;
    frame->count = size > 0 ? 2 : 1;
    frame->total = sizeof(frame->header) + size;
}
