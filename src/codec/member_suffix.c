/* SPDX-License-Identifier: Apache-2.0
 *
 * member_suffix.c: makes the endings of members' names from columns. */
#include "codec/member_suffix.h"

#include <string.h>

const char *rks_member_ending(const char *column)
{
    const char *dot = strrchr(column, '.');
    return dot == NULL ? column : dot + 1;
}

const char *rks_member_type_of(const rks_column *column)
{
    if (column->kind == RKS_KIND_STR)
        return "txt";
    if (column->kind == RKS_KIND_JSON)
        return "json";
    if (column->kind == RKS_KIND_BYTES)
        return "bin";
    return column->dim_count == 0 && rks_kind_is_integer(column->kind) ? "cls" : "npy";
}

/* Returns true if the column's name is its ending as it is; otherwise the ending of its type
 * follows it. */
static bool keeps_name(const rks_column *column)
{
    static const char *const types[] = {"txt", "text", "json", "cls", "cls2", "npy"};
    const char *says = rks_member_ending(column->name);
    if (column->kind != RKS_KIND_BYTES)
        return strcmp(says, rks_member_type_of(column)) == 0;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(says, types[i]) == 0)
            return false;
    return true;
}

static rks_status end_text(rks_buffer *text, rks_error *err)
{
    rks_status status = rks_buffer_add(text, "", 1, err);
    text->size -= status == RKS_OK;
    return status;
}

rks_status rks_member_escape(const char *column, rks_buffer *name, rks_error *err)
{
    static const char kept[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_-+,=@:~ .";
    rks_status status = RKS_OK;
    for (const char *at = column; status == RKS_OK && *at != '\0'; at++)
        status = strchr(kept, *at) != NULL && (*at != '.' || at > column)
                     ? rks_buffer_add(name, at, 1, err)
                     : rks_buffer_print(name, err, "%%%02X", (unsigned char)*at);
    return status == RKS_OK ? end_text(name, err) : status;
}

rks_status rks_member_ending_of(const rks_column *column, rks_buffer *ending, rks_error *err)
{
    rks_status status = rks_member_escape(column->name, ending, err);
    if (status == RKS_OK && !keeps_name(column))
        status = rks_buffer_print(ending, err, ".%s", rks_member_type_of(column));
    return status == RKS_OK ? end_text(ending, err) : status;
}

bool rks_member_holds_key(const char *ending)
{
    return strcmp(ending, RKS_MEMBER_KEY_TEXT) == 0 || strcmp(ending, RKS_MEMBER_KEY_BYTES) == 0;
}
