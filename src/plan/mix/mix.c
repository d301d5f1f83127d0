/* SPDX-License-Identifier: Apache-2.0
 *
 * mix.c: the option `mix`: which samples an epoch has, and how many times each occurs. */
#include "plan/mix/mix.h"

#include <inttypes.h>
#include <stdio.h>
#include <float.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"
#include "plan/strategy.h"

void(rks_plan_mix_default)(rks_plan_mix *mix)
{
    memset(mix, 0, sizeof(*mix));
    mix->struct_size = sizeof(*mix);
}

/* ---- in words -------------------------------------------------------------------------------- */

static uint64_t fold(uint64_t digest, const void *bytes, size_t size)
{
    return rks_random_key(digest, rks_checksum64(bytes, size));
}

static uint64_t digest_of(const rks_plan_mix *mix, uint64_t count)
{
    uint64_t numbers[] = {mix->sources,         mix->samples,        mix->tokens,
                          mix->weights != NULL, mix->counts != NULL, mix->odds != NULL};
    uint64_t digest = fold(0, numbers, sizeof(numbers));
    for (size_t i = 0; mix->names != NULL && i < mix->sources; i++)
        digest = fold(digest, mix->names[i], strlen(mix->names[i]));
    if (mix->weights != NULL)
        digest = fold(digest, mix->weights, mix->sources * sizeof(*mix->weights));
    if (mix->bounds != NULL)
        digest = fold(digest, mix->bounds, (mix->sources + 1) * sizeof(*mix->bounds));
    if (mix->source_of != NULL)
        digest = fold(digest, mix->source_of, count * sizeof(*mix->source_of));
    if (mix->counts != NULL)
        digest = fold(digest, mix->counts, count * sizeof(*mix->counts));
    if (mix->odds != NULL)
        digest = fold(digest, mix->odds, count * sizeof(*mix->odds));
    return digest;
}

void rks_mix_describe(const rks_plan_mix *mix, uint64_t count, char *text, size_t room,
                      uint64_t *digest)
{
    size_t size = 0;
    uint64_t made = digest_of(mix, count);
    for (size_t i = 0; mix->weights != NULL && i < mix->sources && size < room / 2; i++)
        size +=
            (size_t)rks_snprintf(text + size, room - size, "%s%.40s=%g", i == 0 ? "" : " ",
                                 mix->names == NULL ? "source" : mix->names[i], mix->weights[i]);
    snprintf(text + size, room - size, "%s%s samples=%" PRIu64 " unit=%s (%016" PRIx64 ")",
             size > 0              ? ""
             : mix->counts != NULL ? "weights=counts"
             : mix->odds != NULL   ? "weights=odds"
                                   : "by samples",
             size >= room / 2 ? " ..." : "", mix->samples, mix->tokens ? "tokens" : "samples",
             made);
    if (digest != NULL)
        *digest = made;
}

/* ---- options --------------------------------------------------------------------------------- */

static rks_status check_options(const rks_plan_input *in, const rks_plan_mix *o, rks_error *err)
{
    if (o->sources == 0 || o->sources > RKS_MIX_SOURCES_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "mix: %zu sources; from 1 to %d", o->sources,
                        RKS_MIX_SOURCES_MAX);
    if ((o->bounds == NULL) == (o->source_of == NULL))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "mix: give bounds or source_of");
    if ((o->weights != NULL) + (o->counts != NULL) + (o->odds != NULL) > 1)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "mix: give at most one of weights, counts and odds");
    if (o->samples > UINT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "mix: samples %" PRIu64 "; an epoch has at most 2^32 - 1 draws",
                        o->samples);
    if (o->odds != NULL && o->samples == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "mix: odds need samples, the number of draws of an epoch");
    if (o->counts != NULL && o->samples != 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "mix: give samples or counts, not both: samples is the sum of counts");
    for (size_t i = 0; o->bounds != NULL && i < o->sources; i++)
        if (o->bounds[i] > o->bounds[i + 1])
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "mix: bounds %zu and %zu descend", i, i + 1);
    if (o->bounds != NULL && (o->bounds[0] != 0 || o->bounds[o->sources] != in->count))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "mix: bounds are from %" PRIu64 " to %" PRIu64 "; the plan has %" PRIu64
                        " samples",
                        o->bounds[0], o->bounds[o->sources], in->count);
    return RKS_OK;
}

static rks_status copy_names(rks_mix *mix, const rks_plan_mix *o, rks_error *err)
{
    mix->names = rks_alloc(o->sources, sizeof(*mix->names), err);
    for (size_t i = 0; mix->names != NULL && i < o->sources; i++) {
        mix->names[i] = o->names == NULL ? rks_format(err, "%zu", i) : rks_strdup(o->names[i], err);
        if (mix->names[i] == NULL)
            return RKS_ERR_MEMORY;
    }
    return mix->names == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

/* Makes a table that stays in the nearest cache, so that a sample's source is mostly found without
 * a search. */
static bool make_blocks(rks_mix *mix, rks_error *err)
{
    enum { BLOCKS = 4096 };
    uint64_t count = mix->bounds[mix->sources], blocks;
    while (count >> mix->block_bits >= BLOCKS)
        mix->block_bits++;
    blocks = (count >> mix->block_bits) + 1;
    mix->blocks = rks_alloc_raw(blocks + 1, sizeof(*mix->blocks), err);
    if (mix->blocks == NULL)
        return false;
    size_t source = 0;
    for (uint64_t block = 0; block <= blocks; block++) {
        while (source + 1 < mix->sources && mix->bounds[source + 1] <= block << mix->block_bits)
            source++;
        mix->blocks[block] = (uint16_t)source;
    }
    return true;
}

static rks_status copy_options(rks_mix *mix, const rks_plan_mix *o, rks_error *err)
{
    size_t sources = o->sources;
    mix->sources = sources;
    mix->source_of = o->source_of;
    mix->counts = o->counts;
    mix->odds = o->odds;
    mix->tokens = o->tokens;
    mix->first.longest = UINT32_MAX;
    mix->sizes = rks_alloc(sources, sizeof(*mix->sizes), err);
    mix->token_sums = rks_alloc(sources, sizeof(*mix->token_sums), err);
    if (mix->sizes == NULL || mix->token_sums == NULL)
        return RKS_ERR_MEMORY;
    if (o->bounds != NULL) {
        mix->bounds = rks_alloc_raw(sources + 1, sizeof(*mix->bounds), err);
        if (mix->bounds == NULL)
            return RKS_ERR_MEMORY;
        memcpy(mix->bounds, o->bounds, (sources + 1) * sizeof(*mix->bounds));
        if (!make_blocks(mix, err))
            return RKS_ERR_MEMORY;
    }
    return copy_names(mix, o, err);
}

rks_status rks_mix_sizes(const rks_plan_input *in, uint32_t longest, uint64_t *sizes,
                         uint64_t *token_sums, rks_error *err)
{
    const rks_mix *mix = in->mix;
    size_t at = 0;
    memset(sizes, 0, mix->sources * sizeof(*sizes));
    memset(token_sums, 0, mix->sources * sizeof(*token_sums));
    for (uint64_t i = 0, end; i < in->count;) {
        rks_status status = rks_plan_stretch(i, in->count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            size_t source = rks_mix_next_source(mix, (uint32_t)i, &at);
            if (!rks_mix_can_draw(in, (uint32_t)i, longest))
                continue;
            sizes[source]++;
            token_sums[source] += rks_plan_length(in, (uint32_t)i);
        }
    }
    return RKS_OK;
}

/* Returns odds as a whole number; the largest odds have 31 bits. */
static uint64_t whole_odds(double odds, double most)
{
    return (uint64_t)(odds / most * (double)(UINT64_C(1) << 31) + 0.5);
}

static rks_status most_odds(const rks_plan_input *in, double *most, rks_error *err)
{
    const double *odds = in->mix->odds;
    *most = 0;
    for (uint64_t i = 0; i < in->count; i++) {
        if (!(odds[i] >= 0 && odds[i] <= DBL_MAX))
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "weights: sample %" PRIu64
                            " has the weight %g; weights are finite numbers from 0",
                            i, odds[i]);
        if (rks_mix_can_draw(in, (uint32_t)i, UINT32_MAX))
            *most = odds[i] > *most ? odds[i] : *most;
    }
    if (*most == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "weights: all samples that can be drawn have the weight 0");
    return RKS_OK;
}

/* Sets the draws of an epoch. */
static rks_status set_draws(const rks_plan_input *in, const rks_plan_mix *o, rks_mix *mix,
                            rks_error *err)
{
    mix->draws = o->samples;
    if (mix->counts != NULL) {
        for (uint64_t i = 0; i < in->count; i++)
            if (rks_mix_can_draw(in, (uint32_t)i, UINT32_MAX))
                mix->draws += mix->counts[i];
        if (mix->draws == 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "weights: all samples that can be drawn have the weight 0");
    } else if (mix->odds != NULL) {
        double most;
        return most_odds(in, &most, err);
    } else if (mix->draws == 0) {
        return rks_mix_fewest(mix, &mix->draws, err);
    }
    if (mix->draws > UINT32_MAX)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "mix: %" PRIu64 " draws in an epoch; there are at most 2^32 - 1",
                        mix->draws);
    return RKS_OK;
}

rks_status rks_mix_create(rks_plan_input *in, const rks_plan_mix *given, rks_mix **made,
                          rks_error *err)
{
    rks_plan_mix o;
    rks_plan_mix_default(&o);
    if (given->struct_size < sizeof(given->struct_size) || given->struct_size > sizeof(o))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "rks_plan_mix: struct_size %zu, not %zu: call its _default first",
                        given->struct_size, sizeof(o));
    memcpy(&o, given, given->struct_size);
    rks_status status = check_options(in, &o, err);
    if (status != RKS_OK)
        return status;
    rks_mix *mix = rks_alloc(1, sizeof(*mix), err);
    if (mix == NULL)
        return RKS_ERR_MEMORY;
    in->mix = *made = mix;
    char words[64];
    uint64_t digest;
    status = copy_options(mix, &o, err);
    if (status == RKS_OK)
        status = rks_mix_sizes(in, UINT32_MAX, mix->sizes, mix->token_sums, err);
    if (status == RKS_OK && o.weights != NULL) {
        mix->first.weights = rks_alloc_raw(mix->sources, sizeof(uint64_t), err);
        status = mix->first.weights == NULL
                     ? RKS_ERR_MEMORY
                     : rks_mix_weights_read(mix, o.weights, "mix", mix->first.weights, err);
    }
    rks_mix_describe(&o, in->count, words, sizeof(words), &digest);
    snprintf(mix->digest, sizeof(mix->digest), "%016" PRIx64, digest);
    uint64_t can = 0;
    for (size_t i = 0; status == RKS_OK && i < mix->sources; i++)
        can += mix->sizes[i];
    if (status == RKS_OK && can == 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "no samples to plan");
    return status == RKS_OK ? set_draws(in, &o, mix, err) : status;
}

void rks_mix_free(rks_mix *mix)
{
    if (mix == NULL)
        return;
    for (size_t i = 0; mix->names != NULL && i < mix->sources; i++)
        rks_free(mix->names[i]);
    rks_free(mix->names);
    rks_free(mix->bounds);
    rks_free(mix->blocks);
    rks_free(mix->sizes);
    rks_free(mix->token_sums);
    rks_free(mix->first.weights);
    rks_free(mix);
}

/* ---- what is drawn --------------------------------------------------------------------------- */

rks_status rks_mix_draws_begin(const rks_plan_input *in, rks_epoch_image *image,
                               rks_mix_draws *draws, rks_error *err)
{
    size_t sources = in->mix->sources;
    if (image->quotas == NULL)
        image->quotas = rks_alloc(sources, sizeof(*image->quotas), err);
    draws->quotas = image->quotas;
    draws->levels = rks_alloc(sources, sizeof(*draws->levels), err);
    draws->extras = rks_alloc(sources, sizeof(*draws->extras), err);
    return draws->quotas == NULL || draws->levels == NULL || draws->extras == NULL ? RKS_ERR_MEMORY
                                                                                   : RKS_OK;
}

void rks_mix_draws_forget(const rks_plan_input *in, rks_mix_draws *draws)
{
    uint64_t bytes = rks_mix_items(in) * sizeof(uint32_t);
    rks_usage_sub(RKS_MEMORY_PLAN,
                  (draws->left == NULL ? 0 : bytes) + (draws->drawn == NULL ? 0 : bytes));
    rks_free(draws->left);
    rks_free(draws->drawn);
    draws->left = draws->drawn = NULL;
}

void rks_mix_draws_end(const rks_plan_input *in, rks_mix_draws *draws)
{
    rks_mix_draws_forget(in, draws);
    rks_free(draws->levels);
    rks_free(draws->extras);
}

rks_status rks_mix_begin_rest(const rks_plan_input *in, rks_mix_draws *draws, rks_error *err)
{
    uint64_t items = rks_mix_items(in);
    draws->drawn = rks_alloc(items, sizeof(*draws->drawn), err);
    if (draws->drawn == NULL)
        return RKS_ERR_MEMORY;
    rks_usage_add(RKS_MEMORY_PLAN, items * sizeof(*draws->drawn));
    return RKS_OK;
}

void rks_mix_strike(rks_mix_draws *draws, const uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        draws->drawn[ids[i]]++;
        if (draws->left[ids[i]] > 0) { /* 0: the option `tail` repeats it */
            draws->left[ids[i]]--;
            draws->rest--;
        }
    }
}

/* A source while its draws are chosen. */
typedef struct choice {
    uint64_t size;   /* samples that can be drawn */
    uint64_t low;    /* lower bound of the level */
    uint64_t high;   /* upper bound of the level */
    uint64_t needed; /* draws that bring all samples to a level */
    uint64_t among;  /* samples at the level or below, which may be drawn once more */
    uint64_t once_more;
    rks_random random;
} choice;

static uint32_t drawn_of(const rks_mix_draws *draws, uint32_t id)
{
    return draws->drawn == NULL ? 0 : draws->drawn[id];
}

/* Counts, for the level in the middle of low and high, the draws that it needs and the samples at
 * most at it. */
static rks_status look_at_levels(const rks_plan_input *in, const rks_mix_draws *draws,
                                 uint32_t longest, choice *choices, rks_error *err)
{
    const rks_mix *mix = in->mix;
    size_t at = 0;
    for (size_t i = 0; i < mix->sources; i++)
        choices[i].needed = choices[i].among = 0;
    for (uint64_t i = 0, end; i < in->count;) {
        rks_status status = rks_plan_stretch(i, in->count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            size_t source = rks_mix_next_source(mix, (uint32_t)i, &at);
            if (!rks_mix_can_draw(in, (uint32_t)i, longest))
                continue;
            choice *c = &choices[source];
            uint64_t level = c->high - (c->high - c->low) / 2, drawn = drawn_of(draws, (uint32_t)i);
            c->needed += drawn < level ? level - drawn : 0;
            c->among += drawn <= level;
        }
    }
    return RKS_OK;
}

/* Finds the highest level to which each source's quota brings all of its samples. */
static rks_status find_levels(const rks_plan_input *in, const rks_mix_draws *draws,
                              uint32_t longest, choice *choices, rks_error *err)
{
    const rks_mix *mix = in->mix;
    bool found = false;
    rks_status status = RKS_OK;
    if (draws->drawn == NULL) { /* all samples are alike */
        for (size_t i = 0; i < mix->sources; i++) {
            choice *c = &choices[i];
            c->low = c->size == 0 ? 0 : draws->quotas[i] / c->size;
            c->high = c->low;
            c->needed = c->low * c->size;
            c->among = c->size;
        }
        return RKS_OK;
    }
    while (!found && status == RKS_OK) {
        found = true;
        status = look_at_levels(in, draws, longest, choices, err);
        for (size_t i = 0; i < mix->sources && status == RKS_OK; i++) {
            choice *c = &choices[i];
            if (c->low == c->high)
                continue;
            uint64_t level = c->high - (c->high - c->low) / 2;
            if (c->needed <= draws->quotas[i])
                c->low = level;
            else
                c->high = level - 1;
            found = false;
        }
    }
    return status;
}

/* Brings all samples of a source to its level, and some of those at the level once more. Each has
 * the chance that keeps their number exact. */
static rks_status set_left(const rks_plan_input *in, rks_mix_draws *draws, uint32_t longest,
                           choice *choices, rks_error *err)
{
    const rks_mix *mix = in->mix;
    size_t at = 0;
    for (uint64_t i = 0, end; i < in->count;) {
        rks_status status = rks_plan_stretch(i, in->count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            size_t source = rks_mix_next_source(mix, (uint32_t)i, &at);
            draws->left[i] = 0;
            if (!rks_mix_can_draw(in, (uint32_t)i, longest))
                continue;
            choice *c = &choices[source];
            uint64_t drawn = drawn_of(draws, (uint32_t)i);
            if (drawn > c->low)
                continue;
            uint64_t again = 0; /* as a number: a branch could not be predicted */
            if (c->once_more > 0)
                again = rks_random_below(&c->random, c->among--) < c->once_more;
            c->once_more -= again;
            draws->left[i] = (uint32_t)(c->low - drawn + again);
        }
    }
    return RKS_OK;
}

static rks_status choose_by_sources(const rks_plan_input *in, rks_mix_draws *draws,
                                    const rks_mix_force *force, choice *choices, uint64_t *sizes,
                                    rks_error *err)
{
    const rks_mix *mix = in->mix;
    uint64_t *token_sums = sizes + mix->sources;
    rks_status status = RKS_OK;
    if (force->longest == UINT32_MAX) { /* known */
        memcpy(sizes, mix->sizes, mix->sources * sizeof(*sizes));
        memcpy(token_sums, mix->token_sums, mix->sources * sizeof(*token_sums));
    } else {
        status = rks_mix_sizes(in, force->longest, sizes, token_sums, err);
    }
    if (status == RKS_OK)
        status =
            rks_mix_quotas(mix, force->weights, sizes, token_sums, draws->rest, draws->quotas, err);
    uint64_t delivered = 0;
    for (uint64_t i = 0; draws->drawn != NULL && i < in->count; i++)
        delivered += draws->drawn[i];
    for (size_t i = 0; i < mix->sources && status == RKS_OK; i++) {
        if (draws->quotas[i] > 0 && sizes[i] == 0)
            status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                              "mix: \"%.60s\" has a weight and no samples of at most %" PRIu32,
                              mix->names[i], force->longest);
        choices[i] = (choice){.size = sizes[i], .random = {rks_random_key(draws->key, i)}};
        choices[i].high = sizes[i] == 0 ? 0 : (draws->quotas[i] + delivered) / sizes[i];
    }
    if (status == RKS_OK)
        status = find_levels(in, draws, force->longest, choices, err);
    for (size_t i = 0; i < mix->sources && status == RKS_OK; i++) {
        choices[i].once_more = draws->quotas[i] - choices[i].needed;
        draws->levels[i] = choices[i].low;
        draws->extras[i] = choices[i].once_more;
    }
    return status == RKS_OK && !draws->listed ? set_left(in, draws, force->longest, choices, err)
                                              : status;
}

/* Chooses draws * odds / sum occurrences of each sample. Of two samples in turn whose numbers are
 * not whole, one takes over what the other has, so that the sum stays exact (the ordered pivotal
 * method of Deville and Tille, "Unequal probability sampling without replacement through a
 * splitting method", 1998). */
static rks_status choose_by_odds(const rks_plan_input *in, rks_mix_draws *draws, rks_error *err)
{
    const rks_mix *mix = in->mix;
    rks_random random = {draws->key};
    double most;
    uint64_t all = 0, held = 0, keeper = 0;
    rks_status status = most_odds(in, &most, err);
    for (uint64_t i = 0; i < in->count && status == RKS_OK; i++)
        if (rks_mix_can_draw(in, (uint32_t)i, UINT32_MAX))
            all += whole_odds(mix->odds[i], most);
    for (uint64_t i = 0; i < in->count && status == RKS_OK; i++) {
        draws->left[i] = 0;
        if (!rks_mix_can_draw(in, (uint32_t)i, UINT32_MAX))
            continue;
        rks_u128 exact = (rks_u128)whole_odds(mix->odds[i], most) * draws->rest;
        uint64_t part = (uint64_t)(exact % all);
        draws->left[i] = (uint32_t)(exact / all);
        if (part == 0)
            continue;
        if (held + part < all) { /* one of the two keeps what both have */
            if (rks_random_below(&random, held + part) >= held)
                keeper = i;
            held += part;
        } else { /* one of the two is drawn once more, the other keeps the rest */
            bool is_keeper = rks_random_below(&random, 2 * all - held - part) < all - part;
            draws->left[is_keeper ? keeper : i]++;
            keeper = is_keeper ? i : keeper;
            held = held + part - all;
        }
    }
    return status;
}

/* Fills `left` of samples. */
static rks_status choose_samples(const rks_plan_input *in, rks_mix_draws *draws,
                                 const rks_mix_force *force, rks_error *err)
{
    const rks_mix *mix = in->mix;
    if (mix->odds != NULL)
        return choose_by_odds(in, draws, err);
    if (mix->counts != NULL) {
        for (uint64_t i = 0; i < in->count; i++)
            draws->left[i] = rks_mix_can_draw(in, (uint32_t)i, UINT32_MAX) ? mix->counts[i] : 0;
        return RKS_OK;
    }
    choice *choices = rks_alloc(mix->sources, sizeof(*choices), err);
    uint64_t *sizes = rks_alloc(2 * mix->sources, sizeof(*sizes), err);
    rks_status status = choices == NULL || sizes == NULL
                            ? RKS_ERR_MEMORY
                            : choose_by_sources(in, draws, force, choices, sizes, err);
    rks_free(choices);
    rks_free(sizes);
    return status;
}

static rks_status make_left(const rks_plan_input *in, rks_mix_draws *draws, rks_error *err)
{
    uint64_t items = rks_mix_items(in);
    draws->left = rks_alloc_raw(items, sizeof(*draws->left), err);
    if (draws->left == NULL)
        return RKS_ERR_MEMORY;
    rks_plan_advise(draws->left, items * sizeof(*draws->left));
    rks_usage_add(RKS_MEMORY_PLAN, items * sizeof(*draws->left));
    return RKS_OK;
}

rks_status rks_mix_choose(const rks_plan_input *in, rks_mix_draws *draws,
                          const rks_mix_force *force, uint64_t count, uint64_t key, bool once,
                          rks_error *err)
{
    const rks_mix *mix = in->mix;
    bool is_new = draws->left == NULL;
    draws->rest = count;
    draws->key = key;
    draws->listed = once && is_new && !rks_plan_sorts(&in->config) && in->cut_count == 0 &&
                    mix->counts == NULL && mix->odds == NULL && force->longest == UINT32_MAX;
    if (draws->listed)
        return choose_samples(in, draws, force, err);
    if (is_new && make_left(in, draws, err) != RKS_OK)
        return RKS_ERR_MEMORY;
    rks_mix_join_pieces(in, draws, is_new);
    rks_status status = choose_samples(in, draws, force, err);
    return status == RKS_OK ? rks_mix_part_pieces(in, draws, err) : status;
}

/* ---- batches --------------------------------------------------------------------------------- */

uint64_t rks_mix_batches_like(const rks_plan_input *in, rks_error *err)
{
    const rks_mix *mix = in->mix;
    const rks_plan_config *config = &in->config;
    uint64_t by_tokens = 0, by_count = mix->draws / config->batch_size;
    if (config->max_tokens == UINT64_MAX || mix->counts != NULL || mix->odds != NULL)
        return by_count > in->batches_like ? by_count : in->batches_like;
    uint64_t *quotas = rks_alloc(mix->sources, sizeof(*quotas), err);
    if (quotas == NULL || rks_mix_quotas(mix, mix->first.weights, mix->sizes, mix->token_sums,
                                         mix->draws, quotas, err) != RKS_OK) {
        rks_free(quotas);
        return in->batches_like;
    }
    rks_u128 tokens = 0;
    for (size_t i = 0; i < mix->sources; i++)
        if (mix->sizes[i] > 0)
            tokens += (rks_u128)mix->token_sums[i] * quotas[i] / mix->sizes[i];
    rks_free(quotas);
    by_tokens = (uint64_t)(tokens / config->max_tokens);
    return by_tokens > by_count ? by_tokens : by_count;
}
