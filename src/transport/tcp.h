/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp.h: TCP, between processes and hosts, and Unix sockets, between processes of one machine. Only
 * tcp.c includes uv.h. No call raises SIGPIPE if the loop's thread has blocked it. */
#ifndef RKS_TRANSPORT_TCP_H
#define RKS_TRANSPORT_TCP_H

#include <stdatomic.h>

#include "transport/net.h"
#include "transport/unix_socket.h"

extern const rks_transport rks_tcp;

/* Unix sockets of one name. One engine listens, as rank 0 of 1. The others do not: they are that
 * rank, too, and ask it as it may ask itself (peer.h). */
typedef struct rks_unix_transport {
    rks_transport transport; /* first */
    uint8_t name[RKS_UNIX_NAME];
    bool listens;
    atomic_int fd; /* the listening descriptor; -1: none. A forked child closes it: the name lives
                    * as long as one is open */
} rks_unix_transport;

void rks_unix_transport_init(rks_unix_transport *made, const uint8_t name[RKS_UNIX_NAME],
                             bool listens);

/* Returns libuv's version, a static string. */
const char *rks_tcp_library(void);

#endif
