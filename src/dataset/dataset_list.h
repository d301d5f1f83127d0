/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_list.h: shards and units of a dataset that lie in a file beside dataset.json, so that a
 * generation costs what it adds. The picture of the file is in dataset_list.c.
 *
 * Lists never change, and generations share them. Each holds at least twice the entries of the next
 * one: an append that makes a new list takes smaller ones before it into it. So of n entries there
 * are at most log2(n) lists, and an entry is written log2(n) times at most. */
#ifndef RKS_DATASET_LIST_H
#define RKS_DATASET_LIST_H

#include "base/buffer.h"
#include "base/checksum.h"

struct rks_dataset;

enum {
    RKS_DATASET_LISTS_MAX = 40,
    RKS_DATASET_INLINE = 8, /* how many entries, shards and units, dataset.json holds itself */
};

typedef struct rks_dataset_list {
    char name[64]; /* the file's, beside dataset.json */
    rks_digest digest;
    uint64_t bytes;
    uint64_t shards;
    uint64_t units;
} rks_dataset_list;

/* "list-DIGITS.units" */
void rks_dataset_list_name(rks_digest digest, char name[64]);
/* Appends the bytes of a file with the shards for which `chosen[i]` is set, and their units. Sets
 * all of `list`. */
rks_status rks_dataset_list_encode(const struct rks_dataset *dataset, const bool *chosen,
                                   rks_dataset_list *list, rks_buffer *bytes, rks_error *err);
/* Adds the shards and units of such bytes to `dataset`. `number`: the list's, from 1.
 * RKS_ERR_CORRUPT unless the bytes are what `list` says. */
rks_status rks_dataset_list_decode(const rks_dataset_list *list, const void *bytes, size_t size,
                                   uint32_t number, const char *path, struct rks_dataset *dataset,
                                   rks_error *err);
/* Where lists lie. */
typedef struct rks_list_source {
    const char *place; /* for messages */
    /* Loads a file of at most `most` bytes; RKS_ERR_NOT_FOUND if there is none. The caller frees
     * *bytes with rks_free. */
    rks_status (*load)(void *user, const char *name, size_t most, char **bytes, size_t *size,
                       rks_error *err);
    void *user;
} rks_list_source;

/* Lists of a directory, whose name must live as long. */
rks_list_source rks_lists_in(const char *directory);

/* Loads and decodes a list. */
rks_status rks_dataset_list_load(const rks_list_source *from, const rks_dataset_list *list,
                                 uint32_t number, struct rks_dataset *dataset, rks_error *err);

/* How a dataset is written to a directory: which lists hold its first entries. */
typedef struct rks_dataset_layout {
    rks_dataset_list lists[RKS_DATASET_LISTS_MAX];
    size_t list_count;
    bool *inside; /* of each shard: dataset.json itself lists it and its units */
} rks_dataset_layout;

/* Chooses a layout, and writes a new list if it has one. `before`: what the directory holds as the
 * generation before; NULL: nothing. */
struct rks_dataset_summary;
rks_status rks_dataset_lay_out(const char *directory, const struct rks_dataset *dataset,
                               const struct rks_dataset_summary *before, rks_dataset_layout *layout,
                               rks_error *err);
void rks_dataset_layout_free(rks_dataset_layout *layout);

#endif
