/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp.c: implements net.h with libuv: a loop, a listening socket, and connections, by TCP or by
 * Unix sockets. */
#include "transport/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/forbidden_call.h"
#include "base/memory.h"
#include "transport/listener.h"

typedef struct tcp_stream tcp_stream;

typedef union tcp_handle {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t local;
} tcp_handle;

typedef struct tcp_net {
    rks_net net;               /* first */
    rks_unix_transport *local; /* NULL: TCP */
    tcp_stream *connected;     /* Unix sockets that were connected at once, and have not said so */
    uv_loop_t uv;
    uv_async_t async;
    uv_timer_t timer;
    uv_timer_t nudge;
    uv_prepare_t prepare;
    tcp_handle listener;
    const rks_net_events *events;
    void *user;
    int listen_fd;  /* -1 after tcp_listen */
    bool listening; /* the listener's handle is open */
    bool waiting;   /* a connection waits for tcp_accept */
    bool ended;     /* async and timer are closing or closed */
} tcp_net;

struct tcp_stream {
    rks_stream stream; /* first */
    tcp_handle uv;
    tcp_net *net;
    tcp_stream *next; /* in net->connected */
    uv_connect_t connect;
    uv_write_t write;
    const rks_stream_events *events;
    void *user;
};

static const rks_net_ops TCP_OPS;

static tcp_net *net_of(rks_net *net)
{
    return (tcp_net *)(void *)net;
}

static tcp_stream *stream_of(rks_stream *stream)
{
    return (tcp_stream *)(void *)stream;
}

/* ---- loop ----------------------------------------------------------------------------- */

static void on_async(uv_async_t *async)
{
    tcp_net *net = async->data;
    while (net->connected != NULL) {
        tcp_stream *stream = net->connected;
        net->connected = stream->next;
        stream->events->connected(stream->user, 0);
    }
    /* on_prepare runs next */
}

static void on_prepare(uv_prepare_t *prepare)
{
    tcp_net *net = prepare->data;
    net->events->resting(net->user);
}

static void on_nudge(uv_timer_t *timer)
{
    tcp_net *net = timer->data;
    net->events->nudge(net->user);
}

static void on_timer(uv_timer_t *timer)
{
    tcp_net *net = timer->data;
    net->events->alarm(net->user);
}

static rks_status loop_init(tcp_net *made, rks_error *err)
{
    rks_hold_standard_files();
    int error = uv_loop_init(&made->uv);
    if (error != 0)
        return rks_fail_errno(err, -error, "event loop: %s",
                              rks_call_is_forbidden(-error)
                                  ? "allow epoll_create1 and eventfd2, which a container's filter "
                                    "forbids"
                                  : "libuv");
    error = uv_async_init(&made->uv, &made->async, on_async);
    if (error != 0) {
        uv_loop_close(&made->uv);
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
    return RKS_OK;
}

enum { NEWCOMERS_LOCAL = 256 }; /* of Unix sockets, whose other end is of the same user */

/* Opens what listens, and sets the address. */
static rks_status open_listener(tcp_net *net, const rks_net_options *options, rks_address *address,
                                rks_error *err)
{
    rks_unix_transport *local = net->local;
    if (local == NULL)
        return rks_listen(options->listen, &net->listen_fd, address, err);
    address->kind = RKS_ADDRESS_UNIX;
    memcpy(address->ip, local->name, sizeof(local->name));
    if (!local->listens)
        return RKS_OK;
    int error = rks_unix_listen(address, &net->listen_fd);
    if (error != 0)
        return rks_fail_errno(err, error, "Unix socket");
    atomic_store(&local->fd, net->listen_fd);
    return RKS_OK;
}

static rks_status tcp_open(const rks_transport *transport, const rks_net_options *options,
                           const rks_net_events *events, void *user, rks_address *address,
                           rks_net **net, rks_error *err)
{
    rks_unix_transport *local =
        transport == &rks_tcp ? NULL : (rks_unix_transport *)(uintptr_t)transport;
    uint32_t newcomers = NEWCOMERS_LOCAL;
    rks_status status = local != NULL ? RKS_OK : rks_fit_descriptors(options, &newcomers, err);
    if (status != RKS_OK)
        return status;
    tcp_net *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->net.ops = &TCP_OPS;
    made->net.newcomers = newcomers;
    made->events = events;
    made->user = user;
    made->listen_fd = -1;
    made->local = local;
    status = loop_init(made, err);
    if (status != RKS_OK) {
        rks_free(made);
        return status;
    }
    status = open_listener(made, options, address, err);
    if (status == RKS_OK)
        *net = &made->net;
    else
        rks_net_free(&made->net);
    return status;
}

static void tcp_run(rks_net *net)
{
    uv_prepare_start(&net_of(net)->prepare, on_prepare);
    uv_run(&net_of(net)->uv, UV_RUN_DEFAULT);
}

static void tcp_unlisten(rks_net *net)
{
    tcp_net *own = net_of(net);
    if (own->local != NULL)
        atomic_store(&own->local->fd, -1);
    if (own->listen_fd >= 0)
        close(own->listen_fd);
    own->listen_fd = -1;
    if (!own->listening)
        return;
    uv_close(&own->listener.handle, NULL);
    own->listening = false;
    own->waiting = false;
}

static void tcp_stop(rks_net *net)
{
    tcp_net *own = net_of(net);
    if (own->ended)
        return;
    own->ended = true;
    tcp_unlisten(net);
    uv_close((uv_handle_t *)&own->async, NULL);
    uv_close((uv_handle_t *)&own->timer, NULL);
    uv_close((uv_handle_t *)&own->nudge, NULL);
    uv_close((uv_handle_t *)&own->prepare, NULL);
}

static void tcp_free(rks_net *net)
{
    tcp_stop(net);
    uv_run(&net_of(net)->uv, UV_RUN_DEFAULT); /* runs the handles' last callbacks */
    uv_loop_close(&net_of(net)->uv);
    rks_free(net);
}

static void tcp_wake(rks_net *net)
{
    uv_async_send(&net_of(net)->async);
}

static void tcp_alarm(rks_net *net, uint64_t delay_ms)
{
    tcp_net *own = net_of(net);
    if (own->ended)
        return;
    uv_update_time(&own->uv);
    uv_timer_start(&own->timer, on_timer, delay_ms, 0);
}

static void tcp_nudge(rks_net *net, uint64_t delay_ms)
{
    tcp_net *own = net_of(net);
    if (own->ended)
        return;
    uv_update_time(&own->uv);
    uv_timer_start(&own->nudge, on_nudge, delay_ms, 0);
}

static uint64_t tcp_now_ms(const rks_net *net)
{
    (void)net;
    return rks_now_ms();
}

static void init_handle(tcp_net *net, tcp_handle *handle)
{
    if (net->local != NULL)
        uv_pipe_init(&net->uv, &handle->local, 0);
    else
        uv_tcp_init(&net->uv, &handle->tcp);
}

static int open_handle(tcp_net *net, tcp_handle *handle, int fd)
{
    return net->local != NULL ? uv_pipe_open(&handle->local, fd) : uv_tcp_open(&handle->tcp, fd);
}

static void on_connection(uv_stream_t *listener, int status)
{
    tcp_net *own = listener->data;
    if (status != 0)
        return; /* no descriptor was left: libuv has closed the connection */
    own->waiting = true;
    own->events->incoming(own->user);
}

static rks_status tcp_listen(rks_net *net, rks_error *err)
{
    tcp_net *own = net_of(net);
    if (own->listen_fd < 0)
        return RKS_OK; /* a Unix socket that others do not connect to */
    init_handle(own, &own->listener);
    own->listener.handle.data = own;
    own->listening = true;
    int error = open_handle(own, &own->listener, own->listen_fd);
    if (error == 0) {
        own->listen_fd = -1; /* the handle owns it now */
        error = uv_listen(&own->listener.stream, SOMAXCONN, on_connection);
    }
    if (error == 0)
        return RKS_OK;
    tcp_unlisten(net);
    return rks_fail_errno(err, -error, "listen");
}

/* ---- streams --------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
    tcp_stream *stream = handle->data;
    stream->events->closed(stream->user);
    rks_free(stream);
}

static void on_closed_early(uv_handle_t *handle)
{
    rks_free(handle->data);
}

static tcp_stream *stream_new(rks_net *net, const rks_stream_events *events, void *user)
{
    tcp_stream *stream = rks_alloc(1, sizeof(*stream), NULL);
    if (stream == NULL)
        return NULL;
    stream->stream.ops = &TCP_OPS;
    stream->events = events;
    stream->user = user;
    stream->net = net_of(net);
    init_handle(stream->net, &stream->uv);
    stream->uv.handle.data = stream;
    return stream;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    tcp_stream *stream = handle->data;
    size_t size = 0;
    buffer->base = stream->events->room(stream->user, &size);
    buffer->len = size;
}

static void on_read(uv_stream_t *handle, ssize_t size, const uv_buf_t *buffer)
{
    (void)buffer;
    tcp_stream *stream = handle->data;
    if (size > 0)
        stream->events->received(stream->user, (size_t)size);
    else if (size < 0)
        stream->events->ended(stream->user, size == UV_EOF ? 0 : (int)-size);
}

static void on_connect(uv_connect_t *connect, int status)
{
    tcp_stream *stream = connect->data;
    if (status != UV_ECANCELED)
        stream->events->connected(stream->user, -status);
}

static void on_write(uv_write_t *write, int status)
{
    tcp_stream *stream = write->data;
    if (status != UV_ECANCELED)
        stream->events->written(stream->user, -status);
}

static bool tcp_waits(const rks_net *net)
{
    return ((const tcp_net *)(const void *)net)->waiting;
}

static int tcp_accept(rks_net *net, const rks_stream_events *events, void *user,
                      rks_stream **stream)
{
    tcp_net *own = net_of(net);
    if (!own->waiting)
        return EAGAIN;
    tcp_stream *made = stream_new(net, events, user);
    if (made == NULL)
        return ENOMEM;
    own->waiting = false;
    int error = uv_accept(&own->listener.stream, &made->uv.stream);
    uv_os_fd_t fd;
    if (error == 0 && own->local != NULL && uv_fileno(&made->uv.handle, &fd) == 0 &&
        !rks_unix_is_own_user(fd))
        error = UV_EPERM;
    if (error != 0) {
        uv_close(&made->uv.handle, on_closed_early);
        return -error;
    }
    *stream = &made->stream;
    return 0;
}

/* Connects to a Unix socket, which needs no time; the event follows in the loop's next round. */
static int connect_local(tcp_net *net, const rks_address *address, tcp_stream *made)
{
    int fd;
    int error = rks_unix_connect(address, &fd);
    if (error != 0)
        return error;
    error = -uv_pipe_open(&made->uv.local, fd);
    if (error != 0) {
        close(fd);
        return error;
    }
    made->next = net->connected;
    net->connected = made;
    uv_async_send(&net->async);
    return 0;
}

static int connect_tcp(const rks_address *address, tcp_stream *made)
{
    struct sockaddr_storage to;
    rks_address_to_socket(address, &to);
    made->connect.data = made;
    return -uv_tcp_connect(&made->connect, &made->uv.tcp, (const struct sockaddr *)&to, on_connect);
}

static int tcp_connect(rks_net *net, const rks_address *address, const rks_stream_events *events,
                       void *user, rks_stream **stream)
{
    tcp_net *own = net_of(net);
    bool fits = own->local != NULL ? address->kind == RKS_ADDRESS_UNIX
                                   : address->kind == 1 || address->kind == 2;
    if (!fits)
        return EDESTADDRREQ;
    rks_hold_standard_files();
    tcp_stream *made = stream_new(net, events, user);
    if (made == NULL)
        return ENOMEM;
    int error = own->local != NULL ? connect_local(own, address, made) : connect_tcp(address, made);
    if (error != 0) {
        uv_close(&made->uv.handle, on_closed_early);
        return error;
    }
    *stream = &made->stream;
    return 0;
}

static void tcp_tune(rks_stream *stream, uint32_t silence_ms)
{
    tcp_stream *own = stream_of(stream);
    if (own->net->local != NULL)
        return;
    /* These help but are not required, so a refusal by the kernel is not an error. */
    uv_tcp_nodelay(&own->uv.tcp, 1);
    uv_tcp_keepalive(&own->uv.tcp, 1, silence_ms < 1000 ? 1 : silence_ms / 1000);
    /* Not TCP_USER_TIMEOUT: it would also end a peer that lives but has shut its window. */
}

static int tcp_read(rks_stream *stream, bool on)
{
    tcp_stream *own = stream_of(stream);
    if (!on) {
        uv_read_stop(&own->uv.stream);
        return 0;
    }
    int error = uv_read_start(&own->uv.stream, on_alloc, on_read);
    return error == UV_EALREADY ? 0 : -error;
}

_Static_assert(sizeof(uv_buf_t) == sizeof(struct iovec), "libuv's buffers are the kernel's");

static ssize_t tcp_try_write(rks_stream *stream, const struct iovec *parts, size_t count)
{
    int sent = uv_try_write(&stream_of(stream)->uv.stream, (const uv_buf_t *)(const void *)parts,
                            (unsigned)count);
    return sent == UV_EAGAIN ? 0 : sent;
}

static int tcp_write(rks_stream *stream, const struct iovec *parts, size_t count)
{
    tcp_stream *own = stream_of(stream);
    own->write.data = own;
    return -uv_write(&own->write, &own->uv.stream, (const uv_buf_t *)(const void *)parts,
                     (unsigned)count, on_write);
}

static void tcp_name(const rks_stream *stream, char *text, size_t size)
{
    const tcp_stream *own = (const tcp_stream *)(const void *)stream;
    struct sockaddr_storage address = {0};
    int room = sizeof(address);
    char ip[64] = "";
    if (own->net->local != NULL)
        snprintf(text, size, "a process of this machine");
    else if (uv_tcp_getpeername(&own->uv.tcp, (struct sockaddr *)&address, &room) != 0)
        snprintf(text, size, "a peer that is gone");
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

/* Returns the peer's address as a number; of IPv6 the first half, since a host can use any number
 * of addresses in the other half. */
static uint64_t tcp_origin(const rks_stream *stream)
{
    const tcp_stream *own = (const tcp_stream *)(const void *)stream;
    struct sockaddr_storage address = {0};
    int room = sizeof(address);
    uint64_t origin = 0;
    if (own->net->local != NULL ||
        uv_tcp_getpeername(&own->uv.tcp, (struct sockaddr *)&address, &room) != 0)
        return 0;
    if (address.ss_family == AF_INET6)
        memcpy(&origin, &((const struct sockaddr_in6 *)(void *)&address)->sin6_addr,
               sizeof(origin));
    else
        origin = ((const struct sockaddr_in *)(void *)&address)->sin_addr.s_addr;
    return origin;
}

static size_t tcp_unsent(const rks_stream *stream)
{
    return uv_stream_get_write_queue_size(&((const tcp_stream *)(const void *)stream)->uv.stream);
}

static void tcp_finish(rks_stream *stream)
{
    uv_os_fd_t fd;
    if (uv_fileno(&stream_of(stream)->uv.handle, &fd) == 0)
        shutdown(fd, SHUT_WR);
}

static void tcp_close(rks_stream *stream)
{
    tcp_stream *own = stream_of(stream);
    if (uv_is_closing(&own->uv.handle))
        return;
    for (tcp_stream **at = &own->net->connected; *at != NULL; at = &(*at)->next)
        if (*at == own) {
            *at = own->next; /* it is closed before it said that it was connected */
            break;
        }
    uv_close(&own->uv.handle, on_closed);
}

static const rks_net_ops TCP_OPS = {
    .open = tcp_open,
    .run = tcp_run,
    .stop = tcp_stop,
    .free = tcp_free,
    .wake = tcp_wake,
    .alarm = tcp_alarm,
    .nudge = tcp_nudge,
    .now_ms = tcp_now_ms,
    .listen = tcp_listen,
    .unlisten = tcp_unlisten,
    .waits = tcp_waits,
    .accept = tcp_accept,
    .connect = tcp_connect,
    .tune = tcp_tune,
    .read = tcp_read,
    .try_write = tcp_try_write,
    .write = tcp_write,
    .unsent = tcp_unsent,
    .name = tcp_name,
    .origin = tcp_origin,
    .finish = tcp_finish,
    .close = tcp_close,
};

const rks_transport rks_tcp = {&TCP_OPS};

void rks_unix_transport_init(rks_unix_transport *made, const uint8_t name[RKS_UNIX_NAME],
                             bool listens)
{
    made->transport.ops = &TCP_OPS;
    memcpy(made->name, name, sizeof(made->name));
    made->listens = listens;
    atomic_init(&made->fd, -1);
}

const char *rks_tcp_library(void)
{
    return uv_version_string();
}
