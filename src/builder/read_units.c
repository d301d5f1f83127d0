/* SPDX-License-Identifier: Apache-2.0
 *
 * read_units.c: threads that take the next unit each, and the turn that passes from one to the
 * next.
 *
 * If there are several, the caller's thread reads nothing: it watches for interrupts and the
 * other ranks, and reports. A thread that waits for its turn waits for units before its own,
 * which never wait for it. */
#include "builder/read_units.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "builder/input.h"
#include "ingest/rows.h"

typedef struct pool pool;

typedef struct reader {
    pool *pool;
    rks_selector *selector;
    pthread_t thread;
    size_t at; /* position in the list of units */
    /* Of the current unit; guarded by the pool's mutex. */
    uint64_t bytes, samples;
} reader;

struct pool {
    const rks_read_units *reading;
    rks_shard_writer *writer;
    size_t *units; /* what to read into the current part, in this order */
    size_t unit_count;
    reader *readers;
    uint32_t count, running;
    atomic_bool stop; /* threads read it without the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Guarded by mutex. */
    size_t next; /* the next unit to take */
    size_t sent; /* stores know of the units before it */
    size_t turn;
    size_t failed;           /* the first unit that failed; SIZE_MAX: none */
    size_t learned;          /* first_rows is known for units up to here */
    uint64_t bytes, samples; /* of units that have ended */
    rks_status status;
    rks_error error;
};

/* ---- the turn ---- */

static void learn_rows(const rks_read_units *r, size_t unit, uint64_t seen)
{
    if (r->learns_rows && rks_input_goes_on(r->input, unit))
        r->first_rows[unit + 1] = r->first_rows[unit] + seen;
}

/* Called with the mutex, in the order of units. Units in between are finished in a part. */
static uint64_t first_row_of(pool *p, size_t unit)
{
    for (; p->learned < unit; p->learned++) {
        const rks_unit_summary *finished = rks_parts_finished(p->reading->parts, p->learned);
        if (finished != NULL)
            learn_rows(p->reading, p->learned, finished->seen);
    }
    return p->reading->first_rows[unit];
}

/* Called with the mutex. */
static rks_status gave_up(rks_error *err)
{
    return rks_fail(err, RKS_ERR_CANCELLED, 0, "a unit before this one failed");
}

static rks_status wait_for_turn(void *user, uint64_t *first_row, rks_error *err)
{
    reader *self = user;
    pool *p = self->pool;
    pthread_mutex_lock(&p->mutex);
    while (p->turn < self->at && p->failed > self->at && !p->stop)
        rks_cond_wait_ms(&p->changed, &p->mutex, RKS_WAIT_SLICE_MS);
    bool mine = p->turn == self->at && !p->stop;
    if (mine)
        *first_row = first_row_of(p, p->units[self->at]);
    pthread_mutex_unlock(&p->mutex);
    return mine ? RKS_OK : gave_up(err);
}

static bool turn_has_come(void *user)
{
    reader *self = user;
    pthread_mutex_lock(&self->pool->mutex);
    bool come = self->pool->turn == self->at;
    pthread_mutex_unlock(&self->pool->mutex);
    return come;
}

/* Called with the mutex. */
static void unit_has_ended(reader *self, rks_status status, const rks_error *err)
{
    pool *p = self->pool;
    size_t unit = p->units[self->at], count = 0;
    self->bytes = self->samples = 0;
    if (status != RKS_OK && self->at < p->failed) {
        p->failed = self->at;
        p->status = status;
        p->error = *err;
    }
    if (status == RKS_OK) {
        const rks_unit_summary *units = rks_shard_writer_units(p->writer, &count);
        p->samples += units[count - 1].samples;
        p->bytes += p->reading->input->units[unit].size;
        learn_rows(p->reading, unit, units[count - 1].seen);
        p->learned = unit + 1;
        p->turn = self->at + 1;
    }
    if (p->failed == p->turn)
        p->stop = true; /* the first error of all: nothing that comes later replaces it */
    pthread_cond_broadcast(&p->changed);
}

/* ---- one unit ---- */

static rks_status tick_of_thread(void *user, uint64_t bytes, uint64_t samples, rks_error *err)
{
    reader *self = user;
    pthread_mutex_lock(&self->pool->mutex);
    self->bytes = bytes;
    self->samples = samples;
    pthread_mutex_unlock(&self->pool->mutex);
    return rks_check_interrupt(err);
}

static rks_status tick_of_caller(void *user, uint64_t bytes, uint64_t samples, rks_error *err)
{
    const reader *self = user;
    const pool *p = self->pool; /* no other thread uses it */
    return p->reading->tick(p->reading->user, p->bytes + bytes, p->samples + samples, err);
}

static char *keep_schema(void *user, const char *schema)
{
    const reader *self = user;
    char *path = rks_parts_keep_schema(self->pool->reading->parts, schema);
    char *made = path == NULL ? NULL : rks_format(NULL, "\"$(cat '%s')\"", path);
    rks_free(path);
    return made;
}

/* `first_row`: for the caller's thread, which always has the turn. */
static rks_status read_unit(reader *self, bool threaded, uint64_t first_row, rks_error *err)
{
    const pool *p = self->pool;
    const rks_read_units *r = p->reading;
    size_t unit = p->units[self->at];
    const rks_ingest_progress progress = {threaded ? tick_of_thread : tick_of_caller, self,
                                          keep_schema};
    const rks_ingest_turn turn = {wait_for_turn, turn_has_come, self};
    const rks_ingest_reading with = {r->input, r->schema, r->options, self->selector, r->bad};
    rks_status status =
        rks_ingest_unit(&with, unit, first_row, p->writer, &progress, threaded ? &turn : NULL, err);
    if (status == RKS_OK)
        rks_page_cache_drop(r->page_cache, r->input, unit);
    return status;
}

/* Called with the mutex, so that nobody takes such a unit meanwhile: stores begin to send what is
 * read next. */
static void send_ahead(pool *p)
{
    if (p->sent < p->next)
        p->sent = p->next;
    for (; p->sent < p->unit_count && p->sent < p->next + RKS_UNITS_AHEAD; p->sent++)
        rks_unit_ahead(p->reading->input, p->units[p->sent], UINT64_MAX);
}

/* Called with the mutex, which it releases meanwhile. Returns false if there is no unit left to
 * read. */
static bool read_next(reader *self, bool threaded)
{
    pool *p = self->pool;
    rks_error err = {0};
    if (p->next == p->unit_count || p->next > p->failed || p->stop)
        return false;
    self->at = p->next++;
    send_ahead(p);
    uint64_t first_row = threaded ? 0 : first_row_of(p, p->units[self->at]);
    pthread_mutex_unlock(&p->mutex);
    rks_status status = read_unit(self, threaded, first_row, &err);
    pthread_mutex_lock(&p->mutex);
    unit_has_ended(self, status, &err);
    return true;
}

/* ---- threads ---- */

static void *reader_main(void *user)
{
    reader *self = user;
    pool *p = self->pool;
    rks_interrupt_from(&p->stop); /* the caller watches for interrupts, and sets it */
    pthread_mutex_lock(&p->mutex);
    while (read_next(self, true))
        ;
    p->running--;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* Starts as many as possible. Returns how many. */
static uint32_t start_readers(pool *p)
{
    uint32_t started = 0;
    pthread_mutex_lock(&p->mutex);
    while (started < p->count &&
           rks_thread_start(&p->readers[started].thread, reader_main, &p->readers[started]) == 0)
        started++;
    p->running = started;
    pthread_mutex_unlock(&p->mutex);
    return started;
}

/* The caller's part while they read. Called with the mutex, which it releases meanwhile. */
static void watch_readers(pool *p)
{
    const rks_read_units *r = p->reading;
    while (p->running > 0) {
        rks_cond_wait_ms(&p->changed, &p->mutex, RKS_WAIT_SLICE_MS);
        uint64_t bytes = p->bytes, samples = p->samples;
        for (uint32_t i = 0; i < p->count; i++) {
            bytes += p->readers[i].bytes;
            samples += p->readers[i].samples;
        }
        if (p->stop)
            continue;
        rks_error err = {0};
        pthread_mutex_unlock(&p->mutex);
        rks_status status = r->tick(r->user, bytes, samples, &err);
        if (status == RKS_OK)
            status = rks_check_interrupt(&err);
        pthread_mutex_lock(&p->mutex);
        if (status != RKS_OK && !p->stop) { /* this error comes before those that follow from it in
                                             * the threads */
            p->stop = true;
            p->failed = 0;
            p->status = status;
            p->error = err;
            pthread_cond_broadcast(&p->changed);
        }
    }
}

static void read_all(pool *p)
{
    uint32_t started = p->count > 1 ? start_readers(p) : 0;
    pthread_mutex_lock(&p->mutex);
    if (started > 0)
        watch_readers(p);
    else
        while (read_next(&p->readers[0], false))
            ;
    pthread_mutex_unlock(&p->mutex);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(p->readers[i].thread, NULL);
}

static rks_status list_units(pool *p, rks_error *err)
{
    const rks_read_units *r = p->reading;
    p->units = rks_alloc(r->input->unit_count, sizeof(*p->units), err);
    if (p->units == NULL)
        return RKS_ERR_MEMORY;
    if (r->units != NULL) {
        memcpy(p->units, r->units, r->unit_count * sizeof(*p->units));
        p->unit_count = r->unit_count;
        return RKS_OK;
    }
    for (size_t unit = 0; unit < r->input->unit_count; unit++)
        if (r->owners[unit] == r->rank && rks_parts_finished(r->parts, unit) == NULL)
            p->units[p->unit_count++] = unit;
    return RKS_OK;
}

static rks_status make_readers(pool *p, rks_error *err)
{
    const rks_read_units *r = p->reading;
    bool callbacks =
        r->options->filter != NULL || r->options->length_fn != NULL || rks_input_is_rows(r->input);
    p->count = callbacks || r->threads == 0 ? 1
               : p->unit_count < r->threads ? (uint32_t)p->unit_count
                                            : r->threads;
    p->readers = rks_alloc(p->count, sizeof(*p->readers), err);
    rks_status status = p->readers == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (uint32_t i = 0; status == RKS_OK && i < p->count; i++) {
        p->readers[i].pool = p;
        status = rks_selector_create(r->schema, r->options, &p->readers[i].selector, err);
    }
    return status == RKS_OK ? rks_parts_writer(r->parts, &p->writer, err) : status;
}

static rks_status read_listed(pool *p, rks_error *err)
{
    int code = rks_cond_init(&p->changed);
    if (code != 0)
        return rks_fail_errno(err, code, "starting to read");
    pthread_mutex_init(&p->mutex, NULL);
    rks_status status = make_readers(p, err);
    if (status == RKS_OK) {
        read_all(p);
        status = p->status;
        if (status != RKS_OK && err != NULL)
            *err = p->error;
    }
    for (uint32_t i = 0; p->readers != NULL && i < p->count; i++)
        rks_selector_free(p->readers[i].selector);
    rks_free(p->readers);
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->changed);
    return status;
}

/* Returns how many of the units the part has room for, by what units before them took; first, when
 * that is not known, one for each thread. */
static size_t units_that_fit(const pool *p, const size_t *units, size_t count, uint64_t written)
{
    const rks_read_units *r = p->reading;
    double ratio = p->bytes == 0 ? 0 : (double)written / (double)p->bytes;
    double room = (double)r->max_shard - (double)rks_parts_unsealed_bytes(r->parts);
    size_t fit = 0;
    if (r->max_shard == 0)
        return count;
    if (p->bytes == 0 || written == 0)
        return r->threads > 1 && r->threads < count ? r->threads : 1;
    while (fit < count && room > 0)
        room -= ratio * (double)r->input->units[units[fit++]].size;
    return fit == 0 ? 1 : fit;
}

rks_status rks_read_units_run(const rks_read_units *reading, uint64_t *samples, rks_error *err)
{
    pool p = {.reading = reading, .failed = SIZE_MAX};
    rks_status status = list_units(&p, err);
    size_t *all = p.units, count = p.unit_count;
    uint64_t written = 0; /* by the units before */
    for (size_t at = 0; status == RKS_OK && at < count; at += p.unit_count) {
        uint64_t before = rks_parts_unsealed_bytes(reading->parts);
        p.units = all + at;
        p.unit_count = units_that_fit(&p, p.units, count - at, written);
        p.next = p.turn = p.sent = 0;
        status = read_listed(&p, err);
        written += rks_parts_unsealed_bytes(reading->parts) - before;
        if (status == RKS_OK)
            status = rks_parts_seal_full(reading->parts, reading->max_shard, err);
    }
    *samples = p.samples;
    rks_free(all);
    return status;
}
