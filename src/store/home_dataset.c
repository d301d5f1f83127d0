/* SPDX-License-Identifier: Apache-2.0
 *
 * home_dataset.c: reads a dataset's small files from its home. */
#include "store/home_dataset.h"

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

static rks_status read_once(rks_home *home, rks_home_dataset *read, rks_error *err)
{
    const rks_list_source lists = {.place = home->name, .load = load_from_home, .user = home};
    char *path = rks_format(err, "%s/%s", home->name, RKS_DATASET_FILE);
    rks_status status = path == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        status = rks_home_read_all(home, RKS_DATASET_FILE, RKS_DATASET_MAX, &read->text,
                                   &read->size, read->version, err);
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
    rks_status status = read_once(home, read, err);
    for (int again = 0; again < READ_AGAIN && status == RKS_ERR_CORRUPT && was_replaced(home, read);
         again++) {
        rks_home_dataset_free(read);
        status = read_once(home, read, err);
    }
    if (status != RKS_OK)
        rks_home_dataset_free(read);
    return status;
}

void rks_home_dataset_free(rks_home_dataset *read)
{
    rks_dataset_free(read->dataset);
    rks_free(read->text);
    *read = (rks_home_dataset){0};
}
