/* SPDX-License-Identifier: Apache-2.0
 *
 * search_folders.c: finds the folders that a pattern fits, one part of the path after another. */
#include "dataset/search_folders.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/memory.h"
#include "dataset/build_directory.h"

bool rks_folders_is_pattern(const char *name)
{
    struct stat info;
    return strchr(name, '*') != NULL && lstat(name, &info) != 0;
}

rks_status rks_folders_add(rks_folders *folders, const char *path, rks_error *err)
{
    char *copy = rks_strdup(path, err);
    char **grown = NULL;
    if (copy != NULL)
        grown = rks_realloc(folders->paths, folders->count + 1, sizeof(*grown), err);
    if (grown == NULL) {
        rks_free(copy);
        return RKS_ERR_MEMORY;
    }
    folders->paths = grown;
    grown[folders->count++] = copy;
    return RKS_OK;
}

void rks_folders_free(rks_folders *folders)
{
    for (size_t i = 0; i < folders->count; i++)
        rks_free(folders->paths[i]);
    rks_free(folders->paths);
    *folders = (rks_folders){0};
}

/* Returns true if `name` is `part`, of `size` bytes, with text in the place of each `*`. Goes back
 * only to the last `*`, so it ends in size * strlen(name) steps. */
static bool name_fits(const char *part, size_t size, const char *name)
{
    size_t at = 0, star = SIZE_MAX;
    const char *taken = name; /* by the last `*` */
    if (name[0] == '.' && (size == 0 || part[0] != '.'))
        return false;
    while (*name != '\0') {
        if (at < size && part[at] == '*') {
            star = at++;
            taken = name;
        } else if (at < size && part[at] == *name) {
            at++;
            name++;
        } else if (star != SIZE_MAX) {
            at = star + 1;
            name = ++taken;
        } else {
            return false;
        }
    }
    while (at < size && part[at] == '*')
        at++;
    return at == size;
}

typedef struct search {
    const char *pattern;
    rks_folders *folders;
    size_t first;  /* of this search's folders */
    size_t listed; /* folders */
} search;

static rks_status too_many(const search *s, rks_error *err)
{
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "%s: more than %d folders; name fewer, or the folder above them", s->pattern,
                    RKS_FOLDERS_MAX);
}

static rks_status add_found(search *s, const char *path, rks_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return RKS_OK;
    if (s->folders->count - s->first >= RKS_FOLDERS_MAX)
        return too_many(s, err);
    return rks_folders_add(s->folders, path, err);
}

/* Finds the folders below `begin` (which ends with a slash, or is empty) that fit `rest`. */
static rks_status find_below(search *s, const char *begin, const char *rest, rks_error *err)
{
    const char *star = strchr(rest, '*'), *part = star, *end = star;
    if (star == NULL) {
        char *path = rks_format(err, "%s%s", begin, rest);
        rks_status status = path == NULL ? RKS_ERR_MEMORY : add_found(s, path, err);
        rks_free(path);
        return status;
    }
    while (part > rest && part[-1] != '/')
        part--;
    while (*end != '/' && *end != '\0')
        end++;
    if (s->listed++ >= RKS_FOLDERS_MAX)
        return too_many(s, err);
    char *above = rks_format(err, "%s%.*s", begin, (int)(part - rest), rest);
    if (above == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    DIR *stream = opendir(above[0] == '\0' ? "." : above);
    for (struct dirent *entry;
         status == RKS_OK && stream != NULL && (entry = readdir(stream)) != NULL;) {
        bool is_file =
            entry->d_type != DT_DIR && entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN;
        if (is_file || !name_fits(part, (size_t)(end - part), entry->d_name))
            continue;
        char *next = rks_format(err, "%s%s%s", above, entry->d_name, *end == '/' ? "/" : "");
        status =
            next == NULL ? RKS_ERR_MEMORY : find_below(s, next, *end == '/' ? end + 1 : end, err);
        rks_free(next);
    }
    if (stream != NULL)
        closedir(stream);
    rks_free(above);
    return status;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

rks_status rks_folders_find(rks_folders *folders, const char *pattern, rks_error *err)
{
    search s = {.pattern = pattern, .folders = folders, .first = folders->count};
    struct stat info;
    rks_status status =
        lstat(pattern, &info) == 0 ? add_found(&s, pattern, err) : find_below(&s, "", pattern, err);
    if (folders->count > s.first)
        qsort(folders->paths + s.first, folders->count - s.first, sizeof(*folders->paths), by_path);
    return status;
}

/* *none: as in rks_folders_of_shards; set before for an earlier pattern. */
static rks_status find_shards(rks_folders *folders, const rks_group *group, const char *pattern,
                              char **none, rks_error *err)
{
    size_t before = folders->count;
    char *name = NULL;
    rks_status status = RKS_OK;
    if (group != NULL)
        status = rks_directory_expand(group, pattern, &name, err);
    else if ((name = rks_strdup(pattern, err)) == NULL)
        status = RKS_ERR_MEMORY;
    if (status == RKS_OK)
        status = rks_folders_find(folders, name, err);
    if (status == RKS_OK && folders->count == before && *none == NULL) {
        *none = name;
        name = NULL;
    }
    rks_free(name);
    return status;
}

rks_status rks_folders_of_shards(rks_folders *folders, const rks_group *group,
                                 const char *const *patterns, size_t count, char **none,
                                 rks_error *err)
{
    const char *list = getenv("RKS_PATH");
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = find_shards(folders, group, patterns[i], none, err);
    while (status == RKS_OK && list != NULL && *list != '\0') {
        size_t size = strcspn(list, ":");
        char *pattern = rks_format(err, "%.*s", (int)size, list);
        status = pattern == NULL ? RKS_ERR_MEMORY : RKS_OK;
        if (status == RKS_OK && size > 0)
            status = find_shards(folders, group, pattern, none, err);
        rks_free(pattern);
        list += size + (list[size] == ':');
    }
    return status;
}
