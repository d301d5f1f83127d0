/* SPDX-License-Identifier: Apache-2.0
 *
 * generations.c: what a directory's dataset was before: dataset.N.json, copies of what dataset.json
 * held. An append adds shards and names them in a new dataset.json, so each generation's shards are
 * also the next one's. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "dataset/dataset.h"
#include "dataset/dataset_json.h"

char *rks_dataset_generation_path(const char *directory, uint64_t generation, rks_error *err)
{
    return rks_format(err, "%s/dataset.%" PRIu64 ".json", directory, generation);
}

uint64_t rks_dataset_number(const rks_dataset *dataset)
{
    return dataset->generation == 0 ? 1 : dataset->generation;
}

/* Copies byte for byte: a later version may have written more than is known here. */
rks_status rks_dataset_keep_generation(const char *directory, uint64_t generation,
                                       rks_dataset_summary *before, bool *is_there, rks_error *err)
{
    char *text = NULL;
    size_t size = 0;
    char *from = rks_format(err, "%s/%s", directory, RKS_DATASET_FILE);
    char *to = rks_dataset_generation_path(directory, generation, err);
    rks_status status = from == NULL || to == NULL
                            ? RKS_ERR_MEMORY
                            : rks_file_load(from, RKS_DATASET_MAX, &text, &size, err);
    bool none = status == RKS_ERR_NOT_FOUND; /* the older ones are in another directory */
    if (status == RKS_OK)
        status = rks_dataset_decode_summary(text, size, from, before, err);
    if (status == RKS_OK && before->generation == generation) {
        *is_there = true;
        status = rks_file_replace(to, text, size, err);
    }
    rks_free(text);
    rks_free(from);
    rks_free(to);
    return none ? RKS_OK : status;
}

rks_status rks_dataset_summarize(const char *directory, uint64_t generation,
                                 rks_dataset_summary *summary, rks_error *err)
{
    char *text = NULL;
    size_t size = 0;
    char *path = generation > 0 ? rks_dataset_generation_path(directory, generation, err)
                                : rks_format(err, "%s/%s", directory, RKS_DATASET_FILE);
    rks_status status =
        path == NULL ? RKS_ERR_MEMORY : rks_file_load(path, RKS_DATASET_MAX, &text, &size, err);
    if (status == RKS_OK)
        status = rks_dataset_decode_summary(text, size, path, summary, err);
    if (status == RKS_OK && generation > 0 && summary->generation != generation)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: holds generation %" PRIu64, path,
                          summary->generation);
    rks_free(text);
    rks_free(path);
    return status;
}

bool rks_dataset_is_generation_name(const char *name, uint64_t *generation)
{
    char again[64];
    unsigned long long number = 0;
    if (sscanf(name, "dataset.%llu.json", &number) != 1 || number == 0)
        return false;
    snprintf(again, sizeof(again), "dataset.%llu.json", number);
    *generation = number;
    return strcmp(again, name) == 0;
}

static int generations_by_number(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

rks_status rks_dataset_generations(const char *directory, uint64_t **generations, size_t *count,
                                   rks_error *err)
{
    uint64_t *found = rks_alloc(1, sizeof(*found), err), number;
    size_t used = 0;
    DIR *stream = found == NULL ? NULL : opendir(directory);
    if (found == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = stream != NULL || errno == ENOENT || errno == ENOTDIR
                            ? RKS_OK
                            : rks_fail_errno(err, errno, "%s: reading the directory", directory);
    for (struct dirent *entry; status == RKS_OK && stream != NULL && (entry = readdir(stream));) {
        if (!rks_dataset_is_generation_name(entry->d_name, &number))
            continue;
        uint64_t *grown = rks_realloc(found, used + 2, sizeof(*found), err);
        if (grown == NULL) {
            status = RKS_ERR_MEMORY;
            break;
        }
        found = grown;
        found[used++] = number;
    }
    if (stream != NULL)
        closedir(stream);
    if (status != RKS_OK) {
        rks_free(found);
        return status;
    }
    qsort(found, used, sizeof(*found), generations_by_number);
    *generations = found;
    *count = used;
    return RKS_OK;
}

rks_status rks_dataset_newest_kept(const char *directory, uint64_t *newest, rks_error *err)
{
    uint64_t *generations = NULL;
    size_t count = 0;
    rks_status status = rks_dataset_generations(directory, &generations, &count, err);
    if (status == RKS_OK)
        *newest = count == 0 ? 0 : generations[count - 1];
    rks_free(generations);
    return status;
}

static rks_status load_older(const char *directory, uint64_t generation, rks_dataset **dataset,
                             rks_error *err)
{
    char *text = NULL, *path = rks_dataset_generation_path(directory, generation, err);
    size_t size = 0;
    rks_dataset *loaded = NULL;
    rks_status status =
        path == NULL ? RKS_ERR_MEMORY : rks_file_load(path, RKS_DATASET_MAX, &text, &size, err);
    if (status == RKS_ERR_NOT_FOUND)
        status =
            rks_fail(err, RKS_ERR_NOT_FOUND, ENOENT,
                     "%s: there is no generation %" PRIu64 " (or it was pruned); info lists them",
                     directory, generation);
    if (status == RKS_OK)
        status = rks_dataset_decode_file(directory, text, size, path, &loaded, err);
    if (status == RKS_OK)
        status = rks_dataset_load_excluded(directory, loaded, err);
    if (status == RKS_OK && rks_dataset_number(loaded) != generation) {
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: holds generation %" PRIu64, path,
                          rks_dataset_number(loaded));
    } else if (status == RKS_OK) {
        *dataset = loaded;
        loaded = NULL;
    }
    rks_dataset_free(loaded);
    rks_free(text);
    rks_free(path);
    return status;
}

rks_status rks_dataset_load_generation(const char *directory, uint64_t generation,
                                       rks_dataset **dataset, rks_error *err)
{
    rks_dataset *now = NULL;
    rks_error local;
    if (generation == 0)
        return rks_dataset_load(directory, dataset, err);
    rks_status status = rks_dataset_load(directory, &now, &local);
    if (status == RKS_OK && rks_dataset_number(now) == generation) {
        *dataset = now;
        return RKS_OK;
    }
    rks_dataset_free(now);
    return load_older(directory, generation, dataset, err);
}

const char *rks_dataset_generation_sign(const char *name)
{
    const char *sign = strrchr(name, '@');
    bool named = sign != NULL && sign > name && sign[1] != '\0' &&
                 sign[1 + strspn(sign + 1, "0123456789")] == '\0';
    return named ? sign : NULL;
}

uint64_t rks_dataset_take_generation(char *directory)
{
    const char *sign = rks_dataset_generation_sign(directory);
    if (sign == NULL || sign[1] == '0' || access(directory, F_OK) == 0)
        return 0;
    errno = 0;
    unsigned long long generation = strtoull(sign + 1, NULL, 10);
    if (errno != 0)
        return 0;
    directory[sign - directory] = '\0';
    return generation;
}
