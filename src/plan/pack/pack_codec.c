/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_codec.c: stores what epochs need of a pack's runs and groups as words of 16 bits. If hardly
 * any two bins are alike, every few samples need a pattern, and 12 bytes a pattern would be much.
 *
 *   run       number: its samples                             run_count of them, largest first
 *   kind      number: its bins; number: samples of a bin; its patterns, the last one first
 *   pattern   (run - the run before + NEAR) * FEW + count     if both fit
 *             0, number: run; number: count                   otherwise
 *   number    a word, or WIDE and two words, the lower one first
 *
 * Each kind is a group, in the order of groups. Its patterns end when they hold all samples of a
 * bin. */
#include "plan/pack/packing.h"

#include "base/memory.h"
#include "base/memory_usage.h"

/* The words being written; NULL: they are only counted. */
typedef struct writing {
    uint16_t *words;
    size_t count;
} writing;

static void put_word(writing *w, uint32_t word)
{
    if (w->words != NULL)
        w->words[w->count] = (uint16_t)word;
    w->count++;
}

static void put_number(writing *w, uint32_t number)
{
    if (number < RKS_PACK_WIDE) {
        put_word(w, number);
        return;
    }
    put_word(w, RKS_PACK_WIDE);
    put_word(w, number & UINT16_MAX);
    put_word(w, number >> 16);
}

static void put_pattern(writing *w, uint32_t run, uint32_t before, uint32_t count)
{
    uint32_t apart = run - before + RKS_PACK_NEAR; /* negative values wrap around */
    if (apart < 2 * RKS_PACK_NEAR && count < RKS_PACK_FEW) {
        put_word(w, apart * RKS_PACK_FEW + count);
        return;
    }
    put_word(w, 0);
    put_number(w, run);
    put_number(w, count);
}

static void put_all(writing *w, const rks_pack *pack)
{
    for (size_t run = 0; run < pack->run_count; run++)
        put_number(w, pack->runs[run + 1].first - pack->runs[run].first);
    for (size_t i = 0; i < pack->group_count; i++) {
        const rks_pack_group *group = &pack->groups[i];
        uint32_t before = (uint32_t)pack->run_count;
        put_number(w, group->bins);
        put_number(w, group->samples);
        for (uint32_t p = group->pattern; p != RKS_PACK_NONE; p = pack->patterns[p].before) {
            put_pattern(w, pack->patterns[p].run, before, pack->patterns[p].count);
            before = pack->patterns[p].run;
        }
    }
}

void rks_pack_free_making(rks_pack *pack)
{
    rks_usage_sub(RKS_MEMORY_PLAN, pack->run_room * sizeof(*pack->runs) +
                                       pack->pattern_room * sizeof(*pack->patterns) +
                                       pack->group_room * sizeof(*pack->groups));
    rks_free(pack->runs);
    rks_free(pack->patterns);
    rks_free(pack->groups);
    pack->runs = NULL;
    pack->patterns = NULL;
    pack->groups = NULL;
    pack->run_room = pack->pattern_room = pack->group_room = 0;
}

rks_status rks_pack_make_kinds(rks_pack *pack, rks_error *err)
{
    writing w = {0};
    put_all(&w, pack);
    pack->words = rks_alloc_raw(w.count, sizeof(*pack->words), err);
    if (pack->words == NULL)
        return RKS_ERR_MEMORY;
    pack->word_count = w.count;
    rks_usage_add(RKS_MEMORY_PLAN, w.count * sizeof(*pack->words));
    w = (writing){.words = pack->words};
    put_all(&w, pack);
    pack->kind_count = pack->group_count;
    rks_pack_free_making(pack);
    return RKS_OK;
}
