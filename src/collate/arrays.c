/* SPDX-License-Identifier: Apache-2.0
 *
 * arrays.c: samples into arrays, in two walks: the first finds how large the arrays are, the second
 * fills them, padding included, from their first byte to their last. All arrays of a batch lie in
 * one block:
 *
 *   rks_arrays | an rks_array each | offsets of the packed ones | ids | lengths | items ...
 *
 * with the items of each array at a multiple of 64. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "collate/inside.h"

struct rks_arrays {
    rks_collate *collate; /* holds a reference: names and types */
    rks_blocks *pool;     /* holds a reference */
    rks_block *block;     /* that this lies in */
    size_t count, samples;
    uint64_t *ids;
    uint32_t *lengths;
    rks_array list[];
};

/* What an array needs, and how far it is filled. */
typedef struct span {
    uint64_t widths[RKS_DIMS_MAX]; /* stacked: of a sample's place; the variable ones grow */
    uint64_t total;                /* packed: along the first dimension, as measured */
    uint64_t at;                   /* packed: of them filled */
    uint64_t inner;                /* items of an index of the first dimension; of a sample */
    uint64_t items;                /* of the sample at hand, as items_of */
    int64_t *offsets;
    uint8_t *data;
} span;

typedef struct run {
    const rks_collate *collate;
    const rks_collate_source *source;
    rks_value *values; /* of one sample */
    span *extents;
} run;

/* ---- one value ---------------------------------------------------------------------------- */

/* Along the first variable dimension, after the cut; 0 for a value that is missing or empty. */
static uint64_t items_of(const run *r, size_t i, const rks_collate_field *field,
                         const rks_value *value)
{
    if (value->data == NULL || value->size == 0)
        return 0;
    uint32_t items = value->dims[field->cut_dim];
    if (items <= field->max_length)
        return items;
    const rks_collate_source *source = r->source;
    bool whole = r->collate->cut_by_length &&
                 (source->length == NULL || source->length(source->user, i) != items);
    return whole ? items : field->max_length;
}

static void fill_with_padding(const rks_collate_field *field, uint8_t *to, uint64_t count)
{
    if (count != 0)
        rks_item_fill(to, field->pad, field->to_size, (size_t)count);
}

/* A value on its way to its place, which is at least as large. */
typedef struct box {
    const rks_collate_field *field;
    uint64_t items[RKS_DIMS_MAX];     /* to be taken */
    uint64_t widths[RKS_DIMS_MAX];    /* of the place */
    uint64_t from_each[RKS_DIMS_MAX]; /* items of an index of this dimension, in the value */
    uint64_t to_each[RKS_DIMS_MAX];   /* and in the place */
    uint32_t solid;                   /* below this dimension both are alike */
    uint32_t right;                   /* along this one items lie at the right edge; 8: none */
} box;

static void put_box(const box *b, uint32_t d, uint8_t *to, const uint8_t *from)
{
    size_t to_size = b->field->to_size, from_size = b->field->from_size;
    uint64_t free = b->widths[d] - b->items[d], before = d == b->right ? free : 0;
    fill_with_padding(b->field, to, before * b->to_each[d]);
    to += before * b->to_each[d] * to_size;
    if (d == b->solid) {
        b->field->convert(to, from, (size_t)(b->items[d] * b->to_each[d]));
        to += b->items[d] * b->to_each[d] * to_size;
    } else {
        for (uint64_t i = 0; i < b->items[d]; i++) {
            put_box(b, d + 1, to, from);
            to += b->to_each[d] * to_size;
            from += b->from_each[d] * from_size;
        }
    }
    fill_with_padding(b->field, to, (free - before) * b->to_each[d]);
}

static bool make_box(const rks_collate *collate, const rks_collate_field *field, const span *extent,
                     const rks_value *value, box *b)
{
    uint64_t from_each = 1, to_each = 1;
    b->field = field;
    b->solid = 0;
    b->right = collate->left ? field->cut_dim : RKS_DIMS_MAX;
    for (uint32_t d = field->dim_count; d-- > 0;) {
        b->items[d] = d == field->cut_dim ? extent->items : value->dims[d];
        b->widths[d] = extent->widths[d];
        b->from_each[d] = from_each;
        b->to_each[d] = to_each;
        if (b->items[d] > b->widths[d])
            return false;
        if (b->solid == 0 && (value->dims[d] != b->widths[d] || b->items[d] != b->widths[d]))
            b->solid = d;
        from_each *= value->dims[d];
        to_each *= b->widths[d];
    }
    return true;
}

static bool put_stacked(const rks_collate *collate, const rks_collate_field *field, span *extent,
                        size_t i, const rks_value *value)
{
    uint8_t *to = extent->data + i * extent->inner * field->to_size;
    box b;
    if (value->data == NULL || value->size == 0) {
        fill_with_padding(field, to, extent->inner);
    } else if (field->dim_count == 0) {
        field->convert(to, value->data, 1);
    } else {
        if (!make_box(collate, field, extent, value, &b))
            return false;
        put_box(&b, 0, to, value->data);
    }
    return true;
}

static bool put_packed(const rks_collate_field *field, span *extent, size_t i,
                       const rks_value *value)
{
    uint64_t items = extent->items;
    if (items > extent->total - extent->at)
        return false;
    uint8_t *to = extent->data + extent->at * extent->inner * field->to_size;
    if (items != 0) {
        field->convert(to, value->data, (size_t)(items * extent->inner));
        if (field->mark_first)
            rks_item_fill(to, field->first, field->to_size, (size_t)extent->inner);
    }
    extent->at += items;
    extent->offsets[i + 1] = (int64_t)extent->at;
    return true;
}

static bool put_mask(const rks_collate *collate, uint64_t items, span *extent, size_t i)
{
    static const uint8_t zero[8], one[8] = {1};
    uint64_t width = extent->inner;
    if (items > width)
        return false;
    uint64_t before = collate->left ? width - items : 0;
    uint8_t *to = extent->data + i * width * sizeof(int64_t);
    rks_item_fill(to, zero, sizeof(int64_t), (size_t)width);
    rks_item_fill(to + before * sizeof(int64_t), one, sizeof(int64_t), (size_t)items);
    return true;
}

static bool put_positions(uint64_t items, span *extent, size_t i)
{
    if (items > extent->total - extent->at)
        return false;
    int64_t *to = (int64_t *)(void *)extent->data + extent->at;
    for (uint64_t k = 0; k < items; k++)
        to[k] = (int64_t)k;
    extent->at += items;
    extent->offsets[i + 1] = (int64_t)extent->at;
    return true;
}

static bool put_missing(span *extent, size_t i, const rks_value *value)
{
    extent->data[i] = value->data == NULL;
    return true;
}

static bool put_items(uint64_t items, span *extent, size_t i)
{
    ((int64_t *)(void *)extent->data)[i] = (int64_t)items;
    return true;
}

/* ---- the first walk ------------------------------------------------------------------------ */

static rks_status measure_sample(run *r, size_t i, rks_error *err)
{
    const rks_collate *collate = r->collate;
    rks_status status = r->source->sizes(r->source->user, i, r->values, err);
    if (status != RKS_OK)
        return status;
    for (uint32_t f = 0; f < collate->count; f++) {
        const rks_collate_field *field = &collate->fields[f];
        const rks_value *value = &r->values[field->column];
        if (field->what != RKS_FIELD_COLUMN || field->cut_dim == field->dim_count)
            continue;
        uint64_t items = items_of(r, i, field, value);
        r->extents[f].total += items; /* of 2^32 samples below 2^32 each */
        for (uint32_t d = field->cut_dim; items != 0 && d < field->dim_count; d++) {
            uint64_t width = d == field->cut_dim ? items : value->dims[d];
            if (r->extents[f].widths[d] < width)
                r->extents[f].widths[d] = width;
        }
    }
    return RKS_OK;
}

static rks_status measure_arrays(run *r, rks_error *err)
{
    const rks_collate *collate = r->collate;
    for (uint32_t f = 0; f < collate->count; f++)
        for (uint32_t d = 0; d < collate->fields[f].dim_count; d++)
            r->extents[f].widths[d] = collate->fields[f].dims[d];
    for (size_t i = 0; i < r->source->count; i++) {
        rks_status status = measure_sample(r, i, err);
        if (status != RKS_OK)
            return status;
    }
    return RKS_OK;
}

static uint64_t round_to(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* The array's dimensions and bytes, and those of a sample; false where they overflow. */
static bool shape(run *r, uint32_t f, rks_array *array)
{
    const rks_collate *collate = r->collate;
    const rks_collate_field *field = &collate->fields[f];
    span *extent = &r->extents[f];
    array->name = field->name;
    array->type = field->type;
    if (field->what == RKS_FIELD_MASK || field->what == RKS_FIELD_POSITIONS) {
        /* what it follows stands before it */
        const span *followed = &r->extents[field->follows];
        extent->total = followed->total;
        extent->widths[0] = followed->widths[collate->fields[field->follows].cut_dim];
    } else if (field->cut_dim < field->dim_count && !field->pack) {
        uint64_t *width = &extent->widths[field->cut_dim];
        *width = round_to(*width, field->to_multiple);
    }
    array->dim_count = field->dim_count + !field->pack;
    array->dims[0] = field->pack ? round_to(extent->total, field->to_multiple) : r->source->count;
    extent->inner = 1;
    bool fits = true;
    for (uint32_t d = field->pack; d < field->dim_count; d++) {
        array->dims[d + !field->pack] = extent->widths[d];
        fits = fits && !__builtin_mul_overflow(extent->inner, extent->widths[d], &extent->inner);
    }
    return fits && !__builtin_mul_overflow(array->dims[0], extent->inner, &array->size) &&
           !__builtin_mul_overflow(array->size, field->to_size, &array->size);
}

/* ---- the block ------------------------------------------------------------------------------ */

/* Where the next part of `size` bytes begins; *end goes behind it. */
static bool place_part(uint64_t *end, uint64_t align, uint64_t size, uint64_t *begin)
{
    *begin = rks_round_up(*end, align);
    return *begin >= *end && !__builtin_add_overflow(*begin, size, end);
}

static rks_status too_large(const rks_array *array, size_t count, rks_error *err)
{
    return rks_fail(err, RKS_ERR_MEMORY, 0,
                    "collate: array \"%s\" of %zu samples is larger than any memory", array->name,
                    count);
}

/* Shapes all arrays and finds their places; the list is at `list`. */
static rks_status place_arrays(run *r, rks_array *list, uint64_t *places, uint64_t *end,
                               rks_error *err)
{
    for (uint32_t f = 0; f < r->collate->count; f++)
        if (!shape(r, f, &list[f]) || !place_part(end, RKS_BLOCK_ALIGN, list[f].size, &places[f]))
            return too_large(&list[f], r->source->count, err);
    return RKS_OK;
}

static rks_status allocate_arrays(run *r, rks_collate *collate, rks_blocks *pool,
                                  rks_arrays **arrays, rks_error *err)
{
    size_t count = collate->count, samples = r->source->count;
    uint64_t end = sizeof(rks_arrays) + count * sizeof(rks_array), offsets, ids, lengths;
    rks_array *list = rks_alloc(count, sizeof(*list) + sizeof(uint64_t), err);
    if (list == NULL)
        return RKS_ERR_MEMORY;
    uint64_t *places = (uint64_t *)(list + count), each = (samples + 1) * sizeof(int64_t),
             packed = 0;
    for (size_t f = 0; f < count; f++)
        packed += collate->fields[f].pack;
    (void)place_part(&end, 8, packed * each, &offsets); /* samples are fewer than 2^32 */
    (void)place_part(&end, 8, samples * sizeof(uint64_t), &ids);
    (void)place_part(&end, 8, samples * sizeof(uint32_t), &lengths);
    rks_status status = place_arrays(r, list, places, &end, err);
    rks_block *block = status == RKS_OK ? rks_blocks_take(pool, (size_t)end, err) : NULL;
    if (block == NULL) {
        rks_free(list);
        return status == RKS_OK ? RKS_ERR_MEMORY : status;
    }
    rks_arrays *made = (rks_arrays *)(void *)block->data;
    *made = (rks_arrays){.collate = collate, .pool = pool, .block = block, .count = count};
    rks_collate_hold(collate);
    rks_blocks_hold(pool);
    made->samples = samples;
    made->ids = (uint64_t *)(void *)(block->data + ids);
    made->lengths = (uint32_t *)(void *)(block->data + lengths);
    memcpy(made->list, list, count * sizeof(*list));
    for (size_t f = 0; f < count; f++) {
        made->list[f].data = r->extents[f].data = block->data + places[f];
        if (!collate->fields[f].pack)
            continue;
        r->extents[f].offsets = (int64_t *)(void *)(block->data + offsets);
        r->extents[f].offsets[0] = 0;
        made->list[f].offsets = r->extents[f].offsets;
        offsets += each;
    }
    rks_free(list);
    *arrays = made;
    return RKS_OK;
}

/* ---- the second walk ------------------------------------------------------------------------ */

static bool put_field(run *r, uint32_t f, size_t i)
{
    const rks_collate *collate = r->collate;
    const rks_collate_field *field = &collate->fields[f];
    const rks_collate_field *followed = &collate->fields[field->follows];
    span *extent = &r->extents[f];
    uint64_t items = r->extents[field->follows].items; /* what it follows stands before it */
    if (field->what == RKS_FIELD_MASK)
        return put_mask(collate, items, extent, i);
    if (field->what == RKS_FIELD_POSITIONS)
        return put_positions(items, extent, i);
    if (field->what == RKS_FIELD_MISSING)
        return put_missing(extent, i, &r->values[followed->column]);
    if (field->what == RKS_FIELD_ITEMS)
        return put_items(items, extent, i);
    const rks_value *value = &r->values[field->column];
    if (field->cut_dim < field->dim_count)
        extent->items = items_of(r, i, field, value);
    if (field->pack)
        return put_packed(field, extent, i, value);
    return put_stacked(collate, field, extent, i, value);
}

static rks_status put_sample(run *r, size_t i, rks_error *err)
{
    const rks_collate_source *source = r->source;
    rks_status status = source->items(source->user, i, r->values, err);
    for (uint32_t f = 0; status == RKS_OK && f < r->collate->count; f++)
        if (!put_field(r, f, i))
            status = rks_fail(err, RKS_ERR_CORRUPT, 0,
                              "collate: sample %zu of the batch changed while it was read", i);
    if (status == RKS_OK && source->done != NULL)
        status = source->done(source->user, i, err);
    return status;
}

/* What lies behind the last sample of packed arrays. */
static void put_rest(const rks_collate *collate, const span *extents, const rks_arrays *arrays)
{
    for (uint32_t f = 0; f < collate->count; f++) {
        const rks_collate_field *field = &collate->fields[f];
        const span *extent = &extents[f];
        if (field->pack)
            fill_with_padding(field, extent->data + extent->at * extent->inner * field->to_size,
                              (arrays->list[f].dims[0] - extent->at) * extent->inner);
    }
}

rks_status rks_collate_run(rks_collate *collate, const rks_collate_source *source, rks_blocks *pool,
                           rks_arrays **arrays, rks_error *err)
{
    rks_arrays *made = NULL;
    run r = {.collate = collate, .source = source};
    if (source->count > UINT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "collate: a batch of %zu samples", source->count);
    r.values =
        rks_alloc(1, collate->columns * sizeof(rks_value) + collate->count * sizeof(span), err);
    if (r.values == NULL)
        return RKS_ERR_MEMORY;
    r.extents = (span *)(void *)(r.values + collate->columns);
    rks_status status = measure_arrays(&r, err);
    if (status == RKS_OK)
        status = allocate_arrays(&r, collate, pool, &made, err);
    for (size_t i = 0; status == RKS_OK && i < source->count; i++)
        status = put_sample(&r, i, err);
    if (status == RKS_OK)
        put_rest(collate, r.extents, made);
    rks_free(r.values);
    if (status != RKS_OK) {
        rks_arrays_free(made);
        return status;
    }
    *arrays = made;
    return RKS_OK;
}

/* ---- the public calls ------------------------------------------------------------------------ */

void rks_arrays_free(rks_arrays *arrays)
{
    if (arrays == NULL)
        return;
    rks_blocks *pool = arrays->pool;
    rks_collate_release(arrays->collate);
    rks_blocks_give(pool, arrays->block);
    rks_blocks_release(pool);
}

size_t rks_arrays_count(const rks_arrays *arrays)
{
    return arrays->count;
}

const rks_array *rks_arrays_get(const rks_arrays *arrays, size_t i)
{
    return i < arrays->count ? &arrays->list[i] : NULL;
}

size_t rks_arrays_samples(const rks_arrays *arrays)
{
    return arrays->samples;
}

const uint64_t *rks_arrays_ids(const rks_arrays *arrays)
{
    return arrays->ids;
}

const uint32_t *rks_arrays_lengths(const rks_arrays *arrays)
{
    return arrays->lengths;
}

uint64_t *rks_arrays_ids_room(rks_arrays *arrays)
{
    return arrays->ids;
}

uint32_t *rks_arrays_lengths_room(rks_arrays *arrays)
{
    return arrays->lengths;
}

uint64_t rks_arrays_memory(const rks_arrays *arrays)
{
    return arrays->block->bytes;
}
