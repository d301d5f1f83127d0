/* SPDX-License-Identifier: Apache-2.0
 *
 * publish.c: rks_publish: copies a dataset to its home.
 *
 *   same dataset ─► what home holds ─► claim ─► shards ─► lists ─► dataset.json ─► the rest
 *
 * Only dataset.json is ever replaced, by the rank that holds the claim, and only if it is still the
 * one that rank 0 has read. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "builder/publish.h"
#include "dataset/build_directory.h"
#include "dataset/dataset_json.h"
#include "store/home_dataset.h"
#include "store/store.h"

enum { PYTHON_MOST = 16 << 20 };
#define PYTHON_FILE "python.json"

/* ---- stretches ------------------------------------------------------------------------------- */

static void leave_publish(void *user)
{
    rks_publish_work *work = user;
    if (atomic_fetch_sub(&work->users, 1) != 1)
        return;
    rks_home_close(work->home);
    rks_dataset_free(work->dataset);
    rks_free(work->directory);
    rks_free(work->text);
    rks_free(work->here);
    rks_free(work->folder_of);
    rks_folders_free(&work->folders);
    rks_dataset_free(work->found.dataset);
    rks_free(work->senders);
    rks_store_texts_free(&work->given);
    rks_store_texts_free(&work->shards);
    rks_free(work);
}

/* Runs what reads this rank's directories. */
static rks_status read_here(rks_publish_work *work, rks_status (*run)(void *work, rks_error *err),
                            rks_error *err)
{
    const rks_file_work reading = {.run = run, .drop = leave_publish, .state = work};
    bool left = false;
    atomic_fetch_add(&work->users, 1);
    rks_status status = rks_store_wait_for_files(work->group, &reading, &left, err);
    if (!left)
        leave_publish(work);
    return status;
}

enum { GIVEN_DIRECTORY, GIVEN_HOME, GIVEN };

/* Makes *made, which the caller leaves, also after a failure. */
static rks_status make_publish(rks_group *group, const char *directory, const char *home,
                               const rks_publish_options *options, rks_publish_work **made,
                               rks_error *err)
{
    const char *const given[GIVEN] = {directory, home};
    rks_publish_work *work = rks_alloc(1, sizeof(*work), err);
    if (work == NULL)
        return RKS_ERR_MEMORY;
    *made = work;
    atomic_init(&work->users, 1);
    work->group = group;
    if (options != NULL)
        memcpy(&work->options, options,
               options->struct_size < sizeof(work->options) ? options->struct_size
                                                            : sizeof(work->options));
    rks_status status = rks_store_texts_copy(&work->given, given, GIVEN, err);
    if (status == RKS_OK)
        status = rks_store_texts_copy(&work->shards, work->options.shards,
                                      work->options.shard_count, err);
    return status;
}

/* ---- before anything is sent ----------------------------------------------------------------- */

/* Looks for the dataset and for the folders of its shards, of which home must be none. */
static rks_status find_dataset_here(void *user, rks_error *err)
{
    rks_publish_work *work = user;
    const char *directory = work->given.all[GIVEN_DIRECTORY];
    char *name = NULL, *none = NULL;
    rks_folders beside = {0};
    rks_file_wait_at(directory);
    rks_status status = rks_directory_expand(work->group, directory, &name, err);
    if (status == RKS_OK)
        rks_file_wait_at(name);
    if (status == RKS_OK && rks_dataset_take_generation(name) != 0)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "%s: give the directory; its newest generation is published", directory);
    rks_free(name);
    if (status != RKS_OK)
        return status;
    rks_store_look_for(work->group, directory, &work->directory, &beside, &work->found);
    if (work->directory == NULL)
        status = RKS_ERR_MEMORY;
    if (status == RKS_OK)
        status = rks_folders_add(&work->folders, work->directory, err);
    for (size_t i = 0; status == RKS_OK && i < beside.count; i++)
        status = rks_folders_add(&work->folders, beside.paths[i], err);
    if (status == RKS_OK)
        status = rks_folders_of_shards(&work->folders, work->group,
                                       (const char *const *)work->shards.all, work->shards.count,
                                       &none, err);
    for (size_t i = 0; status == RKS_OK && i < work->folders.count; i++)
        status = rks_publish_check_places(work->group, work->folders.paths[i],
                                          work->given.all[GIVEN_HOME], err);
    rks_folders_free(&beside);
    rks_free(none);
    return status;
}

/* COLLECTIVE. `status`: this rank's own; after a failure `work` may be NULL. */
static rks_status begin_publish(rks_group *group, rks_publish_work *work, rks_status status,
                                const char *home, rks_error *err)
{
    const bool dry_run = work != NULL && work->options.dry_run;
    if (status == RKS_OK) {
        const rks_home_limits limits = {
            .must_stop = rks_group_hear, .user = group, .options = work->options.storage_options};
        status = rks_home_open(home, &limits, &work->home, err);
    }
    if (status == RKS_OK)
        status = read_here(work, find_dataset_here, err);
    const rks_fact given[] = {rks_fact_same_shown("home", home),
                              rks_fact_same("publish: dry_run", dry_run ? "yes" : NULL)};
    return rks_group_agree_on(group, "publish", status, given, 2, NULL, err);
}

/* Loads this rank's dataset.json if it says what all agreed on. */
static rks_status load_text(rks_publish_work *work, rks_error *err)
{
    rks_dataset *own = NULL;
    rks_digest agreed, mine;
    char *path = rks_format(err, "%s/%s", work->directory, RKS_DATASET_FILE);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_file_load(path, RKS_DATASET_MAX, &work->text, &work->text_size, err);
    if (status == RKS_ERR_NOT_FOUND || (status == RKS_ERR_IO && err->cause == ENOTDIR)) {
        rks_free(path);
        return RKS_OK; /* another rank has it */
    }
    if (status == RKS_OK)
        status =
            rks_dataset_decode_file(work->directory, work->text, work->text_size, path, &own, err);
    if (status == RKS_OK)
        status = rks_dataset_digest(own, &mine, err);
    if (status == RKS_OK)
        status = rks_dataset_digest(work->dataset, &agreed, err);
    if (status == RKS_OK && !rks_digest_equal(mine, agreed)) {
        rks_free(work->text);
        work->text = NULL;
    }
    rks_dataset_free(own);
    rks_free(path);
    return status;
}

/* Each shard is sent by the rank with the fewest bytes of those that have it. */
static rks_status choose_senders(rks_publish_work *work, const rks_agreed *agreed, size_t fact,
                                 rks_error *err)
{
    uint32_t ranks = rks_group_size(work->group);
    uint64_t *bytes = rks_alloc(ranks, sizeof(*bytes), err);
    if (bytes == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < work->dataset->shard_count; i++) {
        int32_t sender = RKS_SENDER_HOME;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            const bool *here = rks_agreed_get(agreed, rank, fact, NULL);
            if (here[i] && (sender == RKS_SENDER_HOME || bytes[rank] < bytes[sender]))
                sender = (int32_t)rank;
        }
        work->senders[i] = sender;
        if (sender != RKS_SENDER_HOME)
            bytes[sender] += work->dataset->shards[i].file_bytes;
    }
    work->total = bytes[rks_group_rank(work->group)];
    rks_free(bytes);
    return RKS_OK;
}

static rks_status look_at_files(rks_publish_work *work, rks_error *err)
{
    work->held.text = work->text != NULL;
    for (size_t i = 0; i < work->dataset->index_file_count; i++) {
        char *path = rks_format(err, "%s/%s", work->directory, work->dataset->index_files[i].name);
        if (path == NULL)
            return RKS_ERR_MEMORY;
        work->held.index_files += access(path, F_OK) == 0;
        rks_free(path);
    }
    return RKS_OK;
}

/* The lowest rank with dataset.json and the most index files sends all but the shards. */
static void choose_committer(rks_publish_work *work, const rks_agreed *agreed, size_t fact)
{
    uint32_t chosen = 0;
    rks_held_files best = {0}, held;
    for (uint32_t rank = 0; rank < rks_group_size(work->group); rank++) {
        memcpy(&held, rks_agreed_get(agreed, rank, fact, NULL), sizeof(held));
        if (held.text > best.text ||
            (held.text == best.text && held.index_files > best.index_files)) {
            chosen = rank;
            best = held;
        }
    }
    work->commits = chosen == rks_group_rank(work->group);
}

static rks_status look_at_source(void *user, rks_error *err)
{
    rks_publish_work *work = user;
    rks_status status = RKS_OK;
    rks_file_wait_at(work->directory);
    for (size_t i = 0; status == RKS_OK && i < work->dataset->shard_count; i++)
        status = rks_publish_look_for_shard(work, i, err);
    if (status == RKS_OK)
        status = load_text(work, err);
    return status == RKS_OK ? look_at_files(work, err) : status;
}

/* COLLECTIVE. Agrees on the dataset, on what home holds, and on who sends what. *together: all did;
 * then the status is this rank's own. */
static rks_status look_at_all(rks_publish_work *work, bool *together, rks_error *err)
{
    rks_agreed agreed;
    rks_status status =
        rks_store_agree_dataset(work->group, NULL, &work->found, &work->dataset, err);
    if (status != RKS_OK)
        return status;
    size_t shards = work->dataset->shard_count;
    work->here = rks_alloc(shards, sizeof(*work->here), err);
    work->folder_of = rks_alloc(shards, sizeof(*work->folder_of), err);
    work->senders = rks_alloc(shards, sizeof(*work->senders), err);
    if (work->here == NULL || work->folder_of == NULL || work->senders == NULL)
        status = RKS_ERR_MEMORY;
    if (status == RKS_OK)
        status = read_here(work, look_at_source, err);
    if (status == RKS_OK && rks_group_rank(work->group) == 0)
        status = rks_publish_look(work, err);
    const rks_fact facts[] = {rks_fact_fixed(&work->state, sizeof(work->state)),
                              rks_fact_fixed(work->here, shards * sizeof(*work->here)),
                              rks_fact_fixed(&work->held, sizeof(work->held))};
    status = rks_group_agree_on(work->group, "publish: home", status, facts, 3, &agreed, err);
    if (status != RKS_OK)
        return status;
    *together = true;
    memcpy(&work->state, rks_agreed_get(&agreed, 0, 0, NULL), sizeof(work->state));
    choose_committer(work, &agreed, 2);
    return choose_senders(work, &agreed, 1, err);
}

/* COLLECTIVE. `status`: this rank's own. All see the same home, and one claims it. */
static rks_status claim(rks_publish_work *work, rks_status status, rks_error *err)
{
    bool sends = work->state.has != RKS_HOME_HAS_MORE && !work->options.dry_run;
    if (status == RKS_OK && sends)
        status = rks_publish_check_mark(work, err);
    if (status == RKS_OK && sends && work->commits)
        status = rks_claim_take(work->home, rks_checksum128(work->text, work->text_size),
                                &work->claim, err);
    return rks_group_agree(work->group, "publish: claim", status, err);
}

/* ---- sending --------------------------------------------------------------------------------- */

static rks_status send_shards(void *user, rks_error *err)
{
    rks_publish_work *work = user;
    uint32_t rank = rks_group_rank(work->group), ranks = rks_group_size(work->group);
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < work->dataset->shard_count; i++) {
        int32_t sender = work->senders[i];
        if ((sender == RKS_SENDER_HOME ? i % ranks : (uint32_t)sender) != rank)
            continue;
        status = rks_publish_shard(work, i, err);
        if (status == RKS_OK)
            status = rks_publish_hear(work, err);
    }
    return status;
}

/* *has: the newest dataset has all shards of an older one. It may not after lost ones were built
 * again. */
static rks_status look_at_shards(const rks_publish_work *work, const rks_dataset *older, bool *has,
                                 rks_error *err)
{
    rks_shard_names names = {0};
    rks_status status = rks_shard_names_add(&names, work->dataset, err);
    *has = true;
    for (size_t i = 0; status == RKS_OK && *has && i < older->shard_count; i++)
        *has = rks_shard_names_have(&names, older->shards[i].name);
    rks_shard_names_free(&names);
    return status;
}

static rks_status send_generation(rks_publish_work *work, uint64_t generation, rks_error *err)
{
    rks_dataset *older = NULL;
    char name[64];
    snprintf(name, sizeof(name), "dataset.%" PRIu64 ".json", generation);
    rks_status status = rks_dataset_load_generation(work->directory, generation, &older, err);
    bool has = false;
    if (status == RKS_OK)
        status = look_at_shards(work, older, &has, err);
    if (status == RKS_OK && has)
        status = rks_publish_lists(work, older, err);
    if (status == RKS_OK && has)
        status = rks_publish_file(work, name, err);
    rks_dataset_free(older);
    return status;
}

/* Sends the older generations that this directory has, and that are newer than the one that home
 * had. In a home that had none they come after dataset.json, which would seem to be lost
 * otherwise. */
static rks_status send_generations(rks_publish_work *work, rks_error *err)
{
    uint64_t *numbers = NULL;
    uint64_t first = work->state.has == RKS_HOME_HAS_SAME ? 0 : work->state.generation;
    size_t count = 0;
    rks_status status = rks_dataset_generations(work->directory, &numbers, &count, err);
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        if (numbers[i] > first && numbers[i] < rks_dataset_number(work->dataset))
            status = send_generation(work, numbers[i], err);
    rks_free(numbers);
    return status;
}

/* Keeps home's dataset.json under its generation's name. */
static rks_status keep_home_generation(rks_publish_work *work, rks_error *err)
{
    char name[64], version[RKS_HOME_VERSION], *text = NULL;
    size_t size = 0;
    bool there = false;
    if (work->state.generation == 0 || work->state.has != RKS_HOME_HAS_LESS)
        return RKS_OK;
    snprintf(name, sizeof(name), "dataset.%" PRIu64 ".json", work->state.generation);
    strcpy(version, work->state.version);
    rks_status status = rks_home_read_all(work->home, RKS_DATASET_FILE, RKS_DATASET_MAX, &text,
                                          &size, version, err);
    if (status == RKS_OK)
        status = rks_publish_text(work, name, text, size, &there, err);
    rks_free(text);
    return status;
}

/* Another dataset.json is at home than the one that was to be replaced: it may be the same, by
 * somebody who has published it, too. */
static rks_status look_who_won(rks_publish_work *work, const rks_error *why, rks_error *err)
{
    rks_home_dataset there;
    char id[RKS_DIGEST_TEXT];
    if (rks_home_dataset_read(work->home, &there, err) != RKS_OK) {
        *err = *why;
        return why->status;
    }
    bool ours = there.size == work->text_size && memcmp(there.text, work->text, there.size) == 0;
    rks_digest_format(there.dataset->id, id);
    rks_status status =
        ours
            ? RKS_OK
            : rks_fail(err, RKS_ERR_STATE, EEXIST,
                       "%s: another publisher was first: it holds dataset %.8s, generation %" PRIu64
                       "; what was sent is not part of it (%.120s)",
                       work->home->name, id, rks_dataset_number(there.dataset), why->text);
    rks_home_dataset_free(&there);
    return status;
}

static rks_status commit(rks_publish_work *work, rks_error *err)
{
    rks_error why;
    if (work->state.has == RKS_HOME_HAS_SAME) {
        work->there_bytes += work->text_size;
        return RKS_OK;
    }
    rks_status status = keep_home_generation(work, &why);
    if (status == RKS_OK)
        status = rks_publish_replace(work, RKS_DATASET_FILE, work->text, work->text_size,
                                     work->state.version, &why);
    if (status == RKS_ERR_STATE)
        return look_who_won(work, &why, err);
    if (status != RKS_OK)
        *err = why;
    return status;
}

/* Sends python.json, which says in words what dataset.json says. It comes after it, so that it is
 * never that of a dataset that was refused. If one of an older generation is there it is removed
 * first: it may be lost, since it says nothing more. */
static rks_status send_python_file(rks_publish_work *work, rks_error *err)
{
    char version[RKS_HOME_VERSION] = "", *own = NULL, *there = NULL;
    size_t size = 0, there_size = 0;
    char *path = rks_format(err, "%s/%s", work->directory, PYTHON_FILE);
    rks_status status =
        path == NULL ? RKS_ERR_MEMORY : rks_file_load(path, PYTHON_MOST, &own, &size, err);
    rks_free(path);
    if (status != RKS_OK)
        return status == RKS_ERR_NOT_FOUND ? RKS_OK : status;
    status =
        rks_home_read_all(work->home, PYTHON_FILE, PYTHON_MOST, &there, &there_size, version, err);
    bool same = status == RKS_OK && there_size == size && memcmp(own, there, size) == 0;
    if (same)
        work->there_bytes += size;
    else if (status == RKS_OK)
        status = work->home->ops->remove(work->home->state, PYTHON_FILE, version, err);
    else if (status == RKS_ERR_NOT_FOUND)
        status = RKS_OK;
    if (status == RKS_OK && !same)
        status = rks_publish_replace(work, PYTHON_FILE, own, size, "", err);
    rks_free(own);
    rks_free(there);
    return status == RKS_ERR_STATE ? RKS_OK : status; /* somebody publishes the same */
}

static rks_status send_the_rest(void *user, rks_error *err)
{
    rks_publish_work *work = user;
    bool writes = !work->options.dry_run;
    rks_file_wait_at(work->directory);
    rks_status status = rks_publish_lists(work, work->dataset, err);
    if (status == RKS_OK && writes)
        status = commit(work, err);
    if (status == RKS_OK)
        status = send_generations(work, err);
    return status == RKS_OK && writes ? send_python_file(work, err) : status;
}

/* COLLECTIVE. */
static rks_status send_everything(rks_publish_work *work, rks_publish_report *made, rks_error *err)
{
    rks_status status = read_here(work, send_shards, err);
    status = rks_group_agree(work->group, "publish: shards", status, err);
    if (status == RKS_OK && work->commits)
        status = read_here(work, send_the_rest, err);
    const uint64_t ahead = /* home may have lost it meanwhile: then it was sent twice */
        work->ahead.bytes < work->there_bytes ? work->ahead.bytes : work->there_bytes;
    uint64_t sums[] = {work->sent_shards + work->ahead.shards, work->sent_bytes + work->ahead.bytes,
                       work->there_bytes - ahead};
    const rks_fact fact = rks_fact_sum(sums, 3);
    status = rks_group_agree_on(work->group, "publish: commit", status, &fact, 1, NULL, err);
    made->sent_shards = sums[0];
    made->sent_bytes = sums[1];
    made->there_bytes = sums[2];
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void report_publish(const rks_publish_work *work, rks_publish_report *made,
                           rks_publish_report *report)
{
    size_t room = report->struct_size;
    made->shards = work->dataset->shard_count;
    made->generation = rks_dataset_number(work->dataset);
    made->before = work->state.generation;
    made->nothing_to_do = work->state.has == RKS_HOME_HAS_MORE;
    rks_digest_format(work->dataset->id, made->dataset);
    memcpy(report, made, room < sizeof(*made) ? room : sizeof(*made));
    report->struct_size = room;
}

rks_status rks_publish_built(rks_group *group, const char *directory, const char *home,
                             const rks_publish_options *options, const rks_sent_ahead *ahead,
                             rks_publish_report *report, rks_error *err)
{
    rks_publish_work *work = NULL;
    rks_publish_report made = {.struct_size = sizeof(made)};
    rks_error unseen = {0};
    bool together = false;
    if (err == NULL)
        err = &unseen;
    rks_status status = make_publish(group, directory, home, options, &work, err);
    status = begin_publish(group, work, status, home, err);
    if (status == RKS_OK) {
        work->ahead = *ahead;
        status = look_at_all(work, &together, err);
    }
    if (together)
        status = claim(work, status, err);
    if (status == RKS_OK && work->state.has != RKS_HOME_HAS_MORE)
        status = send_everything(work, &made, err);
    if (status == RKS_OK && report != NULL)
        report_publish(work, &made, report);
    if (work != NULL) {
        rks_claim_end(work->home, &work->claim);
        leave_publish(work);
    }
    return status;
}

rks_status rks_publish(rks_group *group, const char *directory, const char *home,
                       const rks_publish_options *options, rks_publish_report *report,
                       rks_error *err)
{
    return rks_publish_built(group, directory, home, options, &(rks_sent_ahead){0}, report, err);
}
