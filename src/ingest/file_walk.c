/* SPDX-License-Identifier: Apache-2.0
 *
 * file_walk.c: keeps a list of folders still to visit, so that depth needs no stack. */
#include "ingest/file_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "home/address.h"

typedef struct todo {
    char **names; /* below the source; "" is the source itself */
    size_t count;
    size_t room;
} todo;

typedef struct walk {
    const char *root;
    size_t source;
    rks_found_list *list;
    todo folders;
} walk;

static rks_status grow(void **items, size_t count, size_t *room, size_t size, rks_error *err)
{
    if (count < *room)
        return RKS_OK;
    size_t more = *room == 0 ? 64 : 2 * *room;
    void *grown = rks_realloc(*items, more, size, err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    *items = grown;
    *room = more;
    return RKS_OK;
}

rks_status rks_found_add(rks_found_list *list, size_t source, const rks_input_file *file,
                         rks_error *err)
{
    void *items = list->found;
    rks_status status = RKS_ERR_MEMORY;
    bool whole =
        file->path != NULL && file->name != NULL && (file->store == NULL || file->version != NULL);
    if (whole)
        status = grow(&items, list->count, &list->room, sizeof(*list->found), err);
    if (status != RKS_OK) {
        rks_free(file->path);
        rks_free(file->name);
        rks_free(file->version);
        return status;
    }
    list->found = items;
    list->found[list->count++] = (rks_found){.file = *file, .source = source};
    return RKS_OK;
}

static rks_status add_file(rks_found_list *list, size_t source, char *path, char *name,
                           uint64_t size, rks_error *err)
{
    const rks_input_file file = {.path = path, .name = name, .size = size};
    return rks_found_add(list, source, &file, err);
}

/* Joins two parts of a path. Called twice for each file, so it avoids printf. */
static char *join_path(const char *folder, const char *name, rks_error *err)
{
    size_t size = strlen(folder), tail = strlen(name) + 1;
    bool slash = size > 0 && folder[size - 1] != '/';
    char *joined = rks_alloc_raw(size + slash + tail, 1, err);
    if (joined == NULL)
        return NULL;
    memcpy(joined, folder, size);
    joined[size] = '/';
    memcpy(joined + size + slash, name, tail);
    return joined;
}

static rks_status add_folder(todo *folders, char *name, rks_error *err)
{
    void *items = folders->names;
    rks_status status =
        name == NULL ? RKS_ERR_MEMORY
                     : grow(&items, folders->count, &folders->room, sizeof(*folders->names), err);
    if (status != RKS_OK) {
        rks_free(name);
        return status;
    }
    folders->names = items;
    folders->names[folders->count++] = name;
    return RKS_OK;
}

static rks_status look_at(walk *at, int directory, const char *below, const char *entry,
                          rks_error *err)
{
    struct stat info;
    rks_status status = RKS_OK;
    char *path = NULL;
    char *name = join_path(below, entry, err);
    if (name == NULL)
        return RKS_ERR_MEMORY;
    path = join_path(at->root, name, err);
    if (path == NULL) {
        status = RKS_ERR_MEMORY;
        goto out;
    }
    bool linked = false;
    int failed = fstatat(directory, entry, &info, AT_SYMLINK_NOFOLLOW);
    if (failed == 0 && S_ISLNK(info.st_mode)) {
        linked = true;
        failed = fstatat(directory, entry, &info, 0);
    }
    if (failed != 0) {
        if (linked && (errno == ENOENT || errno == ELOOP))
            status = rks_fail(err, RKS_ERR_DATA, errno, "%s: a link that leads nowhere", path);
        else
            status = rks_fail_errno(err, errno, "%s", path);
    } else if (S_ISREG(info.st_mode)) {
        status = add_file(at->list, at->source, path, name, (uint64_t)info.st_size, err);
        path = name = NULL;
    } else if (S_ISDIR(info.st_mode) && !linked) {
        status = add_folder(&at->folders, name, err);
        name = NULL;
    } else if (S_ISDIR(info.st_mode)) {
        at->list->not_read.linked_folders++;
    } else {
        at->list->not_read.special_files++;
    }
out:
    rks_free(path);
    rks_free(name);
    return status;
}

static rks_status walk_folder(walk *at, const char *below, rks_error *err)
{
    DIR *stream = NULL;
    int directory = -1;
    rks_status status = rks_check_interrupt(err);
    if (status != RKS_OK)
        return status;
    char *path = *below == '\0' ? rks_strdup(at->root, err) : join_path(at->root, below, err);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    /* The source itself may be a link. Below it, a folder that has become a link is not
     * followed. */
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (*below == '\0' ? 0 : O_NOFOLLOW));
    if (directory >= 0)
        stream = fdopendir(directory);
    if (stream == NULL) {
        status = rks_fail_errno(err, errno, "%s", path);
        goto out;
    }
    while (status == RKS_OK) {
        errno = 0;
        struct dirent *entry = readdir(stream);
        if (entry == NULL) {
            if (errno != 0)
                status = rks_fail_errno(err, errno, "%s", path);
            break;
        }
        if (entry->d_name[0] != '.')
            status = look_at(at, directory, below, entry->d_name, err);
        else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            at->list->not_read.hidden++;
    }
out:
    if (stream != NULL)
        closedir(stream);
    else if (directory >= 0)
        close(directory);
    rks_free(path);
    return status;
}

static const char *kind_of(mode_t mode)
{
    return S_ISFIFO(mode)   ? "FIFO"
           : S_ISSOCK(mode) ? "socket"
           : S_ISCHR(mode)  ? "character device"
           : S_ISBLK(mode)  ? "block device"
                            : "special file";
}

rks_status rks_walk(const char *path, size_t source, rks_found_list *list, bool *folder,
                    rks_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return rks_fail(err, RKS_ERR_NOT_FOUND, errno, "%s: no such file or folder", path);
        if (errno == ELOOP)
            return rks_fail(err, RKS_ERR_DATA, errno, "%s: a link that leads nowhere", path);
        return rks_fail_errno(err, errno, "%s", path);
    }
    if (S_ISREG(info.st_mode)) {
        const char *slash = strrchr(path, '/');
        *folder = false;
        char *copy = rks_strdup(path, err);
        char *name = copy == NULL ? NULL : rks_strdup(slash == NULL ? path : slash + 1, err);
        return add_file(list, source, copy, name, (uint64_t)info.st_size, err);
    }
    if (!S_ISDIR(info.st_mode))
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: is a %s, not a file or a folder", path,
                        kind_of(info.st_mode));
    walk at = {.root = path, .source = source, .list = list};
    size_t before = list->count;
    rks_status status = walk_folder(&at, "", err);
    while (status == RKS_OK && at.folders.count > 0) {
        char *below = at.folders.names[--at.folders.count];
        status = walk_folder(&at, below, err);
        rks_free(below);
    }
    for (size_t i = 0; i < at.folders.count; i++)
        rks_free(at.folders.names[i]);
    rks_free(at.folders.names);
    if (status == RKS_OK && list->count == before)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: no files in this folder", path);
    *folder = true;
    return status;
}

void rks_found_list_free(rks_found_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        rks_free(list->found[i].file.path);
        rks_free(list->found[i].file.name);
        rks_free(list->found[i].file.version);
    }
    rks_free(list->found);
    *list = (rks_found_list){0};
}

static int entries_by_name(const void *a, const void *b)
{
    const rks_found *x = a, *y = b;
    int order = strcmp(x->file.name, y->file.name);
    return order != 0 ? order : (x->source > y->source) - (x->source < y->source);
}

void rks_walk_sort(rks_found_list *list)
{
    size_t i = 1;
    while (i < list->count && entries_by_name(&list->found[i - 1], &list->found[i]) < 0)
        i++;
    if (i < list->count) /* it is mostly sorted already when called again */
        qsort(list->found, list->count, sizeof(*list->found), entries_by_name);
}

/* The same of a URL. */
static char *prefix_of_url(const char *url, bool folder, rks_error *err)
{
    size_t end = strlen(url), begin;
    while (end > 0 && url[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && url[begin - 1] != '/';)
        begin--;
    if (!folder) {
        for (end = begin; end > 0 && url[end - 1] == '/';)
            end--;
        for (begin = end; begin > 0 && url[begin - 1] != '/';)
            begin--;
    }
    return rks_format(err, "%.*s", (int)(end - begin), url + begin);
}

/* Returns the base name of a folder source, or of the folder of a file source. */
static char *prefix_of(const char *source, bool folder, rks_error *err)
{
    char full[PATH_MAX];
    if (rks_home_is_url(source))
        return prefix_of_url(source, folder, err);
    if (realpath(source, full) == NULL) {
        rks_fail_errno(err, errno, "%s", source);
        return NULL;
    }
    char *slash = strrchr(full, '/');
    if (!folder && slash != NULL) {
        *slash = '\0';
        slash = strrchr(full, '/');
    }
    return rks_strdup(slash == NULL ? "" : slash + 1, err);
}

static rks_status prefix_names(const char *const *sources, size_t source_count, const bool *folders,
                               const bool *clashing, rks_found_list *list, rks_error *err)
{
    for (size_t s = 0; s < source_count; s++) {
        if (!clashing[s])
            continue;
        char *prefix = prefix_of(sources[s], folders[s], err);
        if (prefix == NULL)
            return err != NULL ? (rks_status)err->status : RKS_ERR_IO;
        for (size_t i = 0; i < list->count; i++) {
            rks_input_file *file = &list->found[i].file;
            if (list->found[i].source != s)
                continue;
            char *name = rks_format(err, "%s/%s", prefix, file->name);
            if (name == NULL) {
                rks_free(prefix);
                return RKS_ERR_MEMORY;
            }
            rks_free(file->name);
            file->name = name;
        }
        rks_free(prefix);
    }
    return RKS_OK;
}

static rks_status check_names(const rks_found_list *list, rks_error *err)
{
    for (size_t i = 0; i < list->count; i++) {
        const rks_input_file *file = &list->found[i].file;
        size_t size = strlen(file->name);
        if (i > 0 && strcmp(list->found[i - 1].file.name, file->name) == 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s and %s have the same name, \"%s\"",
                            list->found[i - 1].file.path, file->path, file->name);
        if (size > RKS_INPUT_NAME_MAX)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "%s: a name of %zu bytes, at most %d can be a key", file->path, size,
                            RKS_INPUT_NAME_MAX);
        if (!rks_utf8_valid(file->name, size, NULL))
            return rks_fail(err, RKS_ERR_DATA, 0, "%s: the name is not UTF-8; rename the file",
                            file->path);
    }
    return RKS_OK;
}

rks_status rks_walk_name(const char *const *sources, size_t source_count, const bool *folders,
                         rks_found_list *list, rks_error *err)
{
    if (list->count == 0)
        return RKS_OK;
    bool *clashing = rks_alloc(source_count, sizeof(*clashing), err);
    if (clashing == NULL)
        return RKS_ERR_MEMORY;
    bool any = false;
    rks_walk_sort(list);
    for (size_t i = 1; i < list->count; i++) {
        const rks_found *a = &list->found[i - 1], *b = &list->found[i];
        if (strcmp(a->file.name, b->file.name) == 0)
            any = clashing[a->source] = clashing[b->source] = true;
    }
    rks_status status = RKS_OK;
    if (any) {
        status = prefix_names(sources, source_count, folders, clashing, list, err);
        rks_walk_sort(list);
    }
    rks_free(clashing);
    return status == RKS_OK ? check_names(list, err) : status;
}
