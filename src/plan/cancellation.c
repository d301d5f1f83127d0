/* SPDX-License-Identifier: Apache-2.0
 *
 * cancellation.c: divides the planner's long work into stretches, and checks for an interrupt
 * between them. */
#include "plan/epoch.h"

#include "base/clock.h"
#include "base/error.h"
#include "plan/cancellation.h"

enum { STRETCH = 1 << 20 }; /* some milliseconds, even if each sample is a cache miss */

static uint64_t stretch = STRETCH;

static _Thread_local const rks_plan_watch *watch;

void rks_plan_watch_set(const rks_plan_watch *by)
{
    watch = by;
}

static rks_status ask(rks_error *err)
{
    if (watch == NULL)
        return rks_check_interrupt(err);
    atomic_fetch_add_explicit(watch->progress, 1, memory_order_relaxed);
    if (watch->stop == NULL)
        return rks_check_interrupt(err);
    return atomic_load(watch->stop) ? rks_fail(err, RKS_ERR_CANCELLED, 0, "not needed any more")
                                    : RKS_OK;
}

void rks_plan_stretch_set(uint64_t samples)
{
    stretch = samples != 0 ? samples : STRETCH;
}

rks_status rks_plan_stretch(uint64_t at, uint64_t count, uint64_t *end, rks_error *err)
{
    *end = count - at < stretch ? count : at + stretch;
    return at == 0 ? RKS_OK : ask(err);
}

rks_status rks_plan_pause(uint64_t *done, uint64_t more, rks_error *err)
{
    *done += more;
    if (*done < stretch)
        return RKS_OK;
    *done = 0;
    return ask(err);
}
