/* SPDX-License-Identifier: Apache-2.0
 *
 * listener.h: sockets that listen, addresses, and how many descriptors there may be. */
#ifndef RKS_TRANSPORT_LISTENER_H
#define RKS_TRANSPORT_LISTENER_H

#include "transport/net.h"

struct sockaddr_storage;
/* Opens a listening socket on `where` (see rks_engine_options), and sets its address. */
rks_status rks_listen(const char *where, int *fd, rks_address *address, rks_error *err);
void rks_address_to_socket(const rks_address *address, struct sockaddr_storage *socket);
/* Prints "10.0.0.1:4000". */
void rks_address_format(const rks_address *address, char *text, size_t size);

/* Raises the limit on descriptors as far as possible, and checks that it suffices for a connection
 * to each rank, crossing connections of both sides, newcomers, and some to spare. Sets *newcomers
 * to the unproven connections that fit, at most as many as the options want. */
rks_status rks_fit_descriptors(const rks_net_options *options, uint32_t *newcomers, rks_error *err);

#endif
