/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_ring.c: the bytes of one direction, and when they arrive. */
#include "transport/memory_pipes.h"

#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

enum {
    RING_FIRST = 1024,      /* first size of a ring; it doubles as needed */
    RING_MOST = 256 * 1024, /* up to this */
};

bool rks_ring_init(ring *r)
{
    r->room = RING_FIRST;
    r->bytes = rks_alloc_raw(RING_FIRST, 1, NULL);
    return r->bytes != NULL;
}

size_t rks_ring_fit(ring *r, size_t more)
{
    size_t room = r->room;
    while (room < r->size + more && room < RING_MOST)
        room *= 2;
    if (room > r->room) {
        uint8_t *bytes = rks_alloc_raw(room, 1, NULL);
        if (bytes != NULL) {
            size_t tail = r->room - r->start < r->size ? r->room - r->start : r->size;
            memcpy(bytes, r->bytes + r->start, tail);
            memcpy(bytes + tail, r->bytes, r->size - tail);
            rks_free(r->bytes);
            r->bytes = bytes;
            r->room = room;
            r->start = 0;
        }
    }
    return more < r->room - r->size ? more : r->room - r->size;
}

void rks_ring_put(ring *r, const uint8_t *bytes, size_t size)
{
    size_t at = (r->start + r->size) & (r->room - 1);
    size_t tail = r->room - at < size ? r->room - at : size;
    memcpy(r->bytes + at, bytes, tail);
    memcpy(r->bytes, bytes + tail, size - tail);
    r->size += size;
}

void rks_ring_take(ring *r, uint8_t *bytes, size_t size)
{
    size_t tail = r->room - r->start < size ? r->room - r->start : size;
    memcpy(bytes, r->bytes + r->start, tail);
    memcpy(bytes + tail, r->bytes, size - tail);
    r->start = (r->start + size) & (r->room - 1);
    r->size -= size;
    r->arrived -= size;
}

void rks_ring_delay(ring *r, size_t size, uint64_t due_ns)
{
    if (due_ns == 0 && r->count == 0) {
        r->arrived += size;
        return;
    }
    if (due_ns < r->last_due_ns)
        due_ns = r->last_due_ns;
    r->last_due_ns = due_ns;
    segment *last = &r->segments[(r->first + r->count + RKS_RING_SEGMENTS - 1) % RKS_RING_SEGMENTS];
    if (r->count > 0 && (r->count == RKS_RING_SEGMENTS || last->due_ns == due_ns)) {
        last->size += size;
        last->due_ns = due_ns;
        return;
    }
    r->segments[(r->first + r->count) % RKS_RING_SEGMENTS] = (segment){size, due_ns};
    r->count++;
}

uint64_t rks_ring_arrive(ring *r)
{
    if (r->count == 0)
        return RKS_NEVER;
    uint64_t now = rks_now_ns();
    while (r->count > 0 && r->segments[r->first].due_ns <= now) {
        r->arrived += r->segments[r->first].size;
        r->first = (r->first + 1) % RKS_RING_SEGMENTS;
        r->count--;
    }
    return r->count == 0 ? RKS_NEVER : r->segments[r->first].due_ns;
}

void rks_ring_break(ring *r, int error)
{
    r->size = r->arrived = r->count = 0;
    r->ended = true;
    r->error = error;
}
