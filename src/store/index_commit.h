/* SPDX-License-Identifier: Apache-2.0
 *
 * index_commit.h: writes the index files of a dataset that is sealed but not committed yet. */
#ifndef RKS_STORE_INDEX_COMMIT_H
#define RKS_STORE_INDEX_COMMIT_H

#include "dataset/dataset.h"
#include "group/agreement.h"
#include "rankstore/store.h"

/* What a rank tells the others before it commits. */
typedef struct rks_index_writer {
    uint8_t writes; /* 1: it writes dataset.json of its directory */
    uint8_t has;    /* the number of the first file of the base from which on its directory has
                     * them */
} rks_index_writer;

typedef struct rks_index_commit {
    const char *directory;
    const rks_dataset *base; /* what the commit adds to; NULL: nothing */
    rks_store *store;        /* its last samples are what is added; from rks_commit_open */
    bool writes;             /* this rank writes the new file, too: one of each node does, since the
                              * ranks of a node share an index */
    uint8_t have;            /* the highest `has` of all that write dataset.json */
} rks_index_commit;

/* Returns true if a commit writes index files: a dataset without them gets none by an append. */
bool rks_commit_has_index(const rks_dataset *base);
/* Looks at what this rank has. It writes dataset.json. */
void rks_commit_look_at_index(const char *directory, const rks_dataset *base,
                              rks_index_writer *writer);
/* After an agreement in which those of all ranks were fact `fact`, of fixed size: sets `writes` and
 * `have`. */
void rks_commit_choose_index_writer(const rks_agreed *agreed, size_t fact,
                                    rks_index_commit *commit);
/* Names the index files of `dataset`, which has the samples of `base`, then those that are added.
 * All ranks that write dataset.json call it, and name the same files. */
rks_status rks_commit_index(const rks_index_commit *commit, rks_dataset *dataset, rks_error *err);

#endif
