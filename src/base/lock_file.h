/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_file.h: a lock file, which has one holder at a time among processes. The holder locks it
 * with flock and writes into it who it is. The kernel releases the lock when the holder ends. A
 * killed holder leaves a file without a lock, which the next holder takes over.
 *
 *   job 1f2e3d...        only if the holder gave a job
 *   pid 123 on HOST
 *   boot 0b1c2d...       the running of the machine
 *   mark 5a6b7c...       with a job, or without a lock: random, this holder's own
 *
 * Some file systems (NFS with local_lock, Lustre with localflock, some FUSE) lock within one host
 * only. There a lock says nothing of a holder whose text names another boot. Such a holder is
 * watched: if it renews the file, it lives, and the lock counts as held; if the file stands still
 * for two beats, its lock is taken over, and the holder, should it only have been stopped, learns
 * from rks_lock_file_is_ours that it has lost it. */
#ifndef RKS_BASE_LOCK_FILE_H
#define RKS_BASE_LOCK_FILE_H

#include "rankstore/base.h"

typedef struct rks_lock_file rks_lock_file;

typedef struct rks_lock_wish {
    const char *path; /* of the lock file; created with mode 0644 less the umask */
    const char *name; /* its name in messages; NULL: the path */
    const char *held; /* what messages say of another holder: "another build runs here" */
    uint64_t job;     /* random, shared by processes that belong together; 0: none */
    bool optional;    /* if the file system has no locks: warn and go on without a lock */
    bool quiet;       /* do not warn: another lock of the caller has warned */
    uint32_t beat_ms; /* a thread updates the file's time at this interval, so that waiters can tell
                       * a slow holder from a stopped one; 0: never */
} rks_lock_wish;

/* Takes the lock, or fails at once. Does not keep the wish's strings. The caller owns *lock and
 * ends it with rks_lock_file_release.
 * RKS_ERR_STATE        another process holds the lock; the text says what it does and who it is;
 *                      the cause is EWOULDBLOCK
 * RKS_ERR_UNSUPPORTED  the file system has no locks, and the lock is not optional
 * Anything else        the system's error, with the path. */
rks_status rks_lock_file_take(const rks_lock_wish *wish, rks_lock_file **lock, rks_error *err);

/* Returns true if the lock was taken over from a holder of another boot, whom the lock does not
 * keep out: it may have been stopped, and may go on. */
bool rks_lock_file_is_taken_over(const rks_lock_file *lock);

/* Returns true if the file still names this lock's holder. If it does not, the file system does not
 * keep holders apart: it has no locks, or its locks hold within one node only. */
bool rks_lock_file_is_ours(const rks_lock_file *lock);

/* Returns RKS_OK if the file names a holder of the wish's job; otherwise RKS_ERR_STATE, which says
 * what the holder does and who it is. */
rks_status rks_lock_file_check_job(const rks_lock_wish *wish, rks_error *err);

enum { RKS_LOCK_HOLDER = 128 };

/* For waiters: what the file says of its holder, and when it was last renewed. */
typedef struct rks_lock_look {
    bool there;
    char holder[RKS_LOCK_HOLDER]; /* "pid 123 on HOST"; empty if the file does not say */
    uint64_t renewed_ns;          /* the file's time by its server's clock: only compare for
                                   * change */
} rks_lock_look;

/* Reads the file without a lock, so a killed holder looks like a silent one. */
rks_lock_look rks_lock_file_look(const char *path);

/* Releases the lock; removes the file if it is still ours. NULL is accepted. */
void rks_lock_file_release(rks_lock_file *lock);

#endif
