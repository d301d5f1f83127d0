/* SPDX-License-Identifier: Apache-2.0
 *
 * descriptor_offer.c: a node's leader gives a descriptor to the other ranks of its node. Between
 * processes over a Unix socket in a fresh directory that only this user can enter; it is gone as
 * soon as all have it. Containers that have no directory in common, but a network namespace, take a
 * socket with a random abstract name. Either way both sides look at the other's user first. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/secret.h"
#include "group/group_state.h"

#define NAME_PREFIX "rankstore-share-"
enum { SWEEP_AFTER_S = 2 }; /* time between making the directory and locking it */

typedef struct door {
    char directory[80];
    struct sockaddr_un address;
    int lock; /* the directory's descriptor, locked as long as the directory is needed */
    int listener;
} door;

static void close_door(door *d)
{
    if (d->listener >= 0)
        close(d->listener);
    if (d->address.sun_path[0] != '\0')
        unlink(d->address.sun_path);
    if (d->directory[0] != '\0')
        rmdir(d->directory);
    if (d->lock >= 0)
        close(d->lock);
    *d = (door){.lock = -1, .listener = -1};
}

/* Returns true if no process holds the directory's lock. The lock ends with its process. */
static bool abandoned(int base, const char *name)
{
    int directory = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool free = directory >= 0 && flock(directory, LOCK_EX | LOCK_NB) == 0;
    if (directory >= 0)
        close(directory);
    return free;
}

/* Removes the directories of leaders that were killed before they could. */
static void sweep(const char *base)
{
    DIR *directory = opendir(base);
    if (directory == NULL)
        return;
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        struct stat info;
        char socket_name[300];
        if (strncmp(entry->d_name, NAME_PREFIX, sizeof(NAME_PREFIX) - 1) != 0 ||
            fstatat(dirfd(directory), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
            time(NULL) < info.st_mtime + SWEEP_AFTER_S ||
            !abandoned(dirfd(directory), entry->d_name))
            continue;
        snprintf(socket_name, sizeof(socket_name), "%s/fd", entry->d_name);
        unlinkat(dirfd(directory), socket_name, 0);
        unlinkat(dirfd(directory), entry->d_name, AT_REMOVEDIR);
    }
    closedir(directory);
}

/* The path of a socket is short, and a TMPDIR that does not exist is not a reason to fail. */
static const char *temporary_base(void)
{
    const char *base = getenv("TMPDIR");
    return base == NULL || base[0] != '/' || strlen(base) > 30 || access(base, W_OK | X_OK) != 0
               ? "/tmp"
               : base;
}

/* Returns a number that is the same for the same path, file and user; 0 if `path` is not set or
 * cannot be used. */
static uint64_t door_number(const char *path, int mode, const char *boot_id)
{
    char text[256];
    struct stat at, users;
    if (stat(path, &at) != 0 || stat("/proc/self/ns/user", &users) != 0 || access(path, mode) != 0)
        return 0;
    int size =
        snprintf(text, sizeof(text), "%s %s %ju %ju %ju %ju", boot_id, path, (uintmax_t)at.st_dev,
                 (uintmax_t)at.st_ino, (uintmax_t)geteuid(), (uintmax_t)users.st_ino);
    return rks_checksum64(text, (size_t)size);
}

void rks_doors_look(const char *boot_id, uint64_t doors[DOORS])
{
    doors[DOOR_TMPDIR] = door_number(temporary_base(), W_OK | X_OK, boot_id);
    doors[DOOR_TMP] = door_number("/tmp", W_OK | X_OK, boot_id);
    doors[DOOR_NETWORK] = door_number("/proc/self/ns/net", F_OK, boot_id);
}

static rks_status listen_at(door *d, int backlog, rks_error *err)
{
    const char *name = d->address.sun_path;
    d->address.sun_family = AF_UNIX;
    d->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->listener < 0 ||
        bind(d->listener, (struct sockaddr *)&d->address, sizeof(d->address)) != 0 ||
        listen(d->listener, backlog) != 0)
        return rks_fail_errno(err, errno, "%s", name[0] == '\0' ? name + 1 : name);
    return RKS_OK;
}

/* Opens a socket with an abstract name of 128 random bits, which nobody can occupy first. Anyone in
 * the namespace can connect: other users are refused, and must not fill the queue. */
static rks_status open_network_door(door *d, rks_error *err)
{
    uint8_t random[16];
    rks_status status = rks_random(random, sizeof(random), err);
    if (status != RKS_OK)
        return status;
    snprintf(d->address.sun_path + 1, sizeof(d->address.sun_path) - 1,
             NAME_PREFIX "%016" PRIx64 "%016" PRIx64, rks_load_u64(random),
             rks_load_u64(random + 8));
    return listen_at(d, SOMAXCONN, err);
}

static rks_status open_door(door *d, rks_door where, int backlog, rks_error *err)
{
    if (where == DOOR_NETWORK)
        return open_network_door(d, err);
    const char *base = where == DOOR_TMP ? "/tmp" : temporary_base();
    sweep(base);
    snprintf(d->directory, sizeof(d->directory), "%s/" NAME_PREFIX "XXXXXX", base);
    if (mkdtemp(d->directory) == NULL) {
        d->directory[0] = '\0';
        return rks_fail_errno(err, errno, "%s: making a temporary directory", base);
    }
    /* If directories cannot be locked here, no process removes it while it is in use. */
    d->lock = open(d->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->lock >= 0)
        (void)flock(d->lock, LOCK_EX | LOCK_NB);
    snprintf(d->address.sun_path, sizeof(d->address.sun_path), "%s/fd", d->directory);
    return listen_at(d, backlog, err);
}

/* Waits in slices until `fd` is ready. An interrupt, a lost group and silence end the wait. */
static rks_status wait_ready(rks_group *group, int fd, short events, uint64_t until, rks_error *err)
{
    for (;;) {
        struct pollfd one = {fd, events, 0};
        int ready = poll(&one, 1, RKS_WAIT_SLICE_MS);
        if (ready > 0)
            return RKS_OK;
        if (ready < 0 && errno != EINTR)
            return rks_fail_errno(err, errno, "waiting for a rank of this node");
        rks_status status = rks_check_interrupt(err);
        if (status != RKS_OK)
            return status;
        status = rks_group_must_stop(group, err);
        if (status != RKS_OK)
            return status;
        if (rks_now_ms() >= until)
            return rks_fail(err, RKS_ERR_TIMEOUT, 0,
                            "a rank of this node did not come for the index within %u ms",
                            group->silence_ms);
    }
}

static bool same_user(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

/* A message of one byte with room for a descriptor. `note` points to it. */
typedef struct fd_note {
    char byte;
    struct iovec part;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr note;
} fd_note;

static void fd_note_begin(fd_note *n)
{
    memset(n, 0, sizeof(*n));
    n->part = (struct iovec){&n->byte, 1};
    n->note.msg_iov = &n->part;
    n->note.msg_iovlen = 1;
    n->note.msg_control = n->control;
    n->note.msg_controllen = sizeof(n->control);
}

/* A rank that has ended meanwhile is not a failure here: the next call reports why. */
static rks_status send_fd(int socket, int fd, rks_error *err)
{
    fd_note n;
    fd_note_begin(&n);
    struct cmsghdr *head = CMSG_FIRSTHDR(&n.note);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof(fd));
    if (sendmsg(socket, &n.note, MSG_NOSIGNAL) != 1 && errno != EPIPE && errno != ECONNRESET)
        return rks_fail_errno(err, errno, "handing a descriptor to a rank of this node");
    return RKS_OK;
}

static rks_status receive_fd(int socket, int *fd, rks_error *err)
{
    fd_note n;
    fd_note_begin(&n);
    ssize_t got = recvmsg(socket, &n.note, MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = got == 1 ? CMSG_FIRSTHDR(&n.note) : NULL;
    if (head == NULL || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(sizeof(int)))
        return rks_fail(err, RKS_ERR_PEER, got < 0 ? errno : 0,
                        "this node's leader sent no descriptor");
    memcpy(fd, CMSG_DATA(head), sizeof(*fd));
    return RKS_OK;
}

static uint32_t node_ranks(const rks_group *group)
{
    return rks_group_node_size(group, rks_group_node(group));
}

static rks_status hand_out(rks_group *group, const door *d, int fd, rks_error *err)
{
    uint64_t until = rks_now_ms() + group->silence_ms;
    for (uint32_t left = node_ranks(group) - 1; left > 0;) {
        rks_status status = wait_ready(group, d->listener, POLLIN, until, err);
        if (status != RKS_OK)
            return status;
        int peer = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
            continue;
        if (peer < 0)
            return rks_fail_errno(err, errno, "accepting a rank of this node");
        if (same_user(peer)) {
            status = send_fd(peer, fd, err);
            left--;
        }
        close(peer);
        if (status != RKS_OK)
            return status;
    }
    return RKS_OK;
}

static rks_status fetch_fd(rks_group *group, const struct sockaddr_un *address, int *fd,
                           rks_error *err)
{
    int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer < 0)
        return rks_fail_errno(err, errno, "a Unix socket");
    rks_status status = RKS_OK;
    const char *name = address->sun_path + (address->sun_path[0] == '\0');
    if (connect(peer, (const struct sockaddr *)address, sizeof(*address)) != 0)
        status = rks_fail_errno(err, errno, "%.100s", name);
    else if (!same_user(peer))
        status = rks_fail(err, RKS_ERR_PEER, 0, "%.100s belongs to another user", name);
    if (status == RKS_OK)
        status = wait_ready(group, peer, POLLIN, rks_now_ms() + group->silence_ms, err);
    if (status == RKS_OK)
        status = receive_fd(peer, fd, err);
    close(peer);
    /* A leader closes its door to a rank only because another rank has failed. */
    rks_error echo;
    if (status == RKS_OK || rks_group_must_stop(group, &echo) == RKS_OK)
        return status;
    if (err != NULL)
        *err = echo;
    return RKS_ERR_PEER;
}

static rks_status duplicate(int fd, int *shared, rks_error *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return rks_fail_errno(err, errno, "duplicating a descriptor");
    *shared = copy;
    return RKS_OK;
}

/* What leaders publish: where to connect, or, between threads, the descriptor's number. */
typedef struct fd_fact {
    struct sockaddr_un address;
    int fd;
} fd_fact;

struct rks_fd_offer {
    rks_group *group;
    door door;
    fd_fact mine;
};

rks_status rks_fd_offer_open(rks_group *group, int fd, rks_fd_offer **offer, rks_error *err)
{
    rks_fd_offer *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->group = group;
    made->door = (door){.lock = -1, .listener = -1};
    made->mine.fd = fd;
    rks_status status = RKS_OK;
    if (rks_group_is_leader(group) && !rks_group_is_threads(group) && node_ranks(group) > 1)
        status = open_door(&made->door, group->door, (int)node_ranks(group), err);
    if (status != RKS_OK) {
        rks_fd_offer_close(made);
        return status;
    }
    made->mine.address = made->door.address;
    *offer = made;
    return RKS_OK;
}

rks_fact rks_fd_offer_fact(const rks_fd_offer *offer)
{
    return rks_fact_optional(offer == NULL ? NULL : &offer->mine, sizeof(offer->mine));
}

static rks_status receive_offered(rks_group *group, const rks_agreed *agreed, size_t fact, int *got,
                                  rks_error *err)
{
    fd_fact offered;
    size_t size = 0;
    uint32_t leader = group->leaders[group->node_of[group->rank]];
    const void *bytes = rks_agreed_get(agreed, leader, fact, &size);
    if (size != sizeof(offered))
        return rks_fail(err, RKS_ERR_PEER, 0, "rank %u offered no descriptor", leader);
    memcpy(&offered, bytes, sizeof(offered));
    offered.address.sun_path[sizeof(offered.address.sun_path) - 1] = '\0';
    return rks_group_is_leader(group) || rks_group_is_threads(group)
               ? duplicate(offered.fd, got, err)
               : fetch_fd(group, &offered.address, got, err);
}

rks_status rks_fd_offer_take(rks_fd_offer *offer, const rks_agreed *agreed, size_t fact,
                             int *shared, rks_error *err)
{
    rks_group *group = offer->group;
    int got = -1;
    rks_status status = receive_offered(group, agreed, fact, &got, err);
    if (status == RKS_OK && offer->door.listener >= 0)
        status = hand_out(group, &offer->door, offer->mine.fd, err);
    if (status == RKS_OK) {
        close_door(&offer->door);
        *shared = got;
        return RKS_OK;
    }
    if (got >= 0)
        close(got);
    rks_group_stop(group); /* the others learn of it before the door is closed; and nobody waits for
                            * this rank */
    close_door(&offer->door);
    return status;
}

void rks_fd_offer_close(rks_fd_offer *offer)
{
    if (offer == NULL)
        return;
    close_door(&offer->door);
    rks_free(offer);
}

rks_status rks_group_share_fd(rks_group *group, int fd, int *shared, rks_error *err)
{
    rks_fd_offer *offer = NULL;
    rks_agreed agreed;
    int got = -1;
    rks_status status = rks_fd_offer_open(group, fd, &offer, err);
    const rks_fact fact = rks_fd_offer_fact(offer);
    status = rks_group_agree_on(group, "sharing memory", status, &fact, 1, &agreed, err);
    if (status == RKS_OK) {
        status = rks_fd_offer_take(offer, &agreed, 0, &got, err);
        status = rks_group_agree(group, "memory shared", status, err);
    }
    rks_fd_offer_close(offer);
    if (status != RKS_OK) {
        if (got >= 0)
            close(got);
        return status;
    }
    *shared = got;
    return RKS_OK;
}
