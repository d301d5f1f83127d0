/* SPDX-License-Identifier: Apache-2.0
 *
 * requests.c: one read for a thread that waits. What the home writes into is a slot, which the
 * waiting thread and the home own together: a read that hangs keeps it after the thread has left.
 */
#include "home/requests.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "home/address.h"
#include "home/pause.h"

enum {
    SHORT_TRIES = 3,
    CLOSE_MS = 1000,
    SPARES = 8,            /* slots that are kept for the next reads ... */
    SPARE_MIN = 256 << 10, /* ... of this many bytes at least: new memory of this size is slow */
};

static const uint64_t NOT_BEGUN = UINT64_MAX;

typedef struct slot slot;
struct slot {
    rks_home_read read; /* first: `done` finds the slot by it */
    size_t room;        /* of `bytes` */
    slot *next;         /* of the spare ones */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t came;    /* NOT_BEGUN at first */
    bool ended, left; /* the home has ended the read; the waiting thread has gone */
    enum rks_home_kind kind;
    rks_error err;
    uint8_t bytes[]; /* the range, then the file's name */
};

struct rks_home_spares {
    pthread_mutex_t mutex;
    slot *first;
    size_t count;
};

/* A request: tries until one succeeds. */
typedef struct request {
    rks_home *home;
    const char *name;
    uint64_t first, end;
    bool whole;
    char version[RKS_HOME_VERSION];
    uint64_t began_ms, named_ms; /* and when a line last named the home */
    uint32_t tries, short_tries;
} request;

static void free_slot(slot *s)
{
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    rks_free(s);
}

static void slot_comes(rks_home_read *read, uint64_t bytes)
{
    slot *s = (slot *)read;
    pthread_mutex_lock(&s->mutex);
    s->came = bytes;
    pthread_mutex_unlock(&s->mutex);
}

static void slot_ends(rks_home_read *read, enum rks_home_kind kind, const rks_error *err)
{
    slot *s = (slot *)read;
    pthread_mutex_lock(&s->mutex);
    s->kind = kind;
    s->err = *err;
    s->ended = true;
    bool left = s->left;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    if (left)
        free_slot(s);
}

/* The waiting thread leaves the slot, which the home frees if its read has not ended. */
static void leave_slot(slot *s)
{
    pthread_mutex_lock(&s->mutex);
    bool ended = s->ended;
    s->left = true;
    pthread_mutex_unlock(&s->mutex);
    if (ended)
        free_slot(s);
}

/* Returns a spare one of that room; NULL: there is none. */
static slot *take_spare(rks_home_spares *spares, size_t room)
{
    slot *found = NULL;
    if (spares == NULL)
        return NULL;
    pthread_mutex_lock(&spares->mutex);
    for (slot **at = &spares->first; found == NULL && *at != NULL; at = &(*at)->next)
        if ((*at)->room >= room) {
            found = *at;
            *at = found->next;
            spares->count--;
            break;
        }
    pthread_mutex_unlock(&spares->mutex);
    return found;
}

/* Keeps a slot for the next read, or frees it. */
static void spare_slot(rks_home_spares *spares, slot *s)
{
    bool kept = false;
    if (spares != NULL && s->room >= SPARE_MIN) {
        pthread_mutex_lock(&spares->mutex);
        kept = spares->count < SPARES;
        if (kept) {
            s->next = spares->first;
            spares->first = s;
            spares->count++;
        }
        pthread_mutex_unlock(&spares->mutex);
    }
    if (!kept)
        free_slot(s);
}

static slot *make_slot(const request *r, rks_error *err)
{
    size_t size = (size_t)(r->end - r->first), name = strlen(r->name) + 1, room = size + name;
    slot *s = size < SPARE_MIN ? NULL : take_spare(r->home->spares, room);
    if (s != NULL) {
        room = s->room;
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->mutex);
    } else if ((s = rks_alloc_raw(sizeof(*s) + room, 1, err)) == NULL) {
        return NULL;
    }
    memset(s, 0, sizeof(*s));
    s->room = room;
    s->read = (rks_home_read){.name = memcpy(s->bytes + size, r->name, name),
                              .first = r->first,
                              .end = r->end,
                              .whole = r->whole,
                              .to = s->bytes,
                              .come = slot_comes,
                              .done = slot_ends};
    strcpy(s->read.version, r->version);
    s->came = NOT_BEGUN;
    int code = pthread_mutex_init(&s->mutex, NULL);
    if (code == 0)
        code = rks_cond_init(&s->changed);
    if (code == 0)
        return s;
    rks_free(s);
    rks_fail_errno(err, code, "%s: preparing a read", r->home->name);
    return NULL;
}

static rks_status hear_caller(const request *r, rks_error *err)
{
    const rks_home_limits *limits = &r->home->limits;
    rks_status status = rks_check_interrupt(err);
    if (status == RKS_OK && limits->must_stop != NULL)
        status = limits->must_stop(limits->user, err);
    return status;
}

/* Names the home when a request takes long. */
static void name_home(request *r, const char *why)
{
    uint64_t now = rks_now_ms();
    if (now - r->named_ms < r->home->limits.tell_ms)
        return;
    r->named_ms = now;
    rks_log("%s: has waited %" PRIu64 " s for %s, try %" PRIu32 "%s%s", r->home->name,
            (now - r->began_ms) / 1000, r->name, r->tries, why[0] == '\0' ? "" : ": ", why);
}

/* Waits for the slot's read. *stalled: no byte came for the limit. While the home has not begun
 * with it, it waits for others, which have limits of their own. */
static rks_status wait_for_slot(request *r, slot *s, bool *stalled, rks_error *err)
{
    const rks_home_limits *limits = &r->home->limits;
    uint64_t came = NOT_BEGUN, last_ms = rks_now_ms();
    rks_status status = RKS_OK;
    pthread_mutex_lock(&s->mutex);
    while (status == RKS_OK && !s->ended && !*stalled) {
        rks_cond_wait_ms(&s->changed, &s->mutex, RKS_WAIT_SLICE_MS);
        if (s->ended)
            break;
        uint64_t now = rks_now_ms();
        last_ms = s->came != came ? now : last_ms;
        came = s->came;
        *stalled = now - last_ms >= (came == NOT_BEGUN ? limits->timeout_ms : limits->stall_ms);
        pthread_mutex_unlock(&s->mutex);
        status = hear_caller(r, err);
        name_home(r, "");
        pthread_mutex_lock(&s->mutex);
    }
    pthread_mutex_unlock(&s->mutex);
    return status;
}

static rks_status pause_before_next(request *r, bool busy, const char *why, rks_error *err)
{
    uint64_t until = rks_now_ms() + rks_home_pause_ms(r->tries, busy);
    rks_status status = RKS_OK;
    for (uint64_t now; status == RKS_OK && (now = rks_now_ms()) < until;) {
        uint64_t left = until - now < RKS_WAIT_SLICE_MS ? until - now : RKS_WAIT_SLICE_MS;
        nanosleep(&(struct timespec){.tv_nsec = (long)left * 1000000}, NULL);
        status = hear_caller(r, err);
        name_home(r, why);
    }
    return status;
}

/* Decides after a failed try: RKS_OK for another one. */
static rks_status after_failure(request *r, enum rks_home_kind kind, const rks_error *why,
                                rks_error *err)
{
    uint64_t waited = rks_now_ms() - r->began_ms;
    if (why->status == RKS_ERR_CORRUPT)
        r->short_tries++;
    switch (kind) {
    case RKS_HOME_MISSING:
        return rks_fail(err, RKS_ERR_NOT_FOUND, why->cause, "%s", why->text);
    case RKS_HOME_CHANGED:
        return rks_fail(err, RKS_ERR_STATE, why->cause, "%s", why->text);
    case RKS_HOME_DENIED:
        return rks_fail(err, RKS_ERR_IO, why->cause, "%s", why->text);
    default:
        break;
    }
    if (r->short_tries >= SHORT_TRIES)
        return rks_fail(err, RKS_ERR_CORRUPT, why->cause, "%s", why->text);
    if (waited >= r->home->limits.timeout_ms)
        return rks_fail(err, RKS_ERR_TIMEOUT, why->cause,
                        "%s: %s did not come within %" PRIu64 " s, %" PRIu32 " tries; the last: %s",
                        r->home->name, r->name, waited / 1000, r->tries, why->text);
    return pause_before_next(r, kind == RKS_HOME_BUSY, why->text, err);
}

/* One try. *got stays NULL if there is to be another one. */
static rks_status try_request(request *r, slot **got, rks_error *err)
{
    rks_error why = {0};
    bool stalled = false;
    slot *s = make_slot(r, err);
    if (s == NULL)
        return RKS_ERR_MEMORY;
    r->tries++;
    if (r->home->ops->read(r->home->state, &s->read, &why) != RKS_OK) {
        free_slot(s);
        bool lasts = why.status == RKS_ERR_STATE || why.status == RKS_ERR_ARGUMENT;
        return after_failure(r, lasts ? RKS_HOME_DENIED : RKS_HOME_BROKEN, &why, err);
    }
    rks_status status = wait_for_slot(r, s, &stalled, err);
    if (status == RKS_OK && !stalled && s->kind == RKS_HOME_OK) {
        *got = s;
        return RKS_OK;
    }
    enum rks_home_kind kind = RKS_HOME_BROKEN;
    if (status != RKS_OK || stalled) {
        rks_fail(&why, RKS_ERR_TIMEOUT, ETIMEDOUT, "no byte came for %" PRIu32 " s",
                 r->home->limits.stall_ms / 1000);
        r->home->ops->give_up(r->home->state, &s->read);
    } else {
        why = s->err;
        kind = s->kind;
    }
    leave_slot(s);
    return status == RKS_OK ? after_failure(r, kind, &why, err) : status;
}

/* Tries until a slot has all that was asked for; the caller frees it. */
static rks_status run_request(request *r, slot **got, rks_error *err)
{
    rks_status status = RKS_OK;
    *got = NULL;
    r->began_ms = r->named_ms = rks_now_ms();
    while (status == RKS_OK && *got == NULL)
        status = try_request(r, got, err);
    return status;
}

static void begin_request(request *r, rks_home *home, const char *name, const char *version)
{
    *r = (request){.home = home, .name = name};
    if (version != NULL)
        strcpy(r->version, version);
}

rks_status rks_home_size(rks_home *home, const char *name, uint64_t *size, char *version,
                         rks_error *err)
{
    request r;
    slot *got;
    begin_request(&r, home, name, version);
    rks_status status = run_request(&r, &got, err);
    if (status != RKS_OK)
        return status;
    *size = got->read.size;
    if (version != NULL)
        strcpy(version, got->read.version);
    free_slot(got);
    return RKS_OK;
}

rks_status rks_home_read_all(rks_home *home, const char *name, size_t most, char **bytes,
                             size_t *size, char *version, rks_error *err)
{
    request r;
    slot *got;
    begin_request(&r, home, name, version);
    r.end = most;
    r.whole = true;
    rks_status status = run_request(&r, &got, err);
    if (status != RKS_OK)
        return status;
    char *text = rks_alloc_raw((size_t)got->read.size + 1, 1, err);
    if (text != NULL) {
        memcpy(text, got->bytes, (size_t)got->read.size);
        text[got->read.size] = '\0';
        *bytes = text;
        *size = (size_t)got->read.size;
        if (version != NULL)
            strcpy(version, got->read.version);
    }
    free_slot(got);
    return text == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

rks_status rks_home_borrow(rks_home *home, const char *name, uint64_t first, uint64_t end,
                           char *version, rks_home_loan *loan, rks_error *err)
{
    request r;
    slot *got;
    *loan = (rks_home_loan){0};
    begin_request(&r, home, name, version);
    r.first = first;
    r.end = end;
    rks_status status = run_request(&r, &got, err);
    if (status != RKS_OK)
        return status;
    if (version != NULL)
        strcpy(version, got->read.version);
    *loan = (rks_home_loan){got->bytes, home};
    return RKS_OK;
}

void rks_home_give_back(rks_home_loan *loan)
{
    if (loan->bytes != NULL)
        spare_slot(loan->home->spares, (slot *)(void *)(loan->bytes - offsetof(slot, bytes)));
    *loan = (rks_home_loan){0};
}

rks_status rks_home_fetch(rks_home *home, const char *name, uint64_t first, uint64_t end, void *to,
                          char *version, rks_error *err)
{
    rks_home_loan loan;
    rks_status status = rks_home_borrow(home, name, first, end, version, &loan, err);
    if (status == RKS_OK)
        memcpy(to, loan.bytes, (size_t)(end - first));
    rks_home_give_back(&loan);
    return status;
}

rks_status rks_home_list(rks_home *home, const char *prefix, rks_home_listed_fn each, void *user,
                         rks_error *err)
{
    return home->ops->list(home->state, prefix, each, user, err);
}

/* ---- an open home ---------------------------------------------------------------------------- */

static rks_home_spares *make_spares(rks_error *err)
{
    rks_home_spares *spares = rks_alloc(1, sizeof(*spares), err);
    int code = spares == NULL ? 0 : pthread_mutex_init(&spares->mutex, NULL);
    if (code == 0)
        return spares;
    rks_free(spares);
    rks_fail_errno(err, code, "a home's memory");
    return NULL;
}

static void free_spares(rks_home_spares *spares)
{
    if (spares == NULL)
        return;
    for (slot *s = spares->first, *next; s != NULL; s = next) {
        next = s->next;
        free_slot(s);
    }
    pthread_mutex_destroy(&spares->mutex);
    rks_free(spares);
}

rks_status rks_home_open(const char *url, const rks_home_limits *limits, rks_home **home,
                         rks_error *err)
{
    rks_home_address address;
    rks_status status = rks_home_address_of(url, &address, err);
    if (status != RKS_OK)
        return status;
    rks_home *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->ops = !address.stored                     ? &rks_home_directory
                : limits != NULL && limits->objects ? &rks_home_objects
                                                    : &rks_home_helper;
    if (limits != NULL)
        made->limits = *limits;
    rks_home_limits_fill(&made->limits);
    made->name = rks_strdup(address.path, err);
    made->spares = made->name == NULL ? NULL : make_spares(err);
    status = made->spares == NULL ? RKS_ERR_MEMORY
                                  : made->ops->open(address.path, &made->limits, &made->state, err);
    made->limits.options = NULL; /* the caller's */
    if (status == RKS_OK) {
        *home = made;
        return RKS_OK;
    }
    free_spares(made->spares);
    rks_free(made->name);
    rks_free(made);
    return status;
}

void rks_home_close(rks_home *home)
{
    if (home == NULL)
        return;
    home->ops->close(home->state, CLOSE_MS);
    free_spares(home->spares);
    rks_free(home->name);
    rks_free(home);
}
