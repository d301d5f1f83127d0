/* SPDX-License-Identifier: Apache-2.0
 *
 * slurm_step.c: what srun says about a step in the environment, and launchers that are not known.
 */
#include "group/slurm_step.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Reads a number that a variable of srun must have. */
static rks_status read_variable(const char *variable, uint64_t most, uint64_t *number,
                                rks_error *err)
{
    const char *text = getenv(variable);
    char *end = NULL;
    unsigned long long read = text == NULL ? 0 : strtoull(text, &end, 10);
    if (text == NULL || !isdigit((unsigned char)text[0]) || *end != '\0' || read > most)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "srun: %s=%.40s in the environment is not a number of a step", variable,
                        text == NULL ? "" : text);
    *number = read;
    return RKS_OK;
}

bool rks_slurm_detected(void)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    return getenv("SLURM_STEP_ID") != NULL && getenv("SLURM_PROCID") != NULL && tasks != NULL &&
           strtoul(tasks, NULL, 10) > 1;
}

static const char *or_empty(const char *variable)
{
    const char *text = getenv(variable);
    return text == NULL ? "" : text;
}

rks_status rks_slurm_step_read(rks_slurm_step *step, rks_error *err)
{
    static atomic_uint openings;
    uint64_t rank = 0, size = 0;
    rks_status status = read_variable("SLURM_STEP_NUM_TASKS", UINT32_MAX, &size, err);
    if (status == RKS_OK)
        status = read_variable("SLURM_PROCID", size - 1, &rank, err);
    if (status != RKS_OK)
        return status;
    *step = (rks_slurm_step){.rank = (uint32_t)rank,
                             .size = (uint32_t)size,
                             .opening = atomic_fetch_add(&openings, 1),
                             .one_node = strcmp(or_empty("SLURM_STEP_NUM_NODES"), "1") == 0};
    snprintf(step->name, sizeof(step->name), "%.30s.%.30s.%.30s", or_empty("SLURM_JOB_ID"),
             or_empty("SLURM_STEP_ID"), or_empty("SLURM_RESTART_COUNT"));
    const char *given = getenv("MASTER_ADDR");
    if (step->one_node)
        strcpy(step->host, "127.0.0.1");
    else if (given != NULL && given[0] != '\0')
        snprintf(step->host, sizeof(step->host), "%s", given);
    else if (!rks_slurm_first_host(or_empty("SLURM_STEP_NODELIST"), step->host, sizeof(step->host)))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "srun: SLURM_STEP_NODELIST=%.80s names no host; set MASTER_ADDR to the "
                        "host of rank 0",
                        or_empty("SLURM_STEP_NODELIST"));
    return RKS_OK;
}

rks_status rks_launcher_check(rks_error *err)
{
    static const char *const others[] = {"PMIX_RANK", "PMI_RANK"};
    const char *size = getenv("PMI_SIZE");
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (getenv(others[i]) != NULL && getenv("SLURM_STEP_ID") == NULL &&
            (size == NULL || strtoul(size, NULL, 10) > 1))
            return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                            "%s is set by a launcher that is neither Open MPI's mpirun nor srun: "
                            "start the ranks with one of these or, on one machine, with -j N",
                            others[i]);
    return RKS_OK;
}
