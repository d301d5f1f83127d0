/* SPDX-License-Identifier: Apache-2.0
 *
 * prune.c: forgets old generations, oldest first, then removes files that no generation names. A
 * kill in between leaves shards that no generation names; the next call removes them. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "dataset/dataset.h"
#include "dataset/build_directory.h"
#include "dataset/list_keys.h"
#include "group/agreement.h"
#include "home/claim.h"
#include "rankstore/manage.h"

typedef struct prune {
    const char *directory;
    rks_prune_options options;
    rks_prune_report report;
    rks_dataset *newest;
    rks_shard_names shards; /* those that remaining generations name */
    char (*lists)[64];      /* and their lists */
    size_t list_count;
    rks_home *home; /* the directory, if it is one */
} prune;

static rks_status remove_file(prune *p, const char *path, rks_error *err)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? RKS_OK : rks_fail_errno(err, errno, "%s", path);
    if (!p->options.dry_run && unlink(path) != 0 && errno != ENOENT)
        return rks_fail_errno(err, errno, "%s: removing it", path);
    p->report.files++;
    p->report.bytes += (uint64_t)info.st_size;
    return RKS_OK;
}

/* ---- generations ------------------------------------------------------------------------- */

static rks_status keep_list(prune *p, const char *name, rks_error *err)
{
    if (name[0] == '\0')
        return RKS_OK;
    for (size_t i = p->list_count; i-- > 0;)
        if (strcmp(p->lists[i], name) == 0)
            return RKS_OK;
    char (*grown)[64] = rks_realloc(p->lists, p->list_count + 1, sizeof(*grown), err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    p->lists = grown;
    strcpy(grown[p->list_count++], name);
    return RKS_OK;
}

/* Keeps what the dataset names. */
static rks_status keep(prune *p, const rks_dataset *dataset, rks_error *err)
{
    rks_status status = rks_shard_names_add(&p->shards, dataset, err);
    if (status == RKS_OK)
        status = keep_list(p, dataset->excluded.name, err);
    for (size_t i = 0; status == RKS_OK && i < dataset->index_file_count; i++)
        status = keep_list(p, dataset->index_files[i].name, err);
    for (size_t i = 0; status == RKS_OK && i < dataset->list_count; i++) {
        char keys[64];
        rks_list_keys_name(&dataset->lists[i], keys);
        status = keep_list(p, dataset->lists[i].name, err);
        if (status == RKS_OK)
            status = keep_list(p, keys, err);
    }
    return status;
}

/* Looks at an older generation. If it stays, it is loaded for what it names. One that cannot be
 * read stops the prune, since what it names is not known. A killed append may have left one that is
 * not older than the newest. */
static rks_status look_at(prune *p, uint64_t generation, uint64_t newest, rks_error *err)
{
    rks_dataset *older = NULL;
    bool stays =
        generation < newest && (p->options.keep == 0 || newest - generation < p->options.keep);
    char *path = rks_dataset_generation_path(p->directory, generation, err);
    rks_status status = path == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK && stays)
        status = rks_dataset_load_generation(p->directory, generation, &older, err);
    else if (status == RKS_OK)
        status = remove_file(p, path, err);
    if (status == RKS_OK && !stays)
        p->report.generations += generation < newest;
    if (status == RKS_OK && stays)
        status = keep(p, older, err);
    rks_dataset_free(older);
    rks_free(path);
    return status;
}

static rks_status prune_generations(prune *p, rks_error *err)
{
    uint64_t *numbers = NULL, newest;
    size_t count = 0;
    rks_status status = rks_dataset_load(p->directory, &p->newest, err);
    if (status != RKS_OK)
        return status;
    newest = rks_dataset_number(p->newest);
    status = keep(p, p->newest, err);
    if (status == RKS_OK)
        status = rks_dataset_generations(p->directory, &numbers, &count, err);
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = look_at(p, numbers[i], newest, err);
    rks_free(numbers);
    return status;
}

/* ---- shards ------------------------------------------------------------------------------- */

static bool is_named_list(const prune *p, const char *name)
{
    for (size_t i = 0; i < p->list_count; i++)
        if (strcmp(p->lists[i], name) == 0)
            return true;
    return false;
}

static bool cut_ending(char *name, const char *ending)
{
    size_t size = strlen(name), length = strlen(ending);
    if (size <= length || strcmp(name + size - length, ending) != 0)
        return false;
    name[size - length] = '\0';
    return true;
}

/* Returns true for a name of a list beside dataset.json. */
static bool is_list_name(const char *name)
{
    static const struct {
        const char *front, *back;
    } kinds[] = {{"excluded-", ".runs"}, {"list-", ".units"}, {"list-", ".keys"}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        size_t size = strlen(name), front = strlen(kinds[i].front), back = strlen(kinds[i].back);
        if (size > front + back && strncmp(name, kinds[i].front, front) == 0 &&
            strcmp(name + size - back, kinds[i].back) == 0)
            return true;
    }
    return rks_index_file_is_name(name);
}

/* Returns true for names that all files of one kind of ours have in front. */
static bool is_ours(const char *name)
{
    static const char *const fronts[] = {"part-",  "excluded-", "list-",
                                         "index-", "dataset.",  "home."};
    for (size_t i = 0; i < sizeof(fronts) / sizeof(fronts[0]); i++)
        if (strncmp(name, fronts[i], strlen(fronts[i])) == 0)
            return true;
    return false;
}

/* Returns true for a temporary file of a publisher, which has the name of what it sends in front.
 */
static bool is_being_sent(const char *name)
{
    static const char *const fronts[] = {"python.json.", RKS_HOME_MARK "."};
    const char *ending = strrchr(name, '.');
    bool front = is_ours(name);
    for (size_t i = 0; i < sizeof(fronts) / sizeof(fronts[0]); i++)
        front = front || strncmp(name, fronts[i], strlen(fronts[i])) == 0;
    return front && ending != NULL && strcmp(ending, ".sending") == 0;
}

/* Returns true for files of shards, under names that builds give, and temporary files of killed
 * processes. Other files are the user's. `name` is changed. */
static bool is_ours_and_unnamed(const prune *p, char *name)
{
    bool part = strncmp(name, "part-", 5) == 0;
    if (is_ours(name) && cut_ending(name, ".tmp"))
        return true;
    if (p->home != NULL && is_being_sent(name))
        return true;
    if (is_list_name(name))
        return !is_named_list(p, name);
    if (!part)
        return false;
    if (cut_ending(name, ".lock")) /* no build runs here, so they are of a killed one, also beside
                                    * sealed shards */
        return true;
    static const char *const endings[] = {".json", ".sums", ".rks"};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
        if (cut_ending(name, endings[i]))
            return !rks_shard_names_have(&p->shards, name) &&
                   !rks_dataset_is_copy(p->newest, p->directory, name);
    return false;
}

static rks_status prune_shards(prune *p, rks_error *err)
{
    DIR *stream = opendir(p->directory);
    if (stream == NULL)
        return rks_fail_errno(err, errno, "%s: reading the directory", p->directory);
    rks_status status = RKS_OK;
    for (struct dirent *entry; status == RKS_OK && (entry = readdir(stream)) != NULL;) {
        char name[sizeof(entry->d_name)];
        strcpy(name, entry->d_name);
        if (!is_ours_and_unnamed(p, name))
            continue;
        char *path = rks_format(err, "%s/%s", p->directory, entry->d_name);
        status = path == NULL ? RKS_ERR_MEMORY : remove_file(p, path, err);
        rks_free(path);
    }
    closedir(stream);
    return status;
}

/* ---- all ranks ------------------------------------------------------------------------------ */

static rks_status prune_directory(prune *p, rks_error *err)
{
    rks_status status = prune_generations(p, err);
    if (status == RKS_OK && !p->options.dry_run) {
        char *path = rks_format(err, "%s/dataset.json", p->directory);
        status = path == NULL ? RKS_ERR_MEMORY : rks_file_sync_directory_of(path, err);
        rks_free(path);
    }
    return status == RKS_OK ? prune_shards(p, err) : status;
}

/* Opens the directory as a home if it is one, and claims it. */
static rks_status claim_home(prune *p, rks_held_claim *claim, rks_error *err)
{
    char *mark = rks_format(err, "%s/%s", p->directory, RKS_HOME_MARK);
    rks_status status = mark == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK && access(mark, F_OK) == 0)
        status = rks_home_open(p->directory, NULL, &p->home, err);
    if (status == RKS_OK && p->home != NULL && !p->options.dry_run)
        status = rks_claim_take(p->home, rks_checksum128("prune", 5), claim, err);
    rks_free(mark);
    return status;
}

static rks_status prune_claimed(prune *p, rks_error *err)
{
    rks_held_claim claim = {0};
    rks_status status = claim_home(p, &claim, err);
    if (status == RKS_OK)
        status = prune_directory(p, err);
    if (p->home != NULL)
        rks_claim_end(p->home, &claim);
    rks_home_close(p->home);
    return status;
}

/* COLLECTIVE. Prunes on the ranks that have their directory's lock. */
static rks_status prune_locked(rks_group *group, prune *p, rks_lock_file **lock, rks_error *err)
{
    rks_status status = rks_directory_lock_try(group, p->directory, p->options.no_lock, lock, err);
    status = rks_group_agree(group, "prune: lock", status, err);
    if (status != RKS_OK)
        return status;
    status = rks_directory_lock_settle(group, p->directory, lock, err);
    if (status == RKS_OK && *lock != NULL)
        status = prune_claimed(p, err);
    uint64_t sums[] = {p->report.generations, p->report.files, p->report.bytes};
    const rks_fact fact = rks_fact_sum(sums, 3);
    status = rks_group_agree_on(group, "prune: done", status, &fact, 1, NULL, err);
    p->report = (rks_prune_report){.generations = sums[0], .files = sums[1], .bytes = sums[2]};
    return status;
}

rks_status rks_prune(rks_group *group, const char *directory, const rks_prune_options *options,
                     rks_prune_report *report, rks_error *err)
{
    prune p = {.options = {.struct_size = sizeof(p.options)}};
    char *expanded = NULL;
    rks_lock_file *lock = NULL;
    if (options != NULL)
        memcpy(&p.options, options,
               options->struct_size < sizeof(p.options) ? options->struct_size : sizeof(p.options));
    char keep_text[24];
    snprintf(keep_text, sizeof(keep_text), "%" PRIu64, p.options.keep);
    const rks_fact given[] = {rks_fact_same("prune: keep", keep_text),
                              rks_fact_same("prune: dry_run", p.options.dry_run ? "yes" : NULL)};
    rks_status status = rks_directory_expand_target(group, directory, &expanded, err);
    if (status == RKS_OK && access(expanded, F_OK) != 0) /* otherwise taking the lock would make the
                                                          * directory */
        status = rks_fail(err, RKS_ERR_NOT_FOUND, errno, "%s: no dataset here", expanded);
    status = rks_group_agree_on(group, "prune", status, given, 2, NULL, err);
    p.directory = expanded;
    if (status == RKS_OK)
        status = prune_locked(group, &p, &lock, err);
    rks_lock_file_release(lock);
    if (status == RKS_OK && report != NULL) {
        size_t room = report->struct_size;
        memcpy(report, &p.report, room < sizeof(p.report) ? room : sizeof(p.report));
        report->struct_size = room;
    }
    rks_dataset_free(p.newest);
    rks_shard_names_free(&p.shards);
    rks_free(p.lists);
    rks_free(expanded);
    return status;
}
