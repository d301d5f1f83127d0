/* SPDX-License-Identifier: Apache-2.0
 *
 * file_walk.h: lists the files of a source. */
#ifndef RKS_INGEST_FILE_WALK_H
#define RKS_INGEST_FILE_WALK_H

#include "ingest/unit.h"

typedef struct rks_found {
    rks_input_file file;
    size_t source;
} rks_found;

typedef struct rks_found_list {
    rks_not_read not_read;
    rks_found *found;
    size_t count;
    size_t room;
} rks_found_list;

/* Appends the files of source number `source`, in no order. *folder is true if the source is a
 * folder. */
rks_status rks_walk(const char *path, size_t source, rks_found_list *list, bool *folder,
                    rks_error *err);
/* Adds a file; owns its path, name and version, also on failure. A NULL path or name is
 * RKS_ERR_MEMORY. */
rks_status rks_found_add(rks_found_list *list, size_t source, const rks_input_file *file,
                         rks_error *err);
void rks_found_list_free(rks_found_list *list);

void rks_walk_sort(rks_found_list *list); /* by name, then by source */
/* Sorts by name and makes the names unique (unit.h says how). `sources` are the paths. */
rks_status rks_walk_name(const char *const *sources, size_t source_count, const bool *folders,
                         rks_found_list *list, rks_error *err);

#endif
