/* SPDX-License-Identifier: Apache-2.0
 *
 * home_dataset.c: reads a dataset's small files from its home. */
#include "store/home_dataset.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "dataset/dataset_json.h"

enum { READ_AGAIN = 3 };

static rks_status load_from_home(void *user, const char *name, size_t most, char **bytes,
                                 size_t *size, rks_error *err)
{
    return rks_home_read_all(user, name, most, bytes, size, NULL, err);
}

static rks_status read_once(rks_home *home, const char *file, rks_home_dataset *read,
                            rks_error *err)
{
    const rks_list_source lists = {.place = home->name, .load = load_from_home, .user = home};
    char *path = rks_format(err, "%s/%s", home->name, file);
    rks_status status = path == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        status = rks_home_read_all(home, file, RKS_DATASET_MAX, &read->text, &read->size,
                                   read->version, err);
    if (status == RKS_OK)
        status = rks_dataset_decode_with(&lists, read->text, read->size, path, &read->dataset, err);
    rks_free(path);
    return status;
}

/* Returns true if dataset.json is another one by now: its lists may have gone with it. */
static bool was_replaced(rks_home *home, const rks_home_dataset *read)
{
    char version[RKS_HOME_VERSION] = "";
    uint64_t size;
    rks_error ignored;
    return rks_home_size(home, RKS_DATASET_FILE, &size, version, &ignored) == RKS_OK &&
           strcmp(version, read->version) != 0;
}

rks_status rks_home_dataset_read(rks_home *home, rks_home_dataset *read, rks_error *err)
{
    *read = (rks_home_dataset){0};
    rks_status status = read_once(home, RKS_DATASET_FILE, read, err);
    for (int again = 0; again < READ_AGAIN && status == RKS_ERR_CORRUPT && was_replaced(home, read);
         again++) {
        rks_home_dataset_free(read);
        status = read_once(home, RKS_DATASET_FILE, read, err);
    }
    if (status != RKS_OK)
        rks_home_dataset_free(read);
    return status;
}

rks_status rks_home_dataset_read_generation(rks_home *home, uint64_t generation,
                                            rks_home_dataset *read, rks_error *err)
{
    char name[64];
    snprintf(name, sizeof(name), "dataset.%" PRIu64 ".json", generation);
    *read = (rks_home_dataset){0};
    rks_status status = read_once(home, name, read, err);
    if (status == RKS_ERR_NOT_FOUND)
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0,
                        "%s: there is no generation %" PRIu64 " (or it was pruned)", home->name,
                        generation);
    if (status == RKS_OK && rks_dataset_number(read->dataset) != generation)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s/%s: holds generation %" PRIu64, home->name,
                          name, rks_dataset_number(read->dataset));
    if (status != RKS_OK)
        rks_home_dataset_free(read);
    return status;
}

static rks_status read_excluded(rks_home *home, rks_dataset *dataset, rks_error *err)
{
    rks_excluded *excluded = &dataset->excluded;
    char *bytes = NULL;
    size_t size = 0;
    if (excluded->samples == 0)
        return RKS_OK;
    char *path = rks_format(err, "%s/%s", home->name, excluded->name);
    rks_status status = path == NULL
                            ? RKS_ERR_MEMORY
                            : rks_home_read_all(home, excluded->name,
                                                (size_t)rks_excluded_size(excluded->run_count),
                                                &bytes, &size, NULL, err);
    if (status == RKS_OK)
        status = rks_excluded_decode(excluded, bytes, size, rks_dataset_stored(dataset), path, err);
    rks_free(bytes);
    rks_free(path);
    return status;
}

rks_status rks_home_dataset_load_from(rks_home *home, uint64_t generation, rks_dataset **dataset,
                                      rks_error *err)
{
    rks_home_dataset read = {0};
    rks_status status = rks_home_dataset_read(home, &read, err);
    if (status == RKS_ERR_NOT_FOUND) {
        rks_error why = *err;
        status = rks_fail(err, RKS_ERR_NOT_FOUND, 0, "%s: no dataset here (%.300s)", home->name,
                          why.text);
    }
    /* Of a newer version's home, earlier generations may be of this format. */
    if (generation > 0 && (status == RKS_ERR_UNSUPPORTED ||
                           (status == RKS_OK && rks_dataset_number(read.dataset) != generation))) {
        rks_home_dataset_free(&read);
        status = rks_home_dataset_read_generation(home, generation, &read, err);
    }
    if (status == RKS_OK)
        status = read_excluded(home, read.dataset, err);
    if (status == RKS_OK) {
        *dataset = read.dataset;
        read.dataset = NULL;
    }
    rks_home_dataset_free(&read);
    return status;
}

rks_status rks_home_dataset_load(const char *url, const char *storage_options, uint64_t generation,
                                 rks_dataset **dataset, rks_error *err)
{
    rks_home *home = NULL;
    const rks_home_limits limits = {.options = storage_options};
    rks_status status = rks_home_open(url, &limits, &home, err);
    if (status == RKS_OK)
        status = rks_home_dataset_load_from(home, generation, dataset, err);
    rks_home_close(home);
    return status;
}

void rks_home_dataset_free(rks_home_dataset *read)
{
    rks_dataset_free(read->dataset);
    rks_free(read->text);
    *read = (rks_home_dataset){0};
}
