/* SPDX-License-Identifier: Apache-2.0
 *
 * store_reads.h: what an opening reads from directories, stretch by stretch. A stretch lies between
 * two agreements, and runs on a thread of its own (base/file_wait.h): if the storage does not
 * answer for the group's silence limit, the stretch is RKS_ERR_TIMEOUT, which the next agreement
 * brings to all ranks.
 *
 * A stretch that was given up still uses what it was given. So it gets copies of the caller's
 * strings, and it holds the store, whose `left` is set; the group keeps its memory. */
#ifndef RKS_STORE_STORE_READS_H
#define RKS_STORE_STORE_READS_H

#include "base/file_wait.h"
#include "store/store.h"

/* rks_file_wait with the group's silence limit. If *left is set, the work may still use the group's
 * memory. */
rks_status rks_store_wait_for_files(rks_group *group, const rks_file_work *work, bool *left,
                                    rks_error *err);

/* Copies of a caller's strings. Begin with {0}. */
typedef struct rks_store_texts {
    char **all; /* an entry for each, NULL for NULL */
    size_t count;
} rks_store_texts;

rks_status rks_store_texts_copy(rks_store_texts *texts, const char *const *all, size_t count,
                                rks_error *err);
void rks_store_texts_free(rks_store_texts *texts);

/* Looks for the datasets that `patterns` name, as rks_store_look_for does, or, for options->local,
 * as rks_store_look_home does. directories[i] and found[i] are those of patterns[i]; `beside` gets
 * the other folders of all. If the stretch fails, each found[i] has its error. */
void rks_store_look_for_all(rks_group *group, const char *const *patterns, size_t count,
                            const rks_store_options *options, char **directories,
                            rks_folders *beside, rks_found_dataset *found);

/* What a rank reports about its shards. */
typedef struct rks_own_shards {
    uint8_t *seen; /* a bit for each shard that lies here */
    size_t seen_size;
    uint8_t *listed; /* samples to leave out */
    size_t listed_size;
    uint8_t *index_files; /* which sources have theirs here */
    uint8_t late;         /* rks_store_looks_late */
    rks_buffer other_ids; /* of shards that another build wrote */
    rks_buffer paths;
} rks_own_shards;

void rks_own_shards_free(rks_own_shards *own);
/* Finds the folders of shards, opens this rank's shards and index files, and fills `listed`, `late`
 * and `paths`. */
rks_status rks_store_read_shards(rks_store *store, const rks_store_options *options,
                                 rks_own_shards *own, rks_error *err);
/* Opens shards that have come since. */
rks_status rks_store_read_shards_again(rks_store *store, rks_error *err);
/* rks_filling_copy. */
rks_status rks_store_read_index(rks_store *store, rks_index_gather *filling, rks_error *err);
/* Returns the most bytes that own->paths can have. `store` is NULL on a rank that has failed. */
uint64_t rks_store_paths_limit(const rks_store *store);

#endif
