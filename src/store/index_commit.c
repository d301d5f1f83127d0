/* SPDX-License-Identifier: Apache-2.0
 *
 * index_commit.c: the index files of a commit. What is added lies in the node's index, since the
 * sealed shards were opened as a store. A new file takes small files of the base into it. */
#include "store/index_commit.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "store/store.h"

/* Reads a file whole: a damaged one counts as missing, as it does when the dataset is opened. */
static bool is_good(const char *directory, const rks_index_file *file, rks_index_items items)
{
    rks_index_reader *reader = NULL;
    if (rks_index_reader_open(directory, file, items, &reader, NULL) != RKS_OK)
        return false;
    uint8_t *room = rks_alloc_raw(rks_index_reader_room(reader), 1, NULL);
    bool good = room != NULL;
    for (uint64_t i = 0; good && i < rks_index_reader_segments(reader); i++)
        good = rks_index_reader_read(reader, i, room, NULL) == RKS_OK;
    rks_index_reader_close(reader);
    rks_free(room);
    return good;
}

void rks_commit_choose_index_writer(const rks_agreed *agreed, size_t fact, rks_index_commit *commit)
{
    const rks_group *group = agreed->group;
    int64_t first = -1;
    for (uint32_t rank = 0; rank < rks_group_size(group); rank++) {
        const uint8_t *writes = rks_agreed_get(agreed, rank, fact, NULL);
        if (first < 0 && *writes != 0 && rks_group_node_of(group, rank) == rks_group_node(group))
            first = rank;
    }
    commit->writes = first == rks_group_rank(group);
}

typedef struct committing {
    const rks_index_commit *commit;
    rks_index_items items;
    size_t before; /* files of the base */
    size_t kept;   /* its first ones, which stay; the others are taken into the new file */
    rks_index_piece pieces[RKS_INDEX_FILES_MAX + 1];
    uint8_t **arrays[RKS_INDEX_FILES_MAX + 1]; /* of each piece */
    size_t piece_count;
} committing;

/* Returns how many files of the base stay beside a new one of `samples`. */
static size_t count_kept(const rks_dataset *base, uint64_t samples)
{
    size_t kept = base == NULL ? 0 : base->index_file_count;
    while (kept > 0 &&
           (base->index_files[kept - 1].samples < 2 * samples || kept == RKS_INDEX_FILES_MAX))
        samples += base->index_files[--kept].samples;
    return kept;
}

bool rks_commit_lacks_index(const char *directory, const rks_dataset *base, uint64_t samples)
{
    rks_index_items items = {0};
    bool good = samples == 0 || rks_dataset_index_items(base, &items, NULL) == RKS_OK;
    for (size_t i = count_kept(base, samples); samples > 0 && good && i < base->index_file_count;
         i++)
        good = is_good(directory, &base->index_files[i], items);
    rks_free((void *)(uintptr_t)items.sizes);
    return !good;
}

static void free_piece(committing *c, size_t piece)
{
    for (size_t i = 0; c->arrays[piece] != NULL && i < c->items.count; i++)
        rks_free(c->arrays[piece][i]);
    rks_free(c->arrays[piece]);
}

/* Reads a whole file of the base as the next piece. */
static rks_status load_piece(committing *c, const rks_index_file *file, rks_error *err)
{
    size_t piece = c->piece_count++;
    rks_index_reader *reader = NULL;
    uint8_t **arrays = rks_alloc(c->items.count, sizeof(*arrays), err);
    c->arrays[piece] = arrays;
    rks_status status = arrays == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < c->items.count; i++) {
        arrays[i] = rks_alloc_raw(file->samples, c->items.sizes[i], err);
        status = arrays[i] == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    if (status == RKS_OK)
        status = rks_index_reader_open(c->commit->directory, file, c->items, &reader, err);
    uint64_t segments = status == RKS_OK ? rks_index_reader_segments(reader) : 0;
    for (uint64_t i = 0; status == RKS_OK && i < segments; i++) {
        const rks_index_segment segment = rks_index_reader_segment(reader, i);
        uint8_t *to = arrays[segment.array] + segment.first * c->items.sizes[segment.array];
        status = rks_index_reader_read(reader, i, to, err);
    }
    rks_index_reader_close(reader);
    c->pieces[piece] = (rks_index_piece){(const uint8_t *const *)arrays, file->samples};
    return status;
}

static void free_pieces(committing *c)
{
    for (size_t i = 0; i < c->piece_count; i++)
        free_piece(c, i);
    c->piece_count = 0;
}

/* Reads the files whose samples the new one has, too. */
static rks_status load_pieces(committing *c, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = c->kept; status == RKS_OK && i < c->before; i++)
        status = load_piece(c, &c->commit->base->index_files[i], err);
    return status;
}

/* Adds what lies in the node's index as the last piece. */
static rks_status add_new_piece(committing *c, const uint8_t **arrays, uint64_t samples,
                                rks_error *err)
{
    rks_store *store = c->commit->store;
    if (rks_store_count(store) < samples)
        return rks_fail(err, RKS_ERR_STATE, 0, "index: %" PRIu64 " samples for %" PRIu64 " added",
                        rks_store_count(store), samples);
    uint64_t first = rks_store_count(store) - samples;
    for (size_t i = 0; i < c->items.count; i++) {
        const void *all = i == 0   ? (const void *)rks_store_lengths(store)
                          : i == 1 ? (const void *)rks_store_key_hashes(store)
                                   : rks_index_column_data(store->index, i - RKS_INDEX_FILE_ARRAYS);
        arrays[i] = (const uint8_t *)all + first * c->items.sizes[i];
    }
    c->pieces[c->piece_count] = (rks_index_piece){arrays, samples};
    return RKS_OK;
}

static rks_status make_new(committing *c, uint64_t samples, rks_index_file *made, rks_error *err)
{
    const uint8_t **arrays = rks_alloc(c->items.count, sizeof(*arrays), err);
    rks_status status = arrays == NULL ? RKS_ERR_MEMORY : add_new_piece(c, arrays, samples, err);
    if (status == RKS_OK)
        status = rks_index_file_write(c->commit->writes ? c->commit->directory : NULL, c->items,
                                      c->pieces, c->piece_count + 1, made, err);
    rks_free(arrays);
    return status;
}

rks_status rks_commit_index(const rks_index_commit *commit, rks_dataset *dataset, rks_error *err)
{
    const rks_dataset *base = commit->base;
    uint64_t samples = dataset->count - (base == NULL ? 0 : base->count);
    committing c = {.commit = commit, .before = base == NULL ? 0 : base->index_file_count};
    rks_index_file made = {0};
    if (c.before > 0)
        memcpy(dataset->index_files, base->index_files, sizeof(dataset->index_files));
    dataset->index_file_count = c.before;
    if (samples == 0)
        return RKS_OK;
    c.kept = commit->keeps_all ? c.before : count_kept(base, samples);
    dataset->index_file_count = 0;
    if (c.kept == RKS_INDEX_FILES_MAX) /* there is room for no other one */
        return RKS_OK;
    rks_status status = rks_dataset_index_items(dataset, &c.items, err);
    if (status == RKS_OK)
        status = load_pieces(&c, err);
    if (status == RKS_OK)
        status = make_new(&c, samples, &made, err);
    if (made.name[0] != '\0') { /* after a failure, too: the caller removes what it names */
        dataset->index_files[c.kept] = made;
        dataset->index_file_count = c.kept + 1;
    }
    free_pieces(&c);
    rks_free((void *)(uintptr_t)c.items.sizes);
    return status;
}
