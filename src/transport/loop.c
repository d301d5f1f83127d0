/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.c: libuv behind loop.h. */
#include "transport/loop.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <uv.h>

#include "base/error.h"
#include "base/memory.h"

struct rks_loop {
    uv_loop_t uv;
    uv_async_t async;
    uv_timer_t timer;
    uv_timer_t nudge;
    uv_prepare_t prepare;
    uv_tcp_t listener;
    const rks_loop_ops *ops;
    void *user;
    bool listening; /* the listener's handle is open */
    bool waiting;   /* a connection waits for rks_loop_accept */
    bool ended;     /* async and timer are closing or closed */
};

struct rks_stream {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_connect_t connect;
    uv_write_t write;
    const rks_stream_ops *ops;
    void *user;
    bool is_tcp;
};

/* ---- loop ----------------------------------------------------------------------------- */

static void on_async(uv_async_t *async)
{
    (void)async; /* on_prepare follows */
}

static void on_prepare(uv_prepare_t *prepare)
{
    rks_loop *loop = prepare->data;
    loop->ops->resting(loop->user);
}

static void on_nudge(uv_timer_t *timer)
{
    rks_loop *loop = timer->data;
    loop->ops->nudge(loop->user);
}

static void on_timer(uv_timer_t *timer)
{
    rks_loop *loop = timer->data;
    loop->ops->alarm(loop->user);
}

rks_status rks_loop_create(const rks_loop_ops *ops, void *user, rks_loop **loop, rks_error *err)
{
    rks_loop *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->ops = ops;
    made->user = user;
    int error = uv_loop_init(&made->uv);
    if (error != 0) {
        rks_free(made);
        return rks_fail_errno(err, -error, "event loop");
    }
    error = uv_async_init(&made->uv, &made->async, on_async);
    if (error != 0) {
        uv_loop_close(&made->uv);
        rks_free(made);
        return rks_fail_errno(err, -error, "event loop's wake-up");
    }
    /* None of these can fail. */
    uv_timer_init(&made->uv, &made->timer);
    uv_timer_init(&made->uv, &made->nudge);
    uv_prepare_init(&made->uv, &made->prepare);
    made->nudge.data = made;
    made->prepare.data = made;
    made->async.data = made;
    made->timer.data = made;
    *loop = made;
    return RKS_OK;
}

void rks_loop_run(rks_loop *loop)
{
    uv_prepare_start(&loop->prepare, on_prepare);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void rks_loop_unlisten(rks_loop *loop)
{
    if (!loop->listening)
        return;
    uv_close((uv_handle_t *)&loop->listener, NULL);
    loop->listening = false;
    loop->waiting = false;
}

void rks_loop_stop(rks_loop *loop)
{
    if (loop->ended)
        return;
    loop->ended = true;
    rks_loop_unlisten(loop);
    uv_close((uv_handle_t *)&loop->async, NULL);
    uv_close((uv_handle_t *)&loop->timer, NULL);
    uv_close((uv_handle_t *)&loop->nudge, NULL);
    uv_close((uv_handle_t *)&loop->prepare, NULL);
}

void rks_loop_free(rks_loop *loop)
{
    if (loop == NULL)
        return;
    rks_loop_stop(loop);
    uv_run(&loop->uv, UV_RUN_DEFAULT); /* the handles' last callbacks */
    uv_loop_close(&loop->uv);
    rks_free(loop);
}

void rks_loop_wake(rks_loop *loop)
{
    uv_async_send(&loop->async);
}

void rks_loop_alarm(rks_loop *loop, uint64_t delay_ms)
{
    if (loop->ended)
        return;
    uv_update_time(&loop->uv);
    uv_timer_start(&loop->timer, on_timer, delay_ms, 0);
}

void rks_loop_nudge(rks_loop *loop, uint64_t delay_ms)
{
    if (loop->ended)
        return;
    uv_update_time(&loop->uv);
    uv_timer_start(&loop->nudge, on_nudge, delay_ms, 0);
}

static void on_connection(uv_stream_t *listener, int status)
{
    rks_loop *loop = listener->data;
    if (status != 0)
        return; /* refused for want of descriptors: libuv has closed it */
    loop->waiting = true;
    loop->ops->incoming(loop->user);
}

rks_status rks_loop_listen(rks_loop *loop, int fd, rks_error *err)
{
    uv_tcp_init(&loop->uv, &loop->listener);
    loop->listener.data = loop;
    loop->listening = true;
    int error = uv_tcp_open(&loop->listener, fd);
    if (error == 0)
        error = uv_listen((uv_stream_t *)&loop->listener, SOMAXCONN, on_connection);
    if (error == 0)
        return RKS_OK;
    rks_loop_unlisten(loop);
    return rks_fail_errno(err, -error, "listen");
}

/* ---- streams --------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
    rks_stream *stream = handle->data;
    stream->ops->closed(stream->user);
    rks_free(stream);
}

static void on_closed_early(uv_handle_t *handle)
{
    rks_free(handle->data);
}

static rks_stream *stream_new(rks_loop *loop, bool is_tcp, const rks_stream_ops *ops, void *user)
{
    rks_stream *stream = rks_alloc(1, sizeof(*stream), NULL);
    if (stream == NULL)
        return NULL;
    stream->ops = ops;
    stream->user = user;
    stream->is_tcp = is_tcp;
    if (is_tcp)
        uv_tcp_init(&loop->uv, &stream->uv.tcp);
    else
        uv_pipe_init(&loop->uv, &stream->uv.pipe, 0);
    stream->uv.handle.data = stream;
    return stream;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    rks_stream *stream = handle->data;
    size_t size = 0;
    buffer->base = stream->ops->room(stream->user, &size);
    buffer->len = size;
}

static void on_read(uv_stream_t *handle, ssize_t size, const uv_buf_t *buffer)
{
    (void)buffer;
    rks_stream *stream = handle->data;
    if (size > 0)
        stream->ops->received(stream->user, (size_t)size);
    else if (size < 0)
        stream->ops->ended(stream->user, size == UV_EOF ? 0 : (int)-size);
}

static void on_connect(uv_connect_t *connect, int status)
{
    rks_stream *stream = connect->data;
    if (status != UV_ECANCELED)
        stream->ops->connected(stream->user, -status);
}

static void on_write(uv_write_t *write, int status)
{
    rks_stream *stream = write->data;
    if (status != UV_ECANCELED)
        stream->ops->written(stream->user, -status);
}

bool rks_loop_waits(const rks_loop *loop)
{
    return loop->waiting;
}

int rks_loop_accept(rks_loop *loop, const rks_stream_ops *ops, void *user, rks_stream **stream)
{
    if (!loop->waiting)
        return EAGAIN;
    rks_stream *made = stream_new(loop, true, ops, user);
    if (made == NULL)
        return ENOMEM;
    loop->waiting = false;
    int error = uv_accept((uv_stream_t *)&loop->listener, &made->uv.stream);
    if (error != 0) {
        uv_close(&made->uv.handle, on_closed_early);
        return -error;
    }
    *stream = made;
    return 0;
}

int rks_stream_connect(rks_loop *loop, const struct sockaddr *address, const rks_stream_ops *ops,
                       void *user, rks_stream **stream)
{
    rks_stream *made = stream_new(loop, true, ops, user);
    if (made == NULL)
        return ENOMEM;
    made->connect.data = made;
    int error = uv_tcp_connect(&made->connect, &made->uv.tcp, address, on_connect);
    if (error != 0) {
        uv_close(&made->uv.handle, on_closed_early);
        return -error;
    }
    *stream = made;
    return 0;
}

int rks_stream_adopt(rks_loop *loop, int fd, const rks_stream_ops *ops, void *user,
                     rks_stream **stream)
{
    rks_stream *made = stream_new(loop, false, ops, user);
    if (made == NULL)
        return ENOMEM;
    int error = uv_pipe_open(&made->uv.pipe, fd);
    if (error != 0) {
        uv_close(&made->uv.handle, on_closed_early);
        return -error;
    }
    *stream = made;
    return 0;
}

void rks_stream_tune(rks_stream *stream, uint32_t silence_ms)
{
    uv_os_fd_t fd;
    if (!stream->is_tcp || uv_fileno(&stream->uv.handle, &fd) != 0)
        return;
    /* All of it helps and none is needed: a refusal by the kernel is no error. */
    uv_tcp_nodelay(&stream->uv.tcp, 1);
    uv_tcp_keepalive(&stream->uv.tcp, 1, silence_ms < 1000 ? 1 : silence_ms / 1000);
    unsigned timeout_ms = silence_ms;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

int rks_stream_read(rks_stream *stream, bool on)
{
    if (!on) {
        uv_read_stop(&stream->uv.stream);
        return 0;
    }
    int error = uv_read_start(&stream->uv.stream, on_alloc, on_read);
    return error == UV_EALREADY ? 0 : -error;
}

_Static_assert(sizeof(uv_buf_t) == sizeof(struct iovec), "libuv's buffers are the kernel's");

ssize_t rks_stream_try_write(rks_stream *stream, const struct iovec *parts, size_t count)
{
    int sent =
        uv_try_write(&stream->uv.stream, (const uv_buf_t *)(const void *)parts, (unsigned)count);
    return sent == UV_EAGAIN ? 0 : sent;
}

int rks_stream_write(rks_stream *stream, const struct iovec *parts, size_t count)
{
    stream->write.data = stream;
    return -uv_write(&stream->write, &stream->uv.stream, (const uv_buf_t *)(const void *)parts,
                     (unsigned)count, on_write);
}

void rks_stream_name(const rks_stream *stream, char *text, size_t size)
{
    struct sockaddr_storage address = {0};
    int room = sizeof(address);
    char ip[64] = "";
    if (!stream->is_tcp ||
        uv_tcp_getpeername(&stream->uv.tcp, (struct sockaddr *)&address, &room) != 0)
        snprintf(text, size, "%s", stream->is_tcp ? "a peer that is gone" : "this process");
    else if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)(void *)&address;
        uv_ip6_name(ipv6, ip, sizeof(ip));
        snprintf(text, size, "[%.45s]:%u", ip, ntohs(ipv6->sin6_port));
    } else {
        const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)(void *)&address;
        uv_ip4_name(ipv4, ip, sizeof(ip));
        snprintf(text, size, "%.45s:%u", ip, ntohs(ipv4->sin_port));
    }
}

size_t rks_stream_unsent(const rks_stream *stream)
{
    return uv_stream_get_write_queue_size(&stream->uv.stream);
}

void rks_stream_finish(rks_stream *stream)
{
    uv_os_fd_t fd;
    if (uv_fileno(&stream->uv.handle, &fd) == 0)
        shutdown(fd, SHUT_WR);
}

void rks_stream_close(rks_stream *stream)
{
    if (!uv_is_closing(&stream->uv.handle))
        uv_close(&stream->uv.handle, on_closed);
}

const char *rks_loop_library(void)
{
    return uv_version_string();
}
