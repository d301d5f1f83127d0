/* SPDX-License-Identifier: Apache-2.0
 *
 * prune_home.c: forgets old generations in an object store, oldest first, then removes files that
 * no generation names.
 *
 *   dataset.json there ─► may remove? ─► claim ─► listing ─► what generations name ─► removes
 *
 * Laws. While the claim is held nobody publishes, so a file that no generation names is nobody's.
 * The claim is looked at again at least each second: whoever lost it removes nothing more. A file
 * is removed only in the version that was listed. */
#include "manage/prune_home.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/dataset_json.h"
#include "group/agreement.h"
#include "home/claim.h"
#include "manage/kept_names.h"
#include "store/home_dataset.h"

enum {
    LOOK_AGAIN_MS = 1000,
    TRIAL_AGE_S = 3600, /* of an object of doctor, which is there for a moment */
};
#define ABSENT "dataset.absent" /* no file has this name */
#define TRIAL "rankstore.doctor-"

typedef struct home_file {
    char *name;
    char version[RKS_HOME_VERSION];
    uint64_t size, age_s;
    uint64_t generation; /* of dataset.N.json; 0: it is another file */
} home_file;

typedef struct prune_home {
    const rks_prune_options *options;
    rks_prune_report *report;
    rks_home *home;
    rks_held_claim claim;
    uint64_t looked_ms; /* at the claim */
    home_file *files;
    size_t count;
    uint64_t newest; /* generation */
    rks_kept_names kept;
} prune_home;

/* ---- what is there --------------------------------------------------------------------------- */

static rks_status note_file(void *user, const rks_home_listed *listed, rks_error *err)
{
    prune_home *p = user;
    home_file *grown = rks_realloc(p->files, p->count + 1, sizeof(*grown), err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    p->files = grown;
    home_file file = {.size = listed->size, .age_s = listed->age_s};
    memcpy(file.version, listed->version, sizeof(file.version));
    if (!rks_dataset_is_generation_name(listed->name, &file.generation))
        file.generation = 0;
    file.name = rks_strdup(listed->name, err);
    if (file.name == NULL)
        return RKS_ERR_MEMORY;
    p->files[p->count++] = file;
    return RKS_OK;
}

static int files_by_generation(const void *a, const void *b)
{
    const home_file *left = a, *right = b;
    if (left->generation != right->generation)
        return left->generation < right->generation ? -1 : 1;
    return strcmp(left->name, right->name);
}

static bool generation_stays(const prune_home *p, uint64_t generation)
{
    return generation < p->newest &&
           (p->options->keep == 0 || p->newest - generation < p->options->keep);
}

/* Reads what remaining generations name. One that cannot be read stops the prune, since what it
 * names is not known. */
static rks_status read_generations(prune_home *p, rks_error *err)
{
    rks_dataset *dataset = NULL;
    rks_status status = rks_home_dataset_load_from(p->home, 0, &dataset, err);
    if (status == RKS_OK) {
        p->newest = rks_dataset_number(dataset);
        status = rks_kept_names_add(&p->kept, dataset, err);
    }
    rks_dataset_free(dataset);
    for (size_t i = 0; status == RKS_OK && i < p->count; i++) {
        rks_home_dataset older = {0};
        if (p->files[i].generation == 0 || !generation_stays(p, p->files[i].generation))
            continue;
        status = rks_home_dataset_read_generation(p->home, p->files[i].generation, &older, err);
        if (status == RKS_OK)
            status = rks_kept_names_add(&p->kept, older.dataset, err);
        rks_home_dataset_free(&older);
    }
    return status;
}

/* ---- removing -------------------------------------------------------------------------------- */

/* Another process may have taken the claim over while this one stood still. */
static rks_status look_at_claim(prune_home *p, rks_error *err)
{
    if (!p->claim.held || rks_now_ms() - p->looked_ms < LOOK_AGAIN_MS)
        return RKS_OK;
    rks_status status = rks_claim_check(p->home, &p->claim, err);
    p->looked_ms = rks_now_ms();
    return status;
}

static rks_status remove_from_home(prune_home *p, const home_file *file, rks_error *err)
{
    rks_status status = rks_check_interrupt(err);
    if (status == RKS_OK)
        status = look_at_claim(p, err);
    if (status == RKS_OK && p->home->limits.must_stop != NULL)
        status = p->home->limits.must_stop(p->home->limits.user, err);
    if (status == RKS_OK && p->options->each != NULL) {
        char *url = rks_format(err, "%s/%s", p->home->name, file->name);
        status = url == NULL ? RKS_ERR_MEMORY : RKS_OK;
        if (url != NULL)
            p->options->each(p->options->user, url, file->size);
        rks_free(url);
    }
    if (status == RKS_OK && !p->options->dry_run)
        status = p->home->ops->remove(p->home->state, file->name, file->version, err);
    p->report->files += status == RKS_OK;
    p->report->bytes += status == RKS_OK ? file->size : 0;
    return status;
}

static bool is_leftover(const prune_home *p, const home_file *file)
{
    char shard[256];
    if (strncmp(file->name, TRIAL, sizeof(TRIAL) - 1) == 0)
        return file->age_s >= TRIAL_AGE_S;
    return rks_kept_names_look(&p->kept, file->name, shard) != RKS_FILE_STAYS;
}

/* A kill in between leaves shards that no generation names; the next call removes them. */
static rks_status remove_files(prune_home *p, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < p->count; i++) {
        const uint64_t generation = p->files[i].generation;
        if (generation == 0 || generation_stays(p, generation))
            continue;
        status = remove_from_home(p, &p->files[i], err);
        p->report->generations += status == RKS_OK && generation < p->newest;
    }
    for (size_t i = 0; status == RKS_OK && i < p->count; i++)
        if (p->files[i].generation == 0 && is_leftover(p, &p->files[i]))
            status = remove_from_home(p, &p->files[i], err);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Fails with RKS_ERR_NOT_FOUND if there is no dataset. */
static rks_status look_for_dataset(prune_home *p, rks_error *err)
{
    uint64_t size;
    rks_status status = rks_home_size(p->home, RKS_DATASET_FILE, &size, NULL, err);
    if (status == RKS_ERR_NOT_FOUND)
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0, "%s: no dataset here", p->home->name);
    return status;
}

/* Asks before anything is written whether files may be removed: a claim that stayed would shut out
 * publishers. */
static rks_status try_to_remove(prune_home *p, rks_error *err)
{
    rks_error why = {0};
    rks_status status = p->home->ops->remove(p->home->state, ABSENT, "", &why);
    if (status == RKS_OK)
        return RKS_OK;
    return rks_fail(err, status, why.cause,
                    "nothing was removed: does the credential allow it (S3: s3:DeleteObject)? %s",
                    why.text);
}

static rks_status prune_files(prune_home *p, rks_error *err)
{
    rks_status status = look_for_dataset(p, err);
    if (status == RKS_OK && !p->options->dry_run) {
        status = try_to_remove(p, err);
        if (status == RKS_OK)
            status = rks_claim_take(p->home, rks_checksum128("prune", 5), &p->claim, err);
        p->looked_ms = rks_now_ms();
    }
    if (status == RKS_OK)
        status = rks_home_list(p->home, "", note_file, p, err);
    if (p->count > 0)
        qsort(p->files, p->count, sizeof(*p->files), files_by_generation);
    if (status == RKS_OK)
        status = read_generations(p, err);
    if (status == RKS_OK)
        status = remove_files(p, err);
    rks_claim_end(p->home, &p->claim);
    return status;
}

rks_status rks_prune_home(rks_group *group, const char *url, const rks_prune_options *options,
                          rks_prune_report *report, rks_error *err)
{
    prune_home p = {.options = options, .report = report};
    const rks_home_limits limits = {
        .must_stop = rks_group_hear, .user = group, .options = options->storage_options};
    rks_status status = RKS_OK;
    if (rks_group_rank(group) == 0) {
        status = rks_home_open(url, &limits, &p.home, err);
        if (status == RKS_OK)
            status = prune_files(&p, err);
        rks_home_close(p.home);
        for (size_t i = 0; i < p.count; i++)
            rks_free(p.files[i].name);
        rks_free(p.files);
        rks_kept_names_free(&p.kept);
    }
    uint64_t sums[] = {report->generations, report->files, report->bytes};
    const rks_fact fact = rks_fact_sum(sums, 3);
    status = rks_group_agree_on(group, "prune: done", status, &fact, 1, NULL, err);
    *report = (rks_prune_report){.generations = sums[0], .files = sums[1], .bytes = sums[2]};
    return status;
}
