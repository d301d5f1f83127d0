/* SPDX-License-Identifier: Apache-2.0
 *
 * merge.c: the lists of all sources become one, in which sources are even.
 *
 * Draw k of a source of n draws, of N in all, comes neither before N k / n draws of all, nor after
 * N (k + 1) / n. Of the draws that may come, the one whose end is earliest is next, which keeps all
 * of these bounds (Liu and Layland 1973; as Pfair schedules of one processor). Of equal ends, the
 * draw that has been ready for longest is next. So after any number of draws each source has had
 * its share, give or take one draw.
 *
 * There are two ways to the same order:
 *   turns   position by position: which sources become ready, and which of these is next. This is
 *           the law. Ends that are further away than a ring count as the ring's end.
 *   blocks  end by end: draws sorted by their ends, a block of positions at a time, each of which
 *           then takes the first free position from its beginning on. This takes half of the time,
 *           since hardly anything in it waits for what came before. It gives up if ends that count
 *           earlier than they are leave no position free, or if there are too many sources.
 *
 * Both place the same draw at the same position: of draws of one unit each, it is the same whether
 * a position takes the first of those that are ready, or whether draws, first ones first, take free
 * positions. */
#include "plan/mix.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

enum { RING = 4096, AHEAD = 24 }; /* lists are too many for the processor to fetch them ahead */

/* A source while lists are merged. */
typedef struct turn {
    uint64_t from, to;   /* positions where its next draw may come */
    uint64_t each, part; /* all / draws, and what is left of it */
    uint64_t parts;      /* of `draws`, that the draw after that begins later than `to` says */
    uint64_t draws, done;
} turn;

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

/* ---- turns ----------------------------------------------------------------------------------- */

enum { WORDS = RING / 64, END = UINT16_MAX };

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

static rks_status take_turns(merge *m, turn *turns, const uint32_t *lists, uint64_t *places,
                             uint64_t all, uint32_t *merged, rks_error *err)
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

rks_status rks_mix_merge_turns(const uint32_t *lists, const uint64_t *counts, size_t sources,
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
        status = take_turns(m, turns, lists, places, all, merged, err);
    rks_free(m);
    rks_free(turns);
    rks_free(places);
    return status;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

enum {
    BLOCK = 2048,        /* positions */
    BLOCK_SOURCES = 1024,
    DRAWS = BLOCK + 2 * BLOCK_SOURCES,
    FREE_WORDS = (BLOCK + 2 * RING) / 64,
    NONE = -1 /* as a count of draws: blocks cannot do it */
};

/* All draws whose ends lie in a block of positions. A draw is one number: its line (its end, counted
 * from the block's first position), its beginning (counted from a ring before that), its source; in
 * 16, 32 and 16 bits. */
typedef struct blocks {
    uint64_t first;  /* position of the block */
    uint64_t origin; /* position of the first bit of `free` */
    uint64_t free[FREE_WORDS];
    uint32_t ends[BLOCK + 1]; /* of each line in `draws` */
    uint8_t close[BLOCK];     /* lines whose order is not that of beginnings for sure */
    uint64_t made[DRAWS], draws[DRAWS];
    turn turns[BLOCK_SOURCES];
    uint16_t order[BLOCK_SOURCES]; /* of sources: fewest draws first */
    uint64_t after[BLOCK_SOURCES]; /* the position behind the last draw of each source */
    uint64_t places[BLOCK_SOURCES];
} blocks;

/* Where a draw stands among those of its line: when it becomes ready; 0, or when it came to wait
 * for that, and how often it came to wait anew, since a source waits for a ring at most. */
typedef struct standing {
    uint64_t ready, waits, anew;
    uint64_t draw;
} standing;

static inline size_t line_of(uint64_t draw)
{
    return (size_t)(draw >> 48);
}

static inline uint16_t source_of(uint64_t draw)
{
    return (uint16_t)draw;
}

/* Counted from a ring before the block. */
static inline uint64_t beginning_of(uint64_t draw)
{
    return draw >> 16 & UINT32_MAX;
}

static standing stand(const blocks *b, uint64_t draw)
{
    uint64_t from = b->first + beginning_of(draw) - RING, after = b->after[source_of(draw)];
    if (after >= from)
        return (standing){.ready = after, .draw = draw};
    uint64_t anew = from - after < RING ? 0 : (from - after - RING) / (RING - 1) + 1;
    return (standing){from, after + anew * (RING - 1), anew, draw};
}

static int first_in_line(const void *x, const void *y)
{
    const standing *a = x, *b = y;
    if (a->ready != b->ready)
        return a->ready < b->ready ? -1 : 1;
    if (a->waits != b->waits)
        return a->waits < b->waits ? -1 : 1;
    if (a->anew != b->anew)
        return a->anew < b->anew ? -1 : 1;
    return source_of(a->draw) < source_of(b->draw) ? -1 : 1; /* first draws of all */
}

/* Sorts the draws of a line, 2 at least. */
static void sort_line(const blocks *b, uint64_t *draws, size_t count)
{
    enum { FEW = 16 };
    standing standings[BLOCK_SOURCES];
    for (size_t i = 0; i < count; i++)
        standings[i] = stand(b, draws[i]);
    if (count > FEW)
        qsort(standings, count, sizeof(*standings), first_in_line);
    for (size_t i = 1; i < count && count <= FEW; i++) {
        standing moved = standings[i];
        size_t at = i;
        for (; at > 0 && first_in_line(&standings[at - 1], &moved) > 0; at--)
            standings[at] = standings[at - 1];
        standings[at] = moved;
    }
    for (size_t i = 0; i < count; i++)
        draws[i] = standings[i].draw;
}

/* Fills `draws` with those of the next block, by lines. Of one line, sources of fewer draws come
 * first, which began earlier. Returns how many they are. */
static int64_t sort_block(blocks *b, size_t sources)
{
    size_t count = 0;
    memset(b->ends, 0, sizeof(b->ends));
    memset(b->close, 0, sizeof(b->close));
    for (size_t i = 0; i < sources; i++) {
        uint16_t source = b->order[i];
        turn t = b->turns[source];
        for (; t.done < t.draws; t.done++) {
            uint64_t end = t.to - t.from >= RING ? t.from + RING - 1 : t.to;
            if (end >= b->first + BLOCK)
                break;
            if (count == DRAWS)
                return NONE;
            uint64_t line = end - b->first;
            b->made[count++] = line << 48 | (t.from + RING - b->first) << 16 | source;
            b->ends[line + 1]++;
            advance(&t);
        }
        b->turns[source] = t;
    }
    for (size_t line = 0; line < BLOCK; line++)
        b->ends[line + 1] += b->ends[line];
    for (size_t i = 0; i < count; i++) { /* ends[line]: its beginning at first */
        uint64_t draw = b->made[i];
        uint32_t at = b->ends[line_of(draw)]++;
        uint64_t before = at > 0 ? b->draws[at - 1] : UINT64_MAX;
        b->draws[at] = draw;
        /* A draw is ready when it begins or, if its source was late, one position later. */
        b->close[line_of(draw)] |= (line_of(before) == line_of(draw)) &
                                   (beginning_of(draw) < beginning_of(before) + 2);
    }
    return (int64_t)count;
}

/* The free positions that are nearest: two words of `free`, from number `word` on. */
typedef struct frontier {
    rks_u128 bits;
    size_t word;
} frontier;

/* Takes the first free position from `from` on, counted from b->origin. One is free. */
static inline size_t take_free(blocks *b, frontier *f, uint64_t from)
{
    uint64_t here = f->word * 64;
    uint64_t off = from > here ? from - here : 0;
    rks_u128 bits = off < 128 ? f->bits >> off : 0;
    if (bits == 0) { /* far away, since there are many sources */
        size_t word = from / 64;
        uint64_t far = word < f->word + 2 ? 0 : b->free[word] >> (from % 64) << (from % 64);
        word = word < f->word + 2 ? f->word + 1 : word;
        while (far == 0)
            far = b->free[++word];
        b->free[word] &= ~(far & -far);
        return word * 64 + (size_t)__builtin_ctzll(far);
    }
    uint64_t low = (uint64_t)bits, high = (uint64_t)(bits >> 64);
    size_t at = off + (size_t)(low != 0 ? __builtin_ctzll(low) : 64 + __builtin_ctzll(high));
    f->bits &= ~((rks_u128)1 << at);
    while ((uint64_t)f->bits == 0) {
        b->free[f->word++] = 0;
        f->bits = f->bits >> 64 | (rks_u128)b->free[f->word + 1] << 64;
    }
    return here + at;
}

/* Gives the draws of a block their positions. False if one of them is late. */
static bool place_block(blocks *b, size_t count, const uint32_t *lists, uint64_t all,
                        uint32_t *merged)
{
    uint64_t behind = b->first - b->origin;
    frontier f = {(rks_u128)b->free[1] << 64 | b->free[0], 0};
    for (size_t i = 0; i < count; i++) {
        size_t line = line_of(b->draws[i]);
        if (b->close[line]) {
            sort_line(b, b->draws + i, b->ends[line] - i);
            b->close[line] = 0;
        }
        uint64_t draw = b->draws[i], from = behind + beginning_of(draw);
        size_t at = take_free(b, &f, from > RING ? from - RING : 0);
        if (at > behind + line)
            return false;
        uint16_t source = source_of(draw);
        uint64_t place = b->places[source]++;
        b->after[source] = b->origin + at + 1;
        merged[b->origin + at] = lists[place];
        __builtin_prefetch(&lists[place + AHEAD < all ? place + AHEAD : place]);
    }
    b->free[f.word] = (uint64_t)f.bits;
    b->free[f.word + 1] = (uint64_t)(f.bits >> 64);
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
    return a->done < b->done ? -1 : 1; /* the source's number, while sources are put in order */
}

/* False if blocks cannot do it. */
static bool begin_blocks(blocks *b, const uint64_t *counts, size_t sources, uint64_t all)
{
    uint64_t place = 0;
    for (size_t i = 0; i < sources; i++)
        b->turns[i] = (turn){.draws = counts[i], .done = i};
    qsort(b->turns, sources, sizeof(*b->turns), fewest_draws);
    for (size_t i = 0; i < sources; i++)
        b->order[i] = (uint16_t)b->turns[i].done;
    for (size_t i = 0; i < sources; i++) {
        b->places[i] = place;
        place += counts[i];
        b->turns[i] = (turn){.draws = counts[i]};
        if (counts[i] == 0)
            continue;
        begin_turn(&b->turns[i], all);
        /* Its end may count as the ring's, or as it is, by when its last draw was. */
        if (b->turns[i].each == RING - 1 && b->turns[i].part > 0)
            return false;
    }
    memset(b->free, 0xff, sizeof(b->free));
    return true;
}

rks_status rks_mix_merge_blocks(const uint32_t *lists, const uint64_t *counts, size_t sources,
                                uint32_t *merged, bool *merges, rks_error *err)
{
    uint64_t all = 0, done = 0;
    *merges = sources <= BLOCK_SOURCES;
    if (!*merges)
        return RKS_OK;
    for (size_t i = 0; i < sources; i++)
        all += counts[i];
    blocks *b = rks_alloc(1, sizeof(*b), err);
    if (b == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    *merges = begin_blocks(b, counts, sources, all);
    for (; b->first < all && *merges && status == RKS_OK; b->first += BLOCK) {
        int64_t count = sort_block(b, sources);
        bool fits = b->first - b->origin + BLOCK + 128 <= FREE_WORDS * 64;
        *merges = count != NONE && fits && place_block(b, (size_t)count, lists, all, merged);
        status = rks_plan_pause(&done, BLOCK, err);
    }
    rks_free(b);
    return status;
}

rks_status rks_mix_merge(const uint32_t *lists, const uint64_t *counts, size_t sources,
                         uint32_t *merged, rks_error *err)
{
    bool merges;
    rks_status status = rks_mix_merge_blocks(lists, counts, sources, merged, &merges, err);
    return status != RKS_OK || merges
               ? status
               : rks_mix_merge_turns(lists, counts, sources, merged, err);
}
