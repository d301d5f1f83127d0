/* SPDX-License-Identifier: Apache-2.0
 *
 * send_ahead.h: the sealed shards of a build go home while others are built, on a thread of the
 * rank.
 *
 * Laws. No reader sees them: dataset.json, which names them, comes at the end by rks_publish, which
 * looks at each shard again. So what is sent ahead may be lost or removed, and a failure here is
 * none of the build: it is logged once, and publish tries again. Nothing is sent to a home that
 * holds a dataset, unless the build appends to that one. If the directory's storage does not
 * answer, nothing more is sent ahead, and the thread is left behind (base/file_wait.h). */
#ifndef RKS_BUILDER_SEND_AHEAD_H
#define RKS_BUILDER_SEND_AHEAD_H

#include "dataset/dataset.h"

typedef struct rks_send_ahead rks_send_ahead;

typedef struct rks_send_ahead_wish {
    const char *home;            /* directory or URL */
    const char *storage_options; /* of it; NULL: none */
    const char *directory;       /* of the shards */
    rks_digest base;             /* the id of the dataset that is appended to; 0: none */
    uint32_t silence_ms;         /* until the storage of `directory` is given up */
} rks_send_ahead_wish;

/* What this rank has sent. */
typedef struct rks_sent_ahead {
    uint64_t shards, bytes;
} rks_sent_ahead;

/* Copies the wish. Starts nothing yet. The caller owns *ahead. */
rks_status rks_send_ahead_open(const rks_send_ahead_wish *wish, rks_send_ahead **ahead,
                               rks_error *err);
/* A sealed shard, whose name is copied. Never waits. NULL is accepted. */
void rks_send_ahead_add(rks_send_ahead *ahead, const char *name, rks_digest manifest);
/* Ends the thread. `finish`: the shard that is being sent is sent to its end, and those that have
 * not begun are left to publish; false: it breaks off. `progress` (may be NULL) is called meanwhile
 * with the bytes of that shard, as in base.h, and 0 samples. Fills *sent, and frees `ahead`. NULL
 * is accepted. */
void rks_send_ahead_close(rks_send_ahead *ahead, bool finish, rks_progress_fn progress, void *user,
                          rks_sent_ahead *sent);

#endif
