/* SPDX-License-Identifier: Apache-2.0
 *
 * arrivals_state.h: what a set of arrivals knows, for its own files. The mutex guards all of it. */
#ifndef RKS_HOME_ARRIVALS_STATE_H
#define RKS_HOME_ARRIVALS_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "home/arrivals.h"
#include "home/link_rate.h"

enum { NS_A_MS = 1000000 };
enum rks_stage { TO_OPEN, OPENING, ARRIVING, FINISHING, WHOLE, FAILED };

/* A shard of the set. */
typedef struct rks_arriving_one {
    rks_arrival_wish wish;
    rks_arrival *arrival; /* from ARRIVING on */
    enum rks_stage stage;
    uint8_t *busy;      /* by piece: a thread brings it */
    size_t under_way;   /* threads that bring pieces of it */
    bool headed;        /* its head is here */
    uint64_t next;      /* where the rest goes on */
    uint64_t file_size; /* 0 until it is known */
    uint64_t pause_ms;  /* the rest is not brought before: a failure */
    rks_error error;    /* why it has FAILED */
} rks_arriving_one;

/* What a thread does next. */
typedef struct rks_arrival_job {
    rks_arriving_one *shard;
    enum rks_stage stage;  /* TO_OPEN: open it; ARRIVING: bring pieces; FINISHING: seal it */
    uint64_t first, count; /* pieces */
    bool is_local;         /* they are claimed: the link is not needed, if they are right */
    rks_need *record;      /* bring this record alone; NULL: none */
} rks_arrival_job;

typedef struct rks_need_list {
    rks_need *first, *last;
} rks_need_list;

/* A thread, as its watch sees it. */
typedef struct rks_arrivals_worker {
    pthread_t thread;
    bool at_work;      /* it may be in a call of the file system */
    long id;           /* of the system; 0: it has not begun */
    clockid_t clock;   /* of the CPU time that it has used */
    uint64_t used;     /* that time, when it was last seen */
    uint64_t quiet_ms; /* for how long it has not run */
} rks_arrivals_worker;

struct rks_arrivals {
    pthread_mutex_t mutex;
    pthread_cond_t work, progress;
    rks_arriving_one *shards;
    size_t count, whole, failed;
    rks_link_rate rate;
    uint64_t bytes, records; /* of all files; of records that were read alone */
    rks_need_list needs;     /* by turn */
    uint64_t need_count, need_bytes;
    uint64_t turn;        /* of the need that was served last */
    uint64_t *last_turns; /* by rank that asks: of its last need; `askers` of them */
    uint32_t askers;
    uint64_t wanted_ms; /* when the last need came, or the rest began */
    uint64_t begun_ms;  /* the rest */
    uint64_t quiet_ns;  /* the rest waits until then, if it is slow */
    bool paused;
    bool unread; /* nobody has wanted anything, or will soon: the rest has the link for itself */
    atomic_bool stop;  /* the threads end */
    rks_status status; /* the first failure, for those who wait for shards */
    rks_error error;
    bool over; /* nothing is brought any more: `error` says why */
    uint64_t brought;
    size_t piece_jobs; /* under way: each has memory for its pieces */
    bool stored;       /* an object store: each request takes some 30 ms before its first byte */
    rks_arrivals_worker workers[RKS_ARRIVALS_STORE_THREADS];
    size_t thread_count, begun; /* threads, and those that have begun */
    pthread_t watch;
    bool watched; /* the watch runs */
    pthread_cond_t watch_ends;
    uint64_t told_ms;   /* of the longest quiet time, when a line was last said */
    bool left;          /* a thread was left behind, with the set */
    rks_arrivals *next; /* of those that were left behind */
};

/* A copy of what another rank brings, or has. To begin one may wait until that is whole. */
static inline bool rks_arrival_is_copy(const rks_arrival_wish *wish)
{
    return wish->optional || wish->holder != NULL;
}

/* With the mutex. Bytes were wanted just now: the rest waits for the next ones. UINT64_MAX: as long
 * as it ever does. */
void rks_arrivals_quiet(rks_arrivals *set, uint64_t bytes);
/* With the mutex, which it gives back. Ends all needs, also later ones. */
void rks_arrivals_give_up(rks_arrivals *set, const rks_error *why);
/* The watch over the threads, which ends when the set stops. */
rks_status rks_arrivals_watch(rks_arrivals *set, rks_error *err);
/* On the thread of a worker, with the mutex: it begins, and is watched. */
rks_arrivals_worker *rks_arrivals_begin_worker(rks_arrivals *set);
/* With the mutex. Takes what is to be done next; false: nothing now. */
bool rks_arrivals_take_job(rks_arrivals *set, rks_arrival_job *next);

#endif
