/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.c: opens, joins and closes an engine, and runs its thread. */
#include "transport/engine.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "transport/heartbeat.h"
#include "transport/mailbox.h"
#include "transport/peer.h"
#include "transport/tcp.h"

enum {
    NEWCOMERS_LEAST = 2048,
    MAILBOX_ROUNDS = 8,  /* then sockets get their turn */
    DRAIN_EACH_MS = 100, /* time between two questions for notes during the close */
};

void rks_engine_options_default(rks_engine_options *options)
{
    *options = (rks_engine_options){
        .size = 1,
        .silence_ms = 15000,
        .io_threads = 16,
        .max_frame = (1024u + 1) * 1024 * 1024,
        .max_request = 4 << 20,
        .transport = &rks_tcp,
    };
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Runs commands and sends frames before the loop may sleep. From then on a thread that posts must
 * wake the loop, until the loop's next callback; the loop calls this function again after that
 * callback, before it sleeps. */
static void on_rest(void *user)
{
    rks_engine *engine = user;
    rks_pool_flush(engine);
    for (int round = 0; round < MAILBOX_ROUNDS && rks_mailbox_run(engine, false); round++)
        ; /* commands may post more */
    if (engine->turn) {
        engine->turn = false;
        rks_peer_retry(engine, rks_net_now_ms(engine->net));
    }
    do {
        rks_engine_flush(engine);
        rks_pool_flush(engine); /* requests that have just got room */
    } while (engine->full != NULL);
    atomic_store(&engine->resting, true);
    if (engine->own != NULL || engine->turn || atomic_load(&engine->mail))
        rks_net_wake(engine->net);
}

static void on_nudge(void *user)
{
    rks_engine *engine = user;
    rks_pool_hurry(engine);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void run_abort(rks_engine *engine, rks_command *command)
{
    (void)command;
    rks_peer_abort_all(engine);
}

static bool wants_flush(const rks_engine *engine, const rks_connection *connection)
{
    return engine->linger_ms > 0 && rks_peer_waits_for(connection);
}

static void stream_closed(rks_engine *engine)
{
    engine->streams--;
    if (!engine->ending || engine->streams > 0)
        return;
    rks_pool_flush(engine);
    rks_mailbox_run(engine, true);
    rks_net_stop(engine->net);
}

/* Counts a connection that is proven, or over before that, and goes on with others. */
static void connection_settled(rks_connection *connection)
{
    rks_engine *engine = connection->engine;
    if (!connection->initiator) {
        rks_admission_leave(connection);
        rks_engine_admit(engine);
    } else {
        engine->opening--;
        rks_peer_next(engine);
    }
}

static const rks_connection_events CONNECTION_EVENTS = {
    .entered = rks_admission_enter,
    .heard = rks_admission_heard,
    .settled = connection_settled,
    .bind = rks_peer_bind,
    .holds = rks_peer_holds,
    .accepted = rks_peer_accepted,
    .opened = rks_peer_opened,
    .resumed = rks_peer_resumed,
    .acked = rks_notes_acked,
    .noted = rks_notes_noted,
    .ended = rks_peer_ended,
    .closed = stream_closed,
    .call_done = rks_call_done,
};

/* Says bye to all, and closes. */
static void finish(rks_engine *engine)
{
    rks_error over = {.status = RKS_OK, .rank = -1};
    engine->ending = true;
    rks_net_unlisten(engine->net);
    engine->streams++; /* until this function returns */
    for (rks_connection *c = engine->connections; c != NULL; c = c->next) {
        if (c->state == RKS_CONNECTION_OPEN)
            rks_connection_end(c);
        else if (!wants_flush(engine, c))
            rks_connection_lose(c, &over);
    }
    if (engine->linger_ms == 0)
        rks_connection_lose_all(engine);
    else
        rks_engine_alarm_at(engine, engine->deadline_ms);
    stream_closed(engine);
}

void rks_engine_drained(rks_engine *engine)
{
    if (!engine->draining || engine->unacked > 0)
        return;
    engine->draining = false;
    rks_engine_post(engine, &engine->finish); /* not inside of a callback of a connection */
}

/* Asks the peers which notes they have taken. What is lost with a connection can be sent again only
 * while this rank listens. */
void rks_engine_drain(rks_engine *engine)
{
    for (rks_connection *c = engine->connections; c != NULL; c = c->next)
        if (c->state == RKS_CONNECTION_OPEN && engine->peers[c->rank].notes.first != NULL)
            rks_connection_say(c, &c->says_ping, RKS_FRAME_PING, 0);
    rks_engine_alarm_at(engine, rks_net_now_ms(engine->net) + DRAIN_EACH_MS);
    rks_engine_alarm_at(engine, engine->deadline_ms);
}

/* Ends the engine: first what was posted before, also by callbacks during the close; then the
 * notes, as long as it may linger; then the connections. */
static void run_finish(rks_engine *engine, rks_command *command)
{
    if (!engine->finishing) {
        engine->finishing = true;
        engine->deadline_ms = rks_net_now_ms(engine->net) + engine->linger_ms;
        rks_engine_post(engine, command);
    } else if (!engine->drained && engine->linger_ms > 0) {
        engine->drained = engine->draining = true;
        if (engine->unacked > 0)
            rks_engine_drain(engine);
        else
            rks_engine_drained(engine);
    } else {
        finish(engine);
    }
}

static void *engine_thread(void *argument)
{
    rks_engine *engine = argument;
    pthread_setname_np(pthread_self(), "rks-engine");
    rks_mailbox_enter(engine);
    rks_net_run(engine->net);
    return NULL;
}

/* Frees what only the engine thread used. That thread has ended. */
static void free_inside(rks_engine *engine)
{
    while (engine->connections != NULL) { /* requests that are answered later no longer use them */
        rks_connection *first = engine->connections;
        engine->connections = first->next;
        rks_record_layer_free(first->layer);
        rks_free(first);
    }
    if (engine->peers != NULL)
        rks_peer_forget_all(engine);
    rks_free(engine->call_entries);
    if (engine->peers != NULL)
        rks_wipe(engine->peers, engine->options.size * sizeof(*engine->peers));
    rks_free(engine->peers);
    rks_free(engine->addresses);
    rks_free(engine->stage);
    engine->addresses = NULL;
    rks_free(engine->public_keys);
    engine->public_keys = NULL;
    rks_wipe(engine->secret, sizeof(engine->secret));
    rks_wipe(engine->private_key, sizeof(engine->private_key));
}

/* A thread of the pool that hangs in storage keeps the engine and the pool: it may come back. */
static void close_outside(rks_engine *engine, bool pool_ended)
{
    rks_net_free(engine->net);
    if (pool_ended)
        rks_pool_free(engine->pool);
    free_inside(engine);
    if (pool_ended)
        rks_engine_release(engine);
}

void rks_engine_close(rks_engine *engine, uint32_t linger_ms)
{
    if (engine == NULL)
        return;
    atomic_store(&engine->closing, true);
    engine->abort.run = run_abort;
    rks_engine_post(engine, &engine->abort);
    bool pool_ended = rks_pool_stop(engine->pool);
    engine->linger_ms = linger_ms;
    engine->finish.run = run_finish;
    rks_engine_post(engine, &engine->finish);
    pthread_join(engine->thread, NULL);
    close_outside(engine, pool_ended);
}

/* ---- open and join --------------------------------------------------------------------------- */

static void put_host(rks_address *address)
{
    char name[256] = "";
    gethostname(name, sizeof(name) - 1);
    name[strcspn(name, ".")] = '\0';
    snprintf(address->host, sizeof(address->host), "%.31s", name[0] == '\0' ? "localhost" : name);
}

/* Starts the engine's thread. It and the threads that it starts handle no signals, and SIGPIPE has
 * no effect on them. */
static rks_status start_thread(rks_engine *engine, rks_error *err)
{
    sigset_t all, before;
    sigfillset(&all); /* the program handles signals; faults in maps that we serve from are ours */
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&engine->thread, NULL, engine_thread, engine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? RKS_OK : rks_fail_start(err, error, "the engine thread");
}

static rks_status check_options(const rks_engine_options *options, rks_error *err)
{
    if (options->size == 0 || options->rank >= options->size)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "rank %" PRIu32 " is out of range: the engine has %" PRIu32 " ranks",
                        options->rank, options->size);
    if (options->io_threads == 0 || options->io_threads > 1024)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "io_threads is %" PRIu32 "; use 1 to 1024",
                        options->io_threads);
    if (options->silence_ms < 100)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "silence_ms is %" PRIu32 "; use at least 100",
                        options->silence_ms);
    if (options->max_frame < 4096)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "max_frame is %" PRIu64 "; use at least 4096",
                        options->max_frame);
    if (options->max_request < 4096)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "max_request is %" PRIu64 "; use at least 4096",
                        options->max_request);
    return RKS_OK;
}

static uint32_t wanted_newcomers(const rks_engine_options *options)
{
    if (options->newcomers != 0)
        return options->newcomers;
    return options->size < NEWCOMERS_LEAST / 4 ? NEWCOMERS_LEAST : 4 * options->size;
}

rks_status rks_engine_open(const rks_engine_options *options, rks_engine **engine, rks_error *err)
{
    static const rks_net_events events = {on_rest, rks_heartbeat_alarm, on_nudge,
                                          rks_admission_incoming};
    rks_status status = check_options(options, err);
    if (status != RKS_OK)
        return status;
    rks_engine *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->options = *options;
    made->options.listen = NULL; /* the string is the caller's */
    made->events = &CONNECTION_EVENTS;
    atomic_store(&made->references, 1);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_mutex_init(&made->handlers_mutex, NULL);
    rks_cond_init(&made->handlers_idle);

    made->stage = rks_alloc_raw(RKS_STAGE_SIZE, 1, err);
    made->peers = made->stage == NULL ? NULL : rks_alloc(options->size, sizeof(rks_peer), err);
    if (made->peers == NULL) {
        status = RKS_ERR_MEMORY;
        goto out;
    }
    const rks_net_options net = {.rank = options->rank,
                                 .size = options->size,
                                 .newcomers = wanted_newcomers(options),
                                 .listen = options->listen};
    put_host(&made->address);
    status = rks_net_open(options->transport, &net, &events, made, &made->address, &made->net, err);
    if (status == RKS_OK)
        status = rks_random(&made->admission.salt, sizeof(made->admission.salt), err);
    if (status == RKS_OK)
        status = rks_random(&made->instance, sizeof(made->instance), err);
    made->instance |= 1; /* 0: not known */
    if (status != RKS_OK)
        goto out;
    made->admission.max = made->net->newcomers;
    status = rks_pool_create(made, options->io_threads, &made->pool, err);
    if (status != RKS_OK)
        goto out;
    status = start_thread(made, err);
    if (status != RKS_OK)
        goto out;
    *engine = made;
    made = NULL;
out:
    if (made != NULL)
        close_outside(made, true);
    return status;
}

const rks_address *rks_engine_address(const rks_engine *engine)
{
    return &engine->address;
}

rks_status rks_engine_set_keys(rks_engine *engine, const uint8_t private_key[RKS_KEY_SIZE],
                               const uint8_t *public_keys, rks_error *err)
{
    uint8_t *copy = rks_alloc(engine->options.size, RKS_KEY_SIZE, err);
    if (copy == NULL)
        return RKS_ERR_MEMORY;
    memcpy(copy, public_keys, (size_t)engine->options.size * RKS_KEY_SIZE);
    memcpy(engine->private_key, private_key, RKS_KEY_SIZE);
    engine->public_keys = copy;
    return RKS_OK;
}

rks_status rks_engine_join(rks_engine *engine, const rks_address *addresses,
                           const uint8_t session[16], const uint8_t secret[RKS_SECRET_SIZE],
                           rks_error *err)
{
    if (atomic_load(&engine->joined))
        return rks_fail(err, RKS_ERR_STATE, 0, "the engine has joined already");
    rks_address *copy = rks_alloc(engine->options.size, sizeof(*copy), err);
    if (copy == NULL)
        return RKS_ERR_MEMORY;
    memcpy(copy, addresses, engine->options.size * sizeof(*copy));
    for (uint32_t i = 0; i < engine->options.size; i++)
        copy[i].host[sizeof(copy[i].host) - 1] = '\0';
    engine->addresses = copy;
    memcpy(engine->session, session, sizeof(engine->session));
    memcpy(engine->secret, secret, sizeof(engine->secret));
    engine->join.run = rks_admission_join;
    atomic_store(&engine->joined, true);
    rks_engine_post(engine, &engine->join);
    return RKS_OK;
}

void rks_engine_stats_get(rks_engine *engine, rks_engine_stats *stats)
{
    *stats = (rks_engine_stats){
        .bytes_sent = atomic_load(&engine->bytes_sent),
        .bytes_received = atomic_load(&engine->bytes_received),
        .frames_sent = atomic_load(&engine->frames_sent),
        .frames_received = atomic_load(&engine->frames_received),
        .refused = atomic_load(&engine->refused),
        .strays = atomic_load(&engine->strays),
    };
}
