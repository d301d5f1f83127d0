/* SPDX-License-Identifier: Apache-2.0
 *
 * index_commit.h: writes the index files of a dataset that is sealed but not committed yet. */
#ifndef RKS_STORE_INDEX_COMMIT_H
#define RKS_STORE_INDEX_COMMIT_H

#include "dataset/dataset.h"
#include "group/agreement.h"
#include "rankstore/store.h"

typedef struct rks_index_commit {
    const char *directory;
    const rks_dataset *base; /* what the commit adds to; NULL: nothing */
    rks_store *store;        /* its last samples are what is added; from rks_commit_open */
    bool writes;             /* this rank writes the new file, too: one of each node does, since the
                              * ranks of a node share an index */
    bool keeps_all;          /* no file of the base is taken into the new one: some directory lacks
                              * one of those that would be */
} rks_index_commit;

/* After an agreement in which fact `fact` of each rank was a byte, 1 if it writes dataset.json:
 * sets `writes`. */
void rks_commit_choose_index_writer(const rks_agreed *agreed, size_t fact,
                                    rks_index_commit *commit);
/* Returns true if the directory lacks a file of the base that a new one of `samples` would take
 * into it, or if one is damaged. */
bool rks_commit_lacks_index(const char *directory, const rks_dataset *base, uint64_t samples);
/* Names the index files of `dataset`, which has the samples of `base`, then those that are added.
 * All ranks that write dataset.json call it, and name the same files. */
rks_status rks_commit_index(const rks_index_commit *commit, rks_dataset *dataset, rks_error *err);

#endif
