/* SPDX-License-Identifier: Apache-2.0
 *
 * prune_local.c: removes shards from local directories whose datasets are kept at a home. First
 * all of them are looked at, under the lock of each, and compared with what home has now; only then
 * is the first file removed. A manifest goes before its shard, so a kill leaves nothing that opens
 * with other contents. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "dataset/build_directory.h"
#include "dataset/home_file.h"
#include "dataset/search_folders.h"
#include "group/agreement.h"
#include "rankstore/home.h"
#include "shard/manifest.h"
#include "staging/lease.h"
#include "store/home_dataset.h"
#include "store/store_reads.h"

enum { SUMS_MAX = 1 << 30, ENDINGS = 6 };

/* Of a shard's files, in the order in which they go: the manifest makes it a shard. */
static const char *const endings[ENDINGS] = {"json",     "manifest", "pieces",
                                             "arriving", "rks",      "sums"};

/* A local copy: a directory with home.json. */
typedef struct local_copy {
    char *path;
    rks_folders files; /* to be removed, each after the ones that must go before it */
} local_copy;

/* By which ranks know that their local directories are one. */
typedef struct told_place {
    uint64_t node, device, inode;
} told_place;

/* What lies between two agreements runs on a thread that is left behind with all of this if the
 * local storage does not answer (store/store_reads.h). */
typedef struct prune_local {
    rks_group *group;
    char *local, *storage_options; /* the latter may be NULL */
    told_place told;
    rks_prune_local_report report;
    local_copy *copies;
    size_t count;
    rks_lease *leases;
} prune_local;

/* ---- what home has --------------------------------------------------------------------------- */

static bool is_named(const rks_dataset *dataset, const char *name)
{
    for (size_t i = 0; i < dataset->shard_count; i++)
        if (strcmp(dataset->shards[i].name, name) == 0)
            return true;
    return false;
}

static rks_status fail_lacking(const rks_home *home, const char *path, const char *name,
                               const char *what, rks_error *err)
{
    return rks_fail(err, RKS_ERR_STATE, 0,
                    "%s: its home, %s, %s %s; nothing is removed: this may be the last copy of it. "
                    "If nobody needs it, remove this folder and prune again",
                    path, home->name, what, name);
}

/* Compares a small file with the one at home. */
static rks_status compare_file(rks_home *home, const char *path, const char *name,
                               const char *ending, size_t most, rks_error *err)
{
    char *bytes[2] = {NULL, NULL}, *file = rks_format(err, "%s.%s", name, ending);
    size_t sizes[2] = {0, 0};
    char *local = file == NULL ? NULL : rks_format(err, "%s/%s", path, file);
    rks_status status =
        local == NULL ? RKS_ERR_MEMORY : rks_file_load(local, most, &bytes[0], &sizes[0], err);
    if (status == RKS_OK)
        status = rks_home_read_all(home, file, most, &bytes[1], &sizes[1], NULL, err);
    if (status == RKS_ERR_NOT_FOUND)
        status = fail_lacking(home, path, file, "lacks", err);
    else if (status == RKS_OK &&
             (sizes[0] != sizes[1] || memcmp(bytes[0], bytes[1], sizes[0]) != 0))
        status = fail_lacking(home, path, file, "has another", err);
    rks_free(bytes[0]);
    rks_free(bytes[1]);
    rks_free(local);
    rks_free(file);
    return status;
}

/* Home names the shard, and has its files: the same manifest, the same digests of all MiB, the same
 * size. */
static rks_status check_shard(rks_home *home, const rks_dataset *dataset, const char *path,
                              const char *name, rks_error *err)
{
    uint64_t size = 0;
    struct stat here;
    if (!is_named(dataset, name))
        return fail_lacking(home, path, name, "does not name", err);
    rks_status status = compare_file(home, path, name, "json", RKS_MANIFEST_MAX, err);
    if (status == RKS_OK)
        status = compare_file(home, path, name, "sums", SUMS_MAX, err);
    char *file = rks_format(err, "%s.rks", name);
    char *local = file == NULL ? NULL : rks_format(err, "%s/%s", path, file);
    if (status == RKS_OK && local == NULL)
        status = RKS_ERR_MEMORY;
    else if (status == RKS_OK && stat(local, &here) != 0)
        status = rks_fail_errno(err, errno, "%s", local);
    if (status == RKS_OK)
        status = rks_home_size(home, file, &size, NULL, err);
    if (status == RKS_ERR_NOT_FOUND)
        status = fail_lacking(home, path, file, "lacks", err);
    else if (status == RKS_OK && size != (uint64_t)here.st_size)
        status = fail_lacking(home, path, file, "has another", err);
    rks_free(local);
    rks_free(file);
    return status;
}

/* ---- what lies in a local copy --------------------------------------------------------------- */

static bool has_file(const char *path, const char *name, const char *ending)
{
    char *file = rks_format(NULL, "%s/%s.%s", path, name, ending);
    bool has = file != NULL && access(file, F_OK) == 0;
    rks_free(file);
    return has;
}

/* Notes the files of a shard that are there. */
static rks_status note_files(prune_local *p, local_copy *copy, const char *name, rks_error *err)
{
    rks_status status = RKS_OK;
    bool whole = has_file(copy->path, name, "json");
    for (size_t i = 0; status == RKS_OK && i < ENDINGS; i++) {
        struct stat info;
        char *file = rks_format(err, "%s/%s.%s", copy->path, name, endings[i]);
        status = file == NULL ? RKS_ERR_MEMORY : RKS_OK;
        if (status == RKS_OK && lstat(file, &info) == 0) {
            p->report.files++;
            if (info.st_nlink == 1) /* a shard that was built beside keeps its room */
                p->report.bytes += (uint64_t)info.st_blocks * 512;
            status = rks_folders_add(&copy->files, file, err);
        }
        rks_free(file);
    }
    p->report.shards += whole;
    p->report.arrivals += !whole;
    return status;
}

/* Cuts a known ending off, and returns true, if the name is one of a shard's files, and it is the
 * first of the shard's files in note_files that is there. */
static bool is_shard(const char *path, char *name)
{
    char *dot = strrchr(name, '.');
    if (strncmp(name, "part-", 5) != 0 || dot == NULL)
        return false;
    *dot = '\0';
    for (size_t i = 0; i < ENDINGS; i++) {
        if (strcmp(dot + 1, endings[i]) == 0)
            return true;
        if (has_file(path, name, endings[i]))
            return false;
    }
    return false;
}

/* Looks at each shard once. An arrival that has not ended is dropped without a question: its bytes
 * came from there. */
static rks_status look_at_shards_of(prune_local *p, local_copy *copy, rks_home *home,
                                    const rks_dataset *dataset, rks_error *err)
{
    rks_status status = RKS_OK;
    DIR *stream = opendir(copy->path);
    if (stream == NULL)
        return rks_fail_errno(err, errno, "%s: reading the directory", copy->path);
    for (struct dirent *entry; status == RKS_OK && (entry = readdir(stream)) != NULL;) {
        char name[sizeof(entry->d_name)];
        strcpy(name, entry->d_name);
        if (!is_shard(copy->path, name))
            continue;
        if (has_file(copy->path, name, "json"))
            status = check_shard(home, dataset, copy->path, name, err);
        if (status == RKS_OK)
            status = note_files(p, copy, name, err);
    }
    closedir(stream);
    return status;
}

static rks_status look_at_copy(prune_local *p, local_copy *copy, rks_error *err)
{
    char *name = NULL;
    rks_home *home = NULL;
    rks_home_dataset read = {0};
    const rks_home_limits limits = {
        .must_stop = rks_group_hear, .user = p->group, .options = p->storage_options};
    rks_file_wait_at(copy->path);
    rks_status status = rks_home_file_read(copy->path, &name, err);
    if (status != RKS_OK || name == NULL)
        return status; /* removed meanwhile */
    status = rks_lease_take_alone(copy->path, &p->leases, err);
    if (status == RKS_OK)
        status = rks_home_open(name, &limits, &home, err);
    if (status == RKS_OK)
        status = rks_home_dataset_read(home, &read, err);
    if (status == RKS_ERR_NOT_FOUND) {
        rks_error why = *err;
        status = rks_fail(err, RKS_ERR_NOT_FOUND, 0,
                          "%s: nothing is removed: its home has no dataset (%.300s)", copy->path,
                          why.text);
    }
    if (status == RKS_OK)
        status = look_at_shards_of(p, copy, home, read.dataset, err);
    p->report.datasets++;
    rks_home_dataset_free(&read);
    rks_home_close(home);
    rks_free(name);
    return status;
}

/* ---- the local directory --------------------------------------------------------------------- */

static rks_status add_copy(prune_local *p, char *path, rks_error *err)
{
    local_copy *grown =
        path == NULL ? NULL : rks_realloc(p->copies, p->count + 1, sizeof(*grown), err);
    if (grown == NULL) {
        rks_free(path);
        return RKS_ERR_MEMORY;
    }
    p->copies = grown;
    p->copies[p->count++] = (local_copy){.path = path};
    return RKS_OK;
}

static bool is_copy(const char *path)
{
    char *file = path == NULL ? NULL : rks_format(NULL, "%s/%s", path, RKS_HOME_FILE);
    bool is = file != NULL && access(file, F_OK) == 0;
    rks_free(file);
    return is;
}

/* Finds the copies in a local directory, or the one that it is itself. */
static rks_status find_copies(prune_local *p, const char *local, rks_error *err)
{
    rks_status status = RKS_OK;
    if (is_copy(local))
        return add_copy(p, rks_strdup(local, err), err);
    DIR *stream = opendir(local);
    if (stream == NULL)
        return rks_fail(err, errno == ENOENT ? RKS_ERR_NOT_FOUND : RKS_ERR_IO, errno,
                        "%s: no local directory here (%s)", local, strerror(errno));
    for (struct dirent *entry; status == RKS_OK && (entry = readdir(stream)) != NULL;) {
        char *path =
            entry->d_name[0] == '.' ? NULL : rks_format(err, "%s/%s", local, entry->d_name);
        if (is_copy(path))
            status = add_copy(p, path, err);
        else
            rks_free(path);
    }
    closedir(stream);
    return status;
}

/* ---- stretches ------------------------------------------------------------------------------- */

static void free_prune(void *state)
{
    prune_local *p = state;
    rks_leases_end(p->leases);
    for (size_t i = 0; i < p->count; i++) {
        rks_folders_free(&p->copies[i].files);
        rks_free(p->copies[i].path);
    }
    rks_free(p->copies);
    rks_free(p->local);
    rks_free(p->storage_options);
    rks_free(p);
}

/* Makes *p, which the caller frees, also after a failure. */
static rks_status make_prune(rks_group *group, const char *local, const char *storage_options,
                             prune_local **made, rks_error *err)
{
    prune_local *p = rks_alloc(1, sizeof(*p), err);
    if (p == NULL)
        return RKS_ERR_MEMORY;
    *made = p;
    p->group = group;
    p->told.node = rks_group_node(group);
    rks_status status = rks_directory_expand_target(group, local, &p->local, err);
    if (status == RKS_OK && storage_options != NULL) {
        p->storage_options = rks_strdup(storage_options, err);
        status = p->storage_options == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    return status;
}

static rks_status look_at_place(void *state, rks_error *err)
{
    prune_local *p = state;
    struct stat info;
    rks_file_wait_at(p->local);
    if (stat(p->local, &info) != 0)
        return rks_fail(err, RKS_ERR_NOT_FOUND, errno, "%s: no local directory here", p->local);
    p->told.device = (uint64_t)info.st_dev;
    p->told.inode = (uint64_t)info.st_ino;
    return RKS_OK;
}

static rks_status look_at_all(void *state, rks_error *err)
{
    prune_local *p = state;
    rks_file_wait_at(p->local);
    rks_status status = find_copies(p, p->local, err);
    for (size_t i = 0; status == RKS_OK && i < p->count; i++)
        status = look_at_copy(p, &p->copies[i], err);
    return status;
}

static rks_status remove_noted(void *state, rks_error *err)
{
    const prune_local *p = state;
    rks_file_wait_at(p->local);
    for (size_t i = 0; i < p->count; i++)
        for (size_t k = 0; k < p->copies[i].files.count; k++)
            if (unlink(p->copies[i].files.paths[k]) != 0 && errno != ENOENT)
                return rks_fail_errno(err, errno, "%s: removing it", p->copies[i].files.paths[k]);
    return RKS_OK;
}

/* Runs a stretch. *p becomes NULL if it was given up. */
static rks_status run_stretch(rks_group *group, prune_local **p,
                              rks_status (*run)(void *state, rks_error *err), rks_error *err)
{
    const rks_file_work work = {.run = run, .drop = free_prune, .state = *p};
    bool left = false;
    rks_status status = rks_store_wait_for_files(group, &work, &left, err);
    if (left)
        *p = NULL;
    return status;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

/* COLLECTIVE. *first: this rank is the lowest one of its directory. `p` may be NULL after a
 * failure. */
static rks_status agree_on_places(rks_group *group, rks_status status, const prune_local *p,
                                  bool dry_run, bool *first, rks_error *err)
{
    const uint32_t mine = rks_group_rank(group);
    const told_place told = p == NULL ? (told_place){0} : p->told;
    rks_agreed agreed;
    told_place other;
    const rks_fact facts[] = {rks_fact_fixed(&told, sizeof(told)),
                              rks_fact_same("prune: dry_run", dry_run ? "yes" : NULL)};
    status = rks_group_agree_on(group, "prune: local directories", status, facts, 2, &agreed, err);
    *first = true;
    for (uint32_t rank = 0; status == RKS_OK && rank < mine; rank++) {
        memcpy(&other, rks_agreed_get(&agreed, rank, 0, NULL), sizeof(other));
        *first = *first && memcmp(&other, &told, sizeof(told)) != 0;
    }
    return status;
}

/* COLLECTIVE. Looks, and then removes. */
static rks_status prune_all(rks_group *group, prune_local **p, bool first, bool dry_run,
                            rks_prune_local_report *made, rks_error *err)
{
    rks_status status = first ? run_stretch(group, p, look_at_all, err) : RKS_OK;
    status = rks_group_agree(group, "prune: compared with home", status, err);
    if (status == RKS_OK && !dry_run)
        status = run_stretch(group, p, remove_noted, err);
    const rks_prune_local_report own = *p == NULL ? (rks_prune_local_report){0} : (*p)->report;
    uint64_t sums[] = {own.datasets, own.shards, own.arrivals, own.files, own.bytes};
    const rks_fact fact = rks_fact_sum(sums, 5);
    status = rks_group_agree_on(group, "prune: removed", status, &fact, 1, NULL, err);
    *made = (rks_prune_local_report){0, sums[0], sums[1], sums[2], sums[3], sums[4]};
    return status;
}

rks_status rks_prune_local(rks_group *group, const char *local,
                           const rks_prune_local_options *options, rks_prune_local_report *report,
                           rks_error *err)
{
    prune_local *p = NULL;
    rks_prune_local_options given = {0};
    rks_prune_local_report made = {0};
    bool first = true;
    if (options != NULL)
        memcpy(&given, options,
               options->struct_size < sizeof(given) ? options->struct_size : sizeof(given));
    rks_status status = make_prune(group, local, given.storage_options, &p, err);
    if (status == RKS_OK)
        status = run_stretch(group, &p, look_at_place, err);
    status = agree_on_places(group, status, p, given.dry_run, &first, err);
    if (status == RKS_OK)
        status = prune_all(group, &p, first, given.dry_run, &made, err);
    if (status == RKS_OK && report != NULL) {
        size_t room = report->struct_size;
        memcpy(report, &made, room < sizeof(made) ? room : sizeof(made));
        report->struct_size = room;
    }
    if (p != NULL)
        free_prune(p);
    return status;
}
