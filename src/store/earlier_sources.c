/* SPDX-License-Identifier: Apache-2.0
 *
 * earlier_sources.c: the earlier generation of several datasets opened as one. Each of them grows
 * on its own, so there are as many as combinations of their generations: too many to list. A state
 * names the samples and the id of one, which is sought when the state is resumed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/plan_state.h"
#include "store/store.h"

/* What a search may cost: combinations that are looked at, and bytes of ids that are hashed. */
enum { VISITS_MOST = 1 << 22, BYTES_MOST = 1 << 30 };

typedef struct earlier_source {
    size_t number; /* among all sources */
    char *name;
    uint64_t *samples; /* by generation, from 1 */
    rks_digest *ids;
    size_t count; /* generations, with the store's own */
} earlier_source;

/* Sources of more than one generation are gone through, the last generation of each first. */
typedef struct earlier_sources {
    earlier_source *grown;
    size_t grown_count;
    uint64_t fixed;  /* samples of the others */
    rks_digest *ids; /* of all sources, as they are combined */
    size_t count;
    uint64_t *least, *most; /* samples of grown[i] and those after it */
    size_t *place;          /* by grown source: generations still to be tried */
} earlier_sources;

static void free_sources(void *user)
{
    earlier_sources *s = user;
    for (size_t i = 0; s->grown != NULL && i < s->grown_count; i++) {
        rks_free(s->grown[i].name);
        rks_free(s->grown[i].samples);
        rks_free(s->grown[i].ids);
    }
    rks_free(s->grown);
    rks_free(s->ids);
    rks_free(s->least);
    rks_free(s->most);
    rks_free(s->place);
    rks_free(s);
}

/* ---- the search --------------------------------------------------------------------------- */

/* Writes "earlier generations: open a@1, b@2", as far as there is room. */
static void name_combination(const earlier_sources *s, char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, "earlier generations: open ");
    for (size_t i = 0; i < s->grown_count && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%.40s@%zu", i == 0 ? "" : ", ",
                                 s->grown[i].name, s->place[i] + 1);
}

static bool find_combination(void *user, uint64_t samples, const char *dataset, char *text,
                             size_t room)
{
    earlier_sources *s = user;
    rks_digest wanted;
    uint64_t sum = s->fixed, visits = VISITS_MOST, hashes = BYTES_MOST / (16 * s->count);
    if (!rks_digest_parse(dataset, &wanted))
        return false;
    size_t at = 0;
    s->place[0] = s->grown[0].count;
    for (;;) {
        const earlier_source *one = &s->grown[at];
        if (s->place[at] < one->count)
            sum -= one->samples[s->place[at]];
        if (s->place[at] == 0) {
            s->place[at] = one->count;
            if (at-- == 0)
                return false;
            continue;
        }
        const size_t generation = --s->place[at];
        sum += one->samples[generation];
        s->ids[one->number] = one->ids[generation];
        if (visits-- == 0 || hashes == 0)
            return false;
        if (sum + s->least[at + 1] > samples || sum + s->most[at + 1] < samples)
            continue;
        if (at + 1 < s->grown_count) {
            at++;
            s->place[at] = s->grown[at].count;
            continue;
        }
        hashes--;
        if (rks_digest_equal(rks_dataset_united_id(s->ids, s->count), wanted)) {
            name_combination(s, text, room);
            return true;
        }
    }
}

/* ---- what is known ------------------------------------------------------------------------- */

static rks_status take_generations(earlier_source *one, const rks_dataset *dataset,
                                   const rks_generation *earlier, size_t count, rks_error *err)
{
    one->samples = rks_alloc(count + 1, sizeof(*one->samples), err);
    one->ids = rks_alloc(count + 1, sizeof(*one->ids), err);
    if (one->samples == NULL || one->ids == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        one->samples[i] = earlier[i].samples;
        rks_digest_parse(earlier[i].dataset, &one->ids[i]);
    }
    one->samples[count] = dataset->count;
    one->ids[count] = dataset->id;
    one->count = count + 1;
    return RKS_OK;
}

static rks_status add_earlier(earlier_sources *s, const rks_dataset_source *source, size_t number,
                              rks_error *err)
{
    rks_generation *earlier = NULL;
    size_t count = 0;
    rks_status status = rks_store_earlier_of(source->dataset, &earlier, &count, err);
    s->ids[number] = source->dataset->id;
    if (status == RKS_OK && count == 0)
        s->fixed += source->dataset->count;
    if (status == RKS_OK && count > 0) {
        earlier_source *one = &s->grown[s->grown_count++];
        one->number = number;
        one->name = rks_strdup(source->name, err);
        status = one->name == NULL ? RKS_ERR_MEMORY
                                   : take_generations(one, source->dataset, earlier, count, err);
    }
    rks_release(earlier);
    return status;
}

/* Bounds what the sources from each on can add. */
static void add_bounds(earlier_sources *s)
{
    for (size_t i = s->grown_count; i-- > 0;) {
        const earlier_source *one = &s->grown[i];
        uint64_t least = UINT64_MAX, most = 0;
        for (size_t k = 0; k < one->count; k++) {
            least = one->samples[k] < least ? one->samples[k] : least;
            most = one->samples[k] > most ? one->samples[k] : most;
        }
        s->least[i] = s->least[i + 1] + least;
        s->most[i] = s->most[i + 1] + most;
    }
}

static rks_status read_sources(const rks_dataset *dataset, earlier_sources *s, rks_error *err)
{
    s->count = dataset->source_count;
    s->grown = rks_alloc(s->count, sizeof(*s->grown), err);
    s->ids = rks_alloc(s->count, sizeof(*s->ids), err);
    s->least = rks_alloc(s->count + 1, sizeof(*s->least), err);
    s->most = rks_alloc(s->count + 1, sizeof(*s->most), err);
    s->place = rks_alloc(s->count, sizeof(*s->place), err);
    if (s->grown == NULL || s->ids == NULL || s->least == NULL || s->most == NULL ||
        s->place == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < s->count; i++)
        status = add_earlier(s, &dataset->sources[i], i, err);
    add_bounds(s);
    return status;
}

rks_status rks_store_tell_earlier_sources(const rks_store *store, rks_plan *plan, rks_error *err)
{
    if (store->dataset->source_count < 2)
        return RKS_OK;
    earlier_sources *s = rks_alloc(1, sizeof(*s), err);
    rks_status status = s == NULL ? RKS_ERR_MEMORY : read_sources(store->dataset, s, err);
    if (status == RKS_OK && s->grown_count > 0) {
        rks_plan_find_earlier(plan, (rks_plan_finder){find_combination, free_sources, s});
        s = NULL;
    }
    if (s != NULL)
        free_sources(s);
    return status;
}
