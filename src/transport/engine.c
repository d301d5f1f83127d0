/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.c: open, join and close; the mailbox; the engine thread; silence. */
#include "transport/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

enum {
    GRACE_SILENT_MS = 50,  /* how long a newcomer is safe that has said nothing, when there are */
    GRACE_HEARD_MS = 1000, /* too many; and one that has said hello */
    NO_MEMORY_MS = 500,
    MAILBOX_ROUNDS = 8, /* then sockets have their turn */
};

/* A socket from the hub. */
typedef struct adoption {
    rks_command command;
    int fd;
} adoption;

void rks_engine_options_default(rks_engine_options *options)
{
    *options = (rks_engine_options){
        .size = 1,
        .silence_ms = 15000,
        .io_threads = 16,
        .max_frame = (1024u + 1) * 1024 * 1024,
    };
}

const char *rks_engine_host(const rks_engine *engine, uint32_t rank)
{
    return engine->addresses[rank].host;
}

/* ---- mailbox ----------------------------------------------------------------------------------
 */

bool rks_engine_post(rks_engine *engine, rks_command *command)
{
    pthread_mutex_lock(&engine->mutex);
    bool open = !engine->mailbox_closed;
    if (open) {
        bool first = engine->mailbox == NULL;
        command->next = NULL;
        if (first)
            engine->mailbox_last = &engine->mailbox;
        *engine->mailbox_last = command;
        engine->mailbox_last = &command->next;
        if (first && atomic_load(&engine->resting))
            rks_loop_wake(engine->loop);
    }
    pthread_mutex_unlock(&engine->mutex);
    return open;
}

/* False: there was nothing in it. */
static bool run_mailbox(rks_engine *engine, bool last)
{
    pthread_mutex_lock(&engine->mutex);
    rks_command *command = engine->mailbox;
    engine->mailbox = NULL;
    engine->mailbox_closed = engine->mailbox_closed || last;
    pthread_mutex_unlock(&engine->mutex);
    bool some = command != NULL;
    while (command != NULL) {
        rks_command *next = command->next;
        command->run(engine, command);
        command = next;
    }
    return some;
}

/* From here on the loop may sleep, and whoever posts has to wake it; until the first callback,
 * since that is followed by this one before the loop sleeps again. */
static void on_resting(void *user)
{
    rks_engine *engine = user;
    rks_pool_flush(engine);
    for (int round = 0; round < MAILBOX_ROUNDS && run_mailbox(engine, false); round++)
        ; /* what is done may ask for more */
    pthread_mutex_lock(&engine->mutex);
    atomic_store(&engine->resting, true);
    if (engine->mailbox != NULL)
        rks_loop_wake(engine->loop);
    pthread_mutex_unlock(&engine->mutex);
}

static void on_nudge(void *user)
{
    rks_engine *engine = user;
    rks_pool_hurry(engine);
}

void rks_engine_release(rks_engine *engine)
{
    if (atomic_fetch_sub(&engine->references, 1) != 1)
        return;
    pthread_cond_destroy(&engine->handlers_idle);
    pthread_mutex_destroy(&engine->handlers_mutex);
    pthread_mutex_destroy(&engine->mutex);
    rks_free(engine);
}

/* ---- silence ------------------------------------------------------------------------------------
 */

void rks_engine_alarm_at(rks_engine *engine, uint64_t at_ms)
{
    if (engine->alarm_ms != 0 && engine->alarm_ms <= at_ms)
        return;
    uint64_t now = rks_now_ms();
    engine->alarm_ms = at_ms > now ? at_ms : now;
    rks_loop_alarm(engine->loop, engine->alarm_ms - now);
}

void rks_engine_beat(rks_engine *engine)
{
    if (engine->beat_ms == 0)
        engine->beat_ms = rks_now_ms() + engine->options.silence_ms / 3;
    rks_engine_alarm_at(engine, engine->beat_ms);
}

static void lose_silent(rks_connection *connection, const char *what, uint64_t ms)
{
    rks_error why;
    rks_fail(&why, RKS_ERR_TIMEOUT, 0, "%s %" PRIu64 " ms", what, ms);
    rks_connection_lose(connection, &why);
}

/* A connection that has not proved itself; when to look again. */
static uint64_t watch_hello(rks_connection *connection, uint64_t now)
{
    rks_engine *engine = connection->engine;
    uint64_t limit = engine->options.silence_ms;
    uint64_t since = connection->opened_ms;
    if (connection->initiator)
        since = engine->peers[connection->rank].since_ms;
    else if (limit > RKS_HELLO_MS)
        limit = RKS_HELLO_MS;
    if (now < since + limit)
        return since + limit;
    lose_silent(connection,
                connection->state == RKS_CONNECTION_CONNECTING ? "no connection within"
                : connection->initiator                        ? "no answer to the hello within"
                                                               : "did not prove itself within",
                limit);
    return UINT64_MAX;
}

/* An open one. *beats: it is pinged, or says that it lives. */
static uint64_t watch_open(rks_connection *connection, uint64_t now, bool beat, bool *beats)
{
    rks_engine *engine = connection->engine;
    rks_peer *peer = &engine->peers[connection->rank];
    bool pings = connection->initiator && rks_peer_expects(peer) && !connection->ending;
    bool expects = pings || (!connection->initiator && (connection->kept || peer->closing));
    size_t unsent = rks_stream_unsent(connection->stream);
    if (unsent != connection->unsent)
        connection->heard_ms = now; /* it takes what we send */
    connection->unsent = unsent;
    if (expects && now >= connection->heard_ms + engine->options.silence_ms) {
        lose_silent(connection, "silent for", engine->options.silence_ms);
        return UINT64_MAX;
    }
    *beats = *beats || expects || connection->paused;
    if (beat && pings)
        rks_connection_say(connection, &connection->says_ping, RKS_FRAME_PING, 0);
    else if (beat && connection->paused)
        rks_connection_say(connection, &connection->says_pong, RKS_FRAME_PONG, 0);
    return expects ? connection->heard_ms + engine->options.silence_ms : UINT64_MAX;
}

/* This process itself was stopped, or starved: what peers sent meanwhile is not read yet. */
static void forgive(rks_engine *engine, uint64_t now)
{
    uint64_t late = now - engine->alarm_ms;
    if (now < engine->alarm_ms || late < engine->options.silence_ms / 3)
        return;
    for (rks_connection *c = engine->connections; c != NULL; c = c->next) {
        c->heard_ms = c->heard_ms + late < now ? c->heard_ms + late : now;
        c->opened_ms = c->opened_ms + late < now ? c->opened_ms + late : now;
        if (c->initiator && c->state != RKS_CONNECTION_OVER)
            engine->peers[c->rank].since_ms += late;
    }
}

static void close_all(rks_engine *engine);

static void on_alarm(void *user)
{
    rks_engine *engine = user;
    atomic_store(&engine->resting, false);
    uint64_t now = rks_now_ms();
    uint64_t due = UINT64_MAX;
    bool beat = engine->beat_ms != 0 && now >= engine->beat_ms;
    bool beats = false;
    forgive(engine, now);
    engine->alarm_ms = 0;
    if (engine->ending && now >= engine->deadline_ms) {
        close_all(engine);
        return;
    }
    /* Losing one never frees it here: that takes the stream's last callback. */
    for (rks_connection *c = engine->connections; c != NULL; c = c->next) {
        uint64_t next = UINT64_MAX;
        if (c->state == RKS_CONNECTION_OPEN)
            next = watch_open(c, now, beat, &beats);
        else if (c->state != RKS_CONNECTION_OVER)
            next = watch_hello(c, now);
        due = next < due ? next : due;
    }
    if (beat || !beats)
        engine->beat_ms = beats ? now + engine->options.silence_ms / 3 : 0;
    if (engine->beat_ms != 0 && engine->beat_ms < due)
        due = engine->beat_ms;
    if (engine->ending && engine->deadline_ms < due)
        due = engine->deadline_ms;
    if (due != UINT64_MAX)
        rks_engine_alarm_at(engine, due);
    if (engine->retries > 0)
        rks_peer_retry(engine, now);
    rks_engine_admit(engine);
}

/* ---- newcomers ----------------------------------------------------------------------------------
 */

/* The oldest newcomer whose time of grace is over; NULL: none. *next: when there may be one. */
static rks_connection *find_victim(const rks_engine *engine, uint64_t now, uint64_t *next)
{
    rks_connection *victim = NULL;
    *next = UINT64_MAX;
    for (rks_connection *c = engine->connections; c != NULL; c = c->next) {
        if (!c->unproven || c->state == RKS_CONNECTION_OVER)
            continue;
        uint64_t until = c->opened_ms + (c->hello.heard ? GRACE_HEARD_MS : GRACE_SILENT_MS);
        if (until <= now && (victim == NULL || c->opened_ms < victim->opened_ms))
            victim = c;
        if (until < *next)
            *next = until;
    }
    return victim;
}

void rks_engine_admit(rks_engine *engine)
{
    if (engine->admitting || engine->ending || !atomic_load(&engine->joined))
        return;
    engine->admitting = true;
    while (true) {
        uint64_t now = rks_now_ms();
        uint64_t next;
        if (engine->unproven >= RKS_UNPROVEN_MAX) {
            rks_connection *victim = find_victim(engine, now, &next);
            if (!rks_loop_waits(engine->loop))
                break;
            if (victim == NULL) {
                rks_engine_alarm_at(engine, next);
                break;
            }
            rks_error why;
            rks_fail(&why, RKS_ERR_PEER, 0, "%d connections had not proved themselves",
                     RKS_UNPROVEN_MAX);
            rks_connection_lose(victim, &why);
        }
        int error = rks_connection_accept(engine);
        if (error == EAGAIN)
            break;
        if (error == ENOMEM) {
            rks_engine_alarm_at(engine, now + NO_MEMORY_MS);
            break;
        }
    }
    engine->admitting = false;
}

static void on_incoming(void *user)
{
    rks_engine_admit(user);
}

static void adopt(rks_engine *engine, adoption *given)
{
    if (engine->ending || rks_connection_adopt(engine, given->fd) != 0)
        close(given->fd); /* the other side tries again, or hears that this one is closed */
    rks_free(given);
}

static void run_adopt(rks_engine *engine, rks_command *command)
{
    if (atomic_load(&engine->joined) || engine->ending) {
        adopt(engine, (adoption *)(void *)command);
        return;
    }
    command->next = engine->held;
    engine->held = command;
}

/* Called on the thread of the engine that connects. */
static bool on_hub(void *user, int fd)
{
    rks_engine *engine = user;
    adoption *given = rks_alloc(1, sizeof(*given), NULL);
    if (given == NULL)
        return false;
    given->command.run = run_adopt;
    given->fd = fd;
    if (rks_engine_post(engine, &given->command))
        return true;
    rks_free(given);
    return false;
}

static void adopt_held(rks_engine *engine)
{
    while (engine->held != NULL) {
        adoption *given = (adoption *)(void *)engine->held;
        engine->held = given->command.next;
        adopt(engine, given);
    }
}

static void run_join(rks_engine *engine, rks_command *command)
{
    (void)command;
    adopt_held(engine);
    if (engine->listen_fd < 0 || engine->ending)
        return;
    /* Cannot fail: the socket listens already. */
    if (rks_loop_listen(engine->loop, engine->listen_fd, NULL) == RKS_OK)
        engine->listen_fd = -1;
}

/* ---- the end ------------------------------------------------------------------------------------
 */

static void run_abort(rks_engine *engine, rks_command *command)
{
    (void)command;
    rks_peer_abort_all(engine);
}

static void close_all(rks_engine *engine)
{
    rks_error over = {.status = RKS_OK, .rank = -1};
    for (rks_connection *c = engine->connections; c != NULL; c = c->next)
        rks_connection_lose(c, &over);
}

static bool wants_flush(const rks_engine *engine, const rks_connection *connection)
{
    return connection->initiator && engine->linger_ms > 0 &&
           engine->peers[connection->rank].waiting.first != NULL;
}

void rks_engine_stream_closed(rks_engine *engine)
{
    engine->streams--;
    if (!engine->ending || engine->streams > 0)
        return;
    rks_pool_flush(engine);
    run_mailbox(engine, true);
    rks_loop_stop(engine->loop);
}

/* Whatever was posted before this runs, also by callbacks while close was on its way, goes first.
 */
static void run_finish(rks_engine *engine, rks_command *command)
{
    if (!engine->finishing) {
        engine->finishing = true;
        rks_engine_post(engine, command);
        return;
    }
    rks_error over = {.status = RKS_OK, .rank = -1};
    engine->ending = true;
    engine->deadline_ms = rks_now_ms() + engine->linger_ms;
    rks_loop_unlisten(engine->loop);
    adopt_held(engine);
    engine->streams++; /* until this function is through */
    for (rks_connection *c = engine->connections; c != NULL; c = c->next) {
        if (c->state == RKS_CONNECTION_OPEN && c->initiator)
            rks_connection_end(c);
        else if (c->state == RKS_CONNECTION_OPEN)
            rks_peer_end_in(engine, c->rank);
        else if (!wants_flush(engine, c))
            rks_connection_lose(c, &over);
    }
    if (engine->linger_ms == 0)
        close_all(engine);
    else
        rks_engine_alarm_at(engine, engine->deadline_ms);
    rks_engine_stream_closed(engine);
}

static void *engine_thread(void *argument)
{
    rks_engine *engine = argument;
    pthread_setname_np(pthread_self(), "rks-engine");
    rks_loop_run(engine->loop);
    return NULL;
}

/* What only the engine thread knew; it is over. */
static void free_inside(rks_engine *engine)
{
    while (engine->connections != NULL) { /* requests that come back late no longer look at them */
        rks_connection *first = engine->connections;
        engine->connections = first->next;
        rks_free(first);
    }
    if (engine->peers != NULL)
        rks_peer_forget_all(engine);
    rks_free(engine->slots);
    rks_free(engine->peers);
    rks_free(engine->addresses);
    rks_free(engine->stage);
    engine->addresses = NULL;
    rks_wipe(engine->secret, sizeof(engine->secret));
}

static void close_outside(rks_engine *engine)
{
    if (engine->hub_id != 0)
        rks_hub_unregister(engine->hub, engine->hub_id);
    if (engine->listen_fd >= 0)
        close(engine->listen_fd);
    rks_loop_free(engine->loop);
    rks_pool_free(engine->pool);
    free_inside(engine);
    rks_engine_release(engine);
}

void rks_engine_close(rks_engine *engine, uint32_t linger_ms)
{
    if (engine == NULL)
        return;
    atomic_store(&engine->closing, true);
    if (engine->hub_id != 0)
        rks_hub_unregister(engine->hub, engine->hub_id);
    engine->hub_id = 0;
    engine->abort.run = run_abort;
    rks_engine_post(engine, &engine->abort);
    rks_pool_stop(engine->pool);
    engine->linger_ms = linger_ms;
    engine->finish.run = run_finish;
    rks_engine_post(engine, &engine->finish);
    pthread_join(engine->thread, NULL);
    close_outside(engine);
}

/* ---- open and join ------------------------------------------------------------------------------
 */

static void put_host(rks_address *address)
{
    char name[256] = "";
    gethostname(name, sizeof(name) - 1);
    name[strcspn(name, ".")] = '\0';
    snprintf(address->host, sizeof(address->host), "%.31s", name[0] == '\0' ? "localhost" : name);
}

static rks_status open_address(rks_engine *engine, rks_error *err)
{
    put_host(&engine->address);
    engine->hub = engine->options.local_hub;
    if (engine->hub == NULL)
        return rks_listen(engine->options.listen, &engine->listen_fd, &engine->address, err);
    uint64_t id;
    rks_status status = rks_hub_register(engine->hub, on_hub, engine, &id, err);
    if (status == RKS_OK) {
        engine->hub_id = id;
        engine->address.kind = 3;
        memcpy(engine->address.ip, &id, sizeof(id));
    }
    return status;
}

/* No signal is ever handled on these threads; SIGPIPE has no effect. */
static rks_status start_thread(rks_engine *engine, rks_error *err)
{
    sigset_t all, before;
    sigfillset(&all); /* signals are for the program; faults of maps that we serve from are ours */
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&engine->thread, NULL, engine_thread, engine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? RKS_OK : rks_fail_errno(err, error, "engine thread");
}

static rks_status check_options(const rks_engine_options *options, rks_error *err)
{
    if (options->size == 0 || options->rank >= options->size)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "engine of rank %" PRIu32 " among %" PRIu32,
                        options->rank, options->size);
    if (options->io_threads == 0 || options->io_threads > 1024)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "io_threads is %" PRIu32 ", not 1 to 1024",
                        options->io_threads);
    if (options->silence_ms < 100)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "silence of %" PRIu32 " ms is below 100",
                        options->silence_ms);
    if (options->max_frame < 4096)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "max_frame is %" PRIu64 ", below 4096",
                        options->max_frame);
    return RKS_OK;
}

rks_status rks_engine_open(const rks_engine_options *options, rks_engine **engine, rks_error *err)
{
    static const rks_loop_ops ops = {on_resting, on_alarm, on_nudge, on_incoming};
    rks_status status = check_options(options, err);
    if (status != RKS_OK)
        return status;
    rks_engine *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->options = *options;
    made->options.listen = NULL;
    made->listen_fd = -1;
    atomic_store(&made->references, 1);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_mutex_init(&made->handlers_mutex, NULL);
    pthread_cond_init(&made->handlers_idle, NULL);

    made->options.listen = options->listen;
    made->stage = rks_alloc_raw(RKS_STAGE_SIZE, 1, err);
    made->peers = made->stage == NULL ? NULL : rks_alloc(options->size, sizeof(rks_peer), err);
    if (made->peers == NULL) {
        status = RKS_ERR_MEMORY;
        goto out;
    }
    status = rks_loop_create(&ops, made, &made->loop, err);
    if (status != RKS_OK)
        goto out;
    status = rks_pool_create(made, options->io_threads, &made->pool, err);
    if (status != RKS_OK)
        goto out;
    status = open_address(made, err);
    if (status != RKS_OK)
        goto out;
    made->options.listen = NULL; /* the caller's */
    status = start_thread(made, err);
    if (status != RKS_OK)
        goto out;
    *engine = made;
    made = NULL;
out:
    if (made != NULL) {
        made->ending = true;
        run_mailbox(made, true); /* sockets from the hub */
        close_outside(made);
    }
    return status;
}

const rks_address *rks_engine_address(const rks_engine *engine)
{
    return &engine->address;
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
    engine->join.run = run_join;
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
