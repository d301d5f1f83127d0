/* SPDX-License-Identifier: Apache-2.0
 *
 * patience.c: a wait that says a line now and then, and hears the group. */
#include "home/patience.h"

#include <inttypes.h>

#include "base/log.h"

enum { STALL_MS = 15000, TELL_MS = 60000, TIMEOUT_MS = 300000 };

void rks_home_limits_fill(rks_home_limits *limits)
{
    if (limits->stall_ms == 0)
        limits->stall_ms = STALL_MS;
    if (limits->tell_ms == 0)
        limits->tell_ms = TELL_MS;
    if (limits->hang_ms == 0)
        limits->hang_ms = TIMEOUT_MS;
    if (limits->timeout_ms == 0)
        limits->timeout_ms = TIMEOUT_MS;
}

typedef struct waiting {
    const rks_home_limits *limits;
    const char *what;
    uint64_t told_ms; /* of the quiet time, when a line was last said */
} waiting;

static rks_status tell_and_hear(void *user, uint64_t quiet_ms, rks_error *err)
{
    waiting *w = user;
    w->told_ms = quiet_ms < w->told_ms ? 0 : w->told_ms; /* it has answered meanwhile */
    if (quiet_ms - w->told_ms >= w->limits->tell_ms) {
        w->told_ms = quiet_ms;
        rks_log("%s: has waited %" PRIu64 " s for its file system", w->what, quiet_ms / 1000);
    }
    return w->limits->must_stop == NULL ? RKS_OK : w->limits->must_stop(w->limits->user, err);
}

rks_status rks_home_wait(const rks_home_limits *limits, const char *what, const rks_file_work *work,
                         bool *left, rks_error *err)
{
    waiting w = {.limits = limits, .what = what};
    rks_file_work heard = *work;
    heard.meanwhile = tell_and_hear;
    heard.user = &w;
    heard.limit_is_fixed = true;
    return rks_file_wait(&heard, limits->timeout_ms, left, err);
}
