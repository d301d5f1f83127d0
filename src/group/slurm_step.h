/* SPDX-License-Identifier: Apache-2.0
 *
 * slurm_step.h: the ranks of a step that srun started meet by TCP: rank 0 listens on the step's
 * first host, at a port that follows from job and step, and passes on what each rank brings. The
 * records are public: addresses and public keys (docs/security.md). It listens until all ranks have
 * come.
 *
 * Laws: only processes that name the same job, step, restart and opening are listened to; what they
 * send is bounded before it is read; every wait ends at its time, or at an interrupt; a rank that
 * does not come is named on all ranks. */
#ifndef RKS_GROUP_SLURM_STEP_H
#define RKS_GROUP_SLURM_STEP_H

#include <stdbool.h>

#include "rankstore/group.h"

/* Writes the first host of a Slurm node list. Returns false if it has none, or does not fit. */
bool rks_slurm_first_host(const char *nodes, char *host, size_t room);

/* A step as srun describes it to its tasks. */
typedef struct rks_slurm_step {
    char host[256]; /* of rank 0 */
    uint32_t rank;
    uint32_t size;
    uint32_t opening; /* how many groups this process has opened before */
    char name[96];    /* job, step and restart, as text */
    bool one_node;
} rks_slurm_step;

/* Returns true if srun started this process with others. */
bool rks_slurm_detected(void);
/* Reads the step from the environment. RKS_ERR_ARGUMENT names the variable that is wrong. */
rks_status rks_slurm_step_read(rks_slurm_step *step, rks_error *err);
/* Makes a bootstrap of the step. Ranks may come within `arrival_ms`; after `patience_ms` a line
 * names those that have not. */
rks_status rks_bootstrap_slurm(const rks_slurm_step *step, uint32_t arrival_ms,
                               uint32_t patience_ms, rks_bootstrap *bootstrap, rks_error *err);
/* Says which launcher started this process that Rankstore does not know: RKS_ERR_UNSUPPORTED, with
 * what to do; RKS_OK if none did. */
rks_status rks_launcher_check(rks_error *err);

#endif
