/* SPDX-License-Identifier: Apache-2.0
 *
 * mds_type.c: parses MDS encodings and converts their values. */
#include "ingest/mds_type.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/c_locale.h"
#include "base/error.h"
#include "codec/member_suffix.h"

/* Item types of arrays, and their codes there. */
static const struct {
    rks_kind kind;
    uint8_t code;
} ITEMS[] = {
    {RKS_KIND_UINT8, 8},    {RKS_KIND_INT8, 9},    {RKS_KIND_UINT16, 16},  {RKS_KIND_INT16, 17},
    {RKS_KIND_FLOAT16, 18}, {RKS_KIND_UINT32, 32}, {RKS_KIND_INT32, 33},   {RKS_KIND_FLOAT32, 34},
    {RKS_KIND_UINT64, 64},  {RKS_KIND_INT64, 65},  {RKS_KIND_FLOAT64, 66},
};
enum { ITEM_COUNT = sizeof(ITEMS) / sizeof(ITEMS[0]) };

/* By a name, or by a code if `name` is NULL. */
static bool set_item(const char *name, size_t size, int code, rks_npy *array)
{
    rks_kind kind = RKS_KIND_JSON;
    bool found = name != NULL && rks_kind_find(name, size, &kind);
    for (size_t i = 0; i < ITEM_COUNT; i++)
        if (name == NULL ? ITEMS[i].code == code : found && ITEMS[i].kind == kind) {
            array->kind = ITEMS[i].kind;
            array->item = rks_kinds[array->kind].name;
            array->item_size = rks_kinds[array->kind].size;
            return true;
        }
    return false;
}

static bool add_dimension(rks_npy *array, uint64_t size)
{
    if (array->dim_count == RKS_DIMS_MAX || size > UINT32_MAX)
        return false;
    array->dims[array->dim_count++] = size;
    return true;
}

/* Computes the bytes of all items; false if they are too many. */
static bool set_size(rks_npy *array)
{
    array->size = array->item_size;
    for (uint32_t i = 0; i < array->dim_count; i++)
        if (__builtin_mul_overflow(array->size, array->dims[i], &array->size))
            return false;
    return true;
}

/* Parses "3,4"; sizes are at least 1. */
static bool parse_mds_shape(const char *text, rks_npy *array)
{
    for (;;) {
        char *end;
        if (*text < '1' || *text > '9')
            return false;
        errno = 0;
        unsigned long long size = strtoull(text, &end, 10);
        if (errno != 0 || !add_dimension(array, size))
            return false;
        if (*end == '\0')
            return set_size(array);
        if (*end != ',')
            return false;
        text = end + 1;
    }
}

static bool parse_array(const char *rest, rks_mds_type *type)
{
    type->how = RKS_MDS_ARRAY;
    if (*rest == '\0')
        return true;
    size_t size = strcspn(++rest, ":");
    type->has_item = true;
    type->has_shape = rest[size] == ':';
    return set_item(rest, size, 0, &type->array) &&
           (!type->has_shape || parse_mds_shape(rest + size + 1, &type->array));
}

rks_status rks_mds_type_parse(const char *encoding, rks_mds_type *type, rks_error *err)
{
    static const struct {
        const char *name;
        rks_mds_how how;
        const char *item;
    } NAMES[] = {
        {"bytes", RKS_MDS_BYTES, NULL},
        {"jpeg", RKS_MDS_BYTES, NULL},
        {"png", RKS_MDS_BYTES, NULL},
        {"str", RKS_MDS_STR, NULL},
        {"jpeg_array", RKS_MDS_BYTES, NULL},
        {"jpegarray", RKS_MDS_BYTES, NULL},
        {"str_decimal", RKS_MDS_STR, NULL},
        {"json", RKS_MDS_JSON, NULL},
        {"int", RKS_MDS_NUMBER, "int64"},
        {"str_int", RKS_MDS_DECIMAL, "int64"},
        {"str_float", RKS_MDS_DECIMAL, "float64"},
    };
    *type = (rks_mds_type){0};
    if (strcmp(encoding, "pkl") == 0)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "pkl: reading a pickle runs what it holds; write it as another encoding");
    bool known = false;
    for (size_t i = 0; !known && i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        if (strcmp(encoding, NAMES[i].name) == 0) {
            type->how = NAMES[i].how;
            known = true;
            if (NAMES[i].item != NULL)
                set_item(NAMES[i].item, strlen(NAMES[i].item), 0, &type->array);
        }
    if (!known && strncmp(encoding, "ndarray", 7) == 0 &&
        (encoding[7] == ':' || encoding[7] == '\0'))
        known = parse_array(encoding + 7, type);
    else if (!known && set_item(encoding, strlen(encoding), 0, &type->array)) {
        type->how = RKS_MDS_NUMBER;
        known = true;
    }
    if (known)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_DATA, 0, "encoding %.64s is not known", encoding);
}

/* Parses an array's header; array->begin is the position of the items. */
static rks_status open_array(const rks_mds_type *type, const uint8_t *bytes, size_t size,
                             rks_npy *array, rks_error *err)
{
    size_t at = 0;
    *array = type->array;
    if (!type->has_item && (at >= size || !set_item(NULL, 0, bytes[at++], array)))
        return rks_fail(err, RKS_ERR_DATA, 0, "an array without a known type");
    if (!type->has_shape) {
        uint32_t dims = at < size ? bytes[at] >> 2 : 0,
                 width = at < size ? 1U << (bytes[at] & 3) : 0;
        if (at++ >= size || dims > RKS_DIMS_MAX || (uint64_t)dims * width > size - at)
            return rks_fail(err, RKS_ERR_DATA, 0, "an array without a whole shape of at most %d",
                            RKS_DIMS_MAX);
        for (uint32_t i = 0; i < dims; i++, at += width) {
            uint8_t number[8] = {0};
            memcpy(number, bytes + at, width);
            if (!add_dimension(array, rks_load_u64(number)))
                return rks_fail(err, RKS_ERR_DATA, 0, "a dimension above 2^32 - 1");
        }
    }
    if (!set_size(array) || array->size != size - at)
        return rks_fail(err, RKS_ERR_DATA, 0, "%zu bytes of items, the shape takes %" PRIu64,
                        size - at, array->size);
    array->begin = at;
    return RKS_OK;
}

rks_status rks_mds_type_of(const rks_mds_type *type, const uint8_t *bytes, size_t size,
                           char name[128], rks_error *err)
{
    rks_npy array = type->array;
    if (type->how == RKS_MDS_ARRAY && !type->has_shape) {
        rks_status status = open_array(type, bytes, size, &array, err);
        if (status == RKS_OK)
            rks_npy_type(&array, name);
        return status;
    }
    if (type->how == RKS_MDS_BYTES || type->how == RKS_MDS_STR || type->how == RKS_MDS_JSON)
        snprintf(name, 128, "%s",
                 type->how == RKS_MDS_BYTES ? "bytes"
                 : type->how == RKS_MDS_STR ? "str"
                                            : "json");
    else
        rks_npy_fixed_type(&array, name);
    return RKS_OK;
}

static rks_status store_bytes(const void *bytes, size_t size, rks_buffer *store,
                              rks_member_value *made, rks_error *err)
{
    static const uint8_t zeros[8];
    size_t place = rks_round_up(store->size, 8); /* callbacks may read numbers in place */
    rks_status status = rks_buffer_add(store, zeros, place - store->size, err);
    if (status == RKS_OK)
        status = rks_buffer_reserve(store, size + 1, err); /* an empty array has a place too */
    if (status == RKS_OK && size > 0)
        status = rks_buffer_add(store, bytes, size, err);
    made->stored = true;
    made->place = place;
    made->value.size = size;
    return status;
}

static rks_status read_decimal(const rks_mds_type *type, const uint8_t *bytes, size_t size,
                               rks_buffer *store, rks_member_value *made, rks_error *err)
{
    char text[64] = "", *end = text;
    int64_t integer = 0;
    double real = 0;
    bool is_integer = type->array.kind == RKS_KIND_INT64;
    errno = 0;
    if (size > 0 && size < sizeof(text) && memchr(bytes, 0, size) == NULL) {
        memcpy(text, bytes, size);
        text[size] = '\0';
        if (is_integer)
            integer = strtoll(text, &end, 10);
        else
            real = rks_strtod(text, &end);
    }
    if (end == text || *end != '\0' || (is_integer && errno != 0))
        return rks_fail(err, RKS_ERR_DATA, 0, "no decimal %s",
                        is_integer ? "integer of 64 bits" : "number");
    return is_integer ? store_bytes(&integer, 8, store, made, err)
                      : store_bytes(&real, 8, store, made, err);
}

static rks_status read_mds_array(const rks_column *column, const rks_mds_type *type,
                                 const uint8_t *bytes, size_t size, rks_buffer *store,
                                 rks_member_value *made, rks_error *err)
{
    rks_npy array;
    rks_status status = open_array(type, bytes, size, &array, err);
    if (status == RKS_OK && !rks_npy_fits(&array, column)) {
        char name[128];
        rks_npy_fixed_type(&array, name);
        status =
            rks_fail(err, RKS_ERR_DATA, 0, "the column is %s, the array %s", column->type, name);
    }
    if (status == RKS_OK)
        status = store_bytes(bytes + array.begin, (size_t)array.size, store, made, err);
    for (uint32_t i = 0; status == RKS_OK && i < array.dim_count; i++)
        made->value.dims[i] = (uint32_t)array.dims[i];
    return status;
}

static bool suits(const rks_mds_type *type, const rks_column *column)
{
    switch (type->how) {
    case RKS_MDS_BYTES:
    case RKS_MDS_STR:
        return column->kind == RKS_KIND_STR || column->kind == RKS_KIND_BYTES;
    case RKS_MDS_NUMBER:
    case RKS_MDS_DECIMAL:
        return rks_npy_fits(&type->array, column);
    default:
        return true;
    }
}

rks_status rks_mds_value(const rks_mds_type *type, const rks_column *column, uint8_t *bytes,
                         size_t size, rks_buffer *store, rks_member_value *made, rks_error *err)
{
    *made = (rks_member_value){0};
    if (!suits(type, column))
        return rks_fail(err, RKS_ERR_DATA, 0, "the column is %s, which its encoding is not",
                        column->type);
    if (type->how == RKS_MDS_ARRAY)
        return read_mds_array(column, type, bytes, size, store, made, err);
    if (type->how == RKS_MDS_DECIMAL)
        return read_decimal(type, bytes, size, store, made, err);
    if (type->how != RKS_MDS_NUMBER)
        return rks_member_value_make(column, rks_member_ending(column->name), bytes, size, store,
                                     made, err);
    if (size != column->item_size)
        return rks_fail(err, RKS_ERR_DATA, 0, "%zu bytes where %" PRIu32 " belong", size,
                        column->item_size);
    return store_bytes(bytes, size, store, made, err);
}
