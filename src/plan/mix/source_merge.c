/* SPDX-License-Identifier: Apache-2.0
 *
 * source_merge.c: merges the lists of all sources into one, in which the sources are even.
 *
 * Take a source of n draws, of N in all. Its draw k comes neither before N k / n draws of all, nor
 * after N (k + 1) / n. Of the draws that may come, the one whose end is earliest is next, which
 * keeps all of these bounds (Liu and Layland 1973; as Pfair schedules of one processor). Of equal
 * ends, the draw that has been ready for longest is next. So after any number of draws each source
 * has had its share, give or take one draw, if each has at least one of RING draws.
 *
 * Ends that are further away than the ring count as the ring's end. Then the draws of rarer sources
 * would come as early as that allows, all together, and delay as many draws of others. So rarer
 * sources are first merged, in the same way, into lists that have one of RING draws or more. Each
 * of these lists then counts as one source. To change the order is to change plans, so it needs a
 * new planner version.
 *
 * There are two ways to the same order:
 *   turns   position by position: which sources become ready, and which of these is next. This is
 *           the law.
 *   blocks  end by end: draws are sorted by their ends, a block of positions at a time. Each then
 *           takes the first free position from its beginning on. This takes half of the time, since
 *           hardly anything in it waits for what came before. It gives up if ends that count
 *           earlier than they are leave no position free, or if there are too many sources.
 *
 * Both place the same draw at the same position. For draws of one unit each, a position may take
 * the first of the ready draws, or draws in order may take free positions: the result is the
 * same. */
#include "plan/mix/mix.h"

#include <stdlib.h>
#include <string.h>

#include "base/cache_line.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"
#include "plan/order/random.h"

enum { RING = 4096, AHEAD = 24 }; /* lists are too many for the processor to prefetch them */

/* A source during a merge. N is the number of all draws, n that of its own. */
typedef struct turn {
    uint64_t from, to;   /* first and last position of its next draw k */
    uint64_t next, part; /* N (k + 1) / n: whole part, and the rest in 2^64-ths, rounded up */
    uint64_t each, over; /* N / n, in the same way */
    uint64_t draws, done;
} turn;

/* Moves on to the next draw. After k steps `part` is too large by less than k, which is at most n,
 * and a rest that is not 0 is at least 2^64 / n. As n is below 2^32, no sum becomes whole too
 * early. A rest is 0 if `part` is below n. */
static inline void advance(turn *t)
{
    t->from = t->next;
    t->part += t->over;
    t->next += t->each + (t->part < t->over);
    t->to = t->next - (t->part < t->draws);
}

static void begin_turn(turn *t, uint64_t all)
{
    rks_u128 rest = (rks_u128)(all % t->draws) << 64;
    t->each = all / t->draws;
    t->over = (uint64_t)((rest + t->draws - 1) / t->draws);
    advance(t);
}

static uint64_t count_draws(const rks_mix_list *lists, size_t sources)
{
    uint64_t all = 0;
    for (size_t i = 0; i < sources; i++)
        all += lists[i].count;
    return all;
}

/* ---- turns ----------------------------------------------------------------------------------- */

enum { WORDS = RING / 64, END = UINT16_MAX };

/* Lines of sources by position. Sources that are further away than the ring stand at its end. */
typedef struct ring {
    uint16_t heads[RING];
    uint16_t *ends[RING];            /* where the next source of the line is written */
    uint64_t words[WORDS], word_set; /* lines that are not empty */
} ring;

/* Both rings, and the source after each source. A source stands in one line at a time. */
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

/* Returns the first line that is not empty, from that of `now` on, around the ring. There is
 * one. */
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

static rks_status merge_turns(merge *m, turn *turns, const uint32_t **next_ids, uint64_t all,
                              uint32_t *merged, rks_error *err)
{
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
            merged[now] = *next_ids[source]++;
            rks_prefetch(next_ids[source] + AHEAD);
            if (++t->done < t->draws) {
                advance(t);
                bool waits = t->from > now + 1;
                join(m, waits ? waiting : ready, now + 1, waits ? t->from : t->to, source);
            }
        }
    }
    return RKS_OK;
}

rks_status rks_mix_merge_turns(const rks_mix_list *lists, size_t sources, uint32_t *merged,
                               rks_error *err)
{
    uint64_t all = count_draws(lists, sources);
    merge *m = rks_alloc(1, sizeof(*m), err);
    turn *turns = rks_alloc(sources, sizeof(*turns), err);
    const uint32_t **next_ids = rks_alloc(sources, sizeof(*next_ids), err);
    rks_status status = m == NULL || turns == NULL || next_ids == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK) {
        set_up(&m->waiting);
        set_up(&m->ready);
    }
    for (size_t i = 0; i < sources && status == RKS_OK; i++) {
        if (lists[i].count == 0)
            continue;
        next_ids[i] = lists[i].ids;
        turns[i].draws = lists[i].count;
        begin_turn(&turns[i], all);
        join(m, &m->ready, 0, turns[i].to, (uint16_t)i);
    }
    if (status == RKS_OK)
        status = merge_turns(m, turns, next_ids, all, merged, err);
    rks_free(m);
    rks_free(turns);
    rks_free(next_ids);
    return status;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

enum {
    BLOCK = 2048, /* positions */
    BLOCK_SOURCES = 1024,
    DRAWS = BLOCK + 2 * BLOCK_SOURCES,
    FREE_WORDS = (BLOCK + 2 * RING) / 64,
    NONE = -1 /* as a count of draws: blocks cannot do it */
};

/* All draws whose ends are in a block of positions. A draw is four numbers of 16 bits, from the
 * highest one on:
 *
 *   line    its end, counted from the block's first position
 *   behind  how far its beginning is after the earliest one of that line, which is a ring before
 *   source
 *   number  its index in `items` */
typedef struct blocks {
    uint64_t first;  /* position of the block */
    uint64_t origin; /* position of the first bit of `free` */
    uint64_t free[FREE_WORDS];
    uint16_t ends[BLOCK + 1]; /* end of each line in `draws` */
    /* Lines that may not be in the order of beginnings, some several times; then BLOCK. */
    uint16_t close[DRAWS + 1];
    uint64_t made[DRAWS], draws[DRAWS];
    uint32_t items[DRAWS]; /* what is drawn */
    turn turns[BLOCK_SOURCES];
    const uint32_t *lists[BLOCK_SOURCES]; /* what each source draws next */
    uint16_t order[BLOCK_SOURCES];        /* sources, fewest draws first */
    uint64_t after[BLOCK_SOURCES];        /* the position after the last draw of each source */
} blocks;

static inline uint64_t draw_of(uint64_t line, uint64_t behind, uint64_t source, uint64_t number)
{
    return line << 48 | behind << 32 | source << 16 | number;
}

static inline size_t line_of(uint64_t draw)
{
    return (size_t)(draw >> 48);
}

/* Returns where a draw begins, counted from a ring before the block. */
static inline uint64_t beginning_of(uint64_t draw)
{
    return line_of(draw) + 1 + (uint16_t)(draw >> 32);
}

static inline uint16_t source_of(uint64_t draw)
{
    return (uint16_t)(draw >> 16);
}

static inline uint16_t item_of(uint64_t draw)
{
    return (uint16_t)draw;
}

/* The place of a draw among those of its line. The key has these parts, from its highest bits on:
 *
 *   16 bits  when the draw becomes ready, counted from two rings before the block
 *   16 bits  0, or when it came to wait for that, counted in the same way
 *   22 bits  how often it began to wait anew, since a source waits for a ring at most
 *   10 bits  source: this is the order of the sources' first draws */
typedef struct standing {
    uint64_t key, draw;
} standing;

static standing stand(const blocks *b, uint64_t draw)
{
    uint64_t origin = b->first - 2 * RING; /* sums may wrap around; differences are right */
    uint64_t from = b->first - RING + beginning_of(draw), after = b->after[source_of(draw)];
    uint64_t ready = after, waits = origin, anew = 0;
    if ((int64_t)(after - from) < 0) {
        anew = from - after < RING ? 0 : (from - after - RING) / (RING - 1) + 1;
        ready = from;
        waits = after + anew * (RING - 1);
    }
    return (standing){
        (ready - origin) << 48 | (waits - origin) << 32 | anew << 10 | source_of(draw), draw};
}

static int first_in_line(const void *x, const void *y)
{
    const standing *a = x, *b = y;
    return a->key < b->key ? -1 : a->key > b->key;
}

/* Sorts the draws of a line. */
static void sort_line(const blocks *b, uint64_t *draws, size_t count)
{
    enum { FEW = 16 };
    standing standings[BLOCK_SOURCES];
    for (size_t i = 0; i < count; i++) {
        standing moved = stand(b, draws[i]);
        size_t at = i;
        for (; count <= FEW && at > 0 && standings[at - 1].key > moved.key; at--)
            standings[at] = standings[at - 1];
        standings[at] = moved;
    }
    if (count > FEW)
        qsort(standings, count, sizeof(*standings), first_in_line);
    for (size_t i = 0; i < count; i++)
        draws[i] = standings[i].draw;
}

/* Makes the draws of the next block, source by source, and counts those of each line. Returns their
 * number, or NONE. */
static int64_t make_draws(blocks *b, size_t sources)
{
    enum { IN_LINE = 16, FAR = 64 }; /* items of a cache line; items prefetched */
    size_t count = 0;
    memset(b->ends, 0, sizeof(b->ends));
    for (size_t i = 0; i < sources; i++) {
        uint16_t source = b->order[i];
        turn t = b->turns[source];
        if (t.done < t.draws && count + BLOCK / t.each + 2 > DRAWS)
            return NONE;
        const uint32_t *list = b->lists[source], *begun = list;
        for (; t.done < t.draws; t.done++) {
            uint64_t width = t.to - t.from < RING ? t.to - t.from : RING - 1;
            uint64_t line = t.from + width - b->first;
            if (line >= BLOCK)
                break;
            b->items[count] = *list++;
            b->made[count] = draw_of(line, RING - 1 - width, source, count);
            count++;
            b->ends[line + 1]++;
            advance(&t);
        }
        b->turns[source] = t;
        b->lists[source] = list;
        rks_prefetch(list);
        for (int64_t ahead = IN_LINE; ahead < list - begun && ahead < FAR; ahead += IN_LINE)
            rks_prefetch(list + ahead);
    }
    return (int64_t)count;
}

/* Fills `draws` with those of the next block, by lines. In a line, sources of fewer draws come
 * first, since these draws began earlier. Returns their number, or NONE. */
static int64_t sort_block(blocks *b, size_t sources)
{
    int64_t count = make_draws(b, sources);
    for (size_t line = 0; line < BLOCK; line++)
        b->ends[line + 1] = (uint16_t)(b->ends[line + 1] + b->ends[line]);
    for (int64_t i = 0; i < count; i++) /* ends[line] is at first where the line begins */
        b->draws[b->ends[line_of(b->made[i])]++] = b->made[i];
    size_t close = 0; /* which lines are close is random, so no branch tests it */
    for (int64_t i = 1; i < count; i++) {
        /* A draw is ready when it begins, or one position later if its source was late. */
        uint32_t line_and_beginning = (uint32_t)(b->draws[i] >> 32);
        uint32_t before = (uint32_t)(b->draws[i - 1] >> 32);
        b->close[close] = (uint16_t)line_of(b->draws[i]);
        close += line_and_beginning < before + 2;
    }
    b->close[close] = BLOCK;
    return count;
}

/* The nearest free positions: two words of `free`, from number `word` on. */
typedef struct frontier {
    uint64_t low, high;
    size_t word;
} frontier;

/* Takes the first free position from `from` on. It is far ahead, since there are many sources. */
static size_t pop_far(blocks *b, const frontier *f, uint64_t from)
{
    size_t word = from / 64;
    uint64_t far = word < f->word + 2 ? 0 : b->free[word] >> (from % 64) << (from % 64);
    word = word < f->word + 2 ? f->word + 1 : word;
    while (far == 0)
        far = b->free[++word];
    b->free[word] &= ~(far & -far);
    return word * 64 + (size_t)__builtin_ctzll(far);
}

/* Returns all bits set, or none. */
static inline uint64_t mask(bool all)
{
    return 0 - (uint64_t)all;
}

/* Takes the first free position from `from` on, counted from b->origin. There is one. Each position
 * waits for the one before it, so this is short, and has no branch that cannot be predicted. */
static inline size_t pop_first(blocks *b, frontier *f, uint64_t from)
{
    uint64_t here = f->word * 64, off = (from - here) & mask(from > here);
    uint64_t behind = UINT64_MAX << (off % 64), far = mask(off >= 64), farther = mask(off >= 128);
    uint64_t low = f->low & behind & ~far;
    uint64_t none = mask(low == 0);
    uint64_t bits = low | (f->high & (behind | ~far) & ~farther & none);
    if (bits == 0)
        return pop_far(b, f, from);
    uint64_t bit = bits & -bits;
    f->low ^= bit & ~none;
    f->high ^= bit & none;
    size_t at = here + (64 & none) + (size_t)__builtin_ctzll(bits);
    while (f->low == 0) {
        b->free[f->word++] = 0;
        f->low = f->high;
        f->high = b->free[f->word + 1];
    }
    return at;
}

/* Places the draws of a block. Returns false if one of them is late. */
static bool place_block(blocks *b, size_t count, uint32_t *merged)
{
    uint64_t origin = b->origin, behind = b->first - origin;
    frontier f = {b->free[0], b->free[1], 0};
    const uint16_t *close = b->close;
    for (size_t i = 0; i < count; i++) {
        size_t line = line_of(b->draws[i]);
        if (line == *close) {
            sort_line(b, b->draws + i, b->ends[line] - i);
            while (*close == line)
                close++;
        }
        uint64_t draw = b->draws[i], from = behind + beginning_of(draw);
        size_t at = pop_first(b, &f, from > RING ? from - RING : 0);
        if (at > behind + line)
            return false;
        b->after[source_of(draw)] = origin + at + 1;
        merged[origin + at] = b->items[item_of(draw)];
    }
    b->free[f.word] = f.low;
    b->free[f.word + 1] = f.high;
    memmove(b->free, b->free + f.word, (FREE_WORDS - f.word) * sizeof(*b->free));
    memset(b->free + FREE_WORDS - f.word, 0xff, f.word * sizeof(*b->free));
    b->origin += f.word * 64;
    return true;
}

static int fewest_draws(const void *x, const void *y)
{
    const turn *a = x, *b = y;
    if (a->draws != b->draws)
        return a->draws < b->draws ? -1 : 1;
    return a->done < b->done ? -1 : 1; /* the source's number, while sources are sorted */
}

/* Returns false if blocks cannot do it. */
static bool begin_blocks(blocks *b, const rks_mix_list *lists, size_t sources, uint64_t all)
{
    for (size_t i = 0; i < sources; i++)
        b->turns[i] = (turn){.draws = lists[i].count, .done = i};
    qsort(b->turns, sources, sizeof(*b->turns), fewest_draws);
    for (size_t i = 0; i < sources; i++)
        b->order[i] = (uint16_t)b->turns[i].done;
    for (size_t i = 0; i < sources; i++) {
        b->lists[i] = lists[i].ids;
        b->turns[i] = (turn){.draws = lists[i].count};
        if (lists[i].count == 0)
            continue;
        begin_turn(&b->turns[i], all);
        /* Its end may count as the ring's or as it is, which depends on when its last draw was. */
        if (b->turns[i].each == RING - 1 && b->turns[i].over > 0)
            return false;
    }
    memset(b->free, 0xff, sizeof(b->free));
    return true;
}

rks_status rks_mix_merge_blocks(const rks_mix_list *lists, size_t sources, uint32_t *merged,
                                bool *merges, rks_error *err)
{
    uint64_t all = count_draws(lists, sources), done = 0;
    *merges = sources <= BLOCK_SOURCES;
    if (!*merges)
        return RKS_OK;
    blocks *b = rks_alloc(1, sizeof(*b), err);
    if (b == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    *merges = begin_blocks(b, lists, sources, all);
    for (; b->first < all && *merges && status == RKS_OK; b->first += BLOCK) {
        int64_t count = sort_block(b, sources);
        bool fits = b->first - b->origin + BLOCK + 128 <= FREE_WORDS * 64;
        *merges = count != NONE && fits && place_block(b, (size_t)count, merged);
        status = rks_plan_pause(&done, BLOCK, err);
    }
    rks_free(b);
    return status;
}

rks_status rks_mix_merge_all(const rks_mix_list *lists, size_t sources, uint32_t *merged,
                             rks_error *err)
{
    bool merges;
    rks_status status = rks_mix_merge_blocks(lists, sources, merged, &merges, err);
    return status != RKS_OK || merges ? status : rks_mix_merge_turns(lists, sources, merged, err);
}

/* ---- rare sources ---------------------------------------------------------------------------- */

static bool is_rare(uint64_t count, uint64_t all)
{
    return count > 0 && count < (all + RING - 1) / RING;
}

/* Merges groups of consecutive rare sources into `ids`: a list for each group. A group ends when
 * neither it nor what follows is rare. So a group is rare only if all of them together are. */
static rks_status merge_groups(const rks_mix_list *rare, size_t count, uint64_t all, uint32_t *ids,
                               rks_mix_list *groups, size_t *made, rks_error *err)
{
    uint64_t left = count_draws(rare, count);
    rks_status status = RKS_OK;
    *made = 0;
    for (size_t first = 0, end; first < count && status == RKS_OK; first = end) {
        uint64_t draws = 0;
        for (end = first; end < count; end++) {
            if (end > first && !is_rare(draws, all) && !is_rare(left - draws, all))
                break;
            draws += rare[end].count;
        }
        status = rks_mix_merge(rare + first, end - first, ids, err);
        groups[(*made)++] = (rks_mix_list){ids, draws};
        ids += draws;
        left -= draws;
    }
    return status;
}

rks_status rks_mix_merge(const rks_mix_list *lists, size_t sources, uint32_t *merged,
                         rks_error *err)
{
    uint64_t all = count_draws(lists, sources), rare_draws = 0;
    size_t rare = 0, others = 0, groups = 0;
    for (size_t i = 0; i < sources; i++) {
        rare += is_rare(lists[i].count, all);
        rare_draws += is_rare(lists[i].count, all) ? lists[i].count : 0;
    }
    if (rare < 2)
        return rks_mix_merge_all(lists, sources, merged, err);
    rks_mix_list *few = rks_alloc(rare, sizeof(*few), err); /* the rare sources */
    rks_mix_list *joined = rks_alloc(sources, sizeof(*joined), err);
    uint32_t *ids = rks_alloc_raw(rare_draws, sizeof(*ids), err);
    rks_status status = few == NULL || joined == NULL || ids == NULL ? RKS_ERR_MEMORY : RKS_OK;
    rks_usage_add(RKS_MEMORY_PLAN, rare_draws * sizeof(*ids));
    for (size_t i = 0, at = 0; i < sources && status == RKS_OK; i++) {
        if (is_rare(lists[i].count, all))
            few[at++] = lists[i];
        else
            joined[others++] = lists[i];
    }
    if (status == RKS_OK)
        status = merge_groups(few, rare, all, ids, joined + others, &groups, err);
    if (status == RKS_OK)
        status = rks_mix_merge_all(joined, others + groups, merged, err);
    rks_usage_sub(RKS_MEMORY_PLAN, rare_draws * sizeof(*ids));
    rks_free(few);
    rks_free(joined);
    rks_free(ids);
    return status;
}
