/* SPDX-License-Identifier: Apache-2.0
 *
 * zip.c: zip files by their central directory, each a unit. */
#include <string.h>

#include "base/memory.h"
#include "ingest/members.h"

static bool is_named(const char *name)
{
    return rks_name_ends(name, ".zip");
}

static bool looks_like(const uint8_t *bytes, size_t size, bool all)
{
    (void)all;
    return size >= 4 && (memcmp(bytes, "PK\3\4", 4) == 0 || memcmp(bytes, "PK\5\6", 4) == 0);
}

static rks_status cut(rks_input *input, uint64_t unit_size, rks_error *err)
{
    (void)unit_size;
    input->units = rks_alloc(input->file_count, sizeof(*input->units), err);
    if (input->units == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < input->file_count; i++)
        if (input->files[i].size > 0) {
            input->units[input->unit_count] = (rks_input_unit){.number = input->unit_count,
                                                               .first_file = i,
                                                               .file_count = 1,
                                                               .size = input->files[i].size,
                                                               .first_of_file = true};
            input->unit_count++;
        }
    return RKS_OK;
}

static rks_status count_rows(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err)
{
    return rks_members_count(RKS_ARCHIVE_ZIP, input, unit, rows, err);
}

static rks_status infer(const rks_input *input, size_t unit, char **schema_text, rks_error *err)
{
    return rks_members_infer(RKS_ARCHIVE_ZIP, input, unit, schema_text, err);
}

static rks_status read_unit(rks_job *job, rks_error *err)
{
    return rks_members_read(RKS_ARCHIVE_ZIP, job, err);
}

const rks_input_format rks_format_zip = {
    .name = "zip",
    .is_named = is_named,
    .looks_like = looks_like,
    .cut = cut,
    .count_rows = count_rows,
    .infer = infer,
    .read = read_unit,
};
