/* SPDX-License-Identifier: Apache-2.0
 *
 * record.c: the payload of a sample. Numbers are little-endian.
 *
 *   a u32 for each variable dimension of each column, in order; str, bytes and json
 *     have one, their size in bytes; 0 for a missing value
 *   if the schema has nullable columns: a bitmap, a bit for each of them in order, lowest bit
 *     first, 1 for a missing value; unused bits are 0
 *   the columns in order, each at a multiple of its item size, or of 64 if it has 4 KiB or more;
 *     a missing value takes no bytes; gaps are zeros
 *
 * The payload ends with its last column's last byte. It is never empty. */
#include "shard/record.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "shard/block.h"

enum { WIDE_COLUMN = 4096, WIDE_ALIGN = 64 };

/* Returns the bytes before the columns. */
static size_t prefix_size(const rks_column *columns, uint32_t count)
{
    const rks_column *last = &columns[count - 1];
    return 4 * ((size_t)last->dims_before + last->variable_dims) +
           (last->nulls_before + last->nullable + 7) / 8;
}

static uint64_t place(uint64_t at, const rks_column *column, uint64_t size)
{
    return rks_round_up(at, size >= WIDE_COLUMN ? WIDE_ALIGN : column->item_size);
}

/* Computes the bytes of one value with these dimensions; false if they overflow. */
static bool volume(const rks_column *column, const uint32_t *dims, uint64_t *size)
{
    uint64_t bytes = column->item_size;
    bool empty = false;
    for (uint32_t i = 0; i < column->dim_count; i++) {
        empty = empty || dims[i] == 0;
        if (!empty && __builtin_mul_overflow(bytes, dims[i], &bytes))
            return false;
    }
    *size = empty ? 0 : bytes;
    return true;
}

static bool resolve_shape(const rks_column *column, const rks_value *value, uint32_t *dims)
{
    bool given = false;
    for (uint32_t i = 0; i < column->dim_count; i++)
        given = given || value->dims[i] != 0;
    uint64_t fixed = column->item_size, size;
    for (uint32_t i = 0; i < column->dim_count; i++) {
        dims[i] = column->dims[i] != 0 ? column->dims[i] : value->dims[i];
        if (given && dims[i] != value->dims[i])
            return false;
        if (column->dims[i] != 0)
            fixed *= column->dims[i]; /* the schema keeps it below 2^32 */
    }
    if (column->variable_dims == 1 && !given) {
        uint64_t items = value->size / fixed;
        if (items > UINT32_MAX)
            return false;
        for (uint32_t i = 0; i < column->dim_count; i++)
            if (column->dims[i] == 0)
                dims[i] = (uint32_t)items;
    }
    return volume(column, dims, &size) && size == value->size;
}

/* Finds all dimensions of a value, from its dims or its size; false if they contradict each other.
 * Most values are scalars or have one dimension, which is variable. */
static inline bool resolve_dims(const rks_column *column, const rks_value *value, uint32_t *dims)
{
    if (column->dim_count == 0)
        return value->size == column->item_size;
    if (column->dim_count > 1 || column->dims[0] != 0)
        return resolve_shape(column, value, dims);
    uint64_t items = value->dims[0];
    if (items == 0)
        items = column->item_size == 1 ? value->size : value->size / column->item_size;
    dims[0] = (uint32_t)items;
    return items <= UINT32_MAX && items * column->item_size == value->size;
}

static rks_status check_value(const rks_column *column, const rks_value *value, rks_error *err)
{
    if (value->data == NULL)
        return column->nullable ? RKS_OK
                                : rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\" (%s) is missing",
                                           column->name, column->type);
    size_t bad = 0;
    uint32_t dims[RKS_DIMS_MAX];
    if (value->size > RKS_PAYLOAD_LIMIT || !resolve_dims(column, value, dims))
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "column \"%s\": %" PRIu64
                        " bytes with these dimensions are not a value of %s",
                        column->name, value->size, column->type);
    if ((column->kind == RKS_KIND_STR || column->kind == RKS_KIND_JSON) &&
        !rks_utf8_valid(value->data, (size_t)value->size, &bad))
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\": byte %zu is not UTF-8 (type %s)",
                        column->name, bad, column->type);
    return RKS_OK;
}

rks_status rks_record_measure(const rks_schema *schema, const rks_value *values, uint64_t *size,
                              uint32_t *align, uint64_t *plain, rks_error *err)
{
    const rks_column *columns = rks_schema_column(schema, 0);
    uint32_t widest = 8, count = rks_schema_columns(schema);
    uint64_t at = prefix_size(columns, count), sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        const rks_column *column = &columns[i];
        rks_status status = check_value(column, &values[i], err);
        if (status != RKS_OK)
            return status;
        uint64_t bytes = values[i].data == NULL ? 0 : values[i].size;
        if (values[i].data != NULL)
            at = place(at, column, bytes) + bytes;
        sum += bytes;
        if (bytes >= WIDE_COLUMN)
            widest = WIDE_ALIGN;
        if (at > RKS_PAYLOAD_LIMIT)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "column \"%s\": the sample grows above %" PRIu64 " bytes", column->name,
                            RKS_PAYLOAD_LIMIT);
    }
    *size = at;
    *align = widest;
    *plain = sum;
    return RKS_OK;
}

void rks_record_write(const rks_schema *schema, const rks_value *values, uint8_t *payload)
{
    uint32_t count = rks_schema_columns(schema);
    const rks_column *columns = rks_schema_column(schema, 0), *last = &columns[count - 1];
    size_t prefix = prefix_size(columns, count), dim_at = 0, bit = 0;
    uint8_t *nulls = payload + 4 * ((size_t)last->dims_before + last->variable_dims);
    memset(payload, 0, prefix);
    uint64_t at = prefix;
    for (uint32_t i = 0; i < count; i++) {
        const rks_column *column = &columns[i];
        const rks_value *value = &values[i];
        uint32_t dims[RKS_DIMS_MAX];
        if (value->data != NULL) /* rks_record_measure has checked that they fit */
            (void)resolve_dims(column, value, dims);
        for (uint32_t d = 0; d < column->dim_count; d++) {
            if (column->dims[d] != 0)
                continue;
            rks_store_u32(payload + dim_at, value->data == NULL ? 0 : dims[d]);
            dim_at += 4;
        }
        if (column->nullable) {
            nulls[bit / 8] |= (uint8_t)((value->data == NULL) << bit % 8);
            bit++;
        }
        if (value->data == NULL)
            continue;
        uint64_t begin = place(at, column, value->size);
        if (begin != at)
            memset(payload + at, 0, begin - at);
        memcpy(payload + begin, value->data, (size_t)value->size);
        at = begin + value->size;
    }
}

rks_status rks_record_encode(const rks_schema *schema, const rks_value *values, rks_buffer *payload,
                             uint32_t *align, uint64_t *plain, rks_error *err)
{
    uint64_t size = 0, sum = 0;
    uint32_t widest = 0;
    rks_status status = rks_record_measure(schema, values, &size, &widest, &sum, err);
    if (status == RKS_OK)
        status = rks_buffer_reserve(payload, (size_t)size, err);
    if (status != RKS_OK)
        return status;
    rks_record_write(schema, values, payload->data + payload->size);
    payload->size += (size_t)size;
    *align = widest;
    *plain = sum;
    return RKS_OK;
}

static rks_status malformed(const rks_column *column, rks_error *err)
{
    return rks_fail(err, RKS_ERR_CORRUPT, 0, "sample: column \"%s\" (%s) does not fit its payload",
                    column->name, column->type);
}

rks_record_pick rks_record_pick_columns(const rks_schema *schema, uint32_t first, uint32_t last)
{
    uint32_t count = rks_schema_columns(schema);
    const rks_column *columns = rks_schema_column(schema, 0), *final = &columns[count - 1];
    rks_record_pick pick = {
        .schema = schema, .end = last + 1, .prefix = prefix_size(columns, count)};
    pick.dims_size = 4 * (final->dims_before + final->variable_dims);
    pick.nullable = final->nulls_before + final->nullable;
    pick.at = pick.prefix;
    for (; pick.first < first; pick.first++) { /* columns at the same place in all samples */
        const rks_column *column = &columns[pick.first];
        if (column->variable_dims != 0 || column->nullable)
            break;
        pick.at = place(pick.at, column, column->unit) + column->unit;
    }
    return pick;
}

/* Reads the dimensions of a value from the payload's start. Returns true if a variable one is not
 * 0. */
static bool read_dims(const rks_column *column, const uint8_t *payload, uint32_t *dims)
{
    const uint8_t *from = payload + 4 * (size_t)column->dims_before;
    uint32_t any = 0;
    for (uint32_t d = 0; d < column->dim_count; d++) {
        dims[d] = column->dims[d];
        if (dims[d] != 0)
            continue;
        dims[d] = rks_load_u32(from);
        any |= dims[d];
        from += 4;
    }
    return any != 0;
}

static bool is_missing(const rks_column *column, const uint8_t *nulls)
{
    return column->nullable && (nulls[column->nulls_before / 8] >> column->nulls_before % 8 & 1);
}

static rks_status check_end(const rks_record_pick *pick, const uint8_t *nulls, uint64_t at,
                            size_t size, rks_error *err)
{
    if (pick->nullable % 8 != 0 && nulls[pick->nullable / 8] >> pick->nullable % 8 != 0)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "sample: its bitmap has bits without columns");
    if (at != size)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "sample: its columns end at %" PRIu64 " of %zu",
                        at, size);
    return RKS_OK;
}

rks_status rks_record_decode_picked(const rks_record_pick *pick, const uint8_t *payload,
                                    size_t size, rks_value *values, rks_error *err)
{
    const rks_column *columns = rks_schema_column(pick->schema, 0);
    const uint8_t *nulls = payload + pick->dims_size;
    uint64_t at = pick->at;
    rks_value unwanted;
    if (pick->prefix > size)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "sample: %zu bytes, its schema needs %zu", size,
                        pick->prefix);
    for (uint32_t i = pick->first; i < pick->end; i++) {
        const rks_column *column = &columns[i];
        rks_value value = {0};
        rks_value *into = pick->to == NULL  ? &values[i]
                          : pick->to[i] < 0 ? &unwanted
                                            : &values[pick->to[i]];
        bool any = read_dims(column, payload, value.dims);
        if (is_missing(column, nulls)) {
            if (any)
                return malformed(column, err);
            *into = (rks_value){0};
            continue;
        }
        if (column->variable_dims < 2) /* both factors are below 2^32 */
            value.size = column->unit * (column->variable_dims == 0
                                             ? UINT64_C(1)
                                             : rks_load_u32(payload + 4 * column->dims_before));
        else if (!volume(column, value.dims, &value.size))
            return malformed(column, err);
        uint64_t begin = place(at, column, value.size);
        if (begin > size || value.size > size - begin)
            return malformed(column, err);
        value.data = payload + begin;
        *into = value;
        at = begin + value.size;
    }
    return pick->end == rks_schema_columns(pick->schema) ? check_end(pick, nulls, at, size, err)
                                                         : RKS_OK;
}

rks_status rks_record_decode(const rks_schema *schema, const uint8_t *payload, size_t size,
                             rks_value *values, rks_error *err)
{
    const rks_record_pick all = rks_record_pick_columns(schema, 0, rks_schema_columns(schema) - 1);
    return rks_record_decode_picked(&all, payload, size, values, err);
}

rks_status rks_record_fit_create(const rks_schema *own, const rks_schema *as, rks_record_fit *fit,
                                 rks_error *err)
{
    uint32_t count = rks_schema_columns(own);
    int32_t *to = rks_alloc(count, sizeof(*to), err);
    if (to == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        to[i] = rks_schema_find(as, rks_schema_name(own, i));
    *fit = (rks_record_fit){.pick = rks_record_pick_columns(own, 0, count - 1),
                            .to = to,
                            .columns = rks_schema_columns(as)};
    fit->pick.to = to;
    return RKS_OK;
}

void rks_record_fit_free(rks_record_fit *fit)
{
    rks_free(fit->to);
    *fit = (rks_record_fit){0};
}

rks_status rks_record_decode_fit(const rks_record_fit *fit, const uint8_t *payload, size_t size,
                                 rks_value *values, rks_error *err)
{
    memset(values, 0, fit->columns * sizeof(*values));
    return rks_record_decode_picked(&fit->pick, payload, size, values, err);
}
