/* SPDX-License-Identifier: Apache-2.0
 *
 * store.h: the inside of an open store, for the files of this folder. */
#ifndef RKS_STORE_STORE_H
#define RKS_STORE_STORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "dataset/dataset.h"
#include "fetch/fetch.h"
#include "group/group.h"
#include "index/index.h"
#include "plan/plan.h"
#include "rankstore/store.h"
#include "shard/shard.h"

struct rks_store {
    atomic_int references; /* the caller's, the fetcher's (and so its batches') and one a view */
    rks_group *group;
    char *directory;
    rks_store_options options;
    rks_dataset *dataset;
    char id_text[RKS_DIGEST_TEXT];

    rks_shard **shards;  /* dataset number -> open shard, NULL where this rank does not see it */
    int32_t **owners;    /* dataset number -> ranks that serve it, best first, ended by -1 */
    int32_t *owner_room; /* what owners point into */
    uint8_t *seen;       /* ranks x shards, a byte each: who sees what */

    /* Units with samples: their first ids, ascending, and their places in dataset->units. */
    uint64_t *unit_first;
    uint32_t *unit_number;
    size_t unit_count;

    uint32_t *quarantined; /* ids that are left out, ascending */
    size_t quarantined_count;

    rks_index *index;
    rks_fetch_server *server; /* NULL where nobody has to ask */
    rks_fetcher *fetcher;

    uint64_t exchange_bytes;
    const char *exchange_name;
    char exchange_why[128];

    uint32_t slot;   /* which of the engine's services are this store's */
    bool listed;     /* in the process's list of open stores */
    rks_store *next; /* guarded by that list's mutex */

    /* The store's end: rank 0 counts who has closed, and tells all. */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t closed; /* guarded by mutex; rank 0 only */
    bool all_closed; /* guarded by mutex */
    bool life_ready; /* mutex and cond are initialised */
};

/* A group may have several stores open (train, validation): each has a slot of engine services, the
 * lowest that is free on all ranks. */
enum { RKS_STORE_SLOTS = 64 };
enum rks_service rks_store_service(const rks_store *store, enum rks_service kind);
uint64_t rks_store_slots_used(const rks_group *group);
void rks_store_list(rks_store *store);   /* takes its slot */
void rks_store_unlist(rks_store *store); /* and gives it back */

/* COLLECTIVE. What the directories hold (generation 0: the newest): the same on all ranks; one
 * whose directory holds nothing gets it from another. */
rks_status rks_store_load_dataset(rks_group *group, const char *directory, uint64_t generation,
                                  rks_dataset **dataset, rks_error *err);
/* The same where each rank has looked for itself: `status`, and `loaded` (consumed) or the error in
 * *none. RKS_ERR_NOT_FOUND on all ranks where none has found any. */
rks_status rks_store_agree_dataset(rks_group *group, const char *directory, rks_status status,
                                   rks_dataset *loaded, rks_error *none, rks_dataset **dataset,
                                   rks_error *err);

/* COLLECTIVE. rks_store_open on a dataset that is in memory; it is the store's from now on, also on
 * failure. */
rks_status rks_store_open_dataset(rks_group *group, const char *directory, rks_dataset *dataset,
                                  const rks_store_options *options, rks_store **store,
                                  rks_error *err);

/* The list of a fetch, of ids as plans have them: what rks_fetcher_start and _start_arrays take. */
rks_status rks_store_list32(rks_store *store, const uint32_t *ids, size_t count, rks_batch **list,
                            rks_error *err);

/* What batches and views need of a store (schema, shards, names of samples) stays until the last of
 * them is gone. Any thread. */
void rks_store_hold(rks_store *store);
void rks_store_release(void *store);

/* who.c: which rank sees and serves which shard. COLLECTIVE. */
rks_status rks_store_find_owners(rks_store *store, rks_error *err);
/* fill.c: makes the node's index and fills it. COLLECTIVE. */
rks_status rks_store_fill_index(rks_store *store, rks_error *err);

/* quarantine.c: reads the list at `pattern` (NULL: this rank brings none) into the store.
 * COLLECTIVE. */
rks_status rks_store_find_quarantined(rks_store *store, const char *pattern, rks_error *err);
/* Before the index is sealed, by one rank a node. */
void rks_store_mark_quarantined(rks_store *store);
bool rks_store_is_quarantined(const rks_store *store, uint64_t sample_id);

/* key.c: full keys, from the map or from the rank that serves them. */
void rks_store_serve_keys(rks_store *store);
/* The sample's unit: an index into the dataset's. */
size_t rks_store_unit_of(const rks_store *store, uint64_t id);
/* The key of a sample whose key is derived, into key[RKS_KEY_MAX]; returns its size. */
size_t rks_store_derive_key(void *store, uint64_t id, uint32_t source_row, uint8_t *key);
/* "sample 17 (key abc in NAME.rks)" into text; the key only where it can be had without asking. */
const char *rks_store_describe(void *store, uint64_t id, char *text, size_t size);

#endif
