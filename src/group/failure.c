/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.c: the end of a group. Whoever notices that a rank is lost tells the control tree at
 * once; the words for the user are put together when a collective returns, from what all ranks
 * know: the rank and its host, what became of it, and the collective that could not be ended:
 *
 *   rank 2 (node7): was killed by signal 9 (Killed) during 'index'
 *
 * A connection that ends is seen before its process is: where a launcher watches the processes, its
 * word is waited for and replaces "closed the connection".
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/internal.h"

enum { LAUNCHER_MS = 1000, LAUNCHER_NAP_NS = 2000000 };

static void tell_neighbours(rks_group *group, enum message_kind kind, const void *body, size_t size,
                            int64_t except)
{
    if (group->parent >= 0 && group->parent != except)
        rks_inbox_send(group, (uint32_t)group->parent, kind, body, size, NULL);
    for (uint32_t i = 0; i < group->child_count; i++)
        if (group->children[i] != except)
            rks_inbox_send(group, group->children[i], kind, body, size, NULL);
}

void rks_group_fail(rks_group *group, const rks_error *err, int64_t except)
{
    if (group->size == 1)
        return; /* nobody has lost anybody: the next call may be better off */
    pthread_mutex_lock(&group->mutex);
    bool first = !group->failing;
    group->failing = true;
    while (!first && !group->failed)
        pthread_cond_wait(&group->cond, &group->mutex);
    pthread_mutex_unlock(&group->mutex);
    if (!first)
        return;
    /* Told before it is known here: who knows it may close the group at once, and the neighbours
     * would hear of that instead of the cause. */
    if (group->engine != NULL)
        tell_neighbours(group, MESSAGE_FAILED, err, sizeof(*err), except);
    pthread_mutex_lock(&group->mutex);
    group->failed = true;
    group->failure = *err;
    pthread_cond_broadcast(&group->cond);
    pthread_mutex_unlock(&group->mutex);
}

void rks_group_tell_stop(rks_group *group, uint64_t sequence, int64_t except)
{
    uint8_t body[8];
    pthread_mutex_lock(&group->mutex);
    bool news = group->stop < sequence + 1;
    if (news)
        group->stop = sequence + 1;
    pthread_mutex_unlock(&group->mutex);
    rks_store_u64(body, sequence);
    if (news && group->engine != NULL)
        tell_neighbours(group, MESSAGE_STOP, body, sizeof(body), except);
}

void rks_group_stop(rks_group *group)
{
    pthread_mutex_lock(&group->mutex);
    uint64_t sequence = group->sequence;
    pthread_mutex_unlock(&group->mutex);
    rks_group_tell_stop(group, sequence, -1);
}

/* ---- who is lost ----------------------------------------------------------------------------- */

void rks_group_on_lost(void *user, uint32_t peer, const rks_error *err)
{
    rks_group *group = user;
    if (err->status != RKS_OK) {
        rks_error lost = *err;
        lost.reserved[0] = err->status == RKS_ERR_PEER; /* cut off: a launcher may say more */
        rks_group_fail(group, &lost, peer);
        return;
    }
    pthread_mutex_lock(&group->mutex);
    group->left[peer] = true;
    pthread_cond_broadcast(&group->cond);
    pthread_mutex_unlock(&group->mutex);
}

void rks_group_fail_left(rks_group *group, uint32_t rank)
{
    rks_error err;
    rks_fail(&err, RKS_ERR_PEER, 0, "has left the group");
    err.rank = (int32_t)rank;
    rks_group_name_rank(group, &err);
    rks_group_fail(group, &err, -1); /* who has left is news for the others */
}

void rks_group_look_around(rks_group *group)
{
    rks_error err = {.rank = -1};
    rks_status status = rks_check_interrupt(&err);
    if (status == RKS_OK && group->bootstrap.check != NULL)
        status = group->bootstrap.check(group->bootstrap.user, &err);
    if (status == RKS_OK)
        return;
    rks_group_name_rank(group, &err);
    rks_group_fail(group, &err, -1);
}

void rks_group_fail_interrupted(rks_group *group)
{
    rks_error err;
    if (!group->opened || !rks_interrupt_heard())
        return;
    rks_fail(&err, RKS_ERR_CANCELLED, 0, "interrupted");
    rks_group_name_rank(group, &err);
    rks_group_fail(group, &err, -1);
}

/* ---- words ----------------------------------------------------------------------------------- */

void rks_group_name_rank(const rks_group *group, rks_error *err)
{
    rks_error plain = *err;
    uint32_t rank = plain.rank < 0 ? group->rank : (uint32_t)plain.rank;
    const char *host = group->hosts == NULL || rank >= group->size ? "" : group->hosts[rank];
    if (host[0] == '\0')
        rks_fail(err, plain.status, plain.cause, "rank %u: %s", rank, plain.text);
    else
        rks_fail(err, plain.status, plain.cause, "rank %u (%s): %s", rank, host, plain.text);
    rks_error_place(err, rank, host);
}

void rks_group_name_phase(const char *phase, rks_error *err)
{
    rks_error plain = *err;
    if (plain.status != RKS_ERR_PEER && plain.status != RKS_ERR_TIMEOUT &&
        plain.status != RKS_ERR_CANCELLED)
        return;
    rks_fail(err, plain.status, plain.cause, "%s during '%s'", plain.text, phase);
    err->rank = plain.rank;
    memcpy(err->host, plain.host, sizeof(err->host));
}

/* A rank was cut off. The launcher learns how its process ended a moment later. */
static void ask_launcher(const rks_group *group, rks_error *failure)
{
    const struct timespec nap = {0, LAUNCHER_NAP_NS};
    uint64_t until_ms = rks_now_ms() + LAUNCHER_MS;
    rks_error word = {.rank = failure->rank};
    if (group->bootstrap.check == NULL)
        return;
    do {
        if (group->bootstrap.check(group->bootstrap.user, &word) != RKS_OK) {
            *failure = word;
            rks_group_name_rank(group, failure);
            return;
        }
        nanosleep(&nap, NULL);
    } while (rks_now_ms() < until_ms);
}

rks_status rks_group_failure(rks_group *group, const char *phase, rks_error *err)
{
    pthread_mutex_lock(&group->mutex);
    rks_error failure = group->failure;
    bool worded = group->worded;
    pthread_mutex_unlock(&group->mutex);
    if (!worded && failure.reserved[0] != 0)
        ask_launcher(group, &failure);
    failure.reserved[0] = 0;
    if (!worded)
        rks_group_name_phase(phase, &failure);
    pthread_mutex_lock(&group->mutex);
    if (!group->worded)
        group->failure = failure;
    group->worded = true;
    failure = group->failure;
    pthread_mutex_unlock(&group->mutex);
    if (err != NULL)
        *err = failure;
    return failure.status;
}

bool rks_group_failed(rks_group *group)
{
    pthread_mutex_lock(&group->mutex);
    bool failed = group->failed;
    pthread_mutex_unlock(&group->mutex);
    return failed;
}

rks_status rks_group_must_stop(rks_group *group, rks_error *err)
{
    pthread_mutex_lock(&group->mutex);
    bool stop = group->failed || group->stop > group->sequence;
    pthread_mutex_unlock(&group->mutex);
    if (!stop)
        return RKS_OK;
    rks_fail(err, RKS_ERR_PEER, 0, "another rank failed");
    if (err != NULL)
        err->reserved[0] = 1; /* an echo: the other rank's own error counts */
    return RKS_ERR_PEER;
}
