/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.h: frames between ranks. One thread owns all connections of a rank; callers post to its
 * mailbox. Connections open on first use and prove the job's secret before anything else is
 * listened to. Two ways to speak: a request, which has one reply, and a note, which has none.
 *
 * Silence    A connection with requests outstanding, or one that is kept (rks_engine_keep), is
 *            pinged every T/3; a peer that sends nothing for T is lost. Slowness is not silence:
 *            any byte counts.
 * Loss       A lost peer fails its outstanding requests with RKS_ERR_PEER (connection closed or
 *            reset, proof refused) or RKS_ERR_TIMEOUT (silence), naming rank, host and phase.
 * Bounds     A frame above the limit of its kind is refused before allocation; queued replies and
 *            connections that have not proved themselves are capped (newcomers.c). A peer is asked for
 *            32 MiB at a time, and serves 4 requests for each of its I/O threads at a time.
 * Order      Notes of one peer to another arrive in the order in which they were sent, and before
 *            the news that the peer has closed.
 * Fork       A child must not use its parent's engine.
 */
#ifndef RKS_TRANSPORT_ENGINE_H
#define RKS_TRANSPORT_ENGINE_H

#include <sys/uio.h>

#include "base/secret.h"
#include "transport/call.h"

typedef struct rks_request rks_request;
/* How bytes travel between ranks: net.h. */
typedef struct rks_transport rks_transport;

/* Where a rank listens: what the bootstrap hands round. 64 bytes of plain data. */
typedef struct rks_address {
    uint8_t kind; /* 0 none, 1 IPv4, 2 IPv6, 3 memory of this process */
    uint8_t reserved;
    uint16_t port;  /* host byte order */
    uint32_t scope; /* IPv6 scope */
    uint8_t ip[16];
    char host[32]; /* for messages */
    uint8_t pad[8];
} rks_address;

enum { RKS_NOTE_MAX = (1 << 20) + 4096 }; /* body bytes of a note */

typedef struct rks_engine_options {
    uint32_t rank;
    uint32_t size;
    uint32_t silence_ms;            /* T */
    uint32_t io_threads;            /* serve requests; default 16, from 1 */
    uint64_t max_frame;             /* body bytes of a reply; default 1 GiB + 1 MiB */
    uint64_t max_request;           /* of a request, from 4096; default 4 MiB; also notes' if less
                                     * than RKS_NOTE_MAX */
    const char *listen;             /* address or interface name; NULL: loopback */
    uint32_t newcomers;             /* connections that may not have proved themselves yet; 0: four
                                     * a rank, at least 2048, less if descriptors are few */
    bool authenticate;              /* all frames; default: those between hosts */
    bool encrypt;                   /* all frames but those in memory; default no */
    const rks_transport *transport; /* default rks_tcp (tcp.h); outlives the engine */
} rks_engine_options;

void rks_engine_options_default(rks_engine_options *options);

/* Listens and starts the thread. Nobody is let in before rks_engine_join. */
rks_status rks_engine_open(const rks_engine_options *options, rks_engine **engine, rks_error *err);
const rks_address *rks_engine_address(const rks_engine *engine);
/* Before rks_engine_join: each two ranks have a key of their own, made of the job's secret, this
 * rank's private key and the other's public one (rks_key_pair). `public_keys` has
 * RKS_KEY_SIZE bytes for each rank. Both are copied. Without it the secret is the key of all. */
rks_status rks_engine_set_keys(rks_engine *engine, const uint8_t private_key[RKS_KEY_SIZE],
                               const uint8_t *public_keys, rks_error *err);
/* Peers, session and secret, once known; `addresses` has `size` entries and is copied. */
rks_status rks_engine_join(rks_engine *engine, const rks_address *addresses,
                           const uint8_t session[16], const uint8_t secret[RKS_SECRET_SIZE],
                           rks_error *err);
/* Outstanding requests end with RKS_ERR_STATE at once. Waits for the calls of services that are
 * running; then flushes notes and replies, also those that callbacks queued meanwhile, says goodbye
 * and waits for the peers' end, for at most `linger_ms`; closes everything and joins the threads.
 * A request that is still being served may be answered later. Not from a callback. NULL is
 * accepted. */
void rks_engine_close(rks_engine *engine, uint32_t linger_ms);

/* ---- serving ------------------------------------------------------------------------ */

/* Services have small numbers, one user each. */
enum rks_service {
    RKS_SERVICE_GROUP = 1,  /* collectives: notes */
    RKS_SERVICE_FETCH = 2,  /* samples: requests */
    RKS_SERVICE_INDEX = 3,  /* index segments: requests */
    RKS_SERVICE_KEYS = 4,   /* full keys: requests */
    RKS_SERVICE_STORE = 5,  /* the store's life: notes */
    RKS_SERVICE_SLOTS = 16, /* from here: three for each open store, by its slot */
    RKS_SERVICES = 256,
};

/* Called on an I/O thread; ends with exactly one rks_request_reply or rks_request_fail, then or
 * later, on any thread, also after the engine was closed (the answer is then dropped). */
typedef void (*rks_serve_fn)(void *user, rks_request *request);
/* Called on the engine thread: must not wait. `body` is valid during the call. */
typedef void (*rks_note_fn)(void *user, uint32_t from, const uint8_t *body, size_t size);

/* Either may be NULL. Set before peers can ask, or while they are: both NULL waits until no call is
 * running, and refuses what comes later with RKS_ERR_STATE ("not open"). A note that comes while
 * nobody takes it is dropped and counted as a stray. Not from a call of the service itself. */
void rks_engine_serve(rks_engine *engine, enum rks_service service, rks_serve_fn serve,
                      rks_note_fn note, void *user);

/* Called on the engine thread, before `serve` would be: must not wait. True: it has ended the
 * request, as `serve` does; false: it has not, and `serve` is called. Set after rks_engine_serve,
 * whose next call for the service takes it away. */
typedef bool (*rks_quick_fn)(void *user, rks_request *request);
void rks_engine_serve_quick(rks_engine *engine, enum rks_service service, rks_quick_fn quick);

uint32_t rks_request_sender(const rks_request *request);
const uint8_t *rks_request_body(const rks_request *request, size_t *size);
/* Replies with the parts, sent from where they lie; `release` (may be NULL) is called once, on the
 * engine thread (or, after its end, inside this call), when they are no longer needed. Frees the
 * request. The array is copied, the bytes are not. */
void rks_request_reply(rks_request *request, const struct iovec *parts, size_t count,
                       void (*release)(void *user), void *user);
/* The same without a copy of the array: parts[0] is the engine's, for the frame's header, and
 * parts[1] to parts[count - 1] are the reply. All of it stays as it is until `release`. */
void rks_request_reply_with(rks_request *request, struct iovec *parts, size_t count,
                            void (*release)(void *user), void *user);
void rks_request_fail(rks_request *request, const rks_error *err);

/* ---- asking -------------------------------------------------------------------------- */

/* As rks_call_ops. */
typedef struct rks_reply_sink {
    void *(*place)(void *user, size_t size);
    void (*come)(void *user);
    void (*done)(void *user, const rks_error *err);
    void *user;
} rks_reply_sink;

/* Sends a request, which is the caller's memory (call.h): nothing is allocated or copied. Never
 * blocks; a failure that is known at once is returned, no op is called, and the call stays the
 * caller's. */
rks_status rks_engine_call(rks_engine *engine, rks_call *call, rks_error *err);
/* The same for `first` and those that follow it by `next`: what goes to one peer goes out in one
 * write. On failure all of them stay the caller's. */
rks_status rks_engine_call_all(rks_engine *engine, rks_call *first, rks_error *err);

/* The same with memory of its own; the body is copied. */
rks_status rks_engine_request(rks_engine *engine, uint32_t peer, enum rks_service service,
                              const void *body, size_t size, const char *phase,
                              const rks_reply_sink *sink, rks_error *err);

/* The same, waiting: *reply is allocated (rks_free). Limit on its size: `max_reply`. */
rks_status rks_engine_ask(rks_engine *engine, uint32_t peer, enum rks_service service,
                          const void *body, size_t size, size_t max_reply, const char *phase,
                          uint8_t **reply, size_t *reply_size, rks_error *err);

/* Queues a note; the body is copied. A lost peer is reported by the watch, not here: notes to a
 * peer that is not kept may be lost with their connection. */
rks_status rks_engine_note(rks_engine *engine, uint32_t peer, enum rks_service service,
                           const void *body, size_t size, rks_error *err);

/* ---- life of peers ---------------------------------------------------------------------- */

/* Keeps a connection to `peer` open and beats on it, in both directions. */
rks_status rks_engine_keep(rks_engine *engine, uint32_t peer, rks_error *err);
/* Called on the engine thread when a kept connection, or one that the peer keeps, is lost; once for
 * each peer, which is then not tried again. A peer that closed in order (rks_engine_close) gives
 * status RKS_OK. Set it before the first rks_engine_keep. NULL waits until no call is running. */
typedef void (*rks_lost_fn)(void *user, uint32_t peer, const rks_error *err);
void rks_engine_watch(rks_engine *engine, rks_lost_fn lost, void *user);

/* Marks a peer as failed, as somebody else found: outstanding and later requests to it fail with
 * *err. Notes still go out, since the peer may be well. */
void rks_engine_give_up(rks_engine *engine, uint32_t peer, const rks_error *err);

typedef struct rks_engine_stats {
    uint64_t bytes_sent, bytes_received; /* frames with headers */
    uint64_t frames_sent, frames_received;
    uint64_t refused; /* connections that failed the hello */
    uint64_t strays;  /* replies that nobody waited for */
} rks_engine_stats;
void rks_engine_stats_get(rks_engine *engine, rks_engine_stats *stats);

#endif
