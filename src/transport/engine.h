/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.h: frames between ranks. One thread owns all connections of a rank; callers post commands
 * to its mailbox. A connection opens on first use. Each side must prove the job's secret before the
 * other accepts any other frame. A rank sends requests, which have one reply each, and notes, which
 * have none.
 *
 * Silence    T is the option silence_ms. The engine pings a connection every T/3 if it has
 *            outstanding requests or is kept (rks_engine_keep). A peer that sends nothing for T is
 *            lost. A slow peer is not silent: any byte counts.
 * Breaks     A connection that breaks (reset, ended without a goodbye, bytes changed in transit) is
 *            made again. Requests without a reply are sent again: a service may see one twice.
 *            Notes arrive once. peer.h has the laws.
 * Loss       The outstanding requests of a lost peer fail with RKS_ERR_PEER (its rank refuses
 *            connections; proof refused; the link breaks again and again: cause ENOLINK) or
 *            RKS_ERR_TIMEOUT (silence). The error names rank, host and phase, and says what was
 *            seen.
 * Bounds     The engine refuses a frame above the limit of its type before it allocates memory. It
 *            caps queued replies and unproven connections (admission.c). It sends a peer at most 32
 *            MiB of unanswered requests, and serves each peer at most 4 requests per I/O thread at
 *            a time.
 * Order      Notes from one peer to another arrive in the order in which they were sent, and before
 *            the report that the peer has closed.
 * Fork       A child must not use its parent's engine.
 */
#ifndef RKS_TRANSPORT_ENGINE_H
#define RKS_TRANSPORT_ENGINE_H

#include <sys/uio.h>

#include "base/secret.h"
#include "transport/call.h"

typedef struct rks_request rks_request;
/* How bytes travel between ranks: see net.h. */
typedef struct rks_transport rks_transport;

/* The address a rank listens on. The bootstrap sends it to all ranks. 64 bytes of plain data. */
typedef struct rks_address {
    uint8_t kind; /* 0 none, 1 IPv4, 2 IPv6, 3 memory of this process, or RKS_ADDRESS_UNIX */
    uint8_t reserved;
    uint16_t port;  /* host byte order */
    uint32_t scope; /* IPv6 scope */
    uint8_t ip[16];
    char host[32]; /* for messages */
    uint8_t pad[8];
} rks_address;

enum { RKS_ADDRESS_UNIX = 4 };            /* a Unix socket, whose name is `ip` */
enum { RKS_NOTE_MAX = (1 << 20) + 4096 }; /* most body bytes of a note */

typedef struct rks_engine_options {
    uint32_t rank;
    uint32_t size;
    uint32_t silence_ms;            /* T, in milliseconds, at least 100; default 15000 */
    uint32_t io_threads;            /* threads that serve requests, 1 to 1024; default 16 */
    uint64_t max_frame;             /* most body bytes of a reply, at least 4096; default 1 GiB +
                                     * 1 MiB */
    uint64_t max_request;           /* most body bytes of a request, at least 4096; default 4 MiB;
                                     * also the limit of notes if it is below RKS_NOTE_MAX */
    const char *listen;             /* address or interface name; NULL: loopback */
    uint32_t newcomers;             /* most unproven connections; 0: four a rank, at least 2048,
                                     * fewer if the process may open few descriptors */
    bool authenticate;              /* authenticate all frames; default: only between hosts */
    bool encrypt;                   /* encrypt all frames except those in memory; default no */
    const rks_transport *transport; /* default rks_tcp (tcp.h); must outlive the engine */
} rks_engine_options;

/* Sets the defaults: rank 0 of 1, and the values above. */
void rks_engine_options_default(rks_engine_options *options);

/* Opens an engine: listens and starts its thread. Peers may connect, but the engine accepts none
 * before rks_engine_join. Returns RKS_ERR_ARGUMENT if an option is out of range, and RKS_ERR_IO if
 * the process may not open enough descriptors or the address cannot be bound. Close it with
 * rks_engine_close. */
rks_status rks_engine_open(const rks_engine_options *options, rks_engine **engine, rks_error *err);
const rks_address *rks_engine_address(const rks_engine *engine);
/* Gives each pair of ranks a key of its own, derived from the job's secret, this rank's private key
 * and the other rank's public key (rks_key_pair). Call it before rks_engine_join. `public_keys` has
 * RKS_KEY_SIZE bytes for each rank. Copies both. Without this call all ranks use the secret as
 * their key. */
rks_status rks_engine_set_keys(rks_engine *engine, const uint8_t private_key[RKS_KEY_SIZE],
                               const uint8_t *public_keys, rks_error *err);
/* Sets the addresses of all ranks, the session and the secret, and starts to accept connections.
 * `addresses` has `size` entries. Copies all three. Returns RKS_ERR_STATE if the engine has already
 * joined. */
rks_status rks_engine_join(rks_engine *engine, const rks_address *addresses,
                           const uint8_t session[16], const uint8_t secret[RKS_SECRET_SIZE],
                           rks_error *err);
/* Closes the engine and joins its threads. In order:
 *   1. ends outstanding requests with RKS_ERR_STATE
 *   2. waits for running calls of services
 *   3. sends queued notes and replies, also those that callbacks have queued meanwhile, waits until
 *      the peers have acknowledged the notes, says bye, and waits for the peers to close; for at
 *      most `linger_ms` milliseconds
 * A service may still answer a request afterwards; the answer is dropped. Do not call it from a
 * callback. NULL is accepted. */
void rks_engine_close(rks_engine *engine, uint32_t linger_ms);

/* ---- serving ------------------------------------------------------------------------ */

/* Services have small numbers and one user each. */
enum rks_service {
    RKS_SERVICE_GROUP = 1,   /* collectives: notes */
    RKS_SERVICE_FETCH = 2,   /* samples: requests */
    RKS_SERVICE_INDEX = 3,   /* index segments: requests */
    RKS_SERVICE_KEYS = 4,    /* full keys: requests */
    RKS_SERVICE_STORE = 5,   /* open, close and failure of the store: notes */
    RKS_SERVICE_FILES = 6,   /* files of shards, for further copies: requests */
    RKS_SERVICE_WORKERS = 7, /* worker processes of this rank: requests */
    RKS_SERVICE_STORES = 16, /* first of three numbers for each open store, by its number */
    RKS_SERVICES = 256,
};

/* Serves a request; called on an I/O thread. It may see the same request twice, if a connection
 * broke. Call rks_request_reply or rks_request_fail exactly
 * once for it, at once or later, on any thread, even after the engine was closed (the answer is
 * then dropped). */
typedef void (*rks_serve_fn)(void *user, rks_request *request);
/* Takes a note; called on the engine thread, so it must not wait. `body` is valid during the
 * call. */
typedef void (*rks_note_fn)(void *user, uint32_t from, const uint8_t *body, size_t size);

/* Sets the functions of a service; either may be NULL. Call it before peers can send to the
 * service, or while they do. If both are NULL, closes the service: waits until none of its calls is
 * running, except on the engine thread, and refuses later requests with RKS_ERR_PEER ("not open").
 * Returns false if a call still runs after T, as with storage that hangs: it may use `user` later.
 * A service without `serve` refuses requests with RKS_ERR_STATE. Notes without a `note` are dropped
 * and counted as strays. Do not close a service from one of its own calls. */
bool rks_engine_serve(rks_engine *engine, enum rks_service service, rks_serve_fn serve,
                      rks_note_fn note, void *user);

/* Tries to serve a request without waiting; called on the engine thread before `serve`. Returns
 * true if it has ended the request, as `serve` does; on false the engine calls `serve`. Call
 * rks_engine_serve_quick after rks_engine_serve; the next rks_engine_serve of the service clears
 * it. */
typedef bool (*rks_quick_fn)(void *user, rks_request *request);
void rks_engine_serve_quick(rks_engine *engine, enum rks_service service, rks_quick_fn quick);

/* Returns the rank that sent the request. */
uint32_t rks_request_sender(const rks_request *request);
/* Returns the body, which is valid until the request is answered. */
const uint8_t *rks_request_body(const rks_request *request, size_t *size);
/* The request waits for something that comes on another thread: its sender's next requests are
 * served meanwhile, as if it were answered; its bytes still count (RKS_ASKED_MAX). Call it on the
 * thread that serves the request, before another one may answer it. A second call does nothing. */
void rks_request_aside(rks_request *request);
/* Sends the parts as the reply and frees the request. Copies the array but not the bytes. Calls
 * `release` (may be NULL) once, when the bytes are no longer needed: on the engine thread, or
 * inside this call if that thread has ended. A reply above max_frame fails the request with
 * RKS_ERR_DATA. */
void rks_request_reply(rks_request *request, const struct iovec *parts, size_t count,
                       void (*release)(void *user), void *user);
/* Does the same without copying the array. The engine writes the frame's header to parts[0];
 * parts[1] to parts[count - 1] are the reply. Array and bytes must stay unchanged until
 * `release`. */
void rks_request_reply_with(rks_request *request, struct iovec *parts, size_t count,
                            void (*release)(void *user), void *user);
/* Answers with an error, which is copied, and frees the request. The asking call's `done` gets the
 * error with this rank and host. */
void rks_request_fail(rks_request *request, const rks_error *err);

/* ---- asking -------------------------------------------------------------------------- */

/* The same functions as in rks_call_ops, with a user pointer. */
typedef struct rks_reply_sink {
    void *(*place)(void *user, size_t size);
    void (*come)(void *user);
    void (*done)(void *user, const rks_error *err);
    void *user;
} rks_reply_sink;

/* Sends a request. The call is the caller's memory (call.h); the engine allocates and copies
 * nothing. Never blocks. If it returns an error, it calls no function of the call's ops, and the
 * call stays the caller's: RKS_ERR_STATE before rks_engine_join or during close, RKS_ERR_ARGUMENT
 * for a wrong peer or service or a body above max_request. */
rks_status rks_engine_call(rks_engine *engine, rks_call *call, rks_error *err);
/* Sends `first` and the calls linked after it by `next`. Requests to the same peer leave in one
 * write, and replies that are ready together come back in one: many small ones cost a frame each,
 * and no system call each. On failure the caller keeps all of them. */
rks_status rks_engine_call_all(rks_engine *engine, rks_call *first, rks_error *err);

/* A request before it is sent. */
typedef struct rks_outgoing {
    enum rks_service service;
    const void *body;
    size_t size;
    const char *phase; /* for messages; must outlive the call */
} rks_outgoing;

/* Sends a request from memory that the engine allocates; copies the body. On failure calls no
 * function of the sink. */
rks_status rks_engine_request(rks_engine *engine, uint32_t peer, const rks_outgoing *request,
                              const rks_reply_sink *sink, rks_error *err);

/* Sends a request and waits for its reply. On success *reply is allocated; free it with rks_free. A
 * reply above `max_reply` bytes is RKS_ERR_PEER. Checks for interrupts. Do not call it on the
 * engine thread. */
rks_status rks_engine_ask(rks_engine *engine, uint32_t peer, const rks_outgoing *request,
                          size_t max_reply, uint8_t **reply, size_t *reply_size, rks_error *err);

/* Queues a note; copies the body. Does not report a lost peer; rks_engine_watch does. The engine
 * keeps the copy until the peer has acknowledged it (notes.h). */
rks_status rks_engine_note(rks_engine *engine, uint32_t peer, enum rks_service service,
                           const void *body, size_t size, rks_error *err);

/* ---- life of peers ---------------------------------------------------------------------- */

/* Keeps a connection to `peer` open. Both sides watch it for silence. */
rks_status rks_engine_keep(rks_engine *engine, uint32_t peer, rks_error *err);
/* Reports that a peer is lost whose connection this rank or the peer keeps; called on the engine
 * thread, once for each peer. The engine does not try that peer again. If the peer closed in order
 * (rks_engine_close), err->status is RKS_OK. Set the function before the first rks_engine_keep.
 * NULL clears it, and waits until no call is running. */
typedef void (*rks_lost_fn)(void *user, uint32_t peer, const rks_error *err);
void rks_engine_watch(rks_engine *engine, rks_lost_fn lost, void *user);

/* Marks a peer as failed because the caller knows of its failure. Outstanding and later requests to
 * it fail with *err, which is copied. Notes are still sent, since the peer may be well. */
void rks_engine_give_up(rks_engine *engine, uint32_t peer, const rks_error *err);

typedef struct rks_engine_stats {
    uint64_t bytes_sent, bytes_received; /* frames with their headers */
    uint64_t frames_sent, frames_received;
    uint64_t refused; /* incoming connections that this rank has refused */
    uint64_t strays;  /* replies, errors and notes that nobody waited for */
} rks_engine_stats;
void rks_engine_stats_get(rks_engine *engine, rks_engine_stats *stats);

#endif
