/* SPDX-License-Identifier: Apache-2.0
 *
 * member_value.c: converts by the column's type first, then by the ending of the member's name. */
#include "ingest/member_value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "codec/npy.h"
#include "ingest/job.h"
#include "ingest/row.h"

static rks_status begin_stored(rks_buffer *store, rks_member_value *made, rks_error *err)
{
    size_t place = rks_round_up(store->size, 8);
    rks_status status = rks_buffer_reserve(store, place - store->size + 1, err);
    if (status != RKS_OK)
        return status;
    store->size = place;
    made->stored = true;
    made->place = place;
    return RKS_OK;
}

static rks_status read_json(const rks_column *column, const uint8_t *bytes, size_t size,
                            rks_buffer *store, rks_member_value *made, rks_error *err)
{
    rks_json_parser parser = {0};
    rks_json root = {0};
    rks_status status = rks_json_read(&parser, bytes, size, size, &root, err);
    if (status == RKS_OK && column->nullable && rks_json_is(root, RKS_JSON_NULL)) {
        rks_json_parser_free(&parser);
        return RKS_OK;
    }
    if (status == RKS_OK)
        status = begin_stored(store, made, err);
    if (status == RKS_OK && column->kind == RKS_KIND_JSON) {
        status = rks_json_print(root, store, err);
        made->value = rks_blob_value(NULL, store->size - made->place);
    } else if (status == RKS_OK) {
        status = rks_json_convert(column, root, size, store, &made->value, err);
    }
    rks_json_parser_free(&parser);
    return status;
}

/* Reads decimal digits as Python's int() does: with spaces around, a sign, leading zeros. Numbers
 * above 2^63 - 1 are for uint64 alone. */
static rks_status read_class(const rks_column *column, const uint8_t *bytes, size_t size,
                             rks_buffer *store, rks_member_value *made, rks_error *err)
{
    char text[32] = "", *end = text;
    long long number = 0;
    unsigned long long large = 0;
    errno = 0;
    if (size < sizeof(text) && memchr(bytes, 0, size) == NULL) {
        memcpy(text, bytes, size);
        text[size] = '\0';
        number = strtoll(text, &end, 10);
        if (errno == ERANGE && number > 0 && column->kind == RKS_KIND_UINT64) {
            errno = 0;
            large = strtoull(text, &end, 10);
        }
    }
    bool some = end > text;
    while (*end == ' ' || (*end >= '\t' && *end <= '\r'))
        end++;
    if (!some || *end != '\0' || errno != 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\": not a 64-bit integer", column->name);
    rks_status status = begin_stored(store, made, err);
    if (status != RKS_OK)
        return status;
    if (large > 0 && column->dim_count == 0) {
        made->value = (rks_value){.size = sizeof(large)};
        return rks_buffer_add(store, &large, sizeof(large), err);
    }
    const uint64_t tape[] = {(uint64_t)RKS_JSON_INTEGER << 56, (uint64_t)number};
    return rks_json_convert(column, (rks_json){.tape = tape}, 1, store, &made->value, err);
}

static rks_status read_npy_member(const rks_column *column, uint8_t *bytes, size_t size,
                                  rks_member_value *made, rks_error *err)
{
    rks_npy npy;
    char type[128];
    rks_status status = rks_npy_parse(bytes, size, &npy, err);
    if (status != RKS_OK)
        return status;
    rks_npy_type(&npy, type);
    if (!rks_npy_fits(&npy, column))
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\" is %s, the array %s", column->name,
                        column->type, type);
    if (npy.size != size - npy.begin)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "column \"%s\": npy: %zu bytes of items where the shape takes %llu",
                        column->name, size - npy.begin, (unsigned long long)npy.size);
    if (npy.begin % 8 != 0) /* callbacks may read numbers in place */
        memmove(bytes, bytes + npy.begin, npy.size);
    uint8_t *items = npy.begin % 8 != 0 ? bytes : bytes + npy.begin;
    made->value = (rks_value){.data = items, .size = npy.size};
    for (uint32_t i = 0; i < npy.dim_count; i++)
        made->value.dims[i] = (uint32_t)npy.dims[i];
    return rks_npy_arrange(&npy, items, err);
}

rks_status rks_member_value_make(const rks_column *column, const char *ending, uint8_t *bytes,
                                 size_t size, rks_buffer *store, rks_member_value *made,
                                 rks_error *err)
{
    *made = (rks_member_value){0};
    if (column->kind == RKS_KIND_STR || column->kind == RKS_KIND_BYTES) {
        made->value = rks_blob_value(bytes, size);
        return RKS_OK;
    }
    if (column->kind != RKS_KIND_JSON && strcmp(ending, "npy") == 0)
        return read_npy_member(column, bytes, size, made, err);
    if (column->kind != RKS_KIND_JSON &&
        (strcmp(ending, "cls") == 0 || strcmp(ending, "cls2") == 0))
        return read_class(column, bytes, size, store, made, err);
    return read_json(column, bytes, size, store, made, err);
}
