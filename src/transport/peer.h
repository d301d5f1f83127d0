/* SPDX-License-Identifier: Apache-2.0
 *
 * peer.h: what this rank knows of another one, and sends to it: peer.c, notes.c and reconnect.c.
 *
 * A peer is in one of these states:
 *
 *                  frames for it             both proofs
 *       idle ────────────────────► dialling ────────────► connected
 *                                   ▲  │                    │  │
 *                                   │  │ refused, T is over │  │ bye, silent for T, refused
 *                                   │  ▼                    │  ▼
 *                                   │ gone                  │ gone
 *                                   └─────── broken ◄───────┘ reset, end without bye, changed bytes
 *
 *   idle       `connection` NULL, `retry_ms` 0
 *   dialling   `connection` is being opened, or `retry_ms` says when it will be
 *   connected  `connection` is open
 *   broken     as dialling, and `broke_ms` says since when
 *   gone       `gone`: if a side kept the connection. Else it is idle
 *
 * A rank may ask itself: it is the peer at one end, and the other end only answers. So other
 * processes may ask as the rank, any number of them, each by a connection of its own. They send it
 * requests alone; such a connection is not made again when it breaks.
 *
 * Laws of a connection that breaks:
 *   Who       Both sides make it again if they have frames for each other or keep it; the handshake
 *             is that of any connection. One that the peer opened later replaces an earlier one,
 *             of which no byte is read any more: its rank has given it up.
 *   What      Requests without a reply are sent again under the same id. So a service may see a
 *             request twice, and the sender takes one reply. Notes are taken once and in order
 *             (notes.h).
 *   When      At once, but at most every 2 s (an eighth of T if that is less).
 *   Not       After a bye, silence for T, or a refusal by a rank that has proved itself. Nor if 3
 *             connections broke and neither a reply nor an acknowledgement came between: that
 *             link does not work, and the error says so.
 *   Until     Refused, answered twice by one who is no rank of this session, or no answer for T
 *             since it broke: the peer is gone, and the error says how it broke and what then
 *             came. */
#ifndef RKS_TRANSPORT_PEER_H
#define RKS_TRANSPORT_PEER_H

#include "transport/notes.h"

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
    bool wanted;          /* the peer has kept a connection */
    uint64_t broke_ms;    /* when a connection broke that is to be made again; 0: none */
    uint64_t mended_ms;   /* when one was last made again; 0: never */
    uint32_t breaks;      /* since there was progress */
    uint32_t wrong;       /* wrong answers to hellos since the last open connection */
    uint64_t instance;    /* number of its process; 0: not known */
    char broke[96];       /* how it broke */
    uint64_t old_serving; /* bytes of requests in service from connections that are over */
    uint32_t old_at_pool; /* such requests that I/O threads have */
    rks_notes notes;
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
/* Takes requests and notes back from a connection that is over, to be sent over the next one. */
void rks_peer_take_back(rks_engine *engine, uint32_t rank);
/* The `sent` of a call's frame. */
void rks_call_sent(rks_frame *frame);
/* Makes rks_peer_retry run before the loop rests: fewer connections are being opened, or one more
 * waits for its turn. The alarm could do it, too, but it looks at every connection. */
void rks_peer_next(rks_engine *engine);
/* Returns true if frames wait for this connection, or for the one that it replaces. */
bool rks_peer_waits_for(const rks_connection *connection);

/* reconnect.c. Makes the peer's connection again that has just ended. Returns false if that is its
 * end. */
bool rks_peer_mend(rks_connection *connection, const rks_error *why);
/* Returns true if the peer's answer to a hello was wrong, and the hello is to be said again. */
bool rks_peer_try_again(const rks_connection *connection, const rks_error *why);
/* The peer's connection is open. */
void rks_peer_mended(rks_engine *engine, uint32_t rank);
/* Adds to the reason of a loss how the connection broke before. */
void rks_peer_say_broken(const rks_engine *engine, uint32_t rank, rks_error *why);

/* Of rks_connection_events. */
void rks_peer_resumed(rks_connection *connection, uint64_t instance, uint64_t taken);
rks_status rks_peer_bind(rks_engine *engine, rks_hello *hello, rks_error *err);
bool rks_peer_holds(rks_connection *connection);
rks_status rks_peer_accepted(rks_connection *connection, rks_error *err);
void rks_peer_opened(rks_connection *connection);
void rks_peer_ended(rks_connection *connection, const rks_error *why);
void rks_call_done(rks_engine *engine, rks_call *call, const rks_error *err);

#endif
