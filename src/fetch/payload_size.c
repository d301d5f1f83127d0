/* SPDX-License-Identifier: Apache-2.0
 *
 * payload_size.c: reads the dimensions at the start of a payload; shard/record.c draws it. */
#include "fetch/payload_size.h"

#include <string.h>

#include "base/bytes.h"
#include "base/memory.h"

rks_status rks_payload_layout_create(const rks_schema *schema, rks_payload_layout *layout,
                                     rks_error *err)
{
    rks_payload_layout made = {.count = rks_schema_columns(schema)};
    size_t nullable = 0;
    made.columns = rks_alloc(made.count, sizeof(*made.columns), err);
    if (made.columns == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < made.count; i++) {
        const rks_column *column = rks_schema_column(schema, (uint32_t)i);
        rks_payload_column *to = &made.columns[i];
        to->unit = column->item_size;
        for (uint32_t d = 0; d < column->dim_count; d++)
            to->unit *= column->dims[d] == 0 ? 1 : column->dims[d];
        to->variable_dims = column->variable_dims;
        to->nullable = column->nullable;
        made.dims += 4 * (size_t)column->variable_dims;
        nullable += column->nullable;
    }
    made.prefix = made.dims + (nullable + 7) / 8;
    *layout = made;
    return RKS_OK;
}

void rks_payload_layout_free(rks_payload_layout *layout)
{
    rks_free(layout->columns);
    *layout = (rks_payload_layout){0};
}

rks_status rks_payload_layouts_create(const rks_schema *const *schemas, size_t count,
                                      rks_payload_layouts *layouts, rks_error *err)
{
    rks_payload_layouts made = {.of = rks_alloc(count, sizeof(*made.of), err), .count = count};
    const rks_schema *last = NULL;
    rks_payload_layout *one = NULL;
    rks_status status = made.of == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        const rks_schema *schema = schemas[i];
        if (schema == NULL)
            continue;
        if (last == NULL ||
            (schema != last && strcmp(rks_schema_text(schema), rks_schema_text(last)) != 0)) {
            one = rks_alloc(1, sizeof(*one), err);
            status = one == NULL ? RKS_ERR_MEMORY : rks_payload_layout_create(schema, one, err);
            if (status != RKS_OK)
                rks_free(one);
            last = schema;
        }
        if (status == RKS_OK)
            made.of[i] = one;
    }
    if (status == RKS_OK)
        *layouts = made;
    else
        rks_payload_layouts_free(&made);
    return status;
}

void rks_payload_layouts_free(rks_payload_layouts *layouts)
{
    const rks_payload_layout *last = NULL;
    for (size_t i = 0; layouts->of != NULL && i < layouts->count; i++) {
        if (layouts->of[i] == NULL || layouts->of[i] == last)
            continue;
        last = layouts->of[i];
        rks_payload_layout_free(layouts->of[i]);
        rks_free(layouts->of[i]);
    }
    rks_free(layouts->of);
    *layouts = (rks_payload_layouts){0};
}

uint64_t rks_payload_bytes(const rks_payload_layout *layout, const rks_record_view *view)
{
    const uint8_t *dims = view->payload, *nulls = dims + layout->dims;
    uint64_t sum = view->key_size;
    if (view->payload_size < layout->prefix)
        return sum;
    for (size_t i = 0, bit = 0; i < layout->count; i++) {
        const rks_payload_column *column = &layout->columns[i];
        uint64_t bytes = column->unit;
        for (uint32_t d = 0; d < column->variable_dims; d++, dims += 4)
            bytes *= rks_load_u32(dims); /* 0 for a missing value */
        if (column->nullable) {
            if (column->variable_dims == 0 && (nulls[bit / 8] >> bit % 8 & 1) != 0)
                bytes = 0;
            bit++;
        }
        sum += bytes;
    }
    return sum;
}
