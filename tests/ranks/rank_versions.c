/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_versions.c: a rank, in the environment that srun sets, that opens the dataset DIRECTORY and
 * makes a plan of it: rank_versions DIRECTORY. It prints the error, or "a plan". Built several
 * times: as the library is, as another version, and as a commit that plans differently. */
#include <stdio.h>

#include "rankstore.h"

static rks_status work(const char *directory, rks_error *err)
{
    rks_group_options options;
    rks_plan_options wanted;
    rks_group *group = NULL;
    rks_store *store = NULL;
    rks_plan *plan = NULL;
    rks_group_options_default(&options);
    rks_plan_options_default(&wanted);
    options.arrival_ms = 60000;
    rks_status status = rks_group_open(&options, &group, err);
    if (status == RKS_OK)
        status = rks_store_open(group, directory, NULL, &store, err);
    if (status == RKS_OK)
        status = rks_plan_open(store, &wanted, &plan, err);
    rks_plan_free(plan);
    rks_store_close(store, status == RKS_OK ? 10000 : 0);
    rks_group_close(group);
    return status;
}

int main(int count, char **words)
{
    rks_error err = {0};
    rks_status status = count == 2 ? work(words[1], &err) : RKS_ERR_ARGUMENT;
    printf("%s\n", status == RKS_OK ? "a plan" : err.text);
    return status == RKS_OK ? 0 : 1;
}
