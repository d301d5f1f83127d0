/* SPDX-License-Identifier: Apache-2.0
 *
 * kept_names.h: the shards and lists that generations of a dataset name, and which other files of a
 * directory, or of a home, are leftovers. */
#ifndef RKS_MANAGE_KEPT_NAMES_H
#define RKS_MANAGE_KEPT_NAMES_H

#include "dataset/dataset.h"

/* Begin with {0} and end with rks_kept_names_free. */
typedef struct rks_kept_names {
    rks_shard_names shards;
    char (*lists)[64];
    size_t list_count;
} rks_kept_names;

/* Adds what the dataset names. */
rks_status rks_kept_names_add(rks_kept_names *kept, const rks_dataset *dataset, rks_error *err);
void rks_kept_names_free(rks_kept_names *kept);

typedef enum rks_file_kind {
    RKS_FILE_STAYS,     /* a generation names it, or it is the user's */
    RKS_FILE_TEMPORARY, /* of a process that was killed, if none runs here */
    RKS_FILE_SENDING,   /* likewise of a publisher, if the directory is a home */
    RKS_FILE_LIST,      /* a list that no generation names */
    RKS_FILE_SHARD,     /* a file of a shard that no generation names */
} rks_file_kind;

/* Says what a file is. `shard`: out, for RKS_FILE_SHARD, its name without ending. */
rks_file_kind rks_kept_names_look(const rks_kept_names *kept, const char *name, char shard[256]);

#endif
