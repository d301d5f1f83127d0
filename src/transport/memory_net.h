/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_net.h: a transport between ranks that are threads of one process. It uses pipes in memory
 * and no descriptors. Handshake, frames and silence work as between processes.
 *
 * Rules make the pipes behave like a network: bytes take time, reads and writes are short, and
 * connections break. Time is rks_now_ns, so a program with its own clock controls all of it. */
#ifndef RKS_TRANSPORT_MEMORY_NET_H
#define RKS_TRANSPORT_MEMORY_NET_H

#include "transport/engine.h"

#define RKS_NEVER UINT64_MAX

/* Any function may be NULL. They are called on the loops' threads and must not wait. */
typedef struct rks_memory_rules {
    void *user;
    /* Returns how many nanoseconds `size` bytes, just written, take from rank `from` to rank `to`;
     * size 0 stands for a connection being opened. Bytes of one connection never overtake each
     * other. RKS_NEVER: these bytes and all later ones never arrive. */
    uint64_t (*delay_ns)(void *user, uint32_t from, uint32_t to, size_t size);
    /* Returns how many of `size` bytes one read or write moves: 1 to `size`; for a write also 0. */
    size_t (*some)(void *user, uint32_t from, uint32_t to, size_t size, bool writing);
} rks_memory_rules;

/* Creates a transport, which the caller owns and which must outlive its engines. `rules` may be
 * NULL and is copied. */
rks_status rks_memory_transport_create(const rks_memory_rules *rules, rks_transport **transport,
                                       rks_error *err);
/* Frees a transport whose engines are closed. NULL is accepted. */
void rks_memory_transport_free(rks_transport *transport);

/* How a connection breaks. */
typedef enum rks_memory_cut {
    RKS_CUT_RESET, /* both ends are reset */
    RKS_CUT_END,   /* both read the end, without an error */
    RKS_CUT_HALF,  /* one end is reset; the other one notices when that one closes, or when it
                    * writes */
    RKS_CUTS,
} rks_memory_cut;

/* Breaks the connections between two ranks, for RKS_CUT_HALF at the end of `one`. Bytes in transit
 * are lost. The ranks may connect again. Any thread. */
void rks_memory_transport_cut(rks_transport *transport, uint32_t one, uint32_t other,
                              rks_memory_cut how);
/* Resets all connections of a rank, and makes all later ones from or to it fail. Any thread. */
void rks_memory_transport_kill(rks_transport *transport, uint32_t rank);

#endif
