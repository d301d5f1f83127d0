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
#include "group/agreement.h"
#include "home/address.h"
#include "home/claim.h"
#include "manage/kept_names.h"
#include "manage/prune_home.h"

typedef struct prune {
    const char *directory;
    rks_prune_options options;
    rks_prune_report report;
    rks_dataset *newest;
    rks_kept_names kept; /* by remaining generations */
    rks_home *home;      /* the directory, if it is one */
} prune;

static rks_status remove_file(prune *p, const char *path, rks_error *err)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? RKS_OK : rks_fail_errno(err, errno, "%s", path);
    if (p->options.each != NULL)
        p->options.each(p->options.user, path, (uint64_t)info.st_size);
    if (!p->options.dry_run && unlink(path) != 0 && errno != ENOENT)
        return rks_fail_errno(err, errno, "%s: removing it", path);
    p->report.files++;
    p->report.bytes += (uint64_t)info.st_size;
    return RKS_OK;
}

/* ---- generations ------------------------------------------------------------------------- */

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
        status = rks_kept_names_add(&p->kept, older, err);
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
    status = rks_kept_names_add(&p->kept, p->newest, err);
    if (status == RKS_OK)
        status = rks_dataset_generations(p->directory, &numbers, &count, err);
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = look_at(p, numbers[i], newest, err);
    rks_free(numbers);
    return status;
}

/* ---- shards ------------------------------------------------------------------------------- */

/* Returns true for files of shards, under names that builds give, and temporary files of killed
 * processes. Other files are the user's. */
static bool is_leftover(const prune *p, const char *name)
{
    char shard[256];
    switch (rks_kept_names_look(&p->kept, name, shard)) {
    case RKS_FILE_STAYS:
        return false;
    case RKS_FILE_SENDING:
        return p->home != NULL;
    case RKS_FILE_SHARD:
        return !rks_dataset_is_copy(p->newest, p->directory, shard);
    default:
        return true;
    }
}

static rks_status prune_shards(prune *p, rks_error *err)
{
    DIR *stream = opendir(p->directory);
    if (stream == NULL)
        return rks_fail_errno(err, errno, "%s: reading the directory", p->directory);
    rks_status status = RKS_OK;
    for (struct dirent *entry; status == RKS_OK && (entry = readdir(stream)) != NULL;) {
        if (!is_leftover(p, entry->d_name))
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

/* COLLECTIVE. Agrees on what is to be done. *address: of a URL; `directory`: of a directory. */
static rks_status begin_prune(rks_group *group, prune *p, const char *given,
                              rks_home_address *address, char **directory, rks_error *err)
{
    char keep[24];
    snprintf(keep, sizeof(keep), "%" PRIu64, p->options.keep);
    *address = (rks_home_address){.path = given};
    rks_status status = RKS_OK;
    if (given != NULL && rks_home_is_url(given))
        status = rks_home_address_of(given, address, err);
    if (status == RKS_OK && address->stored && rks_dataset_generation_sign(given) != NULL)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "%s: give the home itself; keep says how many generations stay", given);
    if (status == RKS_OK && !address->stored)
        status = rks_directory_expand_target(group, address->path, directory, err);
    if (status == RKS_OK && !address->stored && access(*directory, F_OK) != 0)
        /* taking the lock would make the directory */
        status = rks_fail(err, RKS_ERR_NOT_FOUND, errno, "%s: no dataset here", *directory);
    const rks_fact facts[] = {
        rks_fact_same("prune: keep", keep),
        rks_fact_same("prune: dry_run", p->options.dry_run ? "yes" : NULL),
        rks_fact_same_shown("home", status == RKS_OK && address->stored ? given : "a directory")};
    return rks_group_agree_on(group, "prune", status, facts, 3, NULL, err);
}

rks_status rks_prune(rks_group *group, const char *directory, const rks_prune_options *options,
                     rks_prune_report *report, rks_error *err)
{
    prune p = {.options = {.struct_size = sizeof(p.options)}};
    char *expanded = NULL;
    rks_lock_file *lock = NULL;
    rks_home_address address = {0};
    if (options != NULL)
        memcpy(&p.options, options,
               options->struct_size < sizeof(p.options) ? options->struct_size : sizeof(p.options));
    rks_status status = begin_prune(group, &p, directory, &address, &expanded, err);
    p.directory = expanded;
    if (status == RKS_OK && address.stored)
        status = rks_prune_home(group, address.path, &p.options, &p.report, err);
    else if (status == RKS_OK)
        status = prune_locked(group, &p, &lock, err);
    rks_lock_file_release(lock);
    if (status == RKS_OK && report != NULL) {
        size_t room = report->struct_size;
        memcpy(report, &p.report, room < sizeof(p.report) ? room : sizeof(p.report));
        report->struct_size = room;
    }
    rks_dataset_free(p.newest);
    rks_kept_names_free(&p.kept);
    rks_free(expanded);
    return status;
}
