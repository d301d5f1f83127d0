/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_list.c: samples of the caller's own, as records in blocks, until they become arrays. */
#include "rankstore/collate.h"

#include "base/error.h"
#include "base/memory.h"
#include "collate/collate.h"

typedef struct listed {
    rks_block *record;
    size_t size; /* bytes */
    uint64_t id;
    uint32_t length;
} listed;

struct rks_sample_list {
    rks_schema *schema;
    rks_blocks *pool;
    listed *samples;
    size_t count, room;
};

rks_status rks_sample_list_create(const char *schema, rks_sample_list **list, rks_error *err)
{
    rks_status status = RKS_ERR_MEMORY;
    rks_sample_list *made = rks_alloc(1, sizeof(*made), err);
    if (made != NULL)
        status = rks_schema_parse(schema, &made->schema, err);
    if (status == RKS_OK)
        status = rks_blocks_create(&made->pool, err);
    if (status != RKS_OK) {
        rks_sample_list_free(made);
        return status;
    }
    *list = made;
    return RKS_OK;
}

void rks_sample_list_free(rks_sample_list *list)
{
    if (list == NULL)
        return;
    for (size_t i = 0; i < list->count; i++)
        rks_blocks_give(list->pool, list->samples[i].record);
    rks_blocks_release(list->pool);
    rks_schema_free(list->schema);
    rks_free(list->samples);
    rks_free(list);
}

static rks_status grow_list(rks_sample_list *list, rks_error *err)
{
    if (list->count < list->room)
        return RKS_OK;
    size_t room = list->room == 0 ? 16 : list->room * 2;
    listed *samples = rks_realloc(list->samples, room, sizeof(*samples), err);
    if (samples == NULL)
        return RKS_ERR_MEMORY;
    list->samples = samples;
    list->room = room;
    return RKS_OK;
}

rks_status rks_sample_list_add(rks_sample_list *list, const rks_value *values, uint64_t id,
                               uint32_t length, rks_error *err)
{
    uint64_t size = 0, plain = 0;
    uint32_t align = 0;
    rks_status status = rks_record_measure(list->schema, values, &size, &align, &plain, err);
    if (status == RKS_OK)
        status = grow_list(list, err);
    if (status != RKS_OK)
        return status;
    rks_block *record = rks_blocks_take(list->pool, (size_t)size, err);
    if (record == NULL)
        return RKS_ERR_MEMORY;
    rks_record_write(list->schema, values, record->data);
    list->samples[list->count++] =
        (listed){.record = record, .size = (size_t)size, .id = id, .length = length};
    return RKS_OK;
}

static rks_status read_sample(void *user, size_t i, rks_value *values, rks_error *err)
{
    const rks_sample_list *list = user;
    const listed *sample = &list->samples[i];
    return rks_record_decode(list->schema, sample->record->data, sample->size, values, err);
}

static uint32_t listed_length(void *user, size_t i)
{
    return ((const rks_sample_list *)user)->samples[i].length;
}

rks_status rks_sample_list_collate(rks_sample_list *list, const rks_collate_options *options,
                                   const uint32_t *bins, size_t bin_count, rks_arrays **arrays,
                                   rks_error *err)
{
    rks_collate *collate = NULL;
    rks_arrays *made = NULL;
    const rks_collate_source source = {
        .count = list->count,
        .sizes = read_sample,
        .items = read_sample,
        .length = listed_length,
        .bins = bins,
        .bin_count = bin_count,
        .user = list,
    };
    rks_status status = rks_collate_create(list->schema, options, &collate, err);
    if (status == RKS_OK)
        status = rks_collate_run(collate, &source, list->pool, &made, err);
    rks_collate_release(collate);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; i < list->count; i++) {
        rks_arrays_ids_room(made)[i] = list->samples[i].id;
        rks_arrays_lengths_room(made)[i] = list->samples[i].length;
    }
    *arrays = made;
    return RKS_OK;
}
