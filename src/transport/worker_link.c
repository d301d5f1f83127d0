/* SPDX-License-Identifier: Apache-2.0
 *
 * worker_link.c: both ends of rankstore/worker.h. Each is an engine of its own, rank 0 of 1: that
 * of the service listens, and those of the links ask it as a rank may ask itself (peer.h). */
#include "rankstore/worker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "transport/tcp.h"

enum {
    SESSION_SIZE = 16,
    TOKEN_SIZE = SESSION_SIZE + RKS_SECRET_SIZE,
    LINGER_MS = 200, /* for replies that are on their way */
};

static const uint64_t REPLY_MAX = (uint64_t)1 << 40; /* both sides have proved themselves */

struct rks_worker_service {
    rks_unix_transport transport;
    rks_engine *engine;
    rks_worker_serve_fn serve;
    void *user;
    char name[2 * RKS_UNIX_NAME + 1];
    char token[2 * TOKEN_SIZE + 1];
};

struct rks_worker_link {
    rks_unix_transport transport;
    rks_engine *engine;
    uint32_t silence_ms;
};

struct rks_worker_reply {
    void *bytes;
    size_t size;
};

/* ---- texts ----------------------------------------------------------------------------------- */

static void print_hex(const uint8_t *bytes, size_t size, char *text)
{
    for (size_t i = 0; i < size; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_hex(const char *text, uint8_t *bytes, size_t size)
{
    if (strlen(text) != 2 * size)
        return false;
    for (size_t i = 0; i < size; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(16 * high + low);
    }
    return true;
}

/* ---- the service ----------------------------------------------------------------------------- */

void *rks_worker_reply_room(rks_worker_reply *reply, size_t size, rks_error *err)
{
    reply->bytes = rks_alloc_raw(size == 0 ? 1 : size, 1, err);
    reply->size = size;
    return reply->bytes;
}

static void release_reply(void *bytes)
{
    rks_free(bytes);
}

static void serve_worker(void *user, rks_request *request)
{
    rks_worker_service *service = user;
    rks_worker_reply reply = {0};
    rks_error err;
    size_t size;
    const uint8_t *body = rks_request_body(request, &size);
    if (service->serve(service->user, body, size, &reply, &err) != RKS_OK) {
        rks_free(reply.bytes);
        rks_request_fail(request, &err);
        return;
    }
    const struct iovec part = {reply.bytes, reply.size};
    rks_request_reply(request, &part, 1, release_reply, reply.bytes);
}

void rks_worker_service_options_default(rks_worker_service_options *options)
{
    *options = (rks_worker_service_options){
        .struct_size = sizeof(*options),
        .max_request = 4 << 20,
        .silence_ms = 15000,
        .threads = 64,
    };
}

/* Opens an engine over the transport, which lets it join itself. */
static rks_status open_engine(rks_unix_transport *transport, const rks_engine_options *given,
                              const uint8_t token[TOKEN_SIZE], rks_engine **engine, rks_error *err)
{
    rks_engine_options options = *given;
    options.transport = &transport->transport;
    options.max_frame = REPLY_MAX;
    rks_engine *made = NULL;
    rks_status status = rks_engine_open(&options, &made, err);
    if (status != RKS_OK)
        return status;
    rks_address self = *rks_engine_address(made);
    status = rks_engine_join(made, &self, token, token + SESSION_SIZE, err);
    if (status == RKS_OK)
        *engine = made;
    else
        rks_engine_close(made, 0);
    return status;
}

rks_status rks_worker_service_open(const rks_worker_service_options *options,
                                   rks_worker_service **service, rks_error *err)
{
    uint8_t name[RKS_UNIX_NAME], token[TOKEN_SIZE];
    rks_worker_service *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->serve = options->serve;
    made->user = options->user;
    rks_status status = rks_random(name, sizeof(name), err);
    if (status == RKS_OK)
        status = rks_random(token, sizeof(token), err);
    if (status == RKS_OK) {
        print_hex(name, sizeof(name), made->name);
        print_hex(token, sizeof(token), made->token);
        rks_unix_transport_init(&made->transport, name, true);
        rks_engine_options engine;
        rks_engine_options_default(&engine);
        engine.silence_ms = options->silence_ms;
        engine.io_threads = options->threads;
        engine.max_request = options->max_request;
        status = open_engine(&made->transport, &engine, token, &made->engine, err);
        rks_wipe(token, sizeof(token));
    }
    if (status != RKS_OK) {
        rks_free(made);
        return status;
    }
    rks_engine_serve(made->engine, RKS_SERVICE_WORKERS, serve_worker, NULL, made);
    *service = made;
    return RKS_OK;
}

const char *rks_worker_service_name(const rks_worker_service *service)
{
    return service->name;
}

const char *rks_worker_service_token(const rks_worker_service *service)
{
    return service->token;
}

void rks_worker_service_close(rks_worker_service *service)
{
    if (service == NULL)
        return;
    bool ended = rks_engine_serve(service->engine, RKS_SERVICE_WORKERS, NULL, NULL, NULL);
    rks_engine_close(service->engine, LINGER_MS);
    rks_wipe(service->token, sizeof(service->token));
    if (ended)
        rks_free(service); /* else a call that hangs may use it later */
}

void rks_worker_service_forget(rks_worker_service *service)
{
    int fd = atomic_exchange(&service->transport.fd, -1);
    if (fd >= 0)
        close(fd);
}

/* ---- the link -------------------------------------------------------------------------------- */

rks_status rks_worker_link_open(const char *name, const char *token_text, uint32_t silence_ms,
                                rks_worker_link **link, rks_error *err)
{
    uint8_t id[RKS_UNIX_NAME], token[TOKEN_SIZE];
    if (!parse_hex(name, id, sizeof(id)) || !parse_hex(token_text, token, sizeof(token)))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "the name or the token of a worker service is malformed");
    rks_worker_link *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->silence_ms = silence_ms;
    rks_unix_transport_init(&made->transport, id, false);
    rks_engine_options engine;
    rks_engine_options_default(&engine);
    engine.silence_ms = silence_ms;
    engine.max_request = REPLY_MAX; /* the service has a limit */
    rks_status status = open_engine(&made->transport, &engine, token, &made->engine, err);
    rks_wipe(token, sizeof(token));
    if (status == RKS_OK)
        *link = made;
    else
        rks_free(made);
    return status;
}

rks_status rks_worker_link_ask(rks_worker_link *link, const void *request, size_t size,
                               void **reply, size_t *reply_size, rks_error *err)
{
    const rks_outgoing asked = {RKS_SERVICE_WORKERS, request, size, "a worker's request"};
    rks_error why;
    uint8_t *got = NULL;
    rks_status status =
        rks_engine_ask(link->engine, 0, &asked, (size_t)REPLY_MAX, &got, reply_size, &why);
    switch (status) {
    case RKS_OK:
        *reply = got;
        return RKS_OK;
    case RKS_ERR_TIMEOUT:
        return rks_fail(err, status, why.cause,
                        "the process that opened the dataset was silent for %g s, and this worker "
                        "process asks it for samples",
                        link->silence_ms / 1000.0);
    case RKS_ERR_PEER:
    case RKS_ERR_STATE:
        return rks_fail(err, RKS_ERR_STATE, why.cause,
                        "the process that opened the dataset has closed it or ended; a worker asks "
                        "it for samples of other nodes");
    default:
        if (err != NULL)
            *err = why;
        return status;
    }
}

void rks_worker_link_close(rks_worker_link *link)
{
    if (link == NULL)
        return;
    rks_engine_close(link->engine, 0);
    rks_free(link);
}
