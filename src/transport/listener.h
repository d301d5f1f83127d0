/* SPDX-License-Identifier: Apache-2.0
 *
 * listener.h: sockets that listen, and addresses. */
#ifndef RKS_TRANSPORT_LISTENER_H
#define RKS_TRANSPORT_LISTENER_H

#include "transport/net.h"

struct sockaddr_storage;
/* Opens a listening socket on `where` (see rks_engine_options), and sets its address. */
rks_status rks_listen(const char *where, int *fd, rks_address *address, rks_error *err);
void rks_address_to_socket(const rks_address *address, struct sockaddr_storage *socket);
/* Prints "10.0.0.1:4000". */
void rks_address_format(const rks_address *address, char *text, size_t size);

#endif
