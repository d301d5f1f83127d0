/* SPDX-License-Identifier: Apache-2.0
 *
 * filter.c: the store's schema with `id` and `length` after its columns; a condition that reads
 * with these two alone needs no sample. */
#include "filter.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct cli_filter {
    rks_store *store;
    rks_schema *schema; /* what the condition is over */
    rks_where *where;   /* NULL: every sample */
    rks_value *values;  /* one a column of the schema */
    uint32_t own;       /* columns that come from the sample: the schema's first ones */
};

/* The columns of `schema` (NULL: none), then id and length where they are not among them. */
static rks_status make_schema(const rks_schema *schema, rks_schema **made, rks_error *err)
{
    json_t *columns = schema == NULL ? json_object() : json_loads(rks_schema_text(schema), 0, NULL);
    if (json_object_get(columns, "id") == NULL)
        json_object_set_new(columns, "id", json_string("uint64"));
    if (json_object_get(columns, "length") == NULL)
        json_object_set_new(columns, "length", json_string("uint32"));
    char *text = json_dumps(columns, JSON_COMPACT);
    rks_status status = rks_schema_parse(text == NULL ? "" : text, made, err);
    free(text);
    json_decref(columns);
    return status;
}

/* A schema's own `id` and `length` mean the columns, not the index. */
static bool hides(const rks_schema *schema)
{
    return rks_schema_find(schema, "id") >= 0 || rks_schema_find(schema, "length") >= 0;
}

static rks_status parse(cli_filter *filter, const char *where, rks_error *err)
{
    const rks_schema *columns = rks_store_schema(filter->store);
    rks_error ignored;
    rks_status status = make_schema(NULL, &filter->schema, err);
    if (status != RKS_OK ||
        (!hides(columns) &&
         rks_where_parse(filter->schema, where, &filter->where, &ignored) == RKS_OK))
        return status;
    rks_schema_free(filter->schema);
    filter->schema = NULL;
    filter->own = rks_schema_columns(columns);
    status = make_schema(columns, &filter->schema, err);
    if (status == RKS_OK)
        status = rks_where_parse(filter->schema, where, &filter->where, err);
    return status;
}

rks_status cli_filter_open(rks_store *store, const char *where, cli_filter **filter, rks_error *err)
{
    cli_filter *made = calloc(1, sizeof(*made));
    rks_status status = made == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (made != NULL)
        made->store = store;
    if (status == RKS_OK && where != NULL)
        status = parse(made, where, err);
    if (status == RKS_OK && where != NULL) {
        made->values = calloc(rks_schema_columns(made->schema), sizeof(*made->values));
        status = made->values == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    if (status == RKS_ERR_MEMORY)
        snprintf(err->text, sizeof(err->text), "out of memory: --where");
    if (status != RKS_OK) {
        cli_filter_close(made);
        return status;
    }
    *filter = made;
    return RKS_OK;
}

void cli_filter_close(cli_filter *filter)
{
    if (filter == NULL)
        return;
    rks_where_free(filter->where);
    rks_schema_free(filter->schema);
    free(filter->values);
    free(filter);
}

/* Sample `id`, the i-th of `batch` (NULL if no column of it is asked for). */
static rks_status fits_filter(cli_filter *filter, uint64_t id, rks_batch *batch, size_t i,
                              bool *keep, rks_error *err)
{
    uint32_t length = rks_store_lengths(filter->store)[id];
    uint32_t columns = rks_schema_columns(filter->schema);
    rks_status status = RKS_OK;
    for (uint32_t c = 0; status == RKS_OK && c < columns; c++) {
        if (c < filter->own)
            status = rks_batch_value(batch, i, c, &filter->values[c], err);
        else if (strcmp(rks_schema_name(filter->schema, c), "id") == 0)
            filter->values[c] = (rks_value){.data = &id, .size = sizeof(id)};
        else
            filter->values[c] = (rks_value){.data = &length, .size = sizeof(length)};
    }
    return status == RKS_OK ? rks_where_test(filter->where, filter->values, keep, err) : status;
}

rks_status cli_filter_walk(cli_filter *filter, uint64_t first, uint64_t most, cli_take take,
                           void *user, rks_error *err)
{
    uint64_t ids[CLI_FILTER_CHUNK], end = rks_store_count(filter->store), taken = 0;
    size_t count = 0;
    rks_batch *batch = NULL;
    rks_status status = RKS_OK;
    for (uint64_t id = first; id < end && id < first + CLI_FILTER_CHUNK; id++)
        if (rks_store_owner(filter->store, id) >= 0)
            ids[count++] = id;
    if (filter->own > 0 && count > 0)
        status = rks_store_fetch(filter->store, ids, count, &batch, err);
    for (size_t i = 0; status == RKS_OK && i < count && (most == 0 || taken < most); i++) {
        bool keep = true;
        if (filter->where != NULL)
            status = fits_filter(filter, ids[i], batch, i, &keep, err);
        if (status != RKS_OK || !keep)
            continue;
        status = take(user, ids[i], err);
        taken++;
    }
    rks_batch_free(batch);
    return status;
}
