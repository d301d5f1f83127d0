/* SPDX-License-Identifier: Apache-2.0
 *
 * unix_socket.h: sockets with a name, between processes of one machine. The name is abstract: it is
 * no file, and goes with the process that listens, however that ends. Anybody on the machine can
 * connect to it, so each side looks whether the other's user is its own.
 *
 * Errors are errno values. */
#ifndef RKS_TRANSPORT_UNIX_SOCKET_H
#define RKS_TRANSPORT_UNIX_SOCKET_H

#include "transport/engine.h"

enum { RKS_UNIX_NAME = 16 }; /* bytes of rks_address.ip that make a name */

/* Opens a listening socket under the address's name. */
int rks_unix_listen(const rks_address *address, int *fd);
/* Connects. Returns EAGAIN if too many others wait to be accepted, and ECONNREFUSED if nobody
 * listens, or another user. */
int rks_unix_connect(const rks_address *address, int *fd);
/* Returns true if the process at the other end is of this process's user. */
bool rks_unix_is_own_user(int fd);

#endif
