/* SPDX-License-Identifier: Apache-2.0
 *
 * home_file.c: home.json is {"home": "/mnt/lake/tokens", "schema_version": 1}. */
#include "dataset/home_file.h"

#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_error.h"
#include "base/memory.h"
#include "shard/json_parse.h"

enum { VERSION = 1, FOLDERS_MOST = 1024 };

rks_status rks_home_file_decode(const char *text, size_t size, const char *path, char **home,
                                rks_error *err)
{
    json_error_t where;
    json_t *said = rks_json_load(text, size, &where);
    if (said == NULL && rks_json_lacked_memory(&where))
        return rks_fail(err, RKS_ERR_MEMORY, 0, "%s: out of memory for its JSON", path);
    const char *name = json_string_value(json_object_get(said, "home"));
    int64_t version = json_integer_value(json_object_get(said, "schema_version"));
    rks_status status = RKS_OK;
    *home = NULL;
    if (name == NULL || version != VERSION)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0,
                          "%s: does not name a home; remove it, and give the home again", path);
    else if ((*home = rks_strdup(name, err)) == NULL)
        status = RKS_ERR_MEMORY;
    json_decref(said);
    return status;
}

rks_status rks_home_file_read(const char *directory, char **home, rks_error *err)
{
    char *bytes = NULL, *path = rks_format(err, "%s/%s", directory, RKS_HOME_FILE);
    size_t size = 0;
    *home = NULL;
    rks_status status =
        path == NULL ? RKS_ERR_MEMORY : rks_file_load(path, RKS_HOME_FILE_MAX, &bytes, &size, err);
    if (status == RKS_OK)
        status = rks_home_file_decode(bytes, size, path, home, err);
    else if (status == RKS_ERR_NOT_FOUND)
        status = RKS_OK;
    rks_free(bytes);
    rks_free(path);
    return status;
}

void rks_home_file_below(const char *directory, char **folder, char **home)
{
    struct dirent *entry;
    DIR *stream = opendir(directory);
    *folder = *home = NULL;
    for (int seen = 0; stream != NULL && seen < FOLDERS_MOST && *home == NULL &&
                       (entry = readdir(stream)) != NULL;
         seen++) {
        const bool may_be = entry->d_name[0] != '.' && entry->d_type != DT_REG;
        char *path = may_be ? rks_format(NULL, "%s/%s", directory, entry->d_name) : NULL;
        if (path != NULL && rks_home_file_read(path, home, NULL) == RKS_OK && *home != NULL)
            *folder = path;
        else
            rks_free(path);
    }
    if (stream != NULL)
        closedir(stream);
}

rks_status rks_home_file_write(const char *directory, const char *home, rks_error *err)
{
    json_t *value = json_pack("{s:s, s:i}", "home", home, "schema_version", VERSION);
    char *text = value == NULL ? NULL : json_dumps(value, JSON_INDENT(2));
    char *path = rks_format(err, "%s/%s", directory, RKS_HOME_FILE);
    rks_status status = RKS_ERR_MEMORY;
    if (text == NULL)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: its name is not UTF-8", home);
    else if (path != NULL)
        status = rks_file_replace(path, text, strlen(text), err);
    rks_free(path);
    free(text);
    json_decref(value);
    return status;
}

rks_status rks_home_file_refuse(const char *directory, rks_error *err)
{
    char *home = NULL;
    rks_status status = rks_home_file_read(directory, &home, err);
    if (status == RKS_OK && home != NULL)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "%s: holds copies of shards that are kept at %s (it has a %s); build and "
                          "change the dataset in another directory, and publish it to that home",
                          directory, home, RKS_HOME_FILE);
    rks_free(home);
    return status;
}
