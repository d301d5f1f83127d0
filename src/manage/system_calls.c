/* SPDX-License-Identifier: Apache-2.0
 *
 * system_calls.c: a table of calls. Nothing of a trial stays. */
#include "manage/system_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forbidden_call.h"
#include "base/shared_memory.h"

/* Each returns the errno of its call; 0: it works. */

static int try_memfd(void)
{
    int fd = memfd_create("rankstore", MFD_CLOEXEC);
    int error = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error;
}

static int try_fallocate(void)
{
    int fd = -1, error = 0;
    if (rks_shared_growing("trial", &fd, NULL) != RKS_OK)
        return 0; /* there is nothing to try it with, and memfd_create is named */
    if (fallocate(fd, 0, 0, 1) != 0)
        error = errno == EOPNOTSUPP ? 0 : errno; /* that is the file system's word */
    close(fd);
    return error;
}

static int try_mincore(void)
{
    unsigned char there;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    return mincore((void *)((uintptr_t)&there / page * page), page, &there) == 0 ? 0 : errno;
}

static int try_eventfd(void)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    int error = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error;
}

static int try_flock(void)
{
    int fd = -1, error = 0;
    if (rks_shared_growing("trial", &fd, NULL) != RKS_OK)
        return 0;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        error = errno;
    close(fd);
    return error;
}

/* glibc says EINVAL if the kernel lacks the call. */
static int try_renameat2(void)
{
    if (renameat2(AT_FDCWD, "", AT_FDCWD, "", RENAME_NOREPLACE) == 0 || errno == ENOENT)
        return 0;
    return errno == EINVAL ? ENOSYS : errno;
}

static const struct {
    const char *name;
    int (*try)(void);
    bool bad;
    const char *instead;
} calls[] = {
    {"memfd_create", try_memfd, false, "memory that ranks share lies in unnamed files"},
    {"fallocate", try_fallocate, false, "files get their room by writing zeros"},
    {"mincore", try_mincore, false, "what lies in memory is found by reading"},
    {"renameat2", try_renameat2, false, "exports replace files, but no directories"},
    {"flock", try_flock, true, "only one rank builds in a directory; allow flock"},
    {"eventfd2", try_eventfd, true,
     "several ranks and object stores do not work; allow eventfd2 and epoll_create1"},
};

static void append(char *text, size_t room, const char *between, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, room - used, "%s%s", used == 0 ? "" : between, more);
}

void rks_system_calls_try(rks_system_calls *found)
{
    *found = (rks_system_calls){0};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (!rks_call_is_forbidden(calls[i].try()))
            continue;
        append(found->forbidden, sizeof(found->forbidden), ", ", calls[i].name);
        append(found->instead, sizeof(found->instead), "; ", calls[i].instead);
        found->bad = found->bad || calls[i].bad;
    }
    int fd = -1;
    rks_error err;
    if (rks_shared_growing("memory of ranks", &fd, &err) == RKS_OK) {
        close(fd);
        return;
    }
    found->bad = true;
    append(found->instead, sizeof(found->instead), "; ", err.text);
}
