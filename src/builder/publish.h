/* SPDX-License-Identifier: Apache-2.0
 *
 * publish.h: the inside of rks_publish. */
#ifndef RKS_BUILDER_PUBLISH_H
#define RKS_BUILDER_PUBLISH_H

#include <stdatomic.h>

#include "builder/send_ahead.h"
#include "dataset/dataset.h"
#include "group/agreement.h"
#include "home/claim.h"
#include "dataset/search_folders.h"
#include "rankstore/home.h"
#include "store/store_reads.h"

enum { RKS_HOME_MARK_MOST = 256, RKS_SENDER_HOME = -1 };

enum rks_home_has {
    RKS_HOME_HAS_LESS, /* nothing, or an older generation */
    RKS_HOME_HAS_SAME, /* this dataset.json; files that are missing are sent again */
    RKS_HOME_HAS_MORE, /* a later generation, or this one with shards of another build */
};

/* What rank 0 finds at home. */
typedef struct rks_home_state {
    uint64_t generation; /* 0: there is no dataset */
    enum rks_home_has has;
    char version[RKS_HOME_VERSION]; /* of its dataset.json */
    char mark[RKS_HOME_MARK_MOST];  /* what RKS_HOME_MARK says; empty in a dry run */
} rks_home_state;

/* What a rank has beside its shards. */
typedef struct rks_held_files {
    uint64_t text; /* 1: dataset.json */
    uint64_t index_files;
} rks_held_files;

/* What reads the dataset's own directories runs on a thread that is left behind if they do not
 * answer (store/store_reads.h): it shares the work, and sends nothing from then on. */
typedef struct rks_publish_work {
    atomic_uint users; /* the call, and such a thread */
    rks_group *group;  /* NULL: shards are sent ahead, by this rank alone (send_ahead.h): then
                        * options.progress is called on its thread, with the bytes of a shard */
    rks_publish_options options;   /* but for `shards`, and storage_options, which open the home */
    rks_store_texts given, shards; /* the caller's directory and home; folders of shards */
    rks_home *home;
    char *directory;     /* this rank's */
    rks_folders folders; /* that may hold shards, the directory first */
    rks_found_dataset found;
    rks_dataset *dataset;
    char *text; /* this rank's dataset.json; NULL: it has none, or another revision */
    size_t text_size;
    rks_home_state state;
    bool *here;             /* by shard: this rank has it, */
    const char **folder_of; /* and where */
    rks_held_files held;
    int32_t *senders; /* by shard: a rank, or RKS_SENDER_HOME: no rank has it */
    bool commits;     /* this rank sends all but the shards */
    rks_held_claim claim;
    uint64_t sent_shards, sent_bytes, there_bytes; /* by this rank */
    rks_sent_ahead ahead; /* by this rank, during the build; part of what is there */
    uint64_t done, total, ticked_ms;
} rks_publish_work;

/* COLLECTIVE. rks_publish after a build, of which this rank has sent shards ahead: they count as
 * sent. */
rks_status rks_publish_built(rks_group *group, const char *directory, const char *home,
                             const rks_publish_options *options, const rks_sent_ahead *ahead,
                             rks_publish_report *report, rks_error *err);

/* publish_home.c: what home holds, and whether this dataset may follow it. Only rank 0. */
rks_status rks_publish_look(rks_publish_work *work, rks_error *err);
/* Compares the mark at home with what rank 0 has read or put there. */
rks_status rks_publish_check_mark(rks_publish_work *work, rks_error *err);
/* Fails unless home lies outside of this rank's directory. RKS_ERR_TIMEOUT: one of them hangs. */
rks_status rks_publish_check_places(rks_group *group, const char *directory, const char *home,
                                    rks_error *err);

/* publish_files.c. */
/* Fails if the caller was interrupted, another rank has failed, or nobody waits for this thread any
 * more: then the group may be gone. */
rks_status rks_publish_hear(rks_publish_work *work, rks_error *err);
/* Sets work->here of a shard. */
rks_status rks_publish_look_for_shard(rks_publish_work *work, size_t shard, rks_error *err);
/* Sends a shard, of which name and manifest count, from a folder if home does not have it. Of
 * `work` it uses the home and the counts alone. */
rks_status rks_publish_send(rks_publish_work *work, const char *folder,
                            const rks_dataset_shard *shard, rks_error *err);
/* The same for a shard of work->dataset, which home must have if no rank does. */
rks_status rks_publish_shard(rks_publish_work *work, size_t shard, rks_error *err);
/* Sends what the dataset names beside its shards. */
rks_status rks_publish_lists(rks_publish_work *work, const rks_dataset *dataset, rks_error *err);
/* Sends a file of this rank's directory as it is, if there is one and home has none. */
rks_status rks_publish_file(rks_publish_work *work, const char *name, rks_error *err);
/* Sends bytes under a name that home does not have; if it has, *there is true. */
rks_status rks_publish_text(rks_publish_work *work, const char *name, const char *text, size_t size,
                            bool *there, rks_error *err);
/* Puts a file under a name where home has none (`version` ""), or in place of that version, for
 * which the claim must be that of these bytes. RKS_ERR_STATE: home has another version. */
rks_status rks_publish_replace(rks_publish_work *work, const char *name, const char *text,
                               size_t size, const char *version, rks_error *err);

#endif
