/* SPDX-License-Identifier: Apache-2.0
 *
 * sequence.c: draws in an order in which the sources are even, for strategies that keep that order.
 *
 *   left   ──► a list for each source: its samples again and again, each time in another order,
 *          with those first that were drawn least; samples drawn once more come last
 *   lists  ──► merged: each source has its share of any number of draws (source_merge.c)
 *
 * If an epoch chooses draws only once, all samples of a source occur equally often, and some once
 * more. Its lists are then made without `left` (draws->listed). */
#include "plan/mix/mix.h"

#include <string.h>

#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"
#include "plan/strategy.h"

/* ---- lists ----------------------------------------------------------------------------------- */

/* The list of a source, while it is written to `ids`. */
typedef struct list {
    uint64_t draws;
    uint64_t all;       /* samples of the last round in which all of them occur */
    uint64_t once_more; /* after these */
    uint64_t next_all, next_once_more;
    /* If draws->listed: */
    rks_random random;
    uint64_t among, more; /* samples that had no turn yet, and how many of them occur once more */
} list;

static inline bool is_once_more(const rks_mix_draws *draws, uint32_t id, uint64_t level)
{
    uint64_t drawn = draws->drawn == NULL ? 0 : draws->drawn[id], left = draws->left[id];
    return (left > 0) & (drawn + left > level);
}

/* Counts a sample or piece (ids NULL), or writes it to the last round and to those once more. Which
 * of these holds is random, so no branch tests it. */
static inline void add_last(const rks_mix_draws *draws, uint32_t id, uint64_t level, list *l,
                            uint32_t *ids)
{
    uint32_t left = draws->left[id], nowhere;
    bool once_more = is_once_more(draws, id, level), all = left > once_more;
    if (ids == NULL) {
        l->draws += left;
        l->all += all;
        l->once_more += once_more;
        return;
    }
    *(all ? &ids[l->next_all] : &nowhere) = id;
    *(once_more ? &ids[l->next_once_more] : &nowhere) = id;
    l->next_all += all;
    l->next_once_more += once_more;
}

/* Does the same for the pieces of a cut sample. */
static void add_last_pieces(const rks_plan_input *in, const rks_mix_draws *draws, size_t cut,
                            uint64_t level, list *l, uint32_t *ids)
{
    uint32_t first, pieces = rks_plan_pieces_of(in, cut, &first);
    for (uint32_t i = 0; i < pieces; i++)
        add_last(draws, first + i, level, l, ids);
}

/* Counts (ids NULL), or writes the last round of all samples, and those once more. Pieces take the
 * places of their samples. */
static rks_status write_last(const rks_plan_input *in, const rks_mix_draws *draws, list *lists,
                             uint32_t *ids, rks_error *err)
{
    const rks_mix *mix = in->mix;
    size_t at = 0, cut = 0;
    for (uint64_t i = 0, end; i < in->count;) {
        rks_status status = rks_plan_stretch(i, in->count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            size_t source = rks_mix_next_source(mix, (uint32_t)i, &at);
            bool is_cut = cut < in->cut_count && in->cuts[cut].id == i;
            if (is_cut && source < mix->sources) /* its pieces have `left` */
                add_last_pieces(in, draws, cut, draws->levels[source], &lists[source], ids);
            else if (source < mix->sources) /* else it is in no source */
                add_last(draws, (uint32_t)i, draws->levels[source], &lists[source], ids);
            cut += is_cut;
        }
    }
    return RKS_OK;
}

/* Writes the last round of samples [i, end) of one source, and those once more. Of the `among`
 * samples that had no turn yet, `more` occur once more; each has the chance that keeps this
 * exact. */
static void list_run(const rks_plan_input *in, uint64_t i, uint64_t end, uint64_t level, list *of,
                     uint32_t *ids)
{
    list l = *of;
    for (; i < end; i++) {
        uint32_t id = (uint32_t)i, nowhere;
        if (!rks_mix_can_draw(in, id, UINT32_MAX))
            continue;
        bool again = false; /* as a number: a branch could not be predicted */
        if (l.more > 0)
            again = rks_random_below(&l.random, l.among--) < l.more;
        l.more -= again;
        *(again ? &ids[l.next_once_more] : &nowhere) = id;
        l.next_once_more += again;
        if (level > 0)
            ids[l.next_all++] = id;
    }
    *of = l;
}

/* Does for all what write_last does by `left`. */
static rks_status list_last(const rks_plan_input *in, const rks_mix_draws *draws, list *lists,
                            uint32_t *ids, rks_error *err)
{
    const rks_mix *mix = in->mix;
    size_t at = 0;
    for (size_t i = 0; i < mix->sources; i++) {
        lists[i].random = (rks_random){rks_random_key(draws->key, i)};
        lists[i].among = mix->sizes[i];
        lists[i].more = draws->extras[i];
    }
    for (uint64_t i = 0, end; i < in->count;) {
        rks_status status = rks_plan_stretch(i, in->count, &end, err);
        if (status != RKS_OK)
            return status;
        for (uint64_t run; i < end; i = run) {
            size_t source = rks_mix_next_source(mix, (uint32_t)i, &at);
            run = i + 1;
            if (mix->source_of == NULL)
                run = mix->bounds[source + 1] < end ? mix->bounds[source + 1] : end;
            if (source < mix->sources) /* else it is in no source */
                list_run(in, i, run, draws->levels[source], &lists[source], ids);
        }
    }
    return RKS_OK;
}

/* Returns how many of the samples in `from` occur more than `times` times, not counting once
 * more. */
static uint64_t count_more(const rks_mix_draws *draws, uint64_t level, const uint32_t *from,
                           uint64_t size, uint64_t times)
{
    uint64_t more = 0;
    if (draws->listed)
        return times < level ? size : 0;
    for (uint64_t i = 0; i < size; i++)
        more += draws->left[from[i]] - is_once_more(draws, from[i], level) > times;
    return more;
}

/* A round of a source whose samples occur at most `level` times: `size` samples at `first`. The
 * first round lies at `begin`. */
typedef struct source_round {
    uint64_t level, begin, first, size;
} source_round;

/* Writes the rounds before `last`, backwards to the first round: the samples that occur more than
 * `times` times. Shuffles each round once it is copied. */
static rks_status write_before(const rks_plan_input *in, const rks_mix_draws *draws,
                               const source_round *last, uint64_t key, uint32_t *ids,
                               rks_error *err)
{
    uint64_t level = last->level, first = last->first, size = last->size;
    bool shuffles = in->config.strategy->order == RKS_ORDER_ANY;
    rks_status status = RKS_OK;
    uint64_t done = 0;
    for (uint64_t times = 1; size > 0 && status == RKS_OK; times++) {
        const uint32_t *from = ids + first;
        uint64_t fewer = first > last->begin ? count_more(draws, level, from, size, times) : 0;
        uint64_t to = first - fewer;
        if (fewer == size) /* the rounds do not overlap */
            memcpy(ids + to, from, size * sizeof(*ids));
        for (uint64_t i = 0; fewer > 0 && fewer < size && i < size; i++)
            if (draws->left[from[i]] - is_once_more(draws, from[i], level) > times)
                ids[to++] = from[i];
        if (shuffles)
            status = rks_plan_shuffle(rks_random_key(key, times), ids + first, size, err);
        if (status == RKS_OK)
            status = rks_plan_pause(&done, size, err);
        first -= fewer;
        size = fewer;
    }
    return status;
}

/* Counts the lists. In an epoch from its start, without pieces, the quotas give the counts. */
static rks_status count_lists(const rks_plan_input *in, const rks_mix_draws *draws, list *lists,
                              rks_error *err)
{
    const rks_mix *mix = in->mix;
    if (draws->drawn != NULL || in->cut_count > 0)
        return write_last(in, draws, lists, NULL, err);
    for (size_t i = 0; i < mix->sources; i++) {
        uint64_t level = draws->levels[i], extras = draws->extras[i];
        lists[i].draws = draws->quotas[i];
        lists[i].once_more = extras;
        lists[i].all = level == 0 ? 0 : (draws->quotas[i] - extras) / level;
    }
    return RKS_OK;
}

static rks_status write_lists(const rks_plan_input *in, const rks_mix_draws *draws, uint64_t key,
                              list *lists, uint32_t *ids, rks_error *err)
{
    bool shuffles = in->config.strategy->order == RKS_ORDER_ANY;
    uint64_t begin = 0;
    for (size_t i = 0; i < in->mix->sources; i++) {
        list *l = &lists[i];
        begin += l->draws;
        l->next_once_more = begin - l->once_more;
        l->next_all = l->next_once_more - l->all;
    }
    rks_status status = draws->listed ? list_last(in, draws, lists, ids, err)
                                      : write_last(in, draws, lists, ids, err);
    begin = 0;
    for (size_t i = 0; i < in->mix->sources && status == RKS_OK; i++) {
        const list *l = &lists[i];
        uint64_t end = begin + l->draws, of = rks_random_key(key, i);
        const source_round last = {.level = draws->levels[i],
                                   .begin = begin,
                                   .first = end - l->once_more - l->all,
                                   .size = l->all};
        if (shuffles)
            status = rks_plan_shuffle(rks_random_key(of, 0), ids + end - l->once_more, l->once_more,
                                      err);
        if (status == RKS_OK)
            status = write_before(in, draws, &last, of, ids, err);
        begin = end;
    }
    return status;
}

/* Writes samples that have counts or odds of their own, each as often as it occurs. */
static rks_status write_copies(const rks_plan_input *in, const rks_mix_draws *draws,
                               rks_epoch_image *image, uint64_t key, rks_error *err)
{
    const uint32_t *left = draws->left;
    uint64_t at = 0, done = 0;
    size_t cut = 0;
    rks_status status = RKS_OK;
    for (uint64_t i = 0; i < in->count && status == RKS_OK; i++) {
        uint64_t before = at;
        for (uint32_t times = left[i]; times > 0; times--)
            image->ids[at++] = (uint32_t)i;
        if (cut < in->cut_count && in->cuts[cut].id == i)
            rks_mix_copy_pieces(in, draws, image, cut++, &at);
        status = rks_plan_pause(&done, 1 + at - before, err);
    }
    if (status == RKS_OK && in->config.strategy->order == RKS_ORDER_ANY)
        status = rks_plan_shuffle(key, image->ids, at, err);
    return status;
}

/* ---- both ------------------------------------------------------------------------------------ */

static rks_status sequence(const rks_plan_input *in, const rks_mix_draws *draws,
                           rks_epoch_image *image, uint64_t key, list *lists, rks_mix_list *parts,
                           rks_error *err)
{
    const rks_mix *mix = in->mix;
    uint64_t bytes = draws->rest * sizeof(uint32_t);
    rks_status status = count_lists(in, draws, lists, err);
    size_t filled = 0;
    for (size_t i = 0; i < mix->sources; i++)
        filled += lists[i].draws > 0;
    if (status != RKS_OK || filled < 2)
        return status == RKS_OK ? write_lists(in, draws, key, lists, image->ids, err) : status;
    uint32_t *ids = rks_alloc_raw(draws->rest, sizeof(*ids), err);
    if (ids == NULL)
        return RKS_ERR_MEMORY;
    rks_plan_advise(ids, bytes);
    rks_usage_add(RKS_MEMORY_PLAN, bytes);
    status = write_lists(in, draws, key, lists, ids, err);
    const uint32_t *next = ids;
    for (size_t i = 0; i < mix->sources; i++) {
        parts[i] = (rks_mix_list){next, lists[i].draws};
        next += lists[i].draws;
    }
    if (status == RKS_OK)
        status = rks_mix_merge(parts, mix->sources, image->ids, err);
    rks_usage_sub(RKS_MEMORY_PLAN, bytes);
    rks_free(ids);
    return status;
}

rks_status rks_mix_sequence(const rks_plan_input *in, const rks_mix_draws *draws,
                            rks_epoch_image *image, uint64_t key, rks_error *err)
{
    const rks_mix *mix = in->mix;
    if (mix->counts != NULL || mix->odds != NULL)
        return write_copies(in, draws, image, key, err);
    list *lists = rks_alloc(mix->sources, sizeof(*lists), err);
    rks_mix_list *parts = rks_alloc(mix->sources, sizeof(*parts), err);
    rks_status status = lists == NULL || parts == NULL
                            ? RKS_ERR_MEMORY
                            : sequence(in, draws, image, key, lists, parts, err);
    rks_free(lists);
    rks_free(parts);
    return status;
}
