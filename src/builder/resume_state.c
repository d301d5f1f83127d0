/* SPDX-License-Identifier: Apache-2.0
 *
 * resume_state.c: the list is, for each build, little-endian:
 *
 *   size  field
 *     16  build id
 *      8  unit size; 0: samples from memory
 *      4  size s of the schema's text with its NUL
 *      s  the text */
#include "builder/resume_state.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "shard/part_check.h"

enum {
    ENTRY_HEADER = 28,
    BUILDS_MOST = 16, /* builds listed of a directory: what is in use is one of the few that it
                       * holds */
    PART_BUILD = 21,  /* "part-" and 16 digits of the build id */
    APPEND_UNITS_MOST = 4096,
};

/* The unit size of files that follow samples from memory, which have none. */
static const uint64_t AFTER_MEMORY = UINT64_C(64) << 20;

/* ---- the list -------------------------------------------------------------------------------- */

static rks_status put_build(rks_buffer *list, rks_digest build, uint64_t unit_size,
                            const char *schema, rks_error *err)
{
    uint8_t header[ENTRY_HEADER];
    size_t size = strlen(schema) + 1;
    if (size > RKS_MANIFEST_MAX) /* too large for a manifest: damaged */
        return RKS_OK;
    rks_store_u64(header, build.low);
    rks_store_u64(header + 8, build.high);
    rks_store_u64(header + 16, unit_size);
    rks_store_u32(header + 24, (uint32_t)size);
    rks_status status = rks_buffer_add(list, header, sizeof(header), err);
    return status == RKS_OK ? rks_buffer_add(list, schema, size, err) : status;
}

typedef struct recorded_build {
    rks_digest id;
    uint64_t unit_size;
    const char *schema;
} recorded_build;

/* Reads the next one from *at. Returns false at the end, and if another rank's bytes are not a
 * list. */
static bool next_build(const uint8_t **at, const uint8_t *end, recorded_build *recorded)
{
    if ((size_t)(end - *at) < ENTRY_HEADER)
        return false;
    const uint8_t *header = *at, *text = header + ENTRY_HEADER;
    size_t size = rks_load_u32(header + 24);
    if (size == 0 || size > (size_t)(end - text) || text[size - 1] != '\0')
        return false;
    *recorded = (recorded_build){.id = {rks_load_u64(header), rks_load_u64(header + 8)},
                                 .unit_size = rks_load_u64(header + 16),
                                 .schema = (const char *)text};
    *at = text + size;
    return true;
}

/* ---- looking --------------------------------------------------------------------------------- */

/* A sealed part is read from its manifest, an unsealed one from its own record. */
static rks_status put_part(const char *directory, const char *name, rks_buffer *list, bool *put,
                           rks_error *err)
{
    rks_manifest *manifest = NULL;
    rks_part_record record = {0};
    rks_error why = {0};
    char *sealed = rks_format(err, "%s/%s.json", directory, name);
    char *data = rks_format(err, "%s/%s.rks", directory, name);
    rks_status status = sealed == NULL || data == NULL ? RKS_ERR_MEMORY : RKS_OK;
    rks_status looked = RKS_ERR_NOT_FOUND;
    if (status == RKS_OK)
        looked = rks_manifest_load(sealed, &manifest, &why);
    if (status == RKS_OK && looked == RKS_OK) {
        *put = manifest->unit_count > 0;
        if (*put)
            status = put_build(list, manifest->build_id, manifest->unit_size,
                               rks_schema_text(manifest->schema), err);
    } else if (looked == RKS_ERR_UNSUPPORTED) {
        status = rks_fail(err, looked, 0, "%s; remove this unfinished part", why.text);
    } else if (status == RKS_OK) {
        looked = rks_part_look(data, &record, err);
        *put = looked == RKS_OK && record.units > 0;
        if (*put)
            status = put_build(list, record.build_id, record.unit_size, record.schema, err);
        else if (looked == RKS_ERR_UNSUPPORTED)
            status = looked;
    }
    rks_manifest_free(manifest);
    rks_free(record.schema);
    rks_free(sealed);
    rks_free(data);
    return status;
}

/* Adds one part of each build, without those of the dataset. */
static rks_status put_parts(const char *directory, const rks_dataset *dataset, rks_buffer *list,
                            rks_error *err)
{
    char **names = NULL, *last = NULL;
    size_t count = 0, builds = 0;
    rks_shard_names used = {0};
    rks_status status = rks_shard_names_add(&used, dataset, err);
    if (status != RKS_OK || rks_dataset_parts(directory, &names, &count, NULL) != RKS_OK) {
        rks_shard_names_free(&used);
        return status;
    }
    for (size_t i = 0; status == RKS_OK && i < count && builds < BUILDS_MOST; i++) {
        bool put = false;
        if ((last != NULL && strncmp(last, names[i], PART_BUILD) == 0) ||
            rks_shard_names_have(&used, names[i]))
            continue; /* names are sorted, so parts of a build are neighbours */
        status = put_part(directory, names[i], list, &put, err);
        builds += put;
        last = put ? names[i] : last;
    }
    rks_dataset_parts_free(names, count);
    rks_shard_names_free(&used);
    return status;
}

rks_status rks_resume_collect(const char *directory, bool replace, rks_buffer *list, rks_error *err)
{
    rks_dataset *dataset = NULL;
    rks_status status = RKS_OK;
    if (rks_dataset_load_json(directory, &dataset, NULL) == RKS_OK)
        status = put_build(list, dataset->build_id, dataset->unit_size,
                           rks_schema_text(dataset->schema), err);
    if (status == RKS_OK && !replace)
        status = put_parts(directory, dataset, list, err);
    rks_dataset_free(dataset);
    return status;
}

/* ---- the build's own ------------------------------------------------------------------------- */

/* *same: with this unit size and schema, the request is that very build. May cut the input anew. */
static rks_status compare_build(const rks_resume_request *request, const recorded_build *recorded,
                                rks_schema **schema, rks_error *err)
{
    rks_digest id;
    rks_schema *parsed = NULL;
    uint64_t size = recorded->unit_size;
    if (size == 0 || (request->unit_size != 0 && size != request->unit_size) ||
        (request->schema_given && strcmp(rks_schema_text(request->schema), recorded->schema) != 0))
        return RKS_OK;
    rks_status status = rks_schema_parse(recorded->schema, &parsed, err);
    if (status == RKS_OK && size != request->input->unit_size)
        status = rks_input_cut(request->input, size, err);
    if (status == RKS_OK)
        status = rks_build_id("files", rks_input_digest(request->input), parsed,
                              request->options_text, &id, err);
    if (status == RKS_OK && rks_digest_equal(id, recorded->id)) {
        *schema = parsed;
        return RKS_OK;
    }
    rks_schema_free(parsed);
    /* A size or schema that this version refuses cannot be today's build. */
    return status == RKS_ERR_ARGUMENT || status == RKS_ERR_DATA ? RKS_OK : status;
}

rks_status rks_resume_find(const rks_resume_request *request, const rks_buffer *lists,
                           rks_schema **schema, rks_error *err)
{
    const uint8_t *at = lists->data, *end = at + lists->size;
    recorded_build recorded;
    rks_status status = RKS_OK;
    *schema = NULL;
    while (status == RKS_OK && *schema == NULL && lists->size > 0 &&
           next_build(&at, end, &recorded))
        status = compare_build(request, &recorded, schema, err);
    return status;
}

rks_status rks_resume_join(const rks_group *group, const rks_agreed *agreed, size_t fact,
                           rks_buffer *list, rks_error *err)
{
    list->size = 0;
    for (uint32_t rank = 0; rank < rks_group_size(group); rank++) {
        size_t size = 0;
        const void *theirs = rks_agreed_get(agreed, rank, fact, &size);
        rks_status status = size == 0 ? RKS_OK : rks_buffer_add(list, theirs, size, err);
        if (status != RKS_OK)
            return status;
    }
    return RKS_OK;
}

uint64_t rks_resume_append_size(uint64_t unit_size, uint64_t bytes)
{
    uint64_t own = unit_size != 0 ? unit_size : AFTER_MEMORY, plain = rks_unit_size_for(bytes);
    return bytes / own > APPEND_UNITS_MOST && plain > own ? plain : own;
}

rks_status rks_unit_size_kept(const char *directory, uint64_t *unit_size, rks_error *err)
{
    rks_dataset *dataset = NULL;
    rks_buffer list = {0};
    recorded_build recorded;
    if (rks_dataset_load_json(directory, &dataset, NULL) == RKS_OK) {
        *unit_size = dataset->unit_size != 0 ? dataset->unit_size : AFTER_MEMORY;
        rks_dataset_free(dataset);
        return RKS_OK;
    }
    rks_status status = put_parts(directory, NULL, &list, err);
    const uint8_t *at = list.data;
    if (status == RKS_OK)
        *unit_size = list.size == 0 || !next_build(&at, at + list.size, &recorded) ? 0
                     : recorded.unit_size != 0 ? recorded.unit_size
                                               : AFTER_MEMORY;
    rks_buffer_free(&list);
    return status;
}
