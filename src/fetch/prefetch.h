/* SPDX-License-Identifier: Apache-2.0
 *
 * prefetch.h: fetches batches ahead, in a known order. One user at a time.
 *
 * It runs as many fetches ahead as `max_bytes` hold, and at most `max_batches`. The size of a batch
 * is known when it has arrived. Until then it is estimated as the batch's weight (the sum of its
 * samples' lengths) times the mean bytes per unit of weight of all batches seen so far. A single
 * batch is always allowed, however large. The batch that the user has does not count. */
#ifndef RKS_FETCH_PREFETCH_H
#define RKS_FETCH_PREFETCH_H

#include "fetch/fetch.h"

typedef struct rks_prefetch rks_prefetch;

typedef struct rks_prefetch_list {
    rks_request_list *samples; /* the prefetcher takes it over */
    size_t count;
    uint64_t weight;
    uint64_t tag; /* the batch's step; returned with the batch */
} rks_prefetch_list;

typedef struct rks_prefetch_options {
    /* Makes the next list, in order. Count 0 is the end; it is then not called again. If it fails,
     * it is called again for the same list. */
    rks_status (*next_list)(void *user, rks_prefetch_list *list, rks_error *err);
    /* Called when the failure of the last next_list has been reported. It may skip a list that
     * would fail again. */
    void (*skip_list)(void *user);
    /* Starts a fetch as rks_fetcher_start does: takes the samples over on success. */
    rks_status (*start)(void *user, rks_request_list *samples, rks_fetch **fetch, rks_error *err);
    /* Called before and after the start of many batches, as rks_fetcher_gather; may be NULL. If it
     * is set and more than eight batches are ahead, none is started until half of them are used. So
     * the requests to one owner in a wave of batches are sent together. */
    void (*gather)(void *user, bool on);
    void *user;
    uint32_t max_batches; /* most fetches ahead; 0: as many as max_bytes hold */
    uint64_t max_bytes;   /* 0: 1 GiB. If max_batches is 0, too: four batches within 1 GiB, and up
                           * to 64 within 2 MiB; both grow with `ranks` above 64, up to 512 */
    uint32_t ranks;       /* ranks that batches come from; each is asked in every wave */
    /* A first mean, from known data. 0: none, so it fetches one batch at a time until one has
     * arrived. */
    uint64_t known_bytes, known_weight;
} rks_prefetch_options;

/* Opens a prefetcher, which starts nothing yet. */
rks_status rks_prefetch_open(const rks_prefetch_options *options, rks_prefetch **prefetch,
                             rks_error *err);
/* Waits for the next batch, and starts later ones. *batch is NULL at the end. *tag may be NULL.
 * After RKS_ERR_CANCELLED the next call returns the same batch. After another failure it continues
 * with the batch after the failed one. */
rks_status rks_prefetch_next(rks_prefetch *prefetch, rks_batch **batch, uint64_t *tag,
                             rks_error *err);
/* Does the same if `start` starts arrays. */
rks_status rks_prefetch_next_arrays(rks_prefetch *prefetch, rks_arrays **arrays, uint64_t *tag,
                                    rks_error *err);
/* Returns how many batches after the user's are fetched or in progress. */
size_t rks_prefetch_ahead(const rks_prefetch *prefetch);
/* Cancels all fetches and frees the prefetcher. NULL is accepted. */
void rks_prefetch_close(rks_prefetch *prefetch);

#endif
