/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.h: the event loop of an engine: streams, one listener, one alarm, one wake-up. The only
 * file behind it that includes uv.h is loop.c.
 *
 * All calls belong to the loop's thread, except rks_loop_wake (any thread) and whatever comes
 * before rks_loop_run. Errors are errno values. No call raises SIGPIPE where the loop's thread
 * has it blocked.
 */
#ifndef RKS_TRANSPORT_LOOP_H
#define RKS_TRANSPORT_LOOP_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "rankstore/base.h"

typedef struct rks_loop rks_loop;
typedef struct rks_stream rks_stream;

typedef struct rks_loop_ops {
    void (*resting)(void *user); /* each time before the loop may wait */
    void (*alarm)(void *user);
    void (*nudge)(void *user);
    void (*incoming)(void *user); /* a connection waits for rks_loop_accept */
} rks_loop_ops;

typedef struct rks_stream_ops {
    void (*connected)(void *user, int error);  /* of rks_stream_connect; then it reads */
    void *(*room)(void *user, size_t *size);   /* where the next bytes go; never 0 of them */
    void (*received)(void *user, size_t size); /* into what `room` gave */
    void (*ended)(void *user, int error);      /* 0: the peer sends no more */
    void (*written)(void *user, int error);    /* of rks_stream_write, never inside it */
    void (*closed)(void *user);                /* of rks_stream_close: the last call */
} rks_stream_ops;

rks_status rks_loop_create(const rks_loop_ops *ops, void *user, rks_loop **loop, rks_error *err);
/* Returns after rks_loop_stop, when all streams are closed. */
void rks_loop_run(rks_loop *loop);
/* Ends listener, alarm and wake-up; streams are closed by their owners. Nothing may be woken
 * afterwards. */
void rks_loop_stop(rks_loop *loop);
/* After rks_loop_run has returned, or when it was never called. NULL is accepted. */
void rks_loop_free(rks_loop *loop);

/* Ends a wait that is going on or about to begin; `resting` follows. */
void rks_loop_wake(rks_loop *loop);
/* A second alarm, for once. */
void rks_loop_nudge(rks_loop *loop, uint64_t delay_ms);
/* One alarm, `delay_ms` from now; a new one replaces the old one. */
void rks_loop_alarm(rks_loop *loop, uint64_t delay_ms);

/* Takes `fd`, a listening TCP socket. */
rks_status rks_loop_listen(rks_loop *loop, int fd, rks_error *err);
void rks_loop_unlisten(rks_loop *loop);

bool rks_loop_waits(const rks_loop *loop); /* a connection waits */
/* Takes the connection that waits; EAGAIN if there is none, ENOMEM leaves it waiting. */
int rks_loop_accept(rks_loop *loop, const rks_stream_ops *ops, void *user, rks_stream **stream);
/* Starts connecting over TCP; 0 or an errno value, and then nothing is called. */
int rks_stream_connect(rks_loop *loop, const struct sockaddr *address, const rks_stream_ops *ops,
                       void *user, rks_stream **stream);
/* Takes `fd`, one end of a socket pair, on success. */
int rks_stream_adopt(rks_loop *loop, int fd, const rks_stream_ops *ops, void *user,
                     rks_stream **stream);

/* Sends small frames at once, finds dead hosts, and gives up after `silence_ms` unacknowledged. */
void rks_stream_tune(rks_stream *stream, uint32_t silence_ms);
int rks_stream_read(rks_stream *stream, bool on);
/* Writes what the kernel takes at once: the number of bytes, also 0, or a negative errno value. Not
 * while a write is under way. */
ssize_t rks_stream_try_write(rks_stream *stream, const struct iovec *parts, size_t count);
/* One write at a time: the bytes stay valid until `written`, the array need not. */
int rks_stream_write(rks_stream *stream, const struct iovec *parts, size_t count);
/* "10.0.0.1:4000": the other end, for messages. */
void rks_stream_name(const rks_stream *stream, char *text, size_t size);
/* Bytes of the write under way that the kernel has not taken yet. */
size_t rks_stream_unsent(const rks_stream *stream);
/* No more is sent; the peer reads to an end. */
void rks_stream_finish(rks_stream *stream);
void rks_stream_close(rks_stream *stream);

/* libuv's version. Static. */
const char *rks_loop_library(void);

#endif
