/* SPDX-License-Identifier: Apache-2.0
 *
 * sequence.c: draws in an order in which sources are even, for strategies that keep that order.
 *
 *   left   ──► a list for each source: its samples again and again, each time in another order,
 *              those first that were drawn least; what is drawn once more comes last
 *   lists  ──► merged: draw k of a source of n draws comes neither before N k / n draws of all, nor
 *              after N (k + 1) / n. The earliest end of those that may come is next, which keeps all
 *              of these bounds (Liu and Layland 1973; as Pfair schedules of one processor)
 *
 * So after any number of draws each source has had its share, give or take one draw. */
#include "plan/mix.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/usage.h"

/* ---- lists ----------------------------------------------------------------------------------- */

/* The list of a source on its way into `ids`. */
typedef struct list {
    uint64_t draws;
    uint64_t all;       /* samples of the last time that all of them come */
    uint64_t once_more; /* behind these */
    uint64_t next_all, next_once_more;
} list;

static bool is_once_more(const rks_mix *mix, uint32_t id, uint64_t level)
{
    uint64_t drawn = mix->drawn == NULL ? 0 : mix->drawn[id];
    return mix->left[id] > 0 && drawn + mix->left[id] > level;
}

/* Counts a sample or piece (ids NULL), or writes it where it comes last, and once more. */
static inline void take_last(const rks_mix *mix, uint32_t id, uint64_t level, list *l,
                             uint32_t *ids)
{
    uint32_t left = mix->left[id];
    if (left == 0)
        return;
    bool once_more = is_once_more(mix, id, level);
    if (ids == NULL) {
        l->draws += left;
        l->all += left > once_more;
        l->once_more += once_more;
        return;
    }
    if (left > once_more)
        ids[l->next_all++] = id;
    if (once_more)
        ids[l->next_once_more++] = id;
}

/* The same for the pieces of a cut sample. */
static void take_last_pieces(const rks_plan *plan, size_t cut, uint64_t level, list *l,
                             uint32_t *ids)
{
    uint32_t first, pieces = rks_plan_pieces_of(plan, cut, &first);
    for (uint32_t i = 0; i < pieces; i++)
        take_last(plan->mix, first + i, level, l, ids);
}

/* Counts (ids NULL), or writes the last time that all samples come, and those once more. Pieces
 * stand where their samples would. */
static rks_status write_last(const rks_plan *plan, list *lists, uint32_t *ids, rks_error *err)
{
    const rks_mix *mix = plan->mix;
    size_t at = 0, cut = 0;
    for (uint64_t i = 0, end; i < plan->count;) {
        rks_status status = rks_plan_stretch(i, plan->count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            size_t source = rks_mix_next_source(mix, (uint32_t)i, &at);
            bool is_cut = cut < plan->cut_count && plan->cuts[cut].id == i;
            if (mix->left[i] > 0) /* of a cut sample it is 0 */
                take_last(mix, (uint32_t)i, mix->levels[source], &lists[source], ids);
            else if (is_cut && source < mix->sources)
                take_last_pieces(plan, cut, mix->levels[source], &lists[source], ids);
            cut += is_cut;
        }
    }
    return RKS_OK;
}

/* From the times at `first`, `size` samples, backwards to the first time: samples that come more
 * than `times` times. Each time is shuffled once it is copied. */
static rks_status write_before(const rks_plan *plan, uint64_t level, uint64_t key, uint64_t begin,
                               uint64_t first, uint64_t size, uint32_t *ids, rks_error *err)
{
    const rks_mix *mix = plan->mix;
    bool shuffles = plan->config.strategy == STRATEGY_RANDOM;
    rks_status status = RKS_OK;
    uint64_t done = 0;
    for (uint64_t times = 1; size > 0 && status == RKS_OK; times++) {
        uint64_t fewer = 0, to;
        const uint32_t *from = ids + first;
        for (uint64_t i = 0; first > begin && i < size; i++)
            fewer += mix->left[from[i]] - is_once_more(mix, from[i], level) > times;
        to = first - fewer;
        for (uint64_t i = 0; fewer > 0 && i < size; i++)
            if (mix->left[from[i]] - is_once_more(mix, from[i], level) > times)
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

static rks_status write_lists(const rks_plan *plan, uint64_t key, list *lists, uint32_t *ids,
                              rks_error *err)
{
    bool shuffles = plan->config.strategy == STRATEGY_RANDOM;
    uint64_t begin = 0;
    for (size_t i = 0; i < plan->mix->sources; i++) {
        list *l = &lists[i];
        begin += l->draws;
        l->next_once_more = begin - l->once_more;
        l->next_all = l->next_once_more - l->all;
    }
    rks_status status = write_last(plan, lists, ids, err);
    begin = 0;
    for (size_t i = 0; i < plan->mix->sources && status == RKS_OK; i++) {
        const list *l = &lists[i];
        uint64_t end = begin + l->draws, of = rks_random_key(key, i);
        uint64_t first = end - l->once_more - l->all;
        if (shuffles)
            status = rks_plan_shuffle(rks_random_key(of, 0), ids + end - l->once_more,
                                      l->once_more, err);
        if (status == RKS_OK)
            status = write_before(plan, plan->mix->levels[i], of, begin, first, l->all, ids, err);
        begin = end;
    }
    return status;
}

/* Samples that have counts or odds of their own: each as often as it comes. */
static rks_status write_copies(rks_plan *plan, uint64_t key, rks_error *err)
{
    const uint32_t *left = plan->mix->left;
    uint64_t at = 0, done = 0;
    size_t cut = 0;
    rks_status status = RKS_OK;
    for (uint64_t i = 0; i < plan->count && status == RKS_OK; i++) {
        uint64_t before = at;
        for (uint32_t times = left[i]; times > 0; times--)
            plan->ids[at++] = (uint32_t)i;
        if (cut < plan->cut_count && plan->cuts[cut].id == i)
            rks_mix_copy_pieces(plan, cut++, &at);
        status = rks_plan_pause(&done, 1 + at - before, err);
    }
    if (status == RKS_OK && plan->config.strategy == STRATEGY_RANDOM)
        status = rks_plan_shuffle(key, plan->ids, at, err);
    return status;
}

/* ---- merge ----------------------------------------------------------------------------------- */

enum { RING = 4096, WORDS = RING / 64, END = UINT16_MAX };

/* A source while lists are merged. */
typedef struct turn {
    uint64_t from, to;   /* positions where its next draw may come */
    uint64_t each, part; /* all / draws, and what is left of it */
    uint64_t parts;      /* of `draws`, that the draw after that begins later than `to` says */
    uint64_t draws, done;
} turn;

/* Lines of sources by position; those that are further away than a ring stand at its end. */
typedef struct ring {
    uint16_t heads[RING];
    uint16_t *ends[RING];            /* where the next one in the line is written */
    uint64_t words[WORDS], word_set; /* lines that are not empty */
} ring;

/* Both rings, and who stands behind whom: a source stands in one line at a time. */
typedef struct merge {
    ring waiting, ready;
    uint16_t next[END];
} merge;

static void set_up(ring *r)
{
    for (size_t line = 0; line < RING; line++)
        r->ends[line] = &r->heads[line];
}

static inline void join(merge *m, ring *r, uint64_t now, uint64_t position, uint16_t source)
{
    position = position < now ? now : position;
    position = position - now >= RING ? now + RING - 1 : position;
    size_t line = position % RING;
    m->next[source] = END;
    *r->ends[line] = source;
    r->ends[line] = &m->next[source];
    r->words[line / 64] |= UINT64_C(1) << (line % 64);
    r->word_set |= UINT64_C(1) << (line / 64);
}

static void clear(ring *r, size_t line)
{
    r->ends[line] = &r->heads[line];
    r->words[line / 64] &= ~(UINT64_C(1) << (line % 64));
    if (r->words[line / 64] == 0)
        r->word_set &= ~(UINT64_C(1) << (line / 64));
}

/* The first line from that of `now` on, around the ring. One is not empty. */
static inline size_t first_line(const ring *r, uint64_t now)
{
    size_t line = now % RING, word = line / 64;
    uint64_t bits = r->words[word] >> (line % 64) << (line % 64);
    if (bits == 0) {
        uint64_t later = word == WORDS - 1 ? 0 : r->word_set >> (word + 1) << (word + 1);
        word = (size_t)__builtin_ctzll(later != 0 ? later : r->word_set);
        bits = r->words[word];
    }
    return word * 64 + (size_t)__builtin_ctzll(bits);
}

/* The bounds of the first draw, which may come at 0. */
static void begin_turn(turn *t, uint64_t all)
{
    t->each = all / t->draws;
    t->part = all % t->draws;
    t->parts = t->part;
    t->to = t->part == 0 ? t->each - 1 : t->each;
}

/* The bounds of the draw after this one, which begins where this one ends, rounded down. */
static inline void advance(turn *t)
{
    bool whole = t->parts == 0;
    t->from = t->to + whole;
    t->parts += t->part;
    bool more = t->parts >= t->draws;
    t->parts -= more ? t->draws : 0;
    t->to = t->from + t->each + more - (t->parts == 0);
}

static rks_status merge_lists(merge *m, turn *turns, const uint32_t *lists, uint64_t *places,
                              uint64_t all, uint32_t *merged, rks_error *err)
{
    enum { AHEAD = 24 }; /* of a list: there are too many for the processor to see to */
    ring *waiting = &m->waiting, *ready = &m->ready;
    for (uint64_t now = 0, end; now < all;) {
        rks_status status = rks_plan_stretch(now, all, &end, err);
        if (status != RKS_OK)
            return status;
        for (; now < end; now++) {
            size_t line = now % RING;
            if ((waiting->words[line / 64] >> (line % 64) & 1) != 0) {
                uint16_t source = waiting->heads[line];
                clear(waiting, line);
                while (source != END) {
                    turn *t = &turns[source];
                    uint16_t next = m->next[source];
                    bool waits = t->from > now;
                    join(m, waits ? waiting : ready, now, waits ? t->from : t->to, source);
                    source = next;
                }
            }
            line = first_line(ready, now);
            uint16_t source = ready->heads[line];
            turn *t = &turns[source];
            ready->heads[line] = m->next[source];
            if (m->next[source] == END)
                clear(ready, line);
            uint64_t place = places[source]++;
            merged[now] = lists[place];
            __builtin_prefetch(&lists[place + AHEAD < all ? place + AHEAD : place]);
            if (++t->done < t->draws) {
                advance(t);
                bool waits = t->from > now + 1;
                join(m, waits ? waiting : ready, now + 1, waits ? t->from : t->to, source);
            }
        }
    }
    return RKS_OK;
}

rks_status rks_mix_merge(const uint32_t *lists, const uint64_t *counts, size_t sources,
                         uint32_t *merged, rks_error *err)
{
    uint64_t all = 0;
    merge *m = rks_alloc(1, sizeof(*m), err);
    turn *turns = rks_alloc(sources, sizeof(*turns), err);
    uint64_t *places = rks_alloc(sources, sizeof(*places), err);
    rks_status status = m == NULL || turns == NULL || places == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; i < sources && status == RKS_OK; i++) {
        places[i] = all;
        all += counts[i];
    }
    if (status == RKS_OK) {
        set_up(&m->waiting);
        set_up(&m->ready);
    }
    for (size_t i = 0; i < sources && status == RKS_OK; i++) {
        if (counts[i] == 0)
            continue;
        turns[i].draws = counts[i];
        begin_turn(&turns[i], all);
        join(m, &m->ready, 0, turns[i].to, (uint16_t)i);
    }
    if (status == RKS_OK)
        status = merge_lists(m, turns, lists, places, all, merged, err);
    rks_free(m);
    rks_free(turns);
    rks_free(places);
    return status;
}

/* ---- both ------------------------------------------------------------------------------------ */

static rks_status sequence(rks_plan *plan, uint64_t key, list *lists, uint64_t *counts,
                           rks_error *err)
{
    rks_mix *mix = plan->mix;
    uint64_t bytes = mix->rest * sizeof(uint32_t);
    rks_status status = write_last(plan, lists, NULL, err);
    size_t filled = 0;
    for (size_t i = 0; i < mix->sources; i++) {
        counts[i] = lists[i].draws;
        filled += counts[i] > 0;
    }
    if (status != RKS_OK || filled < 2)
        return status == RKS_OK ? write_lists(plan, key, lists, plan->ids, err) : status;
    uint32_t *ids = rks_alloc_raw(mix->rest, sizeof(*ids), err);
    if (ids == NULL)
        return RKS_ERR_MEMORY;
    rks_plan_advise(ids, bytes);
    rks_usage_add(RKS_MEMORY_PLAN, bytes);
    status = write_lists(plan, key, lists, ids, err);
    if (status == RKS_OK)
        status = rks_mix_merge(ids, counts, mix->sources, plan->ids, err);
    rks_usage_sub(RKS_MEMORY_PLAN, bytes);
    rks_free(ids);
    return status;
}

rks_status rks_mix_sequence(rks_plan *plan, uint64_t key, rks_error *err)
{
    rks_mix *mix = plan->mix;
    if (mix->counts != NULL || mix->odds != NULL)
        return write_copies(plan, key, err);
    list *lists = rks_alloc(mix->sources, sizeof(*lists), err);
    uint64_t *counts = rks_alloc(mix->sources, sizeof(*counts), err);
    rks_status status = lists == NULL || counts == NULL ? RKS_ERR_MEMORY
                                                        : sequence(plan, key, lists, counts, err);
    rks_free(lists);
    rks_free(counts);
    return status;
}
