/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_json.c: dataset.json, written when all shards are sealed. At most 64 MiB. One line of
 * JSON a shard and a unit:
 *
 *   format, requires, digest   as in a manifest
 *   dataset       dataset id, see rks_dataset_fold
 *   build         build id
 *   samples       N
 *   derived_keys  as in a manifest
 *   schema, index as in a manifest
 *   excluded      only where `requires` has it: {name, samples, bytes, duplicates, runs, digest}:
 *                 the file that lists samples of the shards that do not count (excluded_samples.c)
 *   options       an object: what the first build was asked for
 *   added         likewise the newest build, if it is another one
 *   shards        sorted by id: {name, id, manifest, samples, bytes, file_bytes, largest}:
 *                 `name` is the file's without ending, `manifest` the digest of NAME.json,
 *                 `file_bytes` counts its three files; `origin`, if it is known, is
 *                 "HOST:DIRECTORY" where it was built; `build` and `first_unit` only where
 *                 `requires` has "builds": the build that wrote it, and what its own unit numbers
 *                 lack to those of the dataset
 *   generation    only above 1
 *   revision      only above 0: how often lost shards of this generation were built again. They
 *                 keep their ids and units, and have new names and manifests
 *   unit_size     bytes of input in a unit of the newest build; not where samples came from memory
 *   index_files   optional: files with the index of all samples, in the order of their ids
 *                 (index_file.c), as {name, digest, bytes, samples}
 *   lists, bytes  only where `requires` has "lists": files that hold the first shards and units
 *                 (dataset_list.c), as {name, digest, bytes, shards, units}, and the column and key
 *                 bytes of all samples that count; `shards` and `units` are then what is after
 * those units         sorted by unit: {unit, shard, first_row, samples, seen, filtered, bad, bytes,
 *                 first_source_row, digest, key_name}: `shard` counts `shards` from 0; key_name
 * where keys are derived, or key_name_hex (two digits a byte) where it is not UTF-8
 *
 * `samples` counts without excluded ones; they have no sample id.
 * The rows of a shard belong to its units without gap or overlap.
 * Sample ids: units in this order, rows in the order of the unit.
 */
#include "dataset/dataset_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/dataset_entry.h"
#include "shard/json_text.h"

static const char EXCLUDED[] = "excluded";
static const char BUILDS[] = "builds";
static const char LISTS[] = "lists";
static const char *const FEATURES[] = {EXCLUDED, BUILDS, NULL};
static const char *const FILE_FEATURES[] = {EXCLUDED, BUILDS, LISTS, NULL};

/* ---- writing ---- */

static bool has_builds(const rks_dataset *dataset)
{
    const rks_digest none = {0};
    for (size_t i = 0; i < dataset->shard_count; i++)
        if (dataset->shards[i].first_unit > 0 || !rks_digest_equal(dataset->shards[i].build, none))
            return true;
    return false;
}

static int compare_shards(const void *a, const void *b)
{
    const rks_dataset_shard *const *left = a, *const *right = b;
    return rks_dataset_compare_ids((*left)->id, (*right)->id);
}

static rks_status put_excluded(const rks_excluded *excluded, rks_buffer *json, rks_error *err)
{
    char digest[RKS_DIGEST_TEXT];
    rks_digest_format(excluded->digest, digest);
    rks_status status = rks_buffer_print(json, err, ",\"excluded\":{\"name\":");
    if (status == RKS_OK)
        status = rks_json_put_string(json, excluded->name, err);
    if (status != RKS_OK)
        return status;
    return rks_buffer_print(json, err,
                            ",\"samples\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"duplicates\":%" PRIu64
                            ",\"runs\":%" PRIu64 ",\"digest\":\"%s\"}",
                            excluded->samples, excluded->bytes, excluded->duplicates,
                            excluded->run_count, digest);
}

static rks_status put_lists(const rks_dataset *dataset, const rks_dataset_layout *layout,
                            rks_buffer *json, rks_error *err)
{
    rks_status status = rks_buffer_print(json, err, ",\"bytes\":%" PRIu64 ",\"lists\":[",
                                         rks_dataset_bytes(dataset));
    for (size_t i = 0; status == RKS_OK && i < layout->list_count; i++) {
        const rks_dataset_list *list = &layout->lists[i];
        char digest[RKS_DIGEST_TEXT];
        rks_digest_format(list->digest, digest);
        status = rks_buffer_print(json, err,
                                  "%s\n{\"name\":\"%s\",\"digest\":\"%s\",\"bytes\":%" PRIu64
                                  ",\"shards\":%" PRIu64 ",\"units\":%" PRIu64 "}",
                                  i == 0 ? "" : ",", list->name, digest, list->bytes, list->shards,
                                  list->units);
    }
    return status == RKS_OK ? rks_buffer_add(json, "]", 1, err) : status;
}

/* Writes what every dataset has, up to the columns of its index. */
static rks_status put_common(const rks_dataset *dataset, bool lists, rks_buffer *json,
                             rks_error *err)
{
    char id[RKS_DIGEST_TEXT], build[RKS_DIGEST_TEXT];
    rks_digest_format(dataset->id, id);
    rks_digest_format(dataset->build_id, build);
    bool excludes = dataset->excluded.samples > 0;
    const char *features[4] = {NULL};
    features[0] = excludes ? EXCLUDED : NULL;
    features[excludes] = has_builds(dataset) ? BUILDS : NULL;
    features[excludes + (features[excludes] != NULL)] = lists ? LISTS : NULL;
    rks_status status = rks_json_begin(json, features, err);
    if (status == RKS_OK)
        status =
            rks_buffer_print(json, err,
                             ",\"dataset\":\"%s\",\"build\":\"%s\",\"samples\":%" PRIu64
                             ",\"derived_keys\":%s,\"schema\":%s,\"index\":[",
                             id, build, dataset->count, dataset->derived_keys ? "true" : "false",
                             rks_schema_text(dataset->schema));
    for (size_t i = 0; status == RKS_OK && i < dataset->index_count; i++) {
        status = rks_buffer_add(json, ",", i > 0, err);
        if (status == RKS_OK)
            status = rks_json_put_string(json, dataset->index[i], err);
    }
    return status == RKS_OK ? rks_buffer_print(json, err, "]") : status;
}

/* `layout` NULL: writes everything into one text. */
static rks_status put_top(const rks_dataset *dataset, const rks_dataset_layout *layout,
                          rks_buffer *json, rks_error *err)
{
    bool lists = layout != NULL && layout->list_count > 0;
    rks_status status = put_common(dataset, lists, json, err);
    if (status == RKS_OK && dataset->excluded.samples > 0)
        status = put_excluded(&dataset->excluded, json, err);
    if (status == RKS_OK && dataset->generation > 1)
        status = rks_buffer_print(json, err, ",\"generation\":%" PRIu64, dataset->generation);
    if (status == RKS_OK && dataset->revision > 0)
        status = rks_buffer_print(json, err, ",\"revision\":%" PRIu64, dataset->revision);
    if (status == RKS_OK && dataset->unit_size > 0)
        status = rks_buffer_print(json, err, ",\"unit_size\":%" PRIu64, dataset->unit_size);
    if (status == RKS_OK && dataset->made_from[0] != '\0') {
        status = rks_buffer_print(json, err, ",\"made_from\":");
        if (status == RKS_OK)
            status = rks_json_put_string(json, dataset->made_from, err);
    }
    if (status == RKS_OK)
        status = rks_dataset_put_index_files(dataset, json, err);
    if (status == RKS_OK && lists)
        status = put_lists(dataset, layout, json, err);
    if (status == RKS_OK)
        status = rks_buffer_print(json, err, ",\"options\":");
    return status;
}

static rks_status put_options(const char *text_of, rks_buffer *json, rks_error *err)
{
    if (text_of == NULL)
        return rks_buffer_print(json, err, "{}");
    json_error_t where;
    json_t *options = json_loads(text_of, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(options)) {
        json_decref(options);
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "the build's options are not a JSON object");
    }
    char *text = json_dumps(options, JSON_COMPACT);
    json_decref(options);
    rks_status status = text == NULL
                            ? rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: build options")
                            : rks_buffer_add(json, text, strlen(text), err);
    free(text); /* allocated by jansson */
    return status;
}

static bool is_inside(const rks_dataset_layout *layout, size_t shard)
{
    return layout == NULL || layout->inside[shard];
}

/* Sorts the shards of the text by id. place[i] becomes the place of shard i among them. */
static rks_status sort_shards(const rks_dataset *dataset, const rks_dataset_layout *layout,
                              const rks_dataset_shard ***sorted, size_t *count, uint32_t **place,
                              rks_error *err)
{
    *sorted = rks_alloc(dataset->shard_count, sizeof(**sorted), err);
    *place = rks_alloc(dataset->shard_count, sizeof(**place), err);
    *count = 0;
    if (*sorted == NULL || *place == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < dataset->shard_count; i++)
        if (is_inside(layout, i))
            (*sorted)[(*count)++] = &dataset->shards[i];
    if (*count > 0)
        qsort(*sorted, *count, sizeof(**sorted), compare_shards);
    for (size_t i = 0; i < *count; i++) {
        (*place)[(*sorted)[i] - dataset->shards] = (uint32_t)i;
        if (i > 0 && rks_digest_equal((*sorted)[i]->id, (*sorted)[i - 1]->id))
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "shards %s and %s are the same",
                            (*sorted)[i - 1]->name, (*sorted)[i]->name);
    }
    return RKS_OK;
}

static rks_status put_entries(const rks_dataset *dataset, const rks_dataset_layout *layout,
                              rks_buffer *json, rks_error *err)
{
    const rks_dataset_shard **sorted = NULL;
    uint32_t *place = NULL;
    size_t count = 0;
    bool first = true;
    rks_status status = sort_shards(dataset, layout, &sorted, &count, &place, err);
    if (status == RKS_OK)
        status = rks_buffer_print(json, err, ",\"shards\":[");
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = rks_dataset_put_shard(sorted[i], has_builds(dataset), i == 0, json, err);
    if (status == RKS_OK)
        status = rks_buffer_print(json, err, "],\"units\":[");
    for (size_t i = 0; status == RKS_OK && i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        if (!is_inside(layout, unit->shard))
            continue;
        status =
            rks_dataset_put_unit(unit, place[unit->shard], dataset->derived_keys, first, json, err);
        first = false;
    }
    if (status == RKS_OK)
        status = rks_buffer_print(json, err, "]");
    rks_free(sorted);
    rks_free(place);
    return status;
}

rks_status rks_dataset_encode_file(const rks_dataset *dataset, const rks_dataset_layout *layout,
                                   char **text, size_t *size, rks_error *err)
{
    rks_buffer json = {0};
    rks_status status = rks_dataset_check(dataset, RKS_DATASET_FILE, RKS_ERR_ARGUMENT, err);
    if (status == RKS_OK)
        status = put_top(dataset, layout, &json, err);
    if (status == RKS_OK)
        status = put_options(dataset->build_options, &json, err);
    if (status == RKS_OK && dataset->added_options != NULL)
        status = rks_buffer_print(&json, err, ",\"added\":");
    if (status == RKS_OK && dataset->added_options != NULL)
        status = put_options(dataset->added_options, &json, err);
    if (status == RKS_OK)
        status = put_entries(dataset, layout, &json, err);
    if (status == RKS_OK)
        status = rks_json_finish(&json, NULL, err);
    if (status == RKS_OK && json.size > RKS_DATASET_MAX)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s would be %zu bytes, at most %zu are allowed",
                          RKS_DATASET_FILE, json.size, RKS_DATASET_MAX);
    if (status == RKS_OK) {
        *text = (char *)json.data;
        *size = json.size;
        json.data = NULL;
    }
    rks_buffer_free(&json);
    return status;
}

rks_status rks_dataset_encode(const rks_dataset *dataset, char **text, size_t *size, rks_error *err)
{
    return rks_dataset_encode_file(dataset, NULL, text, size, err);
}

/* ---- reading ---- */

static rks_status copy_string(const char *text, char **copy, rks_error *err)
{
    *copy = rks_strdup(text, err);
    return *copy == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

static rks_status decode_excluded(const json_t *root, const char *path, rks_excluded *excluded,
                                  rks_error *err)
{
    const char *name = NULL;
    const json_t *item = json_object_get(root, EXCLUDED);
    if (!rks_json_requires(root, EXCLUDED))
        return RKS_OK;
    rks_status status = rks_json_string(item, "name", path, &name, err);
    if (status == RKS_OK && strlen(name) >= sizeof(excluded->name))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: a name of %zu bytes", path, strlen(name));
    if (status == RKS_OK) {
        memcpy(excluded->name, name, strlen(name) + 1);
        status = rks_json_u64(item, "samples", path, &excluded->samples, err);
    }
    if (status == RKS_OK)
        status = rks_json_u64(item, "bytes", path, &excluded->bytes, err);
    if (status == RKS_OK)
        status = rks_json_u64(item, "duplicates", path, &excluded->duplicates, err);
    if (status == RKS_OK)
        status = rks_json_u64(item, "runs", path, &excluded->run_count, err);
    if (status == RKS_OK)
        status = rks_json_digest(item, "digest", path, &excluded->digest, err);
    return status;
}

/* Decodes a number that a dataset may lack. */
static rks_status decode_number(const json_t *root, const char *name, const char *path,
                                uint64_t *number, rks_error *err)
{
    return json_object_get(root, name) == NULL ? RKS_OK
                                               : rks_json_u64(root, name, path, number, err);
}

static rks_status decode_top(const json_t *root, const char *path, rks_dataset *dataset,
                             rks_error *err)
{
    rks_status status = rks_json_digest(root, "dataset", path, &dataset->id, err);
    if (status == RKS_OK)
        status = rks_json_digest(root, "build", path, &dataset->build_id, err);
    if (status == RKS_OK)
        status = rks_json_u64(root, "samples", path, &dataset->count, err);
    if (status == RKS_OK)
        status = rks_json_bool(root, "derived_keys", path, &dataset->derived_keys, err);
    if (status == RKS_OK)
        status = decode_number(root, "generation", path, &dataset->generation, err);
    if (status == RKS_OK)
        status = decode_number(root, "revision", path, &dataset->revision, err);
    if (status == RKS_OK)
        status = decode_number(root, "unit_size", path, &dataset->unit_size, err);
    const char *made_from = json_string_value(json_object_get(root, "made_from"));
    if (made_from != NULL && strlen(made_from) < sizeof(dataset->made_from))
        strcpy(dataset->made_from, made_from);
    if (status == RKS_OK)
        status = decode_excluded(root, path, &dataset->excluded, err);
    if (status == RKS_OK)
        status = rks_json_object_text(root, "options", path, &dataset->build_options, err);
    if (status == RKS_OK && json_object_get(root, "added") != NULL)
        status = rks_json_object_text(root, "added", path, &dataset->added_options, err);
    return status == RKS_OK ? rks_json_schema(root, path, &dataset->schema, err) : status;
}

/* Checks that a list's name follows from its digest, and appears once. */
static rks_status check_list_name(const rks_dataset_list *lists, size_t i, const char *name,
                                  const char *path, rks_error *err)
{
    char right[sizeof(lists->name)];
    rks_dataset_list_name(lists[i].digest, right);
    bool good = strcmp(name, right) == 0;
    for (size_t k = 0; k < i && good; k++)
        good = strcmp(lists[k].name, right) != 0;
    return good ? RKS_OK
                : rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: \"%.80s\" is not the name of a list", path,
                           name);
}

/* Decodes the list at `at`. Those before it are decoded. */
static rks_status decode_list_name(const json_t *item, const char *path, rks_dataset_list *lists,
                                   size_t at, rks_error *err)
{
    const char *name = NULL;
    rks_dataset_list *list = &lists[at];
    rks_status status = rks_json_string(item, "name", path, &name, err);
    if (status == RKS_OK)
        status = rks_json_digest(item, "digest", path, &list->digest, err);
    if (status == RKS_OK)
        status = check_list_name(lists, at, name, path, err);
    if (status != RKS_OK)
        return status;
    rks_dataset_list_name(list->digest, list->name);
    status = rks_json_u64(item, "bytes", path, &list->bytes, err);
    if (status == RKS_OK)
        status = rks_json_u64(item, "shards", path, &list->shards, err);
    return status == RKS_OK ? rks_json_u64(item, "units", path, &list->units, err) : status;
}

static rks_status decode_list_names(const json_t *root, const char *path, rks_dataset_list *lists,
                                    size_t *count, rks_error *err)
{
    const json_t *items = NULL;
    if (!rks_json_requires(root, LISTS))
        return RKS_OK;
    rks_status status = rks_json_array(root, LISTS, path, &items, err);
    if (status != RKS_OK)
        return status;
    if (json_array_size(items) > RKS_DATASET_LISTS_MAX)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: refers to %zu lists; at most %d are", path,
                        json_array_size(items), RKS_DATASET_LISTS_MAX);
    for (size_t i = 0; i < json_array_size(items); i++) {
        status = decode_list_name(json_array_get(items, i), path, lists, i, err);
        if (status != RKS_OK)
            return status;
        ++*count;
    }
    return RKS_OK;
}

static rks_status decode_index(const json_t *root, const char *path, rks_dataset *dataset,
                               rks_error *err)
{
    const json_t *index = NULL;
    rks_status status = rks_json_array(root, "index", path, &index, err);
    if (status != RKS_OK)
        return status;
    dataset->index = rks_alloc(json_array_size(index), sizeof(*dataset->index), err);
    if (dataset->index == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; status == RKS_OK && i < json_array_size(index); i++) {
        const char *name = json_string_value(json_array_get(index, i));
        status = copy_string(name == NULL ? "" : name, &dataset->index[i], err);
        dataset->index_count += status == RKS_OK;
    }
    return status;
}

/* Decodes the shards and units of the text, which come after those of lists. */
static rks_status decode_inline(const json_t *root, const char *path, rks_dataset *dataset,
                                rks_error *err)
{
    const json_t *shards = NULL, *units = NULL;
    rks_status status = rks_json_array(root, "shards", path, &shards, err);
    if (status == RKS_OK)
        status = rks_json_array(root, "units", path, &units, err);
    if (status != RKS_OK)
        return status;
    size_t first = dataset->shard_count, more = json_array_size(shards);
    rks_dataset_shard *grown = rks_realloc(dataset->shards, first + more, sizeof(*grown), err);
    if (grown != NULL)
        dataset->shards = grown;
    rks_dataset_unit *grown_units = rks_realloc(
        dataset->units, dataset->unit_count + json_array_size(units), sizeof(*grown_units), err);
    if (grown_units != NULL)
        dataset->units = grown_units;
    if (grown == NULL || grown_units == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; status == RKS_OK && i < more; i++) {
        rks_dataset_shard *shard = &grown[dataset->shard_count++];
        *shard = (rks_dataset_shard){0};
        status = rks_dataset_decode_shard(json_array_get(shards, i), path, shard, err);
        if (status == RKS_OK && i > 0 && rks_dataset_compare_ids(shard[-1].id, shard->id) >= 0)
            status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: shard %s is out of order", path,
                              shard->name);
    }
    for (size_t i = 0; status == RKS_OK && i < json_array_size(units); i++) {
        rks_dataset_unit *unit = &grown_units[dataset->unit_count++];
        *unit = (rks_dataset_unit){0};
        status = rks_dataset_decode_unit(json_array_get(units, i), path, unit, err);
        if (status == RKS_OK) /* rks_dataset_check refuses a place that does not exist */
            unit->shard = unit->shard < more ? (uint32_t)(first + unit->shard) : UINT32_MAX;
    }
    return status;
}

rks_status rks_dataset_order_shards(rks_dataset *dataset, const char *path, rks_error *err)
{
    const rks_dataset_shard **sorted = NULL;
    uint32_t *place = NULL;
    size_t count = 0;
    rks_error why = {0};
    rks_dataset_shard *ordered = rks_alloc(dataset->shard_count, sizeof(*ordered), err);
    if (ordered == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = sort_shards(dataset, NULL, &sorted, &count, &place, &why);
    if (status == RKS_ERR_ARGUMENT)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %s", path, why.text);
    else if (status != RKS_OK && err != NULL)
        *err = why;
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        ordered[i] = *sorted[i];
    for (size_t i = 0; status == RKS_OK && i < dataset->unit_count; i++)
        if (dataset->units[i].shard < count)
            dataset->units[i].shard = place[dataset->units[i].shard];
    if (status == RKS_OK) {
        rks_free(dataset->shards);
        dataset->shards = ordered;
        ordered = NULL;
    }
    rks_free(sorted);
    rks_free(place);
    rks_free(ordered);
    return status;
}

/* `lists` NULL: a text that refers to lists is refused. */
static rks_status decode_text(const rks_list_source *lists, const char *text, size_t size,
                              const char *path, rks_dataset *decoded, rks_error *err)
{
    json_t *root = NULL;
    rks_digest digest;
    if (size > RKS_DATASET_MAX)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %zu bytes, at most %zu expected", path, size,
                        RKS_DATASET_MAX);
    rks_status status = rks_json_open(text, size, path, lists == NULL ? FEATURES : FILE_FEATURES,
                                      &root, &digest, err);
    if (status != RKS_OK)
        return status;
    status = decode_top(root, path, decoded, err);
    if (status == RKS_OK)
        status = decode_index(root, path, decoded, err);
    if (status == RKS_OK)
        status = rks_dataset_decode_index_files(root, path, decoded, err);
    if (status == RKS_OK)
        status = decode_list_names(root, path, decoded->lists, &decoded->list_count, err);
    for (size_t i = 0; status == RKS_OK && i < decoded->list_count; i++)
        status = rks_dataset_list_load(lists, &decoded->lists[i], (uint32_t)i + 1, decoded, err);
    if (status == RKS_OK)
        status = decode_inline(root, path, decoded, err);
    if (status == RKS_OK && decoded->list_count > 0)
        status = rks_dataset_order_shards(decoded, path, err); /* each list is sorted by id, and so
                                                                * is the text */
    json_decref(root);
    return status == RKS_OK ? rks_dataset_check(decoded, path, RKS_ERR_CORRUPT, err) : status;
}

rks_status rks_dataset_decode_with(const rks_list_source *lists, const char *text, size_t size,
                                   const char *path, rks_dataset **dataset, rks_error *err)
{
    rks_dataset *decoded = rks_alloc(1, sizeof(*decoded), err);
    if (decoded == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = decode_text(lists, text, size, path, decoded, err);
    if (status == RKS_OK) {
        *dataset = decoded;
        decoded = NULL;
    }
    rks_dataset_free(decoded);
    return status;
}

rks_status rks_dataset_decode(const char *text, size_t size, const char *path,
                              rks_dataset **dataset, rks_error *err)
{
    return rks_dataset_decode_with(NULL, text, size, path, dataset, err);
}

rks_status rks_dataset_decode_file(const char *directory, const char *text, size_t size,
                                   const char *path, rks_dataset **dataset, rks_error *err)
{
    const rks_list_source lists = rks_lists_in(directory);
    return rks_dataset_decode_with(&lists, text, size, path, dataset, err);
}

/* Adds up the bytes of all units, if the text has them all. */
static rks_status sum_units(const json_t *root, const char *path, uint64_t *bytes, rks_error *err)
{
    const json_t *units = NULL, *item;
    size_t i;
    uint64_t more = 0;
    rks_excluded excluded = {0};
    rks_status status = rks_json_array(root, "units", path, &units, err);
    if (status == RKS_OK)
        status = decode_excluded(root, path, &excluded, err);
    *bytes = 0;
    json_array_foreach(units, i, item)
    {
        if (status == RKS_OK)
            status = rks_json_u64(item, "bytes", path, &more, err);
        *bytes += more;
    }
    *bytes -= excluded.bytes;
    return status;
}

rks_status rks_dataset_decode_summary(const char *text, size_t size, const char *path,
                                      rks_dataset_summary *summary, rks_error *err)
{
    json_t *root = NULL;
    rks_digest digest;
    *summary = (rks_dataset_summary){.generation = 1};
    rks_status status = rks_json_open(text, size, path, FILE_FEATURES, &root, &digest, err);
    if (status == RKS_OK)
        status = rks_json_digest(root, "dataset", path, &summary->id, err);
    if (status == RKS_OK)
        status = rks_json_u64(root, "samples", path, &summary->samples, err);
    if (status == RKS_OK && json_object_get(root, "generation") != NULL)
        status = rks_json_u64(root, "generation", path, &summary->generation, err);
    if (status == RKS_OK)
        status = decode_list_names(root, path, summary->lists, &summary->list_count, err);
    if (status == RKS_OK)
        status = summary->list_count > 0 ? rks_json_u64(root, "bytes", path, &summary->bytes, err)
                                         : sum_units(root, path, &summary->bytes, err);
    json_decref(root);
    return status;
}
