/* SPDX-License-Identifier: Apache-2.0
 *
 * net.h: the seam under the engine: bytes between ranks, and time. Each engine has one rks_net: an
 * event loop with a listener, streams, an alarm and a wake-up. Frames, the handshake, admission,
 * pings and retries live above it and do not know what is below.
 *
 *   engine ──► rks_net, rks_stream ──► tcp.c     libuv; between processes and hosts
 *                                      memory.c  pipes in memory; ranks that are threads
 *
 * An implementation fills one rks_net_ops and begins its own structs with rks_transport, rks_net
 * and rks_stream. All calls belong to the loop's thread, except rks_net_wake (any thread) and
 * whatever comes before rks_net_run. Errors are errno values.
 */
#ifndef RKS_TRANSPORT_NET_H
#define RKS_TRANSPORT_NET_H

#include <sys/uio.h>

#include "transport/engine.h"

typedef struct rks_net rks_net;
typedef struct rks_stream rks_stream;

/* What a net calls, on its loop's thread. */
typedef struct rks_net_events {
    void (*resting)(void *user); /* each time before the loop may wait */
    void (*alarm)(void *user);
    void (*nudge)(void *user);
    void (*incoming)(void *user); /* a connection waits for rks_net_accept */
} rks_net_events;

typedef struct rks_stream_events {
    void (*connected)(void *user, int error);  /* of rks_net_connect; then it reads */
    void *(*room)(void *user, size_t *size);   /* where the next bytes go; never 0 of them */
    void (*received)(void *user, size_t size); /* into what `room` gave */
    void (*ended)(void *user, int error);      /* 0: the peer sends no more */
    void (*written)(void *user, int error);    /* of rks_stream_write, never inside it */
    void (*closed)(void *user);                /* of rks_stream_close: the last call */
} rks_stream_events;

typedef struct rks_net_options {
    uint32_t rank, size;
    uint32_t newcomers; /* how many unproven connections are wanted */
    const char *listen; /* see rks_engine_options */
} rks_net_options;

/* The functions below say what each does. */
typedef struct rks_net_ops {
    rks_status (*open)(const rks_transport *transport, const rks_net_options *options,
                       const rks_net_events *events, void *user, rks_address *address,
                       rks_net **net, rks_error *err);
    void (*run)(rks_net *net);
    void (*stop)(rks_net *net);
    void (*free)(rks_net *net);
    void (*wake)(rks_net *net);
    void (*alarm)(rks_net *net, uint64_t delay_ms);
    void (*nudge)(rks_net *net, uint64_t delay_ms);
    uint64_t (*now_ms)(const rks_net *net);
    rks_status (*listen)(rks_net *net, rks_error *err);
    void (*unlisten)(rks_net *net);
    bool (*waits)(const rks_net *net);
    int (*accept)(rks_net *net, const rks_stream_events *events, void *user, rks_stream **stream);
    int (*connect)(rks_net *net, const rks_address *address, const rks_stream_events *events,
                   void *user, rks_stream **stream);

    void (*tune)(rks_stream *stream, uint32_t silence_ms);
    int (*read)(rks_stream *stream, bool on);
    ssize_t (*try_write)(rks_stream *stream, const struct iovec *parts, size_t count);
    int (*write)(rks_stream *stream, const struct iovec *parts, size_t count);
    size_t (*unsent)(const rks_stream *stream);
    void (*name)(const rks_stream *stream, char *text, size_t size);
    uint64_t (*origin)(const rks_stream *stream);
    void (*finish)(rks_stream *stream);
    void (*close)(rks_stream *stream);
} rks_net_ops;

struct rks_transport {
    const rks_net_ops *ops;
};

struct rks_net {
    const rks_net_ops *ops;
    uint32_t newcomers; /* set by `open`: how many unproven connections it has room for */
};

struct rks_stream {
    const rks_net_ops *ops;
};

/* ---- a net ----------------------------------------------------------------------------------- */

/* Gives the engine its net, and where others connect to: fills address's kind, port, scope and ip.
 * Peers may connect from now on; they wait until rks_net_listen. Fails if this process may not hold
 * as many connections as the job can need. */
static inline rks_status rks_net_open(const rks_transport *transport,
                                      const rks_net_options *options, const rks_net_events *events,
                                      void *user, rks_address *address, rks_net **net,
                                      rks_error *err)
{
    return transport->ops->open(transport, options, events, user, address, net, err);
}

/* Returns after rks_net_stop, when all streams are closed. */
static inline void rks_net_run(rks_net *net)
{
    net->ops->run(net);
}

/* Ends listener, alarm and wake-up; streams are closed by their owners. Nothing may be woken
 * afterwards. */
static inline void rks_net_stop(rks_net *net)
{
    net->ops->stop(net);
}

/* After rks_net_run has returned, or when it was never called. NULL is accepted. */
static inline void rks_net_free(rks_net *net)
{
    if (net != NULL)
        net->ops->free(net);
}

/* Ends a wait that is going on or about to begin; `resting` follows. */
static inline void rks_net_wake(rks_net *net)
{
    net->ops->wake(net);
}

/* One alarm, `delay_ms` from now; a new one replaces the old one. */
static inline void rks_net_alarm(rks_net *net, uint64_t delay_ms)
{
    net->ops->alarm(net, delay_ms);
}

/* A second alarm, for once. */
static inline void rks_net_nudge(rks_net *net, uint64_t delay_ms)
{
    net->ops->nudge(net, delay_ms);
}

/* Any thread. */
static inline uint64_t rks_net_now_ms(const rks_net *net)
{
    return net->ops->now_ms(net);
}

/* `incoming` is called from now on. Once. */
static inline rks_status rks_net_listen(rks_net *net, rks_error *err)
{
    return net->ops->listen(net, err);
}

/* Refuses newcomers, also those that wait. */
static inline void rks_net_unlisten(rks_net *net)
{
    net->ops->unlisten(net);
}

/* A connection waits. */
static inline bool rks_net_waits(const rks_net *net)
{
    return net->ops->waits(net);
}

/* Takes the connection that waits; EAGAIN if there is none, ENOMEM leaves it waiting. */
static inline int rks_net_accept(rks_net *net, const rks_stream_events *events, void *user,
                                 rks_stream **stream)
{
    return net->ops->accept(net, events, user, stream);
}

/* Starts connecting; 0 or an errno value, and then nothing is called. */
static inline int rks_net_connect(rks_net *net, const rks_address *address,
                                  const rks_stream_events *events, void *user, rks_stream **stream)
{
    return net->ops->connect(net, address, events, user, stream);
}

/* ---- a stream -------------------------------------------------------------------------------- */

/* Sends small frames at once, and finds dead hosts on connections that carry nothing; nothing if
 * the transport has no such things. Who is silent is the engine's to say. */
static inline void rks_stream_tune(rks_stream *stream, uint32_t silence_ms)
{
    stream->ops->tune(stream, silence_ms);
}

static inline int rks_stream_read(rks_stream *stream, bool on)
{
    return stream->ops->read(stream, on);
}

/* Writes what is taken at once: the number of bytes, also 0, or a negative errno value. Not while a
 * write is under way. */
static inline ssize_t rks_stream_try_write(rks_stream *stream, const struct iovec *parts,
                                           size_t count)
{
    return stream->ops->try_write(stream, parts, count);
}

/* One write at a time: the bytes stay valid until `written`, the array need not. */
static inline int rks_stream_write(rks_stream *stream, const struct iovec *parts, size_t count)
{
    return stream->ops->write(stream, parts, count);
}

/* Bytes of the write under way that have not been taken yet. */
static inline size_t rks_stream_unsent(const rks_stream *stream)
{
    return stream->ops->unsent(stream);
}

/* "10.0.0.1:4000": the other end, for messages. */
static inline void rks_stream_name(const rks_stream *stream, char *text, size_t size)
{
    stream->ops->name(stream, text, size);
}

/* Where the other end is: the same for all connections of a host, else different, mostly. */
static inline uint64_t rks_stream_origin(const rks_stream *stream)
{
    return stream->ops->origin(stream);
}

/* No more is sent; the peer reads to an end. */
static inline void rks_stream_finish(rks_stream *stream)
{
    stream->ops->finish(stream);
}

static inline void rks_stream_close(rks_stream *stream)
{
    stream->ops->close(stream);
}

#endif
