/* SPDX-License-Identifier: Apache-2.0
 *
 * directory_calls.c: a call has a copy of all that its thread uses. What the caller gave is used on
 * the caller's thread alone (rks_file_wait_ask). */
#include "home/directory_calls.h"

#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "home/directory_files.h"

enum { AFTER_HANG_MS = 1000 };

struct rks_directory_calls {
    char *path;
    rks_home_limits limits;
    atomic_uint users; /* the owner and the calls; the last one frees */
    atomic_int hung;   /* calls that were left, and reads */
};

typedef struct call {
    rks_directory_calls *of;
    rks_status (*run)(struct call *c, rks_error *err);
    char *name; /* or prefix */
    char version[RKS_HOME_VERSION];
    /* of a put */
    rks_home_bytes bytes; /* `give` and `user` are the caller's */
    char *claim;
    enum rks_put_rule rule;
    uint64_t first; /* what is asked of the caller */
    uint8_t *to;
    size_t size;
    /* of a list */
    rks_home_listed_fn each;
    void *user;
    rks_home_listed file;
} call;

static void release_calls(rks_directory_calls *calls)
{
    if (atomic_fetch_sub(&calls->users, 1) != 1)
        return;
    rks_free(calls->path);
    rks_free(calls);
}

rks_status rks_directory_calls_begin(const char *path, const rks_home_limits *limits,
                                     rks_directory_calls **calls, rks_error *err)
{
    rks_directory_calls *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL || (made->path = rks_strdup(path, err)) == NULL) {
        rks_free(made);
        return RKS_ERR_MEMORY;
    }
    made->limits = *limits;
    made->limits.options = NULL; /* the caller's */
    atomic_init(&made->users, 1);
    *calls = made;
    return RKS_OK;
}

void rks_directory_calls_end(rks_directory_calls *calls)
{
    if (calls != NULL)
        release_calls(calls);
}

void rks_directory_calls_note(rks_directory_calls *calls, int reads)
{
    atomic_fetch_add(&calls->hung, reads);
}

/* ---- one call -------------------------------------------------------------------------------- */

static void free_call(call *c)
{
    rks_free(c->name);
    rks_free(c->claim);
    rks_free(c);
}

static void end_call(call *c)
{
    release_calls(c->of);
    free_call(c);
}

/* A call that was left has come back. */
static void drop_call(void *user)
{
    call *c = user;
    atomic_fetch_sub(&c->of->hung, 1);
    end_call(c);
}

static rks_status run_call(void *user, rks_error *err)
{
    call *c = user;
    rks_file_wait_at(c->of->path);
    return c->run(c, err);
}

/* Copies what is not the caller's. */
static rks_status make_call(rks_directory_calls *calls, const char *name, const char *version,
                            call **made, rks_error *err)
{
    call *c = rks_alloc(1, sizeof(*c), err);
    if (c == NULL || (c->name = rks_strdup(name, err)) == NULL) {
        rks_free(c);
        return RKS_ERR_MEMORY;
    }
    c->of = calls;
    strcpy(c->version, version);
    *made = c;
    return RKS_OK;
}

/* Waits for the call, and frees it unless it was left. `version` may be NULL. */
static rks_status wait_for_call(call *c, char *version, rks_error *err)
{
    rks_directory_calls *calls = c->of;
    const rks_file_work work = {.run = run_call, .drop = drop_call, .state = c};
    rks_home_limits limits = calls->limits;
    bool left = false;
    char *what = rks_format(err, "%s: %s", calls->path, c->name);
    if (what == NULL) {
        free_call(c);
        return RKS_ERR_MEMORY;
    }
    if (atomic_load(&calls->hung) > 0 && limits.timeout_ms > AFTER_HANG_MS)
        limits.timeout_ms = AFTER_HANG_MS;
    atomic_fetch_add(&calls->users, 1);
    rks_status status = rks_home_wait(&limits, what, &work, &left, err);
    rks_free(what);
    if (left) { /* its thread may have dropped it already */
        atomic_fetch_add(&calls->hung, 1);
        return status;
    }
    if (version != NULL && status == RKS_OK)
        strcpy(version, c->version);
    end_call(c);
    return status;
}

/* ---- put ------------------------------------------------------------------------------------- */

static rks_status give_asked(void *user, rks_error *err)
{
    const call *c = user;
    return c->bytes.give(c->bytes.user, c->first, c->to, c->size, err);
}

static rks_status give_by_caller(void *user, uint64_t first, uint8_t *to, size_t size,
                                 rks_error *err)
{
    call *c = user;
    c->first = first;
    c->to = to;
    c->size = size;
    return rks_file_wait_ask(give_asked, c, err);
}

static rks_status do_put(call *c, rks_error *err)
{
    const rks_home_bytes bytes = {
        .size = c->bytes.size, .give = give_by_caller, .user = c, .claim = c->claim};
    return rks_directory_put(c->of->path, c->name, &bytes, c->rule, c->version, err);
}

rks_status rks_directory_call_put(rks_directory_calls *calls, const char *name,
                                  const rks_home_bytes *bytes, enum rks_put_rule rule,
                                  char version[RKS_HOME_VERSION], rks_error *err)
{
    call *c;
    rks_status status = make_call(calls, name, version, &c, err);
    if (status == RKS_OK && bytes->claim != NULL &&
        (c->claim = rks_strdup(bytes->claim, err)) == NULL) {
        free_call(c);
        status = RKS_ERR_MEMORY;
    }
    if (status != RKS_OK)
        return status;
    c->run = do_put;
    c->bytes = *bytes;
    c->rule = rule;
    return wait_for_call(c, version, err);
}

/* ---- list, remove ---------------------------------------------------------------------------- */

static rks_status tell_asked(void *user, rks_error *err)
{
    const call *c = user;
    return c->each(c->user, &c->file, err);
}

static rks_status tell_caller(void *user, const rks_home_listed *file, rks_error *err)
{
    call *c = user;
    c->file = *file;
    return rks_file_wait_ask(tell_asked, c, err);
}

static rks_status do_list(call *c, rks_error *err)
{
    return rks_directory_list(c->of->path, c->name, tell_caller, c, err);
}

rks_status rks_directory_call_list(rks_directory_calls *calls, const char *prefix,
                                   rks_home_listed_fn each, void *user, rks_error *err)
{
    call *c;
    rks_status status = make_call(calls, prefix, "", &c, err);
    if (status != RKS_OK)
        return status;
    c->run = do_list;
    c->each = each;
    c->user = user;
    return wait_for_call(c, NULL, err);
}

static rks_status do_drop(call *c, rks_error *err)
{
    return rks_directory_drop(c->of->path, c->name, c->version, err);
}

rks_status rks_directory_call_drop(rks_directory_calls *calls, const char *name,
                                   const char *version, rks_error *err)
{
    call *c;
    rks_status status = make_call(calls, name, version, &c, err);
    if (status != RKS_OK)
        return status;
    c->run = do_drop;
    return wait_for_call(c, NULL, err);
}
