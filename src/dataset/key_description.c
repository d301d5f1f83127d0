/* SPDX-License-Identifier: Apache-2.0
 *
 * key_description.c: derived keys of two units: equal where the units have one name and share rows.
 */
#include "dataset/key_description.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

static int columns_by_name(const void *a, const void *b)
{
    const rks_dataset_unit *left = *(const rks_dataset_unit *const *)a;
    const rks_dataset_unit *right = *(const rks_dataset_unit *const *)b;
    int order = strcmp(left->key_name, right->key_name);
    uint64_t one = left->summary.first_source_row, other = right->summary.first_source_row;
    return order != 0 ? order : one < other ? -1 : one > other;
}

static rks_status fail_same_name(const rks_dataset *dataset, const rks_dataset_unit *one,
                                 const rks_dataset_unit *other, const rks_key_words *words,
                                 rks_error *err)
{
    char first[160], second[160];
    uint64_t row = other->summary.first_source_row - one->summary.first_source_row;
    snprintf(first, sizeof(first), "unit %" PRIu64, one->summary.unit);
    snprintf(second, sizeof(second), "unit %" PRIu64, other->summary.unit);
    if (words != NULL) {
        words->place(words->user, dataset, (size_t)(one - dataset->units), row, first,
                     sizeof(first));
        words->place(words->user, dataset, (size_t)(other - dataset->units), 0, second,
                     sizeof(second));
    }
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "%s and %s have the same key (the input's name, \"%.60s\", and the row); "
                    "rename one input, or build all with a key column",
                    first, second, one->key_name);
}

rks_status rks_commit_check_names(const rks_dataset *dataset, const rks_key_words *words,
                                  rks_error *err)
{
    size_t count = dataset->unit_count;
    if (!dataset->derived_keys || count == 0)
        return RKS_OK;
    const rks_dataset_unit **units = rks_alloc(count, sizeof(*units), err);
    if (units == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        units[i] = &dataset->units[i];
    qsort(units, count, sizeof(*units), columns_by_name);
    rks_status status = RKS_OK;
    for (size_t i = 1; status == RKS_OK && i < count; i++) {
        const rks_unit_summary *one = &units[i - 1]->summary, *other = &units[i]->summary;
        if (strcmp(units[i - 1]->key_name, units[i]->key_name) == 0 && other->seen > 0 &&
            other->first_source_row - one->first_source_row < one->seen)
            status = fail_same_name(dataset, units[i - 1], units[i], words, err);
    }
    rks_free(units);
    return status;
}
