/* SPDX-License-Identifier: Apache-2.0
 *
 * fetch_server.c: the owner's side: answers requests for samples from the maps of its shards.
 *
 * An I/O thread of the engine serves a request: it asks the disk for all of its rows at once and
 * waits for cold pages. Requests that follow each other in a file are read as a stream, as in
 * readahead.c: the system reads ahead in large pages, which takes half of the processor time.
 *
 * If the rows of a request are known to be in memory, the engine's own thread answers it, which
 * saves two changes of threads. If pages were dropped from memory in between, that thread waits for
 * the disk once, notices, and then counts no row as known to be in memory.
 *
 * The parts of a reply point into the map, so nothing is copied. The owner checks the request, and
 * answers a malformed one with an error; the connection stays. The requester checks the samples
 * against its own index; the owner does not. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "fetch/fetch_server.h"
#include "fetch/payload_size.h"
#include "fetch/disk_reader.h"
#include "fetch/wire.h"

struct rks_fetch_server {
    rks_engine *engine;
    enum rks_service service;
    rks_shard **shards;
    rks_disk_reader disk;
    pthread_mutex_t stream_mutex;
    rks_disk_stream stream; /* requests in the order of a file; guarded by stream_mutex */
    uint32_t readers;       /* ranks that may take turns in the file of the stream */
    atomic_bool streaming;  /* the last request followed the previous one */
    atomic_bool stop;       /* ends the stream */
    size_t count;
    rks_payload_layouts layouts;
    atomic_uint_least64_t bytes;
    atomic_size_t references; /* to this struct: its owner's, and one for each reply */
    atomic_size_t replies;    /* replies that use the maps */
    atomic_bool closing;      /* a close waits for the last reply */
    pthread_mutex_t mutex;
    pthread_cond_t idle;
    const rks_arriving *arriving; /* NULL: all rows are here */
    struct aside *aside;          /* requests whose rows have come; guarded by mutex, as the next */
    bool aside_ends;
    pthread_cond_t aside_comes;
    pthread_t aside_thread; /* answers them */
};

/* A request that waits for rows from home. */
typedef struct aside {
    rks_fetch_server *server;
    rks_request *request;
    rks_error error; /* why they do not come */
    struct aside *next;
} aside;

/* A reply being made or sent. Its table is after its parts. */
typedef struct answer {
    rks_fetch_server *server;
    const rks_payload_layout *layout; /* of the shard whose records are being added */
    uint8_t *table;
    size_t table_size;
    size_t served;
    size_t end; /* bytes of the reply so far */
    uint64_t bytes;
    size_t part_count;
    struct iovec parts[]; /* header, table, and at most two a row */
} answer;

enum {
    LOCATE_MOST = 64,
    QUICK_ROWS = 1024,
    READERS_MAX = 8, /* so a stream reads at most eight times what one rank requests */
};

static const uint8_t zeros[RKS_FETCH_ALIGN];

/* ---- the disk ------------------------------------------------------------------------------ */

/* Adds the rows of a checked request to the window. */
static void find_rows(const rks_fetch_server *server, const uint8_t *body, uint32_t groups,
                      rks_disk_window *window)
{
    const uint8_t *at = body + RKS_FETCH_REQUEST_HEAD;
    for (uint32_t i = 0; i < groups; i++) {
        rks_fetch_group group;
        at = rks_fetch_get_group(at, &group);
        for (uint32_t k = 0; k < group.count; k++)
            (void)rks_disk_window_add(&server->disk, window, group.shard,
                                      rks_load_u32(group.rows + 4 * (size_t)k));
    }
}

/* Returns true if the rows of a group are known to be in memory. Waits neither for the rows nor for
 * their places in the index. */
static bool group_is_warm(const rks_fetch_server *server, const rks_fetch_group *group)
{
    rks_range range;
    if (group->shard >= server->count || server->shards[group->shard] == NULL)
        return true; /* the error is answered at once */
    for (uint32_t i = 0; i < group->count; i++) {
        uint64_t row = rks_load_u32(group->rows + 4 * (size_t)i);
        if (!rks_shard_place_in_memory(server->shards[group->shard], row) ||
            rks_disk_reader_range(&server->disk, group->shard, row, &range))
            return false;
    }
    return true;
}

static bool request_is_warm(rks_fetch_server *server, const uint8_t *body, uint32_t groups)
{
    const uint8_t *at = body + RKS_FETCH_REQUEST_HEAD;
    bool warm = true;
    if (rks_disk_reader_is_warm(&server->disk))
        return true;
    if (atomic_load_explicit(&server->streaming, memory_order_relaxed))
        return false; /* the stream's read-ahead has read them, and continues only if they are
                       * read */
    for (uint32_t i = 0; i < groups && warm; i++) {
        rks_fetch_group group;
        at = rks_fetch_get_group(at, &group);
        warm = group_is_warm(server, &group);
    }
    return warm;
}

/* Reads the rows as a stream if they follow those of the last request. Returns false if they do
 * not, or if another thread is reading; the caller then asks for the missing rows. */
static bool read_stream(rks_fetch_server *server, rks_disk_window *window)
{
    if (pthread_mutex_trylock(&server->stream_mutex) != 0)
        return false;
    bool follows = rks_disk_stream_follows(&server->stream, window, server->readers);
    atomic_store_explicit(&server->streaming, follows, memory_order_relaxed);
    if (follows)
        rks_disk_reader_stream(&server->disk, &server->stream, window->all, &server->stop);
    pthread_mutex_unlock(&server->stream_mutex);
    return follows;
}

/* Reads all rows of a request at once: the disk serves many requests in the time of one. */
static void ask_disk(rks_fetch_server *server, const uint8_t *body, uint32_t groups, uint32_t rows)
{
    if (rks_disk_reader_is_warm(&server->disk))
        return;
    rks_range *ranges = rks_alloc_raw(2 * (size_t)rows, sizeof(*ranges), NULL);
    if (ranges == NULL)
        return; /* answering then waits for each row */
    rks_disk_window window = {.all = ranges, .missing = ranges + rows};
    find_rows(server, body, groups, &window);
    if (!read_stream(server, &window))
        rks_disk_reader_ask(&server->disk, window.missing, window.missing_count, NULL);
    rks_free(ranges);
}

/* ---- replies ------------------------------------------------------------------------------- */

static void free_server(rks_fetch_server *server)
{
    if (server == NULL)
        return;
    rks_payload_layouts_free(&server->layouts);
    rks_free(server->shards);
    rks_resident_stream_end(&server->stream.file);
    pthread_cond_destroy(&server->idle);
    pthread_cond_destroy(&server->aside_comes);
    pthread_mutex_destroy(&server->mutex);
    pthread_mutex_destroy(&server->stream_mutex);
    rks_free(server);
}

static void release_server(rks_fetch_server *server)
{
    if (atomic_fetch_sub(&server->references, 1) == 1)
        free_server(server);
}

/* Ends a reply. Either this sees that the server is closing, or the close sees that the reply is
 * gone. */
static void answer_released(void *user)
{
    answer *done = user;
    rks_fetch_server *server = done->server;
    rks_free(done);
    if (atomic_fetch_sub(&server->replies, 1) == 1 && atomic_load(&server->closing)) {
        pthread_mutex_lock(&server->mutex);
        pthread_cond_broadcast(&server->idle);
        pthread_mutex_unlock(&server->mutex);
    }
    release_server(server);
}

static void add_part(answer *reply, const uint8_t *bytes, size_t size)
{
    struct iovec *last = &reply->parts[reply->part_count - 1];
    reply->end += size;
    if ((const uint8_t *)last->iov_base + last->iov_len == bytes) {
        last->iov_len += size; /* neighbours in the map */
        return;
    }
    reply->parts[reply->part_count++] = (struct iovec){(void *)(uintptr_t)bytes, size};
}

/* Adds a record. Returns false if the reply is full. */
static bool add_record(answer *reply, const rks_record_view *view)
{
    size_t place = rks_fetch_record_place(reply->end, view);
    size_t size = view->record_size;
    /* Includes the bytes up to a multiple of 8, which are in the same page of the map. So
     * consecutive records need no padding of their own. */
    if ((uintptr_t)view->record % 8 == 0)
        size = (size_t)rks_round_up(size, 8);
    if (reply->served != 0 && (place > RKS_FETCH_REPLY_MAX || size > RKS_FETCH_REPLY_MAX - place))
        return false;
    if (place != reply->end)
        add_part(reply, zeros, place - reply->end);
    add_part(reply, view->record, size);
    rks_store_u32(reply->table + RKS_FETCH_REPLY_HEAD + reply->served * 4, (uint32_t)(place / 8));
    reply->served++;
    reply->bytes += rks_payload_bytes(reply->layout, view);
    return true;
}

static rks_status find_shard(const rks_fetch_server *server, const rks_fetch_group *group,
                             const rks_shard **shard, rks_error *err)
{
    if (group->shard >= server->count || server->shards[group->shard] == NULL)
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0, "shard %" PRIu32 " is not served here",
                        group->shard);
    if (!rks_digest_equal(rks_shard_id(server->shards[group->shard]), group->shard_id))
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0, "shard %" PRIu32 " has another id here",
                        group->shard);
    *shard = server->shards[group->shard];
    return RKS_OK;
}

/* Waits for the pages of a located row, and adds it if there is room. */
static rks_status fill_row(const rks_shard *shard, uint64_t row, const rks_record_view *view,
                           answer *reply, bool *full, rks_error *err)
{
    rks_shard_touch(shard, view);
    if (rks_shard_faulted(shard, view->record, view->record_size))
        return rks_shard_read_failed(shard, row, view, err);
    *full = !add_record(reply, view);
    return RKS_OK;
}

static rks_status fill_rows(const rks_shard *shard, const uint8_t *rows, size_t count,
                            answer *reply, bool *full, rks_error *err)
{
    uint64_t numbers[LOCATE_MOST];
    rks_record_view views[LOCATE_MOST];
    for (size_t i = 0; i < count; i++)
        numbers[i] = rks_load_u32(rows + i * 4);
    bool found = rks_shard_locate_many(shard, numbers, count, views, NULL) == RKS_OK;
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < count && !*full; i++) {
        if (!found) /* rows before the bad one are still good */
            status = rks_shard_locate(shard, numbers[i], &views[i], err);
        if (status == RKS_OK)
            status = fill_row(shard, numbers[i], &views[i], reply, full, err);
    }
    return status;
}

static rks_status fill_group(const rks_fetch_server *server, const rks_fetch_group *group,
                             answer *reply, bool *full, rks_error *err)
{
    const rks_shard *shard = NULL;
    rks_status status = find_shard(server, group, &shard, err);
    if (status == RKS_OK)
        reply->layout = server->layouts.of[group->shard];
    for (size_t i = 0; status == RKS_OK && i < group->count && !*full; i += LOCATE_MOST) {
        size_t many = group->count - i < LOCATE_MOST ? group->count - i : LOCATE_MOST;
        status = fill_rows(shard, group->rows + i * 4, many, reply, full, err);
    }
    return status;
}

/* Fills the reply. A row that cannot be read ends the reply before it. The requester then asks for
 * the missing rows, and gets the error as that of the first row of its request. So it knows which
 * row has failed. */
static rks_status fill(const rks_fetch_server *server, const uint8_t *body, uint32_t groups,
                       answer *reply, rks_error *err)
{
    const uint8_t *at = body + RKS_FETCH_REQUEST_HEAD;
    rks_status status = RKS_OK;
    bool full = false;
    for (uint32_t i = 0; status == RKS_OK && i < groups && !full; i++) {
        rks_fetch_group group;
        at = rks_fetch_get_group(at, &group);
        status = fill_group(server, &group, reply, &full, err);
    }
    return reply->served != 0 ? RKS_OK : status;
}

static answer *create_answer(rks_fetch_server *server, uint32_t rows, rks_error *err)
{
    size_t part_count = 2 + 2 * (size_t)rows;
    size_t table_size = rks_fetch_reply_table(rows);
    size_t parts_size = part_count * sizeof(struct iovec);
    answer *reply = rks_alloc_raw(sizeof(*reply) + parts_size + table_size, 1, err);
    if (reply == NULL)
        return NULL;
    memset(reply, 0, sizeof(*reply));
    reply->server = server;
    reply->table = (uint8_t *)&reply->parts[part_count];
    reply->table_size = table_size;
    memset(reply->table, 0, table_size);
    reply->parts[1] = (struct iovec){reply->table, table_size};
    reply->part_count = 2;
    reply->end = table_size;
    return reply;
}

/* ---- serving ------------------------------------------------------------------------------- */

/* Answers a checked request. `flags` are those of the reply. */
static void answer_request(rks_fetch_server *server, rks_request *request, uint32_t groups,
                           uint32_t rows, uint32_t flags)
{
    size_t size = 0;
    const uint8_t *body = rks_request_body(request, &size);
    rks_error err;
    answer *reply = create_answer(server, rows, &err);
    if (reply == NULL || fill(server, body, groups, reply, &err) != RKS_OK) {
        rks_free(reply);
        rks_request_fail(request, &err);
        return;
    }
    rks_store_u32(reply->table, (uint32_t)reply->served);
    rks_store_u32(reply->table + 4, flags);
    atomic_fetch_add_explicit(&server->bytes, reply->bytes, memory_order_relaxed);
    atomic_fetch_add(&server->references, 1);
    atomic_fetch_add(&server->replies, 1);
    rks_request_reply_with(request, reply->parts, reply->part_count, answer_released, reply);
}

/* ---- rows that are on their way ---------------------------------------------------------------
 */

static void aside_is_ready(void *user, const rks_error *err)
{
    aside *waiting = user;
    rks_fetch_server *server = waiting->server;
    waiting->error = *err;
    pthread_mutex_lock(&server->mutex);
    aside **last = &server->aside;
    while (*last != NULL)
        last = &(*last)->next;
    *last = waiting;
    pthread_cond_signal(&server->aside_comes);
    pthread_mutex_unlock(&server->mutex);
}

static rks_arriving_row *list_rows(const uint8_t *body, uint32_t groups, uint32_t rows,
                                   rks_error *err)
{
    rks_arriving_row *list = rks_alloc_raw(rows, sizeof(*list), err);
    const uint8_t *at = body + RKS_FETCH_REQUEST_HEAD;
    size_t count = 0;
    for (uint32_t i = 0; list != NULL && i < groups; i++) {
        rks_fetch_group group;
        at = rks_fetch_get_group(at, &group);
        for (uint32_t k = 0; k < group.count; k++)
            list[count++] =
                (rks_arriving_row){group.shard, rks_load_u32(group.rows + 4 * (size_t)k)};
    }
    return list;
}

/* Puts a checked request aside if some of its rows are not here. Returns false if all are, or if
 * the request has to be answered with an error. */
static bool put_aside(rks_fetch_server *server, rks_request *request, const uint8_t *body,
                      uint32_t groups, uint32_t rows)
{
    rks_error err;
    bool lacking = false;
    aside *waiting = rks_alloc(1, sizeof(*waiting), &err);
    rks_arriving_row *list = waiting == NULL ? NULL : list_rows(body, groups, rows, &err);
    size_t count = 0;
    for (uint32_t i = 0; list != NULL && i < rows; i++)
        if (list[i].shard < server->count)
            list[count++] = list[i]; /* the answer to others is an error */
    if (list != NULL && rks_arriving_lacks(server->arriving, list, count)) {
        rks_request_aside(request);
        *waiting = (aside){.server = server, .request = request};
        const rks_arriving_asker asker = {rks_request_sender(request), aside_is_ready, waiting};
        (void)rks_arriving_want(server->arriving, list, count, &asker, &lacking, &err);
    }
    rks_free(list);
    if (!lacking)
        rks_free(waiting);
    return lacking;
}

/* Serves a request, which was put aside before if `flags` say so. */
static void serve_or_wait(rks_fetch_server *server, rks_request *request, uint32_t flags)
{
    uint32_t groups = 0, rows = 0;
    size_t size = 0;
    const uint8_t *body = rks_request_body(request, &size);
    rks_error err;
    if (rks_fetch_request_check(body, size, &groups, &rows, &err) != RKS_OK)
        rks_request_fail(request, &err);
    else if (server->arriving == NULL || !put_aside(server, request, body, groups, rows)) {
        ask_disk(server, body, groups, rows);
        answer_request(server, request, groups, rows, flags);
    }
}

static void serve(void *user, rks_request *request)
{
    serve_or_wait(user, request, 0);
}

static void *aside_main(void *user)
{
    rks_fetch_server *server = user;
    pthread_mutex_lock(&server->mutex);
    while (!server->aside_ends || server->aside != NULL) {
        aside *ready = server->aside;
        if (ready == NULL) {
            pthread_cond_wait(&server->aside_comes, &server->mutex);
            continue;
        }
        server->aside = ready->next;
        pthread_mutex_unlock(&server->mutex);
        if (ready->error.status == RKS_OK)
            serve_or_wait(server, ready->request, RKS_FETCH_WAITED); /* a long record may lack its
                                                                      * end */
        else
            rks_request_fail(ready->request, &ready->error);
        rks_free(ready);
        pthread_mutex_lock(&server->mutex);
    }
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

rks_status rks_fetch_server_expect(rks_fetch_server *server, const rks_arriving *arriving,
                                   rks_error *err)
{
    int error = rks_thread_start(&server->aside_thread, aside_main, server);
    if (error != 0)
        return rks_fail_start(err, error, "a thread that serves what arrives");
    server->arriving = arriving;
    return RKS_OK;
}

static void end_asides(rks_fetch_server *server)
{
    if (server->arriving == NULL)
        return;
    pthread_mutex_lock(&server->mutex);
    server->aside_ends = true;
    pthread_cond_signal(&server->aside_comes);
    pthread_mutex_unlock(&server->mutex);
    pthread_join(server->aside_thread, NULL);
}

/* Checks whether this thread waited for the disk when it answered the last request. */
static void notice_faults(rks_fetch_server *server)
{
    long faults = rks_disk_faults(true);
    if (faults > 0 && rks_disk_reader_waited(&server->disk, faults) > 0)
        rks_disk_reader_forget(&server->disk);
}

static bool serve_quick(void *user, rks_request *request)
{
    rks_fetch_server *server = user;
    uint32_t groups = 0, rows = 0;
    size_t size = 0;
    const uint8_t *body = rks_request_body(request, &size);
    if (rks_fetch_request_check(body, size, &groups, &rows, NULL) != RKS_OK || rows > QUICK_ROWS ||
        !request_is_warm(server, body, groups))
        return false;
    answer_request(server, request, groups, rows, 0);
    notice_faults(server);
    return true;
}

rks_status rks_fetch_server_open(rks_engine *engine, enum rks_service service,
                                 rks_shard *const *shards, size_t count, uint32_t readers,
                                 rks_fetch_server **server, rks_error *err)
{
    rks_fetch_server *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_ERR_MEMORY;
    const rks_schema **schemas = rks_alloc(count, sizeof(*schemas), err);
    atomic_init(&made->references, 1);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_mutex_init(&made->stream_mutex, NULL);
    pthread_cond_init(&made->idle, NULL);
    pthread_cond_init(&made->aside_comes, NULL);
    made->shards = rks_alloc(count, sizeof(rks_shard *), err);
    if (schemas == NULL || made->shards == NULL)
        goto out;
    made->count = count;
    made->readers = readers < READERS_MAX ? readers : READERS_MAX;
    for (size_t i = 0; i < count; i++) {
        made->shards[i] = shards[i];
        if (shards[i] == NULL)
            continue;
        schemas[i] = rks_shard_schema(shards[i]);
    }
    rks_disk_reader_begin(&made->disk, made->shards, count);
    status = rks_payload_layouts_create(schemas, count, &made->layouts, err);
    if (status != RKS_OK)
        goto out;
    made->engine = engine;
    made->service = service;
    rks_engine_serve(engine, service, serve, NULL, made);
    rks_engine_serve_quick(engine, service, serve_quick);
    *server = made;
    made = NULL;
out:
    rks_free(schemas);
    free_server(made);
    return status;
}

bool rks_fetch_server_close(rks_fetch_server *server)
{
    if (server == NULL)
        return true;
    atomic_store(&server->stop, true);
    if (!rks_engine_serve(server->engine, server->service, NULL, NULL, NULL))
        return false;
    /* No call is running now, and the arrivals have ended all needs. */
    end_asides(server);
    /* The engine ends each reply: it is sent, or its peer is lost. */
    atomic_store(&server->closing, true);
    pthread_mutex_lock(&server->mutex);
    while (atomic_load(&server->replies) != 0)
        pthread_cond_wait(&server->idle, &server->mutex);
    pthread_mutex_unlock(&server->mutex);
    release_server(server);
    return true;
}

uint64_t rks_fetch_server_bytes(const rks_fetch_server *server)
{
    return atomic_load(&server->bytes);
}

void rks_fetch_server_disk(const rks_fetch_server *server, uint64_t *reads, uint64_t *bytes)
{
    *reads = atomic_load(&server->disk.disk_reads);
    *bytes = atomic_load(&server->disk.disk_bytes);
}

void rks_fetch_server_forget_cache(rks_fetch_server *server)
{
    rks_disk_reader_rescan(&server->disk);
    rks_disk_reader_forget(&server->disk);
}
