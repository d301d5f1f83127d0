/* SPDX-License-Identifier: Apache-2.0
 *
 * fetch_server.h: serves the records of this rank's shards to other ranks: the owner's side. */
#ifndef RKS_FETCH_FETCH_SERVER_H
#define RKS_FETCH_FETCH_SERVER_H

#include "fetch/arriving.h"
#include "shard/shard.h"
#include "transport/engine.h"

typedef struct rks_fetch_server rks_fetch_server;
/* Serves records of the shards, by shard and row, on `service`; each open store has a service of
 * its own. wire.c draws request and reply. `shards` is indexed as the dataset's list, with NULL for
 * shards that this rank does not have. Copies the array; the caller keeps the shards. `readers` is
 * the number of ranks of the job: if they read a file in order, each asks for every `readers`-th
 * batch of it, and the owner reads the file as one stream. */
rks_status rks_fetch_server_open(rks_engine *engine, enum rks_service service,
                                 rks_shard *const *shards, size_t count, uint32_t readers,
                                 rks_fetch_server **server, rks_error *err);
/* Some shards still arrive: requests for rows that are not here are put aside until they are.
 * `arriving` and its arrivals outlive the server. Call it before other ranks send requests; stop
 * the arrivals before the server closes. */
rks_status rks_fetch_server_expect(rks_fetch_server *server, const rks_arriving *arriving,
                                   rks_error *err);
/* Stops serving and reading, and waits until no reply uses the maps. NULL is accepted. Returns
 * false if a thread hangs in the storage: server and maps must stay then. */
bool rks_fetch_server_close(rks_fetch_server *server);
/* Returns the column and key bytes that it has sent. */
uint64_t rks_fetch_server_bytes(const rks_fetch_server *server);
/* Forgets which pages are in memory. */
void rks_fetch_server_forget_cache(rks_fetch_server *server);
/* Returns the disk requests and bytes that it has read for other ranks. */
void rks_fetch_server_disk(const rks_fetch_server *server, uint64_t *reads, uint64_t *bytes);

#endif
