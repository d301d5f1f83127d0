/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous.c: the bootstrap of a Slurm step. Each rank keeps one connection to rank 0:
 *
 *   a rank -> rank 0   "RKSSTEP1", digest of the step (16), u32 rank, u32 size of its record
 *   rank 0 -> a rank   "RKSSTEP1": it is the step that you look for
 *   then, in each round
 *   a rank -> rank 0   its record
 *   rank 0 -> a rank   u32 0, the records of all; or u32 1 + the rank that has not come
 *
 * all in this machine's own layout: srun starts one program on all hosts. Rank 0 tries PORTS ports
 * from one that follows from the step, and the others ask each of them, so that steps at one host
 * do not disturb each other. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "group/slurm_step.h"

enum {
    PORT_FIRST = 20000, /* below those that the system gives to connections */
    PORT_RANGE = 12000,
    PORTS = 16,
    STRANGERS_MOST = 256, /* connections that have not said who they are */
    STRANGER_MS = 5000,   /* and how long they may take */
    ANSWER_MS = 2000,     /* how long rank 0 may take to answer a hello */
    SLICE_MS = 100,
    NAP_MS = 100,
    RANKS_SHOWN = 8,
};

static const char MAGIC[8] = {'R', 'K', 'S', 'S', 'T', 'E', 'P', '1'};

typedef struct hello {
    char magic[8];
    rks_digest step;
    uint32_t rank, record_size;
} hello;

/* A connection that rank 0 has accepted. */
typedef struct guest {
    int fd;
    uint64_t until_ms;
    size_t got; /* bytes of the hello */
    hello said;
} guest;

typedef struct meeting {
    rks_slurm_step step;
    rks_digest digest; /* of the step's name and opening */
    uint32_t arrival_ms, patience_ms;
    bool all_came;
    /* Of rank 0. */
    int listener;
    int *members; /* by rank; -1: has not come */
    guest guests[STRANGERS_MOST];
    size_t guest_count;
    size_t record_size;
    /* Of the others. */
    int host; /* connection to rank 0 */
} meeting;

/* ---- sockets -------------------------------------------------------------------------------- */

static void close_socket(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void set_up(int fd)
{
    const int one = 1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static uint64_t first_port(const meeting *m)
{
    return PORT_FIRST + m->digest.low % PORT_RANGE;
}

/* Waits a slice of time for the socket. An error is an interrupt, or that the time is over. */
static rks_status wait_for(int fd, short events, uint64_t until_ms, rks_error *err)
{
    rks_status status = rks_check_interrupt(err);
    uint64_t now = rks_now_ms();
    if (status == RKS_OK && now >= until_ms)
        return rks_fail(err, RKS_ERR_TIMEOUT, 0, "time is over");
    struct pollfd one = {.fd = fd, .events = events};
    uint64_t left = until_ms - now;
    if (status == RKS_OK)
        poll(&one, 1, left < SLICE_MS ? (int)left + 1 : SLICE_MS);
    return status;
}

static bool would_wait(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static rks_status send_all(int fd, const void *bytes, size_t size, uint64_t until_ms,
                           rks_error *err)
{
    size_t done = 0;
    while (done < size) {
        ssize_t sent = send(fd, (const uint8_t *)bytes + done, size - done, MSG_NOSIGNAL);
        if (sent > 0) {
            done += (size_t)sent;
            continue;
        }
        if (sent < 0 && !would_wait())
            return rks_fail_errno(err, errno, "sending");
        rks_status status = wait_for(fd, POLLOUT, until_ms, err);
        if (status != RKS_OK)
            return status;
    }
    return RKS_OK;
}

static rks_status receive_all(int fd, void *bytes, size_t size, uint64_t until_ms, rks_error *err)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = recv(fd, (uint8_t *)bytes + done, size - done, 0);
        if (got > 0) {
            done += (size_t)got;
            continue;
        }
        if (got == 0)
            return rks_fail(err, RKS_ERR_PEER, 0, "closed the connection");
        if (!would_wait())
            return rks_fail_errno(err, errno, "receiving");
        rks_status status = wait_for(fd, POLLIN, until_ms, err);
        if (status != RKS_OK)
            return status;
    }
    return RKS_OK;
}

/* ---- rank 0 --------------------------------------------------------------------------------- */

static int listen_at(int family, uint16_t port, bool loopback)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    const int no = 0, one = 1;
    if (loopback)
        four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(family, SOCK_STREAM, 0);
    if (fd < 0)
        return -1;
    set_up(fd);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    bool good = family == AF_INET6 ? bind(fd, (struct sockaddr *)&six, sizeof(six)) == 0
                                   : bind(fd, (struct sockaddr *)&four, sizeof(four)) == 0;
    if (good && listen(fd, 1024) == 0)
        return fd;
    int cause = errno;
    close(fd);
    errno = cause;
    return -1;
}

static rks_status open_listener(meeting *m, rks_error *err)
{
    int cause = 0;
    for (uint32_t i = 0; i < PORTS && m->listener < 0; i++) {
        uint16_t port = (uint16_t)(first_port(m) + i);
        errno = 0;
        if (!m->step.one_node)
            m->listener = listen_at(AF_INET6, port, false);
        if (m->listener < 0 && errno != EADDRINUSE)
            m->listener = listen_at(AF_INET, port, m->step.one_node);
        cause = errno;
    }
    return m->listener >= 0 ? RKS_OK
                            : rks_fail_errno(err, cause,
                                             "srun: rank 0 cannot listen at any of the ports "
                                             "%" PRIu64 " to %" PRIu64,
                                             first_port(m), first_port(m) + PORTS - 1);
}

static void admit_guest(meeting *m)
{
    int fd = accept(m->listener, NULL, NULL);
    if (fd < 0)
        return;
    set_up(fd);
    if (m->guest_count == STRANGERS_MOST) { /* the oldest has had the most time */
        close(m->guests[0].fd);
        memmove(&m->guests[0], &m->guests[1], (STRANGERS_MOST - 1) * sizeof(guest));
        m->guest_count--;
    }
    m->guests[m->guest_count++] = (guest){.fd = fd, .until_ms = rks_now_ms() + STRANGER_MS};
}

/* Returns true if the guest is done: it has become a member, or was turned away. */
static bool hear_guest(meeting *m, guest *one)
{
    uint8_t *to = (uint8_t *)&one->said;
    ssize_t got = recv(one->fd, to + one->got, sizeof(one->said) - one->got, 0);
    if (got < 0 && would_wait() && rks_now_ms() < one->until_ms)
        return false;
    one->got += got > 0 ? (size_t)got : 0;
    if (got > 0 && one->got < sizeof(one->said))
        return false;
    const hello *said = &one->said;
    bool ours = one->got == sizeof(*said) && memcmp(said->magic, MAGIC, sizeof(MAGIC)) == 0 &&
                rks_digest_equal(said->step, m->digest) && said->rank > 0 &&
                said->rank < m->step.size && said->record_size == m->record_size;
    if (ours) /* it comes again: it gave up the connection before */
        close_socket(&m->members[said->rank]);
    if (ours && send(one->fd, MAGIC, sizeof(MAGIC), MSG_NOSIGNAL) == (ssize_t)sizeof(MAGIC)) {
        m->members[said->rank] = one->fd;
        return true;
    }
    close(one->fd);
    return true;
}

static void hear_guests(meeting *m)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->guest_count; i++) {
        guest one = m->guests[i];
        if (!hear_guest(m, &one))
            m->guests[kept++] = one;
    }
    m->guest_count = kept;
}

/* Returns true if the rank has closed its connection: it will come again. */
static bool has_left(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && !would_wait());
}

static uint32_t count_missing(meeting *m, uint32_t *first)
{
    uint32_t missing = 0;
    for (uint32_t rank = 1; rank < m->step.size; rank++)
        if (m->members[rank] >= 0 && has_left(m->members[rank]))
            close_socket(&m->members[rank]);
    for (uint32_t rank = m->step.size; rank-- > 1;)
        if (m->members[rank] < 0) {
            missing++;
            *first = rank;
        }
    return missing;
}

/* "3 of 8 ranks have not come: 2, 5, 6" */
static void say_who_is_missing(const meeting *m, uint32_t missing)
{
    char ranks[128];
    size_t used = 0, shown = 0;
    for (uint32_t rank = 1; rank < m->step.size && shown < RANKS_SHOWN; rank++)
        if (m->members[rank] < 0)
            used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, "%s%" PRIu32,
                                     shown++ > 0 ? ", " : "", rank);
    rks_log("srun: %" PRIu32 " of %" PRIu32 " ranks have not come: %s%s", missing, m->step.size,
            ranks, missing > shown ? ", ..." : "");
}

/* Accepts the others until all have come. */
static rks_status receive_guests(meeting *m, uint64_t until_ms, rks_error *err)
{
    uint64_t patient_until = rks_now_ms() + m->patience_ms;
    uint32_t first = 0, missing;
    while ((missing = count_missing(m, &first)) > 0) {
        struct pollfd polled[STRANGERS_MOST + 1] = {{.fd = m->listener, .events = POLLIN}};
        for (size_t i = 0; i < m->guest_count; i++)
            polled[i + 1] = (struct pollfd){.fd = m->guests[i].fd, .events = POLLIN};
        poll(polled, m->guest_count + 1, SLICE_MS);
        rks_status status = rks_check_interrupt(err);
        if (status != RKS_OK)
            return status;
        if (rks_now_ms() >= patient_until) {
            say_who_is_missing(m, missing);
            patient_until = rks_now_ms() + m->patience_ms;
        }
        if (rks_now_ms() >= until_ms) {
            rks_fail(err, RKS_ERR_TIMEOUT, 0, "did not come within %" PRIu32 " ms", m->arrival_ms);
            err->rank = (int32_t)first;
            return RKS_ERR_TIMEOUT;
        }
        if ((polled[0].revents & POLLIN) != 0)
            admit_guest(m);
        hear_guests(m);
    }
    for (size_t i = 0; i < m->guest_count; i++)
        close(m->guests[i].fd);
    m->guest_count = 0;
    close_socket(&m->listener);
    return RKS_OK;
}

/* Tells all that have come which rank is missing. */
static void send_failure(meeting *m, int32_t rank)
{
    const uint32_t word = 1 + (uint32_t)(rank < 0 ? 0 : rank);
    for (uint32_t other = 1; other < m->step.size; other++)
        if (m->members[other] >= 0)
            (void)!send(m->members[other], &word, sizeof(word), MSG_NOSIGNAL);
}

static rks_status gather_at_host(meeting *m, const void *record, size_t size, uint8_t *all,
                                 uint32_t timeout_ms, rks_error *err)
{
    const uint32_t good = 0;
    m->record_size = m->all_came ? m->record_size : size;
    rks_status status = RKS_OK;
    if (!m->all_came)
        status = receive_guests(m, rks_now_ms() + m->arrival_ms, err);
    m->all_came = m->all_came || status == RKS_OK;
    uint64_t until = rks_now_ms() + timeout_ms;
    memcpy(all, record, size);
    for (uint32_t rank = 1; status == RKS_OK && rank < m->step.size; rank++) {
        status = receive_all(m->members[rank], all + rank * size, size, until, err);
        if (status != RKS_OK)
            err->rank = (int32_t)rank;
    }
    for (uint32_t rank = 1; status == RKS_OK && rank < m->step.size; rank++) {
        status = send_all(m->members[rank], &good, sizeof(good), until, err);
        if (status == RKS_OK)
            status = send_all(m->members[rank], all, m->step.size * size, until, err);
        if (status != RKS_OK)
            err->rank = (int32_t)rank;
    }
    if (status != RKS_OK)
        send_failure(m, err->rank);
    return status;
}

/* ---- the others ------------------------------------------------------------------------------ */

/* Connects to one address. Returns -1 if nobody answers there in time. */
static int try_address(const struct addrinfo *address, uint16_t port, uint64_t until_ms)
{
    struct sockaddr_storage place;
    memcpy(&place, address->ai_addr, address->ai_addrlen);
    if (address->ai_family == AF_INET)
        ((struct sockaddr_in *)(void *)&place)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)(void *)&place)->sin6_port = htons(port);
    int fd = socket(address->ai_family, SOCK_STREAM, 0), cause = 0;
    socklen_t size = sizeof(cause);
    if (fd < 0)
        return -1;
    set_up(fd);
    if (connect(fd, (struct sockaddr *)&place, address->ai_addrlen) == 0)
        return fd;
    struct pollfd one = {.fd = fd, .events = POLLOUT};
    bool waits = errno == EINPROGRESS;
    uint64_t patient = rks_now_ms() + ANSWER_MS;
    patient = patient < until_ms ? patient : until_ms;
    while (waits && poll(&one, 1, SLICE_MS) == 0)
        waits = rks_now_ms() < patient && rks_check_interrupt(NULL) == RKS_OK;
    if (waits && getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &size) == 0 && cause == 0)
        return fd;
    close(fd);
    return -1;
}

/* Asks whether this step's rank 0 is there. */
static bool is_host(const meeting *m, int fd, rks_error *err)
{
    char answer[sizeof(MAGIC)];
    hello say = {.step = m->digest, .rank = m->step.rank, .record_size = (uint32_t)m->record_size};
    uint64_t until = rks_now_ms() + ANSWER_MS;
    memcpy(say.magic, MAGIC, sizeof(MAGIC));
    return send_all(fd, &say, sizeof(say), until, err) == RKS_OK &&
           receive_all(fd, answer, sizeof(answer), until, err) == RKS_OK &&
           memcmp(answer, MAGIC, sizeof(MAGIC)) == 0;
}

static rks_status resolve(const meeting *m, struct addrinfo **found, rks_error *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int code = getaddrinfo(m->step.host, NULL, &hints, found);
    uint64_t until = rks_now_ms() + m->arrival_ms;
    while (code == EAI_AGAIN && rks_now_ms() < until) {
        const struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
        rks_status status = rks_check_interrupt(err);
        if (status != RKS_OK)
            return status;
        nanosleep(&nap, NULL);
        code = getaddrinfo(m->step.host, NULL, &hints, found);
    }
    return code == 0 ? RKS_OK
                     : rks_fail(err, RKS_ERR_ARGUMENT, 0,
                                "srun: the first host of the step, \"%.80s\", has no address here "
                                "(%s); set MASTER_ADDR to an address of rank 0's host",
                                m->step.host, gai_strerror(code));
}

/* Asks all ports once. */
static int seek_host(const meeting *m, const struct addrinfo *found, uint64_t until_ms,
                     rks_error *err)
{
    for (uint32_t i = 0; i < PORTS && rks_now_ms() < until_ms; i++)
        for (const struct addrinfo *one = found; one != NULL; one = one->ai_next) {
            int fd = try_address(one, (uint16_t)(first_port(m) + i), until_ms);
            if (rks_check_interrupt(NULL) != RKS_OK) {
                close_socket(&fd);
                return -1;
            }
            if (fd < 0)
                continue;
            if (is_host(m, fd, err))
                return fd;
            close(fd);
        }
    return -1;
}

static rks_status join_step(meeting *m, rks_error *err)
{
    struct addrinfo *found = NULL;
    uint64_t until = rks_now_ms() + m->arrival_ms;
    rks_status status = resolve(m, &found, err);
    while (status == RKS_OK && m->host < 0) {
        m->host = seek_host(m, found, until, err);
        if (m->host >= 0)
            break;
        const struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
        nanosleep(&nap, NULL);
        status = rks_check_interrupt(err);
        if (status == RKS_OK && rks_now_ms() >= until) {
            status =
                rks_fail(err, RKS_ERR_TIMEOUT, 0,
                         "did not answer at %s, ports %" PRIu64 " to %" PRIu64 ", within %" PRIu32
                         " ms; if it runs on another host, set "
                         "MASTER_ADDR to that",
                         m->step.host, first_port(m), first_port(m) + PORTS - 1, m->arrival_ms);
            err->rank = 0;
        }
    }
    if (found != NULL)
        freeaddrinfo(found);
    return status;
}

static rks_status gather_as_guest(meeting *m, const void *record, size_t size, void *all,
                                  uint32_t timeout_ms, rks_error *err)
{
    uint32_t word = 0;
    bool first = !m->all_came;
    m->record_size = size;
    rks_status status = first ? join_step(m, err) : RKS_OK;
    if (status != RKS_OK)
        return status;
    /* Rank 0 answers when all have come. */
    uint64_t until = rks_now_ms() + timeout_ms + (first ? m->arrival_ms : 0);
    status = send_all(m->host, record, size, until, err);
    if (status == RKS_OK)
        status = receive_all(m->host, &word, sizeof(word), until, err);
    if (status == RKS_OK && word != 0) {
        rks_fail(err, RKS_ERR_TIMEOUT, 0, "did not come, or left, while the ranks met");
        err->rank = word - 1 < m->step.size ? (int32_t)(word - 1) : 0;
        return RKS_ERR_TIMEOUT;
    }
    if (status == RKS_OK)
        status = receive_all(m->host, all, m->step.size * size, until, err);
    if (status != RKS_OK && status != RKS_ERR_CANCELLED)
        err->rank = 0;
    m->all_came = status == RKS_OK;
    return status;
}

/* ---- the bootstrap --------------------------------------------------------------------------- */

static rks_status meet_ranks(void *user, const void *record, size_t size, void *all,
                             uint32_t timeout_ms, rks_error *err)
{
    meeting *m = user;
    return m->step.rank == 0 ? gather_at_host(m, record, size, all, timeout_ms, err)
                             : gather_as_guest(m, record, size, all, timeout_ms, err);
}

static void end_meeting(void *user)
{
    meeting *m = user;
    close_socket(&m->listener);
    close_socket(&m->host);
    for (uint32_t rank = 1; m->members != NULL && rank < m->step.size; rank++)
        close_socket(&m->members[rank]);
    for (size_t i = 0; i < m->guest_count; i++)
        close(m->guests[i].fd);
    rks_free(m->members);
    rks_free(m);
}

static rks_status open_host(meeting *m, rks_error *err)
{
    struct addrinfo *found = NULL;
    m->members = rks_alloc(m->step.size, sizeof(*m->members), err);
    if (m->members == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t rank = 0; rank < m->step.size; rank++)
        m->members[rank] = -1;
    rks_status status = resolve(m, &found, err); /* if it fails here, the others fail too */
    if (found != NULL)
        freeaddrinfo(found);
    return status == RKS_OK ? open_listener(m, err) : status;
}

rks_status rks_bootstrap_slurm(const rks_slurm_step *step, uint32_t arrival_ms,
                               uint32_t patience_ms, rks_bootstrap *bootstrap, rks_error *err)
{
    char name[160];
    meeting *m = rks_alloc(1, sizeof(*m), err);
    if (m == NULL)
        return RKS_ERR_MEMORY;
    m->step = *step;
    m->arrival_ms = arrival_ms;
    m->patience_ms = patience_ms;
    m->listener = m->host = -1;
    int size = snprintf(name, sizeof(name), "%s.%" PRIu32 ".%" PRIu32 ".%u", step->name,
                        step->opening, step->size, (unsigned)getuid());
    m->digest = rks_checksum128(name, (size_t)size);
    rks_status status = step->rank == 0 ? open_host(m, err) : RKS_OK;
    if (status != RKS_OK) {
        end_meeting(m);
        return status;
    }
    *bootstrap = (rks_bootstrap){.struct_size = sizeof(*bootstrap),
                                 .name = "srun",
                                 .rank = step->rank,
                                 .size = step->size,
                                 .user = m,
                                 .allgather = meet_ranks,
                                 .close = end_meeting};
    return RKS_OK;
}
