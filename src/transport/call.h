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

/* A task for the engine thread. The object it concerns contains it. */
typedef struct rks_command {
    struct rks_command *next;
    void (*run)(rks_engine *engine, struct rks_command *command);
} rks_command;

/* A frame to send. It is part of a larger object, which `sent` frees. */
typedef struct rks_frame {
    struct rks_frame *next;
    void (*sent)(struct rks_frame *frame); /* called once: the frame was sent, or dropped */
    struct iovec *parts;                   /* the header first */
    size_t count;
    size_t total;
    struct iovec few[2]; /* the parts of a frame with one body */
    uint8_t header[RKS_FRAME_HEADER];
} rks_frame;

/* All run on the engine thread and must not wait.
 *   place  returns memory for a reply of `size` bytes; the engine receives the reply into it. If
 *          place returns NULL, the call fails with RKS_ERR_MEMORY. Called once, also if the request
 *          is sent again because its connection broke in the middle of the reply
 *   come   reports that part of the reply has arrived; may be NULL
 *   done   called exactly once; err is NULL on success
 *   over   called exactly once and last, also inside rks_engine_close. After it the engine uses
 *          neither the call nor its body. If a request fails while it is being written, `done`
 *          comes first, and `over` when the write ends */
typedef struct rks_call_ops {
    void *(*place)(rks_call *call, size_t size);
    void (*come)(rks_call *call);
    void (*done)(rks_call *call, const rks_error *err);
    void (*over)(rks_call *call);
} rks_call_ops;

struct rks_call {
    /* set by the caller, and constant from rks_engine_call to `over` */
    const rks_call_ops *ops;
    const char *phase; /* static; for messages */
    const void *body;
    size_t size;
    uint32_t peer;
    uint16_t service;
    /* set by the engine */
    uint8_t ended; /* 0 to 2: sending and waiting for the reply each count when they end */
    bool asked;    /* the engine has queued it to be sent */
    bool again;    /* it is sent again once its old connection lets go of the frame */
    bool placed;   /* `place` has been called */
    uint64_t id;
    rks_engine *engine;
    void *to; /* from `place`, for a reply of `room` bytes */
    size_t room;
    rks_command command;
    rks_frame frame;
    rks_call *next; /* next of the peer's calls that wait for a reply; before that, see
                     * rks_engine_call_all */
    rks_call **link;
};

#endif
