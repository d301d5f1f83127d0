/* SPDX-License-Identifier: Apache-2.0
 *
 * stretch.c: long work of the planner in stretches, between which an interrupt ends it. */
#include "plan/inside.h"

#include "base/clock.h"

enum { STRETCH = 1 << 20 }; /* some milliseconds, also where each sample is a cache miss */

static uint64_t stretch = STRETCH;

void rks_plan_stretch_set(uint64_t samples)
{
    stretch = samples != 0 ? samples : STRETCH;
}

rks_status rks_plan_stretch(uint64_t at, uint64_t count, uint64_t *end, rks_error *err)
{
    *end = count - at < stretch ? count : at + stretch;
    return at == 0 ? RKS_OK : rks_check_interrupt(err);
}

rks_status rks_plan_pause(uint64_t *done, uint64_t more, rks_error *err)
{
    *done += more;
    if (*done < stretch)
        return RKS_OK;
    *done = 0;
    return rks_check_interrupt(err);
}
