/* SPDX-License-Identifier: Apache-2.0
 *
 * gather.c: uneven results of all ranks to one. Results are samples: each rank builds a shard of
 * its own in a temporary directory, with the key
 *
 *   name, one NUL, index as 8 bytes big-endian
 *
 * A name for which a key has no room stands there as its first 486 bytes and its digest: such keys
 * alone have 511 bytes. The destination receives all names through the exchange, sorts them, and
 * fetches the samples in the order of (name, index) a window at a time: its memory is the names and
 * two windows. A name travels as
 *
 *   u16 size of the name, u64 bytes of the result, u64 index, name */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/call_memory.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "builder/row_writer.h"
#include "dataset/build_directory.h"
#include "exchange/exchange.h"
#include "rankstore/gather.h"
#include "store/store.h"

enum {
    WINDOW_BYTES = 8 << 20,
    WINDOW_ITEMS = 1024,
    HEAD = 18,
    SHOWN = 64,
    BEHIND_NAME = 9, /* bytes of a key after the name */
    NAME_CUT = RKS_KEY_MAX - BEHIND_NAME - RKS_DIGEST_SIZE,
};

struct rks_gather {
    rks_group *group;
    rks_row_writer *writer;
    char *directory;
    rks_buffer keys; /* names and indexes of this rank's results, in the order of adding, which is
                      * row order */
    uint32_t columns;
};

/* A result, as the destination knows it. */
typedef struct entry {
    const uint8_t *name;
    uint64_t index;
    uint64_t bytes;
    uint32_t name_size;
    uint32_t id;
} entry;

static size_t result_key(const void *name, size_t size, uint64_t index, uint8_t key[RKS_KEY_MAX])
{
    uint64_t big = htobe64(index);
    size_t at = size;
    memcpy(key, name, size < RKS_KEY_MAX ? size : RKS_KEY_MAX);
    if (size + BEHIND_NAME >= RKS_KEY_MAX) {
        rks_digest digest = rks_checksum128(name, size);
        rks_store_u64(key + NAME_CUT, digest.low);
        rks_store_u64(key + NAME_CUT + 8, digest.high);
        at = NAME_CUT + RKS_DIGEST_SIZE;
    }
    key[at] = 0;
    memcpy(key + at + 1, &big, sizeof(big));
    return at + BEHIND_NAME;
}

/* Writes a name of any bytes for people, cut to SHOWN bytes between characters. */
static void show_name(const void *name, size_t size, char text[SHOWN + 4])
{
    const uint8_t *bytes = name;
    size_t shown = size < SHOWN ? size : SHOWN;
    while (shown < size && shown > 0 && (bytes[shown] & 0xc0) == 0x80)
        shown--;
    for (size_t i = 0; i < shown; i++)
        text[i] = (char)(bytes[i] < 0x20 || bytes[i] == 0x7f ? '?' : bytes[i]);
    snprintf(text + shown, 4, "%s", shown < size ? "..." : "");
}

static void describe_key(const void *key, size_t size, char *text, size_t room)
{
    char name[SHOWN + 4];
    uint64_t big;
    if (size <= BEHIND_NAME) {
        snprintf(text, room, "a malformed key");
        return;
    }
    memcpy(&big, (const uint8_t *)key + size - sizeof(big), sizeof(big));
    show_name(key, size - BEHIND_NAME, name);
    snprintf(text, room, "result ('%s', %" PRIu64 ")", name, be64toh(big));
}

/* The rank is all that there is to say. */
static void describe_no_place(void *user, const rks_dataset *dataset, size_t unit, uint64_t row,
                              char *text, size_t room)
{
    (void)user, (void)dataset, (void)unit, (void)row, (void)room;
    text[0] = '\0';
}

static rks_status make_directory(rks_gather *gather, const char *directory, rks_error *err)
{
    const char *base = directory != NULL ? directory : getenv("TMPDIR");
    if (base == NULL || base[0] == '\0')
        base = "/tmp";
    gather->directory = rks_format(err, "%s/rankstore-gather-XXXXXX", base);
    if (gather->directory == NULL)
        return RKS_ERR_MEMORY;
    if (mkdtemp(gather->directory) == NULL) {
        rks_status status = rks_fail_errno(err, errno, "%s: making a temporary directory", base);
        rks_free(gather->directory);
        gather->directory = NULL;
        return status;
    }
    return RKS_OK;
}

static void remove_directory(rks_gather *gather)
{
    if (gather->directory == NULL)
        return;
    rks_directory_remove(gather->directory);
    rks_free(gather->directory);
    gather->directory = NULL;
}

rks_status rks_gather_open(rks_group *group, const char *schema, const char *directory,
                           rks_gather **gather, rks_error *err)
{
    const rks_key_words words = {.key = describe_key, .place = describe_no_place};
    rks_row_writer *writer = NULL;
    rks_gather *opened = rks_alloc(1, sizeof(*opened), err);
    rks_status status = RKS_ERR_MEMORY;
    if (opened != NULL) {
        opened->group = group;
        status = make_directory(opened, directory, err);
    }
    status = rks_row_writer_open(group, status, opened == NULL ? NULL : opened->directory, schema,
                                 &words, &writer, err);
    if (status == RKS_OK) {
        opened->writer = writer;
        opened->columns = rks_row_writer_columns(writer);
    }
    if (status != RKS_OK) {
        rks_gather_close(opened);
        return status;
    }
    *gather = opened;
    return RKS_OK;
}

rks_status rks_gather_add_named(rks_gather *gather, const void *name, size_t name_size,
                                uint64_t index, const rks_value *values, rks_error *err)
{
    if (name == NULL || name_size == 0 || name_size > RKS_KEY_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "a result's name has 1 to %d bytes, not %zu",
                        RKS_KEY_MAX, name == NULL ? 0 : name_size);
    uint8_t head[HEAD], key[RKS_KEY_MAX];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < gather->columns; i++)
        bytes += values[i].size;
    rks_store_u16(head, (uint16_t)name_size);
    rks_store_u64(head + 2, bytes);
    rks_store_u64(head + 10, index);
    rks_status status = rks_buffer_reserve(&gather->keys, HEAD + name_size, err);
    if (status == RKS_OK)
        status = rks_row_writer_add(gather->writer, values, key,
                                    result_key(name, name_size, index, key), err);
    if (status == RKS_OK)
        status = rks_buffer_add(&gather->keys, head, HEAD, err); /* room is reserved */
    return status == RKS_OK ? rks_buffer_add(&gather->keys, name, name_size, err) : status;
}

rks_status rks_gather_add(rks_gather *gather, const char *name, uint64_t index,
                          const rks_value *values, rks_error *err)
{
    return rks_gather_add_named(gather, name, name == NULL ? 0 : strlen(name), index, values, err);
}

/* ---- keys to the destination ---------------------------------------------------------------- */

typedef struct intake {
    rks_gather *gather;
    rks_buffer *keys; /* by sender, on the destination */
    bool receives;
} intake;

static rks_status keys_read(void *user, uint32_t sender, uint64_t offset, void *bytes, size_t size,
                            rks_error *err)
{
    (void)sender;
    const rks_buffer *keys = &((intake *)user)->gather->keys;
    if (offset > keys->size || size > keys->size - offset)
        return rks_fail(err, RKS_ERR_PEER, 0, "a rank asked for keys that are not there");
    memcpy(bytes, keys->data + offset, size);
    return RKS_OK;
}

static rks_status keys_write(void *user, uint32_t sender, uint64_t offset, const void *bytes,
                             size_t size, rks_error *err)
{
    (void)offset; /* bytes come in order */
    return rks_buffer_add(&((intake *)user)->keys[sender], bytes, size, err);
}

static int by_name_and_index(const void *a, const void *b)
{
    const entry *left = a, *right = b;
    uint32_t size = left->name_size < right->name_size ? left->name_size : right->name_size;
    int order = memcmp(left->name, right->name, size);
    if (order != 0)
        return order;
    if (left->name_size != right->name_size)
        return left->name_size < right->name_size ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

/* Ids are in unit order, and a rank's unit number is its rank. So they go rank after rank, in the
 * order of adding. */
static rks_status list_entries(const rks_store *store, const rks_buffer *keys, uint32_t ranks,
                               entry **entries, rks_error *err)
{
    uint64_t count = rks_store_count(store), id = 0;
    entry *list = rks_alloc_raw(count, sizeof(*list), err);
    if (list == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        for (size_t at = 0; at < keys[rank].size; id++) {
            const uint8_t *record = keys[rank].data + at;
            size_t left = keys[rank].size - at;
            uint16_t size = left < HEAD ? 0 : rks_load_u16(record);
            uint64_t index = left < HEAD ? 0 : rks_load_u64(record + 10);
            uint8_t key[RKS_KEY_MAX];
            if (size == 0 || size > RKS_KEY_MAX || left < (size_t)HEAD + size || id >= count ||
                rks_key_hash(key, result_key(record + HEAD, size, index, key)) !=
                    rks_index_key_hashes(store->index)[id]) {
                rks_free(list);
                return rks_fail(err, RKS_ERR_PEER, 0, "rank %u sent a malformed list of names",
                                rank);
            }
            list[id] = (entry){record + HEAD, index, rks_load_u64(record + 2), size, (uint32_t)id};
            at += (size_t)HEAD + size;
        }
    }
    if (id != count) {
        rks_free(list);
        return rks_fail(err, RKS_ERR_PEER, 0, "%" PRIu64 " names for %" PRIu64 " results", id,
                        count);
    }
    qsort(list, count, sizeof(*list), by_name_and_index);
    *entries = list;
    return RKS_OK;
}

/* ---- delivery -------------------------------------------------------------------------------- */

static void count_gaps(const entry *entries, uint64_t count, rks_gather_report *report)
{
    size_t used = 0;
    for (uint64_t i = 0; i < count; i++) {
        const entry *this = &entries[i], *last = i == 0 ? NULL : &entries[i - 1];
        bool same = last != NULL && this->name_size == last->name_size &&
                    memcmp(this->name, last->name, this->name_size) == 0;
        report->names += !same;
        if (!same || this->index == last->index + 1)
            continue;
        report->gaps += this->index - last->index - 1;
        char name[SHOWN + 4];
        show_name(this->name, this->name_size, name);
        if (used < sizeof(report->gap_first))
            used += (size_t)snprintf(report->gap_first + used, sizeof(report->gap_first) - used,
                                     "%s%s: %" PRIu64 "..%" PRIu64, used == 0 ? "" : "; ", name,
                                     last->index + 1, this->index - 1);
    }
    report->items = count;
}

static rks_status deliver_batch(rks_store *store, rks_batch *batch, const entry *entries,
                                rks_value *values, rks_gather_fn receive, void *user,
                                rks_error *err)
{
    uint32_t columns = rks_schema_columns(rks_store_schema(store));
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < rks_batch_count(batch); i++) {
        char name[RKS_KEY_MAX + 1];
        rks_gather_item item = {.name = name,
                                .index = entries[i].index,
                                .values = values,
                                .name_size = entries[i].name_size};
        memcpy(name, entries[i].name, entries[i].name_size);
        name[entries[i].name_size] = '\0';
        item.rank = (uint32_t)rks_store_owner(store, entries[i].id);
        for (uint32_t column = 0; status == RKS_OK && column < columns; column++)
            status = rks_batch_value(batch, i, column, &values[column], err);
        if (status == RKS_OK)
            status = receive(user, &item, err);
    }
    return status;
}

/* Starts to fetch the next window: results of about WINDOW_BYTES together, at least one. *fetch
 * stays NULL at the end. */
static rks_status start_window(rks_store *store, const entry *entries, uint64_t first,
                               uint64_t *ids, rks_fetch **fetch, rks_error *err)
{
    uint64_t count = rks_store_count(store), bytes = 0;
    size_t items = 0;
    while (first + items < count && items < WINDOW_ITEMS) {
        const entry *next = &entries[first + items];
        if (items > 0 && (bytes > WINDOW_BYTES || next->bytes > WINDOW_BYTES - bytes))
            break;
        bytes += next->bytes < WINDOW_BYTES ? next->bytes : WINDOW_BYTES;
        ids[items++] = next->id;
    }
    return items == 0 ? RKS_OK : rks_store_fetch_start(store, ids, items, fetch, err);
}

/* Fetches one window while the caller receives the one before it. */
static rks_status deliver(rks_store *store, const entry *entries, rks_gather_fn receive, void *user,
                          rks_error *err)
{
    uint64_t first = 0;
    uint64_t *ids = rks_alloc(WINDOW_ITEMS, sizeof(*ids), err);
    rks_value *values =
        rks_alloc(rks_schema_columns(rks_store_schema(store)), sizeof(*values), err);
    rks_fetch *next = NULL;
    rks_status status = ids == NULL || values == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        status = start_window(store, entries, 0, ids, &next, err);
    while (status == RKS_OK && next != NULL) {
        rks_batch *batch = NULL;
        rks_fetch *current = next;
        next = NULL;
        status = rks_fetch_wait(current, &batch, err);
        if (status != RKS_OK)
            break;
        uint64_t after = first + rks_batch_count(batch);
        status = start_window(store, entries, after, ids, &next, err);
        if (status == RKS_OK)
            status = deliver_batch(store, batch, entries + first, values, receive, user, err);
        rks_batch_free(batch);
        first = after;
    }
    rks_fetch_cancel(next);
    rks_free(ids);
    rks_free(values);
    return status;
}

static rks_status collect_keys(rks_gather *gather, uint32_t dst, rks_buffer *keys, rks_error *err)
{
    intake in = {gather, keys, rks_group_rank(gather->group) == dst};
    rks_exchange_stats stats = {0};
    const char *used = NULL;
    rks_exchange_job job = {
        .size = gather->keys.size,
        .receives = in.receives,
        .read = keys_read,
        .write = keys_write,
        .user = &in,
    };
    rks_status status = rks_exchange_run(gather->group, "auto", &job, &stats, &used, err);
    if (status == RKS_OK && in.receives)
        status = rks_buffer_add(&keys[dst], gather->keys.data, gather->keys.size, err);
    return status;
}

/* Each name has at least a byte. */
static rks_status check_memory(uint64_t results, rks_error *err)
{
    char what[48];
    snprintf(what, sizeof(what), "gather: %" PRIu64 " results", results);
    return rks_memory_check(rks_memory_of_gather(results, (HEAD + 1) * results, 0), what,
                            "; gather fewer at once", err);
}

static rks_status run_gather(rks_gather *gather, rks_store *store, uint32_t dst,
                             rks_gather_fn receive, void *user, rks_gather_report *report,
                             rks_error *err)
{
    uint32_t ranks = rks_group_size(gather->group);
    bool mine = rks_group_rank(gather->group) == dst;
    entry *entries = NULL;
    rks_buffer *keys = rks_alloc(ranks, sizeof(*keys), err);
    char to[16];
    snprintf(to, sizeof(to), "%u", dst);
    const rks_fact same = rks_fact_same_shown("dst", to); /* also reports that memory for the keys
                                                           * is short */
    rks_status status = keys == NULL ? RKS_ERR_MEMORY
                        : mine       ? check_memory(rks_store_count(store), err)
                                     : RKS_OK;
    status = rks_group_agree_on(gather->group, "gather: names", status, &same, 1, NULL, err);
    if (status == RKS_OK)
        status = collect_keys(gather, dst, keys, err);
    if (status == RKS_OK && mine)
        status = list_entries(store, keys, ranks, &entries, err);
    if (status == RKS_OK && mine) {
        count_gaps(entries, rks_store_count(store), report);
        status = deliver(store, entries, receive, user, err);
    }
    const rks_fact fact = rks_fact_optional(mine ? report : NULL, sizeof(*report));
    rks_agreed agreed;
    size_t come = 0;
    status = rks_group_agree_on(gather->group, "gather: delivered", status, &fact, 1, &agreed, err);
    const void *described = status == RKS_OK ? rks_agreed_get(&agreed, dst, 0, &come) : NULL;
    if (described != NULL && come == sizeof(*report))
        memcpy(report, described, come);
    for (uint32_t rank = 0; keys != NULL && rank < ranks; rank++)
        rks_buffer_free(&keys[rank]);
    rks_free(keys);
    rks_free(entries);
    return status;
}

rks_status rks_gather_run(rks_gather *gather, rks_status status, uint32_t dst,
                          rks_gather_fn receive, void *user, rks_gather_report *report,
                          rks_error *err)
{
    rks_gather_report made = {.struct_size = sizeof(made)};
    rks_store *store = NULL;
    if (status == RKS_OK && dst >= rks_group_size(gather->group))
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "dst: there is no rank %u", dst);
    if (status == RKS_OK && rks_group_rank(gather->group) == dst && receive == NULL)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "receive: rank %u needs a callback", dst);
    status = rks_row_writer_commit(gather->writer, status, err);
    if (status == RKS_OK)
        status = rks_store_open(gather->group, gather->directory, NULL, &store, err);
    if (status == RKS_OK) {
        remove_directory(gather); /* the maps keep the bytes, so a kill from now on leaves
                                   * nothing */
        status = run_gather(gather, store, dst, receive, user, &made, err);
    }
    rks_store_close(store, 0);
    remove_directory(gather);
    if (status == RKS_OK && report != NULL) {
        size_t room = report->struct_size;
        memcpy(report, &made, room < sizeof(made) ? room : sizeof(made));
        report->struct_size = room;
    }
    return status;
}

void rks_gather_close(rks_gather *gather)
{
    if (gather == NULL)
        return;
    rks_row_writer_close(gather->writer);
    remove_directory(gather);
    rks_buffer_free(&gather->keys);
    rks_free(gather);
}
