/* SPDX-License-Identifier: Apache-2.0
 *
 * directory.c: the home that is a directory: reads on threads of its own.
 *
 * A read is in the queue, or with one thread. One that is given up stays with its thread, which may
 * hang in the file system for ever: the thread is then counted as hung, and another one takes its
 * place. When it comes back it ends the read, and itself if there are enough without it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"
#include "home/directory_calls.h"
#include "home/directory_files.h"
#include "home/home.h"
#include "home/open_files.h"

enum { READERS = 8, REPLACED_MOST = 16, READERS_MOST = READERS + REPLACED_MOST, STEP = 1 << 20 };

typedef struct directory directory;

enum reader_state { NOT_STARTED, RUNS, ENDED };

typedef struct reader {
    directory *home;
    pthread_t thread;
    enum reader_state state;
    rks_home_read *read; /* the one that it has; NULL: it waits */
    bool hangs;          /* its read was given up */
} reader;

struct directory {
    char *path;
    pthread_mutex_t mutex;
    pthread_cond_t wanted, ended; /* a read is queued, or all must end; a reader has ended */
    rks_home_read *first, *last;  /* the queue */
    uint32_t queued;
    reader readers[READERS_MOST];
    uint32_t alive, idle, hung; /* readers: that run; of them those that wait, and that hang */
    bool closing;
    uint32_t users; /* the owner and the readers that run; the last one frees */
    rks_open_files files;
    rks_directory_calls *calls;
};

static void free_directory(directory *home)
{
    rks_open_files_end(&home->files);
    rks_directory_calls_end(home->calls);
    pthread_cond_destroy(&home->wanted);
    pthread_cond_destroy(&home->ended);
    pthread_mutex_destroy(&home->mutex);
    rks_free(home->path);
    rks_free(home);
}

/* ---- one read ------------------------------------------------------------------------------- */

static enum rks_home_kind kind_of_error(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return RKS_HOME_MISSING;
    case EACCES:
    case EPERM:
        return RKS_HOME_DENIED;
    default:
        return RKS_HOME_BROKEN;
    }
}

static enum rks_home_kind fail_replaced(const char *path, rks_error *err)
{
    rks_fail(err, RKS_ERR_STATE, 0, "%s: was replaced since it was first read", path);
    return RKS_HOME_CHANGED;
}

static enum rks_home_kind fail_short(const rks_home_read *read, const char *path, rks_error *err)
{
    rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: ends at %" PRIu64 ", bytes up to %" PRIu64 " expected",
             path, read->size, read->end);
    return RKS_HOME_BROKEN;
}

static enum rks_home_kind read_range(rks_home_read *read, int fd, const char *path, uint64_t size,
                                     rks_error *err)
{
    for (uint64_t done = 0; done < size;) {
        if (atomic_load(&read->left)) {
            rks_fail(err, RKS_ERR_CANCELLED, 0, "%s: the read was given up", path);
            return RKS_HOME_BROKEN;
        }
        size_t step = size - done < STEP ? (size_t)(size - done) : STEP;
        ssize_t got = pread(fd, read->to + done, step, (off_t)(read->first + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int error = errno;
            rks_fail_errno(err, error, "%s: reading at %" PRIu64, path, read->first + done);
            return kind_of_error(error);
        }
        if (got == 0)
            return fail_short(read, path, err);
        done += (uint64_t)got;
        if (read->come != NULL)
            read->come(read, done);
    }
    return RKS_HOME_OK;
}

static enum rks_home_kind read_opened(rks_home_read *read, int fd, const char *path, rks_error *err)
{
    struct stat info;
    char version[RKS_HOME_VERSION];
    if (fstat(fd, &info) != 0) {
        int error = errno;
        rks_fail_errno(err, error, "%s", path);
        return kind_of_error(error);
    }
    rks_directory_version(&info, version);
    if (read->version[0] != '\0' && strcmp(read->version, version) != 0)
        return fail_replaced(path, err);
    read->size = (uint64_t)info.st_size;
    if (read->whole && read->size > read->end) {
        rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %" PRIu64 " bytes, at most %" PRIu64 " expected",
                 path, read->size, read->end);
        return RKS_HOME_BROKEN;
    }
    if (!read->whole && read->end > read->size)
        return fail_short(read, path, err);
    uint64_t size = read->whole ? read->size : read->end - read->first;
    enum rks_home_kind kind = read_range(read, fd, path, size, err);
    strcpy(read->version, version);
    if (kind != RKS_HOME_OK || fstat(fd, &info) != 0)
        return kind;
    rks_directory_version(&info, version);
    return strcmp(read->version, version) == 0 ? kind : fail_replaced(path, err);
}

static enum rks_home_kind open_and_read(directory *home, rks_home_read *read, const char *path,
                                        rks_error *err)
{
    int fd = -1;
    rks_status status = rks_file_open(path, &fd, NULL, err);
    if (status != RKS_OK)
        return status == RKS_ERR_CORRUPT ? RKS_HOME_DENIED : kind_of_error((int)err->cause);
    enum rks_home_kind kind = read_opened(read, fd, path, err);
    if (kind == RKS_HOME_OK && !read->whole && read->first < read->end)
        rks_open_files_keep(&home->files, read->name, read->version, fd);
    else
        close(fd);
    return kind;
}

static enum rks_home_kind read_file(directory *home, rks_home_read *read, rks_error *err)
{
    char *path = NULL;
    enum rks_home_kind kind = RKS_HOME_BROKEN;
    if (read->come != NULL)
        read->come(read, 0);
    rks_status status = rks_directory_path(home->path, read->name, &path, err);
    if (status != RKS_OK)
        return status == RKS_ERR_ARGUMENT ? RKS_HOME_DENIED : RKS_HOME_BROKEN;
    rks_open_file *open = read->version[0] == '\0' || read->whole
                              ? NULL
                              : rks_open_files_take(&home->files, read->name, read->version);
    if (open != NULL) {
        kind = read_opened(read, open->fd, path, err);
        rks_open_files_leave(&home->files, open, kind != RKS_HOME_OK);
    } else {
        kind = open_and_read(home, read, path, err);
    }
    rks_free(path);
    return kind;
}

/* ---- readers -------------------------------------------------------------------------------- */

static rks_home_read *next_read(directory *home)
{
    rks_home_read *read = home->first;
    if (read != NULL) {
        home->first = read->next;
        if (home->first == NULL)
            home->last = NULL;
        home->queued--;
    }
    return read;
}

/* Takes a read out of the queue; the mutex is held. */
static bool unqueue(directory *home, const rks_home_read *read)
{
    rks_home_read **at = &home->first, *before = NULL;
    while (*at != NULL && *at != read) {
        before = *at;
        at = &before->next;
    }
    if (*at == NULL)
        return false;
    *at = read->next;
    if (home->last == read)
        home->last = before;
    home->queued--;
    return true;
}

/* Ends a reader; the mutex is held, and is not after it. */
static void end_reader(directory *home, reader *own)
{
    own->state = ENDED;
    home->alive--;
    bool last = --home->users == 0;
    pthread_cond_broadcast(&home->ended);
    pthread_mutex_unlock(&home->mutex);
    if (last)
        free_directory(home);
}

static void *run_reader(void *user)
{
    reader *own = user;
    directory *home = own->home;
    pthread_mutex_lock(&home->mutex);
    while (home->alive - home->hung <= READERS) {
        rks_home_read *read = next_read(home);
        if (read == NULL && home->closing)
            break;
        if (read == NULL) {
            home->idle++;
            pthread_cond_wait(&home->wanted, &home->mutex);
            home->idle--;
            continue;
        }
        own->read = read;
        pthread_mutex_unlock(&home->mutex);
        rks_error err = {0};
        enum rks_home_kind kind = read_file(home, read, &err);
        pthread_mutex_lock(&home->mutex);
        own->read = NULL;
        home->hung -= own->hangs;
        rks_directory_calls_note(home->calls, own->hangs ? -1 : 0);
        own->hangs = false;
        pthread_mutex_unlock(&home->mutex);
        read->done(read, kind, &err);
        pthread_mutex_lock(&home->mutex);
    }
    end_reader(home, own);
    return NULL;
}

/* Starts a reader if those that wait are fewer than the reads in the queue; the mutex is held. */
static rks_status start_reader(directory *home, rks_error *err)
{
    if (home->idle >= home->queued || home->alive - home->hung >= READERS)
        return RKS_OK;
    reader *free_one = NULL;
    for (size_t i = 0; i < READERS_MOST && free_one == NULL; i++)
        if (home->readers[i].state != RUNS)
            free_one = &home->readers[i];
    if (free_one == NULL && home->alive > home->hung)
        return RKS_OK;
    if (free_one == NULL)
        return rks_fail(err, RKS_ERR_IO, ETIMEDOUT, "%s: %u reads hang in the file system",
                        home->path, home->hung);
    if (free_one->state == ENDED)
        pthread_join(free_one->thread, NULL); /* it has nothing left to do */
    *free_one = (reader){.home = home, .state = RUNS};
    home->alive++;
    home->users++;
    int code = rks_thread_start(&free_one->thread, run_reader, free_one);
    if (code == 0)
        return RKS_OK;
    free_one->state = NOT_STARTED;
    home->alive--;
    home->users--;
    return home->alive > home->hung
               ? RKS_OK
               : rks_fail_start(err, code, "a thread that reads %s", home->path);
}

/* ---- the seam ------------------------------------------------------------------------------- */

static rks_status open_directory(const char *url, const rks_home_limits *limits, void **home,
                                 rks_error *err)
{
    directory *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->path = rks_strdup(url, err);
    if (made->path == NULL || rks_directory_calls_begin(url, limits, &made->calls, err) != RKS_OK) {
        rks_free(made->path);
        rks_free(made);
        return RKS_ERR_MEMORY;
    }
    made->users = 1;
    int code = pthread_mutex_init(&made->mutex, NULL);
    if (code == 0)
        code = rks_cond_init(&made->wanted);
    if (code == 0)
        code = rks_cond_init(&made->ended);
    if (code == 0)
        code = rks_open_files_begin(&made->files);
    if (code != 0) {
        rks_directory_calls_end(made->calls);
        rks_free(made->path);
        rks_free(made);
        return rks_fail_errno(err, code, "%s: opening the home", url);
    }
    *home = made;
    return RKS_OK;
}

static rks_status read_directory(void *user, rks_home_read *read, rks_error *err)
{
    directory *home = user;
    read->next = NULL;
    atomic_store(&read->left, false);
    pthread_mutex_lock(&home->mutex);
    *(home->last != NULL ? &home->last->next : &home->first) = read;
    home->last = read;
    home->queued++;
    rks_status status = home->closing
                            ? rks_fail(err, RKS_ERR_STATE, 0, "%s: the home is closed", home->path)
                            : start_reader(home, err);
    if (status == RKS_OK)
        pthread_cond_signal(&home->wanted);
    else
        unqueue(home, read);
    pthread_mutex_unlock(&home->mutex);
    return status;
}

static void end_unread(const directory *home, rks_home_read *read)
{
    rks_error err;
    rks_fail(&err, RKS_ERR_CANCELLED, 0, "%s/%s: the read was given up", home->path, read->name);
    read->done(read, RKS_HOME_BROKEN, &err);
}

/* A reader's read is given up; the mutex is held. */
static void leave_reader(directory *home, reader *of)
{
    rks_error ignored;
    if (of->hangs)
        return;
    atomic_store(&of->read->left, true);
    of->hangs = true;
    home->hung++;
    rks_directory_calls_note(home->calls, 1);
    start_reader(home, &ignored);
}

static void give_up_read(void *user, rks_home_read *read)
{
    directory *home = user;
    pthread_mutex_lock(&home->mutex);
    bool queued = unqueue(home, read);
    for (size_t i = 0; !queued && i < READERS_MOST; i++)
        if (home->readers[i].state == RUNS && home->readers[i].read == read)
            leave_reader(home, &home->readers[i]);
    pthread_mutex_unlock(&home->mutex);
    if (queued)
        end_unread(home, read);
}

static void close_directory(void *user, uint32_t patience_ms)
{
    directory *home = user;
    uint64_t until = rks_now_ns() + (uint64_t)patience_ms * 1000000;
    pthread_mutex_lock(&home->mutex);
    home->closing = true;
    for (rks_home_read *read; (read = next_read(home)) != NULL;) {
        pthread_mutex_unlock(&home->mutex);
        end_unread(home, read);
        pthread_mutex_lock(&home->mutex);
    }
    for (size_t i = 0; i < READERS_MOST; i++)
        if (home->readers[i].state == RUNS && home->readers[i].read != NULL)
            atomic_store(&home->readers[i].read->left, true);
    pthread_cond_broadcast(&home->wanted);
    while (home->alive > 0 && rks_cond_wait_until(&home->ended, &home->mutex, until))
        ;
    for (size_t i = 0; i < READERS_MOST; i++) {
        if (home->readers[i].state == ENDED)
            pthread_join(home->readers[i].thread, NULL);
        else if (home->readers[i].state == RUNS)
            pthread_detach(home->readers[i].thread);
        home->readers[i].state = NOT_STARTED;
    }
    bool last = --home->users == 0;
    pthread_mutex_unlock(&home->mutex);
    if (last)
        free_directory(home);
}

static rks_status put_file(void *home, const char *name, const rks_home_bytes *bytes,
                           enum rks_put_rule rule, char version[RKS_HOME_VERSION], rks_error *err)
{
    return rks_directory_call_put(((const directory *)home)->calls, name, bytes, rule, version,
                                  err);
}

static rks_status list_files(void *home, const char *prefix, rks_home_listed_fn each, void *user,
                             rks_error *err)
{
    return rks_directory_call_list(((const directory *)home)->calls, prefix, each, user, err);
}

static rks_status drop_file(void *home, const char *name, const char *version, rks_error *err)
{
    return rks_directory_call_drop(((const directory *)home)->calls, name, version, err);
}

const rks_home_ops rks_home_directory = {
    .open = open_directory,
    .read = read_directory,
    .give_up = give_up_read,
    .put = put_file,
    .list = list_files,
    .remove = drop_file,
    .close = close_directory,
};
