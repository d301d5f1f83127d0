/* SPDX-License-Identifier: Apache-2.0
 *
 * holder.c: the service, and the home that asks it. */
#include "staging/holder.h"

#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "transport/engine.h"

enum { HEAD = 34, NAME_MOST = 127, REPLY_MOST = 16 << 20 };
enum { STALL_MS = 15000 };

static const char *const endings[] = {"rks", "sums", "json"};
enum { ENDINGS = sizeof(endings) / sizeof(endings[0]) };

/* ---- serving --------------------------------------------------------------------------------- */

struct rks_holding {
    rks_engine *engine;
    rks_digest dataset;
    char *directory;
    int users; /* the owner, and requests that are being answered */
    rks_holding *next;
};

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static rks_holding *holdings; /* guarded by list_mutex, as the counts of users */

/* Returns the dataset's holding of that number: it may be open from several directories. */
static rks_holding *hold(const rks_engine *engine, rks_digest dataset, size_t number)
{
    pthread_mutex_lock(&list_mutex);
    rks_holding *found = holdings;
    for (; found != NULL; found = found->next)
        if (found->engine == engine && rks_digest_equal(found->dataset, dataset) && number-- == 0)
            break;
    if (found != NULL)
        found->users++;
    pthread_mutex_unlock(&list_mutex);
    return found;
}

static void let_go(rks_holding *holding)
{
    pthread_mutex_lock(&list_mutex);
    bool last = --holding->users == 0;
    pthread_mutex_unlock(&list_mutex);
    if (!last)
        return;
    rks_free(holding->directory);
    rks_free(holding);
}

/* What a request asks for, checked. */
typedef struct wanted {
    rks_digest dataset;
    uint64_t first, end;
    uint8_t file;
    bool whole;
    char name[NAME_MOST + 1];
} wanted;

/* Shards' names are letters, digits, dots and lines; none leads out of the directory. */
static bool is_name(const uint8_t *name, size_t size)
{
    if (size == 0 || size > NAME_MOST || name[0] == '.')
        return false;
    for (size_t i = 0; i < size; i++) {
        const uint8_t c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_' || c == '.'))
            return false;
    }
    return true;
}

static bool parse_request(const uint8_t *body, size_t size, wanted *w)
{
    if (size <= HEAD || !is_name(body + HEAD, size - HEAD))
        return false;
    *w = (wanted){.dataset = {rks_load_u64(body), rks_load_u64(body + 8)},
                  .first = rks_load_u64(body + 16),
                  .end = rks_load_u64(body + 24),
                  .file = body[32],
                  .whole = body[33] == 1};
    memcpy(w->name, body + HEAD, size - HEAD);
    return w->file < ENDINGS && w->first <= w->end && w->end - w->first <= REPLY_MOST &&
           (!w->whole || w->first == 0);
}

/* Reads it. The caller frees *bytes. */
static rks_status read_wanted(const rks_holding *holding, const wanted *w, uint8_t **bytes,
                              size_t *size, rks_error *err)
{
    int fd = -1;
    uint64_t whole = 0;
    char *sealed = rks_format(err, "%s/%s.json", holding->directory, w->name);
    char *path = rks_format(err, "%s/%s.%s", holding->directory, w->name, endings[w->file]);
    rks_status status = sealed == NULL || path == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK && access(sealed, F_OK) != 0) /* the manifest comes last */
        status = rks_fail(err, RKS_ERR_NOT_FOUND, 0, "%s: not whole here yet", w->name);
    if (status == RKS_OK)
        status = rks_file_open(path, &fd, &whole, err);
    if (status == RKS_OK && (w->whole ? whole > w->end : whole < w->end))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %" PRIu64 " bytes, not %" PRIu64, path,
                          whole, w->end);
    *size = (size_t)((w->whole ? whole : w->end) - w->first);
    if (status == RKS_OK) {
        *bytes = rks_alloc_raw(*size + 1, 1, err);
        status = *bytes == NULL ? RKS_ERR_MEMORY
                                : rks_file_read_at(fd, path, w->first, *bytes, *size, err);
    }
    if (fd >= 0)
        close(fd);
    rks_free(sealed);
    rks_free(path);
    return status;
}

/* Reads it where it is whole. The caller frees *bytes. */
static rks_status read_from_any(const rks_engine *engine, const wanted *w, uint8_t **bytes,
                                size_t *size, rks_error *err)
{
    rks_status status = rks_fail(err, RKS_ERR_STATE, 0, "the dataset is not open here");
    rks_holding *holding = hold(engine, w->dataset, 0);
    for (size_t next = 1; holding != NULL; next++) {
        status = read_wanted(holding, w, bytes, size, err);
        let_go(holding);
        holding = status == RKS_ERR_NOT_FOUND ? hold(engine, w->dataset, next) : NULL;
    }
    return status;
}

static void serve_file(void *user, rks_request *request)
{
    rks_engine *engine = user;
    rks_error err;
    wanted w;
    size_t size = 0;
    uint8_t *bytes = NULL;
    const uint8_t *body = rks_request_body(request, &size);
    rks_status status =
        parse_request(body, size, &w)
            ? read_from_any(engine, &w, &bytes, &size, &err)
            : rks_fail(&err, RKS_ERR_ARGUMENT, 0, "not a request for a shard's file");
    if (status == RKS_OK) {
        rks_request_reply(request, &(struct iovec){bytes, size}, 1, rks_release, bytes);
        return;
    }
    rks_free(bytes);
    rks_request_fail(request, &err);
}

rks_status rks_holding_open(rks_group *group, const rks_dataset *dataset, const char *directory,
                            rks_holding **holding, rks_error *err)
{
    rks_holding *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->engine = rks_group_engine(group);
    made->dataset = dataset->id;
    made->users = 1;
    made->directory = rks_strdup(directory, err);
    if (made->directory == NULL) {
        rks_free(made);
        return RKS_ERR_MEMORY;
    }
    pthread_mutex_lock(&list_mutex);
    made->next = holdings;
    holdings = made;
    pthread_mutex_unlock(&list_mutex);
    /* The service stays when the last holding goes: it then says that there is none. */
    rks_engine_serve(made->engine, RKS_SERVICE_FILES, serve_file, NULL, made->engine);
    *holding = made;
    return RKS_OK;
}

void rks_holding_close(rks_holding *holding)
{
    if (holding == NULL)
        return;
    pthread_mutex_lock(&list_mutex);
    rks_holding **at = &holdings;
    while (*at != holding)
        at = &(*at)->next;
    *at = holding->next;
    pthread_mutex_unlock(&list_mutex);
    let_go(holding);
}

/* ---- asking ---------------------------------------------------------------------------------- */

typedef struct holder {
    atomic_int users; /* the home, and its reads */
    rks_engine *engine;
    uint32_t rank;
    rks_digest dataset;
} holder;

/* A read that was sent. */
typedef struct sent_read {
    holder *from;
    rks_home_read *read;
    size_t size;   /* of the reply */
    uint64_t came; /* parts of it */
} sent_read;

static void leave_holder(holder *h)
{
    if (atomic_fetch_sub(&h->users, 1) == 1)
        rks_free(h);
}

static void *place_reply(void *user, size_t size)
{
    sent_read *sent = user;
    const uint64_t most = sent->read->end - sent->read->first;
    sent->size = size;
    return size == most || (sent->read->whole && size < most) ? sent->read->to : NULL;
}

static void reply_comes(void *user)
{
    sent_read *sent = user;
    if (sent->read->come != NULL)
        sent->read->come(sent->read, ++sent->came);
}

/* A shard that is not whole there will be. Other failures are the rank's, and another try would end
 * as this one. */
static enum rks_home_kind kind_of_reply(const rks_error *err)
{
    if (err == NULL || err->status == RKS_OK)
        return RKS_HOME_OK;
    return err->status == RKS_ERR_NOT_FOUND ? RKS_HOME_BUSY : RKS_HOME_DENIED;
}

static void reply_ends(void *user, const rks_error *err)
{
    sent_read *sent = user;
    holder *from = sent->from;
    sent->read->size = sent->size;
    sent->read->done(sent->read, kind_of_reply(err), err == NULL ? &(rks_error){0} : err);
    rks_free(sent);
    leave_holder(from);
}

/* Splits "NAME.ending". */
static bool find_file(const char *name, uint8_t *file, size_t *size)
{
    const char *dot = strrchr(name, '.');
    if (dot == NULL || dot - name > NAME_MOST)
        return false;
    *size = (size_t)(dot - name);
    for (*file = 0; *file < ENDINGS; ++*file)
        if (strcmp(dot + 1, endings[*file]) == 0)
            return true;
    return false;
}

static rks_status holder_read(void *home, rks_home_read *read, rks_error *err)
{
    holder *h = home;
    uint8_t body[HEAD + NAME_MOST] = {0};
    size_t size = 0;
    if (!find_file(read->name, &body[32], &size))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: not a shard's file", read->name);
    rks_store_u64(body, h->dataset.low);
    rks_store_u64(body + 8, h->dataset.high);
    rks_store_u64(body + 16, read->first);
    rks_store_u64(body + 24, read->end);
    body[33] = read->whole;
    memcpy(body + HEAD, read->name, size);
    sent_read *sent = rks_alloc(1, sizeof(*sent), err);
    if (sent == NULL)
        return RKS_ERR_MEMORY;
    *sent = (sent_read){.from = h, .read = read};
    atomic_fetch_add(&h->users, 1);
    const rks_outgoing request = {RKS_SERVICE_FILES, body, HEAD + size, "copying a shard"};
    const rks_reply_sink sink = {place_reply, reply_comes, reply_ends, sent};
    if (read->come != NULL)
        read->come(read, 0);
    rks_status status = rks_engine_request(h->engine, h->rank, &request, &sink, err);
    if (status != RKS_OK) {
        rks_free(sent);
        leave_holder(h);
    }
    return status;
}

/* The engine ends each request: with its reply, or when the rank is silent. */
static void holder_give_up(void *home, rks_home_read *read)
{
    (void)home;
    (void)read;
}

static void holder_close(void *home, uint32_t patience_ms)
{
    (void)patience_ms;
    leave_holder(home);
}

static const rks_home_ops holder_ops = {
    .read = holder_read, .give_up = holder_give_up, .close = holder_close};

rks_status rks_holder_open(rks_group *group, uint32_t rank, const rks_dataset *dataset,
                           rks_home **home, rks_error *err)
{
    holder *h = rks_alloc(1, sizeof(*h), err);
    rks_home *made = rks_alloc(1, sizeof(*made), err);
    if (h == NULL || made == NULL) {
        rks_free(h);
        rks_free(made);
        return RKS_ERR_MEMORY;
    }
    atomic_init(&h->users, 1);
    h->engine = rks_group_engine(group);
    h->rank = rank;
    h->dataset = dataset->id;
    /* To wait for a shard that is not whole yet is what a copy does: no line, no limit. */
    *made = (rks_home){
        .ops = &holder_ops,
        .state = h,
        .limits = {.stall_ms = STALL_MS, .tell_ms = UINT32_MAX, .timeout_ms = UINT32_MAX}};
    made->name = rks_format(err, "rank %" PRIu32 " (%s)", rank, rks_group_host(group, rank));
    if (made->name == NULL) {
        rks_free(h);
        rks_free(made);
        return RKS_ERR_MEMORY;
    }
    *home = made;
    return RKS_OK;
}
