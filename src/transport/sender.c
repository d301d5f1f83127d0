/* SPDX-License-Identifier: Apache-2.0
 *
 * sender.c: sends frames. One write at a time, gathered from as many frames as fit a slice. The
 * bytes of a frame stay together. */
#include "transport/connection.h"

#include <errno.h>
#include <string.h>

#include "base/cache_line.h"
#include "base/error.h"
#include "transport/peer.h"

enum {
    SLICE_SIZE = 1024 * 1024,
    SLICES_AT_ONCE = 4,             /* then other connections get their turn */
    RECORDS_AT_ONCE = 32,           /* the same for records */
    SMALL_PART = 4096,              /* larger parts are fast enough without it */
    QUEUED_MAX = 2 * RKS_ASKED_MAX, /* bytes of replies and requests of one peer; then others
                                     * wait */
};

/* Returns true if bytes are sent in records. While this side's proof is being sent, they are
 * not. */
static bool has_record_layer(const rks_connection *connection)
{
    return connection->layer != NULL && !connection->says_proof.busy;
}

/* Prefetches a small part. Small parts are scattered in memory, and are hashed or copied one after
 * the other. Fetching them together takes less time. */
static void prefetch_part(const struct iovec *part)
{
    if (part->iov_len > SMALL_PART)
        return;
    for (size_t at = 0; at < part->iov_len; at += RKS_CACHE_LINE)
        rks_prefetch((const uint8_t *)part->iov_base + at);
}

/* Gathers the next slice: as many parts as fit, from the first frame's position on. */
static size_t gather(const rks_connection *connection, struct iovec parts[RKS_SLICE_PARTS],
                     size_t *bytes)
{
    size_t most = has_record_layer(connection) ? RKS_RECORD_LAYER_BYTES : SLICE_SIZE;
    size_t count = 0;
    size_t part = connection->part;
    size_t sent = connection->part_sent;
    *bytes = 0;
    for (const rks_frame *f = connection->queue.first; f != NULL; f = f->next) {
        for (; part < f->count; part++, sent = 0) {
            size_t size = f->parts[part].iov_len - sent;
            if (size == 0)
                continue;
            if (count == RKS_SLICE_PARTS || *bytes == most)
                return count;
            if (size > most - *bytes)
                size = most - *bytes;
            parts[count] = (struct iovec){(uint8_t *)f->parts[part].iov_base + sent, size};
            prefetch_part(&parts[count++]);
            *bytes += size;
            if (size < f->parts[part].iov_len - sent)
                return count;
        }
        part = 0;
        if (f == &connection->says_proof.frame)
            return count; /* later bytes may go in records */
    }
    return count;
}

void rks_connection_finish(rks_connection *connection)
{
    if (!connection->ending || connection->finished || connection->queue.first != NULL ||
        connection->state == RKS_CONNECTION_OVER)
        return;
    connection->finished = true;
    if (connection->bye) {
        rks_error over = {.status = RKS_OK, .rank = -1};
        rks_connection_lose(connection, &over);
        return;
    }
    rks_stream_finish(connection->stream);
}

/* Counts `bytes` more as sent, and ends the frames that are complete. */
static void advance(rks_connection *connection, size_t bytes)
{
    rks_engine *engine = connection->engine;
    rks_frame *frame;
    atomic_fetch_add_explicit(&engine->bytes_sent, bytes, memory_order_relaxed);
    while ((frame = connection->queue.first) != NULL) {
        while (connection->part < frame->count) {
            size_t left = frame->parts[connection->part].iov_len - connection->part_sent;
            if (bytes < left) {
                connection->part_sent += bytes;
                return;
            }
            bytes -= left;
            connection->part++;
            connection->part_sent = 0;
        }
        connection->part = 0;
        rks_frame_queue_take(&connection->queue);
        atomic_fetch_add_explicit(&engine->frames_sent, 1, memory_order_relaxed);
        frame->sent(frame);
    }
}

/* Handles a write that failed. The peer's last bytes, perhaps its reason, are still to be read, and
 * then its end. */
static void sending_failed(rks_connection *connection, int error)
{
    if (error == EPIPE || error == ECONNRESET) {
        connection->broken = true;
        if (connection->paused)
            rks_stream_read(connection->stream, true);
        return;
    }
    rks_error why;
    rks_fail_errno(&why, error, "sending failed");
    rks_connection_lose(connection, &why);
}

/* Sends the gathered bytes as records. Returns false if no more can be sent now. */
static bool pump_records(rks_connection *connection, const struct iovec *parts, size_t count,
                         size_t bytes, bool at_once)
{
    rks_record_layer *layer = connection->layer;
    rks_record_layer_write(layer, parts, bytes);
    const struct iovec *rest = rks_record_layer_unsent(layer, &count);
    if (at_once) {
        ssize_t sent = rks_stream_try_write(connection->stream, rest, count);
        if (sent < 0) {
            sending_failed(connection, (int)-sent);
            return false;
        }
        if (rks_record_layer_sent(layer, (size_t)sent)) {
            advance(connection, bytes);
            return true;
        }
        rest = rks_record_layer_unsent(layer, &count);
    }
    connection->slice = bytes;
    int error = rks_stream_write(connection->stream, rest, count);
    if (error != 0)
        sending_failed(connection, error);
    return false;
}

/* Sends what the kernel accepts at once, and starts a write for the rest. */
static void pump(rks_connection *connection)
{
    struct iovec parts[RKS_SLICE_PARTS];
    size_t bytes;
    for (int turn = 0; connection->slice == 0 && !connection->broken; turn++) {
        if (connection->state != RKS_CONNECTION_OPEN && connection->state != RKS_CONNECTION_HELLO)
            return;
        size_t count = gather(connection, parts, &bytes);
        if (count == 0)
            return;
        if (has_record_layer(connection)) {
            if (!pump_records(connection, parts, count, bytes, turn < RECORDS_AT_ONCE))
                return;
            continue;
        }
        if (turn < SLICES_AT_ONCE) {
            ssize_t sent = rks_stream_try_write(connection->stream, parts, count);
            if (sent < 0) {
                sending_failed(connection, (int)-sent);
                return;
            }
            advance(connection, (size_t)sent);
            if ((size_t)sent == bytes)
                continue;
            count = gather(connection, parts, &bytes);
        }
        connection->slice = bytes;
        int error = rks_stream_write(connection->stream, parts, count);
        if (error != 0)
            sending_failed(connection, error);
    }
}

void rks_connection_written(rks_connection *connection, int error)
{
    size_t bytes = connection->slice;
    connection->slice = 0;
    if (connection->state == RKS_CONNECTION_OVER)
        return;
    if (error != 0) {
        sending_failed(connection, error);
        return;
    }
    advance(connection, bytes);
    rks_connection_unpause(connection);
    pump(connection);
    rks_connection_finish(connection);
}

void rks_engine_flush(rks_engine *engine)
{
    while (engine->full != NULL) {
        rks_connection *connection = engine->full;
        engine->full = connection->full_next;
        connection->to_flush = false;
        pump(connection);
        rks_connection_unpause(connection);
        rks_connection_finish(connection);
        rks_connection_unref(connection);
    }
}

void rks_connection_send(rks_connection *connection, rks_frame *frame)
{
    rks_engine *engine = connection->engine;
    if (connection->state == RKS_CONNECTION_OVER) {
        frame->sent(frame);
        return;
    }
    rks_frame_queue_add(&connection->queue, frame);
    if (connection->state != RKS_CONNECTION_OPEN) {
        if (connection->queue.first == frame)
            pump(connection);
    } else if (!connection->to_flush && connection->slice == 0) {
        connection->to_flush = true;
        connection->references++;
        connection->full_next = engine->full;
        engine->full = connection;
    }
}

void rks_connection_forget_frames(rks_connection *connection)
{
    rks_frame *frame;
    connection->references++; /* this loop's own: a frame's `sent` may drop the last other one */
    while ((frame = rks_frame_queue_take(&connection->queue)) != NULL)
        frame->sent(frame);
    connection->references--;
}

static void fixed_sent(rks_frame *frame)
{
    rks_fixed_frame *fixed = (rks_fixed_frame *)(void *)frame; /* the fixed frame's first member */
    fixed->busy = false;
}

void rks_connection_say_later(rks_connection *connection, rks_fixed_frame *fixed,
                              enum rks_frame_type type, uint64_t id, size_t size)
{
    if (fixed->busy)
        return; /* the previous one is not sent yet */
    fixed->busy = true;
    fixed->frame.sent = fixed_sent;
    rks_frame_set(&fixed->frame, type, id, 0, fixed->body, size);
    rks_connection_send(connection, &fixed->frame);
}

void rks_connection_say(rks_connection *connection, rks_fixed_frame *fixed,
                        enum rks_frame_type type, size_t size)
{
    rks_connection_say_later(connection, fixed, type, 0, size);
    if (connection->state == RKS_CONNECTION_OPEN)
        pump(connection); /* a sign of life does not wait for the end of this round */
}

void rks_connection_say_why(rks_connection *connection, const rks_error *why)
{
    uint8_t header[RKS_FRAME_HEADER];
    rks_frame_header error = {.size = sizeof(*why), .type = RKS_FRAME_ERROR};
    rks_frame_encode(&error, why, header);
    const struct iovec frame[] = {{header, sizeof(header)}, {(void *)(uintptr_t)why, sizeof(*why)}};
    const struct iovec *parts = frame;
    size_t count = 2;
    bool between_frames =
        connection->slice == 0 && connection->part == 0 && connection->part_sent == 0;
    if (connection->state != RKS_CONNECTION_OPEN || !between_frames || connection->broken ||
        connection->says_proof.busy)
        return;
    if (has_record_layer(connection)) {
        rks_record_layer_write(connection->layer, frame, sizeof(header) + sizeof(*why));
        parts = rks_record_layer_unsent(connection->layer, &count);
    }
    (void)rks_stream_try_write(connection->stream, parts, count);
}

void rks_connection_end(rks_connection *connection)
{
    if (connection->state != RKS_CONNECTION_OPEN || connection->ending)
        return;
    connection->ending = true;
    rks_connection_forget_parked(connection);
    if (connection->paused) {
        connection->paused = false; /* to notice its end */
        rks_stream_read(connection->stream, true);
    }
    rks_connection_say(connection, &connection->says_bye, RKS_FRAME_BYE, 0);
    rks_connection_finish(connection);
}

/* ---- too much ---------------------------------------------------------------------------------
 */

/* If too many replies to a peer are queued, or too many of its requests are being served, its next
 * requests wait. An engine sends a peer at most RKS_ASKED_MAX bytes of unanswered requests
 * (peer.c), so no more than that wait, and the peer is always read: two ranks never wait for each
 * other to read. If a peer breaks this rule, the engine stops reading from it until there is
 * room. */

static bool is_full(const rks_connection *connection, uint64_t most)
{
    const rks_peer *peer = &connection->engine->peers[connection->rank];
    return connection->at_pool + peer->old_at_pool >=
               RKS_POOL_SHARE * connection->engine->options.io_threads ||
           connection->replies + connection->serving + peer->old_serving -
                   connection->parked_bytes >
               most;
}

static bool may_pause(const rks_connection *connection)
{
    return connection->parked_bytes > RKS_ASKED_MAX;
}

static void park(rks_connection *connection, rks_request *request)
{
    request->next = NULL;
    if (connection->parked == NULL)
        connection->parked_last = &connection->parked;
    *connection->parked_last = request;
    connection->parked_last = &request->next;
    connection->parked_bytes += rks_request_room(request->size);
    if (connection->paused || connection->broken || !may_pause(connection))
        return;
    connection->paused = true;
    rks_stream_read(connection->stream, false);
    rks_engine_beat(connection->engine); /* sends pongs meanwhile, though no ping is read */
}

static rks_request *pop_parked(rks_connection *connection)
{
    rks_request *request = connection->parked;
    if (request == NULL)
        return NULL;
    connection->parked = request->next;
    connection->parked_bytes -= rks_request_room(request->size);
    return request;
}

void rks_connection_serve(rks_connection *connection, rks_request *request)
{
    if (connection->ending) { /* bye is on its way and answers it */
        rks_request_drop(request);
        return;
    }
    if (connection->parked != NULL ||
        is_full(connection, QUEUED_MAX + rks_request_room(request->size)))
        park(connection, request);
    else
        rks_pool_serve(connection->engine, request);
}

void rks_connection_unpause(rks_connection *connection)
{
    if (connection->parked == NULL || connection->state != RKS_CONNECTION_OPEN ||
        connection->ending)
        return;
    if (!is_full(connection, QUEUED_MAX / 2))
        while (connection->parked != NULL && !is_full(connection, QUEUED_MAX))
            rks_pool_serve(connection->engine, pop_parked(connection));
    if (!connection->paused || may_pause(connection))
        return;
    connection->paused = false;
    connection->heard_ms = rks_net_now_ms(connection->engine->net); /* its silence counts from now
                                                                     * on */
    rks_stream_read(connection->stream, true);
}

void rks_connection_forget_parked(rks_connection *connection)
{
    for (rks_request *request; (request = pop_parked(connection)) != NULL;)
        rks_request_drop(request);
}
