/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_state.h: the engine, as all of its files see it.
 *
 *   caller ── client.c ──► mailbox.c ──► engine thread: engine.c
 *                                        heartbeat.c     pings and lost peers
 *                                        admission.c     connections that others open
 *                                        peer.c          requests, life of a peer
 *                                        reconnect.c     connections that break
 *                                        notes.c         notes
 *                                        connection.c    one stream: handshake, life
 *                                        receiver.c, sender.c  its frames
 *                                        record_layer.c  records: authenticated frames
 *                                        net.h           bytes and time: tcp.c or memory_net.c
 *   I/O threads: server.c
 *
 * A file calls those below it. A connection reports to those above it by rks_connection_events.
 *
 * Unless a comment says otherwise, a field belongs to the engine thread. */
#ifndef RKS_TRANSPORT_ENGINE_STATE_H
#define RKS_TRANSPORT_ENGINE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "transport/admission.h"
#include "transport/call_table.h"
#include "transport/engine.h"
#include "transport/net.h"
#include "transport/server.h"

enum { RKS_STAGE_SIZE = 64 * 1024 }; /* buffer into which small frames are read */

typedef struct rks_connection_events rks_connection_events;
typedef struct rks_peer rks_peer;

struct rks_engine {
    /* set by rks_engine_open, then constant */
    rks_engine_options options;
    rks_address address;
    rks_net *net;
    rks_pool *pool;
    const rks_connection_events *events;
    pthread_t thread;

    /* set by rks_engine_join before `joined`, then constant */
    atomic_bool joined;
    rks_address *addresses;
    uint8_t session[16];
    uint8_t secret[RKS_SECRET_SIZE];
    uint8_t private_key[RKS_KEY_SIZE];
    uint8_t *public_keys; /* RKS_KEY_SIZE each; NULL: the secret is the key of all */

    atomic_bool closing;    /* rks_engine_close has begun */
    atomic_uint references; /* the engine's own, and one for each unanswered request */

    pthread_mutex_t mutex;
    rks_command *mailbox;       /* guarded by mutex */
    rks_command **mailbox_last; /* guarded by mutex */
    bool mailbox_closed;        /* guarded by mutex */
    atomic_bool mail;           /* the mailbox has commands; changed under the mutex */
    atomic_bool resting;        /* the loop sleeps or is about to */
    rks_command *own;           /* calls that callbacks made on the engine thread */
    rks_command **own_last;

    pthread_mutex_t handlers_mutex;
    pthread_cond_t handlers_idle;
    rks_handler_place handlers[RKS_SERVICES];

    rks_command join, abort, finish; /* posted once each */
    uint32_t linger_ms;              /* milliseconds; set before `finish` is posted */

    rks_peer *peers;
    rks_connection *connections;
    uint32_t streams;             /* connections whose stream is not closed yet */
    uint32_t opening;             /* of `streams`: opened by this side and not proven */
    rks_admission admission;      /* of `streams`: accepted and not proven */
    rks_call_entry *call_entries; /* an id is {turn, entry number} */
    uint32_t call_entries_room;
    uint32_t call_entries_free; /* first free entry + 1; 0: none */
    uint32_t retries;           /* peers whose retry_ms is not 0 */
    bool turn;                  /* rks_peer_retry must run before the loop rests */
    rks_connection *full;       /* connections with frames to send before the loop rests */
    bool admitting;             /* inside rks_engine_admit */
    uint64_t alarm_ms;          /* when the alarm rings; 0: never */
    uint64_t beat_ms;           /* when the next pings are due; 0: no peer to ping */
    uint64_t refusal_logged_ms, mended_logged_ms;
    uint64_t deadline_ms; /* of rks_engine_close */
    uint64_t serial;      /* of the next connection */
    uint64_t instance;    /* drawn by rks_engine_open, not 0 */
    uint32_t unacked;     /* peers that have not acknowledged all notes */
    bool aborted;
    bool finishing;
    bool draining; /* waits for them */
    bool drained;  /* has done so, or is doing it */
    bool ending;
    uint8_t *stage;

    atomic_ullong bytes_sent, bytes_received, frames_sent, frames_received, refused, strays;
};

/* Returns the most body bytes of a frame of this type (enum rks_frame_type) that the engine sends
 * or accepts. */
static inline uint64_t rks_frame_limit(const rks_engine *engine, uint16_t type)
{
    const rks_engine_options *options = &engine->options;
    if (type == RKS_FRAME_REQUEST)
        return options->max_request;
    if (type == RKS_FRAME_NOTE)
        return options->max_request < RKS_NOTE_MAX ? options->max_request : RKS_NOTE_MAX;
    return options->max_frame;
}

/* Drops one reference. */
void rks_engine_release(rks_engine *engine);
const char *rks_engine_host(const rks_engine *engine, uint32_t rank);
/* Makes the alarm ring at `at_ms` at the latest. */
void rks_engine_alarm_at(rks_engine *engine, uint64_t at_ms);
/* During the close: goes on with it once all notes are acknowledged. */
void rks_engine_drained(rks_engine *engine);
void rks_engine_drain(rks_engine *engine);
/* Starts to watch connections for silence, unless that has already started. */
void rks_engine_beat(rks_engine *engine);

#endif
