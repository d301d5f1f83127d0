/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_file.c: locks with flock, and writes the text that names the holder. If there are no locks,
 * the text alone decides: the last writer has the file. So its size is fixed, and one write
 * replaces all of it. */
#include "base/lock_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/boot_id.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/forbidden_call.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/secret.h"
#include "base/thread.h"

/* A holder that beats does so each second, or more often. */
enum { TRIES = 100, TEXT_SIZE = 256, TWO_BEATS_MS = 2500, LOOK_MS = 100 };

struct rks_lock_file {
    int fd;
    char *path;
    bool locked, taken_over;
    char text[TEXT_SIZE]; /* padded with newlines */
    uint32_t beat_ms;
    bool beating; /* process `owner` runs the thread */
    bool over;
    pid_t owner;
    pthread_t beats;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

/* What a lock file says. */
typedef struct lock_note {
    uint64_t job;           /* 0: none */
    char holder[TEXT_SIZE]; /* "pid 123 on HOST"; empty if unknown */
    char boot[RKS_BOOT_ID]; /* empty if unknown */
} lock_note;

static const char *name_of(const rks_lock_wish *wish)
{
    return wish->name != NULL ? wish->name : wish->path;
}

/* Reads what the file says. Any process may have written it, so use it only to name a holder and a
 * job. */
static lock_note read_note(int fd)
{
    lock_note note = {0};
    char text[TEXT_SIZE + 1];
    ssize_t size = pread(fd, text, TEXT_SIZE, 0);
    text[size < 0 ? 0 : size] = '\0';
    const char *line = text;
    if (strncmp(text, "job ", 4) == 0) {
        const char *end = strchr(text, '\n');
        sscanf(text + 4, "%" SCNx64, &note.job);
        line = end == NULL ? "" : end + 1;
    }
    snprintf(note.holder, sizeof(note.holder), "%.*s", (int)strcspn(line, "\n"), line);
    const char *boot = strstr(line, "\nboot ");
    if (boot != NULL)
        snprintf(note.boot, sizeof(note.boot), "%.*s", (int)strcspn(boot + 6, "\n"), boot + 6);
    return note;
}

/* Returns true if the file names a holder whom our lock may not keep out. */
static bool is_foreign(const lock_note *note)
{
    char boot[RKS_BOOT_ID], host[65] = "?", end[80];
    (void)rks_boot_id(boot);
    if (note->holder[0] == '\0')
        return false; /* it was killed before it signed */
    if (note->boot[0] != '\0' && boot[0] != '\0')
        return strcmp(note->boot, boot) != 0;
    gethostname(host, sizeof(host) - 1);
    snprintf(end, sizeof(end), " on %s", host);
    size_t size = strlen(note->holder), tail = strlen(end);
    return size < tail || strcmp(note->holder + size - tail, end) != 0;
}

static rks_status fail_held(const rks_lock_wish *wish, const lock_note *note, rks_error *err)
{
    return rks_fail(err, RKS_ERR_STATE, EWOULDBLOCK, "%s: %s (%.100s)", name_of(wish), wish->held,
                    note->holder[0] == '\0' ? "its pid is not known" : note->holder);
}

static rks_status fail_without_locks(const rks_lock_wish *wish, int error, rks_error *err)
{
    bool forbidden = error == EPERM || error == EACCES;
    return rks_fail(err, RKS_ERR_UNSUPPORTED, error, "%s: %s, run one rank alone, or set no_lock",
                    name_of(wish),
                    forbidden ? "a container's filter forbids flock; allow it"
                              : "this file system has no locks; mount it with them (Lustre: -o "
                                "flock)");
}

static bool has_no_locks(int error)
{
    return error == ENOLCK || rks_call_is_forbidden(error);
}

/* Sets lock->locked; it stays false if the file system has no locks and the lock is optional. */
static rks_status lock_now(const rks_lock_wish *wish, rks_lock_file *lock, rks_error *err)
{
    int failed;
    while ((failed = flock(lock->fd, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR)
        ;
    lock->locked = failed == 0;
    if (lock->locked)
        return RKS_OK;
    if (errno == EWOULDBLOCK) {
        lock_note note = read_note(lock->fd);
        return fail_held(wish, &note, err);
    }
    if (!has_no_locks(errno))
        return rks_fail_errno(err, errno, "%s: locking", name_of(wish));
    if (!wish->optional)
        return fail_without_locks(wish, errno, err);
    return RKS_OK;
}

/* The holder before us may have removed the file between our open and our lock. */
static bool is_current(const rks_lock_file *lock)
{
    struct stat opened, named;
    return fstat(lock->fd, &opened) == 0 && stat(lock->path, &named) == 0 &&
           opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

/* Opens and locks the file. lock->fd stays -1 if the file was removed meanwhile. */
static rks_status try_once(const rks_lock_wish *wish, rks_lock_file *lock, rks_error *err)
{
    const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    rks_hold_standard_files();
    lock->fd = open(lock->path, flags | O_EXCL, 0644);
    bool made = lock->fd >= 0;
    if (!made && errno == EEXIST) {
        lock->fd = open(lock->path, flags & ~O_CREAT);
        if (lock->fd < 0 && errno == ENOENT)
            return RKS_OK; /* removed meanwhile; its next holder removes it, too */
    }
    if (lock->fd < 0)
        return rks_fail_write(err, errno, name_of(wish), 0);
    rks_status status = lock_now(wish, lock, err);
    if (status == RKS_OK && is_current(lock))
        return RKS_OK;
    if (made && status == RKS_ERR_UNSUPPORTED)
        unlink(lock->path); /* nobody else can have locked it */
    close(lock->fd);
    lock->fd = -1;
    return status;
}

/* Fails if a holder of another boot lives: it renews the file, or another one signs it. */
static rks_status watch_foreign(const rks_lock_wish *wish, rks_lock_file *lock, rks_error *err)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    struct stat before, now;
    lock_note note = read_note(lock->fd), later;
    lock->taken_over = is_foreign(&note);
    if (!lock->taken_over || wish->beat_ms == 0)
        return RKS_OK; /* without beats, another lock of the caller has watched */
    if (wish->job != 0 && note.job == wish->job)
        return fail_held(wish, &note, err);
    if (fstat(lock->fd, &before) != 0)
        return rks_fail_errno(err, errno, "%s", name_of(wish));
    for (uint64_t until = rks_now_ms() + TWO_BEATS_MS; rks_now_ms() < until;) {
        nanosleep(&pause, NULL);
        if (rks_check_interrupt(err) != RKS_OK)
            return RKS_ERR_CANCELLED;
        int fd = open(lock->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0) /* NFS asks its server at an open */
            return fail_held(wish, &note, err);
        bool looked = fstat(fd, &now) == 0;
        later = read_note(fd);
        close(fd);
        if (!looked || now.st_mtim.tv_sec != before.st_mtim.tv_sec ||
            now.st_mtim.tv_nsec != before.st_mtim.tv_nsec ||
            memcmp(&later, &note, sizeof(note)) != 0)
            return fail_held(wish, &later, err);
    }
    rks_log("%s: taken over from %s, which gave no sign of life", name_of(wish), note.holder);
    return RKS_OK;
}

static rks_status sign(const rks_lock_wish *wish, rks_lock_file *lock, rks_error *err)
{
    char host[65] = "?", job[32] = "", boot[RKS_BOOT_ID], text[TEXT_SIZE];
    (void)rks_boot_id(boot);
    gethostname(host, sizeof(host) - 1);
    if (wish->job != 0)
        snprintf(job, sizeof(job), "job %" PRIx64 "\n", wish->job);
    int size =
        snprintf(text, sizeof(text), "%spid %ld on %s\nboot %s\n", job, (long)getpid(), host, boot);
    if (!lock->locked || wish->job != 0) {
        uint64_t mark = 0; /* identifies us if another process is here at the same time */
        rks_status status = rks_random(&mark, sizeof(mark), err);
        if (status != RKS_OK)
            return status;
        size += snprintf(text + size, sizeof(text) - (size_t)size, "mark %" PRIx64 "\n", mark);
    }
    memset(lock->text, '\n', sizeof(lock->text));
    memcpy(lock->text, text, (size_t)size);
    /* If the text alone may decide (locks may hold within one node only), its size is fixed: one
     * write replaces all of another's. */
    bool fixed = !lock->locked || wish->job != 0;
    size_t written = fixed ? sizeof(lock->text) : (size_t)size;
    errno = 0;
    bool written_all = (fixed || ftruncate(lock->fd, 0) == 0) &&
                       pwrite(lock->fd, lock->text, written, 0) == (ssize_t)written &&
                       fsync(lock->fd) == 0;
    rks_status status =
        written_all ? RKS_OK
                    : rks_fail_write(err, errno == 0 ? ENOSPC : errno, name_of(wish), written);
    /* Ranks on other nodes look for the file by name, which NFS shows them after this call. If it
     * fails, later writes fail as well and report it. */
    rks_error why;
    if (status == RKS_OK && wish->job != 0)
        (void)rks_file_sync_directory_of(lock->path, &why);
    if (status != RKS_OK && lock->locked)
        unlink(lock->path); /* it is ours and held */
    return status;
}

static void warn(const rks_lock_wish *wish, const rks_lock_file *lock)
{
    lock_note before = read_note(lock->fd);
    rks_text_clean(before.holder);
    rks_log("%s: this file system has no locks, so nothing keeps a second process out; "
            "do not start one%s%s",
            name_of(wish), before.holder[0] == '\0' ? "" : "; the last one was ", before.holder);
}

/* ---- signs of life --------------------------------------------------------------------------- */

static void *renew(void *user)
{
    rks_lock_file *lock = user;
    pthread_mutex_lock(&lock->mutex);
    while (!lock->over) {
        rks_cond_wait_ms(&lock->changed, &lock->mutex, lock->beat_ms);
        if (!lock->over)
            futimens(lock->fd, NULL); /* if it fails, the waiters give up with a message */
    }
    pthread_mutex_unlock(&lock->mutex);
    return NULL;
}

static rks_status start_beats(rks_lock_file *lock, uint32_t beat_ms, rks_error *err)
{
    lock->beat_ms = beat_ms;
    int error = rks_cond_init(&lock->changed);
    if (error != 0)
        return rks_fail_errno(err, error, "%s: renewing", lock->path);
    pthread_mutex_init(&lock->mutex, NULL);
    error = rks_thread_start(&lock->beats, renew, lock);
    lock->beating = error == 0;
    lock->owner = getpid();
    if (error == 0)
        return RKS_OK;
    pthread_cond_destroy(&lock->changed);
    pthread_mutex_destroy(&lock->mutex);
    return rks_fail_start(err, error, "the thread that renews %s", lock->path);
}

static void end_beats(rks_lock_file *lock)
{
    if (!lock->beating || lock->owner != getpid())
        return; /* a forked child does not have the thread */
    pthread_mutex_lock(&lock->mutex);
    lock->over = true;
    pthread_cond_signal(&lock->changed);
    pthread_mutex_unlock(&lock->mutex);
    pthread_join(lock->beats, NULL);
    pthread_cond_destroy(&lock->changed);
    pthread_mutex_destroy(&lock->mutex);
}

rks_lock_look rks_lock_file_look(const char *path)
{
    rks_lock_look look = {0};
    struct stat now;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return look;
    look.there = fstat(fd, &now) == 0;
    if (look.there) {
        lock_note note = read_note(fd);
        rks_text_clean(note.holder);
        snprintf(look.holder, sizeof(look.holder), "%.*s", RKS_LOCK_HOLDER - 1, note.holder);
        look.renewed_ns = (uint64_t)now.st_mtim.tv_sec * 1000000000 + (uint64_t)now.st_mtim.tv_nsec;
    }
    close(fd);
    return look;
}

rks_status rks_lock_file_take(const rks_lock_wish *wish, rks_lock_file **lock, rks_error *err)
{
    rks_lock_file *taken = rks_alloc(1, sizeof(*taken), err);
    if (taken == NULL)
        return RKS_ERR_MEMORY;
    taken->fd = -1;
    taken->path = rks_strdup(wish->path, err);
    rks_status status = taken->path == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (int i = 0; status == RKS_OK && taken->fd < 0; i++)
        status = i < TRIES
                     ? try_once(wish, taken, err)
                     : rks_fail(err, RKS_ERR_STATE, 0,
                                "%s: other processes keep taking it; run again", name_of(wish));
    if (status == RKS_OK && !taken->locked && !wish->quiet)
        warn(wish, taken);
    if (status == RKS_OK)
        status = watch_foreign(wish, taken, err);
    if (status == RKS_OK)
        status = sign(wish, taken, err);
    if (status == RKS_OK && wish->beat_ms > 0) {
        status = start_beats(taken, wish->beat_ms, err);
        if (status != RKS_OK && taken->locked)
            unlink(taken->path);
    }
    if (status == RKS_OK) {
        *lock = taken;
        return RKS_OK;
    }
    if (taken->fd >= 0)
        close(taken->fd);
    rks_free(taken->path);
    rks_free(taken);
    return status;
}

bool rks_lock_file_is_taken_over(const rks_lock_file *lock)
{
    return lock->taken_over;
}

bool rks_lock_file_is_ours(const rks_lock_file *lock)
{
    char text[TEXT_SIZE];
    int fd = open(lock->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    memset(text, '\n', sizeof(text));
    ssize_t size = pread(fd, text, sizeof(text), 0);
    close(fd);
    return size > 0 && memcmp(text, lock->text, sizeof(text)) == 0;
}

rks_status rks_lock_file_check_job(const rks_lock_wish *wish, rks_error *err)
{
    int fd = -1;
    rks_status status = rks_file_open(wish->path, &fd, NULL, err);
    if (status == RKS_ERR_NOT_FOUND)
        return rks_fail(err, RKS_ERR_STATE, EWOULDBLOCK, "%s: its holder has just ended; run again",
                        name_of(wish));
    if (status != RKS_OK)
        return status;
    lock_note note = read_note(fd);
    close(fd);
    return wish->job != 0 && note.job == wish->job ? RKS_OK : fail_held(wish, &note, err);
}

void rks_lock_file_release(rks_lock_file *lock)
{
    if (lock == NULL)
        return;
    end_beats(lock);
    if (rks_lock_file_is_ours(lock))
        unlink(lock->path); /* before the lock ends, so that nobody locks a doomed file */
    close(lock->fd);
    rks_free(lock->path);
    rks_free(lock);
}
