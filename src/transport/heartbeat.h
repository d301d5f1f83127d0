/* SPDX-License-Identifier: Apache-2.0
 *
 * heartbeat.h: the alarm of the engine thread. */
#ifndef RKS_TRANSPORT_HEARTBEAT_H
#define RKS_TRANSPORT_HEARTBEAT_H

#include "transport/engine_state.h"

void rks_heartbeat_alarm(void *engine); /* an event of rks_net_events */

#endif
