/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/worker.h: worker processes ask the process that opened a dataset. Part of rankstore.h.
 *
 *   service   of that process: answers requests on threads of its own
 *   link      of a worker: asks
 *
 * Wire       That of the ranks (handshake with a secret, framed requests and replies, pings), over
 *            a Unix socket with an abstract name. The worker speaks as the rank that it belongs to,
 *            so any number of them may ask. What requests and replies hold is the caller's.
 * Strangers  A process of another user is refused, also one that has the token; one without the
 *            token gets no memory and no thread.
 * Silence    A service answers pings while its functions run, whatever they wait for. A link whose
 *            service is silent for `silence_ms` (its process is stopped) fails with
 *            RKS_ERR_TIMEOUT; one whose service has closed or ended, with RKS_ERR_STATE.
 * Fork       A child may only call rks_worker_service_forget. */
#ifndef RANKSTORE_WORKER_H
#define RANKSTORE_WORKER_H

#include "rankstore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rks_worker_service rks_worker_service;
typedef struct rks_worker_link rks_worker_link;
typedef struct rks_worker_reply rks_worker_reply;

/* Answers a request: asks for room, and writes the reply to it. Called on one of the service's
 * threads, for several requests at a time. `request` is valid during the call. An error means that
 * the request could not be answered at all; what went wrong with its subject belongs into the
 * reply. */
typedef rks_status (*rks_worker_serve_fn)(void *user, const void *request, size_t size,
                                          rks_worker_reply *reply, rks_error *err);
/* Returns memory for a reply of `size` bytes, aligned to 16 bytes; NULL, with *err, if there is
 * none. The service frees it. Call it once. */
RKS_API void *rks_worker_reply_room(rks_worker_reply *reply, size_t size, rks_error *err);

typedef struct rks_worker_service_options {
    size_t struct_size;
    rks_worker_serve_fn serve;
    void *user;
    uint64_t max_request; /* most bytes of a request; default 4 MiB */
    uint32_t silence_ms;  /* default 15,000, from 100 */
    uint32_t threads;     /* most requests served at a time, started when needed; default 64, from
                           * 1 to 1024 */
} rks_worker_service_options;
RKS_API void rks_worker_service_options_default(rks_worker_service_options *options);

/* Opens a service under a name that nobody else has. */
RKS_API rks_status rks_worker_service_open(const rks_worker_service_options *options,
                                           rks_worker_service **service, rks_error *err);
/* Return what a worker needs: the socket's name, and a secret. Valid until the close. */
RKS_API const char *rks_worker_service_name(const rks_worker_service *service);
RKS_API const char *rks_worker_service_token(const rks_worker_service *service);
/* Refuses further requests, waits until no call of `serve` runs, and ends all connections. NULL is
 * accepted. */
RKS_API void rks_worker_service_close(rks_worker_service *service);
/* Of a forked child: closes its copy of the listening descriptor, without which the name would
 * outlive the parent. It touches nothing else. */
RKS_API void rks_worker_service_forget(rks_worker_service *service);

/* Opens a link to the service with this name and token; connects at the first request.
 * RKS_ERR_ARGUMENT if one of them is malformed. */
RKS_API rks_status rks_worker_link_open(const char *name, const char *token, uint32_t silence_ms,
                                        rks_worker_link **link, rks_error *err);
/* Sends a request and waits for its reply, aligned to 16 bytes; free it with rks_release. Checks
 * for interrupts. Threads may share a link. */
RKS_API rks_status rks_worker_link_ask(rks_worker_link *link, const void *request, size_t size,
                                       void **reply, size_t *reply_size, rks_error *err);
/* No thread may use it any more. NULL is accepted. */
RKS_API void rks_worker_link_close(rks_worker_link *link);

#ifdef __cplusplus
}
#endif

#endif
