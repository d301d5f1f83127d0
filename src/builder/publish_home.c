/* SPDX-License-Identifier: Apache-2.0
 *
 * publish_home.c: what a home holds, and whether a dataset may follow it.
 *
 * A home is marked by a file with a number of its own, by which ranks see that they see the same
 * one. Prune knows a home by it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/secret.h"
#include "builder/publish.h"
#include "dataset/dataset_json.h"
#include "home/address.h"
#include "store/home_dataset.h"

/* ---- places ---------------------------------------------------------------------------------- */

/* Cuts off what does not exist yet of a path; leaves "." or "/" at least. */
static void cut_to_existing(char *path)
{
    struct stat info;
    while (stat(path, &info) != 0) {
        char *slash = strrchr(path, '/');
        if (slash == NULL)
            strcpy(path, ".");
        else if (slash == path)
            path[1] = '\0';
        else
            *slash = '\0';
        if (slash == NULL || slash == path)
            return;
    }
}

/* Returns true for the name of the directory, or of something in it. */
static bool begins_with(const char *name, const char *directory)
{
    size_t size = strlen(directory);
    while (size > 1 && directory[size - 1] == '/')
        size--;
    return strncmp(name, directory, size) == 0 && (name[size] == '\0' || name[size] == '/');
}

static rks_status fail_inside(const char *directory, const char *home, rks_error *err)
{
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "%s: is or lies in %s, whose home it would be; give another directory", home,
                    directory);
}

/* What a look at both places uses: copies, for it may hang (home/patience.h). */
typedef struct two_places {
    char *directory, *home;
} two_places;

static void free_places(void *user)
{
    two_places *p = user;
    rks_free(p->directory);
    rks_free(p->home);
    rks_free(p);
}

static rks_status compare_places(const char *directory, const char *home, rks_error *err)
{
    struct stat source, info, above;
    enum { ROOM = 4096 };
    rks_status status = RKS_OK;
    char *path = rks_alloc(strlen(home) + ROOM, 1, err);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    strcpy(path, home);
    rks_file_wait_at(directory);
    bool known = stat(directory, &source) == 0;
    rks_file_wait_at(home);
    cut_to_existing(path);
    size_t most = strlen(path) + ROOM - 4;
    known = known && stat(path, &info) == 0;
    if (!known && begins_with(home, directory)) /* the directory is not made yet */
        status = fail_inside(directory, home, err);
    while (known && status == RKS_OK) {
        if (info.st_dev == source.st_dev && info.st_ino == source.st_ino)
            status = fail_inside(directory, home, err);
        strcat(path, "/..");
        if (strlen(path) > most || stat(path, &above) != 0 ||
            (above.st_dev == info.st_dev && above.st_ino == info.st_ino))
            break;
        info = above;
    }
    rks_free(path);
    return status;
}

static rks_status look_at_places(void *user, rks_error *err)
{
    const two_places *p = user;
    return compare_places(p->directory, p->home, err);
}

rks_status rks_publish_check_places(rks_group *group, const char *directory, const char *home,
                                    rks_error *err)
{
    rks_home_address address;
    rks_home_limits limits = {.must_stop = rks_group_hear, .user = group};
    bool left = false;
    rks_status status = rks_home_address_of(home, &address, err);
    if (status != RKS_OK || address.stored)
        return status;
    two_places *places = rks_alloc(1, sizeof(*places), err);
    if (places == NULL)
        return RKS_ERR_MEMORY;
    places->directory = rks_strdup(directory, err);
    places->home = rks_strdup(address.path, err);
    const rks_file_work work = {.run = look_at_places, .drop = free_places, .state = places};
    rks_home_limits_fill(&limits);
    status = places->directory == NULL || places->home == NULL
                 ? RKS_ERR_MEMORY
                 : rks_home_wait(&limits, address.path, &work, &left, err);
    if (!left)
        free_places(places);
    return status;
}

/* ---- the mark -------------------------------------------------------------------------------- */

static rks_status read_mark(rks_home *home, char mark[RKS_HOME_MARK_MOST], rks_error *err)
{
    char *text = NULL;
    size_t size = 0;
    rks_status status =
        rks_home_read_all(home, RKS_HOME_MARK, RKS_HOME_MARK_MOST - 1, &text, &size, NULL, err);
    if (status == RKS_OK) {
        memset(mark, 0, RKS_HOME_MARK_MOST);
        memcpy(mark, text, size);
    }
    rks_free(text);
    return status;
}

/* Reads the mark, or makes it. */
static rks_status mark_home(rks_publish_work *work, rks_error *err)
{
    uint64_t number[2];
    bool there = false;
    rks_status status = read_mark(work->home, work->state.mark, err);
    if (status != RKS_ERR_NOT_FOUND)
        return status;
    status = rks_random(number, sizeof(number), err);
    if (status != RKS_OK)
        return status;
    int size =
        snprintf(work->state.mark, sizeof(work->state.mark),
                 "home %016" PRIx64 "%016" PRIx64 "\nThis directory is the home of a dataset; "
                 "`rankstore publish` adds to it.\n",
                 number[0], number[1]);
    status = rks_publish_text(work, RKS_HOME_MARK, work->state.mark, (size_t)size, &there, err);
    return status == RKS_OK && there ? read_mark(work->home, work->state.mark, err) : status;
}

rks_status rks_publish_check_mark(rks_publish_work *work, rks_error *err)
{
    char mark[RKS_HOME_MARK_MOST];
    rks_status status = read_mark(work->home, mark, err);
    if (status == RKS_ERR_NOT_FOUND || (status == RKS_OK && strcmp(mark, work->state.mark) != 0))
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "%s: this rank does not see what rank 0 sees under this name; a home is "
                          "on a file system that all nodes share, or in an object store",
                          work->home->name);
    return status;
}

/* ---- what is there --------------------------------------------------------------------------- */

static int by_shard_id(const void *a, const void *b)
{
    return rks_dataset_compare_ids(((const rks_dataset_shard *)a)->id,
                                   ((const rks_dataset_shard *)b)->id);
}

/* Returns true if `whole` has all shards of `part`. Both are by id. */
static bool has_all(const rks_dataset *whole, const rks_dataset *part)
{
    for (size_t i = 0; i < part->shard_count; i++)
        if (whole->shard_count == 0 || bsearch(&part->shards[i], whole->shards, whole->shard_count,
                                               sizeof(*whole->shards), by_shard_id) == NULL)
            return false;
    return true;
}

static rks_status fail_other_dataset(const rks_publish_work *work, const rks_dataset *there,
                                     rks_error *err)
{
    char ids[2][RKS_DIGEST_TEXT];
    rks_digest_format(there->id, ids[0]);
    rks_digest_format(work->dataset->id, ids[1]);
    return rks_fail(err, RKS_ERR_STATE, EEXIST,
                    "%s: holds dataset %.8s, generation %" PRIu64
                    ", of which dataset %.8s, generation %" PRIu64
                    " in %s is not a later state; publish it to another home",
                    work->home->name, ids[0], rks_dataset_number(there), ids[1],
                    rks_dataset_number(work->dataset), work->directory);
}

/* Decides what the dataset at home is to this one. */
static rks_status compare_with(rks_publish_work *work, const rks_home_dataset *there,
                               rks_error *err)
{
    const rks_dataset *theirs = there->dataset, *ours = work->dataset;
    uint64_t generation = rks_dataset_number(theirs), own = rks_dataset_number(ours);
    rks_digest digests[2] = {{0}, {0}};
    rks_status status = rks_dataset_digest(theirs, &digests[0], err);
    if (status == RKS_OK)
        status = rks_dataset_digest(ours, &digests[1], err);
    if (status != RKS_OK)
        return status;
    work->state.generation = generation;
    strcpy(work->state.version, there->version);
    if (rks_digest_equal(digests[0], digests[1]))
        work->state.has = RKS_HOME_HAS_SAME;
    else if (generation == own && rks_digest_equal(theirs->id, ours->id))
        work->state.has = RKS_HOME_HAS_MORE;
    else if (generation > own && has_all(theirs, ours))
        work->state.has = RKS_HOME_HAS_MORE;
    else if (generation >= own || !has_all(ours, theirs))
        status = fail_other_dataset(work, theirs, err);
    return status;
}

rks_status rks_publish_look(rks_publish_work *work, rks_error *err)
{
    rks_home_dataset there;
    rks_status status = rks_home_dataset_read(work->home, &there, err);
    if (status == RKS_OK)
        status = compare_with(work, &there, err);
    else if (status == RKS_ERR_NOT_FOUND)
        status = RKS_OK;
    rks_home_dataset_free(&there);
    if (status == RKS_OK && work->state.has != RKS_HOME_HAS_MORE && !work->options.dry_run)
        status = mark_home(work, err);
    return status;
}
