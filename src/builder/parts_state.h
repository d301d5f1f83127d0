/* SPDX-License-Identifier: Apache-2.0
 *
 * parts_state.h: what the parts of a build consist of, for the files that find, lock, commit and
 * remove them. */
#ifndef RKS_BUILDER_PARTS_STATE_H
#define RKS_BUILDER_PARTS_STATE_H

#include "builder/lost_shards.h"
#include "builder/parts.h"
#include "dataset/dataset.h"
#include "dataset/dataset_json.h"
#include "dataset/build_directory.h"
#include "group/agreement.h"
#include "shard/shard.h"

/* The most bytes that all ranks report about a build's parts and units. A commit writes them into
 * dataset.json and one list of RKS_DATASET_MAX each, with at least half as many bytes. */
#define RKS_PARTS_REPORTED_MAX (4 * (uint64_t)RKS_DATASET_MAX)

struct rks_parts {
    rks_group *group;
    rks_parts_options options;
    char *directory;
    char prefix[32];          /* "part-BUILD-" */
    rks_lock_file *lock;      /* on the rank that has the lock; else NULL */
    rks_shard_writer *writer; /* NULL until this rank has something to write */
    char writer_name[128];
    rks_shard **sealed; /* sealed by this rank */
    size_t sealed_count;
    rks_unit_summary *finished; /* units of all ranks, by number, each once */
    size_t finished_count;
    bool resumes; /* some rank found a part; the same on all ranks */
    rks_key_words words;
    rks_dataset *base;     /* what is appended to; NULL: nothing */
    rks_dataset *kept;     /* with options.keep: what exists already; NULL: nothing */
    rks_dataset *repaired; /* what exists already, but shards of it are lost; NULL: nothing */
    rks_lost_shards lost;  /* of it: those that this build makes again */
    uint64_t revision;     /* of the dataset whose commit is completed, if it was interrupted */
};

/* COLLECTIVE. Every rank tries to lock its directory; with options.wait until each has its lock.
 * *own: this rank's result so far, and afterwards that of its try, for the next agreement. Returns
 * what all ranks return. `parts` is NULL on a rank whose *own is not RKS_OK. */
rks_status rks_parts_lock(rks_group *group, rks_parts *parts, rks_status *own, rks_error *err);

/* COLLECTIVE. Looks, with the lock held, at what the directories hold, and decides what is
 * continued. *own: this rank's result before, and afterwards. */
rks_status rks_parts_look(rks_parts *parts, rks_status *own, rks_error *err);
/* Takes over the parts whose names are in `chosen`, a line each, without those that belong to the
 * dataset that is appended to. */
rks_status rks_parts_adopt(rks_parts *parts, rks_buffer *chosen, rks_error *err);
/* COLLECTIVE. *own: the result of taking over; afterwards that of this rank's list of all finished
 * units. */
rks_status rks_parts_agree_finished(rks_parts *parts, rks_status *own, rks_error *err);
/* COLLECTIVE. Finds the shards of this build's dataset that are on no rank's disk: sets parts->lost
 * to those that this build can make again, and lists all other units of this build as finished.
 * RKS_ERR_NOT_FOUND (to repair: RKS_ERR_ARGUMENT with cause ESTALE), on all ranks, if it can make
 * none of them. Makes one agreement if none is lost, else two; and more on network file systems. */
rks_status rks_parts_find_lost(rks_parts *parts, const rks_dataset *dataset, rks_error *err);
/* Makes *mended: parts->repaired with the parts that the ranks report (`fact` of the agreement) in
 * the places of the lost shards, as its next revision. RKS_ERR_DATA with cause ESTALE if they hold
 * other units. */
rks_status rks_parts_mend(const rks_parts *parts, const rks_agreed *agreed, size_t fact,
                          rks_dataset **mended, rks_error *err);
/* Removes a part's files. */
void rks_parts_remove(const rks_parts *parts, const char *name);
/* Removes the parts in the directory that `keep` does not name, and that are no copies of its
 * shards: those of older builds and of replaced datasets. */
void rks_parts_remove_strangers(rks_parts *parts, const rks_dataset *keep);

#endif
