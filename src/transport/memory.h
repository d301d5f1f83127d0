/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h: a transport between ranks that are threads of one process: pipes in memory, without
 * descriptors. Everything above it (handshake, frames, silence) is as between processes.
 *
 * Rules make the pipes behave like a network: bytes take time, few are taken at once, and
 * connections break. Time is rks_now_ns, so a program that brings its own clock decides about all
 * of it. */
#ifndef RKS_TRANSPORT_MEMORY_H
#define RKS_TRANSPORT_MEMORY_H

#include "transport/engine.h"

#define RKS_NEVER UINT64_MAX

/* Any function may be NULL. Called on the loop's threads; they must not wait. */
typedef struct rks_memory_rules {
    void *user;
    /* How long bytes take from rank `from` to rank `to`: `size` of them have just been written; 0:
     * a connection is being made. Bytes of one connection never overtake each other. RKS_NEVER:
     * they, and all behind them, do not arrive. */
    uint64_t (*delay_ns)(void *user, uint32_t from, uint32_t to, size_t size);
    /* How many of `size` bytes are written or read at once: 1 to `size`; for a write also 0. */
    size_t (*some)(void *user, uint32_t from, uint32_t to, size_t size, bool writing);
} rks_memory_rules;

/* The caller owns *transport; it outlives the engines. rules (copied) may be NULL. */
rks_status rks_memory_transport_create(const rks_memory_rules *rules, rks_transport **transport,
                                       rks_error *err);
/* NULL is accepted. */
void rks_memory_transport_free(rks_transport *transport);

/* Any thread. Resets the connections between two ranks: bytes on their way are lost. New ones can
 * be made. */
void rks_memory_transport_cut(rks_transport *transport, uint32_t one, uint32_t other);
/* Any thread. Resets all connections of a rank; nobody connects to it any more, nor does it. */
void rks_memory_transport_kill(rks_transport *transport, uint32_t rank);

#endif
