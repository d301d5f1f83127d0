/* SPDX-License-Identifier: Apache-2.0
 *
 * helper_calls.c: puts, lists and removes by a helper, on threads that wait. A failure that may
 * pass is tried again: at most 8 times, after pauses of 0.2 to 20 s. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "home/helper.h"
#include "home/pause.h"

enum {
    TRIES = 8,
    QUIET_MS = 300000,       /* without a word of the helper */
    CLEARS_UP_MS = 5000,     /* after a call was left */
    LISTED_MOST = 256 << 20, /* bytes of names */
};

/* ---- one call -------------------------------------------------------------------------------- */

bool rks_helper_hear_call(rks_helper *h, rks_helper_slot *slot, const rks_helper_line *line)
{
    rks_helper_call *call = slot->call;
    rks_error ignored;
    call->moved_ms = rks_now_ms();
    const rks_helper_item item = {
        .size = line->size, .age_s = line->age_s, .name_size = strlen(line->name)};
    switch (line->word) {
    case RKS_HELPER_AT:
        return true;
    case RKS_HELPER_MORE:
        call->more = call->puts;
        return call->puts;
    case RKS_HELPER_ITEM:
        if (!call->lists || call->items.size > LISTED_MOST ||
            rks_buffer_add(&call->items, &item, sizeof(item), &ignored) != RKS_OK ||
            rks_buffer_add(&call->items, line->name, item.name_size + 1, &ignored) != RKS_OK)
            return false;
        memcpy(call->items.data + call->items.size - item.name_size - 1 - sizeof(item) +
                   offsetof(rks_helper_item, version),
               line->version, sizeof(item.version));
        return true;
    case RKS_HELPER_OK:
        strcpy(call->version, line->version);
        break;
    case RKS_HELPER_FAIL:
        call->kind = line->kind;
        rks_helper_tell(h, "", line->kind, line->text, &call->err);
        break;
    default:
        return false;
    }
    call->ended = true;
    *slot = (rks_helper_slot){0};
    return true;
}

/* With the mutex, which it gives back. */
static rks_status wait_a_slice(rks_helper *h, rks_error *err)
{
    rks_cond_wait_ms(&h->changed, &h->mutex, RKS_WAIT_SLICE_MS);
    pthread_mutex_unlock(&h->mutex);
    rks_status status = rks_check_interrupt(err);
    pthread_mutex_lock(&h->mutex);
    return status;
}

/* With the mutex. Waits for a helper and a slot. If there is none, the call has ended. */
static rks_status wait_for_slot(rks_helper *h, rks_helper_call *call, rks_error *err)
{
    const uint64_t before = h->broken_times;
    rks_status status = rks_helper_begin(h, err);
    call->slot = RKS_HELPER_SLOTS;
    call->memory = -1;
    h->waiting++;
    rks_helper_wake(h);
    while (status == RKS_OK && !call->ended) {
        call->slot = h->process.pid == 0 ? RKS_HELPER_SLOTS : rks_helper_free_slot(h, true);
        if (call->slot != RKS_HELPER_SLOTS)
            break;
        call->ended = h->broken_times != before || h->refused.status != RKS_OK;
        if (!call->ended)
            status = wait_a_slice(h, err);
    }
    h->waiting--;
    if (call->ended) {
        call->kind = h->refused.status != RKS_OK ? RKS_HOME_DENIED : RKS_HOME_BROKEN;
        call->err = h->refused.status != RKS_OK ? h->refused : h->broken;
    }
    if (status != RKS_OK || call->ended)
        return status;
    call->memory = fcntl(h->process.memory, F_DUPFD_CLOEXEC, 0);
    if (call->memory < 0)
        return rks_fail_errno(err, errno, "%s: memory of its helper", h->url);
    call->id = ++h->last_id;
    call->moved_ms = rks_now_ms();
    h->slots[call->slot] = (rks_helper_slot){.id = call->id, .call = call};
    return RKS_OK;
}

/* What was written goes out. */
static void send_lines(rks_helper *h, rks_status status)
{
    if (status == RKS_OK)
        rks_helper_wake(h);
}

/* With the mutex. Waits until the call has ended, or may go on. */
static rks_status wait_for_call(rks_helper *h, rks_helper_call *call, rks_error *err)
{
    rks_status status = RKS_OK;
    while (status == RKS_OK && !call->ended && !call->more) {
        status = wait_a_slice(h, err);
        if (status == RKS_OK && !call->ended && rks_now_ms() - call->moved_ms >= QUIET_MS)
            status = rks_fail(err, RKS_ERR_TIMEOUT, ETIMEDOUT,
                              "%s: the helper said nothing of a request for %d s", h->url,
                              QUIET_MS / 1000);
    }
    return status;
}

/* With the mutex. Leaves a call that has not ended; its helper has a while to clear up. */
static void leave_call(rks_helper *h, rks_helper_call *call)
{
    const uint64_t until = rks_now_ns() + (uint64_t)CLEARS_UP_MS * 1000000;
    if (call->slot != RKS_HELPER_SLOTS && !call->ended && h->slots[call->slot].call == call) {
        const uint64_t id = call->id;
        rks_helper_drop(h, call->slot);
        while (h->slots[call->slot].id == id && rks_cond_wait_until(&h->changed, &h->mutex, until))
            ;
    }
    if (call->memory >= 0)
        close(call->memory);
    call->memory = -1;
}

/* ---- tries ----------------------------------------------------------------------------------- */

/* A call with all its tries. */
typedef struct attempt {
    rks_helper *h;
    const char *what, *name; /* for messages */
    uint32_t tries;
    uint64_t began_ms;
} attempt;

static rks_status fail_call(const attempt *a, const rks_helper_call *call, rks_error *err)
{
    const rks_error *why = &call->err;
    if (call->kind == RKS_HOME_CHANGED)
        return rks_fail(err, RKS_ERR_STATE, EEXIST, "%s (%s %s)", why->text, a->what, a->name);
    if (call->kind == RKS_HOME_DENIED || call->kind == RKS_HOME_MISSING)
        return rks_fail(err, why->status, why->cause, "%s (%s %s)", why->text, a->what, a->name);
    return rks_fail(err, RKS_ERR_TIMEOUT, why->cause,
                    "%s (%s %s, %" PRIu32 " tries in %" PRIu64 " s)", why->text, a->what, a->name,
                    a->tries, (rks_now_ms() - a->began_ms) / 1000);
}

/* Decides after a try that ended: *again, after a pause; or its result. */
static rks_status after_try(attempt *a, const rks_helper_call *call, bool *again, rks_error *err)
{
    *again = false;
    if (call->kind == RKS_HOME_OK)
        return RKS_OK;
    bool passes = call->kind == RKS_HOME_BUSY || call->kind == RKS_HOME_BROKEN;
    if (!passes || ++a->tries >= TRIES || a->h->closing)
        return fail_call(a, call, err);
    *again = true;
    uint64_t until = rks_now_ms() + rks_home_pause_ms(a->tries, call->kind == RKS_HOME_BUSY);
    rks_status status = RKS_OK;
    while (status == RKS_OK && rks_now_ms() < until) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        status = rks_check_interrupt(err);
    }
    return status;
}

/* ---- put ------------------------------------------------------------------------------------- */

/* Fills the call's slot from `at` on. */
static rks_status fill_slot(const rks_helper_call *call, const rks_home_bytes *bytes, uint64_t at,
                            uint64_t size, uint8_t *room, rks_error *err)
{
    rks_status status = RKS_OK;
    for (uint64_t done = 0; status == RKS_OK && done < size;) {
        size_t some = size - done < RKS_HOME_PIECE ? (size_t)(size - done) : RKS_HOME_PIECE;
        status = bytes->give(bytes->user, at + done, room, some, err);
        if (status != RKS_OK)
            break;
        const off_t to = (off_t)(rks_helper_slot_at(call->slot) + done);
        if (pwrite(call->memory, room, some, to) != (ssize_t)some)
            status = rks_fail_errno(err, errno, "memory of a home's helper");
        done += some;
    }
    return status;
}

/* With the mutex. Sends parts until the call has ended. */
static rks_status send_parts(rks_helper *h, rks_helper_call *call, const rks_home_bytes *bytes,
                             uint8_t *room, rks_error *err)
{
    rks_status status = RKS_OK;
    for (uint64_t at = 0; status == RKS_OK;) {
        status = wait_for_call(h, call, err);
        if (status != RKS_OK || call->ended)
            break;
        call->more = false;
        uint64_t size = bytes->size - at;
        size = size < RKS_HELPER_BIG_BYTES ? size : RKS_HELPER_BIG_BYTES;
        if (size == 0) /* it has all: what it says now is the end */
            continue;
        pthread_mutex_unlock(&h->mutex);
        status = fill_slot(call, bytes, at, size, room, err);
        pthread_mutex_lock(&h->mutex);
        if (status == RKS_OK && !call->ended)
            status = rks_buffer_print(&h->out, err, "part %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                                      call->id, rks_helper_slot_at(call->slot), size);
        send_lines(h, status);
        call->moved_ms = rks_now_ms();
        at += size;
    }
    return status;
}

static rks_status put_once(rks_helper *h, rks_helper_call *call, const char *name,
                           const rks_home_bytes *bytes, enum rks_put_rule rule, const char *version,
                           rks_error *err)
{
    uint8_t *room = rks_alloc_raw(RKS_HOME_PIECE, 1, err);
    if (room == NULL)
        return RKS_ERR_MEMORY;
    pthread_mutex_lock(&h->mutex);
    rks_status status = wait_for_slot(h, call, err);
    if (status == RKS_OK && !call->ended)
        status = rks_buffer_print(&h->out, err, "put %" PRIu64 " %" PRIu64 " %s %s %s\n", call->id,
                                  bytes->size, rule == RKS_PUT_ABSENT ? "absent" : "same",
                                  rks_helper_version(rule == RKS_PUT_SAME ? version : ""), name);
    send_lines(h, status);
    if (status == RKS_OK && !call->ended)
        status = send_parts(h, call, bytes, room, err);
    leave_call(h, call);
    pthread_mutex_unlock(&h->mutex);
    rks_free(room);
    return status;
}

rks_status rks_helper_put(void *home, const char *name, const rks_home_bytes *bytes,
                          enum rks_put_rule rule, char version[RKS_HOME_VERSION], rks_error *err)
{
    attempt a = {.h = home, .what = "put", .name = name, .began_ms = rks_now_ms()};
    rks_status status = rks_helper_check(a.h, name, err);
    if (status == RKS_OK)
        status = rks_helper_check_owner(a.h, err);
    for (bool again = true; status == RKS_OK && again;) {
        rks_helper_call call = {.puts = true};
        status = put_once(a.h, &call, name, bytes, rule, version, err);
        if (status == RKS_OK)
            status = after_try(&a, &call, &again, err);
        if (status == RKS_OK && !again)
            strcpy(version, call.version);
    }
    return status;
}

/* ---- list, remove ---------------------------------------------------------------------------- */

static rks_status ask_once(rks_helper *h, rks_helper_call *call, const char *verb,
                           const char *version, const char *name, rks_error *err)
{
    pthread_mutex_lock(&h->mutex);
    rks_status status = wait_for_slot(h, call, err);
    if (status == RKS_OK && !call->ended)
        status = rks_buffer_print(&h->out, err, "%s %" PRIu64 " %s%s%s\n", verb, call->id, version,
                                  version[0] == '\0' ? "" : " ", name);
    send_lines(h, status);
    if (status == RKS_OK)
        status = wait_for_call(h, call, err);
    leave_call(h, call);
    pthread_mutex_unlock(&h->mutex);
    return status;
}

static rks_status give_items(const rks_buffer *items, rks_home_listed_fn each, void *user,
                             rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t at = 0; status == RKS_OK && at < items->size;) {
        rks_helper_item item;
        memcpy(&item, items->data + at, sizeof(item));
        rks_home_listed file = {.name = (const char *)items->data + at + sizeof(item),
                                .size = item.size,
                                .age_s = item.age_s};
        memcpy(file.version, item.version, sizeof(file.version));
        status = each(user, &file, err);
        at += sizeof(item) + (size_t)item.name_size + 1;
    }
    return status;
}

rks_status rks_helper_list(void *home, const char *prefix, rks_home_listed_fn each, void *user,
                           rks_error *err)
{
    attempt a = {.h = home, .what = "list", .name = prefix, .began_ms = rks_now_ms()};
    rks_status status = prefix[0] == '\0' ? RKS_OK : rks_helper_check(a.h, prefix, err);
    if (status == RKS_OK)
        status = rks_helper_check_owner(a.h, err);
    for (bool again = true; status == RKS_OK && again;) {
        rks_helper_call call = {.lists = true};
        status = ask_once(a.h, &call, a.h->objects ? "tree" : "list", "", prefix, err);
        if (status == RKS_OK)
            status = after_try(&a, &call, &again, err);
        if (status == RKS_OK && !again)
            status = give_items(&call.items, each, user, err);
        rks_buffer_free(&call.items);
    }
    return status;
}

rks_status rks_helper_remove(void *home, const char *name, const char *version, rks_error *err)
{
    attempt a = {.h = home, .what = "remove", .name = name, .began_ms = rks_now_ms()};
    rks_status status = rks_helper_check(a.h, name, err);
    if (status == RKS_OK)
        status = rks_helper_check_owner(a.h, err);
    for (bool again = true; status == RKS_OK && again;) {
        rks_helper_call call = {0};
        status = ask_once(a.h, &call, "remove", rks_helper_version(version), name, err);
        if (status == RKS_OK && call.kind == RKS_HOME_MISSING)
            return RKS_OK;
        if (status == RKS_OK)
            status = after_try(&a, &call, &again, err);
    }
    return status;
}
