/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_net.c: the transport in memory: how nets find each other, and their loops. */
#include "transport/memory_pipes.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

enum { NS_A_MS = 1000000 };

/* ---- nets ------------------------------------------------------------------------------------ */

static rks_status memory_open(const rks_transport *transport, const rks_net_options *options,
                              const rks_net_events *events, void *user, rks_address *address,
                              rks_net **net, rks_error *err)
{
    memory_transport *whole = (memory_transport *)(uintptr_t)transport;
    memory_net *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->net.ops = &rks_memory_ops;
    made->net.newcomers = options->newcomers;
    made->transport = whole;
    made->rank = options->rank;
    made->events = events;
    made->user = user;
    made->alarm_ns = made->nudge_ns = RKS_NEVER;
    pthread_mutex_init(&made->mutex, NULL);
    rks_cond_init(&made->cond);
    pthread_mutex_lock(&whole->mutex);
    made->id = ++whole->last_id;
    made->next = whole->nets;
    whole->nets = made;
    pthread_mutex_unlock(&whole->mutex);
    address->kind = 3;
    memcpy(address->ip, &made->id, sizeof(made->id));
    *net = &made->net;
    return RKS_OK;
}

static void memory_wake(rks_net *net)
{
    memory_net *own = rks_memory_net_of(net);
    pthread_mutex_lock(&own->mutex);
    own->woken = true;
    pthread_cond_signal(&own->cond);
    pthread_mutex_unlock(&own->mutex);
}

static uint64_t after_ms(uint64_t delay_ms)
{
    return rks_now_ns() + delay_ms * NS_A_MS;
}

static void memory_alarm(rks_net *net, uint64_t delay_ms)
{
    if (!rks_memory_net_of(net)->stopped)
        rks_memory_net_of(net)->alarm_ns = after_ms(delay_ms);
}

static void memory_nudge(rks_net *net, uint64_t delay_ms)
{
    if (!rks_memory_net_of(net)->stopped)
        rks_memory_net_of(net)->nudge_ns = after_ms(delay_ms);
}

static uint64_t memory_now_ms(const rks_net *net)
{
    (void)net;
    return rks_now_ms();
}

static rks_status memory_listen(rks_net *net, rks_error *err)
{
    (void)err;
    memory_net *own = rks_memory_net_of(net);
    pthread_mutex_lock(&own->mutex);
    own->listening = true;
    own->news = own->backlog != NULL;
    pthread_mutex_unlock(&own->mutex);
    return RKS_OK;
}

/* Removes the net from the transport's list, so that no other net finds it. */
static void leave(memory_net *own)
{
    pthread_mutex_lock(&own->transport->mutex);
    memory_net **at = &own->transport->nets;
    while (*at != NULL && *at != own)
        at = &(*at)->next;
    if (*at != NULL)
        *at = own->next;
    pthread_mutex_unlock(&own->transport->mutex);
}

static memory_end *pop_backlog(memory_net *own)
{
    pthread_mutex_lock(&own->mutex);
    memory_end *end = own->backlog;
    if (end != NULL)
        own->backlog = end->next;
    pthread_mutex_unlock(&own->mutex);
    return end;
}

static void memory_unlisten(rks_net *net)
{
    memory_net *own = rks_memory_net_of(net);
    memory_end *end;
    leave(own);
    pthread_mutex_lock(&own->mutex);
    own->listening = false;
    pthread_mutex_unlock(&own->mutex);
    while ((end = pop_backlog(own)) != NULL) {
        rks_memory_hang_up(end);
        rks_memory_release(end);
    }
}

static void memory_stop(rks_net *net)
{
    memory_unlisten(net);
    rks_memory_net_of(net)->stopped = true;
}

static void memory_net_free(rks_net *net)
{
    memory_net *own = rks_memory_net_of(net);
    memory_stop(net);
    pthread_cond_destroy(&own->cond);
    pthread_mutex_destroy(&own->mutex);
    rks_free(own);
}

static bool memory_waits(const rks_net *net)
{
    memory_net *own = (memory_net *)(uintptr_t)net;
    pthread_mutex_lock(&own->mutex);
    bool some = own->backlog != NULL;
    pthread_mutex_unlock(&own->mutex);
    return some;
}

static int memory_accept(rks_net *net, const rks_stream_events *events, void *user,
                         rks_stream **stream)
{
    memory_net *own = rks_memory_net_of(net);
    if (!own->listening)
        return EAGAIN;
    memory_end *end = pop_backlog(own);
    if (end == NULL)
        return EAGAIN;
    end->events = events;
    end->user = user;
    pthread_mutex_lock(&end->link->mutex);
    end->net = own;
    pthread_mutex_unlock(&end->link->mutex);
    own->streams++;
    *stream = &end->stream;
    return 0;
}

/* Returns the net with this number; NULL if it is gone or either side is killed. The transport's
 * mutex must be held. */
static memory_net *find(const memory_net *own, uint64_t id)
{
    memory_net *other = own->killed ? NULL : own->transport->nets;
    while (other != NULL && other->id != id)
        other = other->next;
    return other == NULL || other->killed ? NULL : other;
}

/* Adds an end to the net's backlog. The transport's mutex must be held. */
static void come(memory_net *net, memory_end *end)
{
    pthread_mutex_lock(&net->mutex);
    end->next = NULL;
    if (net->backlog == NULL)
        net->backlog_last = &net->backlog;
    *net->backlog_last = end;
    net->backlog_last = &end->next;
    net->news = net->listening;
    pthread_cond_signal(&net->cond);
    pthread_mutex_unlock(&net->mutex);
}

/* Adds a link to the transport's list. The transport's mutex must be held. */
static void link_add(memory_transport *transport, memory_link *link)
{
    link->next = transport->links;
    link->link = &transport->links;
    if (link->next != NULL)
        link->next->link = &link->next;
    transport->links = link;
}

static int memory_connect(rks_net *net, const rks_address *address, const rks_stream_events *events,
                          void *user, rks_stream **stream)
{
    memory_net *own = rks_memory_net_of(net);
    memory_transport *transport = own->transport;
    uint64_t id;
    if (address->kind != 3)
        return EDESTADDRREQ;
    memory_link *link = rks_memory_link_create(transport);
    if (link == NULL)
        return ENOMEM;
    memcpy(&id, address->ip, sizeof(id));
    memory_end *end = &link->ends[0];
    end->net = own;
    end->rank = link->ends[1].peer = own->rank;
    end->events = events;
    end->user = user;
    end->connecting = true;
    own->streams++;
    pthread_mutex_lock(&transport->mutex);
    link_add(transport, link);
    memory_net *other = find(own, id);
    if (other != NULL) {
        end->peer = link->ends[1].rank = other->rank;
        come(other, &link->ends[1]);
    } else {
        end->connect_error = ECONNREFUSED;
        link->open_ends = 1;
        link->ends[1].closed = true;
    }
    pthread_mutex_unlock(&transport->mutex);
    const rks_memory_rules *rules = &transport->rules;
    if (rules->delay_ns != NULL && other != NULL) {
        uint64_t delay = rules->delay_ns(rules->user, end->rank, end->peer, 0);
        end->connect_due_ns = delay == RKS_NEVER ? RKS_NEVER : rks_now_ns() + delay;
    }
    rks_memory_look_at(end);
    *stream = &end->stream;
    return 0;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Returns when an end of `later` is due. */
static uint64_t due_of(memory_end *end)
{
    if (end->connecting)
        return end->connect_due_ns;
    pthread_mutex_lock(&end->link->mutex);
    const ring *in = &end->in;
    uint64_t due = in->count > 0 ? in->segments[in->first].due_ns : 0;
    pthread_mutex_unlock(&end->link->mutex);
    return due;
}

static uint64_t next_due(const memory_net *own)
{
    uint64_t due = own->alarm_ns < own->nudge_ns ? own->alarm_ns : own->nudge_ns;
    for (memory_end *end = own->later; end != NULL; end = end->next_later) {
        uint64_t next = due_of(end);
        due = next < due ? next : due;
    }
    return due;
}

/* Waits for work and takes the ends to look at. Sets *incoming if a connection has come. */
static memory_end *wait_for_work(memory_net *own, bool *incoming)
{
    uint64_t due = next_due(own);
    pthread_mutex_lock(&own->mutex);
    while (!own->woken && own->queued == NULL && !(own->news && own->listening)) {
        uint64_t now = rks_now_ns();
        if (due <= now)
            break;
        if (due == RKS_NEVER)
            pthread_cond_wait(&own->cond, &own->mutex);
        else
            rks_cond_wait_until(&own->cond, &own->mutex, due);
    }
    own->woken = false;
    *incoming = own->news && own->listening;
    own->news = false;
    memory_end *first = own->queued;
    own->queued = NULL;
    pthread_mutex_unlock(&own->mutex);
    return first;
}

static void ring_alarms(memory_net *own)
{
    uint64_t now = rks_now_ns();
    if (own->nudge_ns <= now) {
        own->nudge_ns = RKS_NEVER;
        own->events->nudge(own->user);
    }
    if (own->alarm_ns <= now) {
        own->alarm_ns = RKS_NEVER;
        own->events->alarm(own->user);
    }
}

static void look_at_due(memory_net *own)
{
    uint64_t now = rks_now_ns();
    memory_end **at = &own->later;
    while (*at != NULL) {
        memory_end *end = *at;
        if (due_of(end) > now) {
            at = &end->next_later;
            continue;
        }
        *at = end->next_later;
        end->later = false;
        rks_memory_look_at(end);
    }
}

static void memory_run(rks_net *net)
{
    memory_net *own = rks_memory_net_of(net);
    while (true) {
        bool incoming;
        own->events->resting(own->user);
        if (own->stopped && own->streams == 0)
            return;
        memory_end *end = wait_for_work(own, &incoming);
        ring_alarms(own);
        if (incoming)
            own->events->incoming(own->user);
        while (end != NULL) {
            pthread_mutex_lock(&own->mutex);
            memory_end *next = end->next;
            end->queued = false;
            pthread_mutex_unlock(&own->mutex);
            rks_memory_look(end);
            end = next;
        }
        look_at_due(own);
    }
}

const rks_net_ops rks_memory_ops = {
    .open = memory_open,
    .run = memory_run,
    .stop = memory_stop,
    .free = memory_net_free,
    .wake = memory_wake,
    .alarm = memory_alarm,
    .nudge = memory_nudge,
    .now_ms = memory_now_ms,
    .listen = memory_listen,
    .unlisten = memory_unlisten,
    .waits = memory_waits,
    .accept = memory_accept,
    .connect = memory_connect,
    .tune = rks_memory_tune,
    .read = rks_memory_read,
    .try_write = rks_memory_try_write,
    .write = rks_memory_write,
    .unsent = rks_memory_unsent,
    .name = rks_memory_name,
    .origin = rks_memory_origin,
    .finish = rks_memory_finish,
    .close = rks_memory_close,
};

/* ---- the transport --------------------------------------------------------------------------- */

rks_status rks_memory_transport_create(const rks_memory_rules *rules, rks_transport **transport,
                                       rks_error *err)
{
    memory_transport *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->transport.ops = &rks_memory_ops;
    if (rules != NULL)
        made->rules = *rules;
    pthread_mutex_init(&made->mutex, NULL);
    *transport = &made->transport;
    return RKS_OK;
}

void rks_memory_transport_free(rks_transport *transport)
{
    if (transport == NULL)
        return;
    memory_transport *own = (memory_transport *)(void *)transport;
    pthread_mutex_destroy(&own->mutex);
    rks_free(own);
}

static bool is_between(const memory_link *link, uint32_t one, uint32_t other)
{
    uint32_t a = link->ends[0].rank, b = link->ends[1].rank;
    return (a == one && b == other) || (a == other && b == one);
}

static void cut_link(memory_link *link, uint32_t one, rks_memory_cut how)
{
    pthread_mutex_lock(&link->mutex);
    for (int i = 0; i < 2; i++)
        if (how != RKS_CUT_HALF || link->ends[i].rank == one)
            rks_memory_end_break(&link->ends[i], how == RKS_CUT_END ? 0 : ECONNRESET);
    pthread_mutex_unlock(&link->mutex);
}

void rks_memory_transport_cut(rks_transport *transport, uint32_t one, uint32_t other,
                              rks_memory_cut how)
{
    memory_transport *own = (memory_transport *)(void *)transport;
    pthread_mutex_lock(&own->mutex);
    for (memory_link *link = own->links; link != NULL; link = link->next)
        if (is_between(link, one, other))
            cut_link(link, one, how);
    pthread_mutex_unlock(&own->mutex);
}

void rks_memory_transport_kill(rks_transport *transport, uint32_t rank)
{
    memory_transport *own = (memory_transport *)(void *)transport;
    pthread_mutex_lock(&own->mutex);
    for (memory_net *net = own->nets; net != NULL; net = net->next)
        net->killed = net->killed || net->rank == rank;
    for (memory_link *link = own->links; link != NULL; link = link->next)
        if (link->ends[0].rank == rank || link->ends[1].rank == rank)
            cut_link(link, rank, RKS_CUT_RESET);
    pthread_mutex_unlock(&own->mutex);
}
