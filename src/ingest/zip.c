/* SPDX-License-Identifier: Apache-2.0
 *
 * zip.c: zip files by their central directory, each a unit. */
#include <string.h>

#include "ingest/members.h"
#include "ingest/npz_array.h"

static bool is_named(const char *name)
{
    return rks_name_ends(name, ".zip");
}

static bool looks_like(const uint8_t *bytes, size_t size, bool all)
{
    return !rks_npz_looks_like(bytes, size, all) && size >= 4 &&
           (memcmp(bytes, "PK\3\4", 4) == 0 || memcmp(bytes, "PK\5\6", 4) == 0);
}

static rks_status cut(rks_input *input, uint64_t unit_size, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < input->file_count; i++)
        status = rks_unit_of_file(input, i, unit_size, err);
    return status;
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
