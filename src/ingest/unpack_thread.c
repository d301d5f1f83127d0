/* SPDX-License-Identifier: Apache-2.0
 *
 * unpack_thread.c: a ring of buffers. The thread fills the buffer after the last, the reader
 * empties the first; neither holds the mutex meanwhile. */
#include "ingest/unpack_thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

enum { BUFFER = 256 << 10, BUFFERS = 4 };

typedef struct buffer {
    size_t size; /* 0 if the source has ended or failed, and nothing follows */
    uint64_t taken;
    rks_status status;
    rks_error error;
    uint8_t bytes[BUFFER];
} buffer;

struct rks_unpack_ahead {
    rks_unpack_source source;
    void *user;
    pthread_t thread;
    size_t at; /* used by the reader: bytes of the first buffer that it has read */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* guarded by mutex */
    size_t first, count;
    atomic_bool stop; /* the thread's source reads it without the mutex */
    buffer buffers[BUFFERS];
};

/* Fills a buffer with as much as there is. Called without the mutex. */
static void fill_buffer(rks_unpack_ahead *ahead, buffer *to)
{
    to->size = 0;
    to->status = RKS_OK;
    for (size_t got = 1; to->status == RKS_OK && got > 0 && to->size < BUFFER; to->size += got) {
        got = 0;
        to->status = ahead->source(ahead->user, to->bytes + to->size, BUFFER - to->size, &got,
                                   &to->taken, &to->error);
    }
}

static void *unpack_main(void *user)
{
    rks_unpack_ahead *ahead = user;
    bool more = true;
    rks_interrupt_from(&ahead->stop); /* the reader polls for interrupts, and closes */
    pthread_mutex_lock(&ahead->mutex);
    while (more && !ahead->stop) {
        if (ahead->count == BUFFERS) {
            pthread_cond_wait(&ahead->changed, &ahead->mutex);
            continue;
        }
        buffer *to = &ahead->buffers[(ahead->first + ahead->count) % BUFFERS];
        pthread_mutex_unlock(&ahead->mutex);
        fill_buffer(ahead, to);
        more = to->status == RKS_OK && to->size > 0;
        pthread_mutex_lock(&ahead->mutex);
        ahead->count++;
        pthread_cond_signal(&ahead->changed);
    }
    pthread_mutex_unlock(&ahead->mutex);
    return NULL;
}

rks_unpack_ahead *rks_unpack_ahead_start(rks_unpack_source source, void *user)
{
    rks_unpack_ahead *made = rks_alloc_raw(1, sizeof(*made), NULL);
    if (made == NULL)
        return NULL;
    memset(made, 0, offsetof(rks_unpack_ahead, buffers));
    made->source = source;
    made->user = user;
    if (rks_cond_init(&made->changed) != 0) {
        rks_free(made);
        return NULL;
    }
    pthread_mutex_init(&made->mutex, NULL);
    if (rks_thread_start(&made->thread, unpack_main, made) == 0)
        return made;
    pthread_cond_destroy(&made->changed);
    pthread_mutex_destroy(&made->mutex);
    rks_free(made);
    return NULL;
}

rks_status rks_unpack_ahead_read(rks_unpack_ahead *ahead, void *bytes, size_t size, size_t *got,
                                 uint64_t *taken, rks_error *err)
{
    rks_status status = rks_check_interrupt(err);
    *got = 0;
    if (status != RKS_OK)
        return status;
    pthread_mutex_lock(&ahead->mutex);
    while (status == RKS_OK && ahead->count == 0) {
        rks_cond_wait_ms(&ahead->changed, &ahead->mutex, RKS_WAIT_SLICE_MS);
        status = rks_check_interrupt(err);
    }
    pthread_mutex_unlock(&ahead->mutex);
    if (status != RKS_OK)
        return status;
    const buffer *from = &ahead->buffers[ahead->first];
    size_t left = from->size - ahead->at;
    *taken = from->taken;
    if (left == 0) { /* the last buffer, which stays */
        if (from->status != RKS_OK && err != NULL)
            *err = from->error;
        return from->status;
    }
    *got = left < size ? left : size;
    memcpy(bytes, from->bytes + ahead->at, *got);
    ahead->at += *got;
    if (ahead->at < from->size || from->status != RKS_OK)
        return RKS_OK;
    pthread_mutex_lock(&ahead->mutex);
    ahead->at = 0;
    ahead->first = (ahead->first + 1) % BUFFERS;
    ahead->count--;
    pthread_cond_signal(&ahead->changed);
    pthread_mutex_unlock(&ahead->mutex);
    return RKS_OK;
}

void rks_unpack_ahead_close(rks_unpack_ahead *ahead)
{
    if (ahead == NULL)
        return;
    pthread_mutex_lock(&ahead->mutex);
    ahead->stop = true;
    pthread_cond_signal(&ahead->changed);
    pthread_mutex_unlock(&ahead->mutex);
    pthread_join(ahead->thread, NULL);
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->mutex);
    rks_free(ahead);
}
