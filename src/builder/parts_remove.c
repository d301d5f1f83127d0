/* SPDX-License-Identifier: Apache-2.0
 *
 * parts_remove.c: removes what a build leaves beside its parts, and parts, lists and generations
 * that no dataset names. */
#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "builder/parts_state.h"

#define SCHEMA_FRONT "schema-"
#define SCHEMA_END ".txt"

static void remove_generations(const char *directory)
{
    uint64_t *generations = NULL;
    size_t count = 0;
    if (rks_dataset_generations(directory, &generations, &count, NULL) != RKS_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        char *path = rks_dataset_generation_path(directory, generations[i], NULL);
        if (path != NULL)
            unlink(path);
        rks_free(path);
    }
    rks_free(generations);
}

void rks_parts_remove(const rks_parts *parts, const char *name)
{
    static const char *const endings[] = {"json", "sums", "rks", "lock"};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        char *path = rks_format(NULL, "%s/%s.%s", parts->directory, name, endings[i]);
        if (path != NULL)
            unlink(path);
        rks_free(path);
    }
}

char *rks_parts_keep_schema(rks_parts *parts, const char *schema)
{
    char *path = rks_format(NULL, "%s/" SCHEMA_FRONT "%" PRIu32 SCHEMA_END, parts->directory,
                            rks_group_rank(parts->group));
    char *text = rks_format(NULL, "%s\n", schema);
    rks_status status = path == NULL || text == NULL
                            ? RKS_ERR_MEMORY
                            : rks_file_replace(path, text, strlen(text), NULL);
    rks_free(text);
    if (status == RKS_OK)
        return path;
    rks_free(path);
    return NULL;
}

/* Removes schemas that failed builds kept as advice. */
static void remove_schemas(const rks_parts *parts)
{
    DIR *directory = opendir(parts->directory);
    if (directory == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        const char *name = entry->d_name;
        size_t front = strlen(SCHEMA_FRONT);
        if (strncmp(name, SCHEMA_FRONT, front) == 0 && name[front] != '\0' &&
            strcmp(name + front + strspn(name + front, "0123456789"), SCHEMA_END) == 0)
            unlinkat(dirfd(directory), name, 0);
    }
    closedir(directory);
}

static bool begins_and_ends(const char *name, const char *begin, const char *end)
{
    size_t size = strlen(name), before = strlen(begin), behind = strlen(end);
    return size > before + behind && strncmp(name, begin, before) == 0 &&
           strcmp(name + size - behind, end) == 0;
}

/* Returns true for "excluded-....runs", "list-....units", "list-....keys" and index files. */
static bool is_list(const char *name)
{
    return rks_index_file_is_name(name) || begins_and_ends(name, "excluded-", ".runs") ||
           begins_and_ends(name, "list-", ".units") || begins_and_ends(name, "list-", ".keys");
}

static bool names_list(const rks_dataset *keep, const char *name)
{
    for (size_t i = 0; i < keep->index_file_count; i++)
        if (strcmp(keep->index_files[i].name, name) == 0)
            return true;
    return strcmp(keep->excluded.name, name) == 0;
}

/* Removes lists that `keep`, a first generation, does not name. It has no list of units. */
static void remove_lists(const rks_parts *parts, const rks_dataset *keep)
{
    DIR *directory = opendir(parts->directory);
    if (directory == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (is_list(entry->d_name) && !names_list(keep, entry->d_name))
            unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
}

void rks_parts_remove_strangers(rks_parts *parts, const rks_dataset *keep)
{
    char **names = NULL;
    size_t count = 0;
    rks_shard_names kept = {0};
    if (rks_shard_names_add(&kept, keep, NULL) != RKS_OK ||
        rks_dataset_parts(parts->directory, &names, &count, NULL) != RKS_OK) {
        rks_shard_names_free(&kept);
        return; /* only a clean-up: what stays does no harm */
    }
    remove_schemas(parts);
    bool first = !parts->options.append && parts->repaired == NULL;
    if (first)
        remove_generations(parts->directory); /* those of the dataset that was replaced */
    for (size_t i = 0; i < count; i++)
        if (!rks_shard_names_have(&kept, names[i]) && /* a first generation has all its shards */
            (first || !rks_dataset_is_copy(keep, parts->directory, names[i])))
            rks_parts_remove(parts, names[i]);
    rks_dataset_parts_free(names, count);
    rks_shard_names_free(&kept);
    if (first) /* older generations name other files */
        remove_lists(parts, keep);
}
