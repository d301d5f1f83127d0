/* SPDX-License-Identifier: Apache-2.0
 *
 * prefetch.h: a ring of fetches that were started ahead, in a known order. One user at a time.
 *
 * It holds as many fetches as `max_bytes` hold, and at most `max_batches`. The size of a batch is
 * known when it has arrived. Until then it is estimated as the batch's weight (the sum of its
 * samples' lengths) times the mean bytes per unit of weight of all batches seen so far. A single
 * batch is always allowed, however large. The batch that the user has does not count.
 *
 * While samples come from a home, few batches are ahead: what is read ahead would share the link
 * with what other ranks wait for now, and use up the bytes that may be read record by record
 * (home/arrivals.h). So a ring that begins `near` holds 4 batches, and their requests are not
 * gathered. After each 8 batches without a wait for home in between it may hold twice as many,
 * until the limits above are all that counts; a wait makes it 4 again.
 *
 * Small batches of this rank, up to 1 MiB and with at least 4 of them ahead, are started in groups:
 * when half of those ahead are used up. A worker that is woken then makes several in a row. Woken
 * for each, it would change places with the user twice a batch where they share a core.
 *
 * The user fills the ring before and after each rks_prefetch_next:
 *
 *     while (rks_prefetch_start(ring, &wants, err) == RKS_OK && wants && there is another list)
 *         rks_prefetch_push(ring, &list);
 *     rks_prefetch_send(ring);
 *
 * If that fails, batches that are ahead still come. Once none is ahead, the failure counts: the
 * user reports it, and drops the list. */
#ifndef RKS_FETCH_PREFETCH_H
#define RKS_FETCH_PREFETCH_H

#include "fetch/fetch.h"

typedef struct rks_prefetch rks_prefetch;

typedef struct rks_prefetch_list {
    rks_request_list *samples;
    size_t count;
    uint64_t weight;
    uint64_t tag; /* the batch's step; returned with the batch */
} rks_prefetch_list;

typedef struct rks_prefetch_options {
    rks_fetcher *fetcher;
    rks_collate *collate; /* makes arrays; NULL: batches */
    uint32_t max_batches; /* most fetches ahead; 0: as many as max_bytes hold */
    uint64_t max_bytes;   /* 0: 1 GiB. If max_batches is 0, too: four batches within 1 GiB, and up
                           * to 64 within 2 MiB; both grow with `ranks` above 64, up to 512 */
    uint32_t ranks;       /* ranks that batches come from; each is asked in every wave */
    bool near;            /* some rank still brings samples from a home */
    /* A first mean, from known data. 0: none, so it fetches one batch at a time until one has
     * arrived. */
    uint64_t known_bytes, known_weight;
} rks_prefetch_options;

/* Opens a ring, which starts nothing yet. The fetcher and `collate` must outlive it. */
rks_status rks_prefetch_open(const rks_prefetch_options *options, rks_prefetch **prefetch,
                             rks_error *err);
/* Starts the fetch of the pushed list if there is room for it; on failure the list stays. *wants:
 * the user may push another. Requests to other ranks, and workers to wake, are gathered until
 * rks_prefetch_send. If samples come from other ranks, and more than eight batches are ahead, none
 * is started until half of them are used: so the requests to one owner in a wave of batches are
 * sent together. */
rks_status rks_prefetch_start(rks_prefetch *prefetch, bool *wants, rks_error *err);
/* Takes over a list that the ring wants. rks_prefetch_start starts it. */
void rks_prefetch_push(rks_prefetch *prefetch, const rks_prefetch_list *list);
/* Sends the requests of what was started, and wakes workers for the rest of it. */
void rks_prefetch_send(rks_prefetch *prefetch);
/* Frees the pushed list, which could not be started. Returns false if there is none. */
bool rks_prefetch_drop(rks_prefetch *prefetch);
/* Waits for the oldest fetch. Sets *batch or *arrays, to NULL if there is none. `tag` may be NULL.
 * After RKS_ERR_CANCELLED the next call returns the same batch. After another failure it continues
 * with the batch after the failed one. */
rks_status rks_prefetch_next(rks_prefetch *prefetch, rks_batch **batch, rks_arrays **arrays,
                             uint64_t *tag, rks_error *err);
/* Returns how many batches after the user's are fetched or in progress. */
size_t rks_prefetch_ahead(const rks_prefetch *prefetch);
/* Cancels all fetches and frees the ring. NULL is accepted. */
void rks_prefetch_close(rks_prefetch *prefetch);

#endif
