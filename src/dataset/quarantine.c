/* SPDX-License-Identifier: Apache-2.0
 *
 * quarantine.c: the list as JSON with its own digest:
 *
 *   {"format":{"major":1,"minor":0},"requires":[],"dataset":"<id>","samples":N,
 *    "quarantine":[{"sample":7,"what":"offset 4096: wrong checksum"},...],"digest":"..."}
 *
 * sorted by sample, each once. */
#include "dataset/quarantine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "rankstore/verify.h"
#include "shard/json_text.h"

static rks_status encode(const rks_dataset *dataset, const uint64_t *ids, const size_t *order,
                         const char *const *reasons, size_t count, rks_buffer *json, rks_error *err)
{
    char id[RKS_DIGEST_TEXT];
    rks_digest_format(dataset->id, id);
    rks_status status = rks_json_begin(json, NULL, err);
    if (status == RKS_OK)
        status = rks_buffer_print(json, err,
                                  ",\"dataset\":\"%s\",\"samples\":%" PRIu64 ",\"quarantine\":[",
                                  id, dataset->count);
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        size_t at = order[i];
        if (i > 0 && ids[at] == ids[order[i - 1]])
            continue;
        const char *why = reasons == NULL || reasons[at] == NULL ? "" : reasons[at];
        status = rks_buffer_print(
            json, err, "%s{\"sample\":%" PRIu64 ",\"what\":", i == 0 ? "" : ",", ids[at]);
        if (status == RKS_OK)
            status =
                rks_json_put_string(json, rks_utf8_valid(why, strlen(why), NULL) ? why : "", err);
        if (status == RKS_OK)
            status = rks_buffer_add(json, "}", 1, err);
    }
    if (status == RKS_OK)
        status = rks_buffer_add(json, "]", 1, err);
    return status == RKS_OK ? rks_json_finish(json, NULL, err) : status;
}

static int absent_by_id(const void *a, const void *b, void *user)
{
    const uint64_t *ids = user;
    uint64_t left = ids[*(const size_t *)a], right = ids[*(const size_t *)b];
    return left < right ? -1 : left > right;
}

rks_status rks_quarantine_write(const char *path, const char *directory, const uint64_t *sample_ids,
                                const char *const *reasons, size_t count, rks_error *err)
{
    if (path == NULL || directory == NULL || (count > 0 && sample_ids == NULL))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "quarantine: a path, a dataset and ids needed");
    rks_dataset *dataset = NULL;
    rks_buffer json = {0};
    size_t *order = rks_alloc_raw(count, sizeof(*order), err);
    rks_status status = order == NULL ? RKS_ERR_MEMORY : rks_dataset_load(directory, &dataset, err);
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        order[i] = i;
        if (sample_ids[i] >= dataset->count)
            status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                              "sample %" PRIu64 " is out of range: the dataset has %" PRIu64,
                              sample_ids[i], dataset->count);
    }
    if (status == RKS_OK && count > 0)
        qsort_r(order, count, sizeof(*order), absent_by_id, (void *)(uintptr_t)sample_ids);
    if (status == RKS_OK)
        status = encode(dataset, sample_ids, order, reasons, count, &json, err);
    if (status == RKS_OK)
        status = rks_file_replace(path, json.data, json.size, err);
    rks_buffer_free(&json);
    rks_dataset_free(dataset);
    rks_free(order);
    return status;
}

static rks_status check_dataset(const json_t *root, const char *path, const rks_dataset *dataset,
                                rks_error *err)
{
    rks_digest id;
    uint64_t samples = 0;
    rks_status status = rks_json_digest(root, "dataset", path, &id, err);
    if (status == RKS_OK)
        status = rks_json_u64(root, "samples", path, &samples, err);
    if (status != RKS_OK || (rks_digest_equal(id, dataset->id) && samples == dataset->count))
        return status;
    char listed[RKS_DIGEST_TEXT], open[RKS_DIGEST_TEXT];
    rks_digest_format(id, listed);
    rks_digest_format(dataset->id, open);
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "%s: lists samples of dataset %s, and this is %s; run verify --quarantine on "
                    "this one",
                    path, listed, open);
}

rks_status rks_quarantine_decode(const char *text, size_t size, const char *path,
                                 const rks_dataset *dataset, uint32_t **ids, size_t *count,
                                 rks_error *err)
{
    json_t *root = NULL;
    rks_digest digest;
    const json_t *list = NULL;
    uint32_t *read = NULL;
    rks_status status = rks_json_open(text, size, path, NULL, &root, &digest, err);
    if (status != RKS_OK)
        return status;
    status = check_dataset(root, path, dataset, err);
    if (status == RKS_OK)
        status = rks_json_array(root, "quarantine", path, &list, err);
    size_t entries = list == NULL ? 0 : json_array_size(list);
    if (status == RKS_OK && (read = rks_alloc(entries, sizeof(*read), err)) == NULL)
        status = RKS_ERR_MEMORY;
    for (size_t i = 0; status == RKS_OK && i < entries; i++) {
        uint64_t id = 0;
        status = rks_json_u64(json_array_get(list, i), "sample", path, &id, err);
        if (status == RKS_OK && (id >= dataset->count || (i > 0 && id <= read[i - 1])))
            status = rks_fail(err, RKS_ERR_CORRUPT, 0,
                              "%s: sample %" PRIu64 " is out of range or out of order", path, id);
        read[i] = (uint32_t)id;
    }
    json_decref(root);
    if (status != RKS_OK) {
        rks_free(read);
        return status;
    }
    *ids = read;
    *count = entries;
    return RKS_OK;
}

rks_status rks_quarantine_load(const char *path, const rks_dataset *dataset, uint32_t **ids,
                               size_t *count, rks_error *err)
{
    char *text = NULL;
    size_t size = 0;
    rks_status status = rks_file_load(path, RKS_QUARANTINE_MAX, &text, &size, err);
    if (status == RKS_OK)
        status = rks_quarantine_decode(text, size, path, dataset, ids, count, err);
    rks_free(text);
    return status;
}
