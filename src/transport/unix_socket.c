/* SPDX-License-Identifier: Apache-2.0
 *
 * unix_socket.c: see unix_socket.h. */
#include "transport/unix_socket.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Writes the abstract name: NUL, then "rankstore-" and the digits. Returns the address's size. */
static socklen_t put_name(const rks_address *address, struct sockaddr_un *to)
{
    memset(to, 0, sizeof(*to));
    to->sun_family = AF_UNIX;
    char *at = to->sun_path + 1;
    at += sprintf(at, "rankstore-workers-");
    for (size_t i = 0; i < RKS_UNIX_NAME; i++)
        at += sprintf(at, "%02x", address->ip[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)(at - to->sun_path));
}

static int make_socket(int *fd)
{
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return *fd < 0 ? errno : 0;
}

int rks_unix_listen(const rks_address *address, int *fd)
{
    struct sockaddr_un to;
    socklen_t size = put_name(address, &to);
    int made, error = make_socket(&made);
    if (error != 0)
        return error;
    if (bind(made, (const struct sockaddr *)&to, size) != 0 || listen(made, SOMAXCONN) != 0) {
        error = errno;
        close(made);
        return error;
    }
    *fd = made;
    return 0;
}

int rks_unix_connect(const rks_address *address, int *fd)
{
    struct sockaddr_un to;
    socklen_t size = put_name(address, &to);
    int made, error = make_socket(&made);
    if (error != 0)
        return error;
    if (connect(made, (const struct sockaddr *)&to, size) != 0)
        error = errno;
    else if (!rks_unix_is_own_user(made))
        error = ECONNREFUSED;
    if (error != 0)
        close(made);
    else
        *fd = made;
    return error;
}

bool rks_unix_is_own_user(int fd)
{
    struct ucred other;
    socklen_t size = sizeof(other);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.uid == geteuid();
}
