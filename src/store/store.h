/* SPDX-License-Identifier: Apache-2.0
 *
 * store.h: the inside of an open store, for the files of this folder. */
#ifndef RKS_STORE_STORE_H
#define RKS_STORE_STORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buffer.h"
#include "dataset/dataset.h"
#include "dataset/search_folders.h"
#include "fetch/fetch.h"
#include "fetch/fetch_server.h"
#include "group/agreement.h"
#include "index/index.h"
#include "rankstore/store.h"
#include "shard/shard.h"
#include "metrics/metrics.h"
#include "plan/epoch.h"
#include "staging/lease.h"
#include "staging/staging.h"

struct rks_store {
    atomic_int references; /* one of the caller, one of the fetcher (which its batches share), and
                            * one for each view */
    rks_group *group;
    char *directory;
    rks_folders folders; /* where shards may lie beside their sources' directories, in the order of
                          * search; see search_path.c */
    char *fitting_none;  /* a pattern for such folders that none fits; NULL: all fit some */
    rks_store_options options;
    rks_dataset *dataset;
    char id_text[RKS_DIGEST_TEXT];

    rks_shard **shards;    /* dataset number -> open shard, NULL if this rank does not see it */
    rks_digest *shard_ids; /* dataset number -> the id of the file that is served (shard_ids.c);
                            * NULL: the dataset's, of all */
    rks_record_fit *fits;  /* one for each source; NULL: the dataset is not united */
    const rks_record_fit **fit_of; /* dataset number -> how its records are read; may be NULL */
    int32_t **owners;              /* dataset number -> ranks that serve it, best first, then -1 */
    int32_t *owner_room;           /* the array that `owners` points into */
    uint32_t *asks; /* by rank: which rank this one asks for what that rank owns: serving_ranks.c */
    int32_t *seers; /* by shard, for each node: its lowest rank that sees the shard, or -1 */

    /* Units with samples: their first ids, ascending, and their places in dataset->units. */
    uint64_t *unit_first;
    uint32_t *unit_number;
    size_t unit_count;

    uint32_t *quarantined; /* ids that are left out, in ascending order */
    size_t quarantined_count;
    /* All that is absent and has a known length, as plans want it; and the lengths with their
     * places marked, which the index owns; NULL if there are none. */
    rks_absent_run *absent;
    size_t absent_count;
    uint32_t *shown;

    struct rks_index_sources *index_sources; /* index_files.c */
    rks_index *index;
    rks_fetch_server *server; /* NULL if no other rank needs it */
    rks_fetcher *fetcher;

    bool opens_partly;                        /* options.missing is "partial" */
    uint64_t missing_shards, missing_samples; /* on no rank's disk */
    uint64_t exchange_bytes;

    rks_staging **stagings; /* of the sources that are kept at a home, in their order */
    size_t staging_count;
    rks_lease *leases; /* of local copies, whose shards nobody removes meanwhile */
    rks_arriving_shard *arriving_shards; /* by shard; NULL: none arrives */
    rks_shard **beside; /* by shard: maps of those that arrive at other ranks of this node; NULL:
                         * there are none. Only the fetcher reads them */
    rks_arriving arriving;
    char *index_dir; /* NULL: the default */
    const char *exchange_name;
    char exchange_why[128];

    bool left;       /* a thread that hangs in the storage uses it: store_reads.h */
    uint32_t number; /* the number of its set of engine services */
    bool listed;     /* it is in the process's list of open stores */
    rks_store *next; /* guarded by that list's mutex */

    /* For live figures (store_metrics.c): the place of the epoch that was asked last. */
    rks_metrics_source metrics_source;
    _Atomic uint64_t batches, epoch, step, steps, ahead;

    /* The store's end (close_protocol.c). */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool all_closed; /* guarded by mutex */
    uint8_t *life;   /* by rank: close_protocol.c's flags; guarded by mutex */
    int64_t life_up; /* the rank to which this one reports that all here have closed; -1: this is
                      * the root; guarded by mutex */
    bool life_ready; /* mutex and cond are initialised */
};

/* A group may have several stores open (train, validation). Each has a number of engine services:
 * the lowest that is free on all ranks. */
enum { RKS_STORE_NUMBERS = 64 };
enum rks_service rks_store_service(const rks_store *store, enum rks_service kind);
uint64_t rks_store_numbers_used(const rks_group *group);
void rks_store_list(rks_store *store);   /* takes a number */
void rks_store_unlist(rks_store *store); /* frees its number */

/* What a rank found in its directory: a dataset, or RKS_ERR_NOT_FOUND or another status, with its
 * error. */
typedef struct rks_found_dataset {
    const char *directory;
    rks_status status;
    rks_dataset *dataset; /* NULL: none */
    rks_error error;      /* set unless the status is RKS_OK */
    rks_home *home;       /* the object store that has it, still open: a staging may take it
                           * (rks_staging_options), else close it; NULL: none */
} rks_found_dataset;

/* Looks into this rank's directory. Generation 0: the newest. */
void rks_store_look(const char *directory, uint64_t generation, rks_found_dataset *found);
/* COLLECTIVE. Checks that the directories hold the same dataset on all ranks. A rank whose
 * directory holds nothing gets it from another. `exchange`: an option that must be the same, too;
 * NULL: none. Takes over `found`. RKS_ERR_NOT_FOUND on all ranks if none has found a dataset. Makes
 * one agreement; three if a rank has found none. */
rks_status rks_store_agree_dataset(rks_group *group, const char *exchange, rks_found_dataset *found,
                                   rks_dataset **dataset, rks_error *err);
/* For an agreement of the caller's own: what this rank found, as a fact of fixed size; zeros for
 * nothing. Returns the error of the look if that failed. */
typedef struct rks_dataset_description {
    rks_digest digest; /* rks_dataset_digest */
    uint64_t found;    /* 1: a dataset; 0: none */
    uint64_t runs;     /* runs of excluded samples */
    rks_digest id;
    rks_digest shards;   /* of the places of its units: rks_dataset_places_digest */
    uint64_t generation; /* from 1 */
    uint64_t revision;
} rks_dataset_description;
rks_status rks_store_dataset_description(const rks_found_dataset *found,
                                         rks_dataset_description *described, rks_error *err);
/* Returns true if both are the same samples, cut into shards alike: revisions of one generation, or
 * two builds of one input, whose shards differ in their ids only. */
bool rks_store_same_samples(const rks_dataset_description *one,
                            const rks_dataset_description *other);
/* Returns true if all go by `other`, not by `one`: the later revision; of equal ones (two jobs
 * built the same lost shards) the same on all ranks. */
bool rks_store_replaces(const rks_dataset_description *other, const rks_dataset_description *one);
/* COLLECTIVE, after that agreement, in which the fact had number `fact`. Does the same as
 * rks_store_agree_dataset. Makes no agreement; two if a rank has found none. */
rks_status rks_store_settle_found(rks_group *group, const rks_agreed *agreed, size_t fact,
                                  rks_found_dataset *found, rks_dataset **dataset, rks_error *err);
/* After that agreement: returns true, on all ranks, if none has found a dataset. */
bool rks_store_none_found(const rks_group *group, const rks_agreed *agreed, size_t fact);
/* rks_store_agree_dataset for `count` datasets, the same number on all ranks. Makes one agreement,
 * and two more for each dataset that a rank lacks. `datasets` has room for all; after a failure it
 * is empty. */
rks_status rks_store_agree_datasets(rks_group *group, const char *exchange,
                                    rks_found_dataset *found, size_t count, rks_dataset **datasets,
                                    rks_error *err);
/* search_path.c. Looks for the dataset that `pattern` names: in one directory, or in all that a `*`
 * fits. *directory, which the caller frees, becomes the first one with the dataset, else the name;
 * `beside` gets the others. RKS_ERR_STATE in `found` names two that have different datasets. */
void rks_store_look_for(rks_group *group, const char *pattern, char **directory,
                        rks_folders *beside, rks_found_dataset *found);
/* local_copy.c. If *directory is a URL: takes "file://" from it, or sets the local directory that a
 * store needs, from RKS_LOCAL if `options` has none. RKS_ERR_ARGUMENT names both. */
rks_status rks_store_choose_local(const char **directory, rks_store_options *options,
                                  rks_error *err);
/* For options->local. Looks for the dataset at its home: on rank 0; on others `found`
 * says that there is none. If home is away, rank 0 takes what its local directory holds of it.
 * *home, which the caller frees, is its name without "@N". */
void rks_store_look_home(rks_group *group, const char *pattern, const rks_store_options *options,
                         char **home, rks_found_dataset *found);
/* COLLECTIVE. rks_staging_begin in options->local, a pattern, for a dataset that is kept at `home`.
 * The other strings of the options are not read. */
rks_status rks_store_make_local(rks_group *group, const rks_dataset *dataset, const char *home,
                                const rks_staging_options *options, rks_staging **staging,
                                rks_error *err);
/* COLLECTIVE. The same for an opening, and waits for the heads of the shards. `opened`: as in
 * rks_staging_options. The caller owns *staging; its directory is the one to open. */
rks_status rks_store_take_local(rks_group *group, const rks_dataset *dataset, const char *home,
                                rks_home **opened, const rks_store_options *options,
                                rks_staging **staging, rks_error *err);
/* Opens the shards that arrive at this rank. */
rks_status rks_store_open_arriving(rks_store *store, rks_error *err);
/* Opens at home the shards for which the local disks have no room. */
rks_status rks_store_open_through(rks_store *store, rks_error *err);
/* Maps those that arrive in this rank's directory through other ranks: then a message is needed
 * only for samples that are not here yet. `maps` by shard: what this rank has mapped; gets them. */
rks_status rks_store_open_beside(rks_store *store, rks_shard **maps, rks_error *err);
/* Takes a lease (staging/lease.h) of each directory of the store that is a local copy. */
rks_status rks_store_take_leases(rks_store *store, rks_error *err);
/* Ends what the stagings do, and frees them. */
void rks_store_stop_stagings(rks_store *store);
void rks_store_end_stagings(rks_staging **stagings, size_t count);
/* Counts the shards that this rank maps and that are not sealed yet. */
uint64_t rks_store_count_arriving(const rks_store *store);
/* Returns true if, when the store was opened, some rank had to bring shards. The same on all. */
bool rks_store_expects(const rks_store *store);
uint64_t rks_store_home_bytes(const rks_store *store);
/* Fill store->folders: first with `beside` (NULL: none), then, from the file system, with those of
 * the option `shards` and of RKS_PATH. */
rks_status rks_store_take_folders(rks_store *store, const rks_folders *beside, rks_error *err);
rks_status rks_store_find_folders(rks_store *store, const char *const *shards, size_t count,
                                  rks_error *err);
/* Writes these folders for an error: "; also looked in A, B". Empty if there are none. */
void rks_store_put_looked(const rks_store *store, char *text, size_t room);

/* Returns this rank's directory of the shard. */
const char *rks_store_directory_of(const rks_store *store, size_t shard);

/* Takes the caller's options (NULL: none), and defaults for those that are not set. */
void rks_store_take_options(const rks_store_options *options, rks_store_options *chosen);

/* What this rank has loaded. */
typedef struct rks_loaded_dataset {
    const char *directory;
    rks_status status;         /* this rank's result so far, as in rks_group_agree */
    rks_dataset *dataset;      /* may be NULL unless status is RKS_OK */
    const rks_folders *beside; /* more folders that may hold its shards; NULL: none */
    rks_staging **stagings;    /* from rks_alloc; the store takes them over, also after a failure */
    size_t staging_count;
    /* *noted becomes true if the caller notes something (1) on some rank; NULL: nobody asks. */
    uint8_t note;
    bool *noted;
} rks_loaded_dataset;
/* COLLECTIVE. rks_store_take_local for loaded->dataset, which is freed after a failure. The staging
 * owns loaded->directory. */
rks_status rks_store_load_local(rks_group *group, const char *home, rks_home **opened,
                                const rks_store_options *options, rks_loaded_dataset *loaded,
                                rks_error *err);
/* COLLECTIVE. Finds the home of a local copy: what home.json in `directory` (NULL: none) of the
 * lowest rank with such a file says; *home stays NULL if there is none. Free it with rks_free. */
rks_status rks_store_agree_home(rks_group *group, const char *directory, char **home,
                                rks_error *err);
/* COLLECTIVE. As rks_store_load_local, for the local copy in `directory` itself. */
rks_status rks_store_load_copy(rks_group *group, const char *directory, const char *home,
                               const rks_store_options *options, rks_loaded_dataset *loaded,
                               rks_error *err);
/* COLLECTIVE. rks_store_open for a dataset in memory. The store owns it, also after a failure.
 * *err goes with the status. `pairs`: NULL, or becomes the number of pairs of samples with equal
 * key hashes; UINT64_MAX if the index came by an exchange, which does not count them. */
rks_status rks_store_open_dataset(rks_group *group, const rks_loaded_dataset *loaded,
                                  const rks_store_options *options, uint64_t *pairs,
                                  rks_store **store, rks_error *err);

/* Makes the list of a fetch from ids as plans have them, for rks_fetcher_start and
 * _start_arrays. */
rks_status rks_store_list32(rks_store *store, const uint32_t *ids, size_t count,
                            rks_request_list **list, rks_error *err);

/* Holds what batches and views need of a store (schema, shards, names of samples) until the last of
 * them is gone. Any thread. */
void rks_store_hold(rks_store *store);
void rks_store_release(void *store);

/* Which rank sees and serves which shard. First each rank opens the shards of its directory
 * (store_shards.c). Then all choose the same owners from the reports of all (shard_owners.c). */
rks_status rks_store_open_shards(rks_store *store, rks_error *err); /* those not open yet */
/* Opens copies (rks_dataset_open_copies) of the shards that are not open. */
rks_status rks_store_open_copies(rks_store *store, rks_error *err);
/* Opens the shard that the dataset names, if it lies in `directory` with the same id and manifest.
 * A file of that name with other contents is an error, not a missing shard. */
rks_status rks_store_open_shard(rks_store *store, const char *directory, size_t number,
                                rks_error *err);
/* Opens the shards of the dataset that lie in `folder` and are not open yet. A sound file with a
 * shard's name and other contents is another dataset's, and is left alone. NULL: those that lie in
 * their sources' directories. */
rks_status rks_store_open_folder(rks_store *store, const char *folder, rks_error *err);
/* For tests: how many shards a thread opens; 0: 128, the default. */
void rks_store_shards_a_thread(size_t shards);
/* shard_ids.c: ids of files that another build of the same input wrote. Each rank reports those of
 * its files, at most the limit in bytes (0 on a rank that has failed). */
uint64_t rks_store_other_ids_limit(const rks_store *store);
rks_status rks_store_put_other_ids(const rks_store *store, rks_buffer *bytes, rks_error *err);
/* After the agreement: chooses the id of each shard. Sets seen[rank], a bit for each shard: the
 * rank has a file with that id. The caller frees *room, which `seen` may point into. */
rks_status rks_store_choose_ids(rks_store *store, const rks_agreed *agreed, const uint8_t **seen,
                                uint8_t **room, rks_error *err);
/* Returns the id that was chosen. */
rks_digest rks_store_shard_id(const rks_store *store, size_t shard);
/* Returns true if this rank's file of the shard has it. */
bool rks_store_serves_shard(const rks_store *store, size_t shard);
/* Returns the lowest rank of `node` that sees the shard; -1 if none does. */
int64_t rks_store_first_to_see(const rks_store *store, uint32_t node, size_t shard);
rks_status rks_store_choose_owners(rks_store *store, const rks_agreed *agreed, rks_error *err);
/* serving_ranks.c: which rank this one asks on each other node. Each rank reports whether it serves
 * all shards of its node, in fact `fact`, one byte each, and chooses once all have. */
bool rks_store_serves_node(const rks_store *store);
void rks_store_choose_rails(rks_store *store, const rks_agreed *agreed, size_t fact);

/* node_index.c: the node's index while it is filled, from the ids' places to the copied shards. */
typedef struct rks_index_streams rks_index_streams;
typedef struct rks_index_gather {
    rks_span *spans;
    size_t span_count;
    rks_index_column *columns;
    int fd; /* the leader's descriptor, which it offers */
    rks_fd_offer *offer;
    bool damaged; /* an index file is */
    uint8_t note; /* the caller's, and whether some rank has one */
    bool noted;
    rks_index_intake **intakes; /* for shards that come from other nodes: one a shard, or NULL */
    rks_index_streams *streams; /* what ranks send: node_index.c; NULL: nothing travels */
    uint64_t taken, wanted;     /* bytes of the index: stored by this rank, needed by its node */
    uint64_t received;          /* by this rank, with headers */
} rks_index_gather;

/* Begin with {.fd = -1}. The node's leader makes the memory. */
rks_status rks_filling_begin(rks_index_gather *filling, rks_store *store, rks_error *err);
/* Maps the memory, right after the agreement with the offer. */
rks_status rks_filling_map(rks_index_gather *filling, rks_store *store, const rks_agreed *agreed,
                           rks_error *err);
/* Copies this rank's part of the node's shards. */
rks_status rks_filling_copy(rks_index_gather *filling, rks_store *store, rks_error *err);
/* COLLECTIVE, once all have copied: receives what the other nodes have, if rks_filling_travels
 * returns true. */
bool rks_filling_travels(const rks_store *store);
rks_status rks_filling_exchange(rks_index_gather *filling, rks_store *store, rks_error *err);
/* Call it once the node's index is complete. The agreement after it checks that it was. */
rks_status rks_filling_seal(const rks_index_gather *filling, rks_store *store, rks_error *err);
rks_status rks_filling_check(rks_store *store, const rks_agreed *agreed, size_t fact,
                             rks_error *err);
void rks_filling_end(rks_index_gather *filling, const rks_store *store);

/* index_files.c: index files of the dataset, or of each source. First each rank opens those of its
 * directories; all tell the others which they have, a byte for each source. */
typedef struct rks_index_sources rks_index_sources;
rks_status rks_store_look_at_index_files(rks_store *store, rks_error *err);
size_t rks_store_index_files_size(const rks_store *store); /* 0 on a rank that has failed */
void rks_store_tell_index_files(const rks_store *store, uint8_t *here);
/* After the agreement. */
rks_status rks_store_take_index_files(rks_store *store, const rks_agreed *agreed, rks_error *err);
/* Returns true if some rank of `node` has the index file of the shard's samples. */
bool rks_store_node_has_index(const rks_store *store, uint32_t node, size_t shard);
/* Returns the rank that sends the shard's part of the index to other nodes: its owner, or one that
 * has the index files; -1: there is none. */
int64_t rks_store_index_sender(const rks_store *store, size_t shard);
/* Fills in what the shards that this node sees do not. *damaged: a file has other bytes than it
 * should; all ranks then drop the files, and fill the index again without them. */
rks_status rks_store_read_index_files(rks_store *store, const rks_index_gather *filling,
                                      bool *damaged, rks_error *err);
void rks_store_drop_index_files(rks_store *store);
void rks_store_free_index_sources(rks_store *store);

/* missing_shards.c. Reads the option `missing`: *partly if it is "partial". RKS_ERR_ARGUMENT if it
 * is neither that, "error" nor NULL. */
rks_status rks_store_read_missing(const char *missing, bool *partly, rks_error *err);
/* Returns true if a directory is on a network file system, which may show another node's files
 * late. Ranks then look again for missing shards, so often, with a wait of a second before. */
bool rks_store_shows_late(const char *directory);
enum { RKS_STORE_LOOKS_AGAIN = 4 };
rks_status rks_store_wait_for_late(rks_error *err);
/* Returns 1 if a directory of this rank shows late. */
uint8_t rks_store_looks_late(const rks_store *store);
/* After an agreement on RKS_TELL_SEEN and RKS_TELL_LATE: returns true, on all ranks, if some shard
 * is missing that may come late. `looks`: how often was looked again. */
bool rks_store_should_look_again(const rks_store *store, const rks_agreed *agreed, uint32_t looks);
/* Waits a second, then opens the shards that are there now. */
rks_status rks_store_look_again(rks_store *store, rks_error *err);
/* Once owners are chosen: counts what is missing. RKS_ERR_NOT_FOUND if the options do not allow
 * that. */
rks_status rks_store_check_missing(rks_store *store, const rks_index_gather *filling,
                                   rks_error *err);
/* absent_samples.c. Once the index is sealed: lists what is absent. */
rks_status rks_store_note_absent(rks_store *store, const rks_index_gather *filling, rks_error *err);
/* For tests: looks again on any file system, after `wait_ms`; 0: the default. */
void rks_store_look_again_everywhere(uint32_t wait_ms);

/* earlier_generations.c: rks_store_earlier for a dataset that is not united. */
rks_status rks_store_earlier_of(const rks_dataset *dataset, rks_generation **earlier, size_t *count,
                                rks_error *err);

/* earlier_sources.c: lets the plan of several datasets resume states of their earlier
 * generations. */
rks_status rks_store_tell_earlier_sources(const rks_store *store, rks_plan *plan, rks_error *err);

/* store_metrics.c: shows the store's figures to `rankstore top` and Prometheus, until
 * rks_metrics_end. */
rks_status rks_store_watch(rks_store *store, rks_error *err);

/* store_open.c: what a rank reports about its shards, fact by fact. */
enum {
    RKS_TELL_NUMBERS,     /* u64: numbers in use */
    RKS_TELL_SEEN,        /* a bit for each shard: it lies in this rank's directory */
    RKS_TELL_PATH,        /* full paths of its sources' directories, each with its NUL; empty if not
                           * known. Then those of its other folders, as far as there is room */
    RKS_TELL_QUARANTINE,  /* store_quarantine.c draws it */
    RKS_TELL_INDEX,       /* the leader's offer of the index memory */
    RKS_TELL_LATE,        /* rks_store_looks_late, one byte */
    RKS_TELL_INDEX_FILES, /* rks_store_tell_index_files */
    RKS_TELL_OTHER_IDS,   /* shard_ids.c draws it */
    RKS_TELL_COUNT
};

/* store_quarantine.c: reads the list at `pattern` (NULL: this rank has none) and writes it as bytes
 * to send. The caller frees *bytes with rks_free, also after a failure. */
rks_status rks_store_load_quarantine(const rks_store *store, const char *pattern, uint8_t **bytes,
                                     size_t *size, rks_error *err);
/* Returns the most bytes that a rank may send. NULL: on a rank that has failed. */
uint64_t rks_store_quarantine_limit(const rks_store *store);
/* Takes the lists of all ranks into the store. */
rks_status rks_store_take_quarantine(rks_store *store, const char *pattern,
                                     const rks_agreed *agreed, rks_error *err);
bool rks_store_is_quarantined(const rks_store *store, uint64_t sample_id);

/* close_protocol.c: receives from other ranks that they have closed. */
void rks_store_serve_life(rks_store *store);
/* Stops waiting for the others. A rank that waits through this one then waits through its heir. */
void rks_store_give_up(rks_store *store);

/* store_keys.c: full keys, from the map or from the rank that serves them. */
void rks_store_serve_keys(rks_store *store);
/* Returns the sample's unit: an index into the dataset's units. */
size_t rks_store_unit_of(const rks_store *store, uint64_t id);
/* Writes the key of a sample whose key is derived to key[RKS_KEY_MAX]. Returns its size. */
size_t rks_store_derive_key(void *store, uint64_t id, uint32_t source_row, uint8_t *key);
/* Writes "sample 17 (key abc in NAME.rks)" to text. Leaves the key out if another rank would have
 * to be asked. */
const char *rks_store_describe(void *store, uint64_t id, char *text, size_t size);

#endif
