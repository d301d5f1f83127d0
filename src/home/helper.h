/* SPDX-License-Identifier: Apache-2.0
 *
 * helper.h: the inside of the home that a helper reaches. One thread talks with the helper: it
 * starts the process when something is wanted, writes lines, reads answers, and copies what has
 * come out of the slots. Reads that wait have no slot; those under way have one for each part:
 *
 *   read ─► tasks in order ─► parts in slots ─► helper ─► slot ─► read's memory ─► `done`
 *
 * A slot is used again when its request was answered, or with the memory of a new process. */
#ifndef RKS_HOME_HELPER_H
#define RKS_HOME_HELPER_H

#include <pthread.h>

#include "home/helper_process.h"
#include "home/helper_wire.h"

enum {
    RKS_HELPER_BIG = 8, /* slots of 4 MiB, and more small ones for records */
    RKS_HELPER_SLOTS = 40,
    RKS_HELPER_BIG_BYTES = 4 << 20,
    RKS_HELPER_SMALL_BYTES = 64 << 10,
    RKS_HELPER_STARTS = 5, /* a minute */
};

typedef struct rks_helper_task rks_helper_task; /* a read */

/* A put, a listing or a removal: a thread waits for it. Guarded by the helper's mutex. */
typedef struct rks_helper_call {
    size_t slot;
    uint64_t id;
    int memory;       /* of its own: the process may end meanwhile */
    bool puts, lists; /* what it is: only a put gets `more`, only a list items */
    bool more;        /* the helper waits for a part */
    bool ended;
    enum rks_home_kind kind;
    rks_error err;
    char version[RKS_HOME_VERSION];
    rks_buffer items;  /* rks_helper_item, each followed by its name and a NUL */
    uint64_t moved_ms; /* when the helper last said something of it */
} rks_helper_call;

typedef struct rks_helper_item {
    uint64_t size, age_s, name_size;
    char version[RKS_HOME_VERSION];
} rks_helper_item;

typedef struct rks_helper_slot {
    uint64_t id; /* of the request; 0: free */
    rks_helper_task *task;
    rks_helper_call *call; /* or this one; neither: nobody waits for it any more */
    uint64_t first, end;   /* of a task's part */
    uint64_t dropped_ms;   /* when nobody waited any more; 0: somebody does */
} rks_helper_slot;

typedef struct rks_helper {
    char *url, *options;
    bool objects; /* names may have slashes */
    pid_t owner;  /* the process that opened it, not one that it forked */
    int wake;     /* an eventfd */
    pthread_t thread;
    pthread_mutex_t mutex;  /* guards what follows */
    pthread_cond_t changed; /* a call ended or may go on; a slot is free; the helper has ended */
    bool threaded, closing;
    rks_helper_process process;
    bool ready;        /* it has said so */
    rks_error refused; /* its status: RKS_OK, or it cannot serve this home */
    rks_error broken;  /* why it ended last */
    uint64_t broken_times;
    uint64_t starts_ms[RKS_HELPER_STARTS];
    rks_buffer out; /* lines that were not written yet */
    char in[2 * RKS_HELPER_LINE];
    size_t in_size;
    rks_helper_slot slots[RKS_HELPER_SLOTS];
    rks_helper_task *tasks;
    uint32_t waiting; /* calls that want a slot */
    uint64_t last_id;
    uint32_t window, window_most;          /* parts under way, at most */
    uint64_t grown_ms, cut_ms, rest_until; /* of the window */
    uint32_t patience_ms;                  /* of the close */
} rks_helper;

/* Where a slot begins in the memory. */
uint64_t rks_helper_slot_at(size_t slot);

/* helper.c, for helper_calls.c. With the mutex. */
/* Returns a free slot, RKS_HELPER_SLOTS if there is none. */
size_t rks_helper_free_slot(const rks_helper *h, bool big);
/* Fails in a process that was forked: call it before the mutex is taken. */
rks_status rks_helper_check_owner(const rks_helper *h, rks_error *err);
/* Starts the thread if it does not run. */
rks_status rks_helper_begin(rks_helper *h, rks_error *err);
/* Without the mutex is fine, too. */
void rks_helper_wake(rks_helper *h);
/* A failure that the helper reports, with the home's and the file's name; secrets are hidden. */
void rks_helper_tell(const rks_helper *h, const char *name, enum rks_home_kind kind,
                     const char *text, rks_error *err);
/* The window after BUSY. */
void rks_helper_slow_down(rks_helper *h, uint32_t busy_ms);
/* Nobody waits for a slot's request any more. */
void rks_helper_drop(rks_helper *h, size_t slot);

/* helper_reads.c. With the mutex, which they give back while they call a read's functions. */
/* Sends one part of the first read that wants one and finds a slot; false: there is none. */
bool rks_helper_reads_send(rks_helper *h);
/* An answer for a part. Returns false if the line is none that it may get. */
bool rks_helper_reads_hear(rks_helper *h, rks_helper_slot *slot, const rks_helper_line *line);
/* A part that was under way will not come; the caller frees its slot, and settles. */
void rks_helper_reads_fail_part(rks_helper_task *task, enum rks_home_kind kind,
                                const rks_error *why);
/* Ends the reads that have failed; `all`: those that wait, too, which fail with `why`. */
void rks_helper_reads_settle(rks_helper *h, bool all, enum rks_home_kind kind,
                             const rks_error *why);
rks_status rks_helper_read(void *home, rks_home_read *read, rks_error *err);
void rks_helper_give_up(void *home, rks_home_read *read);

/* RKS_ERR_ARGUMENT if it cannot be the name of a file there. */
rks_status rks_helper_check(const rks_helper *h, const char *name, rks_error *err);

/* helper_calls.c: the seam's calls that wait. */
rks_status rks_helper_put(void *home, const char *name, const rks_home_bytes *bytes,
                          enum rks_put_rule rule, char version[RKS_HOME_VERSION], rks_error *err);
rks_status rks_helper_list(void *home, const char *prefix, rks_home_listed_fn each, void *user,
                           rks_error *err);
rks_status rks_helper_remove(void *home, const char *name, const char *version, rks_error *err);
/* An answer for a call, on the thread that talks with the helper. With the mutex. Returns false if
 * the line is none that it may get. */
bool rks_helper_hear_call(rks_helper *h, rks_helper_slot *slot, const rks_helper_line *line);

#endif
