/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.c: samples that have arrived, and the public calls that read them.
 *
 * Samples stay where they were received or copied. A batch has one allocation for itself, one for
 * its list, one for all samples from maps of this node, and one for each reply. */
#include "fetch/batch.h"

#include <inttypes.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "fetch/fetcher.h"
#include "fetch/wire.h"

/* A derived key, computed on first use. */
struct rks_derived_key {
    size_t size;
    uint8_t key[RKS_KEY_MAX + 1];
};

rks_status rks_batch_create(rks_request_list *list, rks_batch **batch, rks_error *err)
{
    size_t bytes = sizeof(rks_batch) + list->count * sizeof(rks_record_view);
    rks_batch *made = rks_alloc_raw(bytes, 1, err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    memset(made, 0, sizeof(*made));
    made->list = list;
    made->fetcher = list->fetcher;
    made->schema = list->fetcher->options.schema;
    made->count = list->count;
    made->wanted = list->wanted;
    made->views = (rks_record_view *)(made + 1);
    made->decoded = SIZE_MAX;
    made->own_bytes = bytes;
    made->bytes = list->bytes + bytes;
    rks_blocks_count(list->fetcher->pool, (int64_t)bytes);
    *batch = made;
    return RKS_OK;
}

const rks_piece *rks_batch_pieces(const rks_batch *batch, size_t *count)
{
    *count = batch->list->piece_count;
    return batch->list->pieces;
}

void rks_batch_add(rks_batch *batch, rks_block *block)
{
    block->next = batch->blocks;
    batch->blocks = block;
    batch->bytes += block->bytes;
}

void rks_batch_discard(rks_batch *batch)
{
    rks_fetcher *fetcher = batch->fetcher;
    rks_blocks_count(fetcher->pool, -(int64_t)batch->own_bytes);
    while (batch->blocks != NULL) {
        rks_block *next = batch->blocks->next;
        rks_blocks_give(fetcher->pool, batch->blocks);
        batch->blocks = next;
    }
    for (size_t i = 0; batch->keys != NULL && i < batch->count; i++)
        rks_free(batch->keys[i]);
    rks_free(batch->keys);
    rks_free(batch->values);
    rks_free(batch);
}

void rks_batch_free(rks_batch *batch)
{
    if (batch == NULL)
        return;
    rks_request_list *list = batch->list; /* holds the fetcher */
    rks_batch_discard(batch);
    rks_request_list_free(list);
}

size_t rks_batch_count(const rks_batch *batch)
{
    return batch->count;
}

uint64_t rks_batch_id(const rks_batch *batch, size_t i)
{
    return i < batch->count ? batch->wanted[i].id : UINT64_MAX;
}

uint32_t rks_batch_length(const rks_batch *batch, size_t i)
{
    return i < batch->count ? batch->wanted[i].length : 0;
}

/* Derives the key of a sample whose key is not stored. Returns its size; 0 if it is unknown. */
static size_t derive_key(const rks_batch *batch, size_t i, uint8_t *key)
{
    const rks_fetcher_options *options = &batch->fetcher->options;
    if (options->derive_key == NULL)
        return 0;
    return options->derive_key(options->user, batch->wanted[i].id, batch->views[i].source_row, key);
}

/* Derives and keeps a key. Needs no lock, since a batch has one user at a time. */
static const rks_derived_key *remember_key(rks_batch *batch, size_t i)
{
    if (batch->keys == NULL)
        batch->keys = rks_alloc(batch->count, sizeof(*batch->keys), NULL);
    if (batch->keys == NULL || batch->keys[i] != NULL)
        return batch->keys == NULL ? NULL : batch->keys[i];
    rks_derived_key *made = rks_alloc(1, sizeof(*made), NULL);
    if (made == NULL)
        return NULL;
    made->size = derive_key(batch, i, made->key);
    batch->keys[i] = made;
    return made;
}

const void *rks_batch_key(const rks_batch *batch, size_t i, size_t *size)
{
    if (i >= batch->count)
        return NULL;
    const rks_record_view *view = &batch->views[i];
    const uint8_t *key = view->key;
    size_t key_size = view->key_size;
    if (key_size == 0) {
        const rks_derived_key *derived = remember_key((rks_batch *)(uintptr_t)batch, i);
        if (derived == NULL || derived->size == 0)
            return NULL;
        key = derived->key;
        key_size = derived->size;
    }
    if (size != NULL)
        *size = key_size;
    return key;
}

void rks_batch_digest(rks_batch *batch, uint64_t sum[2])
{
    rks_digest total = {sum[0], sum[1]};
    for (size_t i = 0; i < batch->count; i++) {
        const rks_record_view *view = &batch->views[i];
        uint8_t derived[RKS_KEY_MAX + 1];
        const uint8_t *key = view->key;
        size_t key_size = view->key_size;
        if (key_size == 0) {
            key_size = derive_key(batch, i, derived);
            key = derived;
        }
        /* Hashes both digests, so that no byte can move from the key into the contents
         * unnoticed. */
        rks_digest parts[2] = {rks_checksum128(key, key_size),
                               rks_checksum128(view->payload, view->payload_size)};
        total = rks_digest_add(total, rks_checksum128(parts, sizeof(parts)));
    }
    sum[0] = total.low;
    sum[1] = total.high;
}

uint8_t *rks_batch_payload(rks_batch *batch, size_t i, size_t *size)
{
    if (i >= batch->count)
        return NULL;
    if (size != NULL)
        *size = batch->views[i].payload_size;
    return (uint8_t *)(uintptr_t)batch->views[i].payload; /* in a block of the batch: writable */
}

rks_status rks_batch_decode(const rks_batch *batch, size_t i, rks_value *values, rks_error *err)
{
    return rks_fetcher_decode(batch->fetcher, &batch->wanted[i], NULL, &batch->views[i], values,
                              err);
}

rks_status rks_batch_value(rks_batch *batch, size_t i, uint32_t column, rks_value *value,
                           rks_error *err)
{
    uint32_t columns = rks_schema_columns(batch->schema);
    if (i >= batch->count || column >= columns)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "column %" PRIu32 " of sample %zu: the batch has %zu samples of %" PRIu32
                        " columns",
                        column, i, batch->count, columns);
    if (batch->values == NULL) {
        batch->values = rks_alloc(columns, sizeof(*batch->values), err);
        if (batch->values == NULL)
            return RKS_ERR_MEMORY;
    }
    if (batch->decoded != i) {
        batch->decoded = SIZE_MAX;
        rks_status status = rks_batch_decode(batch, i, batch->values, err);
        if (status != RKS_OK)
            return status;
        batch->decoded = i;
    }
    *value = batch->values[column];
    return RKS_OK;
}

uint64_t rks_batch_memory(const rks_batch *batch)
{
    return batch->bytes;
}
