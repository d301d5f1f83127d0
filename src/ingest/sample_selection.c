/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_selection.c: compiles the options once and applies them to each sample. */
#include "ingest/sample_selection.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/number.h"
#include "codec/filter.h"
#include "ingest/item_count.h"
#include "ingest/wav.h"

typedef enum measure {
    MEASURE_ONE = 0, /* every sample has length 1 */
    MEASURE_BYTES,   /* of str, bytes, json */
    MEASURE_CHARS,
    MEASURE_WAV,   /* sample frames of a recording */
    MEASURE_ITEMS, /* of an array's dimension */
    MEASURE_VALUE, /* of an integer */
    MEASURE_CALLBACK,
} measure;

struct rks_selector {
    const rks_schema *schema;
    rks_item_counts *counts; /* NULL: none */
    rks_where *where;        /* NULL: keep all */
    bool derived;
    uint32_t key;
    measure measure;
    uint32_t length;
    uint32_t dim; /* the dimension of MEASURE_ITEMS */
    uint32_t unit;
    uint32_t min_length, max_length;
    rks_filter_fn filter;
    rks_length_fn length_fn;
    void *user;
    bool callback_failed;
    char digits[24]; /* an integer key */
};

static rks_status set_key(rks_selector *selector, const char *name, rks_error *err)
{
    selector->derived = name == NULL;
    if (name == NULL)
        return RKS_OK;
    rks_status status = rks_column_named(selector->schema, "key", name, &selector->key, err);
    if (status != RKS_OK)
        return status;
    const rks_column *column = rks_schema_column(selector->schema, selector->key);
    bool number = rks_kind_is_integer(column->kind) && column->dim_count == 0;
    if (column->kind != RKS_KIND_STR && column->kind != RKS_KIND_BYTES && !number)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "key: column \"%s\" is %s; a key is str, bytes or an integer", column->name,
                        column->type);
    return RKS_OK;
}

static void measure_array(rks_selector *selector, const rks_column *column)
{
    selector->measure = rks_kind_is_text(column->kind) ? MEASURE_BYTES : MEASURE_ITEMS;
    selector->dim = 0;
    while (column->variable_dims > 0 && column->dims[selector->dim] != 0)
        selector->dim++;
}

/* Returns true for a prefixed column name, but a column may itself be called "chars:x". */
static bool has_prefix(const rks_schema *schema, const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0 && rks_schema_find(schema, name) < 0;
}

static rks_status set_length(rks_selector *selector, const char *name, const char *key,
                             rks_error *err)
{
    const rks_column *usual = name == NULL ? rks_schema_length(selector->schema, key) : NULL;
    if (name == NULL && usual == NULL)
        return RKS_OK; /* MEASURE_ONE */
    name = usual != NULL ? usual->name : name;
    bool chars = has_prefix(selector->schema, name, "chars:");
    bool wav = has_prefix(selector->schema, name, "wav:");
    rks_status status =
        rks_column_named(selector->schema, "length", chars || wav ? strchr(name, ':') + 1 : name,
                         &selector->length, err);
    if (status != RKS_OK)
        return status;
    const rks_column *column = rks_schema_column(selector->schema, selector->length);
    if (chars && column->kind != RKS_KIND_STR)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "length: column \"%s\" is %s; chars: counts the characters of str",
                        column->name, column->type);
    if (wav && column->kind != RKS_KIND_BYTES)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "length: column \"%s\" is %s; wav: counts the sample frames of bytes",
                        column->name, column->type);
    if (chars)
        selector->measure = MEASURE_CHARS;
    else if (wav)
        selector->measure = MEASURE_WAV;
    else if (column->dim_count > 0)
        measure_array(selector, column);
    else if (rks_kind_is_integer(column->kind))
        selector->measure = MEASURE_VALUE;
    else
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "length: column \"%s\" is %s; a length is an integer, an array, str, "
                        "bytes or json (round a duration to an integer first)",
                        column->name, column->type);
    return RKS_OK;
}

static rks_status check_index(const rks_schema *schema, const rks_ingest_options *options,
                              rks_error *err)
{
    rks_status status = RKS_OK;
    uint32_t at = 0;
    for (size_t i = 0; status == RKS_OK && i < options->index_count; i++)
        status = rks_column_named(schema, "index", options->index[i], &at, err); /* with a hint */
    return status == RKS_OK
               ? rks_schema_index(schema, options->index, options->index_count, NULL, err)
               : status;
}

rks_status rks_selector_create(const rks_schema *schema, const rks_ingest_options *options,
                               rks_selector **selector, rks_error *err)
{
    rks_selector *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->schema = schema;
    made->unit = options->length_unit == 0 ? 1 : options->length_unit;
    made->min_length = options->min_length;
    made->max_length = options->max_length == 0 ? UINT32_MAX : options->max_length;
    made->filter = options->filter;
    made->length_fn = options->length_fn;
    made->user = options->callback_user;
    rks_status status = set_key(made, options->key, err);
    if (status == RKS_OK)
        status = set_length(made, options->length, options->key, err);
    if (status == RKS_OK && made->length_fn != NULL)
        made->measure = MEASURE_CALLBACK;
    if (status == RKS_OK)
        status = check_index(schema, options, err);
    if (status == RKS_OK && options->counts_count > 0)
        status = rks_item_counts_create(schema, options->counts, options->counts_count,
                                        &made->counts, err);
    if (status == RKS_OK && options->where != NULL)
        status = rks_where_parse(schema, options->where, &made->where, err);
    if (status == RKS_OK) {
        *selector = made;
        made = NULL;
    }
    rks_selector_free(made);
    return status;
}

void rks_selector_free(rks_selector *selector)
{
    if (selector == NULL)
        return;
    rks_item_counts_free(selector->counts);
    rks_where_free(selector->where);
    rks_free(selector);
}

const rks_schema *rks_selector_rows(const rks_selector *selector)
{
    return selector->counts == NULL ? selector->schema : rks_item_counts_rows(selector->counts);
}

const rks_value *rks_selector_count(rks_selector *selector, const rks_value *values)
{
    return selector->counts == NULL ? values : rks_item_counts_apply(selector->counts, values);
}

bool rks_selector_derived_keys(const rks_selector *selector)
{
    return selector->derived;
}

bool rks_selector_callback_failed(const rks_selector *selector)
{
    return selector->callback_failed;
}

static rks_status wrong_size(const rks_column *column, const rks_value *value, rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\": %" PRIu64 " bytes are not a value of %s",
                    column->name, value->size, column->type);
}

static rks_status find_key(rks_selector *selector, const rks_value *values, const void **key,
                           size_t *key_size, rks_error *err)
{
    if (selector->derived)
        return RKS_OK; /* the caller's key, or none */
    const rks_column *column = rks_schema_column(selector->schema, selector->key);
    const rks_value *value = &values[selector->key];
    if (value->data == NULL || (column->dim_count > 0 && value->size == 0))
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\": the key is %s%s", column->name,
                        value->data == NULL ? "missing" : "empty",
                        strcmp(column->name, "__key__") == 0
                            ? "; an empty name as key (key='') makes keys of path and row"
                            : "");
    if (column->dim_count > 0) {
        if (value->size > RKS_KEY_MAX)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "column \"%s\": a key of %" PRIu64 " bytes, at most %d are possible",
                            column->name, value->size, RKS_KEY_MAX);
        *key = value->data;
        *key_size = (size_t)value->size;
        return RKS_OK;
    }
    if (value->size != column->item_size)
        return wrong_size(column, value, err);
    rks_number number = rks_number_load(column->kind, value->data);
    int size = number.kind == RKS_NUMBER_UINT
                   ? snprintf(selector->digits, sizeof(selector->digits), "%" PRIu64, number.as.u)
                   : snprintf(selector->digits, sizeof(selector->digits), "%" PRId64, number.as.i);
    *key = selector->digits;
    *key_size = (size_t)size;
    return RKS_OK;
}

static uint64_t count_characters(const void *text, uint64_t size)
{
    const uint8_t *at = text;
    uint64_t count = 0;
    for (uint64_t i = 0; i < size; i++)
        count += (at[i] & 0xc0) != 0x80; /* every byte but those that continue a character */
    return count;
}

/* Counts the items along a dimension. With one `*` the caller may leave it 0; then the size gives
 * it. */
static uint64_t count_items(const rks_column *column, const rks_value *value, uint32_t dim)
{
    if (column->dims[dim] != 0)
        return column->dims[dim];
    if (value->dims[dim] != 0 || column->variable_dims != 1)
        return value->dims[dim];
    uint64_t step = column->item_size;
    for (uint32_t i = 0; i < column->dim_count; i++)
        step *= column->dims[i] != 0 ? column->dims[i] : 1; /* below 2^32 in every schema */
    return value->size / step;
}

static rks_status measure_value(const rks_column *column, const rks_value *value, uint64_t *length,
                                rks_error *err)
{
    if (value->size != column->item_size)
        return wrong_size(column, value, err);
    rks_number number = rks_number_load(column->kind, value->data);
    if (number.kind == RKS_NUMBER_INT && number.as.i < 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\": a length of %" PRId64, column->name,
                        number.as.i);
    *length = number.as.u; /* the same bits */
    return RKS_OK;
}

static rks_status measure_wav(const rks_column *column, const rks_value *value, uint64_t *length,
                              rks_error *err)
{
    rks_error inner = {0};
    rks_status status = rks_wav_frames(value->data, value->size, length, &inner);
    return status == RKS_OK
               ? status
               : rks_fail(err, status, 0, "column \"%s\": %s", column->name, inner.text);
}

static rks_status find_length(rks_selector *selector, const rks_sample *sample, uint64_t *length,
                              rks_error *err)
{
    const rks_column *column = rks_schema_column(selector->schema, selector->length);
    const rks_value *value = &sample->values[selector->length];
    rks_status status;
    switch (selector->measure) {
    case MEASURE_ONE:
        *length = 1;
        return RKS_OK;
    case MEASURE_CALLBACK:
        status = selector->length_fn(selector->user, sample, length, err);
        selector->callback_failed = status != RKS_OK;
        return status;
    case MEASURE_VALUE:
        if (value->data != NULL)
            return measure_value(column, value, length, err);
        break;
    case MEASURE_CHARS:
        if (value->data != NULL)
            *length = count_characters(value->data, value->size);
        return RKS_OK;
    case MEASURE_WAV:
        return value->data == NULL ? RKS_OK : measure_wav(column, value, length, err);
    case MEASURE_BYTES:
        if (value->data != NULL)
            *length = value->size;
        return RKS_OK;
    case MEASURE_ITEMS:
        if (value->data != NULL)
            *length = count_items(column, value, selector->dim);
        return RKS_OK;
    }
    return RKS_OK;
}

/* Calls the filter. Callbacks may fill *err; this completes what they leave empty. */
static rks_status ask_filter(rks_selector *selector, const rks_sample *sample, bool *keep,
                             rks_error *err)
{
    if (selector->filter == NULL)
        return RKS_OK;
    rks_error left = {0};
    int answer = selector->filter(selector->user, sample, &left);
    if (answer >= 0) {
        *keep = answer != 0;
        return RKS_OK;
    }
    selector->callback_failed = true;
    rks_status status = left.status < 0 ? (rks_status)left.status : RKS_ERR_DATA;
    left.text[sizeof(left.text) - 1] = '\0';
    return rks_fail(err, status, left.cause, "filter: %s",
                    left.text[0] != '\0' ? left.text : "the callback failed without a word");
}

rks_status rks_selector_apply(rks_selector *selector, const rks_value *values, bool *keep,
                              uint32_t *length, const void **key, size_t *key_size, rks_error *err)
{
    bool kept = true;
    uint64_t measured = 0;
    rks_sample sample = {.schema = selector->schema, .values = values};
    if (selector->derived && *key != NULL) {
        sample.key = *key;
        sample.key_size = *key_size;
    }
    rks_status status = RKS_OK;
    selector->callback_failed = false;
    if (selector->where != NULL)
        status = rks_where_test(selector->where, values, &kept, err);
    if (status == RKS_OK && kept)
        status = find_key(selector, values, &sample.key, &sample.key_size, err);
    if (status == RKS_OK && kept)
        status = ask_filter(selector, &sample, &kept, err);
    if (status == RKS_OK && kept)
        status = find_length(selector, &sample, &measured, err);
    if (status != RKS_OK)
        return status;
    if (!kept) {
        *keep = false;
        return RKS_OK;
    }
    if (selector->unit > 1)
        measured = measured / selector->unit + (measured % selector->unit != 0);
    if (measured >= UINT32_MAX) /* UINT32_MAX is reserved for missing samples */
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "a length of %" PRIu64 ", at most %" PRIu32
                        " is possible (length_unit divides)",
                        measured, UINT32_MAX - 1);
    *keep = measured >= selector->min_length && measured <= selector->max_length;
    if (!*keep)
        return RKS_OK;
    *length = (uint32_t)measured;
    *key = sample.key;
    *key_size = sample.key_size;
    return RKS_OK;
}
