/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.c: how far each rank is with its work, sent up the control tree: for the line that says
 * who is waited for, and for progress bars.
 *
 * A message, about once a second, and where work begins and ends. rks_group_announce sends it down
 * the tree, too:
 *
 *   offset  size  field
 *        0     4  rank
 *        4     4  reserved, 0
 *        8     8  bytes of work done
 *       16     8  bytes of work in all; 0: not known
 *       24     8  samples
 *       32     n  what it works at; n < 96
 *
 * Another form of it gets a kind of its own; kinds that a rank does not know are ignored. */
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/group_state.h"

enum { HEAD = 32, EACH_MS = 1000 };

/* So no sum over ranks can overflow. */
static const uint64_t WORK_MAX = UINT64_C(1) << 48;

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void note(rank_progress *of, const rks_work *work, const char *text, size_t size)
{
    of->work.total = least(work->total, WORK_MAX);
    of->work.done = least(work->done, of->work.total);
    of->work.samples = least(work->samples, WORK_MAX);
    size = size < PROGRESS_SIZE ? size : PROGRESS_SIZE - 1;
    memcpy(of->text, text, size);
    of->text[size] = '\0';
}

/* Writes this rank's own message and returns its size. The mutex must be held. */
static size_t encode_own(const rks_group *group, uint8_t body[HEAD + PROGRESS_SIZE])
{
    const rank_progress *mine = &group->progress[group->rank];
    size_t size = strlen(mine->text);
    rks_store_u32(body, group->rank);
    rks_store_u32(body + 4, 0);
    rks_store_u64(body + 8, mine->work.done);
    rks_store_u64(body + 16, mine->work.total);
    rks_store_u64(body + 24, mine->work.samples);
    memcpy(body + HEAD, mine->text, size);
    return HEAD + size;
}

void rks_group_announce(rks_group *group, const char *text)
{
    uint8_t body[HEAD + PROGRESS_SIZE];
    if (group->engine == NULL)
        return;
    pthread_mutex_lock(&group->mutex);
    const rks_work work = group->progress[group->rank].work;
    note(&group->progress[group->rank], &work, text, strlen(text));
    size_t size = encode_own(group, body);
    pthread_mutex_unlock(&group->mutex);
    rks_group_tell_neighbours(group, MESSAGE_PROGRESS, body, size, -1);
}

void rks_group_tell_progress(rks_group *group, const rks_work *work, const char *text)
{
    uint8_t body[HEAD + PROGRESS_SIZE];
    const rks_work none = {0};
    uint64_t now = rks_now_ms();
    if (group->engine == NULL)
        return;
    work = work == NULL ? &none : work;
    pthread_mutex_lock(&group->mutex);
    rank_progress *mine = &group->progress[group->rank];
    bool edge =
        work->total == 0 ? mine->work.total > 0 : work->done == 0 || work->done >= work->total;
    note(mine, work, text, strlen(text));
    bool tell = group->parent >= 0 && (edge || now - group->told_progress_ms >= EACH_MS);
    if (tell)
        group->told_progress_ms = now;
    size_t size = encode_own(group, body);
    pthread_mutex_unlock(&group->mutex);
    if (tell)
        rks_inbox_send(group, (uint32_t)group->parent, MESSAGE_PROGRESS, body, size, NULL);
}

bool rks_group_may_tell(const rks_group *group, uint32_t from, uint32_t rank)
{
    return rank < group->size && (rank == from || group->leaders[group->node_of[rank]] == from) &&
           rank != group->rank;
}

void rks_group_take_progress(rks_group *group, const message *m)
{
    const uint8_t *body = m->body.data;
    if (m->body.size < HEAD || m->body.size >= HEAD + PROGRESS_SIZE ||
        !rks_group_may_tell(group, m->from, rks_load_u32(body)))
        return;
    const rks_work work = {.done = rks_load_u64(body + 8),
                           .total = rks_load_u64(body + 16),
                           .samples = rks_load_u64(body + 24)};
    pthread_mutex_lock(&group->mutex);
    note(&group->progress[rks_load_u32(body)], &work, (const char *)body + HEAD,
         m->body.size - HEAD);
    pthread_mutex_unlock(&group->mutex);
    if (group->parent >= 0 && group->parent != m->from)
        rks_inbox_send(group, (uint32_t)group->parent, MESSAGE_PROGRESS, body, m->body.size, NULL);
}

/* Returns true if `a` has done the smaller share of its work. */
static bool is_slower(const rks_work *a, const rks_work *b)
{
    return (double)a->done * (double)b->total < (double)b->done * (double)a->total;
}

void rks_group_progress_get(rks_group *group, rks_group_progress *progress)
{
    rks_group_progress sum = {.struct_size = progress->struct_size};
    const rks_work *slowest = NULL;
    pthread_mutex_lock(&group->mutex);
    for (uint32_t rank = 0; group->progress != NULL && rank < group->size; rank++) {
        const rks_work *one = &group->progress[rank].work;
        if (one->total == 0)
            continue;
        sum.ranks++;
        sum.done += one->done;
        sum.total += one->total;
        sum.samples += one->samples;
        if (slowest != NULL && !is_slower(one, slowest))
            continue;
        slowest = one;
        sum.slowest_rank = rank;
        sum.slowest_done = one->done;
        sum.slowest_total = one->total;
    }
    pthread_mutex_unlock(&group->mutex);
    memcpy(progress, &sum,
           progress->struct_size < sizeof(sum) ? progress->struct_size : sizeof(sum));
}
