/* SPDX-License-Identifier: Apache-2.0
 *
 * zip.c: zip files, read by their central directory; each is a unit. */
#include <string.h>

#include "ingest/members.h"
#include "ingest/npz_array.h"

static bool is_zip_name(const char *name)
{
    return rks_name_ends(name, ".zip");
}

static bool looks_like_zip(const uint8_t *bytes, size_t size, bool all)
{
    return !rks_npz_looks_like(bytes, size, all) && size >= 4 &&
           (memcmp(bytes, "PK\3\4", 4) == 0 || memcmp(bytes, "PK\5\6", 4) == 0);
}

const rks_input_format rks_format_zip = {
    .name = "zip",
    .key = "__key__", /* the names of members are keys to WebDataset, too */
    .is_named = is_zip_name,
    .looks_like = looks_like_zip,
    .cut = rks_cut_by_file,
    .count_rows = rks_members_count,
    .infer = rks_members_infer,
    .read = rks_members_read,
};
