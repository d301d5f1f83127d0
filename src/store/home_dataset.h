/* SPDX-License-Identifier: Apache-2.0
 *
 * home_dataset.h: what a home holds: its dataset.json, with the lists that it refers to. */
#ifndef RKS_STORE_HOME_DATASET_H
#define RKS_STORE_HOME_DATASET_H

#include "dataset/dataset.h"
#include "home/requests.h"

/* Free it with rks_home_dataset_free. */
typedef struct rks_home_dataset {
    rks_dataset *dataset; /* without the runs of excluded samples */
    char *text;           /* dataset.json, as it is there */
    size_t size;
    char version[RKS_HOME_VERSION]; /* of dataset.json */
} rks_home_dataset;

/* Waits for the home. RKS_ERR_NOT_FOUND: there is no dataset. */
rks_status rks_home_dataset_read(rks_home *home, rks_home_dataset *read, rks_error *err);
/* The same of dataset.N.json. RKS_ERR_NOT_FOUND: that generation is not there. */
rks_status rks_home_dataset_read_generation(rks_home *home, uint64_t generation,
                                            rks_home_dataset *read, rks_error *err);
/* The same for a generation (0: the newest), with the runs of excluded samples. The caller owns
 * *dataset. */
rks_status rks_home_dataset_load_from(rks_home *home, uint64_t generation, rks_dataset **dataset,
                                      rks_error *err);
/* The same from the home of a URL, which it opens and closes. */
rks_status rks_home_dataset_load(const char *url, const char *storage_options, uint64_t generation,
                                 rks_dataset **dataset, rks_error *err);
void rks_home_dataset_free(rks_home_dataset *read); /* {0} is accepted */

#endif
