/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_pipes.h: the internals of the transport in memory.
 *
 *     transport ── nets            one for each engine: its loop waits at a condition variable
 *               └─ links           a connection: two ends; each has the ring of its incoming bytes
 *
 * A write copies into the other end's ring and puts that end on its net's list of ends to look at.
 * A link is freed when both of its ends are closed.
 *
 * The order of locks: transport, link, net. No callback runs under one of them. */
#ifndef RKS_TRANSPORT_MEMORY_PIPES_H
#define RKS_TRANSPORT_MEMORY_PIPES_H

#include <pthread.h>

#include "transport/memory_net.h"
#include "transport/net.h"

enum { RKS_RING_SEGMENTS = 16 }; /* most writes in transit that have arrival times of their own */

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
    size_t arrived; /* of `size`: bytes whose time has come */
    segment segments[RKS_RING_SEGMENTS];
    uint32_t first, count;
    uint64_t last_due_ns;
    bool ended; /* nothing more is written */
    int error;  /* errno value that the reader gets at the end */
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
    bool wants_room; /* waits for room in the other end's ring */

    /* used only by the loop's thread */
    bool connecting;
    int connect_error;
    uint64_t connect_due_ns;
    bool reading;
    bool end_reported;
    bool closing;
    struct iovec *parts; /* of the write in progress, else NULL */
    size_t part, part_count, unsent;
    bool later; /* in net->later */
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
    memory_end ends[2]; /* the end that connected, the end that accepts */
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

    /* used only by the loop's thread */
    uint64_t alarm_ns, nudge_ns; /* RKS_NEVER: off */
    memory_end *later;           /* ends whose next bytes have not arrived */
    uint32_t streams;
    bool stopped;

    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool woken;                          /* guarded by mutex, as all below */
    bool listening, news;                /* news: a connection has come since the last `incoming` */
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

/* ---- memory_net.c
 * -------------------------------------------------------------------------------- */

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

/* Returns false if memory is short. */
bool rks_ring_init(ring *r);
/* Makes room for `more` bytes if possible. Returns how many of them fit. */
size_t rks_ring_fit(ring *r, size_t more);
void rks_ring_put(ring *r, const uint8_t *bytes, size_t size);
/* Copies `size` bytes out, which must have arrived. */
void rks_ring_take(ring *r, uint8_t *bytes, size_t size);
/* Delays the last `size` bytes put: they arrive at `due_ns` (0: now), but not before earlier
 * bytes. */
void rks_ring_delay(ring *r, size_t size, uint64_t due_ns);
/* Counts the bytes that have arrived. Returns when the next ones arrive; RKS_NEVER if there are
 * none. */
uint64_t rks_ring_arrive(ring *r);
/* Drops all bytes in the ring. The reader gets `error`. */
void rks_ring_break(ring *r, int error);

/* ---- memory_stream.c ------------------------------------------------------------------------- */

/* Calls the events that are due for an end. The loop's thread. */
void rks_memory_look(memory_end *end);
/* Puts an end on its net's list. Call it on the loop's thread, or hold the link's mutex. */
void rks_memory_look_at(memory_end *end);
/* Creates a link; NULL if memory is short. */
memory_link *rks_memory_link_create(memory_transport *transport);
/* Breaks one end: bytes in transit to it are lost, and it reads `error`. The link's mutex must be
 * held. */
void rks_memory_end_break(memory_end *end, int error);
/* Reports to the other end that this one is closed. */
void rks_memory_hang_up(memory_end *end);
/* Releases an end after its last callback, or if it never had one. Frees the link with its second
 * end. */
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
