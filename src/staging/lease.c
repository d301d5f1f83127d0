/* SPDX-License-Identifier: Apache-2.0
 *
 * lease.c: shared locks, which the kernel ends with their process. */
#include "staging/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/forbidden_call.h"
#include "base/file.h"
#include "base/memory.h"

enum { WAIT_MS = 60000, LOOK_MS = 50, TEXT_SIZE = 96 };

struct rks_lease {
    int fd;
    pid_t owner; /* a forked child has the same lock: it must not end it */
    rks_lease *next;
};

/* *fd stays -1 if this user may not write there. */
static rks_status open_lease(const char *directory, int *fd, rks_error *err)
{
    const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    char *path = rks_format(err, "%s/%s", directory, RKS_LEASE_FILE);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    rks_hold_standard_files();
    *fd = open(path, flags | O_RDWR | O_CREAT, 0644);
    if (*fd < 0 && (errno == EACCES || errno == EROFS || errno == EPERM))
        *fd = open(path, flags | O_RDONLY);
    bool may_not = errno == EACCES || errno == EROFS || errno == EPERM || errno == ENOENT;
    rks_status status = *fd >= 0 || may_not ? RKS_OK : rks_fail_errno(err, errno, "%s", path);
    rks_free(path);
    return status;
}

static int lock_now(int fd, int how)
{
    while (flock(fd, how | LOCK_NB) != 0)
        if (errno != EINTR)
            return errno;
    return 0;
}

static bool is_without_locks(int error)
{
    return error == ENOLCK || error == EBADF || rks_call_is_forbidden(error);
}

static rks_status add_lease(int fd, rks_lease **leases, rks_error *err)
{
    rks_lease *lease = rks_alloc(1, sizeof(*lease), err);
    if (lease == NULL)
        return RKS_ERR_MEMORY;
    *lease = (rks_lease){.fd = fd, .owner = getpid(), .next = *leases};
    *leases = lease;
    return RKS_OK;
}

/* Writes who is here. If it fails, messages name nobody. */
static void sign(int fd)
{
    char host[65] = "?", text[TEXT_SIZE];
    gethostname(host, sizeof(host) - 1);
    memset(text, '\n', sizeof(text));
    int size = snprintf(text, sizeof(text), "pid %ld on %s", (long)getpid(), host);
    text[size] = '\n';
    ssize_t written = pwrite(fd, text, sizeof(text), 0);
    (void)written;
}

static void read_sign(int fd, char text[TEXT_SIZE + 1])
{
    ssize_t size = pread(fd, text, TEXT_SIZE, 0);
    text[size < 0 ? 0 : size] = '\0';
    text[strcspn(text, "\n")] = '\0';
    rks_text_clean(text);
}

static rks_status wait_to_share(const char *directory, int fd, bool *shared, rks_error *err)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    const uint64_t until = rks_now_ms() + WAIT_MS;
    int error;
    while ((error = lock_now(fd, LOCK_SH)) == EWOULDBLOCK && rks_now_ms() < until) {
        nanosleep(&pause, NULL);
        if (rks_check_interrupt(err) != RKS_OK)
            return RKS_ERR_CANCELLED;
    }
    *shared = error == 0;
    if (error == 0 || is_without_locks(error))
        return RKS_OK;
    if (error == EWOULDBLOCK)
        return rks_fail(err, RKS_ERR_STATE, error,
                        "%s: another process removes shards here (prune --local); open it again "
                        "when that has ended",
                        directory);
    return rks_fail_errno(err, error, "%s/%s: locking", directory, RKS_LEASE_FILE);
}

rks_status rks_lease_share(const char *directory, rks_lease **leases, rks_error *err)
{
    bool shared = false;
    int fd = -1;
    rks_status status = open_lease(directory, &fd, err);
    if (status != RKS_OK || fd < 0)
        return status;
    status = wait_to_share(directory, fd, &shared, err);
    if (status == RKS_OK && shared) {
        sign(fd);
        status = add_lease(fd, leases, err);
    }
    if (status != RKS_OK || !shared)
        close(fd);
    return status;
}

rks_status rks_lease_take_alone(const char *directory, rks_lease **leases, rks_error *err)
{
    char last[TEXT_SIZE + 1];
    int fd = -1;
    rks_status status = open_lease(directory, &fd, err);
    if (status != RKS_OK)
        return status;
    int error = fd < 0 ? EACCES : lock_now(fd, LOCK_EX);
    if (error == EWOULDBLOCK) {
        read_sign(fd, last);
        status =
            rks_fail(err, RKS_ERR_STATE, error,
                     "%s: a process has it open%s%s; end it first, or wait for its end", directory,
                     last[0] == '\0' ? "" : "; the last one that opened it is ", last);
    } else if (is_without_locks(error)) {
        status = rks_fail(err, RKS_ERR_UNSUPPORTED, error,
                          "%s: this file system has no locks, so nobody knows who has it open; "
                          "remove the directory when no job runs",
                          directory);
    } else if (error != 0) {
        status = rks_fail_errno(err, error, "%s/%s: locking", directory, RKS_LEASE_FILE);
    }
    if (status == RKS_OK)
        status = add_lease(fd, leases, err);
    if (status != RKS_OK && fd >= 0)
        close(fd);
    return status;
}

void rks_leases_end(rks_lease *leases)
{
    while (leases != NULL) {
        rks_lease *next = leases->next;
        if (leases->owner == getpid())
            flock(leases->fd, LOCK_UN); /* forked children keep the file open */
        close(leases->fd);
        rks_free(leases);
        leases = next;
    }
}
