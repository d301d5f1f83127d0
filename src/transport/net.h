/* SPDX-License-Identifier: Apache-2.0
 *
 * net.h: the interface under the engine: bytes between ranks, and time. Each engine has one
 * rks_net: an event loop with a listener, streams, an alarm and a wake-up. The engine does frames,
 * the handshake, admission, pings and retries above this interface, for any implementation.
 *
 *   engine ──► rks_net, rks_stream ──► tcp.c     libuv; between processes and hosts
 *                                      memory_net.c  pipes in memory; ranks that are threads
 *
 * An implementation fills one rks_net_ops, and starts its own structs with rks_transport, rks_net
 * and rks_stream. Call all functions on the loop's thread, except rks_net_wake and rks_net_now_ms
 * (any thread) and calls before rks_net_run. Errors are errno values.
 */
#ifndef RKS_TRANSPORT_NET_H
#define RKS_TRANSPORT_NET_H

#include <sys/uio.h>

#include "transport/engine.h"

typedef struct rks_net rks_net;
typedef struct rks_stream rks_stream;

/* What a net calls, on its loop's thread. */
typedef struct rks_net_events {
    void (*resting)(void *user); /* called each time before the loop may wait */
    void (*alarm)(void *user);
    void (*nudge)(void *user);
    void (*incoming)(void *user); /* a connection waits for rks_net_accept */
} rks_net_events;

typedef struct rks_stream_events {
    void (*connected)(void *user, int error);  /* end of rks_net_connect; reading may start */
    void *(*room)(void *user, size_t *size);   /* returns memory for the next bytes; *size > 0 */
    void (*received)(void *user, size_t size); /* `size` bytes, in the memory from `room` */
    void (*ended)(void *user, int error);      /* 0: the peer sends no more */
    void (*written)(void *user, int error);    /* end of rks_stream_write; never inside it */
    void (*closed)(void *user);                /* end of rks_stream_close; the last call */
} rks_stream_events;

typedef struct rks_net_options {
    uint32_t rank, size;
    uint32_t newcomers; /* unproven connections that the engine wants to admit */
    const char *listen; /* see rks_engine_options */
} rks_net_options;

/* The functions below explain each. */
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
    uint32_t newcomers; /* set by `open`: unproven connections that it has room for */
};

struct rks_stream {
    const rks_net_ops *ops;
};

/* ---- a net ----------------------------------------------------------------------------------- */

/* Opens the engine's net, and fills `kind`, `port`, `scope` and `ip` of *address. Peers may connect
 * from now on, and wait until rks_net_listen. Fails with RKS_ERR_IO if the process may not open as
 * many connections as the job can need. */
static inline rks_status rks_net_open(const rks_transport *transport,
                                      const rks_net_options *options, const rks_net_events *events,
                                      void *user, rks_address *address, rks_net **net,
                                      rks_error *err)
{
    return transport->ops->open(transport, options, events, user, address, net, err);
}

/* Runs the loop. Returns after rks_net_stop, when all streams are closed. */
static inline void rks_net_run(rks_net *net)
{
    net->ops->run(net);
}

/* Closes listener, alarm and wake-up. Each stream's owner must close it. Nobody may call
 * rks_net_wake afterwards. */
static inline void rks_net_stop(rks_net *net)
{
    net->ops->stop(net);
}

/* Frees a net. Call it after rks_net_run has returned, or if it was never called. NULL is
 * accepted. */
static inline void rks_net_free(rks_net *net)
{
    if (net != NULL)
        net->ops->free(net);
}

/* Ends the loop's current or next wait; `resting` follows. Any thread. */
static inline void rks_net_wake(rks_net *net)
{
    net->ops->wake(net);
}

/* Sets the alarm to `delay_ms` from now, and replaces the previous one. */
static inline void rks_net_alarm(rks_net *net, uint64_t delay_ms)
{
    net->ops->alarm(net, delay_ms);
}

/* Sets a second, independent alarm, which calls `nudge`. */
static inline void rks_net_nudge(rks_net *net, uint64_t delay_ms)
{
    net->ops->nudge(net, delay_ms);
}

/* Returns the time in milliseconds. Any thread. */
static inline uint64_t rks_net_now_ms(const rks_net *net)
{
    return net->ops->now_ms(net);
}

/* Starts calls of `incoming`. Call it once. */
static inline rks_status rks_net_listen(rks_net *net, rks_error *err)
{
    return net->ops->listen(net, err);
}

/* Refuses new connections, also those that wait. */
static inline void rks_net_unlisten(rks_net *net)
{
    net->ops->unlisten(net);
}

/* Returns true if a connection waits for rks_net_accept. */
static inline bool rks_net_waits(const rks_net *net)
{
    return net->ops->waits(net);
}

/* Accepts the connection that waits. Returns EAGAIN if there is none. On ENOMEM it keeps
 * waiting. */
static inline int rks_net_accept(rks_net *net, const rks_stream_events *events, void *user,
                                 rks_stream **stream)
{
    return net->ops->accept(net, events, user, stream);
}

/* Starts to connect. Returns 0 or an errno value; on failure it calls no event. */
static inline int rks_net_connect(rks_net *net, const rks_address *address,
                                  const rks_stream_events *events, void *user, rks_stream **stream)
{
    return net->ops->connect(net, address, events, user, stream);
}

/* ---- a stream -------------------------------------------------------------------------------- */

/* Makes the transport send small frames at once, and detect dead hosts on idle connections; does
 * nothing if the transport has neither. The engine itself decides which peer is silent. */
static inline void rks_stream_tune(rks_stream *stream, uint32_t silence_ms)
{
    stream->ops->tune(stream, silence_ms);
}
/* Starts or stops reading. Returns 0 or an errno value. */

static inline int rks_stream_read(rks_stream *stream, bool on)
{
    return stream->ops->read(stream, on);
}

/* Writes what the transport accepts at once. Returns the number of bytes, which may be 0, or a
 * negative errno value. Do not call it while a write is in progress. */
static inline ssize_t rks_stream_try_write(rks_stream *stream, const struct iovec *parts,
                                           size_t count)
{
    return stream->ops->try_write(stream, parts, count);
}

/* Starts a write. Only one may be in progress. The bytes must stay valid until `written`; the array
 * need not. */
static inline int rks_stream_write(rks_stream *stream, const struct iovec *parts, size_t count)
{
    return stream->ops->write(stream, parts, count);
}

/* Returns how many bytes of the current write are not sent yet. */
static inline size_t rks_stream_unsent(const rks_stream *stream)
{
    return stream->ops->unsent(stream);
}

/* Prints the address of the other end for messages: "10.0.0.1:4000". */
static inline void rks_stream_name(const rks_stream *stream, char *text, size_t size)
{
    stream->ops->name(stream, text, size);
}

/* Returns a number for the host of the other end: the same for all its connections, and usually
 * different for other hosts. */
static inline uint64_t rks_stream_origin(const rks_stream *stream)
{
    return stream->ops->origin(stream);
}

/* Ends sending: the peer reads what was sent, then the end. */
static inline void rks_stream_finish(rks_stream *stream)
{
    stream->ops->finish(stream);
}
/* Closes the stream; `closed` follows. */

static inline void rks_stream_close(rks_stream *stream)
{
    stream->ops->close(stream);
}

#endif
