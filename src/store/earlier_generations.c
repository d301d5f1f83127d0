/* SPDX-License-Identifier: Apache-2.0
 *
 * earlier_generations.c: the generations that a dataset grew out of, as its units tell. An append
 * adds the units of one build after the others, so a generation is a beginning of the units, and
 * its id follows from them. All ranks compute the same, also if their directories have lost the
 * generations' files. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "rankstore/epoch.h"
#include "store/store.h"

/* The generations that begin at `first` and end at `end`, while units are gone through. */
typedef struct walk {
    const rks_dataset *dataset;
    size_t *ends; /* by generation: the number of its units */
    size_t count;
    rks_digest folded;   /* of the units so far */
    uint64_t stored;     /* samples of the units so far */
    rks_excluded before; /* those of the excluded runs that begin in them */
} walk;

static bool same_build(const rks_dataset *dataset, size_t unit, size_t other)
{
    return rks_digest_equal(rks_dataset_build_of(dataset, dataset->units[unit].shard),
                            rks_dataset_build_of(dataset, dataset->units[other].shard));
}

/* Finds where generations end, from the newest to the first, of which a merge may have made more
 * than one build. */
static void find_ends(walk *w)
{
    size_t unit = w->dataset->unit_count, wanted = (size_t)(rks_dataset_number(w->dataset) - 1);
    size_t found = 0;
    for (size_t i = unit; found < wanted && i > 1; i--)
        if (!same_build(w->dataset, i - 1, i - 2))
            w->ends[wanted - ++found] = i - 1;
    w->count = found == wanted ? wanted : 0; /* of an append without samples nothing is left */
}

/* Excluded samples among the first w->stored. */
static rks_status take_excluded(walk *w, rks_error *err)
{
    const rks_excluded *all = &w->dataset->excluded;
    rks_excluded part = {.runs = rks_alloc_raw(all->run_count, sizeof(*part.runs), err)};
    rks_buffer bytes = {0};
    if (part.runs == NULL)
        return RKS_ERR_MEMORY;
    while (part.run_count < all->run_count && all->runs[part.run_count].first < w->stored) {
        rks_excluded_run run = all->runs[part.run_count];
        if (run.first + (uint64_t)run.count > w->stored)
            run.count = (uint32_t)(w->stored - run.first);
        part.runs[part.run_count++] = run;
    }
    rks_status status = rks_excluded_encode(&part, &bytes, err);
    rks_buffer_free(&bytes);
    rks_free(part.runs);
    part.runs = NULL;
    w->before = part;
    return status;
}

static rks_status describe_generation(walk *w, size_t number, rks_generation *made, rks_error *err)
{
    const size_t first = number == 0 ? 0 : w->ends[number - 1], end = w->ends[number];
    rks_status status = RKS_OK;
    w->folded = rks_dataset_fold_on(w->folded, w->dataset->units + first, end - first);
    for (size_t i = first; i < end; i++)
        w->stored += w->dataset->units[i].summary.samples;
    if (w->dataset->excluded.samples > 0)
        status = take_excluded(w, err);
    if (status != RKS_OK)
        return status;
    made->number = number + 1;
    made->samples = w->stored - w->before.samples;
    rks_digest_format(rks_dataset_id_without(w->folded, &w->before), made->dataset);
    return RKS_OK;
}

rks_status rks_store_earlier_of(const rks_dataset *dataset, rks_generation **earlier, size_t *count,
                                rks_error *err)
{
    *earlier = NULL;
    *count = 0;
    const uint64_t generations = rks_dataset_number(dataset) - 1;
    if (generations == 0 || generations >= dataset->unit_count)
        return RKS_OK;
    walk w = {.dataset = dataset,
              .ends = rks_alloc((size_t)generations, sizeof(*w.ends), err),
              .folded = rks_dataset_fold(NULL, 0, dataset->schema)};
    rks_generation *made = rks_alloc((size_t)generations, sizeof(*made), err);
    rks_status status = w.ends == NULL || made == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        find_ends(&w);
    for (size_t i = 0; status == RKS_OK && i < w.count; i++)
        status = describe_generation(&w, i, &made[i], err);
    rks_free(w.ends);
    if (status != RKS_OK) {
        rks_free(made);
        return status;
    }
    *earlier = made;
    *count = w.count;
    return RKS_OK;
}

rks_status rks_store_earlier(const rks_store *store, rks_generation **earlier, size_t *count,
                             rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    *earlier = NULL;
    *count = 0;
    if (dataset->source_count > 1)
        return RKS_OK;
    if (dataset->source_count == 1)
        dataset = dataset->sources[0].dataset;
    return rks_store_earlier_of(dataset, earlier, count, err);
}
