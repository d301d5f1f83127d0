/* SPDX-License-Identifier: Apache-2.0
 *
 * tar.c: tar files, in units of whole samples: a look at the headers finds where to cut. What is
 * packed, or no larger than a unit, is one unit and is not looked at. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "ingest/members.h"

static bool is_named(const char *name)
{
    return rks_name_ends(name, ".tar") || rks_name_ends(name, ".tgz") ||
           rks_name_ends(name, ".tzst") || rks_name_ends(name, ".txz") ||
           rks_name_ends(name, ".tbz2");
}

static bool looks_like(const uint8_t *bytes, size_t size, bool all)
{
    (void)all;
    return size >= 512 && memcmp(bytes + 257, "ustar", 5) == 0;
}

typedef struct cutting {
    rks_input *input;
    size_t room;
    uint64_t unit_size;
} cutting;

static rks_status add_unit(cutting *at, size_t file, uint64_t offset, uint64_t size, rks_error *err)
{
    rks_input *input = at->input;
    if (input->unit_count == RKS_UNITS_MAX)
        return rks_too_many_units(at->unit_size, err);
    if (input->unit_count == at->room) {
        size_t room = at->room == 0 ? 64 : 2 * at->room;
        rks_input_unit *grown = rks_realloc(input->units, room, sizeof(*grown), err);
        if (grown == NULL)
            return RKS_ERR_MEMORY;
        input->units = grown;
        at->room = room;
    }
    input->units[input->unit_count] = (rks_input_unit){
        .number = input->unit_count,
        .first_file = file,
        .file_count = 1,
        .offset = offset,
        .size = size,
        .first_of_file = offset == 0,
    };
    input->unit_count++;
    return RKS_OK;
}

static rks_status cut_file(cutting *at, size_t number, rks_error *err)
{
    const rks_input_file *file = &at->input->files[number];
    uint64_t begin = 0;
    rks_members members = {0};
    rks_status status = RKS_OK;
    if (file->packing == RKS_PACKING_NONE && file->size > at->unit_size) {
        status = rks_members_open(&members, RKS_ARCHIVE_TAR, file, 0, file->size, err);
        if (status == RKS_OK)
            status = rks_members_next(&members, err);
    } else {
        members.end = true;
    }
    while (status == RKS_OK && !members.end) {
        uint64_t position = members.member.position;
        if (members.first && position - begin >= at->unit_size) {
            status = add_unit(at, number, begin, position - begin, err);
            begin = position;
        }
        if (status == RKS_OK)
            status = rks_members_next(&members, err);
    }
    rks_members_close(&members);
    return status == RKS_OK && file->size > 0 ? add_unit(at, number, begin, file->size - begin, err)
                                              : status;
}

static rks_status cut(rks_input *input, uint64_t unit_size, rks_error *err)
{
    cutting at = {.input = input, .unit_size = unit_size};
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < input->file_count; i++)
        status = cut_file(&at, i, err);
    return status;
}

static rks_status count_rows(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err)
{
    return rks_members_count(RKS_ARCHIVE_TAR, input, unit, rows, err);
}

static rks_status infer(const rks_input *input, size_t unit, char **schema_text, rks_error *err)
{
    return rks_members_infer(RKS_ARCHIVE_TAR, input, unit, schema_text, err);
}

static rks_status read_unit(rks_job *job, rks_error *err)
{
    return rks_members_read(RKS_ARCHIVE_TAR, job, err);
}

const rks_input_format rks_format_tar = {
    .name = "tar",
    .packable = true,
    .is_named = is_named,
    .looks_like = looks_like,
    .cut = cut,
    .count_rows = count_rows,
    .infer = infer,
    .read = read_unit,
};
