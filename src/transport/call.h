/* SPDX-License-Identifier: Apache-2.0
 *
 * call.h: a request as one object, from its caller over the wire to its reply. Part of engine.h. */
#ifndef RKS_TRANSPORT_CALL_H
#define RKS_TRANSPORT_CALL_H

#include <stdbool.h>
#include <sys/uio.h>

#include "rankstore/base.h"
#include "transport/frame.h"

typedef struct rks_engine rks_engine;
typedef struct rks_call rks_call;

/* Something for the engine thread to do. Lies in what it is about. */
typedef struct rks_command {
    struct rks_command *next;
    void (*run)(rks_engine *engine, struct rks_command *command);
} rks_command;

/* A frame on its way out; part of a larger thing, which `sent` frees. */
typedef struct rks_frame {
    struct rks_frame *next;
    void (*sent)(struct rks_frame *frame); /* once: sent, or given up */
    struct iovec *parts;                   /* the header first */
    size_t count;
    size_t total;
    struct iovec few[2]; /* parts of frames with one body */
    uint8_t header[RKS_FRAME_HEADER];
} rks_frame;

/* Engine thread, must not wait.
 *   place  memory for a reply of `size` bytes (NULL: no memory, the call fails); received into it
 *   come   a part of the reply has been received; may be NULL
 *   done   exactly once; err is NULL on success
 *   over   exactly once, last, also inside rks_engine_close: the engine uses neither the call nor
 *          its body any more. A request that fails while it is being written is done before */
typedef struct rks_call_ops {
    void *(*place)(rks_call *call, size_t size);
    void (*come)(rks_call *call);
    void (*done)(rks_call *call, const rks_error *err);
    void (*over)(rks_call *call);
} rks_call_ops;

struct rks_call {
    /* the caller's, and constant from rks_engine_call to `over` */
    const rks_call_ops *ops;
    const char *phase; /* static, for messages */
    const void *body;
    size_t size;
    uint32_t peer;
    uint16_t service;
    /* the engine's */
    uint8_t ended; /* of sending and waiting for the reply, how many are over */
    bool asked;    /* its turn to be sent has come */
    uint64_t id;
    rks_command command;
    rks_frame frame;
    rks_call *next; /* of those that wait for a reply of this peer; before, see rks_engine_call_all */
    rks_call **link;
};

#endif
