/* SPDX-License-Identifier: Apache-2.0
 *
 * mds_index.c: reads index.json; checks each field before it is used. */
#include "ingest/mds_index.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "codec/input_file.h"
#include "ingest/row.h"

enum { LOOK = 64 << 10, INDEX_MAX = 256 << 20 };

bool rks_mds_is_folder(const char *path)
{
    struct stat info;
    char *bytes = NULL;
    char *name = rks_format(NULL, "%s/%s", path, RKS_MDS_INDEX);
    FILE *file = NULL;
    size_t size = 0;
    if (name != NULL && stat(name, &info) == 0 && S_ISREG(info.st_mode))
        file = fopen(name, "rb");
    if (file != NULL && (bytes = rks_alloc_raw(LOOK, 1, NULL)) != NULL)
        size = fread(bytes, 1, LOOK, file);
    bool found = size > 0 && memmem(bytes, size, "\"shards\"", 8) != NULL;
    if (file != NULL)
        fclose(file);
    rks_free(bytes);
    rks_free(name);
    return found;
}

rks_status rks_mds_is_index(const rks_input_file *file, bool *index, rks_error *err)
{
    rks_input_handle *handle = NULL;
    size_t size = file->size < LOOK ? (size_t)file->size : LOOK;
    char *bytes = rks_alloc_raw(size + 1, 1, err);
    rks_status status = bytes == NULL ? RKS_ERR_MEMORY : rks_input_file_open(file, &handle, err);
    if (status == RKS_OK)
        status = rks_input_file_read_all(file, handle, 0, (uint8_t *)bytes, size, err);
    *index = status == RKS_OK && memmem(bytes, size, "\"shards\"", 8) != NULL;
    rks_input_file_close(handle);
    rks_free(bytes);
    return status;
}

size_t rks_mds_folder_size(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

rks_status rks_mds_index_load(const rks_input_file *file, json_t **root, rks_error *err)
{
    rks_input_handle *handle = NULL;
    rks_error why = {0};
    json_t *parsed = NULL;
    if (file->size > INDEX_MAX)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: above %d MiB", file->path, INDEX_MAX >> 20);
    uint8_t *bytes = rks_alloc_raw((size_t)file->size + 1, 1, err);
    rks_status status = bytes == NULL ? RKS_ERR_MEMORY : rks_input_file_open(file, &handle, err);
    if (status == RKS_OK)
        status = rks_input_file_read_all(file, handle, 0, bytes, (size_t)file->size, err);
    if (status == RKS_OK && (status = rks_json_parse(bytes, file->size, &parsed, &why)) != RKS_OK)
        rks_fail(err, status, 0, "%s: %s", file->path, why.text);
    rks_input_file_close(handle);
    rks_free(bytes);
    if (status == RKS_OK && (json_integer_value(json_object_get(parsed, "version")) != 2 ||
                             !json_is_array(json_object_get(parsed, "shards"))))
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: not an index of MDS shards of version 2",
                          file->path);
    if (status != RKS_OK) {
        json_decref(parsed);
        return status;
    }
    *root = parsed;
    return RKS_OK;
}

const char *rks_mds_base_name(const json_t *entry, const char *which)
{
    const json_t *data = json_object_get(entry, which);
    const char *name = json_string_value(json_object_get(data, "basename"));
    return name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL ? NULL
                                                                                          : name;
}

rks_status rks_mds_check_entry(const json_t *entry, size_t at, const char *path, rks_error *err)
{
    const char *format = json_string_value(json_object_get(entry, "format"));
    const json_t *bytes = json_object_get(json_object_get(entry, "raw_data"), "bytes");
    const json_t *zipped = json_object_get(entry, "zip_data");
    if (format == NULL || strcmp(format, "mds") != 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: shard %zu has format %.32s; only mds is known",
                        path, at, format == NULL ? "none" : format);
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0 ||
        !json_is_integer(json_object_get(entry, "samples")))
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: shard %zu lacks samples or raw_data's bytes",
                        path, at);
    if (rks_mds_base_name(entry, "raw_data") == NULL ||
        (zipped != NULL && !json_is_null(zipped) && rks_mds_base_name(entry, "zip_data") == NULL))
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: shard %zu is in a file without a name, or of another directory", path,
                        at);
    return RKS_OK;
}
