/* SPDX-License-Identifier: Apache-2.0
 *
 * admission.h: lets strangers in: connections that are not proven. */
#ifndef RKS_TRANSPORT_ADMISSION_H
#define RKS_TRANSPORT_ADMISSION_H

#include <stdint.h>

#include "transport/call.h"

typedef struct rks_connection rks_connection;

/* Connections that are accepted but not proven. Those without a hello are in lines by their origin
 * (rks_stream_origin). */
enum { RKS_LOBBY_LINES = 256 };
typedef struct rks_line {
    rks_connection *first, *last; /* oldest first */
    uint32_t count;
} rks_line;
typedef struct rks_admission {
    rks_line silent[RKS_LOBBY_LINES];
    rks_line heard; /* those whose hello had the right tag */
    uint32_t count, max;
    uint64_t salt; /* random, so that nobody can choose a line */
} rks_admission;

/* Accepts connections that wait, as far as the admission has room. */
void rks_engine_admit(rks_engine *engine);
/* Returns the line of silent connections of this origin. */
rks_line *rks_admission_line(rks_admission *admission, uint64_t origin);
/* Of rks_connection_events: adds an accepted connection; records that its hello had the right tag;
 * removes it when it is proven or over. */
void rks_admission_enter(rks_connection *connection);
void rks_admission_heard(rks_connection *connection);
void rks_admission_leave(rks_connection *connection);
void rks_admission_incoming(void *engine); /* an event of rks_net_events */
/* Starts to accept connections. */
void rks_admission_join(rks_engine *engine, rks_command *command);

#endif
