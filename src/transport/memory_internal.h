/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_internal.h: the inside of the transport in memory.
 *
 *     transport ── nets            one for each engine: its loop waits at a condition
 *               └─ links           a connection: two ends, each with the ring of what comes to it
 *
 * A write copies into the other end's ring and puts that end on its net's list of ends to look at.
 * A link is freed when both of its ends are closed.
 *
 * The order of locks: transport, link, net. No callback runs under one of them. */
#ifndef RKS_TRANSPORT_MEMORY_INTERNAL_H
#define RKS_TRANSPORT_MEMORY_INTERNAL_H

#include <pthread.h>

#include "transport/memory.h"
#include "transport/net.h"

enum { RKS_RING_SEGMENTS = 16 }; /* writes on their way that have times of their own */

typedef struct memory_net memory_net;
typedef struct memory_link memory_link;
typedef struct memory_transport memory_transport;

/* Bytes that arrive together. */
typedef struct segment {
    size_t size;
    uint64_t due_ns;
} segment;

typedef struct ring {
    uint8_t *bytes;
    size_t room, start, size;
    size_t arrived; /* of `size`: their time has come */
    segment segments[RKS_RING_SEGMENTS];
    uint32_t first, count;
    uint64_t last_due_ns;
    bool ended; /* nothing is written any more */
    int error;  /* what the reader gets at the end */
} ring;

typedef struct memory_end {
    rks_stream stream; /* first */
    memory_link *link;
    const rks_stream_events *events;
    void *user;
    uint32_t rank, peer;

    /* guarded by the link's mutex */
    memory_net *net; /* NULL: it waits to be accepted */
    ring in;
    bool closed;
    bool wants_room; /* in the other end's ring */

    /* the loop's thread only */
    bool connecting;
    int connect_error;
    uint64_t connect_due_ns;
    bool reading;
    bool told_end;
    bool closing;
    struct iovec *parts; /* of the write under way, else NULL */
    size_t part, part_count, unsent;
    bool later; /* is in net->later */
    struct memory_end *next_later;

    /* guarded by the net's mutex */
    bool queued;
    struct memory_end *next;
} memory_end;

struct memory_link {
    memory_transport *transport;
    memory_link *next; /* guarded by the transport's mutex */
    memory_link **link;
    pthread_mutex_t mutex;
    uint32_t open_ends; /* guarded by mutex */
    memory_end ends[2]; /* who connected, who accepts */
};

struct memory_net {
    rks_net net; /* first */
    memory_transport *transport;
    memory_net *next; /* guarded by the transport's mutex */
    uint64_t id;
    uint32_t rank;
    bool killed; /* guarded by the transport's mutex */
    const rks_net_events *events;
    void *user;

    /* the loop's thread only */
    uint64_t alarm_ns, nudge_ns; /* RKS_NEVER: off */
    memory_end *later;           /* ends whose next bytes have not arrived yet */
    uint32_t streams;
    bool stopped;

    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool woken;                          /* guarded by mutex, as all below */
    bool listening, news;                /* news: somebody has come since `incoming` */
    memory_end *backlog, **backlog_last; /* ends that wait to be accepted */
    memory_end *queued, **queued_last;   /* ends to look at */
};

struct memory_transport {
    rks_transport transport; /* first */
    rks_memory_rules rules;
    pthread_mutex_t mutex;
    memory_net *nets;   /* guarded by mutex */
    memory_link *links; /* guarded by mutex */
    uint64_t last_id;   /* guarded by mutex */
};

/* ---- memory.c -------------------------------------------------------------------------------- */

extern const rks_net_ops rks_memory_ops;

static inline memory_net *rks_memory_net_of(rks_net *net)
{
    return (memory_net *)(void *)net;
}

static inline memory_end *rks_memory_end_of(rks_stream *stream)
{
    return (memory_end *)(void *)stream;
}

static inline memory_end *rks_memory_other_end(memory_end *end)
{
    return &end->link->ends[end == &end->link->ends[0]];
}

/* ---- memory_ring.c --------------------------------------------------------------------------- */

/* False: no memory. */
bool rks_ring_init(ring *r);
/* Makes room for `more` bytes if it can be had; how many of them fit. */
size_t rks_ring_fit(ring *r, size_t more);
void rks_ring_put(ring *r, const uint8_t *bytes, size_t size);
/* `size` bytes that have arrived. */
void rks_ring_take(ring *r, uint8_t *bytes, size_t size);
/* The `size` bytes that were put last arrive at `due_ns` (0: now), and not before those in front of
 * them. */
void rks_ring_delay(ring *r, size_t size, uint64_t due_ns);
/* Counts what has arrived; when the next bytes do, RKS_NEVER if there are none. */
uint64_t rks_ring_arrive(ring *r);
/* All that is in it is lost, and the reader hears of `error`. */
void rks_ring_break(ring *r, int error);

/* ---- memory_stream.c ------------------------------------------------------------------------- */

/* The loop's thread: calls what there is to call for an end. */
void rks_memory_look(memory_end *end);
/* Puts an end on its net's list. The loop's thread, or the link's mutex is held. */
void rks_memory_look_at(memory_end *end);
memory_link *rks_memory_link_create(memory_transport *transport);
/* The link's mutex is held. What is on its way is lost. */
void rks_memory_link_reset(memory_link *link);
/* The other end hears that this one is gone. */
void rks_memory_hang_up(memory_end *end);
/* An end has had its last callback, or never had one. */
void rks_memory_release(memory_end *end);

void rks_memory_tune(rks_stream *stream, uint32_t silence_ms);
int rks_memory_read(rks_stream *stream, bool on);
ssize_t rks_memory_try_write(rks_stream *stream, const struct iovec *parts, size_t count);
int rks_memory_write(rks_stream *stream, const struct iovec *parts, size_t count);
size_t rks_memory_unsent(const rks_stream *stream);
void rks_memory_name(const rks_stream *stream, char *text, size_t size);
uint64_t rks_memory_origin(const rks_stream *stream);
void rks_memory_finish(rks_stream *stream);
void rks_memory_close(rks_stream *stream);

#endif
