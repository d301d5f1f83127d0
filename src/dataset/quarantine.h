/* SPDX-License-Identifier: Apache-2.0
 *
 * quarantine.h: a list of bad samples of one dataset, in a file of its own. The picture is in
 * quarantine.c. */
#ifndef RKS_DATASET_QUARANTINE_H
#define RKS_DATASET_QUARANTINE_H

#include "dataset/dataset.h"

/* The most bytes of a quarantine file, and the most ids in one: 2^32 entries are refused. */
#define RKS_QUARANTINE_MAX ((size_t)256 << 20)
#define RKS_QUARANTINE_IDS_MAX (RKS_QUARANTINE_MAX / 8)

/* Loads the ids: ascending, each once, all below `dataset`'s count. Free *ids with rks_free.
 * Hostile text is RKS_ERR_CORRUPT, another dataset's list RKS_ERR_DATA, a missing file
 * RKS_ERR_NOT_FOUND; all name `path`. */
rks_status rks_quarantine_load(const char *path, const rks_dataset *dataset, uint32_t **ids,
                               size_t *count, rks_error *err);
rks_status rks_quarantine_decode(const char *text, size_t size, const char *path,
                                 const rks_dataset *dataset, uint32_t **ids, size_t *count,
                                 rks_error *err);

#endif
