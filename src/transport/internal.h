/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h: what the files of the engine share.
 *
 *   caller ── rks_command ──► mailbox.c ──► engine thread: engine.c
 *                                           silence.c     pings, and who is lost
 *                                           newcomers.c   connections that others open
 *                                           peer.c        requests and notes, life of a peer
 *                                           connection.c  one stream: handshake, life
 *                                           receive.c, send.c  its frames
 *                                           seal.c        their tags between hosts
 *                                           net.h         bytes and time: tcp.c or memory.c
 *   I/O threads: serve.c
 *
 * Two ranks have one connection, for both directions. Where both open one at the same time, that of
 * the lower rank counts: the higher rank takes it, and leaves its own (`crossed`); the lower rank lets
 * the other one's wait with its proof (`held`) until its own is open, or takes it if that fails. So
 * the side that accepts decides, and both sides decide alike.
 *
 * Unless a comment says otherwise, a field belongs to the engine thread.
 */
#ifndef RKS_TRANSPORT_INTERNAL_H
#define RKS_TRANSPORT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "transport/engine.h"
#include "transport/frame.h"
#include "transport/net.h"

enum {
    RKS_SILENT_MS = 2000,       /* to say hello, where half of the room for newcomers is taken */
    RKS_STAGE_SIZE = 64 * 1024, /* small frames are read into it */
    RKS_SLICE_PARTS = 256,      /* of a write */
    RKS_RECORD_BYTES = 65536,   /* of frames in a record: seal.c */
    RKS_SEALED_BYTES = 2 * RKS_RECORD_BYTES, /* in records that go out together */
    RKS_ASKED_MAX = 32 << 20,   /* bytes of requests to one peer that are not answered */
    RKS_POOL_SHARE = 4,         /* requests of one peer that may be served at a time, for each thread */
};

typedef struct rks_connection rks_connection;
typedef struct rks_peer rks_peer;
typedef struct rks_pool rks_pool;
typedef struct rks_seal rks_seal;

typedef struct rks_frame_queue {
    rks_frame *first;
    rks_frame **last; /* NULL: empty */
} rks_frame_queue;

typedef struct rks_slot {
    rks_call *call; /* that waits for its reply; NULL: free */
    uint32_t turn;  /* so that an old id does not meet a new request */
    uint32_t next;  /* free slot + 1 */
} rks_slot;

/* A note from its caller to the wire; also keep frames. */
typedef struct rks_note {
    rks_command command;
    rks_frame frame;
    uint32_t peer;
    uint8_t body[];
} rks_note;

struct rks_peer {
    rks_connection *connection; /* open, or being opened by this side; NULL: none */
    rks_connection *held;       /* opened by the peer and proven, while this side opens one */
    rks_call *calls;            /* that wait for their replies */
    rks_frame_queue waiting;    /* until the connection is open */
    rks_frame_queue unasked;    /* calls that wait until others are answered; they are in `calls` */
    uint64_t asked;             /* bytes of the calls that do not */
    uint64_t since_ms;       /* when connecting began */
    uint64_t retry_ms;       /* not 0: connect again then */
    uint32_t cuts;           /* connections of these that it cut during the hello */
    bool paced;              /* waits until fewer connections are being opened */
    bool keep;
    bool failed;   /* requests end with `error` */
    bool gone;     /* notes are dropped as well */
    bool lost;     /* kept, and not reached: it is not let in either */
    bool reported; /* the watch knows */
    bool keyed;    /* `key` is made */
    uint8_t key[RKS_SECRET_SIZE]; /* of this rank and that one */
    uint64_t *said;               /* checksums of its last hellos' nonces (newcomers.c); NULL: none */
    uint32_t said_count;          /* counts on and on */
    rks_error error;
};

/* A request of a peer, from its header to its answer. */
struct rks_request {
    rks_command command;
    rks_engine *engine; /* counted in engine->references */
    rks_connection *connection;
    struct rks_request *next; /* guarded by the pool's mutex */
    uint64_t id;
    uint32_t sender;
    uint16_t service;
    size_t size;
    bool at_engine;      /* the engine thread has it, and sends what it is answered */
    bool at_pool;        /* counted in connection->at_pool */
    rks_frame frame;     /* the reply's */
    struct iovec *parts; /* the reply's, where they are a copy */
    void (*release)(void *user);
    void *user;
    rks_error error;
    uint8_t body[];
};

/* What a service, or the watch (number 0), calls. */
typedef struct rks_handler {
    rks_serve_fn serve;
    rks_quick_fn quick;
    rks_note_fn note;
    rks_lost_fn lost;
    void *user;
} rks_handler;

/* Where it is kept: read without a lock, see serve.c. */
typedef struct rks_handler_place {
    _Atomic(rks_serve_fn) serve;
    _Atomic(rks_quick_fn) quick;
    _Atomic(rks_note_fn) note;
    _Atomic(rks_lost_fn) lost;
    void *_Atomic user;
    atomic_uint version; /* odd while the fields change, under handlers_mutex */
    atomic_uint running; /* calls that have begun */
    atomic_uint waiting; /* for none to be running */
} rks_handler_place;

/* Connections that are accepted and not proven. Those that have not said hello stand in lines by
 * their origins (rks_stream_origin). */
enum { RKS_LOBBY_LINES = 256 };
typedef struct rks_line {
    rks_connection *first, *last; /* the oldest first */
    uint32_t count;
} rks_line;
typedef struct rks_lobby {
    rks_line silent[RKS_LOBBY_LINES];
    rks_line heard; /* whose hello had the right tag */
    uint32_t count, max;
    uint64_t salt; /* so that nobody can choose a line */
} rks_lobby;

struct rks_engine {
    /* set by rks_engine_open, then constant */
    rks_engine_options options;
    rks_address address;
    rks_net *net;
    rks_pool *pool;
    pthread_t thread;

    /* set by rks_engine_join before `joined`, then constant */
    atomic_bool joined;
    rks_address *addresses;
    uint8_t session[16];
    uint8_t secret[RKS_SECRET_SIZE];
    uint8_t private_key[RKS_KEY_SIZE];
    uint8_t *public_keys; /* RKS_KEY_SIZE each; NULL: the secret is the key of all */

    atomic_bool closing;    /* rks_engine_close has begun */
    atomic_uint references; /* the engine's own, and one for each request that a caller holds */

    pthread_mutex_t mutex;
    rks_command *mailbox;       /* guarded by mutex */
    rks_command **mailbox_last; /* guarded by mutex */
    bool mailbox_closed;        /* guarded by mutex */
    atomic_bool mail;           /* something is in the mailbox; changed under the mutex */
    atomic_bool resting;        /* the loop sleeps or is about to */
    rks_command *own;           /* calls that callbacks made on the engine thread */
    rks_command **own_last;

    pthread_mutex_t handlers_mutex;
    pthread_cond_t handlers_idle;
    rks_handler_place handlers[RKS_SERVICES];

    rks_command join, abort, finish; /* posted once each */
    uint32_t linger_ms;              /* set before `finish` is posted */

    rks_peer *peers;
    rks_connection *connections;
    uint32_t streams;  /* connections whose stream is not closed yet */
    uint32_t opening;  /* of them, opened by this side and not proven */
    rks_lobby lobby;   /* of them, accepted and not proven */
    rks_slot *slots;   /* an id is {turn, slot number} */
    uint32_t slots_room;
    uint32_t slots_free; /* first free slot + 1; 0: none */
    uint32_t retries;    /* peers with retry_ms */
    bool turn;           /* before the loop rests, some of them may connect */
    rks_connection *full; /* those with frames to send before the loop rests */
    bool admitting;      /* inside rks_engine_admit */
    uint64_t alarm_ms;   /* when the alarm rings; 0: never */
    uint64_t beat_ms;    /* when the next pings are due; 0: nobody to ping */
    uint64_t refusal_logged_ms;
    uint64_t deadline_ms; /* of the closing */
    bool aborted;
    bool finishing;
    bool ending;
    uint8_t *stage;

    atomic_ullong bytes_sent, bytes_received, frames_sent, frames_received, refused, strays;
};

/* Most body bytes of a frame of this type (enum rks_frame_type) that the engine sends or takes. */
static inline uint64_t rks_frame_limit(const rks_engine *engine, uint16_t type)
{
    const rks_engine_options *options = &engine->options;
    if (type == RKS_FRAME_REQUEST)
        return options->max_request;
    if (type == RKS_FRAME_NOTE)
        return options->max_request < RKS_NOTE_MAX ? options->max_request : RKS_NOTE_MAX;
    return options->max_frame;
}

/* ---- engine.c ------------------------------------------------------------------------------ */

void rks_engine_release(rks_engine *engine); /* one reference */
const char *rks_engine_host(const rks_engine *engine, uint32_t rank);
void rks_engine_close_all(rks_engine *engine);
void rks_engine_stream_closed(rks_engine *engine);

/* ---- mailbox.c ------------------------------------------------------------------------------- */

/* False: the engine thread is over, and the command stays the caller's. */
bool rks_engine_post(rks_engine *engine, rks_command *command);
/* The same for calls, from `first` by `next` to `last`. The engine thread does not post to itself: what its callbacks call waits in
 * a list of its own, and goes out before the loop sleeps. Calls need no order. */
bool rks_engine_post_calls(rks_engine *engine, rks_command *first, rks_command *last);
/* This thread is the engine's from now on. */
void rks_mailbox_enter(rks_engine *engine);
/* False: there was nothing in it. `last`: nothing more is taken. */
bool rks_mailbox_run(rks_engine *engine, bool last);
/* Of rks_net_events. From here on the loop may sleep, and whoever posts has to wake it; until the
 * first callback, since that is followed by this one before the loop sleeps again. */
void rks_mailbox_rest(void *engine);

/* ---- silence.c ------------------------------------------------------------------------------- */

/* The alarm rings at `at_ms` at the latest. */
void rks_engine_alarm_at(rks_engine *engine, uint64_t at_ms);
/* A connection has to be watched for silence from now on. */
void rks_engine_beat(rks_engine *engine);
void rks_silence_alarm(void *engine); /* of rks_net_events */

/* ---- newcomers.c ----------------------------------------------------------------------------- */

/* There may be room for an accepted connection. */
void rks_engine_admit(rks_engine *engine);
/* Where those of this origin stand that have said nothing. */
rks_line *rks_lobby_line(rks_lobby *lobby, uint64_t origin);
/* An accepted connection comes; its hello has the right tag; it is proven or over. */
void rks_lobby_enter(rks_connection *connection);
void rks_lobby_heard(rks_connection *connection);
void rks_lobby_leave(rks_connection *connection);
void rks_newcomers_incoming(void *engine); /* of rks_net_events */
/* From now on newcomers are let in. */
void rks_newcomers_join(rks_engine *engine, rks_command *command);

/* ---- peer.c ---------------------------------------------------------------------------------- */

/* All take the frame. */
void rks_peer_keep(rks_engine *engine, rks_note *note);
void rks_peer_note(rks_engine *engine, rks_note *note);
void rks_peer_call(rks_engine *engine, rks_call *call);
void rks_peer_give_up(rks_engine *engine, uint32_t rank, const rks_error *err);
void rks_peer_retry(rks_engine *engine, uint64_t now_ms);
/* Ends all requests with RKS_ERR_STATE. */
void rks_peer_abort_all(rks_engine *engine);
/* Gives up what waits for a connection; the loop is over. */
void rks_peer_forget_all(rks_engine *engine);
bool rks_peer_expects(const rks_peer *peer); /* its silence would matter */
/* slots.c: gives the call its id, and puts it among its peer's; false: no memory. */
bool rks_slot_take(rks_engine *engine, rks_call *call);
void rks_slot_give(rks_engine *engine, rks_call *call);
/* The call `id` of `rank`; NULL: nobody waits for it. */
rks_call *rks_call_find(rks_engine *engine, uint32_t rank, uint64_t id);
void rks_call_done(rks_engine *engine, rks_call *call, const rks_error *err);
/* A call's frame.sent. */
void rks_call_sent(rks_frame *frame);
/* What the hello must know of the rank that it comes from, or goes to. */
rks_status rks_peer_bind(rks_engine *engine, rks_hello *hello, rks_error *err);
/* One connection fewer is being opened, or one more waits for its turn: rks_peer_retry follows before the
 * loop rests. Not by the alarm, which looks at every connection. */
void rks_peer_next(rks_engine *engine);
/* An accepted connection has proved itself. Is it held, or over, since this side has opened one? */
bool rks_peer_holds(rks_connection *connection);
/* It becomes the peer's; a failure refuses it. */
rks_status rks_peer_accepted(rks_connection *connection, rks_error *err);
/* The peer's connection is open. */
void rks_peer_opened(rks_connection *connection);
/* Does something wait for the connection, or for the one in whose place it is? */
bool rks_peer_waits_for(const rks_connection *connection);
/* The connection is over; why->status is RKS_OK after a bye. */
void rks_peer_ended(rks_connection *connection, const rks_error *why);

/* ---- connection.c ---------------------------------------------------------------------------- */

enum rks_connection_state {
    RKS_CONNECTION_CONNECTING,
    RKS_CONNECTION_HELLO,
    RKS_CONNECTION_OPEN,
    RKS_CONNECTION_OVER,
};

/* The fixed frames of a connection: no allocation can fail when they are due. */
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
    bool kept;     /* the peer keeps it */
    bool held;     /* accepted and proven, but not taken: see rks_peer */
    bool crossed;  /* another one has taken its place: it ends without a word */
    bool paused;   /* too much is queued: nothing is read */
    bool ending;   /* bye is queued */
    bool finished; /* all of it is sent */
    bool bye;      /* the peer said it */
    bool unproven; /* counted as such: in `opening`, or in the lobby */
    bool stream_open;
    bool proved;         /* both sides have proved the secret */
    bool hung_up;        /* the peer closed, or its host reset the connection */
    bool broken;         /* nothing can be sent; what the peer sent last is still to be read */
    uint32_t references; /* requests being served */
    uint32_t rank;       /* of the peer; known from its hello on */
    rks_hello hello;
    rks_seal *seal;     /* NULL: plain frames */
    uint64_t opened_ms; /* when it was opened; later if this process was stopped meanwhile */
    uint64_t hello_ms;  /* when the peer's hello came; the same */
    rks_line *line;     /* of the lobby; NULL: none */
    rks_connection *line_next, *line_before;
    uint64_t proved_ms; /* when it was open */
    uint64_t heard_ms;
    uint64_t unsent; /* at the last beat */

    /* the frame that is being read */
    uint8_t header[RKS_FRAME_HEADER];
    rks_frame_header frame;
    size_t header_got;
    bool large;    /* the last frame was */
    uint8_t *body; /* NULL: dropped */
    size_t body_got;
    bool direct;         /* the room given out was the body's */
    rks_call *receiving; /* whose memory the body is */
    rks_request *request;
    uint8_t small[sizeof(rks_error)];

    /* frames on their way out */
    rks_frame_queue queue;
    size_t part; /* of the first frame: how far it is sent */
    size_t part_sent;
    size_t slice; /* bytes of the write under way; 0: none */
    uint64_t replies; /* bytes of replies that are queued, and of their requests */
    uint64_t serving; /* bytes of requests that are being served */
    uint32_t at_pool; /* of them, those that threads have */
    rks_request *parked, **parked_last; /* requests that wait until replies are sent */
    uint64_t parked_bytes;
    bool to_flush; /* in engine->full */
    rks_connection *full_next;
    rks_fixed_frame says_hello, says_proof, says_ping, says_pong, says_bye;
};

/* No way leads to the host: a link that is down for a moment is silence, and no end yet. */
bool rks_is_unreachable(int64_t error);
/* Makes the peer's connection. It may be over again when this returns RKS_OK. `err` is not NULL. */
rks_status rks_connection_open(rks_engine *engine, uint32_t rank, rks_error *err);
/* Takes what waits at the listener; EAGAIN, ENOMEM and others as rks_net_accept. */
int rks_connection_accept(rks_engine *engine);
/* Closes at once; why: see rks_peer_ended. */
void rks_connection_lose(rks_connection *connection, const rks_error *why);
/* The same with a text of its own. */
void rks_connection_fail(rks_connection *connection, rks_status status, int64_t cause,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));
/* A hello or proof lies in `small`. */
void rks_connection_take_hello(rks_connection *connection);
void rks_connection_take_proof(rks_connection *connection);
/* A held one becomes the peer's, or is refused. */
void rks_connection_take_held(rks_connection *connection);
/* The receiver of the reply that is coming in wants it no more. */
void rks_connection_drop_reply(rks_connection *connection);
void rks_connection_unref(rks_connection *connection);

/* ---- receive.c ------------------------------------------------------------------------------- */

/* Of rks_stream_events; `user` is the connection. */
void *rks_connection_room(void *user, size_t *size);
void rks_connection_received(void *user, size_t size);
/* Bytes of frames, not received into their places. */
void rks_connection_consume(rks_connection *connection, const uint8_t *bytes, size_t size);

/* ---- seal.c ---------------------------------------------------------------------------------- */

/* Feature bits that this rank wants towards that one. */
uint32_t rks_seal_features(const rks_engine *engine, uint32_t rank);
/* Both sides are proven: makes the connection's seal, if one of them wants it. */
rks_status rks_seal_begin(rks_connection *connection, rks_error *err);
void rks_seal_free(rks_seal *seal); /* NULL is accepted */
/* Makes records of at most RKS_SEALED_BYTES in RKS_SLICE_PARTS parts, which stay where they are until
 * all of it is sent. */
void rks_seal_records(rks_seal *seal, const struct iovec *parts, size_t size);
const struct iovec *rks_seal_unsent(const rks_seal *seal, size_t *count);
/* True: that was all of it. */
bool rks_seal_sent(rks_seal *seal, size_t bytes);
void *rks_seal_room(rks_seal *seal, size_t *size);
void rks_seal_received(rks_connection *connection, size_t size);
/* The same for bytes that were received into another place. */
void rks_seal_take(rks_connection *connection, const uint8_t *bytes, size_t size);

/* ---- send.c ---------------------------------------------------------------------------------- */

/* Queues it; on a connection that is over it is given up at once. On an open one it goes out before
 * the loop rests, in one write with others. */
void rks_connection_send(rks_connection *connection, rks_frame *frame);
void rks_engine_flush(rks_engine *engine);
/* Sends a fixed frame with `size` bytes of its body, unless the last one is still on its way. */
void rks_connection_say(rks_connection *connection, rks_fixed_frame *fixed,
                        enum rks_frame_type type, size_t size);
/* Says bye and closes when everything is sent. */
void rks_connection_end(rks_connection *connection);
/* If it is ending and all is sent: no more comes. */
void rks_connection_finish(rks_connection *connection);
/* A write of the stream is over. */
void rks_connection_written(rks_connection *connection, int error);
/* Gives up what is queued; the stream is closed. */
void rks_connection_forget_frames(rks_connection *connection);
/* A request has come: it is served, or waits while too many replies are queued. */
void rks_connection_serve(rks_connection *connection, rks_request *request);
/* Replies were sent, a request was answered, or this side asks the peer: what waits is served, and
 * the stream is read again, if there is room. */
void rks_connection_unpause(rks_connection *connection);
/* Drops the requests that wait. */
void rks_connection_forget_parked(rks_connection *connection);

void rks_frame_queue_add(rks_frame_queue *queue, rks_frame *frame);
rks_frame *rks_frame_queue_take(rks_frame_queue *queue);
/* Header and parts of a frame with at most one body. */
void rks_frame_set(rks_frame *frame, enum rks_frame_type type, uint64_t id, uint16_t service,
                   const void *body, size_t size);

/* ---- serve.c --------------------------------------------------------------------------------- */

rks_status rks_pool_create(rks_engine *engine, uint32_t threads, rks_pool **pool, rks_error *err);
/* Refuses what has not begun, waits for what has, ends the threads. */
void rks_pool_stop(rks_pool *pool);
void rks_pool_free(rks_pool *pool);
/* Engine thread. Takes the request: it is answered at once, or goes to the threads. */
void rks_pool_serve(rks_engine *engine, rks_request *request);
/* Engine thread: hands what has come to the threads; and again, if they are slow with it. */
void rks_pool_flush(rks_engine *engine);
void rks_pool_hurry(rks_engine *engine);
/* NULL: no memory. */
rks_request *rks_request_create(rks_connection *connection, const rks_frame_header *header,
                                size_t size);
/* What a request of `size` bytes takes of an owner's memory. */
static inline uint64_t rks_request_room(size_t size)
{
    return sizeof(rks_request) + size;
}
/* Of a request that nobody has seen. */
void rks_request_drop(rks_request *request);
/* Calls into a service or the watch, if there is one. */
void rks_handlers_note(rks_engine *engine, uint16_t service, uint32_t from, const uint8_t *body,
                       size_t size);
void rks_handlers_lost(rks_engine *engine, uint32_t rank, const rks_error *err);

/* ---- listen.c -------------------------------------------------------------------------------- */

struct sockaddr_storage;
/* A listening socket on `where` (see rks_engine_options) and its address. */
rks_status rks_listen(const char *where, int *fd, rks_address *address, rks_error *err);
void rks_address_to_socket(const rks_address *address, struct sockaddr_storage *socket);
/* "10.0.0.1:4000" */
void rks_address_format(const rks_address *address, char *text, size_t size);

#endif
