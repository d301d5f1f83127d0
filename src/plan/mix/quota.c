/* SPDX-License-Identifier: Apache-2.0
 *
 * quota.c: divides the draws over the sources, in whole numbers.
 *
 * Weights are fixed-point numbers, the largest of 48 bits, so that all machines draw alike. Shares
 * are exact fractions of them. The draws that rounding down leaves over go to the largest
 * remainders. */
#include "plan/mix/mix.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/order/random.h"

enum { WEIGHT_BITS = 48 };

rks_status rks_mix_weights_read(const rks_mix *mix, const double *weights, const char *what,
                                uint64_t *fixed, rks_error *err)
{
    double most = 0;
    for (size_t i = 0; i < mix->sources; i++) {
        if (!(weights[i] >= 0 && weights[i] <= DBL_MAX))
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "%s: \"%.60s\" has the weight %g; weights are finite numbers from 0",
                            what, mix->names[i], weights[i]);
        most = weights[i] > most ? weights[i] : most;
    }
    if (most == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: all weights are 0; one must be above", what);
    for (size_t i = 0; i < mix->sources; i++) {
        /* A division and a power of 2: the same bits on all machines. */
        fixed[i] = (uint64_t)(weights[i] / most * (double)(UINT64_C(1) << WEIGHT_BITS) + 0.5);
        if (fixed[i] == 0 && weights[i] > 0)
            return rks_fail(
                err, RKS_ERR_ARGUMENT, 0,
                "%s: the weight %g of \"%.60s\" is too small beside %g; give it 0, or at "
                "least %g",
                what, weights[i], mix->names[i], most, most * 0x1p-48);
        if (fixed[i] > 0 && mix->sizes[i] == 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "%s: \"%.60s\" has the weight %g and no samples to draw; give it 0, or "
                            "leave it out",
                            what, mix->names[i], weights[i]);
    }
    return RKS_OK;
}

/* Converts weights to weights of draws, each below 2^49. Weights of tokens are divided by mean
 * lengths. */
static rks_status draw_weights(const rks_mix *mix, const uint64_t *weights, const uint64_t *sizes,
                               const uint64_t *token_sums, uint64_t *shares, rks_error *err)
{
    enum { SPARE = 31 };
    rks_u128 most = 0;
    if (weights == NULL || !mix->tokens) {
        memcpy(shares, weights == NULL ? sizes : weights, mix->sources * sizeof(*shares));
        return RKS_OK;
    }
    for (int pass = 0; pass < 2; pass++) {
        unsigned shift = 0;
        while (most >> shift >> WEIGHT_BITS != 0)
            shift++;
        for (size_t i = 0; i < mix->sources; i++) {
            shares[i] = 0;
            if (weights[i] == 0)
                continue;
            if (token_sums[i] == 0)
                return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                                "mix: \"%.60s\" has samples of length 0 only, so it cannot have a "
                                "share of tokens; let weights count samples",
                                mix->names[i]);
            rks_u128 share = ((rks_u128)weights[i] << SPARE) * sizes[i] / token_sums[i];
            most = share > most ? share : most;
            shares[i] = (uint64_t)(share >> shift);
            if (pass == 1 && shares[i] == 0)
                shares[i] = 1;
        }
    }
    return RKS_OK;
}

typedef struct remainder {
    rks_u128 left;
    size_t source;
} remainder;

static int largest_first(const void *a, const void *b)
{
    const remainder *left = a, *right = b;
    if (left->left != right->left)
        return left->left > right->left ? -1 : 1;
    return left->source < right->source ? -1 : 1;
}

/* Divides `draws` by shares, whose sum is below 2^64. `rests` has room for all sources. */
static void divide(const uint64_t *shares, size_t sources, uint64_t draws, uint64_t *quotas,
                   remainder *rests)
{
    uint64_t all = 0, given = 0;
    size_t count = 0;
    for (size_t i = 0; i < sources; i++)
        all += shares[i];
    for (size_t i = 0; i < sources; i++) {
        rks_u128 exact = (rks_u128)shares[i] * draws;
        quotas[i] = (uint64_t)(exact / all);
        given += quotas[i];
        if (exact % all != 0)
            rests[count++] = (remainder){exact % all, i};
    }
    if (given == draws)
        return;
    qsort(rests, count, sizeof(*rests), largest_first);
    for (size_t i = 0; given < draws; i++, given++)
        quotas[rests[i].source]++;
}

/* Halves shares until their sum is below 2^64. */
static void limit_sum(uint64_t *shares, size_t sources)
{
    rks_u128 all = 0;
    for (size_t i = 0; i < sources; i++)
        all += shares[i];
    for (; all >> 63 != 0; all >>= 1)
        for (size_t i = 0; i < sources; i++)
            shares[i] = shares[i] > 1 ? shares[i] / 2 : shares[i];
}

rks_status rks_mix_quotas(const rks_mix *mix, const uint64_t *weights, const uint64_t *sizes,
                          const uint64_t *token_sums, uint64_t draws, uint64_t *quotas,
                          rks_error *err)
{
    uint64_t *shares = rks_alloc_raw(mix->sources, sizeof(*shares), err);
    remainder *rests = rks_alloc_raw(mix->sources, sizeof(*rests), err);
    rks_status status = shares == NULL || rests == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        status = draw_weights(mix, weights, sizes, token_sums, shares, err);
    if (status == RKS_OK) {
        limit_sum(shares, mix->sources);
        divide(shares, mix->sources, draws, quotas, rests);
    }
    rks_free(shares);
    rks_free(rests);
    return status;
}

static bool shows_all(const rks_mix *mix, const uint64_t *shares, const uint64_t *quotas)
{
    for (size_t i = 0; i < mix->sources; i++)
        if (shares[i] > 0 && quotas[i] < mix->sizes[i])
            return false;
    return true;
}

static rks_status too_many(rks_error *err)
{
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "mix: an epoch in which every sample occurs has more than 2^32 - 1 draws; set "
                    "samples");
}

/* Searches for the fewest draws. A source of M samples needs more than (M - 1) / share draws in
 * all, and M / share are enough. */
static rks_status search(const rks_mix *mix, const uint64_t *shares, uint64_t *quotas,
                         remainder *rests, uint64_t *draws, rks_error *err)
{
    enum { WORK = 1 << 24 };
    rks_u128 least = 1, enough = 1, all = 0;
    for (size_t i = 0; i < mix->sources; i++)
        all += shares[i];
    for (size_t i = 0; i < mix->sources; i++) {
        if (shares[i] == 0 || mix->sizes[i] == 0)
            continue;
        rks_u128 low = (mix->sizes[i] - 1) * all / shares[i] + 1;
        rks_u128 high = (mix->sizes[i] * all + shares[i] - 1) / shares[i];
        least = low > least ? low : least;
        enough = high > enough ? high : enough;
    }
    if (least > UINT32_MAX)
        return too_many(err);
    uint64_t at = (uint64_t)least;
    for (uint64_t work = 0; at < enough && work < WORK; at++, work += mix->sources) {
        divide(shares, mix->sources, at, quotas, rests);
        if (shows_all(mix, shares, quotas))
            break;
    }
    if (at < enough && !shows_all(mix, shares, quotas))
        at = enough > UINT32_MAX ? UINT64_MAX : (uint64_t)enough;
    if (at > UINT32_MAX)
        return too_many(err);
    *draws = at;
    return RKS_OK;
}

rks_status rks_mix_fewest(const rks_mix *mix, uint64_t *draws, rks_error *err)
{
    uint64_t *shares = rks_alloc_raw(mix->sources, sizeof(*shares), err);
    uint64_t *quotas = rks_alloc_raw(mix->sources, sizeof(*quotas), err);
    remainder *rests = rks_alloc_raw(mix->sources, sizeof(*rests), err);
    rks_status status = shares == NULL || quotas == NULL || rests == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        status = draw_weights(mix, mix->first.weights, mix->sizes, mix->token_sums, shares, err);
    if (status == RKS_OK) {
        limit_sum(shares, mix->sources);
        status = search(mix, shares, quotas, rests, draws, err);
    }
    rks_free(shares);
    rks_free(quotas);
    rks_free(rests);
    return status;
}
