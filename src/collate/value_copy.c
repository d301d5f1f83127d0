/* SPDX-License-Identifier: Apache-2.0
 *
 * value_copy.c: writes one value into its array. */
#include <string.h>

#include "collate/collate_fields.h"

/* Returns true if it is cut to a piece. */
static bool is_cut(const rks_collate_walk *r, size_t i, const rks_collate_field *field,
                   const rks_value *value)
{
    const rks_collate_source *source = r->source;
    return r->piece != NULL && !field->text && value->data != NULL && source->length != NULL &&
           source->length(source->user, i) == value->dims[field->cut_dim];
}

/* Returns how many items come before the first one that is taken. */
static uint64_t skipped_of(const rks_collate_walk *r, size_t i, const rks_collate_field *field,
                           const rks_value *value)
{
    return is_cut(r, i, field, value) ? r->piece->start : 0;
}

/* Along the first variable dimension, after the cut; 0 for a value that is missing or empty. */
uint64_t rks_collate_items(const rks_collate_walk *r, size_t i, const rks_collate_field *field,
                           const rks_value *value)
{
    if (value->data == NULL || value->size == 0)
        return 0;
    uint32_t items = value->dims[field->cut_dim];
    const rks_collate_source *source = r->source;
    if (is_cut(r, i, field, value))
        return r->piece->count < field->max_length ? r->piece->count : field->max_length;
    if (items <= field->max_length)
        return items;
    bool whole = r->collate->cut_by_length &&
                 (source->length == NULL || source->length(source->user, i) != items);
    return whole ? items : field->max_length;
}

static void fill_with_padding(const rks_collate_field *field, uint8_t *to, uint64_t count)
{
    if (count != 0)
        rks_item_fill(to, field->pad, field->to_size, (size_t)count);
}

/* A value that is copied to its place, which is at least as large. */
typedef struct box {
    const rks_collate_field *field;
    uint64_t items[RKS_DIMS_MAX];     /* items to take */
    uint64_t widths[RKS_DIMS_MAX];    /* of the place */
    uint64_t from_each[RKS_DIMS_MAX]; /* items in one index of this dimension, in the value */
    uint64_t to_each[RKS_DIMS_MAX];   /* and in the place */
    uint32_t solid;                   /* below this dimension value and place have the same shape */
    uint32_t right;                   /* along this dimension items are aligned to the right; 8:
                                       * none */
    uint64_t skipped;                 /* items of the first variable dimension before those that are
                                       * taken */
} box;

static void put_box(const box *b, uint32_t d, uint8_t *to, const uint8_t *from)
{
    size_t to_size = b->field->to_size, from_size = b->field->from_size;
    uint64_t free = b->widths[d] - b->items[d], before = d == b->right ? free : 0;
    fill_with_padding(b->field, to, before * b->to_each[d]);
    to += before * b->to_each[d] * to_size;
    if (d == b->field->cut_dim)
        from += b->skipped * b->from_each[d] * from_size;
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

static bool make_box(const rks_collate *collate, const rks_collate_field *field,
                     const rks_collate_span *extent, const rks_value *value, box *b)
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

/* Writes what most samples are, a row of one dimension that is padded on the right: put_box in one
 * step. */
static bool put_row(const rks_collate_field *field, const rks_collate_span *extent, uint8_t *to,
                    const rks_value *value)
{
    uint64_t items = extent->items, width = extent->widths[0];
    if (items > width)
        return false;
    field->convert(to, value->data, (size_t)items);
    fill_with_padding(field, to + items * field->to_size, width - items);
    return true;
}

static bool put_stacked(const rks_collate_walk *r, const rks_collate_field *field,
                        rks_collate_span *extent, size_t i, const rks_value *value)
{
    uint8_t *to = extent->data + i * extent->inner * field->to_size;
    box b = {.skipped = 0};
    if (value->data == NULL || value->size == 0) {
        fill_with_padding(field, to, extent->inner);
    } else if (field->dim_count == 0) {
        field->convert(to, value->data, 1);
    } else if (field->is_row && r->piece == NULL) {
        return put_row(field, extent, to, value);
    } else {
        if (field->cut_dim < field->dim_count)
            b.skipped = skipped_of(r, i, field, value);
        if (!make_box(r->collate, field, extent, value, &b))
            return false;
        put_box(&b, 0, to, value->data);
    }
    return true;
}

/* Takes the place of a sample in a packed array: [*begin, *end), of which `items` are its own.
 * Places between the last sample and *begin are the rest of a row. */
static bool next_place(const rks_collate_walk *r, const rks_collate_field *field,
                       rks_collate_span *extent, size_t i, uint64_t items, uint64_t *begin,
                       uint64_t *end)
{
    *begin = field->rows ? r->begin : extent->at;
    *end = field->rows ? r->end : extent->at + rks_collate_round(items, field->each);
    if (*end > extent->total || *begin < extent->at || items > *end - *begin)
        return false;
    extent->offsets[i] = (int64_t)*begin;
    extent->offsets[i + 1] = (int64_t)*end;
    return true;
}

static bool put_packed(const rks_collate_walk *r, const rks_collate_field *field,
                       rks_collate_span *extent, size_t i, const rks_value *value)
{
    uint64_t items = extent->items, begin, end, inner = extent->inner;
    size_t size = inner * field->to_size;
    if (!next_place(r, field, extent, i, items, &begin, &end))
        return false;
    fill_with_padding(field, extent->data + extent->at * size, (begin - extent->at) * inner);
    uint8_t *to = extent->data + begin * size;
    if (items != 0) {
        uint64_t skipped = field->text ? 0 : skipped_of(r, i, field, value) * inner;
        const uint8_t *from = value->data;
        field->convert(to, from + skipped * field->from_size, (size_t)(items * inner));
        if (field->mark_first)
            rks_item_fill(to, field->first, field->to_size, (size_t)inner);
    }
    fill_with_padding(field, to + items * size, (end - begin - items) * inner);
    extent->at = end;
    return true;
}

static bool put_mask(const rks_collate *collate, uint64_t items, rks_collate_span *extent, size_t i)
{
    static const uint8_t zero[8], one[8] = {1};
    uint64_t width = extent->inner;
    if (items > width)
        return false;
    uint64_t free = width - items, before = collate->left ? free : 0;
    uint8_t *to = extent->data + i * width * sizeof(int64_t);
    rks_item_fill(to, zero, sizeof(int64_t), (size_t)before);
    to += before * sizeof(int64_t);
    rks_item_fill(to, one, sizeof(int64_t), (size_t)items);
    rks_item_fill(to + items * sizeof(int64_t), zero, sizeof(int64_t), (size_t)(free - before));
    return true;
}

static void count_up(int64_t *to, uint64_t count)
{
    for (uint64_t k = 0; k < count; k++)
        to[k] = (int64_t)k;
}

static bool put_positions(const rks_collate_walk *r, const rks_collate_field *field, uint64_t items,
                          rks_collate_span *extent, size_t i)
{
    uint64_t begin, end;
    if (!next_place(r, field, extent, i, items, &begin, &end))
        return false;
    int64_t *data = (int64_t *)(void *)extent->data;
    count_up(data + extent->at, begin - extent->at);
    count_up(data + begin, end - begin);
    extent->at = end;
    return true;
}

/* Sets them to -1. */
static void mark_none(int32_t *to, uint64_t count)
{
    memset(to, 0xff, (size_t)count * sizeof(*to));
}

static bool put_documents(const rks_collate_walk *r, const rks_collate_field *field, uint64_t items,
                          rks_collate_span *extent, size_t i)
{
    uint64_t begin, end;
    if (!next_place(r, field, extent, i, items, &begin, &end))
        return false;
    int32_t *data = (int32_t *)(void *)extent->data;
    mark_none(data + extent->at, begin - extent->at);
    for (uint64_t k = 0; k < items; k++)
        data[begin + k] = (int32_t)r->document;
    mark_none(data + begin + items, end - begin - items);
    extent->at = end;
    return true;
}

static bool put_missing(rks_collate_span *extent, size_t i, const rks_value *value)
{
    extent->data[i] = value->data == NULL;
    return true;
}

static bool put_items(uint64_t items, rks_collate_span *extent, size_t i)
{
    ((int64_t *)(void *)extent->data)[i] = (int64_t)items;
    return true;
}

bool rks_collate_put(rks_collate_walk *r, uint32_t f, size_t i)
{
    const rks_collate *collate = r->collate;
    const rks_collate_field *field = &collate->fields[f];
    const rks_collate_field *followed = &collate->fields[field->follows];
    rks_collate_span *extent = &r->extents[f];
    uint64_t items = r->extents[field->follows].items; /* the field that it follows comes before
                                                        * it */
    if (field->what == RKS_FIELD_MASK)
        return put_mask(collate, items, extent, i);
    if (field->what == RKS_FIELD_POSITIONS)
        return put_positions(r, field, items, extent, i);
    if (field->what == RKS_FIELD_DOCUMENTS)
        return put_documents(r, field, items, extent, i);
    if (field->what == RKS_FIELD_MISSING)
        return put_missing(extent, i, &r->values[followed->column]);
    if (field->what == RKS_FIELD_ITEMS)
        return put_items(items, extent, i);
    const rks_value *value = &r->values[field->column];
    if (field->cut_dim < field->dim_count)
        extent->items = rks_collate_items(r, i, field, value);
    if (field->pack)
        return put_packed(r, field, extent, i, value);
    return put_stacked(r, field, extent, i, value);
}

void rks_collate_put_rest(const rks_collate_field *field, const rks_collate_span *extent,
                          uint64_t all, size_t samples)
{
    uint64_t left = all - extent->at;
    uint8_t *to = extent->data + extent->at * extent->inner * field->to_size;
    if (field->rows)
        extent->offsets[samples] = (int64_t)all;
    if (field->rows && field->what == RKS_FIELD_POSITIONS)
        count_up((int64_t *)(void *)to, left);
    else if (field->what == RKS_FIELD_DOCUMENTS)
        mark_none((int32_t *)(void *)to, left);
    else
        fill_with_padding(field, to, left * extent->inner);
}
