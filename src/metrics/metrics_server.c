/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics_server.c: keeps the list of sources, and runs the thread that shows them to
 * clients. */
#include "metrics/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

/* Bounds: sources and bytes of a snapshot; clients, bytes of a request and time per client. */
enum { SOURCES = 64, TEXT = 96 << 10, CLIENTS = 8, REQUEST = 2048, PATIENCE_MS = 2000 };
enum { NAMES = 16, REST_MS = 500 };

typedef struct client {
    int fd; /* -1 if the place is free */
    uint64_t until_ms;
    size_t got;
    char request[REQUEST + 1];
} client;

/* `life` guards the sockets and the thread. `mutex` guards the list of sources; the thread locks it
 * for each snapshot. A caller that needs both locks `life` first. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER, mutex = PTHREAD_MUTEX_INITIALIZER;
static rks_metrics_source *first_source;
static uint64_t numbers;
static int top_fd = -1, metrics_fd = -1, end_fd = -1;
static uint32_t metrics_port;
static bool running, forks_known;
static pthread_t thread;

/* ---- the snapshot: only the metrics' thread uses these ------------------------------------- */

static rks_metrics taken[SOURCES];
static char text[TEXT], whole[TEXT + 256];
static client clients[CLIENTS];
static uint64_t rests_until_ms; /* the thread accepts no client before this time */

static size_t copy_sources(size_t *left_out)
{
    size_t count = 0;
    *left_out = 0;
    pthread_mutex_lock(&mutex);
    for (rks_metrics_source *one = first_source; one != NULL; one = one->next) {
        if (count == SOURCES) {
            ++*left_out;
            continue;
        }
        memset(&taken[count], 0, sizeof(taken[count]));
        one->read(one->user, &taken[count]);
        taken[count++].number = one->number;
    }
    pthread_mutex_unlock(&mutex);
    return count;
}

/* ---- clients ------------------------------------------------------------------------------ */

/* Never waits: a client that does not read loses what does not fit into the socket's buffer. */
static void send_at_once(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return;
        bytes += sent;
        size -= (size_t)sent;
    }
}

/* Returns -1 if there is no client. If accepting fails because the process has no free descriptor
 * or the program has closed the socket, poll() would report the client again at once. So rest
 * first. */
static int accept_client(int listener)
{
    int room = 2 * TEXT;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        rests_until_ms = rks_now_ms() + REST_MS;
    return fd;
}

static void serve_top(void)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    size_t left_out;
    int fd = accept_client(top_fd);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid()) {
        size_t count = copy_sources(&left_out);
        send_at_once(fd, text, rks_metrics_as_top(taken, count, left_out, text, sizeof(text)));
    }
    close(fd);
}

static void end_client(client *one)
{
    close(one->fd);
    one->fd = -1;
}

static void reply(client *one)
{
    size_t left_out, size = 0;
    const char *status = "405 Method Not Allowed";
    if (strncmp(one->request, "GET ", 4) == 0) {
        bool known = strncmp(one->request + 4, "/metrics ", 9) == 0 ||
                     strncmp(one->request + 4, "/ ", 2) == 0;
        status = known ? "200 OK" : "404 Not Found";
        if (known)
            size = rks_metrics_as_prometheus(taken, copy_sources(&left_out), text, sizeof(text));
    }
    int used = snprintf(whole, sizeof(whole),
                        "HTTP/1.0 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                        "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                        status, size);
    memcpy(whole + used, text, size);
    send_at_once(one->fd, whole, (size_t)used + size);
    shutdown(one->fd, SHUT_WR);
}

/* Reads a request's head and replies when it is complete. Closes the client without a reply if the
 * head is too long or the client closes early. */
static void hear(client *one)
{
    ssize_t got = recv(one->fd, one->request + one->got, REQUEST - one->got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0) {
        one->got += (size_t)got;
        one->request[one->got] = '\0';
        bool over = strstr(one->request, "\r\n\r\n") != NULL;
        if (!over && one->got < REQUEST)
            return;
        if (over)
            reply(one);
    }
    end_client(one);
}

/* Accepts a client. If no place is free, closes the client that has waited longest. */
static void greet(void)
{
    client *place = &clients[0];
    int fd = accept_client(metrics_fd);
    if (fd < 0)
        return;
    for (size_t i = 0; i < CLIENTS && place->fd >= 0; i++)
        if (clients[i].fd < 0 || clients[i].until_ms < place->until_ms)
            place = &clients[i];
    if (place->fd >= 0)
        end_client(place);
    place->fd = fd;
    place->got = 0;
    place->until_ms = rks_now_ms() + PATIENCE_MS;
}

/* ---- the thread --------------------------------------------------------------------------- */

/* Returns the milliseconds that poll() may wait; -1 (no limit) if there are no clients. */
static int poll_timeout(uint64_t now)
{
    int least = now < rests_until_ms ? (int)(rests_until_ms - now) : -1;
    for (size_t i = 0; i < CLIENTS; i++) {
        if (clients[i].fd < 0)
            continue;
        int left = clients[i].until_ms > now ? (int)(clients[i].until_ms - now) : 0;
        least = least < 0 || left < least ? left : least;
    }
    return least;
}

static void *serve_metrics(void *user)
{
    (void)user;
    pthread_setname_np(pthread_self(), "rks-metrics");
    for (;;) {
        uint64_t now = rks_now_ms();
        bool rests = now < rests_until_ms;
        struct pollfd ready[3 + CLIENTS] = {{end_fd, POLLIN, 0},
                                            {rests ? -1 : top_fd, POLLIN, 0},
                                            {rests ? -1 : metrics_fd, POLLIN, 0}};
        for (size_t i = 0; i < CLIENTS; i++)
            ready[3 + i] = (struct pollfd){clients[i].fd, POLLIN, 0};
        if (poll(ready, 3 + CLIENTS, poll_timeout(now)) < 0 && errno != EINTR)
            break;
        if (ready[0].revents != 0)
            break;
        for (size_t i = 0; i < CLIENTS; i++)
            if (clients[i].fd >= 0 && ready[3 + i].revents != 0)
                hear(&clients[i]);
            else if (clients[i].fd >= 0 && clients[i].until_ms <= rks_now_ms())
                end_client(&clients[i]);
        if (ready[1].revents != 0)
            serve_top();
        if (ready[2].revents != 0)
            greet();
    }
    for (size_t i = 0; i < CLIENTS; i++)
        if (clients[i].fd >= 0)
            end_client(&clients[i]);
    return NULL;
}

/* ---- its life ----------------------------------------------------------------------------- */

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_sockets(void)
{
    close_one(&top_fd);
    close_one(&metrics_fd);
    close_one(&end_fd);
    metrics_port = 0;
}

static void before_fork(void)
{
    pthread_mutex_lock(&life);
    pthread_mutex_lock(&mutex);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&mutex);
    pthread_mutex_unlock(&life);
}

/* The child has no metrics thread. It closes its copies of the sockets, which would keep the names
 * in use. */
static void after_fork_in_child(void)
{
    close_sockets();
    for (size_t i = 0; running && i < CLIENTS; i++)
        close_one(&clients[i].fd);
    running = false;
    first_source = NULL;
    after_fork();
}

/* Listens at this process's name. Appends a number if a process with the same user and process id
 * in another container has that name. Returns -1 if RKS_TOP is "off" or no name can be had. */
static int listen_for_top(void)
{
    const char *wish = getenv("RKS_TOP");
    if (wish != NULL && strcmp(wish, "off") == 0)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    for (int i = 0; fd >= 0 && i < NAMES; i++) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int size = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                            "rankstore-top-%u-%ld%s%.*d", (unsigned)geteuid(), (long)getpid(),
                            i == 0 ? "" : ".", i == 0 ? 0 : 1, i);
        socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size);
        if (bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, SOMAXCONN) == 0)
            return fd;
        if (errno != EADDRINUSE)
            break;
    }
    close_one(&fd);
    return -1;
}

static rks_status listen_for_metrics(uint32_t port, int *listener, rks_error *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, 16) != 0) {
        int code = errno;
        close_one(&fd);
        return rks_fail_errno(err, code, "metrics: port %u of 127.0.0.1; choose another port",
                              port);
    }
    *listener = fd;
    return RKS_OK;
}

static bool start_showing(void)
{
    for (size_t i = 0; i < CLIENTS; i++)
        clients[i].fd = -1;
    end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (end_fd < 0)
        return false;
    running = rks_thread_start(&thread, serve_metrics, NULL) == 0;
    return running;
}

static void stop_showing(void)
{
    uint64_t one = 1;
    if (running && write(end_fd, &one, sizeof(one)) == sizeof(one))
        pthread_join(thread, NULL);
    running = false;
}

/* Call with `life` locked. A port that is added later restarts the thread. */
static rks_status open_sockets(uint32_t port, rks_error *err)
{
    int listener = -1;
    if (port != 0 && metrics_port != 0 && port != metrics_port)
        return rks_fail(
            err, RKS_ERR_ARGUMENT, 0,
            "metrics: this process serves port %u already; give the same port, or none, "
            "for its other datasets",
            metrics_port);
    if (!forks_known)
        forks_known = pthread_atfork(before_fork, after_fork, after_fork_in_child) == 0;
    bool adds = port != 0 && metrics_port == 0;
    if (adds) {
        rks_status status = listen_for_metrics(port, &listener, err);
        if (status != RKS_OK)
            return status;
    }
    if (running && !adds)
        return RKS_OK;
    stop_showing();
    close_one(&end_fd);
    if (top_fd < 0)
        top_fd = listen_for_top();
    if (adds) {
        metrics_fd = listener;
        metrics_port = port;
    }
    if (!forks_known || (top_fd < 0 && metrics_fd < 0) || !start_showing())
        close_sockets();
    return RKS_OK;
}

rks_status rks_metrics_begin(rks_metrics_source *watched, uint32_t port, rks_error *err)
{
    pthread_mutex_lock(&life);
    rks_status status = open_sockets(port, err);
    if (status == RKS_OK) {
        pthread_mutex_lock(&mutex);
        watched->number = numbers++;
        rks_metrics_source **at = &first_source;
        while (*at != NULL)
            at = &(*at)->next;
        watched->next = NULL;
        *at = watched;
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_unlock(&life);
    return status;
}

void rks_metrics_end(rks_metrics_source *watched)
{
    pthread_mutex_lock(&life);
    pthread_mutex_lock(&mutex);
    rks_metrics_source **at = &first_source;
    while (*at != NULL && *at != watched)
        at = &(*at)->next;
    if (*at != NULL)
        *at = watched->next;
    bool last = first_source == NULL;
    pthread_mutex_unlock(&mutex);
    if (last) {
        stop_showing();
        close_sockets();
    }
    pthread_mutex_unlock(&life);
}
