/* SPDX-License-Identifier: Apache-2.0
 *
 * group_failure.c: the end of a group. Whoever notices that a rank is lost tells the control tree
 * at once; the words for the user are put together when a collective returns, from what all ranks
 * know: the rank and its host, what became of it, and the collective that could not be ended:
 *
 *   rank 2 (node7): was killed by signal 9 (Killed) during 'index'
 *
 * A connection that ends is seen before its process is: where a launcher watches the processes, its
 * word is waited for and replaces "closed the connection".
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/group_state.h"

static const char ECHO[] = "another rank failed"; /* says rks_group_must_stop */
enum {
    WORDS_LEAST_MS = 1000,
    WORDS_MOST_MS = 5000,
    WORDS_NAP_NS = 2000000,
    EXPLAIN_EVERY_MS = 60000,
};

uint32_t rks_group_words_ms(const rks_group *group)
{
    uint32_t part = group->silence_ms / 5;
    return part < WORDS_LEAST_MS ? WORDS_LEAST_MS : part > WORDS_MOST_MS ? WORDS_MOST_MS : part;
}

void rks_group_tell_neighbours(rks_group *group, enum message_kind kind, const void *body,
                               size_t size, int64_t except)
{
    if (group->parent >= 0 && group->parent != except)
        rks_inbox_send(group, (uint32_t)group->parent, kind, body, size, NULL);
    for (uint32_t i = 0; i < group->child_count; i++)
        if (group->children[i] != except)
            rks_inbox_send(group, group->children[i], kind, body, size, NULL);
}

void rks_group_fail(rks_group *group, const rks_error *err, int64_t except)
{
    const group_error plain = {.error = *err};
    rks_group_fail_with(group, &plain, except);
}

void rks_group_fail_with(rks_group *group, const group_error *err, int64_t except)
{
    uint8_t bytes[GROUP_ERROR_SIZE];
    if (group->size == 1)
        return; /* no rank is lost: the next call may succeed */
    pthread_mutex_lock(&group->mutex);
    bool first = !group->failing;
    group->failing = true;
    while (!first && !group->failed)
        pthread_cond_wait(&group->cond, &group->mutex);
    pthread_mutex_unlock(&group->mutex);
    if (!first)
        return;
    /* It is sent before this rank knows it: a thread that knows may close the group at once, and
     * the neighbours would see that end instead of the cause. */
    rks_group_error_encode(err, bytes);
    if (group->engine != NULL)
        rks_group_tell_neighbours(group, MESSAGE_FAILED, bytes, sizeof(bytes), except);
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
        rks_group_tell_neighbours(group, MESSAGE_STOP, body, sizeof(body), except);
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
        /* A launcher knows nothing of a link that failed. */
        const group_error lost = {.error = *err,
                                  .cut_off = err->status == RKS_ERR_PEER && err->cause != ENOLINK};
        rks_group_fail_with(group, &lost, peer);
        return;
    }
    rks_group_take_leaving(group, peer);
}

void rks_group_leave(rks_group *group, rks_status status, const rks_error *err)
{
    if (group == NULL || group->engine == NULL)
        return;
    if (status == RKS_OK) {
        rks_group_tell_neighbours(group, MESSAGE_LEAVING, NULL, 0, -1);
        return;
    }
    rks_error own = {0};
    if (err != NULL && err->status == status)
        own = *err;
    else
        rks_fail(&own, status, 0, "%s", rks_status_name(status));
    memset(own.reserved, 0, sizeof(own.reserved));
    if (own.rank < 0 || own.rank >= (int64_t)group->size) {
        own.rank = -1;
        rks_group_name_rank(group, &own);
    }
    const group_error last = {.error = own, .own_words = true};
    rks_group_fail_with(group, &last, -1);
}

/* A caller that continues after such errors, sample after sample, waits only once a minute. */
static uint64_t explain_until(rks_group *group)
{
    uint64_t now = rks_now_ms();
    pthread_mutex_lock(&group->mutex);
    if (group->explaining_ms == 0 || now - group->explaining_ms > EXPLAIN_EVERY_MS)
        group->explaining_ms = now;
    uint64_t until = group->explaining_ms + rks_group_words_ms(group);
    pthread_mutex_unlock(&group->mutex);
    return until;
}

rks_status rks_group_explain(rks_group *group, rks_status status, rks_error *err)
{
    const struct timespec nap = {0, WORDS_NAP_NS};
    if (status != RKS_ERR_PEER || group->engine == NULL)
        return status;
    uint64_t until_ms = explain_until(group);
    while (!rks_group_failed(group) && rks_now_ms() < until_ms)
        nanosleep(&nap, NULL);
    pthread_mutex_lock(&group->mutex);
    const group_error failure = group->failure;
    /* True also if others name another rank as the cause: the rank that this call met may have
     * ended because of that one. */
    bool told = group->failed &&
                (failure.own_words || (err != NULL && !failure.cut_off && failure.error.rank >= 0 &&
                                       failure.error.rank != err->rank));
    pthread_mutex_unlock(&group->mutex);
    if (!told)
        return status;
    if (err != NULL)
        *err = failure.error;
    return failure.error.status;
}

void rks_group_take_leaving(rks_group *group, uint32_t from)
{
    pthread_mutex_lock(&group->mutex);
    group->left[from] = true;
    pthread_cond_broadcast(&group->cond);
    pthread_mutex_unlock(&group->mutex);
}

void rks_group_fail_left(rks_group *group, uint32_t rank)
{
    rks_error err;
    rks_fail(&err, RKS_ERR_PEER, 0, "has left the group");
    err.rank = (int32_t)rank;
    rks_group_name_rank(group, &err);
    rks_group_fail(group, &err, -1); /* the others do not know who left */
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

/* A rank was cut off. A moment later the launcher learns how its process ended. */
static void ask_launcher(const rks_group *group, rks_error *failure)
{
    const struct timespec nap = {0, WORDS_NAP_NS};
    uint64_t until_ms = rks_now_ms() + rks_group_words_ms(group);
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
    group_error failure = group->failure;
    bool worded = group->worded;
    pthread_mutex_unlock(&group->mutex);
    if (!worded && failure.cut_off)
        ask_launcher(group, &failure.error);
    if (!worded)
        rks_group_name_phase(phase, &failure.error);
    pthread_mutex_lock(&group->mutex);
    if (!group->worded)
        group->failure = failure;
    group->worded = true;
    failure = group->failure;
    pthread_mutex_unlock(&group->mutex);
    if (err != NULL)
        *err = failure.error;
    return failure.error.status;
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
    return rks_fail(err, RKS_ERR_PEER, 0, "%s", ECHO);
}

rks_status rks_group_hear(void *user, rks_error *err)
{
    return rks_group_must_stop(user, err);
}

/* Compares the text, since the error passes through callers and through Python. */
bool rks_group_is_echo(const rks_error *err)
{
    return err->status == RKS_ERR_PEER && strcmp(err->text, ECHO) == 0;
}

/* ---- on the wire ----------------------------------------------------------------------------- */

enum { FLAG_ECHO = 1, FLAG_CUT_OFF = 2, FLAG_OWN_WORDS = 4, FLAG_APART = 8 };

void rks_group_error_encode(const group_error *err, uint8_t *bytes)
{
    memcpy(bytes, &err->error, sizeof(err->error));
    rks_store_u64(bytes + sizeof(err->error),
                  (err->echo ? FLAG_ECHO : 0u) | (err->cut_off ? FLAG_CUT_OFF : 0u) |
                      (err->own_words ? FLAG_OWN_WORDS : 0u) | (err->apart ? FLAG_APART : 0u));
}

void rks_group_error_decode(const uint8_t *bytes, group_error *err)
{
    uint64_t flags = rks_load_u64(bytes + sizeof(err->error));
    memcpy(&err->error, bytes, sizeof(err->error));
    if (err->error.status != RKS_OK)
        rks_error_sanitize(&err->error);
    err->echo = (flags & FLAG_ECHO) != 0;
    err->cut_off = (flags & FLAG_CUT_OFF) != 0;
    err->own_words = (flags & FLAG_OWN_WORDS) != 0;
    err->apart = (flags & FLAG_APART) != 0;
}
