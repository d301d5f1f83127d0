/* SPDX-License-Identifier: Apache-2.0
 *
 * prefetch.h: batches in a known order, fetched ahead. One user at a time.
 *
 * How far ahead: as many fetches as `max_bytes` hold, and at most `max_batches`. What a batch
 * needs is known when it has arrived; until then it is estimated as its weight (the sum of its
 * samples' lengths) times the mean bytes per unit of weight of all batches seen so far. A single
 * batch is always allowed, however large. The batch that the user has is not counted. */
#ifndef RKS_FETCH_PREFETCH_H
#define RKS_FETCH_PREFETCH_H

#include "fetch/fetch.h"

typedef struct rks_prefetch rks_prefetch;

typedef struct rks_prefetch_list {
    rks_batch *samples; /* the prefetcher's, once it has them */
    size_t count;
    uint64_t weight;
    uint64_t tag; /* returned with the batch: its step */
} rks_prefetch_list;

typedef struct rks_prefetch_options {
    /* The next list, in order; count 0: there is none, and it is not called again. One that fails is
     * asked for again. */
    rks_status (*next_list)(void *user, rks_prefetch_list *list, rks_error *err);
    /* The failure of the last next_list has been reported: a list that will fail again may be left
     * out now. */
    void (*skip_list)(void *user);
    /* As rks_fetcher_start: takes the samples on success. */
    rks_status (*start)(void *user, rks_batch *samples, rks_fetch **fetch, rks_error *err);
    /* May be NULL. Around the starts of many batches (rks_fetcher_gather): then, where more than eight
     * are ahead, none is started until half of them are used up. So what one owner is asked for in
     * a wave of batches goes out together. */
    void (*gather)(void *user, bool on);
    void *user;
    uint32_t max_batches; /* 0: as many as max_bytes hold */
    uint64_t max_bytes;   /* 0: 1 GiB; with max_batches 0, too: four batches within 1 GiB, and up to
                           * 64 within 2 MiB, or of both a share more where `ranks` is above 64 */
    uint32_t ranks;       /* that batches come from: each is asked in every wave */
    /* A first mean, from what is known of the data; 0: none, and one batch at a time is fetched
     * until one has arrived. */
    uint64_t known_bytes, known_weight;
} rks_prefetch_options;

/* Starts nothing yet. */
rks_status rks_prefetch_open(const rks_prefetch_options *options, rks_prefetch **prefetch,
                             rks_error *err);
/* Waits for the next batch, starting those behind it; *batch is NULL at the end. *tag may be NULL.
 * After RKS_ERR_CANCELLED the same batch comes again; after another failure the next call goes on
 * with the batch behind the one that failed. */
rks_status rks_prefetch_next(rks_prefetch *prefetch, rks_batch **batch, uint64_t *tag,
                             rks_error *err);
/* The same where `start` starts arrays. */
rks_status rks_prefetch_next_arrays(rks_prefetch *prefetch, rks_arrays **arrays, uint64_t *tag,
                                    rks_error *err);
/* How many batches behind the user's are fetched, or on their way. */
size_t rks_prefetch_ahead(const rks_prefetch *prefetch);
/* Cancels what is in flight. NULL is accepted. */
void rks_prefetch_close(rks_prefetch *prefetch);

#endif
