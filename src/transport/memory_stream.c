/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_stream.c: links between two nets, and the streams at their ends. */
#include "transport/memory_pipes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

enum { READS_AT_ONCE = 16 }; /* then other ends get their turn */

/* ---- links ----------------------------------------------------------------------------------- */

/* Runs on the loop's thread, or under the link's mutex; either keeps the end's net alive. */
void rks_memory_look_at(memory_end *end)
{
    memory_net *net = end->net;
    pthread_mutex_lock(&net->mutex);
    if (!end->queued) {
        end->queued = true;
        end->next = NULL;
        if (net->queued == NULL)
            net->queued_last = &net->queued;
        *net->queued_last = end;
        net->queued_last = &end->next;
        pthread_cond_signal(&net->cond);
    }
    pthread_mutex_unlock(&net->mutex);
}

/* Wakes the thread of an end, unless the end is closed or not accepted yet. The link's mutex must
 * be held. */
static void wake_end(memory_end *end)
{
    if (end->net != NULL && !end->closed)
        rks_memory_look_at(end);
}

memory_link *rks_memory_link_create(memory_transport *transport)
{
    memory_link *made = rks_alloc(1, sizeof(*made), NULL);
    if (made == NULL)
        return NULL;
    for (int i = 0; i < 2; i++) {
        memory_end *end = &made->ends[i];
        end->stream.ops = &rks_memory_ops;
        end->link = made;
    }
    if (!rks_ring_init(&made->ends[0].in) || !rks_ring_init(&made->ends[1].in)) {
        rks_free(made->ends[0].in.bytes);
        rks_free(made->ends[1].in.bytes);
        rks_free(made);
        return NULL;
    }
    made->transport = transport;
    made->open_ends = 2;
    pthread_mutex_init(&made->mutex, NULL);
    return made;
}

void rks_memory_release(memory_end *end)
{
    memory_link *link = end->link;
    pthread_mutex_lock(&link->mutex);
    bool last = --link->open_ends == 0;
    pthread_mutex_unlock(&link->mutex);
    if (!last)
        return;
    pthread_mutex_lock(&link->transport->mutex);
    *link->link = link->next;
    if (link->next != NULL)
        link->next->link = link->link;
    pthread_mutex_unlock(&link->transport->mutex);
    pthread_mutex_destroy(&link->mutex);
    rks_free(link->ends[0].in.bytes);
    rks_free(link->ends[1].in.bytes);
    rks_free(link);
}

/* Reports to the other end that this one is closed; as a reset if this end has unread bytes. */
void rks_memory_hang_up(memory_end *end)
{
    memory_end *other = rks_memory_other_end(end);
    pthread_mutex_lock(&end->link->mutex);
    if (!end->closed && !other->closed && !other->in.ended) {
        other->in.ended = true;
        other->in.error = end->in.size > 0 ? ECONNRESET : 0;
    }
    end->closed = true;
    rks_ring_break(&end->in, 0);
    wake_end(other);
    pthread_mutex_unlock(&end->link->mutex);
}

void rks_memory_end_break(memory_end *end, int error)
{
    rks_ring_break(&end->in, error);
    wake_end(end);
}

/* ---- streams --------------------------------------------------------------------------------- */

void rks_memory_tune(rks_stream *stream, uint32_t silence_ms)
{
    (void)stream;
    (void)silence_ms;
}

int rks_memory_read(rks_stream *stream, bool on)
{
    memory_end *end = rks_memory_end_of(stream);
    end->reading = on;
    if (on)
        rks_memory_look_at(end);
    return 0;
}

/* Moves bytes into the other end's ring. Returns their number, or a negative errno value. */
static ssize_t move(memory_end *end, const struct iovec *parts, size_t count)
{
    memory_end *other = rks_memory_other_end(end);
    const rks_memory_rules *rules = &end->link->transport->rules;
    size_t total = 0, moved = 0;
    for (size_t i = 0; i < count; i++)
        total += parts[i].iov_len;
    if (rules->some != NULL)
        total = rules->some(rules->user, end->rank, end->peer, total, true);
    pthread_mutex_lock(&end->link->mutex);
    if (other->closed || other->in.ended) {
        pthread_mutex_unlock(&end->link->mutex);
        return -EPIPE;
    }
    total = rks_ring_fit(&other->in, total);
    for (size_t i = 0; moved < total; i++) {
        size_t size = parts[i].iov_len < total - moved ? parts[i].iov_len : total - moved;
        rks_ring_put(&other->in, parts[i].iov_base, size);
        moved += size;
    }
    end->wants_room = other->in.size == other->in.room;
    if (moved > 0) {
        uint64_t delay =
            rules->delay_ns == NULL ? 0 : rules->delay_ns(rules->user, end->rank, end->peer, moved);
        rks_ring_delay(&other->in, moved,
                       delay == 0 || delay == RKS_NEVER ? delay : rks_now_ns() + delay);
        wake_end(other);
    }
    pthread_mutex_unlock(&end->link->mutex);
    return (ssize_t)moved;
}

ssize_t rks_memory_try_write(rks_stream *stream, const struct iovec *parts, size_t count)
{
    return move(rks_memory_end_of(stream), parts, count);
}

int rks_memory_write(rks_stream *stream, const struct iovec *parts, size_t count)
{
    memory_end *end = rks_memory_end_of(stream);
    end->parts = rks_alloc_raw(count, sizeof(*parts), NULL);
    if (end->parts == NULL)
        return ENOMEM;
    memcpy(end->parts, parts, count * sizeof(*parts));
    end->part = 0;
    end->part_count = count;
    end->unsent = 0;
    for (size_t i = 0; i < count; i++)
        end->unsent += parts[i].iov_len;
    rks_memory_look_at(end);
    return 0;
}

size_t rks_memory_unsent(const rks_stream *stream)
{
    const memory_end *end = (const memory_end *)(const void *)stream;
    return end->parts == NULL ? 0 : end->unsent;
}

void rks_memory_name(const rks_stream *stream, char *text, size_t size)
{
    (void)stream;
    snprintf(text, size, "this process");
}

uint64_t rks_memory_origin(const rks_stream *stream)
{
    return ((const memory_end *)(const void *)stream)->peer;
}

void rks_memory_finish(rks_stream *stream)
{
    memory_end *end = rks_memory_end_of(stream);
    memory_end *other = rks_memory_other_end(end);
    pthread_mutex_lock(&end->link->mutex);
    other->in.ended = true;
    wake_end(other);
    pthread_mutex_unlock(&end->link->mutex);
}

void rks_memory_close(rks_stream *stream)
{
    memory_end *end = rks_memory_end_of(stream);
    if (end->closing)
        return;
    end->closing = true;
    rks_memory_hang_up(end);
    rks_memory_look_at(end);
}

/* Continues the write in progress. */
static void go_on_writing(memory_end *end)
{
    ssize_t moved = move(end, end->parts + end->part, end->part_count - end->part);
    if (moved >= 0) {
        end->unsent -= (size_t)moved;
        for (size_t left = (size_t)moved; left > 0;) {
            struct iovec *part = &end->parts[end->part];
            size_t size = part->iov_len < left ? part->iov_len : left;
            part->iov_base = (uint8_t *)part->iov_base + size;
            part->iov_len -= size;
            left -= size;
            end->part += part->iov_len == 0;
        }
    }
    if (moved >= 0 && end->unsent > 0) {
        pthread_mutex_lock(&end->link->mutex);
        bool full = end->wants_room;
        pthread_mutex_unlock(&end->link->mutex);
        if (!full)
            rks_memory_look_at(end);
        return;
    }
    rks_free(end->parts);
    end->parts = NULL;
    end->events->written(end->user, moved < 0 ? (int)-moved : 0);
}

/* State of an end's incoming bytes. */
typedef struct news {
    size_t size;     /* bytes that have arrived */
    uint64_t due_ns; /* when the next ones arrive */
    bool ended;      /* none will follow */
    int error;
} news;

static news hear(memory_end *end)
{
    pthread_mutex_lock(&end->link->mutex);
    news heard = {.due_ns = rks_ring_arrive(&end->in)};
    heard.size = end->in.arrived;
    heard.ended = end->in.ended && end->in.size == 0;
    heard.error = end->in.error;
    pthread_mutex_unlock(&end->link->mutex);
    return heard;
}

/* Copies bytes to the memory that the engine's `room` returns. Returns their number. */
static size_t take(memory_end *end, size_t most)
{
    const rks_memory_rules *rules = &end->link->transport->rules;
    size_t size = 0;
    uint8_t *room = end->events->room(end->user, &size);
    size = size < most ? size : most;
    if (rules->some != NULL)
        size = rules->some(rules->user, end->peer, end->rank, size, false);
    memory_end *other = rks_memory_other_end(end);
    pthread_mutex_lock(&end->link->mutex);
    size = size < end->in.arrived ? size : end->in.arrived; /* a reset may have come in between */
    rks_ring_take(&end->in, room, size);
    if (other->wants_room) {
        other->wants_room = false;
        wake_end(other);
    }
    pthread_mutex_unlock(&end->link->mutex);
    return size;
}

static void look_later(memory_end *end)
{
    if (end->later)
        return;
    end->later = true;
    end->next_later = end->net->later;
    end->net->later = end;
}

static void read_on(memory_end *end)
{
    for (int turn = 0; turn < READS_AT_ONCE; turn++) {
        if (!end->reading || end->closing || end->end_reported)
            return;
        news heard = hear(end);
        if (heard.size == 0 && heard.ended) {
            end->end_reported = true;
            end->events->ended(end->user, heard.error);
            return;
        }
        if (heard.size == 0) {
            if (heard.due_ns != RKS_NEVER)
                look_later(end);
            return;
        }
        size_t size = take(end, heard.size);
        if (size > 0)
            end->events->received(end->user, size);
    }
    rks_memory_look_at(end);
}

/* Ends an end: calls `closed` and releases it. */
static void end_over(memory_end *end)
{
    memory_net *net = end->net;
    for (memory_end **at = &net->later; *at != NULL; at = &(*at)->next_later)
        if (*at == end) {
            *at = end->next_later;
            break;
        }
    rks_free(end->parts);
    net->streams--;
    end->events->closed(end->user);
    rks_memory_release(end);
}

void rks_memory_look(memory_end *end)
{
    if (end->closing) {
        end_over(end);
        return;
    }
    if (end->connecting) {
        if (rks_now_ns() < end->connect_due_ns) {
            if (end->connect_due_ns != RKS_NEVER)
                look_later(end);
            return;
        }
        end->connecting = false;
        end->events->connected(end->user, end->connect_error);
    }
    if (!end->closing && end->parts != NULL)
        go_on_writing(end);
    read_on(end);
}
