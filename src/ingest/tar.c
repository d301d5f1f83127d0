/* SPDX-License-Identifier: Apache-2.0
 *
 * tar.c: tar files, cut into units of whole samples by their headers. A packed file, or one no
 * larger than a unit, is one unit and is not searched. */
#include <string.h>

#include "ingest/members.h"

static bool is_tar_name(const char *name)
{
    return rks_name_ends(name, ".tar") || rks_name_ends(name, ".tgz") ||
           rks_name_ends(name, ".tzst") || rks_name_ends(name, ".txz") ||
           rks_name_ends(name, ".tbz2");
}

static bool looks_like_tar(const uint8_t *bytes, size_t size, bool all)
{
    (void)all;
    return size >= 512 && memcmp(bytes + 257, "ustar", 5) == 0;
}

static rks_status cut_tar_file(rks_input *input, size_t number, uint64_t unit_size, rks_error *err)
{
    const rks_input_unit whole = {.first_file = number, .size = input->files[number].size};
    uint64_t begin = 0;
    rks_members members = {0};
    rks_status status = rks_members_open(&members, input, &whole, err);
    if (status == RKS_OK)
        status = rks_members_next(&members, err);
    while (status == RKS_OK && !members.end) {
        uint64_t position = members.member.position;
        if (members.first && position - begin >= unit_size) {
            status = rks_unit_of_bytes(input, number, begin, position, unit_size, err);
            begin = position;
        }
        if (status == RKS_OK)
            status = rks_members_next(&members, err);
    }
    rks_members_close(&members);
    return status == RKS_OK ? rks_unit_of_bytes(input, number, begin, whole.size, unit_size, err)
                            : status;
}

static rks_status cut_tar(rks_input *input, uint64_t unit_size, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < input->file_count; i++) {
        const rks_input_file *file = &input->files[i];
        bool one = rks_file_is_whole(file) || file->size <= unit_size;
        status = one ? rks_unit_of_file(input, i, unit_size, err)
                     : cut_tar_file(input, i, unit_size, err);
    }
    return status;
}

const rks_input_format rks_format_tar = {
    .name = "tar",
    .key = "__key__", /* the names of members are keys to WebDataset, too */
    .packable = true,
    .is_named = is_tar_name,
    .looks_like = looks_like_tar,
    .reads = RKS_READS_ON,
    .cut = cut_tar,
    .count_rows = rks_members_count,
    .infer = rks_members_infer,
    .read = rks_members_read,
};
