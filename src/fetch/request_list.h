/* SPDX-License-Identifier: Apache-2.0
 *
 * request_list.h: which samples a caller wants, in which order, and from whom. A fetch takes the
 * list over, and its batch (batch.h) keeps it, so nothing is copied. */
#ifndef RKS_FETCH_REQUEST_LIST_H
#define RKS_FETCH_REQUEST_LIST_H

#include "rankstore/base.h"

typedef struct rks_fetcher rks_fetcher;
typedef struct rks_readahead rks_readahead;

/* A wanted sample, as the index describes it. */
typedef struct rks_wanted {
    uint64_t id; /* for messages and rks_batch_id */
    uint64_t row;
    uint64_t key_hash;
    uint32_t shard; /* number in the dataset's list */
    uint32_t length;
} rks_wanted;

typedef struct rks_request_list {
    rks_fetcher *fetcher; /* gets the samples: it knows who has which shard; holds a reference */
    size_t count;
    size_t bytes;      /* of this struct and what follows it */
    rks_piece *pieces; /* pieces of its samples; NULL: all are whole */
    size_t piece_count;
    uint32_t *bins; /* for layout rows: bin_count + 1 bounds from 0; NULL: unknown */
    size_t bin_count;
    rks_readahead *ahead; /* reads its samples ahead; holds a reference; NULL: none */
    uint64_t ahead_end;   /* end of its ids, counted from the first one pushed to `ahead` */
    uint8_t *elsewhere;   /* a bit for each sample that its shard's map lacks, and another rank of
                           * this node brings; NULL: there are none */
    bool asked;           /* the disk was asked for its local samples */
    bool ready;           /* they were in memory: there is nothing to ask for */
    rks_wanted wanted[];  /* in the order of the batch */
} rks_request_list;

/* Creates a list of `count` samples, which the caller must all fill in. Free it unless a fetch
 * takes it over. */
rks_status rks_request_list_create(rks_fetcher *fetcher, size_t count, rks_request_list **list,
                                   rks_error *err);
void rks_request_list_free(rks_request_list *list); /* NULL is accepted */
/* Looks which samples have to be asked of their owners (rks_request_list_is_local), and counts
 * them. */
rks_status rks_request_list_look(rks_request_list *list, size_t *remote, rks_error *err);
/* Sets which samples of the list are pieces, in ascending order of place; copies them. Returns
 * RKS_ERR_ARGUMENT if a piece exceeds its sample. */
rks_status rks_request_list_set_pieces(rks_request_list *list, const rks_piece *pieces,
                                       size_t count, rks_error *err);
/* Sets the bins of the list: bounds[0] to bounds[bins], in samples; copies them. Returns
 * RKS_ERR_ARGUMENT if they do not cover the list. */
rks_status rks_request_list_set_bins(rks_request_list *list, const uint32_t *bounds, size_t bins,
                                     rks_error *err);

#endif
