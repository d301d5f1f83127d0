/* SPDX-License-Identifier: Apache-2.0
 *
 * hub.h: where engines of one process find each other, for ranks that are threads. A connection is
 * a socket pair; everything else (handshake, frames, silence) is as between processes. The
 * launcher of the threads owns the hub and gives it to each engine in rks_engine_options; it
 * outlives them. Any thread. */
#ifndef RKS_TRANSPORT_HUB_H
#define RKS_TRANSPORT_HUB_H

#include "transport/engine.h"

typedef struct rks_hub rks_hub;

rks_status rks_hub_create(rks_hub **hub, rks_error *err);
/* NULL is accepted. */
void rks_hub_free(rks_hub *hub);

/* For engines. Takes one end of a connection; false: the engine does not want it, and the end stays
 * the caller's. Called on the connecting engine's thread; must not wait. */
typedef bool (*rks_hub_incoming_fn)(void *user, int fd);
/* *id, never used again, goes into the engine's address. */
rks_status rks_hub_register(rks_hub *hub, rks_hub_incoming_fn incoming, void *user, uint64_t *id,
                            rks_error *err);
/* No call of `incoming` is running when this returns. */
void rks_hub_unregister(rks_hub *hub, uint64_t id);
/* 0, or an errno value: ECONNREFUSED if nobody is registered as `id`. */
int rks_hub_connect(rks_hub *hub, uint64_t id, int *fd);

#endif
