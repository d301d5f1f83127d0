/* SPDX-License-Identifier: Apache-2.0
 *
 * collated_arrays.c: samples into arrays, in two walks: the first finds how large the arrays are,
 * the second fills them, padding included, from their first byte to their last. All arrays of a
 * batch lie in one block or arena:
 *
 *   rks_arrays | an rks_array each | offsets of the packed ones | ids | lengths | pieces | items
 * ...
 *
 * with the items of each array at a multiple of 64. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "collate/collate_fields.h"

struct rks_arrays {
    rks_collate *collate; /* a reference: names and types */
    rks_blocks *pool;     /* a reference */
    rks_block *block;     /* the block that holds this struct; NULL: it lies in an arena */
    rks_lent lent;        /* of the collate's arenas */
    size_t bytes;         /* of the whole block or arena part */
    size_t count, samples;
    uint64_t *ids;
    uint32_t *lengths;
    rks_piece *pieces;
    size_t piece_count;
    rks_array list[];
};

/* Resets the walk. Called before each of the two walks. */
static void begin_walk(rks_collate_walk *r)
{
    r->pieces = r->row = 0;
    r->at = r->begin = r->end = 0;
}

static void find_piece(rks_collate_walk *r, size_t i)
{
    const rks_collate_source *source = r->source;
    bool is_piece = r->pieces < source->piece_count && source->pieces[r->pieces].place == i;
    r->piece = is_piece ? &source->pieces[r->pieces++] : NULL;
}

/* ---- the first walk ------------------------------------------------------------------------ */

/* Layout rows: finds the place of sample i. */
static rks_status find_row_place(rks_collate_walk *r, size_t i, rks_error *err)
{
    const rks_collate_source *source = r->source;
    const rks_collate_field *field = &r->collate->fields[r->collate->follows];
    uint64_t width = r->collate->row_items;
    r->items = rks_collate_items(r, i, field, &r->values[field->column]);
    uint64_t size = rks_collate_round(r->items, field->each), left = r->row * width - r->at;
    bool next = source->bins == NULL
                    ? size > left || r->row == 0
                    : r->row < source->bin_count && source->bins[r->row] - source->bins[0] == i;
    if (next) {
        r->at = r->row * width;
        r->row++;
        left = width;
    }
    if (size > left)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "collate: sample %zu of the batch has %" PRIu64 " items, and %" PRIu64
                        " are left of row %zu, of %" PRIu64,
                        i, r->items, left, r->row - 1, width);
    r->document = next ? 0 : r->document + 1;
    r->begin = r->at;
    r->end = r->at += size;
    return RKS_OK;
}

/* Packed columns whose sample has other numbers of items would lie below another sample's
 * positions; rows leave the place of a missing value free. */
static rks_status check_items(const rks_collate_walk *r, size_t i, const rks_collate_field *field,
                              uint64_t items, rks_error *err)
{
    bool in_rows = field->rows && items != 0;
    bool in_line = r->collate->has_positions && field->pack && !field->text && !field->apart;
    if ((!in_rows && !in_line) || items == r->items)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "collate: sample %zu of the batch has %" PRIu64 " items in \"%s\" and "
                    "%" PRIu64 " in \"%s\", and %s as many of both; leave one out, or "
                    "let it be packed apart",
                    i, items, field->name, r->items, r->collate->fields[r->collate->follows].name,
                    in_rows ? "rows hold" : "positions count");
}

static rks_status measure_sample(rks_collate_walk *r, size_t i, rks_error *err)
{
    const rks_collate *collate = r->collate;
    rks_status status = r->source->sizes(r->source->user, i, r->values, err);
    find_piece(r, i);
    if (status == RKS_OK && collate->rows)
        status = find_row_place(r, i, err);
    if (status != RKS_OK)
        return status;
    if (collate->has_positions) {
        const rks_collate_field *lead = &collate->fields[collate->follows];
        r->items = rks_collate_items(r, i, lead, &r->values[lead->column]);
    }
    for (uint32_t f = 0; f < collate->count; f++) {
        const rks_collate_field *field = &collate->fields[f];
        const rks_value *value = &r->values[field->column];
        if (field->what != RKS_FIELD_COLUMN || field->cut_dim == field->dim_count)
            continue;
        uint64_t items = rks_collate_items(r, i, field, value);
        status = check_items(r, i, field, items, err);
        if (status != RKS_OK)
            return status;
        r->extents[f].total += rks_collate_round(items, field->each); /* fewer than 2^32 samples of
                                                                       * less than 2^32 each */
        for (uint32_t d = field->cut_dim; items != 0 && d < field->dim_count; d++) {
            uint64_t width = d == field->cut_dim ? items : value->dims[d];
            if (r->extents[f].widths[d] < width)
                r->extents[f].widths[d] = width;
        }
    }
    return RKS_OK;
}

static rks_status measure_arrays(rks_collate_walk *r, rks_error *err)
{
    const rks_collate *collate = r->collate;
    for (uint32_t f = 0; f < collate->count; f++)
        for (uint32_t d = 0; d < collate->fields[f].dim_count; d++)
            r->extents[f].widths[d] = collate->fields[f].dims[d];
    begin_walk(r);
    for (size_t i = 0; i < r->source->count; i++) {
        rks_status status = measure_sample(r, i, err);
        if (status != RKS_OK)
            return status;
    }
    return RKS_OK;
}

/* Sets the array's dimensions and bytes, and those of a sample. Returns false if they overflow. */
static bool shape(rks_collate_walk *r, uint32_t f, rks_array *array)
{
    const rks_collate *collate = r->collate;
    const rks_collate_field *field = &collate->fields[f];
    rks_collate_span *extent = &r->extents[f];
    array->name = field->name;
    array->type = field->type;
    if (field->what == RKS_FIELD_MASK || field->what == RKS_FIELD_POSITIONS) {
        /* the field that it follows comes before it */
        const rks_collate_span *followed = &r->extents[field->follows];
        extent->total = followed->total;
        extent->widths[0] = followed->widths[collate->fields[field->follows].cut_dim];
    } else if (field->cut_dim < field->dim_count && !field->pack) {
        uint64_t *width = &extent->widths[field->cut_dim];
        *width = rks_collate_round(*width, field->to_multiple);
    }
    uint32_t added = field->rows || !field->pack; /* 1 if the array has a dimension before those of
                                                   * the column */
    uint64_t first =
        field->pack ? rks_collate_round(extent->total, field->to_multiple) : r->source->count;
    array->dim_count = field->dim_count + added;
    array->dims[0] = first;
    if (field->rows) {
        array->dims[0] = r->row;
        array->dims[1] = collate->row_items;
        extent->total = first = r->row * (uint64_t)collate->row_items; /* both are below 2^32 */
    }
    extent->inner = 1;
    bool fits = true;
    for (uint32_t d = field->pack; d < field->dim_count; d++) {
        array->dims[d + added] = extent->widths[d];
        fits = fits && !__builtin_mul_overflow(extent->inner, extent->widths[d], &extent->inner);
    }
    return fits && !__builtin_mul_overflow(first, extent->inner, &array->size) &&
           !__builtin_mul_overflow(array->size, field->to_size, &array->size);
}

/* ---- the block ------------------------------------------------------------------------------ */

/* Reserves `size` bytes for the next part. *end moves to its end. */
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

/* Shapes all arrays and finds their places; the list of arrays is at `list`. */
static rks_status place_arrays(rks_collate_walk *r, rks_array *list, uint64_t *places,
                               uint64_t *end, rks_error *err)
{
    for (uint32_t f = 0; f < r->collate->count; f++)
        if (!shape(r, f, &list[f]) || !place_part(end, RKS_BLOCK_ALIGN, list[f].size, &places[f]))
            return too_large(&list[f], r->source->count, err);
    return RKS_OK;
}

/* Takes `size` bytes at a multiple of RKS_BLOCK_ALIGN from an arena or a block; `place` keeps
 * which. Returns NULL if memory is short. */
static uint8_t *allocate_array(rks_collate *collate, rks_blocks *pool, size_t size,
                               rks_arrays *place, rks_error *err)
{
    *place = (rks_arrays){.collate = collate, .pool = pool, .bytes = size};
    if (collate->arenas != NULL)
        place->lent = rks_arenas_take(collate->arenas, size);
    if (place->lent.arena != NULL)
        return place->lent.data;
    place->block = rks_blocks_take(pool, size, err);
    if (place->block != NULL)
        place->bytes = place->block->bytes;
    else if (collate->arenas != NULL)
        rks_arenas_give(collate->arenas, &place->lent);
    return place->block == NULL ? NULL : place->block->data;
}

static rks_status allocate_arrays(rks_collate_walk *r, rks_collate *collate, rks_blocks *pool,
                                  rks_arrays **arrays, rks_error *err)
{
    size_t count = collate->count, samples = r->source->count;
    uint64_t end = sizeof(rks_arrays) + count * sizeof(rks_array), offsets, ids, lengths, pieces;
    size_t piece_count = r->source->piece_count;
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
    (void)place_part(&end, 8, piece_count * sizeof(rks_piece), &pieces);
    rks_status status = place_arrays(r, list, places, &end, err);
    rks_arrays place;
    uint8_t *data =
        status == RKS_OK ? allocate_array(collate, pool, (size_t)end, &place, err) : NULL;
    if (data == NULL) {
        rks_free(list);
        return status == RKS_OK ? RKS_ERR_MEMORY : status;
    }
    rks_arrays *made = (rks_arrays *)(void *)data;
    *made = place;
    rks_collate_hold(collate);
    rks_blocks_hold(pool);
    made->count = count;
    made->samples = samples;
    made->ids = (uint64_t *)(void *)(data + ids);
    made->lengths = (uint32_t *)(void *)(data + lengths);
    made->pieces = (rks_piece *)(void *)(data + pieces);
    made->piece_count = piece_count;
    if (piece_count > 0)
        memcpy(made->pieces, r->source->pieces, piece_count * sizeof(rks_piece));
    memcpy(made->list, list, count * sizeof(*list));
    for (size_t f = 0; f < count; f++) {
        made->list[f].data = r->extents[f].data = data + places[f];
        if (!collate->fields[f].pack)
            continue;
        r->extents[f].offsets = (int64_t *)(void *)(data + offsets);
        r->extents[f].offsets[0] = 0;
        made->list[f].offsets = r->extents[f].offsets;
        offsets += each;
    }
    rks_free(list);
    *arrays = made;
    return RKS_OK;
}

/* ---- the second walk ------------------------------------------------------------------------ */

static rks_status put_sample(rks_collate_walk *r, size_t i, rks_error *err)
{
    const rks_collate_source *source = r->source;
    rks_status status = source->items(source->user, i, r->values, err);
    find_piece(r, i);
    if (status == RKS_OK && r->collate->rows)
        status = find_row_place(r, i, err);
    for (uint32_t f = 0; status == RKS_OK && f < r->collate->count; f++)
        if (!rks_collate_put(r, f, i))
            status = rks_fail(err, RKS_ERR_CORRUPT, 0,
                              "collate: sample %zu of the batch changed while it was read", i);
    if (status == RKS_OK && source->done != NULL)
        status = source->done(source->user, i, err);
    return status;
}

rks_status rks_collate_run(rks_collate *collate, const rks_collate_source *source, rks_blocks *pool,
                           rks_arrays **arrays, rks_error *err)
{
    rks_arrays *made = NULL;
    rks_collate_walk r = {.collate = collate, .source = source};
    if (source->count > UINT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "collate: a batch of %zu samples", source->count);
    r.values = rks_alloc(
        1, collate->columns * sizeof(rks_value) + collate->count * sizeof(rks_collate_span), err);
    if (r.values == NULL)
        return RKS_ERR_MEMORY;
    r.extents = (rks_collate_span *)(void *)(r.values + collate->columns);
    rks_status status = measure_arrays(&r, err);
    if (status == RKS_OK)
        status = allocate_arrays(&r, collate, pool, &made, err);
    begin_walk(&r);
    for (size_t i = 0; status == RKS_OK && i < source->count; i++)
        status = put_sample(&r, i, err);
    for (uint32_t f = 0; status == RKS_OK && f < collate->count; f++)
        if (collate->fields[f].pack)
            rks_collate_put_rest(&collate->fields[f], &r.extents[f],
                                 collate->fields[f].rows ? r.extents[f].total
                                                         : made->list[f].dims[0],
                                 made->samples);
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
    rks_collate *collate = arrays->collate;
    rks_blocks *pool = arrays->pool;
    rks_lent lent = arrays->lent;
    rks_blocks_give(pool, arrays->block); /* `arrays` lies in what is returned here */
    if (collate->arenas != NULL)
        rks_arenas_give(collate->arenas, &lent);
    rks_collate_release(collate);
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

const rks_piece *rks_arrays_pieces(const rks_arrays *arrays, size_t *count)
{
    *count = arrays->piece_count;
    return arrays->pieces;
}

uint64_t rks_arrays_memory(const rks_arrays *arrays)
{
    return arrays->bytes;
}
