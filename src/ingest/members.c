/* SPDX-License-Identifier: Apache-2.0
 *
 * members.c: groups members into samples, and refuses bad ones. */
#include "ingest/members.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "ingest/unpack.h"

enum { STEP = 1 << 20 };

rks_status rks_members_open(rks_members *members, const rks_input *input,
                            const rks_input_unit *unit, rks_error *err)
{
    const rks_input_file *file = &input->files[unit->first_file];
    bool zip = input->format == &rks_format_zip;
    bool part =
        !zip && file->packing == RKS_PACKING_NONE && (unit->offset > 0 || unit->size < file->size);
    *members = (rks_members){.file = file, .stop = part ? unit->offset + unit->size : UINT64_MAX};
    return rks_archive_open(zip ? RKS_ARCHIVE_ZIP : RKS_ARCHIVE_TAR, file, unit->offset,
                            &members->archive, err);
}

void rks_members_close(rks_members *members)
{
    rks_archive_close(members->archive);
    rks_free(members->current);
    *members = (rks_members){0};
}

static size_t base_size(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *last = slash == NULL ? name : slash + 1;
    return (size_t)(last - name) + strcspn(last, ".");
}

/* Returns true for what macOS puts beside the members that were meant: attributes of a file
 * (__MACOSX/, ._NAME) and how a window shows a folder. */
static bool is_for_macos(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *last = slash == NULL ? name : slash + 1;
    return strncmp(name, "__MACOSX/", strlen("__MACOSX/")) == 0 || strncmp(last, "._", 2) == 0 ||
           strcmp(last, ".DS_Store") == 0;
}

static rks_status set_current(rks_members *members, rks_error *err)
{
    if (members->base >= members->current_room) {
        size_t room = 2 * members->base + 64;
        char *grown = rks_realloc(members->current, room, 1, err);
        if (grown == NULL)
            return RKS_ERR_MEMORY;
        members->current = grown;
        members->current_room = room;
    }
    memcpy(members->current, members->member.name, members->base);
    members->current[members->base] = '\0';
    members->current_size = members->base;
    return RKS_OK;
}

rks_status rks_members_next(rks_members *members, rks_error *err)
{
    bool begun = members->current != NULL, skipped;
    do {
        rks_status status =
            rks_archive_next(members->archive, &members->member, &members->end, err);
        if (status != RKS_OK)
            return status;
        members->end |= members->member.position >= members->stop;
        bool macos = !members->end && !members->member.folder && is_for_macos(members->member.name);
        members->macos += macos;
        skipped = macos || members->member.folder;
    } while (!members->end && skipped);
    if (members->end)
        return RKS_OK;
    rks_status status = rks_unpack_check(members->file, rks_archive_taken(members->archive),
                                         members->total, members->member.size, err);
    if (status != RKS_OK)
        return status;
    members->total += members->member.size;
    members->base = base_size(members->member.name);
    members->first = !begun || members->base != members->current_size ||
                     memcmp(members->current, members->member.name, members->base) != 0;
    return members->first ? set_current(members, err) : RKS_OK;
}

static bool goes_up(const char *name)
{
    for (const char *at = name; *at != '\0'; at += strcspn(at, "/"), at += *at == '/')
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
            return true;
    return false;
}

rks_status rks_member_check(const rks_member *member, rks_error *err)
{
    const char *name = member->name, *why = NULL;
    size_t size = strlen(name);
    if (member->refuse != NULL)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s; members are regular files, written with what is "
                        "in them",
                        member->refuse);
    if (size == 0 || !rks_utf8_valid(name, size, NULL))
        why = "its name is not UTF-8";
    else if (name[0] == '/')
        why = "its name is absolute";
    else if (goes_up(name))
        why = "its name goes up by \"..\"";
    else if (size > RKS_INPUT_NAME_MAX)
        why = "its name is above 490 bytes";
    return why == NULL ? RKS_OK : rks_fail(err, RKS_ERR_DATA, 0, "%s", why);
}

rks_status rks_member_column(const rks_members *members, char column[256], rks_error *err)
{
    const char *name = members->member.name;
    rks_status status = rks_member_check(&members->member, err);
    if (status != RKS_OK)
        return status;
    const char *ending = name + members->base + (name[members->base] == '.');
    if (*ending == '\0')
        return rks_fail(err, RKS_ERR_DATA, 0, "its name has no ending, which would be its column");
    if (strlen(ending) > RKS_MEMBER_ENDING_MAX)
        return rks_fail(err, RKS_ERR_DATA, 0, "its ending is above 255 bytes");
    for (size_t i = 0;; i++) {
        column[i] = ending[i] >= 'A' && ending[i] <= 'Z' ? (char)(ending[i] + 32) : ending[i];
        if (ending[i] == '\0')
            return RKS_OK;
    }
}

rks_status rks_member_load(rks_members *members, uint64_t max_sample, rks_buffer *data,
                           bool *refused, rks_error *err)
{
    uint64_t begin = data->size, left = max_sample > begin ? max_sample - begin : 0;
    rks_status status = RKS_OK;
    size_t got = 1;
    *refused = members->member.size > left;
    while (!*refused && got > 0) {
        /* Trust the header's size only step by step. */
        uint64_t rest = members->member.size - (data->size - begin);
        size_t room =
            data->size - begin > members->member.size || rest > STEP ? STEP : (size_t)rest + 1;
        status = rks_buffer_reserve(data, room, err);
        if (status == RKS_OK)
            status = rks_archive_read(members->archive, data->data + data->size, room, &got, err);
        if (status != RKS_OK)
            return status;
        data->size += got;
        *refused = data->size - begin > left;
    }
    if (*refused)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%" PRIu64 " bytes, above max_sample (%" PRIu64 ") together with the other "
                        "members of \"%.80s\"",
                        members->member.size, max_sample, members->current);
    if (data->size - begin > members->member.size)
        members->total += data->size - begin - members->member.size;
    return RKS_OK;
}

rks_status rks_members_count(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err)
{
    rks_members members;
    uint64_t count = 0;
    rks_status status = rks_members_open(&members, input, &input->units[unit], err);
    if (status == RKS_OK)
        status = rks_members_next(&members, err);
    while (status == RKS_OK && !members.end) {
        count += members.first;
        status = rks_members_next(&members, err);
    }
    rks_members_close(&members);
    if (status == RKS_OK)
        *rows = count;
    return status;
}
