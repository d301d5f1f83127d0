/* SPDX-License-Identifier: Apache-2.0
 *
 * arrivals.h: the shards that one rank brings from a home into its local directory: threads that
 * open arrivals, bring pieces in the order in which they are wanted, and seal what has come whole.
 *
 *   needs  ─►  shards to open, with their heads  ─►  the rest, shard by shard  ─►  copies of shards
 *                                                                                  of other ranks
 *
 * A need is the range of one record that somebody waits for. Ranks that ask take turns, so that the
 * next batch of one does not wait behind what another one reads ahead (start-time fair queueing:
 * Goyal, Vin, Cheng, "Start-time Fair Queuing", SIGCOMM 1996, with records as units). Its `here` is
 * called once, on a thread of the set that must not wait, or within rks_arrivals_need.
 *
 * A local file system that hangs keeps the threads that write there, and no signal reaches them. If
 * one of them has not run at all for the home's hang_ms, all needs end with RKS_ERR_TIMEOUT, also
 * later ones, which names the directory; a line does so before. A thread that waits for home runs
 * now and then (arrivals_watch.c).
 *
 * What home does not give fails the needs that wait for it; a later need tries again, as does the
 * rest after a pause. So a damaged MiB, or a home that was away, ends nothing else.
 *
 * First reads are as small as their records: while the pieces that are waited for would take more
 * than 250 ms and a quarter longer than their records, the records alone are read, checked and
 * written to their places; of at most 1 % of the bytes. Where requests are the limit, pieces are
 * better. The rest never has more on its way than comes in 250 ms, so that a need waits no longer
 * behind it.
 *
 * While records may be read alone and a piece is slow, a job's next step is likely to follow soon,
 * and each of its records would wait behind the pieces that all ranks have under way. So each byte
 * of a need keeps the rest waiting for eight times as long as it takes itself, and at most 250 ms
 * after the last need. As such bytes are 1 % of all, the rest comes at most 8 % later. */
#ifndef RKS_HOME_ARRIVALS_H
#define RKS_HOME_ARRIVALS_H

#include "home/arrival.h"

typedef struct rks_arrivals rks_arrivals;

enum {
    RKS_ARRIVALS_THREADS = 8,        /* also how many requests for pieces are under way */
    RKS_ARRIVALS_STORE_PIECES = 12,  /* of a store: 8 on the link, as its helper has room for, and 4
                                      * that wait, so that it is not idle while others are checked
                                      * and written */
    RKS_ARRIVALS_STORE_THREADS = 32, /* of a home whose requests take long, for records */
};

typedef struct rks_need rks_need;
struct rks_need {
    size_t shard;        /* as the set counts */
    uint64_t first, end; /* bytes of NAME.rks */
    /* Returns the size of the record at the beginning of these bytes if it is the wanted one and
     * right; else 0: then its pieces are brought. Any thread. NULL: pieces only. */
    uint64_t (*check)(const rks_need *need, const uint8_t *bytes, uint64_t size);
    /* *err: its status is RKS_OK, or why not. `alone`: the record was written, its pieces not. */
    void (*here)(rks_need *need, bool alone, const rks_error *err);
    void *user;
    uint32_t asker;          /* the rank that waits for it */
    uint64_t turn;           /* the set's own */
    uint32_t doubts;         /* of the pieces, before the record was read alone */
    rks_need *next, *before; /* the set's own, as the rest */
    bool busy, by_pieces;
};

/* What has come so far, of all shards of the set. */
typedef struct rks_arrivals_count {
    uint64_t bytes;   /* of the files, when all have come */
    uint64_t here;    /* of them here */
    uint64_t brought; /* from home, by this set; manifests and sums too */
    size_t whole;     /* shards */
    size_t failed;    /* optional ones that will not come */
    uint64_t records; /* bytes of records that were read alone */
} rks_arrivals_count;

/* Starts the threads. `wishes` (copied; their strings and home outlive the set) are the shards, in
 * the order in which the rest is brought. `paused`: brings only manifests, sums, heads and needs
 * until rks_arrivals_go, so that a job's opening and first batches do not wait behind the rest. The
 * caller owns *set. */
rks_status rks_arrivals_open(const rks_arrival_wish *wishes, size_t count, bool paused,
                             rks_arrivals **set, rks_error *err);
/* `needs_soon`: the first needs are likely within a second, so the rest leaves the link to them. */
void rks_arrivals_go(rks_arrivals *set, bool needs_soon);
/* Ends all needs, also later ones, with RKS_ERR_CANCELLED, and the threads. What has come stays.
 * NULL is accepted. */
void rks_arrivals_stop(rks_arrivals *set);
/* The same, and frees the set. Returns false if a thread hangs in the local file system: it is left
 * behind with the set, and all that the wishes name must stay for good. NULL is accepted. */
bool rks_arrivals_close(rks_arrivals *set);

enum rks_arrivals_until {
    RKS_ARRIVALS_HEADS, /* all shards that are not optional are whole, or have their heads */
    RKS_ARRIVALS_WHOLE, /* all shards that are not optional are whole */
    RKS_ARRIVALS_ALL,   /* optional ones, too; or they have failed */
};
/* Waits for that, or at most `ms`. *reached: it is so. Returns the first failure of any shard that
 * is not optional. Hears interrupts. */
rks_status rks_arrivals_wait(rks_arrivals *set, enum rks_arrivals_until until, uint64_t ms,
                             bool *reached, rks_error *err);
/* Returns the arrival of a shard that has been opened and is not whole; else NULL. It lives as long
 * as the set. */
rks_arrival *rks_arrivals_get(rks_arrivals *set, size_t shard);
void rks_arrivals_counted(rks_arrivals *set, rks_arrivals_count *count);

/* Wants bytes, which may be here already. Never waits. */
void rks_arrivals_need(rks_arrivals *set, rks_need *need);

#endif
