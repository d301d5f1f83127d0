/* SPDX-License-Identifier: Apache-2.0
 *
 * stored_list.c: finds the objects that a URL means. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "ingest/format.h"
#include "ingest/stored.h"

enum { HALF_ENDING = 4 };

typedef struct listing {
    rks_stored_root *root;
    const char *url; /* as it was given */
    const char *pattern;
    size_t cut; /* bytes before the names below */
    size_t source;
    rks_found_list *list;
} listing;

/* ---- one object ------------------------------------------------------------------------------ */

static rks_status add_object(rks_found_list *list, rks_stored_root *root, size_t source,
                             const rks_home_listed *object, size_t cut, rks_error *err)
{
    if (object->version[0] == '\0')
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s/%s: the store gives it no version (ETag or time), so a change of it "
                        "would not be seen; copy it to a disk or to another store",
                        root->url, object->name);
    rks_input_file file = {.path = rks_format(err, "%s/%s", root->url, object->name),
                           .name = rks_strdup(object->name + cut, err),
                           .size = object->size,
                           .store = &root->store,
                           .version = rks_strdup(object->version, err)};
    return rks_found_add(list, source, &file, err);
}

static bool is_hidden(const char *name)
{
    for (const char *at = name; at != NULL; at = strchr(at, '/')) {
        at += *at == '/';
        if (*at == '.')
            return true;
    }
    return false;
}

static rks_status list_object(void *user, const rks_home_listed *object, rks_error *err)
{
    const listing *at = user;
    size_t size = strlen(object->name);
    if (size <= at->cut || object->name[size - 1] == '/' ||
        (at->pattern != NULL && !rks_stored_matches(at->pattern, object->name)))
        return RKS_OK;
    if (is_hidden(object->name + at->cut)) {
        at->list->not_read.hidden++;
        return RKS_OK;
    }
    return add_object(at->list, at->root, at->source, object, at->cut, err);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static bool is_half(const char *name)
{
    return rks_name_ends(name, ".idx") || rks_name_ends(name, ".bin");
}

static bool has_path(const rks_found_list *list, const char *path)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->found[i].file.path, path) == 0)
            return true;
    return false;
}

/* Adds the object, if it is there and is not in the list. */
static rks_status add_if_there(const listing *at, const char *name, bool *there, rks_error *err)
{
    rks_home_listed object = {.name = name};
    char *path = rks_format(err, "%s/%s", at->root->url, name);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    bool known = has_path(at->list, path);
    rks_free(path);
    *there = known;
    if (known)
        return RKS_OK;
    rks_status status = rks_home_size(at->root->home, name, &object.size, object.version, err);
    const char *slash = strrchr(name, '/');
    size_t cut = slash == NULL ? 0 : (size_t)(slash - name) + 1;
    *there = status == RKS_OK;
    return status == RKS_OK ? add_object(at->list, at->root, at->source, &object, cut, err)
           : status == RKS_ERR_NOT_FOUND ? RKS_OK
                                         : status;
}

/* Adds the other half of a pair, so that both are in the input's digest. */
static rks_status add_other_half(const listing *at, const char *name, rks_error *err)
{
    bool there, index = rks_name_ends(name, ".idx");
    char *other =
        rks_format(err, "%.*s%s", (int)(strlen(name) - HALF_ENDING), name, index ? ".bin" : ".idx");
    rks_status status = other == NULL ? RKS_ERR_MEMORY : add_if_there(at, other, &there, err);
    rks_free(other);
    return status;
}

/* A URL may stand for URL.idx and URL.bin. */
static rks_status add_pair(const listing *at, const char *name, rks_error *err)
{
    static const char *const endings[] = {".idx", ".bin"};
    const size_t before = at->list->count;
    rks_status status = RKS_OK;
    bool there = name[0] != '\0';
    for (int i = 0; status == RKS_OK && there && i < 2; i++) {
        char *half = rks_format(err, "%s%s", name, endings[i]);
        status = half == NULL ? RKS_ERR_MEMORY : add_if_there(at, half, &there, err);
        rks_free(half);
    }
    if (status == RKS_OK && (!there || at->list->count == before))
        status = rks_fail(err, RKS_ERR_NOT_FOUND, ENOENT, "%s: no such object or folder", at->url);
    return status;
}

/* Keeps what formats look for by name: the store is not asked again. */
static rks_status keep_halves(rks_stores *stores, const rks_found_list *list, size_t from,
                              rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = from; status == RKS_OK && i < list->count; i++) {
        const rks_input_file *file = &list->found[i].file;
        if (!is_half(file->name))
            continue;
        rks_input_file copy = {.path = rks_strdup(file->path, err),
                               .name = rks_strdup(file->name, err),
                               .size = file->size,
                               .store = file->store,
                               .version = rks_strdup(file->version, err)};
        status = rks_found_add(&stores->halves, 0, &copy, err);
    }
    return status;
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const char *ending_in(const char *name, const char *const *endings)
{
    for (; *endings != NULL; endings++)
        if (rks_name_ends(name, *endings))
            return *endings;
    return NULL;
}

/* What this library does not read from a store, or not as it would be read here. */
static rks_status refuse_others(const listing *at, size_t from, bool folder, rks_error *err)
{
    static const char *const arrow[] = {".parquet", ".pq", ".arrow", ".feather", NULL};
    static const char *const many[] = {".tar",     ".tgz", ".tar.gz", ".tar.zst", ".tar.xz",
                                       ".tar.bz2", ".zip", ".npz",    ".idx",     NULL};
    for (size_t i = from; i < at->list->count; i++) {
        const rks_input_file *file = &at->list->found[i].file;
        if (ending_in(file->name, arrow) != NULL)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "%s: Parquet and Arrow files in a store are read by pyarrow, from "
                            "Python: build(pyarrow.dataset.dataset(URL), ...)",
                            file->path);
        if (rks_name_ends(file->name, ".rks"))
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "%s: belongs to a dataset, which is not an input; open or stage it by "
                            "the URL of its folder",
                            file->path);
        const char *ending = folder ? ending_in(file->name, many) : NULL;
        if (ending != NULL)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "%s: would be one sample of the folder, and holds many; give the "
                            "files, %s%s*%s, or format=\"folder\"",
                            file->path, at->url, at->url[strlen(at->url) - 1] == '/' ? "" : "/",
                            ending);
    }
    return RKS_OK;
}

static bool has_index(const listing *at, size_t from)
{
    for (size_t i = from; i < at->list->count; i++)
        if (strcmp(at->list->found[i].file.name, "index.json") == 0)
            return true;
    return false;
}

/* ---- a source -------------------------------------------------------------------------------- */

/* Lists what lies below `prefix`, which ends with a slash or is empty. */
static rks_status list_below(listing *at, const char *prefix, rks_error *err)
{
    at->cut = strlen(prefix);
    return rks_home_list(at->root->home, prefix, list_object, at, err);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *base_of(char *name)
{
    char *slash = strrchr(name, '/');
    return slash == NULL ? name : slash + 1;
}

/* Files that a pattern matches have their base names, as on a disk, if these differ. */
static rks_status shorten_names(const rks_found_list *list, size_t from, rks_error *err)
{
    const size_t count = list->count - from;
    bool differ = true;
    char **bases = rks_alloc(count, sizeof(*bases), err);
    if (bases == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        bases[i] = base_of(list->found[from + i].file.name);
    qsort(bases, count, sizeof(*bases), by_text);
    for (size_t i = 1; i < count; i++)
        differ = differ && strcmp(bases[i - 1], bases[i]) != 0;
    rks_free(bases);
    for (size_t i = from; differ && i < list->count; i++) {
        char *name = list->found[i].file.name, *base = base_of(name);
        memmove(name, base, strlen(base) + 1);
    }
    return RKS_OK;
}

static rks_status list_pattern(listing *at, const char *name, rks_error *err)
{
    char *prefix = rks_format(err, "%.*s", (int)rks_stored_plain_part(name), name);
    const size_t before = at->list->count;
    at->pattern = name;
    rks_status status = prefix == NULL ? RKS_ERR_MEMORY : list_below(at, prefix, err);
    rks_free(prefix);
    if (status == RKS_OK && at->list->count == before)
        status = rks_fail(err, RKS_ERR_NOT_FOUND, ENOENT, "%s: matches no object", at->url);
    return status == RKS_OK ? shorten_names(at->list, before, err) : status;
}

static rks_status list_folder(listing *at, const char *name, rks_error *err)
{
    size_t size = strlen(name);
    char *prefix = rks_format(err, "%s%s", name, size == 0 || name[size - 1] == '/' ? "" : "/");
    rks_status status = prefix == NULL ? RKS_ERR_MEMORY : list_below(at, prefix, err);
    rks_free(prefix);
    return status;
}

/* An object; or a folder, or a pair, if there is none of that name. */
static rks_status list_named(listing *at, const char *name, bool pairs, bool *folder,
                             rks_error *err)
{
    const size_t before = at->list->count;
    bool there = false;
    rks_error why = {0};
    rks_status status = RKS_OK;
    if (name[0] != '\0' && name[strlen(name) - 1] != '/')
        status = add_if_there(at, name, &there, err);
    if (status != RKS_OK || there)
        return status == RKS_OK && pairs && is_half(name) ? add_other_half(at, name, err) : status;
    status = list_folder(at, name, &why);
    *folder = status == RKS_OK && at->list->count > before;
    if (status == RKS_ERR_IO && name[0] != '\0') /* a web server lists nothing */
        return rks_fail(err, RKS_ERR_NOT_FOUND, why.cause, "%s: no such object, and no folder: %s",
                        at->url, why.text);
    if (status != RKS_OK && err != NULL)
        *err = why; /* also an interrupt, and a store that is silent */
    if (status != RKS_OK)
        return status;
    if (!*folder && pairs)
        return add_pair(at, name, err);
    return *folder
               ? RKS_OK
               : rks_fail(err, RKS_ERR_NOT_FOUND, ENOENT, "%s: no such object or folder", at->url);
}

rks_status rks_stores_list(rks_stores *stores, const char *url, size_t source, const char *asked,
                           rks_found_list *list, bool *folder, rks_error *err)
{
    listing at = {.url = url, .source = source, .list = list};
    const size_t before = list->count;
    const uint64_t hidden = list->not_read.hidden;
    const char *name;
    const bool pairs = asked == NULL || strcmp(asked, "megatron") == 0;
    *folder = false;
    rks_status status = rks_stores_root(stores, url, &at.root, &name, err);
    if (status != RKS_OK)
        return status;
    if (stores->listing != NULL)
        status = rks_stored_recall(stores->listing, url, at.root, source, list, folder, err);
    else
        status = name[rks_stored_plain_part(name)] != '\0'
                     ? list_pattern(&at, name, err)
                     : list_named(&at, name, pairs, folder, err);
    if (status == RKS_OK && asked == NULL)
        status = refuse_others(&at, before, *folder && !has_index(&at, before), err);
    if (status == RKS_OK && stores->listing == NULL)
        status = rks_stored_note(stores, url, *folder, list->not_read.hidden - hidden, list, before,
                                 err);
    return status == RKS_OK ? keep_halves(stores, list, before, err) : status;
}
