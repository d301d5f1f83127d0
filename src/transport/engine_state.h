/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_state.h: what the files of the engine share.
 *
 *   caller ── rks_command ──► mailbox.c ──► engine thread: engine.c
 *                                           heartbeat.c     pings and lost peers
 *                                           admission.c   connections that others open
 *                                           peer.c        requests and notes, life of a peer
 *                                           connection.c  one stream: handshake, life
 *                                           receiver.c, sender.c  its frames
 *                                           record_layer.c        records: authenticated frames
 *                                           net.h         bytes and time: tcp.c or memory_net.c
 *   I/O threads: server.c
 *
 * Two ranks share one connection, for both directions. If both open one at the same time, that of
 * the lower rank counts. The higher rank accepts it and drops its own (`crossed`). The lower rank
 * keeps the other's connection waiting after its proof (`held`) until its own is open, or takes it
 * if its own fails. So the side that accepts decides, and both sides decide alike.
 *
 * Unless a comment says otherwise, a field belongs to the engine thread.
 */
#ifndef RKS_TRANSPORT_ENGINE_STATE_H
#define RKS_TRANSPORT_ENGINE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "transport/engine.h"
#include "transport/frame.h"
#include "transport/net.h"

enum {
    RKS_SILENT_MS = 2000,       /* time to say hello, if the admission is more than half full */
    RKS_STAGE_SIZE = 64 * 1024, /* buffer into which small frames are read */
    RKS_SLICE_PARTS = 256,      /* most parts of a write */
    RKS_RECORD_BYTES = 65536,   /* most bytes of frames in a record: record_layer.c */
    RKS_RECORD_LAYER_BYTES = 2 * RKS_RECORD_BYTES, /* in records that are sent together */
    RKS_ASKED_MAX = 32 << 20, /* most bytes of unanswered requests to one peer */
    RKS_POOL_SHARE = 4,       /* requests of one peer in service at a time, for each thread */
};

typedef struct rks_connection rks_connection;
typedef struct rks_peer rks_peer;
typedef struct rks_pool rks_pool;
typedef struct rks_record_layer rks_record_layer;

typedef struct rks_frame_queue {
    rks_frame *first;
    rks_frame **last; /* valid only if `first` is not NULL */
} rks_frame_queue;

typedef struct rks_call_entry {
    rks_call *call; /* the call that waits for its reply; NULL: free */
    uint32_t turn;  /* changes with each use, so that an old id matches no new request */
    uint32_t next;  /* number of the next free entry + 1 */
} rks_call_entry;

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

/* A request from a peer, from its header to its answer. */
struct rks_request {
    rks_command command;
    rks_engine *engine; /* counted in engine->references */
    rks_connection *connection;
    struct rks_request *next; /* guarded by the pool's mutex */
    uint64_t id;
    uint32_t sender;
    uint16_t service;
    size_t size;
    bool at_engine;      /* the engine thread holds it, and sends its answer at once */
    bool at_pool;        /* counted in connection->at_pool */
    rks_frame frame;     /* of the reply */
    struct iovec *parts; /* copied parts of the reply; NULL: not copied */
    void (*release)(void *user);
    void *user;
    rks_error error;
    uint8_t body[];
};

/* The functions of a service, or of the watch (number 0). */
typedef struct rks_handler {
    rks_serve_fn serve;
    rks_quick_fn quick;
    rks_note_fn note;
    rks_lost_fn lost;
    void *user;
} rks_handler;

/* Stores a handler so that reading takes no lock: server.c. */
typedef struct rks_handler_place {
    _Atomic(rks_serve_fn) serve;
    _Atomic(rks_quick_fn) quick;
    _Atomic(rks_note_fn) note;
    _Atomic(rks_lost_fn) lost;
    void *_Atomic user;
    atomic_uint version; /* odd while the fields change, under handlers_mutex */
    atomic_uint running; /* calls that have started */
    atomic_uint waiting; /* threads that wait for `running` to become 0 */
} rks_handler_place;

/* Connections that are accepted but not proven. Those without a hello are in lines by their origin
 * (rks_stream_origin). */
enum { RKS_LOBBY_LINES = 256 };
typedef struct rks_line {
    rks_connection *first, *last; /* oldest first */
    uint32_t count;
} rks_line;
typedef struct rks_admission {
    rks_line silent[RKS_LOBBY_LINES];
    rks_line heard; /* those whose hello had the right tag */
    uint32_t count, max;
    uint64_t salt; /* random, so that nobody can choose a line */
} rks_admission;

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
    uint64_t refusal_logged_ms;
    uint64_t deadline_ms; /* of rks_engine_close */
    bool aborted;
    bool finishing;
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

/* ---- engine.c ------------------------------------------------------------------------------ */

void rks_engine_release(rks_engine *engine); /* drops one reference */
const char *rks_engine_host(const rks_engine *engine, uint32_t rank);
void rks_engine_close_all(rks_engine *engine);
void rks_engine_stream_closed(rks_engine *engine);

/* ---- mailbox.c ------------------------------------------------------------------------------- */

/* Posts a command. Returns false if the engine thread has ended; the command then stays the
 * caller's. Any thread. */
bool rks_engine_post(rks_engine *engine, rks_command *command);
/* Posts calls, linked from `first` by `next` to `last`; returns as rks_engine_post. On the engine
 * thread it appends them to a list of its own, which runs before the loop sleeps. Their order
 * relative to posted calls does not matter. */
bool rks_engine_post_calls(rks_engine *engine, rks_command *first, rks_command *last);
/* Marks this thread as the engine's. */
void rks_mailbox_enter(rks_engine *engine);
/* Runs the posted commands. Returns false if there were none. `last` closes the mailbox. */
bool rks_mailbox_run(rks_engine *engine, bool last);
/* An event of rks_net_events: runs commands and sends frames before the loop may sleep. From then
 * on a thread that posts must wake the loop, until the loop's next callback; the loop calls this
 * function again after that callback, before it sleeps. */
void rks_mailbox_rest(void *engine);

/* ---- heartbeat.c -------------------------------------------------------------------------------
 */

/* Makes the alarm ring at `at_ms` at the latest. */
void rks_engine_alarm_at(rks_engine *engine, uint64_t at_ms);
/* Starts to watch connections for silence, unless that has already started. */
void rks_engine_beat(rks_engine *engine);
void rks_heartbeat_alarm(void *engine); /* an event of rks_net_events */

/* ---- admission.c ----------------------------------------------------------------------------- */

/* Accepts connections that wait, as far as the admission has room. */
void rks_engine_admit(rks_engine *engine);
/* Returns the line of silent connections of this origin. */
rks_line *rks_admission_line(rks_admission *admission, uint64_t origin);
/* Adds an accepted connection to the admission; records that its hello had the right tag; removes
 * it when it is proven or over. */
void rks_admission_enter(rks_connection *connection);
void rks_admission_heard(rks_connection *connection);
void rks_admission_leave(rks_connection *connection);
void rks_admission_incoming(void *engine); /* an event of rks_net_events */
/* Starts to accept connections. */
void rks_admission_join(rks_engine *engine, rks_command *command);

/* ---- peer.c ---------------------------------------------------------------------------------- */

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
/* Gives the call its id and adds it to its peer's calls. Returns false if memory is short. In
 * call_table.c. */
bool rks_call_table_add(rks_engine *engine, rks_call *call);
void rks_call_table_remove(rks_engine *engine, rks_call *call);
/* Returns the call `id` to `rank`; NULL if no such call waits. */
rks_call *rks_call_find(rks_engine *engine, uint32_t rank, uint64_t id);
void rks_call_done(rks_engine *engine, rks_call *call, const rks_error *err);
/* The `sent` of a call's frame. */
void rks_call_sent(rks_frame *frame);
/* Sets key, addresses and features of a hello from or to hello->peer_rank. */
rks_status rks_peer_bind(rks_engine *engine, rks_hello *hello, rks_error *err);
/* Makes rks_peer_retry run before the loop rests: fewer connections are being opened, or one more
 * waits for its turn. The alarm could do it, too, but it looks at every connection. */
void rks_peer_next(rks_engine *engine);
/* Called when an accepted connection has proved itself. Returns true if this side has opened one,
 * too, and the accepted one is therefore held or over. */
bool rks_peer_holds(rks_connection *connection);
/* Makes an accepted connection the peer's. On failure the connection is refused. */
rks_status rks_peer_accepted(rks_connection *connection, rks_error *err);
/* Sends what waits for the peer's connection, which is now open. */
void rks_peer_opened(rks_connection *connection);
/* Returns true if frames wait for this connection, or for the one that it replaces. */
bool rks_peer_waits_for(const rks_connection *connection);
/* Called when the connection is over. why->status is RKS_OK after a bye. */
void rks_peer_ended(rks_connection *connection, const rks_error *why);

/* ---- connection.c ---------------------------------------------------------------------------- */

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
    uint32_t at_pool;                   /* requests that I/O threads have */
    rks_request *parked, **parked_last; /* requests that wait until replies are sent */
    uint64_t parked_bytes;
    bool to_flush; /* in engine->full */
    rks_connection *full_next;
    rks_fixed_frame says_hello, says_proof, says_ping, says_pong, says_bye;
};

/* Returns true if no route leads to the host. A link that is briefly down counts as silence, not as
 * a loss. */
bool rks_is_unreachable(int64_t error);
/* Opens the peer's connection. It may already be over when this returns RKS_OK. `err` must not be
 * NULL. */
rks_status rks_connection_open(rks_engine *engine, uint32_t rank, rks_error *err);
/* Accepts a connection. Returns 0, EAGAIN or ENOMEM as rks_net_accept, or another errno value. */
int rks_connection_accept(rks_engine *engine);
/* Closes the connection at once. For `why` see rks_peer_ended. */
void rks_connection_lose(rks_connection *connection, const rks_error *why);
/* Does the same with a formatted reason. */
void rks_connection_fail(rks_connection *connection, rks_status status, int64_t cause,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Handle a hello or proof, which is in `small`. */
void rks_connection_receive_hello(rks_connection *connection);
void rks_connection_receive_proof(rks_connection *connection);
/* Makes a held connection the peer's, or refuses it. */
void rks_connection_use_held(rks_connection *connection);
/* Drops the rest of the reply that is being received. */
void rks_connection_drop_reply(rks_connection *connection);
void rks_connection_unref(rks_connection *connection);

/* ---- receiver.c -------------------------------------------------------------------------------
 */

/* Events of rks_stream_events; `user` is the connection. */
void *rks_connection_room(void *user, size_t *size);
void rks_connection_received(void *user, size_t size);
/* Reads frames from bytes that were not received directly into a body. */
void rks_connection_consume(rks_connection *connection, const uint8_t *bytes, size_t size);

/* ---- record_layer.c
 * ---------------------------------------------------------------------------------- */

/* Returns the feature bits that this rank wants for connections to that rank. */
uint32_t rks_record_layer_features(const rks_engine *engine, uint32_t rank);
/* Creates the connection's layer if either side wants one. Both sides must be proven. */
rks_status rks_record_layer_begin(rks_connection *connection, rks_error *err);
void rks_record_layer_free(rks_record_layer *layer); /* NULL is accepted */
/* Makes records from at most RKS_RECORD_LAYER_BYTES in RKS_SLICE_PARTS parts. The parts' bytes must
 * stay in place until all of it is sent. */
void rks_record_layer_write(rks_record_layer *layer, const struct iovec *parts, size_t size);
const struct iovec *rks_record_layer_unsent(const rks_record_layer *layer, size_t *count);
/* Counts `bytes` as sent. Returns true if everything is sent. */
bool rks_record_layer_sent(rks_record_layer *layer, size_t bytes);
void *rks_record_layer_room(rks_record_layer *layer, size_t *size);
void rks_record_layer_received(rks_connection *connection, size_t size);
/* Does the same as room and received for bytes that were received elsewhere. */
void rks_record_layer_read(rks_connection *connection, const uint8_t *bytes, size_t size);

/* ---- sender.c ----------------------------------------------------------------------------------
 */

/* Queues a frame. If the connection is over, drops it at once. On an open connection the frame is
 * sent before the loop rests, in one write with others. */
void rks_connection_send(rks_connection *connection, rks_frame *frame);
void rks_engine_flush(rks_engine *engine);
/* Sends a fixed frame with `size` bytes of its body, unless the previous one is not sent yet. */
void rks_connection_say(rks_connection *connection, rks_fixed_frame *fixed,
                        enum rks_frame_type type, size_t size);
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

void rks_frame_queue_add(rks_frame_queue *queue, rks_frame *frame);
rks_frame *rks_frame_queue_take(rks_frame_queue *queue);
/* Sets header and parts of a frame with at most one body. */
void rks_frame_set(rks_frame *frame, enum rks_frame_type type, uint64_t id, uint16_t service,
                   const void *body, size_t size);

/* ---- server.c ---------------------------------------------------------------------------------
 */

rks_status rks_pool_create(rks_engine *engine, uint32_t threads, rks_pool **pool, rks_error *err);
/* Refuses requests that have not started, waits for those that have, and ends the threads. */
void rks_pool_stop(rks_pool *pool);
void rks_pool_free(rks_pool *pool);
/* Serves a request at once or queues it for the threads. Takes it over. Engine thread. */
void rks_pool_serve(rks_engine *engine, rks_request *request);
/* Pass the queued requests to the threads (flush), and wake more threads if they are slow (hurry).
 * Engine thread. */
void rks_pool_flush(rks_engine *engine);
void rks_pool_hurry(rks_engine *engine);
/* Returns a request with room for a body of `size` bytes; NULL if memory is short. */
rks_request *rks_request_create(rks_connection *connection, const rks_frame_header *header,
                                size_t size);
/* Returns the bytes of memory that the owner needs for a request of `size` bytes. */
static inline uint64_t rks_request_room(size_t size)
{
    return sizeof(rks_request) + size;
}
/* Frees a request that no service has seen. */
void rks_request_drop(rks_request *request);
/* Call the service or the watch, if there is one. */
void rks_handlers_note(rks_engine *engine, uint16_t service, uint32_t from, const uint8_t *body,
                       size_t size);
void rks_handlers_lost(rks_engine *engine, uint32_t rank, const rks_error *err);

/* ---- listener.c --------------------------------------------------------------------------------
 */

struct sockaddr_storage;
/* Opens a listening socket on `where` (see rks_engine_options), and sets its address. */
rks_status rks_listen(const char *where, int *fd, rks_address *address, rks_error *err);
void rks_address_to_socket(const rks_address *address, struct sockaddr_storage *socket);
/* Prints "10.0.0.1:4000". */
void rks_address_format(const rks_address *address, char *text, size_t size);

#endif
