/* SPDX-License-Identifier: Apache-2.0
 *
 * faulty_store.c: see faulty_store.h. Each open store has a thread, as the helper's lines have: it
 * ends reads at their time. The scheduler draws times and faults. */
#include "faulty_store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "home/home.h"
#include "scheduler.h"

extern const rks_home_ops __wrap_rks_home_helper;

#define MS 1000000u
#define NEVER UINT64_MAX
#define VERSION "\"1\""

typedef struct read_in_line {
    rks_home_read *read;
    uint64_t due_ns; /* NEVER: it stalls */
    struct read_in_line *next;
} read_in_line;

typedef struct store {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    read_in_line *first;
    bool closing;
} store;

static struct {
    const scenario *s;
    const char *directory;
    uint64_t begun_ns, reads, failed;
} all;

void faulty_store_begin(const scenario *s, const char *directory)
{
    all.s = s;
    all.directory = directory;
    all.begun_ns = sim_now_ns();
    all.reads = all.failed = 0;
}

uint64_t faulty_store_reads(void)
{
    return all.reads;
}

uint64_t faulty_store_failed(void)
{
    return all.failed;
}

/* ---- one read -------------------------------------------------------------------------------- */

static void fail_read(rks_home_read *read, enum rks_home_kind kind, rks_status status, int cause,
                      const char *words)
{
    rks_error why;
    all.failed++;
    rks_fail(&why, status, cause, "%s: %s", read->name, words);
    read->done(read, kind, &why);
}

/* Copies the first `size` bytes of the range. */
static bool copy_range(const rks_home_read *read, int file, uint64_t size)
{
    for (uint64_t done = 0; done < size;) {
        const ssize_t got =
            pread(file, read->to + done, (size_t)(size - done), (off_t)(read->first + done));
        if (got <= 0)
            return false;
        done += (uint64_t)got;
    }
    return true;
}

/* Brings the bytes, or only half of them. */
static void serve(rks_home_read *read, bool cut)
{
    char path[4096];
    struct stat info;
    const rks_error good = {0};
    snprintf(path, sizeof(path), "%s/%s", all.directory, read->name);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &info) != 0) {
        fail_read(read, RKS_HOME_MISSING, RKS_ERR_NOT_FOUND, errno, "404 Not Found");
        if (file >= 0)
            close(file);
        return;
    }
    const uint64_t size = (uint64_t)info.st_size;
    const uint64_t end = read->whole && size < read->end ? size : read->end;
    const bool fits = read->whole ? size <= read->end : size >= read->end;
    const bool came = fits && copy_range(read, file, (end - read->first) / (cut ? 2 : 1));
    close(file);
    if (!came || cut) {
        fail_read(read, RKS_HOME_BROKEN, fits ? RKS_ERR_IO : RKS_ERR_CORRUPT, EPROTO,
                  fits ? "the body was cut" : "it has another size");
        return;
    }
    read->size = size;
    strcpy(read->version, VERSION);
    read->done(read, RKS_HOME_OK, &good);
}

static void end_read(rks_home_read *read)
{
    const uint64_t since = rks_now_ns() - all.begun_ns;
    const scenario *s = all.s;
    if (since >= s->denied_ns) {
        fail_read(read, RKS_HOME_DENIED, RKS_ERR_IO, EACCES, "403 Forbidden");
    } else if (since >= s->away_ns && since < s->back_ns) {
        fail_read(read, RKS_HOME_BUSY, RKS_ERR_IO, EAGAIN, "503 Service Unavailable");
    } else if (s->home_faults == 0 || sim_below(s->home_faults) != 0) {
        serve(read, false);
    } else {
        switch (sim_below(4)) {
        case 0:
            fail_read(read, RKS_HOME_BUSY, RKS_ERR_IO, EAGAIN, "429 Too Many Requests");
            break;
        case 1:
            fail_read(read, RKS_HOME_BROKEN, RKS_ERR_IO, ECONNRESET, "the connection was lost");
            break;
        case 2:
            fail_read(read, RKS_HOME_BROKEN, RKS_ERR_IO, EPROTO, "more bytes than were asked for");
            break;
        default:
            serve(read, true);
        }
    }
}

/* ---- an open store --------------------------------------------------------------------------- */

/* With the mutex. Takes the read that is due first. *due_ns: when, NEVER if there is none. */
static read_in_line **first_due(store *home, uint64_t *due_ns)
{
    read_in_line **found = NULL;
    *due_ns = NEVER;
    for (read_in_line **at = &home->first; *at != NULL; at = &(*at)->next)
        if ((*at)->due_ns < *due_ns) {
            *due_ns = (*at)->due_ns;
            found = at;
        }
    return found;
}

static rks_home_read *take(read_in_line **at)
{
    read_in_line *taken = *at;
    rks_home_read *read = taken->read;
    *at = taken->next;
    free(taken);
    return read;
}

static void *store_main(void *user)
{
    store *home = user;
    pthread_mutex_lock(&home->mutex);
    while (!home->closing) {
        uint64_t due_ns;
        read_in_line **at = first_due(home, &due_ns);
        if (at == NULL) {
            pthread_cond_wait(&home->changed, &home->mutex);
        } else if (due_ns > rks_now_ns()) {
            rks_cond_wait_until(&home->changed, &home->mutex, due_ns);
        } else {
            rks_home_read *read = take(at);
            pthread_mutex_unlock(&home->mutex);
            end_read(read);
            pthread_mutex_lock(&home->mutex);
        }
    }
    pthread_mutex_unlock(&home->mutex);
    return NULL;
}

static rks_status open_store(const char *url, const rks_home_limits *limits, void **made,
                             rks_error *err)
{
    (void)url;
    (void)limits;
    store *home = calloc(1, sizeof(*home));
    if (home == NULL)
        return rks_fail(err, RKS_ERR_MEMORY, ENOMEM, "no memory for a store");
    pthread_mutex_init(&home->mutex, NULL);
    rks_cond_init(&home->changed);
    if (rks_thread_start(&home->thread, store_main, home) != 0)
        sim_fail("no thread for a store");
    *made = home;
    return RKS_OK;
}

static rks_status read_store(void *state, rks_home_read *read, rks_error *err)
{
    store *home = state;
    read_in_line *line = calloc(1, sizeof(*line));
    if (line == NULL)
        return rks_fail(err, RKS_ERR_MEMORY, ENOMEM, "no memory for a read");
    sim_event(read->first << 20 ^ read->end);
    const bool stalls = all.s->home_faults > 0 && sim_below(4 * all.s->home_faults) == 0;
    *line = (read_in_line){read, stalls ? NEVER : rks_now_ns() + (1 + sim_below(40)) * MS, NULL};
    if (read->come != NULL)
        read->come(read, 0);
    pthread_mutex_lock(&home->mutex);
    all.reads++;
    line->next = home->first;
    home->first = line;
    pthread_cond_signal(&home->changed);
    pthread_mutex_unlock(&home->mutex);
    return RKS_OK;
}

/* One that its thread has taken ends by itself. */
static void give_up(void *state, rks_home_read *read)
{
    store *home = state;
    pthread_mutex_lock(&home->mutex);
    read_in_line **at = &home->first;
    while (*at != NULL && (*at)->read != read)
        at = &(*at)->next;
    const bool waits = *at != NULL;
    if (waits)
        take(at);
    pthread_mutex_unlock(&home->mutex);
    if (waits)
        fail_read(read, RKS_HOME_BROKEN, RKS_ERR_CANCELLED, 0, "it was given up");
}

static void close_store(void *state, uint32_t patience_ms)
{
    store *home = state;
    (void)patience_ms;
    pthread_mutex_lock(&home->mutex);
    home->closing = true;
    pthread_cond_signal(&home->changed);
    pthread_mutex_unlock(&home->mutex);
    pthread_join(home->thread, NULL);
    while (home->first != NULL)
        fail_read(take(&home->first), RKS_HOME_BROKEN, RKS_ERR_CANCELLED, 0, "the store is closed");
    pthread_cond_destroy(&home->changed);
    pthread_mutex_destroy(&home->mutex);
    free(home);
}

/* Nothing is published here. */
static rks_status put_nothing(void *home, const char *name, const rks_home_bytes *bytes,
                              enum rks_put_rule rule, char version[RKS_HOME_VERSION],
                              rks_error *err)
{
    (void)home, (void)bytes, (void)rule, (void)version;
    return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "%s: the store is read-only", name);
}

static rks_status list_nothing(void *home, const char *prefix, rks_home_listed_fn each, void *user,
                               rks_error *err)
{
    (void)home, (void)each, (void)user;
    return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "%s: the store lists nothing", prefix);
}

static rks_status remove_nothing(void *home, const char *name, const char *version, rks_error *err)
{
    (void)home, (void)version;
    return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "%s: the store is read-only", name);
}

const rks_home_ops __wrap_rks_home_helper = {.far = true,
                                             .open = open_store,
                                             .read = read_store,
                                             .give_up = give_up,
                                             .put = put_nothing,
                                             .list = list_nothing,
                                             .remove = remove_nothing,
                                             .close = close_store};
