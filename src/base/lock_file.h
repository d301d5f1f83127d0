/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_file.h: one holder at a time, over processes: a file that is locked with flock and says who
 * holds it. The kernel ends the lock with its holder. A killed holder leaves a file without a lock,
 * which the next one takes over.
 *
 *   job 1f2e3d...        only if the holder gave a job
 *   pid 123 on HOST
 *   mark 5a6b7c...       with a job, or without a lock: drawn by this holder */
#ifndef RKS_BASE_LOCK_FILE_H
#define RKS_BASE_LOCK_FILE_H

#include "rankstore/base.h"

typedef struct rks_lock_file rks_lock_file;

typedef struct rks_lock_wish {
    const char *path; /* of the lock file: made if it is missing, with mode 0644 less the umask */
    const char *name; /* what messages call it; NULL: the path */
    const char *held; /* what another holder does: "another build runs here" */
    uint64_t job;     /* drawn at random, shared by processes that belong together; 0: none */
    bool optional;    /* on a file system without locks: warn, and go on without a lock */
    bool quiet;       /* do not warn: the caller has a lock that did */
    uint32_t beat_ms; /* a thread renews the file's time so often: a holder that is slow differs from
                       * one that is stopped; 0: never */
} rks_lock_wish;

/* Never waits. The wish's strings are not kept. The caller owns *lock.
 * RKS_ERR_STATE        another process holds the lock; the text says what it does, and who it is;
 *                      the cause is EWOULDBLOCK
 * RKS_ERR_UNSUPPORTED  the file system has no locks, and the lock is not optional
 * Anything else        the system's error, with the path. */
rks_status rks_lock_file_take(const rks_lock_wish *wish, rks_lock_file **lock, rks_error *err);

/* The file still names this lock's holder. If it does not, the file system does not keep holders
 * apart: it has no locks, or its locks hold within one node only. */
bool rks_lock_file_is_ours(const rks_lock_file *lock);

/* RKS_OK if the file names a holder of the wish's job. Otherwise RKS_ERR_STATE: what the holder
 * does, and who it is. */
rks_status rks_lock_file_check_job(const rks_lock_wish *wish, rks_error *err);

enum { RKS_LOCK_HOLDER = 128 };

/* For who waits: what the file says of its holder, and when it was last renewed. */
typedef struct rks_lock_look {
    bool there;
    char holder[RKS_LOCK_HOLDER]; /* "pid 123 on HOST"; empty: it does not say */
    uint64_t renewed_ns;          /* the file's time, by its server's clock: compare for change only */
} rks_lock_look;

/* Takes no lock, so a holder that was killed looks like one that is silent. */
rks_lock_look rks_lock_file_look(const char *path);

/* Removes the file if it is ours. NULL is accepted. */
void rks_lock_file_release(rks_lock_file *lock);

#endif
