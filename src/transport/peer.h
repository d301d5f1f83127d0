/* SPDX-License-Identifier: Apache-2.0
 *
 * peer.h: what this rank knows of another one, and sends to it. */
#ifndef RKS_TRANSPORT_PEER_H
#define RKS_TRANSPORT_PEER_H

#include "transport/connection.h"

/* A note on its way from its caller to the wire; also carries keep frames. */
typedef struct rks_note {
    rks_command command;
    rks_frame frame;
    uint32_t peer;
    uint8_t body[];
} rks_note;

struct rks_peer {
    rks_connection *connection; /* open, or being opened by this side; NULL: none */
    rks_connection *held;       /* opened and proven by the peer, while this side opens one */
    rks_call *calls;            /* calls that wait for their replies */
    rks_frame_queue waiting;    /* frames that wait until the connection is open */
    rks_frame_queue unasked;    /* calls that wait until others are answered; also in `calls` */
    uint64_t asked;             /* bytes of the calls that have been sent or queued */
    uint64_t since_ms;          /* when connecting began */
    uint64_t retry_ms;          /* when to connect again; 0: no retry */
    uint32_t cuts; /* connections that it cut during the hello, since the last open one */
    bool paced;    /* waits until fewer connections are being opened */
    bool keep;
    bool failed;                  /* requests fail with `error` */
    bool gone;                    /* notes are dropped, too */
    bool lost;                    /* kept, and then lost: its connections are refused */
    bool reported;                /* rks_lost_fn has been called */
    bool keyed;                   /* `key` is set */
    uint8_t key[RKS_SECRET_SIZE]; /* of this rank and the peer */
    uint64_t *said;               /* checksums of its last nonces (admission.c); NULL: none */
    uint32_t said_count;          /* hellos ever remembered */
    rks_error error;
};

/* Each of these takes over the frame. */
void rks_peer_keep(rks_engine *engine, rks_note *note);
void rks_peer_note(rks_engine *engine, rks_note *note);
void rks_peer_call(rks_engine *engine, rks_call *call);
void rks_peer_give_up(rks_engine *engine, uint32_t rank, const rks_error *err);
void rks_peer_retry(rks_engine *engine, uint64_t now_ms);
/* Fails all requests with RKS_ERR_STATE. */
void rks_peer_abort_all(rks_engine *engine);
/* Drops the frames that wait for a connection. The loop must have ended. */
void rks_peer_forget_all(rks_engine *engine);
bool rks_peer_expects(const rks_peer *peer); /* true if its silence matters */
/* The `sent` of a call's frame. */
void rks_call_sent(rks_frame *frame);
/* Makes rks_peer_retry run before the loop rests: fewer connections are being opened, or one more
 * waits for its turn. The alarm could do it, too, but it looks at every connection. */
void rks_peer_next(rks_engine *engine);
/* Returns true if frames wait for this connection, or for the one that it replaces. */
bool rks_peer_waits_for(const rks_connection *connection);

/* Of rks_connection_events. */
rks_status rks_peer_bind(rks_engine *engine, rks_hello *hello, rks_error *err);
bool rks_peer_holds(rks_connection *connection);
rks_status rks_peer_accepted(rks_connection *connection, rks_error *err);
void rks_peer_opened(rks_connection *connection);
void rks_peer_ended(rks_connection *connection, const rks_error *why);
void rks_call_done(rks_engine *engine, rks_call *call, const rks_error *err);

#endif
