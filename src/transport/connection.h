/* SPDX-License-Identifier: Apache-2.0
 *
 * connection.h: one stream to a peer: connection.c, receiver.c and sender.c.
 *
 * Two ranks share one connection, for both directions. If both open one at the same time, that of
 * the lower rank counts. The higher rank accepts it and drops its own (`crossed`). The lower rank
 * keeps the other's connection waiting after its proof (`held`) until its own is open, or takes it
 * if its own fails. So the side that accepts decides, and both sides decide alike. */
#ifndef RKS_TRANSPORT_CONNECTION_H
#define RKS_TRANSPORT_CONNECTION_H

#include "transport/engine_state.h"
#include "transport/frame_queue.h"
#include "transport/record_layer.h"

enum { RKS_SILENT_MS = 2000 }; /* time to say hello, if the admission is more than half full */

enum rks_connection_state {
    RKS_CONNECTION_CONNECTING,
    RKS_CONNECTION_HELLO,
    RKS_CONNECTION_OPEN,
    RKS_CONNECTION_OVER,
};

/* A fixed frame of a connection. It is preallocated, so sending it cannot fail. */
typedef struct rks_fixed_frame {
    rks_frame frame;
    uint8_t body[RKS_HELLO_BODY];
    bool busy;
} rks_fixed_frame;

struct rks_connection {
    rks_engine *engine;
    rks_connection *next;
    rks_connection **link;
    rks_stream *stream;
    enum rks_connection_state state;
    bool initiator;
    bool spoke;    /* its hello may begin */
    bool resumed;  /* the peer has sent resume */
    bool refused;  /* the peer has said that it wants no connection */
    bool kept;     /* the peer has sent keep */
    bool held;     /* accepted and proven, but waits: see rks_peer */
    bool crossed;  /* another one replaces it: it ends without a report */
    bool paused;   /* too much is queued, so the engine stops reading */
    bool ending;   /* bye is queued */
    bool finished; /* everything queued is sent */
    bool bye;      /* the peer has sent it */
    bool unproven; /* counted in `opening` or in the admission */
    bool stream_open;
    bool proved;         /* both sides have proved the secret */
    bool hung_up;        /* the peer closed, or its host reset the connection */
    bool broken;         /* nothing can be sent, but the peer's last bytes are still to be read */
    uint32_t references; /* requests being served, and 1 while in engine->full */
    uint32_t rank;       /* of the peer; known from its hello on */
    uint64_t serial;     /* connections of the engine before this one */
    rks_hello hello;
    rks_record_layer *layer; /* NULL: plain frames */
    uint64_t opened_ms;      /* when it was opened; later if this process was stopped in between */
    uint64_t hello_ms;       /* when the peer's hello arrived; adjusted in the same way */
    rks_line *line;          /* in the admission; NULL: none */
    rks_connection *line_next, *line_before;
    uint64_t proved_ms; /* when both proofs were exchanged */
    uint64_t heard_ms;
    uint64_t unsent; /* bytes, at the last look of the alarm */

    /* the frame that is being read */
    uint8_t header[RKS_FRAME_HEADER];
    rks_frame_header frame;
    size_t header_got;
    bool large;    /* the previous frame was large */
    uint8_t *body; /* NULL: dropped */
    size_t body_got;
    bool direct;         /* the memory returned last by rks_connection_room is `body` */
    rks_call *receiving; /* the call whose memory `body` is */
    rks_request *request;
    uint8_t small[sizeof(rks_error)];

    /* frames to send */
    rks_frame_queue queue;
    size_t part; /* of the first frame: how much is sent */
    size_t part_sent;
    size_t slice;                       /* bytes of the write in progress; 0: none */
    uint64_t replies;                   /* bytes of queued replies and their requests */
    uint64_t serving;                   /* bytes of requests that are being served */
    bool serving_old;                   /* it is over, and its peer counts these and at_pool */
    uint32_t at_pool;                   /* requests that I/O threads have */
    rks_request *parked, **parked_last; /* requests that wait until replies are sent */
    uint64_t parked_bytes;
    bool to_flush; /* in engine->full */
    rks_connection *full_next;
    rks_fixed_frame says_hello, says_proof, says_ping, says_pong, says_bye;
    rks_fixed_frame says_resume, says_keep, says_ack;
};

/* What connections report to the files above them. An engine has one table, set when it is
 * opened. */
struct rks_connection_events {
    /* A connection was accepted; its hello had the right tag. */
    void (*entered)(rks_connection *connection);
    void (*heard)(rks_connection *connection);
    /* It is proven, or over before that: it no longer counts as unproven. */
    void (*settled)(rks_connection *connection);
    /* Sets key, addresses and features of a hello from or to hello->peer_rank. */
    rks_status (*bind)(rks_engine *engine, rks_hello *hello, rks_error *err);
    /* An accepted connection has proved itself. Returns true if this side has opened one, too, and
     * the accepted one is therefore held or over. */
    bool (*holds)(rks_connection *connection);
    /* An accepted connection may become its peer's. On failure it is refused. */
    rks_status (*accepted)(rks_connection *connection, rks_error *err);
    void (*opened)(rks_connection *connection);
    /* The peer has sent resume: `instance` is its process, which has taken the notes up to
     * `taken`. */
    void (*resumed)(rks_connection *connection, uint64_t instance, uint64_t taken);
    /* The peer has taken the notes up to this one. */
    void (*acked)(rks_connection *connection, uint64_t taken);
    /* A note of the peer of `size` bytes was taken; or the peer asks which were (size 0). */
    void (*noted)(rks_connection *connection, size_t size);
    /* A connection that this side opened, or that was open or held, is over. */
    void (*ended)(rks_connection *connection, const rks_error *why);
    void (*closed)(rks_engine *engine); /* a stream is closed */
    /* A call's reply or error has arrived. */
    void (*call_done)(rks_engine *engine, rks_call *call, const rks_error *err);
};

/* Returns true if no route leads to the host, or a Unix socket has too many others waiting. A link
 * that is briefly down counts as silence, not as a loss. */
bool rks_is_unreachable(int64_t error);
/* Opens the peer's connection. It may already be over when this returns RKS_OK. `err` must not be
 * NULL. */
rks_status rks_connection_open(rks_engine *engine, uint32_t rank, rks_error *err);
/* Accepts a connection. Returns 0, EAGAIN or ENOMEM as rks_net_accept, or another errno value. */
int rks_connection_accept(rks_engine *engine);
/* Closes the connection at once. why->status is RKS_OK after a bye. */
void rks_connection_lose(rks_connection *connection, const rks_error *why);
/* Closes all connections, without a reason. */
void rks_connection_lose_all(rks_engine *engine);
/* Closes the connection with a formatted reason. */
void rks_connection_fail(rks_connection *connection, rks_status status, int64_t cause,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Handle a hello or proof, which is in `small`. */
void rks_connection_receive_hello(rks_connection *connection);
void rks_connection_receive_proof(rks_connection *connection);
/* Refuses a peer that has proved itself: sends it the reason and closes. */
void rks_connection_refuse(rks_connection *connection, rks_error *why);
/* Ends a connection whose bytes are not what its peer can have sent, and tells the peer. */
void rks_connection_distrust(rks_connection *connection, rks_error *why);
/* Makes a held connection the peer's, or refuses it. */
void rks_connection_use_held(rks_connection *connection);
/* Drops the rest of the reply that is being received. */
void rks_connection_drop_reply(rks_connection *connection);
void rks_connection_unref(rks_connection *connection);

/* ---- receiver.c ----------------------------------------------------------------------------- */

/* Events of rks_stream_events; `user` is the connection. */
void *rks_connection_room(void *user, size_t *size);
void rks_connection_received(void *user, size_t size);

/* ---- sender.c ------------------------------------------------------------------------------- */

/* Queues a frame. If the connection is over, drops it at once. On an open connection the frame is
 * sent before the loop rests, in one write with others. */
void rks_connection_send(rks_connection *connection, rks_frame *frame);
void rks_engine_flush(rks_engine *engine);
/* Queues a fixed frame with this id and `size` bytes of its body, unless the previous one is not
 * sent yet. */
void rks_connection_say_later(rks_connection *connection, rks_fixed_frame *fixed,
                              enum rks_frame_type type, uint64_t id, size_t size);
/* Does the same with id 0, and sends it at once. */
void rks_connection_say(rks_connection *connection, rks_fixed_frame *fixed,
                        enum rks_frame_type type, size_t size);
/* Tells the peer why this side is about to lose the connection, if that can be sent at once. */
void rks_connection_say_why(rks_connection *connection, const rks_error *why);
/* Says bye, and closes after everything is sent. */
void rks_connection_end(rks_connection *connection);
/* Ends the stream's sending if the connection is ending and everything is sent. */
void rks_connection_finish(rks_connection *connection);
/* Called when a write of the stream has ended. */
void rks_connection_written(rks_connection *connection, int error);
/* Drops the queued frames. The stream must be closed. */
void rks_connection_forget_frames(rks_connection *connection);
/* Serves a request, or parks it while too many replies are queued. */
void rks_connection_serve(rks_connection *connection, rks_request *request);
/* Serves parked requests and resumes reading, if there is room again. Called when replies were
 * sent, a request was answered, or this side has sent to the peer. */
void rks_connection_unpause(rks_connection *connection);
/* Drops the parked requests. */
void rks_connection_forget_parked(rks_connection *connection);

#endif
