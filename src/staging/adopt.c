/* SPDX-License-Identifier: Apache-2.0
 *
 * adopt.c: looks for shards in other folders, and links them. No failure is an error: what is not
 * linked comes from home. */
#include "staging/adopt.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "dataset/dataset_json.h"
#include "shard/checksum_file.h"
#include "shard/manifest.h"

/* The sealed file comes last: what a kill leaves before it is a shard whose file is lost, which
 * arrives. */
static const char *const endings[] = {"sums", "json", "rks"};
enum { ENDINGS = sizeof(endings) / sizeof(endings[0]) };

static char *path_of(const char *folder, const char *name, const char *ending)
{
    return rks_format(NULL, "%s/%s.%s", folder, name, ending);
}

static bool lies(const char *folder, const char *name, const char *ending)
{
    struct stat info;
    char *path = path_of(folder, name, ending);
    bool there = path == NULL || lstat(path, &info) == 0;
    rks_free(path);
    return there;
}

/* Returns true if something of the shard's file is here, perhaps on its way. */
static bool has_some(const char *folder, const char *name)
{
    return lies(folder, name, "rks") || lies(folder, name, "arriving") ||
           lies(folder, name, "pieces") || lies(folder, name, "manifest");
}

/* Returns true for a regular file, which a symbolic link is not. */
static bool is_plain_file(const char *path, struct stat *info)
{
    return path != NULL && lstat(path, info) == 0 && S_ISREG(info->st_mode);
}

/* Returns the manifest of that file if it is the one that the dataset names; else NULL. */
static rks_manifest *load_manifest(const char *path, const rks_dataset_shard *shard)
{
    struct stat info;
    rks_manifest *manifest = NULL;
    if (!is_plain_file(path, &info) || rks_manifest_load(path, &manifest, NULL) != RKS_OK)
        return NULL;
    if (rks_digest_equal(manifest->digest, shard->manifest))
        return manifest;
    rks_manifest_free(manifest);
    return NULL;
}

/* Returns true if it is the shard; then *file is its NAME.rks. */
static bool is_shard(const char *folder, const rks_dataset_shard *shard, struct stat *file)
{
    struct stat info;
    rks_digest *sums = NULL;
    char *manifest_path = path_of(folder, shard->name, "json");
    char *sums_path = path_of(folder, shard->name, "sums");
    char *file_path = path_of(folder, shard->name, "rks");
    rks_manifest *manifest = load_manifest(manifest_path, shard);
    const bool is =
        manifest != NULL && is_plain_file(file_path, file) &&
        (uint64_t)file->st_size == manifest->file_size && is_plain_file(sums_path, &info) &&
        rks_sums_load(sums_path, manifest->file_size, manifest->sums, &sums, NULL) == RKS_OK;
    rks_free(sums);
    rks_manifest_free(manifest);
    rks_free(file_path);
    rks_free(sums_path);
    rks_free(manifest_path);
    return is;
}

/* Returns true if `to` is the file now. What a kill has left in its place, which is not NAME.rks,
 * goes. */
static bool link_file(const char *from, const char *to, bool replaces)
{
    if (from == NULL || to == NULL)
        return false;
    if (link(from, to) == 0)
        return true;
    return replaces && unlink(to) == 0 && link(from, to) == 0;
}

/* Links what is_shard has looked at. */
static bool link_shard(const char *from, const char *to, const char *name, const struct stat *file)
{
    bool linked = true;
    for (size_t i = 0; linked && i < ENDINGS; i++) {
        struct stat now;
        const bool last = i + 1 == ENDINGS;
        char *old_path = path_of(from, name, endings[i]), *new_path = path_of(to, name, endings[i]);
        linked = link_file(old_path, new_path, !last);
        if (linked && last &&
            (!is_plain_file(new_path, &now) || now.st_ino != file->st_ino ||
             now.st_dev != file->st_dev)) {
            linked = false; /* it was replaced in between */
            unlink(new_path);
        }
        rks_free(old_path);
        rks_free(new_path);
    }
    return linked;
}

/* Links the shards that `from` has and `to` lacks. */
static size_t adopt_from(const char *from, const char *to, const rks_dataset *dataset)
{
    size_t count = 0;
    for (size_t i = 0; i < dataset->shard_count; i++) {
        struct stat file;
        const rks_dataset_shard *shard = &dataset->shards[i];
        count += !has_some(to, shard->name) && is_shard(from, shard, &file) &&
                 link_shard(from, to, shard->name, &file);
    }
    return count;
}

/* Returns true if a file there has the name of one of these shards' manifests. */
static bool has_name(const char *directory, const rks_shard_names *names)
{
    bool has = false;
    DIR *stream = opendir(directory);
    for (struct dirent *entry; stream != NULL && !has && (entry = readdir(stream)) != NULL;) {
        char name[sizeof(entry->d_name)];
        strcpy(name, entry->d_name);
        char *dot = strrchr(name, '.');
        if (dot == NULL || strcmp(dot, ".json") != 0)
            continue;
        *dot = '\0';
        has = rks_shard_names_have(names, name);
    }
    if (stream != NULL)
        closedir(stream);
    return has;
}

/* Returns true if the directory, which is no symbolic link, holds this dataset. */
static bool holds_dataset(const char *directory, const rks_dataset *dataset,
                          const rks_shard_names *names)
{
    struct stat info;
    rks_dataset_summary there;
    char *path = rks_format(NULL, "%s/%s", directory, RKS_DATASET_FILE);
    const bool holds = lstat(directory, &info) == 0 && S_ISDIR(info.st_mode) &&
                       has_name(directory, names) && is_plain_file(path, &info) &&
                       rks_dataset_summarize(directory, 0, &there, NULL) == RKS_OK &&
                       rks_digest_equal(there.id, dataset->id);
    rks_free(path);
    return holds;
}

static bool lacks_any(const char *folder, const rks_dataset *dataset)
{
    for (size_t i = 0; i < dataset->shard_count; i++)
        if (!has_some(folder, dataset->shards[i].name))
            return true;
    return false;
}

size_t rks_adopt_shards(const char *local, const char *folder, const rks_dataset *dataset)
{
    size_t looked = 0, count = 0;
    rks_shard_names names = {0};
    char *to = rks_format(NULL, "%s/%s", local, folder);
    const bool looks = to != NULL && lacks_any(to, dataset) &&
                       rks_shard_names_add(&names, dataset, NULL) == RKS_OK;
    DIR *stream = looks ? opendir(local) : NULL;
    for (struct dirent *entry;
         stream != NULL && looked < RKS_ADOPT_FOLDERS && (entry = readdir(stream)) != NULL;) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, folder) == 0 ||
            (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN))
            continue;
        looked++;
        char *from = rks_format(NULL, "%s/%s", local, entry->d_name);
        const size_t some = from != NULL && holds_dataset(from, dataset, &names)
                                ? adopt_from(from, to, dataset)
                                : 0;
        if (some > 0)
            rks_log("%s: %zu shard%s of %s, linked instead of fetched", to, some,
                    some == 1 ? " is that" : "s are those", from);
        count += some;
        rks_free(from);
    }
    if (stream != NULL)
        closedir(stream);
    rks_shard_names_free(&names);
    rks_free(to);
    return count;
}
