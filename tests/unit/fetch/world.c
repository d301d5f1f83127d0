/* SPDX-License-Identifier: Apache-2.0
 *
 * world.c: shards, their index, and engines. */
#include "world.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "support/folder.h"

world w;
rks_error err;

static const char *const SCHEMA = "tokens:int32[*],name:str,note:str?,wave:uint8[*],score:float64";

enum { MOST_TOKENS = 64, MOST_WAVE = 9000 };

/* The columns of a sample, as they were written. */
typedef struct content {
    int32_t tokens[MOST_TOKENS];
    char name[32];
    uint8_t wave[MOST_WAVE];
    double score;
    rks_value values[5];
    char key[64];
} content;

static void fill_content(uint64_t id, content *c)
{
    uint32_t tokens = (uint32_t)(id * 7 % MOST_TOKENS);
    size_t wave = id % 37 == 5 ? MOST_WAVE : id % 11;
    memset(c, 0, sizeof(*c));
    for (uint32_t i = 0; i < tokens; i++)
        c->tokens[i] = (int32_t)(id * 1000 + i);
    snprintf(c->name, sizeof(c->name), "sample-%" PRIu64, id);
    for (size_t i = 0; i < wave; i++)
        c->wave[i] = (uint8_t)(id + i * 13);
    c->score = (double)id / 4;
    snprintf(c->key, sizeof(c->key), "key/%" PRIu64, id);
    c->values[0] = (rks_value){.data = c->tokens, .size = tokens * 4};
    c->values[1] = (rks_value){.data = c->name, .size = strlen(c->name)};
    if (id % 3 == 0)
        c->values[2] = (rks_value){.data = "noted", .size = 5};
    c->values[3] = (rks_value){.data = c->wave, .size = wave};
    c->values[4] = (rks_value){.data = &c->score, .size = 8};
}

static void write_shard(uint32_t shard)
{
    rks_shard_writer *writer = NULL;
    char name[32], unit[32];
    bool derived = shard == 2;
    rks_shard_options options = {
        .schema = w.schema, .build_id = {1, 2}, .block_size = 64 << 10, .derived_keys = derived};
    snprintf(name, sizeof(name), "part%" PRIu32, shard);
    snprintf(unit, sizeof(unit), "unit%" PRIu32, shard);
    assert_ok(rks_shard_writer_open(w.directory, name, &options, &writer, &err), &err);
    assert_ok(rks_shard_writer_begin(writer, shard, unit, 0, &err), &err);
    static content c;
    for (uint32_t row = 0; row < WORLD_ROWS; row++) {
        fill_content(shard * WORLD_ROWS + row, &c);
        assert_ok(rks_shard_writer_add(writer, c.values, derived ? NULL : c.key,
                                       derived ? 0 : strlen(c.key), (uint32_t)c.values[0].size / 4,
                                       2 * row, &err),
                  &err);
    }
    assert_ok(rks_shard_writer_end(writer, 2 * WORLD_ROWS, WORLD_ROWS, 0, &err), &err);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
}

void world_open(void)
{
    memset(&w, 0, sizeof(w));
    assert_true(folder_make(w.directory));
    assert_ok(rks_schema_parse(SCHEMA, &w.schema, &err), &err);
    for (uint32_t shard = 0; shard < WORLD_SHARDS; shard++) {
        char path[128];
        write_shard(shard);
        snprintf(path, sizeof(path), "%s/part%" PRIu32 ".json", w.directory, shard);
        assert_ok(rks_shard_open(path, &w.shards[shard], &err), &err);
        w.ids[shard] = rks_shard_id(w.shards[shard]);
        w.largest[shard] = rks_shard_largest(w.shards[shard]);
        assert_ok(rks_shard_copy_lengths(w.shards[shard], 0, WORLD_ROWS, w.lengths[shard], &err),
                  &err);
        assert_ok(rks_shard_copy_key_hashes(w.shards[shard], 0, WORLD_ROWS, w.hashes[shard], &err),
                  &err);
    }
}

void world_close(void)
{
    world_disconnect();
    for (uint32_t shard = 0; shard < WORLD_SHARDS; shard++)
        rks_shard_close(w.shards[shard]);
    folder_remove(w.directory);
    rks_schema_free(w.schema);
}

void world_connect(size_t count, uint32_t silence_ms)
{
    rks_address addresses[WORLD_ENGINES];
    uint8_t session[16] = {7}, secret[RKS_SECRET_SIZE] = {9};
    for (uint32_t rank = 0; rank < count; rank++) {
        rks_engine_options options;
        rks_engine_options_default(&options);
        options.rank = rank;
        options.size = (uint32_t)count;
        options.silence_ms = silence_ms;
        options.io_threads = 2;
        assert_ok(rks_engine_open(&options, &w.engines[rank], &err), &err);
        addresses[rank] = *rks_engine_address(w.engines[rank]);
    }
    for (uint32_t rank = 0; rank < count; rank++)
        assert_ok(rks_engine_join(w.engines[rank], addresses, session, secret, &err), &err);
    w.engine_count = count;
}

void world_disconnect(void)
{
    for (size_t rank = 0; rank < w.engine_count; rank++) {
        rks_engine_close(w.engines[rank], 100);
        w.engines[rank] = NULL;
    }
    w.engine_count = 0;
}

rks_wanted world_wanted(uint64_t id)
{
    uint32_t shard = (uint32_t)(id / WORLD_ROWS), row = (uint32_t)(id % WORLD_ROWS);
    return (rks_wanted){.id = id,
                        .row = row,
                        .key_hash = w.hashes[shard][row],
                        .shard = shard,
                        .length = w.lengths[shard][row]};
}

void world_wanted_many(const uint64_t *ids, size_t count, rks_wanted *wanted)
{
    for (size_t i = 0; i < count; i++)
        wanted[i] = world_wanted(ids[i]);
}

static const char *describe(void *user, uint64_t id, char *text, size_t size)
{
    (void)user;
    snprintf(text, size, "sample %" PRIu64 " (key key/%" PRIu64 ")", id, id);
    return text;
}

static size_t derive_key(void *user, uint64_t id, uint32_t source_row, uint8_t *key)
{
    (void)user;
    char text[64];
    int size =
        snprintf(text, sizeof(text), "unit%" PRIu64 ":%" PRIu32, id / WORLD_ROWS, source_row);
    memcpy(key, text, (size_t)size);
    return (size_t)size;
}

rks_fetcher_options world_options(uint32_t rank, unsigned mapped, const int32_t *const *owners)
{
    static rks_shard *shards[WORLD_SHARDS];
    for (uint32_t shard = 0; shard < WORLD_SHARDS; shard++)
        shards[shard] = (mapped >> shard & 1) != 0 ? w.shards[shard] : NULL;
    return (rks_fetcher_options){.engine = w.engines[rank],
                                 .rank = rank,
                                 .shards = shards,
                                 .shard_ids = w.ids,
                                 .largest = w.largest,
                                 .owners = owners,
                                 .shard_count = WORLD_SHARDS,
                                 .schema = w.schema,
                                 .check = true,
                                 .service = RKS_SERVICE_FETCH,
                                 .describe = describe,
                                 .derive_key = derive_key};
}

void world_check_sample(rks_batch *batch, size_t i, uint64_t id)
{
    static _Thread_local content c;
    rks_error problem; /* of this thread: readers call this, too */
    fill_content(id, &c);
    assert_int_equal(rks_batch_id(batch, i), id);
    assert_int_equal(rks_batch_length(batch, i), c.values[0].size / 4);
    for (uint32_t column = 0; column < 5; column++) {
        rks_value value = {0};
        assert_ok(rks_batch_value(batch, i, column, &value, &problem), &problem);
        assert_int_equal(value.data == NULL, c.values[column].data == NULL);
        assert_int_equal(value.size, c.values[column].size);
        if (value.size != 0)
            assert_memory_equal(value.data, c.values[column].data, value.size);
        if (column == 3 && value.size >= 4096)
            assert_int_equal((uintptr_t)value.data % 64, 0);
    }
    size_t size = 0;
    if (id / WORLD_ROWS == 2)
        snprintf(c.key, sizeof(c.key), "unit2:%" PRIu64, id % WORLD_ROWS * 2);
    const void *key = rks_batch_key(batch, i, &size);
    assert_non_null(key);
    assert_int_equal(size, strlen(c.key));
    assert_memory_equal(key, c.key, size);
    assert_int_equal((uintptr_t)rks_batch_payload(batch, i, &size) % 8, 0);
    assert_true(size > 0);
}

void world_check_batch(rks_batch *batch, const uint64_t *ids, size_t count)
{
    assert_int_equal(rks_batch_count(batch), count);
    for (size_t i = 0; i < count; i++)
        world_check_sample(batch, i, ids[i]);
}

int world_begin(void **state)
{
    (void)state;
    world_open();
    return 0;
}

int world_end(void **state)
{
    (void)state;
    world_close();
    return rks_memory_in_use() == 0 && counted_memory() == 0 ? 0 : -1;
}

void world_draw(uint64_t *ids, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1103515245u + 12345u;
        ids[i] = (seed >> 8) % (WORLD_SHARDS * WORLD_ROWS);
    }
}

rks_fetcher *world_fetcher(unsigned mapped, const int32_t *const *owners)
{
    rks_fetcher *fetcher = NULL;
    rks_fetcher_options options = world_options(0, mapped, owners);
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    return fetcher;
}

typedef struct reader {
    pthread_t thread;
    rks_fetcher *fetcher;
    world_read_fn read;
    unsigned number, rounds;
    bool good;
} reader;

static void *read_rounds(void *user)
{
    reader *r = user;
    for (unsigned i = 0; i < r->rounds && r->good; i++)
        r->good = r->read(r->fetcher, i, r->number * 1000 + i);
    return NULL;
}

void world_read_by_threads(rks_fetcher *fetcher, world_read_fn read, unsigned rounds)
{
    reader readers[4];
    for (unsigned i = 0; i < 4; i++) {
        readers[i] =
            (reader){.fetcher = fetcher, .read = read, .number = i, .rounds = rounds, .good = true};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_rounds, &readers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_true(readers[i].good);
    }
}

static rks_status make_list(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                            rks_request_list **list, rks_error *why)
{
    rks_status status = rks_request_list_create(fetcher, count, list, why);
    if (status == RKS_OK && count > 0)
        memcpy((*list)->wanted, wanted, count * sizeof(*wanted));
    return status;
}

rks_status world_fetch(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                       rks_batch **batch, rks_error *why)
{
    rks_request_list *list = NULL;
    rks_status status = make_list(fetcher, wanted, count, &list, why);
    return status == RKS_OK ? rks_fetcher_fetch(fetcher, list, batch, why) : status;
}

rks_status world_start(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                       rks_fetch **fetch, rks_error *why)
{
    rks_request_list *list = NULL;
    rks_status status = make_list(fetcher, wanted, count, &list, why);
    if (status == RKS_OK)
        status = rks_fetcher_start(fetcher, list, fetch, why);
    if (status != RKS_OK)
        rks_request_list_free(list);
    return status;
}

rks_status world_collate(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                         rks_collate *collate, rks_arrays **arrays, rks_error *why)
{
    rks_request_list *list = NULL;
    rks_status status = make_list(fetcher, wanted, count, &list, why);
    return status == RKS_OK ? rks_fetcher_collate(fetcher, list, collate, arrays, why) : status;
}

rks_status world_start_arrays(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                              rks_collate *collate, rks_fetch **fetch, rks_error *why)
{
    rks_request_list *list = NULL;
    rks_status status = make_list(fetcher, wanted, count, &list, why);
    if (status == RKS_OK)
        status = rks_fetcher_start_arrays(fetcher, list, collate, fetch, why);
    if (status != RKS_OK)
        rks_request_list_free(list);
    return status;
}

void world_lose_page(const rks_shard *shard, uint64_t row, size_t offset)
{
    char path[128];
    rks_record_view view;
    snprintf(path, sizeof(path), "%s/empty", w.directory);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    unlink(path);
    assert_ok(rks_shard_locate(shard, row, &view, &err), &err);
    uintptr_t page = ((uintptr_t)view.record + offset) & ~(uintptr_t)4095;
    void *at = (void *)page;
    assert_ptr_equal(mmap(at, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0), at);
    close(fd);
}
