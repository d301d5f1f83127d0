/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp.h: TCP, between processes and hosts. The only file behind it that includes uv.h is tcp.c. No
 * call raises SIGPIPE if the loop's thread has it blocked. */
#ifndef RKS_TRANSPORT_TCP_H
#define RKS_TRANSPORT_TCP_H

#include "transport/engine.h"

extern const rks_transport rks_tcp;

/* libuv's version. Static. */
const char *rks_tcp_library(void);

#endif
