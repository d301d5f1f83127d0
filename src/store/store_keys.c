/* SPDX-License-Identifier: Apache-2.0
 *
 * store_keys.c: full keys. The index knows their hashes; a key itself is read from the shard, here
 * or at the rank that serves it. Request: u32 shard, u32 reserved, u64 row. Reply: the key's bytes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/store.h"

enum { REQUEST_SIZE = 16 };

/* Answers a checked request. */
static void answer_key(rks_store *store, rks_request *request)
{
    rks_error err;
    size_t size = 0, key_size = 0;
    const uint8_t *body = rks_request_body(request, &size);
    uint8_t *key = rks_alloc_raw(RKS_KEY_MAX, 1, &err);
    if (key == NULL || rks_shard_key(store->shards[rks_load_u32(body)], rks_load_u64(body + 8), key,
                                     &key_size, &err) != RKS_OK) {
        rks_request_fail(request, &err);
        rks_free(key);
        return;
    }
    struct iovec part = {key, key_size};
    rks_request_reply(request, &part, 1, rks_free, key);
}

/* A request whose sample comes from home. */
typedef struct coming_key {
    rks_store *store;
    rks_request *request;
} coming_key;

static void serve_key(void *user, rks_request *request);

static void key_comes(void *user, const rks_error *err)
{
    coming_key *coming = user;
    if (err->status == RKS_OK)
        serve_key(coming->store, coming->request); /* a long record may lack its end */
    else
        rks_request_fail(coming->request, err);
    rks_free(coming);
}

static void serve_key(void *user, rks_request *request)
{
    rks_store *store = user;
    rks_error err;
    size_t size = 0;
    bool lacking = false;
    const uint8_t *body = rks_request_body(request, &size);
    if (size != REQUEST_SIZE || rks_load_u32(body) >= store->dataset->shard_count ||
        store->shards[rks_load_u32(body)] == NULL) {
        rks_fail(&err, RKS_ERR_ARGUMENT, 0, "no such shard here");
        rks_request_fail(request, &err);
        return;
    }
    const rks_arriving_row row = {rks_load_u32(body), rks_load_u64(body + 8)};
    coming_key *coming =
        !rks_arriving_lacks(&store->arriving, &row, 1) ? NULL : rks_alloc(1, sizeof(*coming), NULL);
    if (coming != NULL) {
        rks_request_aside(request);
        *coming = (coming_key){store, request};
        const rks_arriving_asker asker = {rks_request_sender(request), key_comes, coming};
        (void)rks_arriving_want(&store->arriving, &row, 1, &asker, &lacking, NULL);
        if (!lacking)
            rks_free(coming);
    }
    if (!lacking)
        answer_key(store, request);
}

void rks_store_serve_keys(rks_store *store)
{
    rks_engine_serve(rks_group_engine(store->group), rks_store_service(store, RKS_SERVICE_KEYS),
                     serve_key, NULL, store);
}

/* Checks that the key that was read has the hash of the index. */
static rks_status check_read_key(const rks_store *store, uint64_t id, const uint8_t *key,
                                 size_t size, rks_error *err)
{
    if (size > 0 && rks_key_hash(key, size) == rks_index_key_hashes(store->index)[id])
        return RKS_OK;
    return rks_fail(err, RKS_ERR_CORRUPT, 0, "sample %" PRIu64 ": its key does not match the index",
                    id);
}

static rks_status ask_key(rks_store *store, uint32_t owner, uint64_t id, const uint8_t *request,
                          uint8_t *key, size_t *key_size, rks_error *err)
{
    uint8_t *reply = NULL;
    size_t size = 0;
    rks_status status = rks_engine_ask(rks_group_engine(store->group), owner,
                                       &(rks_outgoing){rks_store_service(store, RKS_SERVICE_KEYS),
                                                       request, REQUEST_SIZE, "asking for a key"},
                                       RKS_KEY_MAX, &reply, &size, err);
    if (status != RKS_OK)
        return status;
    status = check_read_key(store, id, reply, size, err);
    if (status == RKS_OK) {
        memcpy(key, reply, size);
        *key_size = size;
    } else {
        rks_error_place(err, owner, rks_group_host(store->group, owner));
    }
    rks_free(reply);
    return status;
}

/* Asks the owner, and if that fails, the ranks that replace it. Returns the last one's error. */
static rks_status ask_owners(rks_store *store, uint64_t id, uint32_t shard, uint64_t row,
                             uint8_t *key, size_t *key_size, rks_error *err)
{
    const int32_t *owner = store->owners[shard];
    if (*owner < 0)
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0, "shard %s is on no rank's disk",
                        store->dataset->shards[shard].name);
    uint8_t request[REQUEST_SIZE] = {0};
    rks_store_u32(request, shard);
    rks_store_u64(request + 8, row);
    rks_status status;
    do
        status = ask_key(store, (uint32_t)*owner, id, request, key, key_size, err);
    while (status != RKS_OK && status != RKS_ERR_CANCELLED && *++owner >= 0);
    return status;
}

rks_status rks_store_key(rks_store *store, uint64_t id, uint8_t key[RKS_KEY_MAX], size_t *key_size,
                         rks_error *err)
{
    uint32_t shard;
    uint64_t row;
    if (id >= store->dataset->count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "sample %" PRIu64 " is out of range: the dataset has %" PRIu64, id,
                        store->dataset->count);
    rks_index_locate(store->index, id, &shard, &row);
    if (store->shards[shard] == NULL)
        return ask_owners(store, id, shard, row, key, key_size, err);
    uint8_t own[RKS_KEY_MAX];
    size_t size = 0;
    const rks_wanted wanted = {.id = id,
                               .row = row,
                               .key_hash = rks_index_key_hashes(store->index)[id],
                               .shard = shard,
                               .length = rks_index_lengths(store->index)[id]};
    const rks_arriving_row comes = {shard, row};
    bool waited = false;
    rks_status status = rks_arriving_wait(&store->arriving, &comes, 1, &waited, err);
    if (status == RKS_OK)
        status = rks_fetcher_bring(store->fetcher, &wanted, err);
    if (status == RKS_OK)
        status = rks_shard_key(store->shards[shard], row, own, &size, err);
    if (status == RKS_OK)
        status = check_read_key(store, id, own, size, err);
    if (status != RKS_OK)
        return status;
    memcpy(key, own, size);
    *key_size = size;
    return RKS_OK;
}

size_t rks_store_unit_of(const rks_store *store, uint64_t id)
{
    size_t low = 0, high = store->unit_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (store->unit_first[middle] <= id)
            low = middle;
        else
            high = middle;
    }
    return store->unit_number[low];
}

size_t rks_store_derive_key(void *user, uint64_t id, uint32_t source_row, uint8_t *key)
{
    const rks_store *store = user;
    const rks_dataset_unit *unit = &store->dataset->units[rks_store_unit_of(store, id)];
    /* Written by hand: this runs for each sample that is checked, and printf takes longer than the
     * checksum. */
    char number[24];
    if (unit->key_name == NULL)
        return 0; /* the sample's source stores its keys, so this record is damaged */
    size_t at = sizeof(number), name_size = strlen(unit->key_name);
    uint64_t row = unit->summary.first_source_row + source_row;
    do
        number[--at] = (char)('0' + row % 10);
    while ((row /= 10) != 0);
    number[--at] = ':';
    size_t digits = sizeof(number) - at;
    if (name_size > RKS_KEY_MAX)
        name_size = RKS_KEY_MAX;
    if (digits > RKS_KEY_MAX - name_size)
        digits = RKS_KEY_MAX - name_size;
    memcpy(key, unit->key_name, name_size);
    memcpy(key + name_size, number + at, digits);
    return name_size + digits;
}

const char *rks_store_describe(void *user, uint64_t id, char *text, size_t size)
{
    rks_store *store = user;
    uint32_t shard;
    uint64_t row;
    uint8_t key[RKS_KEY_MAX];
    char shown[RKS_SHOWN_ROOM];
    size_t key_size = 0;
    rks_index_locate(store->index, id, &shard, &row);
    const char *name = store->dataset->shards[shard].name;
    if (store->shards[shard] != NULL && rks_shard_is_ready(store->shards[shard], row) &&
        rks_shard_key(store->shards[shard], row, key, &key_size, NULL) == RKS_OK) {
        snprintf(text, size, "sample %" PRIu64 " (key %s in %s.rks)", id,
                 rks_text_shown(key, key_size, shown), name);
    } else {
        snprintf(text, size, "sample %" PRIu64 " (in %s.rks)", id, name);
    }
    return text;
}

/* ---- finding ----------------------------------------------------------------------------- */

typedef struct search {
    rks_store *store;
    const void *key;
    size_t key_size;
    uint64_t first, end; /* only ids from `first` on and below `end` */
    uint64_t id;
    bool found;
    rks_status status;
    rks_error *err;
} search;

static const char *source_name(const search *s, uint64_t id)
{
    const rks_dataset *dataset = s->store->dataset;
    return dataset->sources[rks_dataset_source_of_id(dataset, id)].name;
}

/* A candidate whose shard cannot be asked is an error, not a miss: it may have the key. */
static bool try_candidate(void *user, uint64_t id)
{
    search *s = user;
    uint8_t key[RKS_KEY_MAX];
    char shown[RKS_SHOWN_ROOM];
    size_t size = 0;
    if (id < s->first || id >= s->end)
        return true;
    s->status = rks_store_key(s->store, id, key, &size, s->err);
    if (s->status != RKS_OK)
        return false;
    if (size != s->key_size || memcmp(key, s->key, size) != 0)
        return true;
    if (s->found) {
        s->status = rks_fail(s->err, RKS_ERR_ARGUMENT, 0,
                             "the key '%s' is in several sources, %s and %s; name one of them "
                             "with `source`",
                             rks_text_shown(s->key, s->key_size, shown), source_name(s, s->id),
                             source_name(s, id));
        return false;
    }
    s->id = id;
    s->found = true;
    return s->store->dataset->source_count > 1; /* a key is unique within a source */
}

static rks_status find_key(search *s, uint64_t *sample_id, rks_error *err)
{
    char shown[RKS_SHOWN_ROOM];
    if (s->key == NULL || s->key_size == 0 || s->key_size > RKS_KEY_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "a key has 1 to %d bytes, not %zu", RKS_KEY_MAX,
                        s->key_size);
    rks_status status =
        rks_index_find(s->store->index, rks_key_hash(s->key, s->key_size), try_candidate, s, err);
    if (status == RKS_OK)
        status = s->status;
    if (status != RKS_OK)
        return status;
    if (!s->found)
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0, "%s: no sample has the key '%s'",
                        s->store->directory, rks_text_shown(s->key, s->key_size, shown));
    *sample_id = s->id;
    return RKS_OK;
}

rks_status rks_store_find(rks_store *store, const void *key, size_t key_size, uint64_t *sample_id,
                          rks_error *err)
{
    search s = {.store = store, .key = key, .key_size = key_size, .end = UINT64_MAX, .err = err};
    return find_key(&s, sample_id, err);
}

rks_status rks_store_find_in(rks_store *store, size_t source, const void *key, size_t key_size,
                             uint64_t *sample_id, rks_error *err)
{
    rks_source of = {.struct_size = sizeof(of)};
    rks_status status = rks_store_source(store, source, &of, err);
    search s = {.store = store,
                .key = key,
                .key_size = key_size,
                .first = of.first,
                .end = of.first + of.count,
                .err = err};
    return status == RKS_OK ? find_key(&s, sample_id, err) : status;
}
