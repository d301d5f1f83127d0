/* SPDX-License-Identifier: Apache-2.0
 *
 * kept_names.c: names of files that generations name, and of leftovers. */
#include "manage/kept_names.h"

#include <string.h>

#include "base/memory.h"
#include "dataset/list_keys.h"
#include "home/claim.h"

static rks_status keep_list(rks_kept_names *kept, const char *name, rks_error *err)
{
    if (name[0] == '\0')
        return RKS_OK;
    for (size_t i = kept->list_count; i-- > 0;)
        if (strcmp(kept->lists[i], name) == 0)
            return RKS_OK;
    char (*grown)[64] = rks_realloc(kept->lists, kept->list_count + 1, sizeof(*grown), err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    kept->lists = grown;
    strcpy(grown[kept->list_count++], name);
    return RKS_OK;
}

rks_status rks_kept_names_add(rks_kept_names *kept, const rks_dataset *dataset, rks_error *err)
{
    rks_status status = rks_shard_names_add(&kept->shards, dataset, err);
    if (status == RKS_OK)
        status = keep_list(kept, dataset->excluded.name, err);
    for (size_t i = 0; status == RKS_OK && i < dataset->index_file_count; i++)
        status = keep_list(kept, dataset->index_files[i].name, err);
    for (size_t i = 0; status == RKS_OK && i < dataset->list_count; i++) {
        char keys[64];
        rks_list_keys_name(&dataset->lists[i], keys);
        status = keep_list(kept, dataset->lists[i].name, err);
        if (status == RKS_OK)
            status = keep_list(kept, keys, err);
    }
    return status;
}

void rks_kept_names_free(rks_kept_names *kept)
{
    rks_shard_names_free(&kept->shards);
    rks_free(kept->lists);
    *kept = (rks_kept_names){0};
}

/* ---- names --------------------------------------------------------------------------------- */

static bool is_named_list(const rks_kept_names *kept, const char *name)
{
    for (size_t i = 0; i < kept->list_count; i++)
        if (strcmp(kept->lists[i], name) == 0)
            return true;
    return false;
}

static bool begins_with(const char *name, const char *front)
{
    return strncmp(name, front, strlen(front)) == 0;
}

static bool has_ending(const char *name, const char *ending)
{
    size_t size = strlen(name), length = strlen(ending);
    return size > length && strcmp(name + size - length, ending) == 0;
}

/* Returns true for a name of a list beside dataset.json. */
static bool is_list_name(const char *name)
{
    static const struct {
        const char *front, *back;
    } kinds[] = {{"excluded-", ".runs"}, {"list-", ".units"}, {"list-", ".keys"}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strlen(name) > strlen(kinds[i].front) + strlen(kinds[i].back) &&
            begins_with(name, kinds[i].front) && has_ending(name, kinds[i].back))
            return true;
    return rks_index_file_is_name(name);
}

/* Returns true for names that all files of one kind of ours have in front. */
static bool is_ours(const char *name)
{
    static const char *const fronts[] = {"part-",  "excluded-", "list-",
                                         "index-", "dataset.",  "home."};
    for (size_t i = 0; i < sizeof(fronts) / sizeof(fronts[0]); i++)
        if (begins_with(name, fronts[i]))
            return true;
    return false;
}

/* Returns true for a temporary file of a publisher, which has the name of what it sends in front.
 */
static bool is_being_sent(const char *name)
{
    return has_ending(name, ".sending") && (is_ours(name) || begins_with(name, "python.json.") ||
                                            begins_with(name, RKS_HOME_MARK "."));
}

rks_file_kind rks_kept_names_look(const rks_kept_names *kept, const char *name, char shard[256])
{
    static const char *const endings[] = {".json", ".sums", ".rks"};
    const bool part = begins_with(name, "part-");
    if (is_ours(name) && has_ending(name, ".tmp"))
        return RKS_FILE_TEMPORARY;
    if (is_being_sent(name))
        return RKS_FILE_SENDING;
    if (is_list_name(name))
        return is_named_list(kept, name) ? RKS_FILE_STAYS : RKS_FILE_LIST;
    if (part && has_ending(name, ".lock")) /* no build runs here, so they are of a killed one, also
                                            * beside sealed shards */
        return RKS_FILE_TEMPORARY;
    for (size_t i = 0; part && i < sizeof(endings) / sizeof(endings[0]); i++) {
        const size_t size = strlen(name) - strlen(endings[i]);
        if (!has_ending(name, endings[i]) || size >= 256)
            continue;
        memcpy(shard, name, size);
        shard[size] = '\0';
        return rks_shard_names_have(&kept->shards, shard) ? RKS_FILE_STAYS : RKS_FILE_SHARD;
    }
    return RKS_FILE_STAYS;
}
