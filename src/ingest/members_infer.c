/* SPDX-License-Identifier: Apache-2.0
 *
 * members_infer.c: infers the columns of an archive's first samples. Reads only members whose
 * contents decide their type. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "codec/npy.h"
#include "ingest/schema_inference.h"
#include "ingest/members.h"
#include "ingest/row.h"

typedef struct looking {
    rks_members members;
    rks_guesses all;
    rks_buffer data;
    uint64_t max_sample;
    uint64_t most; /* most bytes to read */
    uint64_t row;
} looking;

static rks_status look_at_json(looking *at, const char *column, bool *refused, rks_error *err)
{
    rks_json_parser parser = {0};
    rks_json value = {0};
    at->data.size = 0;
    rks_status status = rks_member_load(&at->members, at->max_sample, &at->data, refused, err);
    if (status != RKS_OK)
        return status;
    status = rks_json_read(&parser, at->data.data, at->data.size, at->data.size, &value, err);
    *refused = status == RKS_ERR_DATA;
    if (status == RKS_OK && rks_json_is(value, RKS_JSON_STRING))
        status = rks_guesses_add_type(&at->all, column, "json", at->row, err);
    else if (status == RKS_OK)
        status = rks_guesses_add_value(&at->all, column, value, at->row, err);
    rks_json_parser_free(&parser);
    return status;
}

static rks_status look_at_array(looking *at, const char *column, bool *refused, rks_error *err)
{
    rks_npy npy;
    char type[128];
    at->data.size = 0;
    rks_status status = rks_buffer_reserve(&at->data, RKS_NPY_HEADER_MAX, err);
    if (status == RKS_OK)
        status = rks_archive_read_head(at->members.archive, at->data.data, RKS_NPY_HEADER_MAX,
                                       &at->data.size, err);
    if (status != RKS_OK)
        return status;
    status = rks_npy_parse(at->data.data, at->data.size, &npy, err);
    if (status == RKS_OK)
        status = rks_npy_check_typed(&npy, err);
    *refused = status == RKS_ERR_DATA;
    if (status != RKS_OK)
        return status;
    rks_npy_type(&npy, type);
    return rks_guesses_add_type(&at->all, column, type, at->row, err);
}

/* Looks at a member; sets *refused if the error is the member's. */
static rks_status look_at_member(looking *at, bool *refused, rks_error *err)
{
    char column[256];
    rks_status status = rks_member_column(&at->members, column, err);
    *refused = status == RKS_ERR_DATA;
    if (status != RKS_OK)
        return status;
    if (rks_member_holds_key(column))
        return RKS_OK;
    const char *ending = rks_member_ending(column);
    if (strcmp(ending, "json") == 0)
        return look_at_json(at, column, refused, err);
    if (strcmp(ending, "npy") == 0)
        return look_at_array(at, column, refused, err);
    bool text = strcmp(ending, "txt") == 0 || strcmp(ending, "text") == 0;
    bool class = strcmp(ending, "cls") == 0 || strcmp(ending, "cls2") == 0;
    return rks_guesses_add_type(&at->all, column,
                                text    ? "str"
                                : class ? "int64"
                                        : "bytes",
                                at->row, err);
}

static rks_status look_at_members(looking *at, bool skip_bad, rks_error *err)
{
    rks_members *members = &at->members;
    rks_status status = rks_members_next(members, err);
    while (status == RKS_OK && !members->end) {
        bool refused = false;
        if (members->first && (at->row == RKS_INFER_ROWS || members->total > at->most) &&
            at->row > 0)
            break;
        at->row += members->first;
        if (members->first)
            status = rks_guesses_add_type(&at->all, "__key__", "str", at->row, err);
        if (status == RKS_OK)
            status = look_at_member(at, &refused, err);
        if (status == RKS_ERR_DATA && refused && skip_bad)
            status = RKS_OK; /* reading the unit counts and lists it */
        if (refused && status != RKS_OK) {
            rks_error inner = *err;
            rks_fail(err, status, inner.cause, "%s: %s: %s", members->file->path,
                     members->member.name, inner.text);
        }
        if (status == RKS_OK)
            status = rks_members_next(members, err);
    }
    return status;
}

rks_status rks_members_infer(const rks_input *input, size_t unit, char **schema_text,
                             rks_error *err)
{
    looking at = {.max_sample = input->max_sample, .most = rks_infer_bytes(input, unit)};
    rks_status status = rks_members_open(&at.members, input, &input->units[unit], err);
    if (status == RKS_OK)
        status = look_at_members(&at, input->skip_bad, err);
    if (status == RKS_OK && at.row > 0)
        status = rks_guesses_text(&at.all, at.row, schema_text, err);
    rks_members_close(&at.members);
    rks_guesses_free(&at.all);
    rks_buffer_free(&at.data);
    return status;
}
