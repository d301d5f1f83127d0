/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp.h: TCP, between processes and hosts. Only tcp.c includes uv.h. No call raises SIGPIPE if the
 * loop's thread has blocked it. */
#ifndef RKS_TRANSPORT_TCP_H
#define RKS_TRANSPORT_TCP_H

#include "transport/engine.h"

extern const rks_transport rks_tcp;

/* Returns libuv's version, a static string. */
const char *rks_tcp_library(void);

#endif
