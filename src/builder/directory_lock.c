/* SPDX-License-Identifier: Apache-2.0
 *
 * directory_lock.c: takes the lock of a build's directory on all ranks, and waits for another
 * build's end. A rank that waits holds no lock. Otherwise two jobs with several directories each
 * could hold locks that the other one needs.
 *
 *   all try ─► build: lock ─► some are held? ─► build: waiting ─► all have theirs: done
 *     ▲                                            │ some are held: all release theirs
 *     └────────── at most POLL_MS ◄────────────────┘ */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/lock_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "builder/parts_state.h"
#include "group/agreement.h"

enum { POLL_MS = 500, SLICE_MS = 50, LINE_MS = 60000 };

/* What a rank has seen of the lock of its directory since it began to wait. */
typedef struct watch {
    rks_lock_look look;
    uint64_t changed_ms; /* when it was last seen to change */
    uint64_t line_ms;    /* when the last line was printed; 0: none yet */
} watch;

/* Appends to the error what a user can do. */
static void add_way_out(rks_error *err)
{
    size_t used = err == NULL ? 0 : strlen(err->text);
    if (err != NULL)
        snprintf(err->text + used, sizeof(err->text) - used,
                 "; set the option wait to wait for its end");
}

/* COLLECTIVE. Tries once; *own becomes this rank's result. `parts`: NULL on a rank that has
 * failed. */
static rks_status try_all(rks_group *group, rks_parts *parts, rks_status *own, rks_error *err)
{
    bool wait = parts != NULL && parts->options.wait;
    bool keep = parts != NULL && parts->options.keep;
    const rks_fact same[] = {rks_fact_same_shown("wait", wait ? "yes" : "no"),
                             rks_fact_same_shown("keep", keep ? "yes" : "no")};
    if (*own == RKS_OK)
        *own = rks_directory_lock_try(group, parts->directory, parts->options.no_lock, &parts->lock,
                                      err);
    rks_status status = rks_group_agree_on(group, "build: lock", *own, same, 2, NULL, err);
    if (status == RKS_OK)
        *own = rks_directory_lock_settle(group, parts->directory, &parts->lock, err);
    if (status == RKS_OK && *own == RKS_ERR_STATE && !wait)
        add_way_out(err);
    return status;
}

/* Returns RKS_ERR_PEER if the holder was silent for too long: it is stopped, or its machine is
 * gone. */
static rks_status watch_holder(const rks_parts *parts, watch *seen, const char *path,
                               rks_error *err)
{
    uint64_t now = rks_now_ms(), limit = rks_group_silence_ms(parts->group);
    rks_lock_look look = rks_lock_file_look(path);
    if (!look.there || look.renewed_ns != seen->look.renewed_ns ||
        strcmp(look.holder, seen->look.holder) != 0) {
        seen->look = look;
        seen->changed_ms = now;
    }
    if (now - seen->changed_ms <= limit)
        return RKS_OK;
    return rks_fail(
        err, RKS_ERR_PEER, ETIMEDOUT,
        "%s: waited for another build (%s), which gave no sign of life for %g s; end it, "
        "and run again",
        parts->directory, look.holder[0] == '\0' ? "its pid is not known" : look.holder,
        (double)limit / 1000);
}

/* Waits until the next try. */
static rks_status pause_a_while(rks_error *err)
{
    const struct timespec slice = {.tv_nsec = SLICE_MS * 1000000L};
    rks_status status = RKS_OK;
    for (int ms = 0; ms < POLL_MS && status == RKS_OK; ms += SLICE_MS) {
        nanosleep(&slice, NULL);
        status = rks_check_interrupt(err);
    }
    return status;
}

/* COLLECTIVE. Sets `holder` to the holder of the first directory that is held; "" if none is. */
static rks_status agree_held(const rks_parts *parts, rks_status status, bool held,
                             const watch *seen, char *holder, rks_error *err)
{
    rks_agreed agreed;
    char mine[RKS_LOCK_HOLDER + 1] = "";
    if (held)
        snprintf(mine, sizeof(mine), "+%s", seen->look.holder);
    const rks_fact fact =
        rks_fact_bytes(mine, strlen(mine), (uint64_t)rks_group_size(parts->group) * sizeof(mine));
    holder[0] = '\0';
    status = rks_group_agree_on(parts->group, "build: waiting", status, &fact, 1, &agreed, err);
    for (uint32_t rank = 0; status == RKS_OK && rank < rks_group_size(parts->group); rank++) {
        size_t size = 0;
        const char *theirs = rks_agreed_get(&agreed, rank, 0, &size);
        if (size > 0 && holder[0] == '\0')
            snprintf(holder, RKS_LOCK_HOLDER + 1, "%.*s", (int)size, theirs);
    }
    return status;
}

static void print_wait(const rks_parts *parts, watch *seen, const char *holder)
{
    uint64_t now = rks_now_ms();
    if (rks_group_rank(parts->group) != 0 || (seen->line_ms != 0 && now - seen->line_ms < LINE_MS))
        return;
    seen->line_ms = now;
    rks_log("%s: waiting for another build (%s)", parts->directory,
            holder[1] == '\0' ? "its pid is not known" : holder + 1);
}

/* COLLECTIVE. Waits until no directory is held by another job. */
static rks_status wait_for_lock(rks_parts *parts, rks_status *own, const char *path, rks_error *err)
{
    char holder[RKS_LOCK_HOLDER + 1];
    watch seen = {.changed_ms = rks_now_ms()};
    for (;;) {
        rks_status status = try_all(parts->group, parts, own, err);
        if (status != RKS_OK)
            return status;
        bool held = *own == RKS_ERR_STATE;
        if (held)
            *own = watch_holder(parts, &seen, path, err);
        else
            seen.changed_ms = rks_now_ms();
        status = agree_held(parts, *own, held, &seen, holder, err);
        if (status != RKS_OK || holder[0] == '\0')
            return status;
        rks_lock_file_release(parts->lock);
        parts->lock = NULL;
        print_wait(parts, &seen, holder);
        *own = pause_a_while(err);
    }
}

rks_status rks_parts_lock(rks_group *group, rks_parts *parts, rks_status *own, rks_error *err)
{
    if (*own != RKS_OK || !parts->options.wait)
        return try_all(group, parts, own, err);
    char *path = rks_format(err, "%s/build.lock", parts->directory);
    if (path == NULL)
        *own = RKS_ERR_MEMORY;
    rks_status status =
        path == NULL ? try_all(group, parts, own, err) : wait_for_lock(parts, own, path, err);
    rks_free(path);
    return status;
}
