/* SPDX-License-Identifier: Apache-2.0
 *
 * node_index.c: the node's index. One rank of a node makes the memory, all map it; each shard that
 * some rank of the node sees is copied in by the lowest such rank; others come from the index files
 * of the dataset if the node has them (index_files.c), else by the exchange.
 *
 * A rank's stream in the exchange is the streams of the shards it sends, in dataset order. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "exchange/exchange.h"
#include "store/store.h"

/* ---- layout ------------------------------------------------------------------------- */

/* Divides units, without their excluded samples, into runs of samples that count, with consecutive
 * ids and rows. Returns how many runs there are. Unless `spans` is NULL, fills it and the store's
 * units. */
static size_t cut_spans(rks_store *store, rks_span *spans)
{
    const rks_dataset *dataset = store->dataset;
    const rks_excluded *excluded = &dataset->excluded;
    uint64_t position = 0, id = 0, run = 0;
    size_t used = 0;
    store->unit_count = 0;
    for (size_t i = 0; i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        uint64_t begin = position, end = position + unit->summary.samples, first_id = id;
        while (position < end) {
            const rks_excluded_run *next = run < excluded->run_count ? &excluded->runs[run] : NULL;
            if (next == NULL || position < next->first) {
                uint64_t stop = next == NULL || next->first > end ? end : next->first;
                if (spans != NULL)
                    spans[used] = (rks_span){id, stop - position, unit->shard,
                                             unit->first_row + (position - begin)};
                used++;
                id += stop - position;
                position = stop;
                continue;
            }
            uint64_t over = (uint64_t)next->first + next->count;
            position = over < end ? over : end;
            run += position == over;
        }
        if (id > first_id && spans != NULL) {
            store->unit_first[store->unit_count] = first_id;
            store->unit_number[store->unit_count++] = (uint32_t)i;
        }
    }
    return used;
}

static rks_status make_spans(rks_store *store, rks_span **spans, size_t *count, rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    *count = cut_spans(store, NULL);
    *spans = rks_alloc(*count, sizeof(**spans), err);
    store->unit_first = rks_alloc(dataset->unit_count, sizeof(*store->unit_first), err);
    store->unit_number = rks_alloc(dataset->unit_count, sizeof(*store->unit_number), err);
    if (*spans == NULL || store->unit_first == NULL || store->unit_number == NULL)
        return RKS_ERR_MEMORY;
    cut_spans(store, *spans);
    return RKS_OK;
}

static rks_status make_columns(const rks_dataset *dataset, rks_index_column **columns,
                               rks_error *err)
{
    rks_index_column *made = rks_alloc(dataset->index_count, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < dataset->index_count; i++) {
        int number = rks_schema_find(dataset->schema, dataset->index[i]);
        if (number < 0) {
            rks_free(made);
            return rks_fail(err, RKS_ERR_CORRUPT, 0, "index column '%s' is not in the schema",
                            dataset->index[i]);
        }
        const rks_column *column = rks_schema_column(dataset->schema, (uint32_t)number);
        snprintf(made[i].name, sizeof(made[i].name), "%s", column->name);
        snprintf(made[i].type, sizeof(made[i].type), "%.31s", column->type);
        made[i].item_size = column->item_size;
    }
    *columns = made;
    return RKS_OK;
}

/* ---- streams -------------------------------------------------------------------------- */

/* The streams of all ranks: a segment for each shard that is not empty. */
struct rks_index_streams {
    rks_exchange_segment *all;
    size_t *first;    /* see rks_exchange_segments */
    uint32_t *shards; /* of each segment */
    bool *has;        /* by rank: the node has all shards of its stream */
    rks_exchange_segments segments;
};

static void free_streams(rks_index_streams *streams)
{
    if (streams == NULL)
        return;
    rks_free(streams->all);
    rks_free(streams->first);
    rks_free(streams->shards);
    rks_free(streams->has);
    rks_free(streams);
}

/* Returns true if this node fills the shard's part of the index itself. */
static bool has_shard(const rks_store *store, uint32_t shard)
{
    uint32_t node = rks_group_node(store->group);
    return rks_store_first_to_see(store, node, shard) >= 0 ||
           rks_store_node_has_index(store, node, shard);
}

/* Adds a shard to its sender's stream, of which `next` segments are there. */
static void add_segment(const rks_store *store, uint32_t shard, rks_index_streams *to, size_t *next)
{
    int64_t sender = rks_store_index_sender(store, shard);
    uint64_t size = rks_index_stream_size(store->index, shard), begin = 0;
    if (sender < 0)
        return;
    if (!has_shard(store, shard))
        to->has[sender] = false;
    if (size == 0)
        return;
    if (next[sender] > to->first[sender])
        begin = to->all[next[sender] - 1].begin + to->all[next[sender] - 1].size;
    to->shards[next[sender]] = shard;
    to->all[next[sender]++] =
        (rks_exchange_segment){begin, size, rks_index_section_size(store->index)};
}

static rks_status make_streams(const rks_store *store, rks_index_streams **streams, rks_error *err)
{
    size_t shards = store->dataset->shard_count, ranks = rks_group_size(store->group);
    rks_index_streams *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    *streams = made; /* freed by its owner, also after a failure */
    made->all = rks_alloc(shards, sizeof(*made->all), err);
    made->shards = made->all == NULL ? NULL : rks_alloc(shards, sizeof(*made->shards), err);
    made->has = made->shards == NULL ? NULL : rks_alloc(ranks, sizeof(*made->has), err);
    made->first = made->has == NULL ? NULL : rks_alloc(ranks + 1, sizeof(*made->first), err);
    size_t *next = made->first == NULL ? NULL : rks_alloc(ranks, sizeof(*next), err);
    if (next == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < shards; i++) {
        int64_t sender = rks_store_index_sender(store, i);
        if (sender >= 0 && rks_index_stream_size(store->index, (uint32_t)i) > 0)
            made->first[sender + 1]++;
    }
    for (size_t rank = 0; rank < ranks; rank++) {
        made->first[rank + 1] += made->first[rank];
        next[rank] = made->first[rank];
        made->has[rank] = true;
    }
    for (size_t i = 0; i < shards; i++)
        add_segment(store, (uint32_t)i, made, next);
    rks_free(next);
    made->segments = (rks_exchange_segments){made->all, made->first};
    return RKS_OK;
}

static uint64_t stream_size(const rks_index_streams *streams, uint32_t rank)
{
    size_t end = streams->first[rank + 1];
    if (end == streams->first[rank])
        return 0;
    return streams->all[end - 1].begin + streams->all[end - 1].size;
}

static rks_index_layout layout_of(const rks_index_gather *f, const rks_store *store)
{
    return (rks_index_layout){.count = store->dataset->count,
                              .spans = f->spans,
                              .span_count = f->span_count,
                              .columns = f->columns,
                              .column_count = store->dataset->index_count};
}

/* A small index goes to memory anyway, but a wrong name should be reported before the dataset
 * grows. */
static rks_status check_index_dir(const rks_store *store, rks_error *err)
{
    const char *path = store->index_dir;
    struct stat info;
    if (path == NULL)
        return RKS_OK;
    if (stat(path, &info) != 0 || access(path, W_OK | X_OK) != 0)
        return rks_fail_errno(err, errno, "index_dir %s", path);
    return S_ISDIR(info.st_mode)
               ? RKS_OK
               : rks_fail(err, RKS_ERR_IO, ENOTDIR, "index_dir %s: no directory", path);
}

rks_status rks_filling_begin(rks_index_gather *f, rks_store *store, rks_error *err)
{
    rks_status status = make_spans(store, &f->spans, &f->span_count, err);
    if (status == RKS_OK)
        status = make_columns(store->dataset, &f->columns, err);
    const rks_index_layout layout = layout_of(f, store);
    if (status == RKS_OK && rks_group_is_leader(store->group))
        status = check_index_dir(store, err);
    if (status == RKS_OK && rks_group_is_leader(store->group))
        status = rks_index_memory(&layout, store->index_dir, &f->fd, err);
    return status == RKS_OK ? rks_fd_offer_open(store->group, f->fd, &f->offer, err) : status;
}

rks_status rks_filling_map(rks_index_gather *f, rks_store *store, const rks_agreed *agreed,
                           rks_error *err)
{
    int shared = -1;
    const rks_index_layout layout = layout_of(f, store);
    rks_status status = rks_fd_offer_take(f->offer, agreed, RKS_TELL_INDEX, &shared, err);
    if (status != RKS_OK)
        return status;
    status = rks_index_open(&layout, shared, &store->index, err);
    if (status != RKS_OK)
        close(shared); /* else the index owns it now */
    return status;
}

void rks_filling_end(rks_index_gather *f, const rks_store *store)
{
    rks_fd_offer_close(f->offer);
    if (f->fd >= 0)
        close(f->fd);
    for (size_t i = 0; f->intakes != NULL && i < store->dataset->shard_count; i++)
        rks_index_intake_free(f->intakes[i]);
    rks_free(f->intakes);
    free_streams(f->streams);
    rks_free(f->spans);
    rks_free(f->columns);
}

/* ---- this node's shards --------------------------------------------------------------- */

/* Returns the place of the shard's index column of that name; check_columns has found it. */
static size_t index_place(const rks_shard *shard, const char *name)
{
    size_t own = 0;
    while (strcmp(rks_shard_index_column(shard, own)->name, name) != 0)
        own++;
    return own;
}

static rks_status copy_span(rks_store *store, const rks_span *span, rks_error *err)
{
    rks_shard *shard = store->shards[span->shard];
    uint64_t id = span->first_id, row = span->first_row, count = span->count;
    rks_status status =
        rks_shard_copy_lengths(shard, row, count, rks_index_lengths(store->index) + id, err);
    if (status == RKS_OK)
        status = rks_shard_copy_key_hashes(shard, row, count,
                                           rks_index_key_hashes(store->index) + id, err);
    for (size_t i = 0; status == RKS_OK && i < store->dataset->index_count; i++) {
        uint8_t *data = rks_index_column_data(store->index, i);
        size_t own = index_place(shard, store->dataset->index[i]);
        uint32_t item = rks_shard_index_column(shard, own)->item_size;
        status = rks_shard_copy_column(shard, own, row, count, data + id * item, err);
    }
    return status;
}

static rks_status fail_other_contents(const rks_shard *shard, rks_error *err)
{
    return rks_fail(err, RKS_ERR_CORRUPT, 0,
                    "%s: schema, index columns or units differ from dataset.json",
                    rks_shard_path(shard));
}

/* Refuses a shard whose index columns differ from the dataset's: it would be copied past its
 * place. */
static rks_status check_columns(const rks_store *store, size_t number, rks_error *err)
{
    const rks_shard *shard = store->shards[number];
    const rks_dataset *own = rks_dataset_of_shard(store->dataset, number);
    bool same = rks_shard_index_columns(shard) == own->index_count &&
                strcmp(rks_schema_text(rks_shard_schema(shard)), rks_schema_text(own->schema)) == 0;
    for (size_t i = 0; same && i < own->index_count; i++)
        same = strcmp(rks_shard_index_column(shard, i)->name, own->index[i]) == 0;
    return same ? RKS_OK : fail_other_contents(shard, err);
}

/* Checks all units in one walk, however many shards there are. */
static rks_status check_units(const rks_store *store, rks_error *err)
{
    for (size_t i = 0; i < store->dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &store->dataset->units[i];
        const rks_shard *shard = store->shards[unit->shard];
        if (shard != NULL && (unit->first_row > rks_shard_count(shard) ||
                              unit->summary.samples > rks_shard_count(shard) - unit->first_row))
            return fail_other_contents(shard, err);
    }
    return RKS_OK;
}

static void mark_absent(rks_store *store, uint64_t id, uint64_t count)
{
    uint32_t *lengths = rks_index_lengths(store->index);
    for (uint64_t i = 0; i < count; i++)
        lengths[id + i] = RKS_LENGTH_ABSENT;
}

static rks_status check_shards(const rks_store *store, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < store->dataset->shard_count; i++)
        if (store->shards[i] != NULL)
            status = check_columns(store, i, err);
    return status == RKS_OK ? check_units(store, err) : status;
}

enum { UNKNOWN = -2 }; /* no rank knows the shard's part of the index */

rks_status rks_filling_copy(rks_index_gather *f, rks_store *store, rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    uint32_t rank = rks_group_rank(store->group), node = rks_group_node(store->group);
    rks_status status = check_shards(store, err);
    if (status != RKS_OK)
        return status;
    int64_t *fillers = rks_alloc(dataset->shard_count, sizeof(*fillers), err);
    if (fillers == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < dataset->shard_count; i++)
        fillers[i] =
            rks_store_index_sender(store, i) < 0 ? UNKNOWN : rks_store_first_to_see(store, node, i);
    for (size_t i = 0; status == RKS_OK && i < f->span_count; i++) {
        const rks_span *span = &f->spans[i];
        if (fillers[span->shard] == rank)
            status = copy_span(store, span, err);
        else if (fillers[span->shard] == UNKNOWN && rks_group_is_leader(store->group))
            mark_absent(store, span->first_id, span->count);
    }
    rks_free(fillers);
    if (status == RKS_OK)
        status = rks_store_read_index_files(store, f, &f->damaged, err);
    free_streams(f->streams);
    rks_free(f->intakes);
    f->streams = NULL;
    f->intakes = NULL;
    if (status == RKS_OK && rks_filling_travels(store)) {
        f->intakes = rks_alloc(dataset->shard_count, sizeof(*f->intakes), err);
        status = f->intakes == NULL ? RKS_ERR_MEMORY : make_streams(store, &f->streams, err);
    }
    return status;
}

/* ---- the other nodes' shards ------------------------------------------------------------ */

typedef struct stream {
    rks_store *store;
    const rks_index_streams *streams;
    rks_index_intake **intakes; /* one a shard, made when its first byte arrives */
} stream;

/* The part of a rank's stream that lies in one shard. */
typedef struct section {
    uint32_t shard;
    uint64_t offset; /* in that shard's stream */
    size_t size;
} section;

/* Finds the section at `offset` of the sender's stream, of at most `size` bytes. Returns false
 * after the end. */
static bool find_section(const rks_index_streams *streams, uint32_t sender, uint64_t offset,
                         size_t size, section *found)
{
    const rks_exchange_segment *in = rks_exchange_segment_at(&streams->segments, sender, offset);
    if (in == NULL)
        return false;
    uint64_t within = offset - in->begin, left = in->size - within;
    *found =
        (section){streams->shards[in - streams->all], within, size < left ? size : (size_t)left};
    return true;
}

/* Reads the stream of a rank of this node. Its shards are in the node's index. */
static rks_status stream_read(void *user, uint32_t sender, uint64_t offset, void *bytes,
                              size_t size, rks_error *err)
{
    const stream *s = user;
    rks_status status = RKS_OK;
    section one;
    for (size_t at = 0; status == RKS_OK && at < size; at += one.size) {
        if (!find_section(s->streams, sender, offset + at, size - at, &one))
            return rks_fail(err, RKS_ERR_PEER, 0, "a rank asked beyond the index's end");
        status = rks_index_stream_read(s->store->index, one.shard, one.offset,
                                       (uint8_t *)bytes + at, one.size, err);
    }
    return status;
}

static rks_status stream_write(void *user, uint32_t sender, uint64_t offset, const void *bytes,
                               size_t size, rks_error *err)
{
    stream *s = user;
    rks_status status = RKS_OK;
    section one;
    for (size_t at = 0; status == RKS_OK && at < size; at += one.size) {
        if (!find_section(s->streams, sender, offset + at, size - at, &one))
            return rks_fail(err, RKS_ERR_PEER, 0, "rank %u sent more index than it has", sender);
        rks_index_intake **intake = &s->intakes[one.shard];
        if (*intake == NULL)
            status = rks_index_intake_create(s->store->index, one.shard, one.offset, intake, err);
        if (status == RKS_OK)
            status = rks_index_intake_write(*intake, (const uint8_t *)bytes + at, one.size, err);
    }
    if (status != RKS_OK)
        rks_error_place(err, sender, rks_group_host(s->store->group, sender));
    return status;
}

static void free_intakes(void *user)
{
    stream *s = user;
    for (size_t i = 0; i < s->store->dataset->shard_count; i++) {
        rks_index_intake_free(s->intakes[i]);
        s->intakes[i] = NULL;
    }
}

static rks_status end_intakes(stream *s, uint64_t *taken, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < s->store->dataset->shard_count; i++) {
        uint64_t bytes = 0;
        if (s->intakes[i] != NULL)
            status = rks_index_intake_end(s->intakes[i], &bytes, err);
        *taken += bytes;
    }
    return status;
}

/* Checks that the ranks of a node, which receive parts of its streams, have together received all
 * that its receiver needed. If a node lacks some, all ranks return the error of the first such
 * node. */
rks_status rks_filling_check(rks_store *store, const rks_agreed *agreed, size_t fact,
                             rks_error *err)
{
    for (uint32_t node = 0; node < rks_group_nodes(store->group); node++) {
        uint64_t have = 0, want = 0, received = 0;
        for (uint32_t rank = 0; rank < rks_group_size(store->group); rank++) {
            if (rks_group_node_of(store->group, rank) != node)
                continue;
            const uint8_t *bytes = rks_agreed_get(agreed, rank, fact, NULL);
            have += rks_load_u64(bytes);
            want += rks_load_u64(bytes + 8);
            received += rks_load_u64(bytes + 16);
        }
        if (node == rks_group_node(store->group) && rks_filling_travels(store))
            store->exchange_bytes = received;
        if (have != want)
            return rks_fail(err, RKS_ERR_CORRUPT, 0,
                            "the index of the other ranks: %llu of %llu bytes have come",
                            (unsigned long long)have, (unsigned long long)want);
    }
    return RKS_OK;
}

static const char *backend_of(const rks_store *store)
{
    return store->options.exchange == NULL ? "auto" : store->options.exchange;
}

/* Returns true if the user named a backend: it then runs although the node has everything. */
static bool is_named(const rks_store *store)
{
    return strcmp(backend_of(store), "auto") != 0;
}

bool rks_filling_travels(const rks_store *store)
{
    return is_named(store) || rks_group_nodes(store->group) > 1;
}

static uint64_t wanted_bytes(const rks_store *store, const rks_index_streams *streams)
{
    uint64_t bytes = 0;
    for (uint32_t rank = 0; rank < rks_group_size(store->group); rank++)
        if (rank != rks_group_rank(store->group) && (is_named(store) || !streams->has[rank]))
            bytes += stream_size(streams, rank);
    return bytes;
}

rks_status rks_filling_exchange(rks_index_gather *f, rks_store *store, rks_error *err)
{
    stream s = {.store = store, .streams = f->streams, .intakes = f->intakes};
    rks_exchange_stats stats = {0};
    rks_exchange_job job = {
        .size = stream_size(f->streams, rks_group_rank(store->group)),
        .receives = rks_group_is_leader(store->group),
        .shares = true,
        .checks = true, /* a section of an index stream has a checksum in its head */
        .segments = &f->streams->segments,
        .has = is_named(store) ? NULL : f->streams->has,
        .reads_node = true,
        .read = stream_read,
        .write = stream_write,
        .restart = free_intakes,
        .user = &s,
    };
    f->wanted = job.receives ? wanted_bytes(store, f->streams) : 0;
    rks_status status =
        rks_exchange_run(store->group, backend_of(store), &job, &stats, &store->exchange_name, err);
    f->received = stats.bytes_received;
    snprintf(store->exchange_why, sizeof(store->exchange_why), "%s", stats.why);
    return status == RKS_OK ? end_intakes(&s, &f->taken, err) : status;
}

/* Returns the bytes that the ranks of a node bring into the shared index: their streams, without
 * the heads of sections. */
static uint64_t shared_bytes(const rks_store *store)
{
    uint64_t item = 12;
    for (size_t i = 0; i < store->dataset->index_count; i++) {
        int column = rks_schema_find(store->dataset->schema, store->dataset->index[i]);
        item += rks_schema_column(store->dataset->schema, (uint32_t)column)->item_size;
    }
    return store->dataset->count * item;
}

rks_status rks_filling_seal(const rks_index_gather *f, rks_store *store, rks_error *err)
{
    bool leads = rks_group_is_leader(store->group);
    if (!rks_filling_travels(store)) {
        store->exchange_name = "shared";
        store->exchange_bytes = shared_bytes(store);
        snprintf(store->exchange_why, sizeof(store->exchange_why), "auto: all ranks share a node");
    }
    rks_status status = rks_index_seal(store->index, leads, err);
    return status == RKS_OK ? rks_store_note_absent(store, f, err) : status;
}
