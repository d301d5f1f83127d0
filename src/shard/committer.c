/* SPDX-License-Identifier: Apache-2.0
 *
 * committer.c: the thread that writes a shard.
 *
 * It commits after each 16 MiB, and 2 s after the last commit if something waits. LMDB copies what
 * is put into its own memory until the commit: more than that would not stay in the processor's
 * cache until it is written, and would all be written after the last sample. The queue holds at
 * most 64 MiB, or one larger block, so the caller can fill blocks during a whole commit. */
#include "shard/committer.h"

#include <endian.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

enum { COMMIT_BYTES = 16 << 20, COMMIT_MS = 2000, QUEUE_BYTES = 64 << 20, SPARE_MAX = 64 };

/* Lies before each buffer and keeps the buffer aligned to 64 bytes. */
typedef struct buffer_head {
    struct buffer_head *next;
    size_t room;
} buffer_head;
enum { HEAD_SIZE = 64 };

typedef struct job {
    struct job *next;
    uint8_t *block;
    size_t size;
    uint64_t block_number;
    uint64_t unit_position;
    size_t unit_size;
    uint8_t unit[];
} job;

struct rks_committer {
    rks_lmdb *env; /* only the thread uses it */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* guarded by mutex */
    job *first;
    job **last;
    buffer_head *spare;
    size_t spare_count;
    uint64_t queued; /* bytes of the blocks that are not put yet */
    bool busy;       /* the thread has a job or a transaction */
    bool flush;
    bool end;
    rks_status status;
    rks_error error;
};

static buffer_head *head_of(uint8_t *buffer)
{
    return (buffer_head *)(void *)(buffer - HEAD_SIZE);
}

static rks_status put_numbered(rks_lmdb *env, rks_lmdb_db db, uint64_t number, const uint8_t *value,
                               size_t size, rks_error *err)
{
    uint64_t key = htobe64(number);
    const rks_lmdb_entry entry = {.key = (const uint8_t *)(const void *)&key,
                                  .key_size = sizeof(key),
                                  .value = value,
                                  .size = size};
    return rks_lmdb_put(env, db, &entry, true, err);
}

static rks_status put_job(rks_committer *committer, const job *work, rks_error *err)
{
    rks_status status = RKS_OK;
    if (work->block != NULL)
        status = put_numbered(committer->env, RKS_LMDB_BLOCKS, work->block_number, work->block,
                              work->size, err);
    if (status == RKS_OK && work->unit_size > 0)
        status = put_numbered(committer->env, RKS_LMDB_UNITS, work->unit_position, work->unit,
                              work->unit_size, err);
    return status;
}

/* Under the mutex. Keeps ordinary buffers for the next block. */
static void recycle(rks_committer *committer, uint8_t *buffer)
{
    buffer_head *head = head_of(buffer);
    if (committer->spare_count < SPARE_MAX && head->room <= QUEUE_BYTES / SPARE_MAX * 2) {
        head->next = committer->spare;
        committer->spare = head;
        committer->spare_count++;
    } else {
        rks_free(head);
    }
}

/* Under the mutex. */
static void finish_job(rks_committer *committer, job *work)
{
    if (work->block != NULL) {
        committer->queued -= work->size;
        recycle(committer, work->block);
    }
    rks_free(work);
}

static job *pop_job(rks_committer *committer)
{
    job *work = committer->first;
    if (work != NULL) {
        committer->first = work->next;
        if (committer->first == NULL)
            committer->last = &committer->first;
    }
    return work;
}

/* Does a job. The caller holds the mutex; this releases it meanwhile. After a failure it only drops
 * jobs. */
static void do_job(rks_committer *committer, job *work, bool commit)
{
    rks_error err = {0};
    rks_status status = committer->status;
    committer->busy = true;
    pthread_mutex_unlock(&committer->mutex);
    if (status == RKS_OK && work != NULL)
        status = put_job(committer, work, &err);
    if (status == RKS_OK && (commit || rks_lmdb_pending(committer->env) >= COMMIT_BYTES))
        status = rks_lmdb_commit(committer->env, &err);
    pthread_mutex_lock(&committer->mutex);
    committer->busy = rks_lmdb_pending(committer->env) > 0;
    if (committer->status == RKS_OK && status != RKS_OK) {
        committer->status = status;
        committer->error = err;
    }
    if (work != NULL)
        finish_job(committer, work);
    pthread_cond_broadcast(&committer->changed);
}

static void *run_commits(void *argument)
{
    rks_committer *committer = argument;
    uint64_t committed = rks_now_ms();
    pthread_mutex_lock(&committer->mutex);
    for (;;) {
        job *work = pop_job(committer);
        uint64_t age = rks_now_ms() - committed;
        bool wanted = committer->flush || committer->end || age >= COMMIT_MS;
        bool commit = committer->first == NULL ? wanted : age >= COMMIT_MS;
        bool open = committer->status == RKS_OK && rks_lmdb_pending(committer->env) > 0;
        if (work != NULL || (open && commit)) {
            do_job(committer, work, commit);
            if (rks_lmdb_pending(committer->env) == 0)
                committed = rks_now_ms();
            continue;
        }
        committer->busy = open;
        committer->flush = false;
        pthread_cond_broadcast(&committer->changed);
        if (committer->end)
            break;
        uint64_t wait = open && age < COMMIT_MS ? COMMIT_MS - age : COMMIT_MS;
        rks_cond_wait_ms(&committer->changed, &committer->mutex, wait);
        if (!open)
            committed = rks_now_ms(); /* the 2 s start at the first put after a rest */
    }
    pthread_mutex_unlock(&committer->mutex);
    return NULL;
}

rks_status rks_committer_create(rks_lmdb *env, rks_committer **committer, rks_error *err)
{
    rks_committer *created = rks_alloc(1, sizeof(*created), err);
    if (created == NULL)
        return RKS_ERR_MEMORY;
    created->env = env;
    created->last = &created->first;
    int code = pthread_mutex_init(&created->mutex, NULL);
    if (code != 0)
        goto no_mutex;
    code = rks_cond_init(&created->changed);
    if (code != 0)
        goto no_cond;
    code = rks_thread_start(&created->thread, run_commits, created);
    if (code != 0)
        goto no_thread;
    *committer = created;
    return RKS_OK;

no_thread:
    pthread_cond_destroy(&created->changed);
no_cond:
    pthread_mutex_destroy(&created->mutex);
no_mutex:
    rks_free(created);
    return rks_fail_start(err, code, "the writing thread");
}

void rks_committer_free(rks_committer *committer)
{
    if (committer == NULL)
        return;
    pthread_mutex_lock(&committer->mutex);
    committer->end = true;
    pthread_cond_broadcast(&committer->changed);
    pthread_mutex_unlock(&committer->mutex);
    pthread_join(committer->thread, NULL);
    while (committer->spare != NULL) {
        buffer_head *head = committer->spare;
        committer->spare = head->next;
        rks_free(head);
    }
    pthread_cond_destroy(&committer->changed);
    pthread_mutex_destroy(&committer->mutex);
    rks_free(committer);
}

/* Under the mutex. */
static rks_status failed(const rks_committer *committer, rks_error *err)
{
    if (committer->status != RKS_OK && err != NULL)
        *err = committer->error;
    return committer->status;
}

rks_status rks_committer_buffer(rks_committer *committer, size_t room, uint8_t **buffer,
                                rks_error *err)
{
    buffer_head *head = NULL;
    pthread_mutex_lock(&committer->mutex);
    rks_status status = failed(committer, err);
    while (status == RKS_OK && committer->queued > 0 && committer->queued + room > QUEUE_BYTES) {
        rks_cond_wait_ms(&committer->changed, &committer->mutex, RKS_WAIT_SLICE_MS);
        status = failed(committer, err);
        if (status == RKS_OK)
            status = rks_check_interrupt(err);
    }
    if (status == RKS_OK && committer->spare != NULL) {
        head = committer->spare;
        committer->spare = head->next;
        committer->spare_count--;
    }
    pthread_mutex_unlock(&committer->mutex);
    if (status != RKS_OK)
        return status;
    if (head != NULL && head->room < room) {
        rks_free(head);
        head = NULL;
    }
    if (head == NULL) {
        head = rks_alloc_raw(HEAD_SIZE + room, 1, err);
        if (head == NULL)
            return RKS_ERR_MEMORY;
        head->room = room;
    }
    *buffer = (uint8_t *)head + HEAD_SIZE;
    return RKS_OK;
}

void rks_committer_drop(rks_committer *committer, uint8_t *buffer)
{
    if (buffer == NULL)
        return;
    pthread_mutex_lock(&committer->mutex);
    recycle(committer, buffer);
    pthread_mutex_unlock(&committer->mutex);
}

rks_status rks_committer_put(rks_committer *committer, uint64_t block_number, uint8_t *block,
                             size_t size, uint64_t unit_position, const rks_buffer *unit,
                             rks_error *err)
{
    size_t unit_size = unit == NULL ? 0 : unit->size;
    job *work = rks_alloc(1, sizeof(*work) + unit_size, err);
    if (work == NULL) {
        rks_committer_drop(committer, block);
        return RKS_ERR_MEMORY;
    }
    work->block = block;
    work->size = size;
    work->block_number = block_number;
    work->unit_position = unit_position;
    work->unit_size = unit_size;
    if (unit_size > 0)
        memcpy(work->unit, unit->data, unit_size);
    pthread_mutex_lock(&committer->mutex);
    *committer->last = work;
    committer->last = &work->next;
    committer->queued += block == NULL ? 0 : size;
    rks_status status = failed(committer, err);
    pthread_cond_broadcast(&committer->changed);
    pthread_mutex_unlock(&committer->mutex);
    return status;
}

rks_status rks_committer_flush(rks_committer *committer, rks_error *err)
{
    pthread_mutex_lock(&committer->mutex);
    committer->flush = true;
    pthread_cond_broadcast(&committer->changed);
    while (committer->flush || committer->first != NULL || committer->busy) {
        if (committer->status != RKS_OK && committer->first == NULL)
            break;
        rks_cond_wait_ms(&committer->changed, &committer->mutex, RKS_WAIT_SLICE_MS);
    }
    rks_status status = failed(committer, err);
    pthread_mutex_unlock(&committer->mutex);
    return status;
}
