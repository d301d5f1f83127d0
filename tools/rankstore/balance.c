/* SPDX-License-Identifier: Apache-2.0
 *
 * balance.c: costs of samples from lengths and index columns. They are sums of doubles, term by
 * term in the order of the option (never fused, so that all machines round alike), and then whole
 * numbers, the largest of 32 bits. */
#include "balance.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "column.h"

static rks_status refuse_balance(rks_error *err, rks_status status, const char *format,
                                 const char *what)
{
    *err = (rks_error){.status = status, .rank = -1};
    snprintf(err->text, sizeof(err->text), format, what);
    return status;
}

static bool too_long_is(const rks_plan_options *options, const char *name)
{
    return options->too_long != NULL && strcmp(options->too_long, name) == 0;
}

/* Where too_long "truncate" cuts, as the plan does; UINT32_MAX: nowhere. */
static uint32_t cut_of(const rks_plan_options *options)
{
    bool packs = options->strategy != NULL && strcmp(options->strategy, "pack") == 0;
    bool sums = options->cost != NULL && strcmp(options->cost, "tokens") == 0;
    uint64_t multiple = options->length_multiple, budget = options->max_tokens, limit = UINT32_MAX;
    if (!too_long_is(options, "truncate"))
        return UINT32_MAX;
    if (multiple == 0)
        for (multiple = packs || sums ? 1 : 8; budget % multiple != 0;)
            multiple /= 2;
    if (options->max_length > 0)
        limit = options->max_length;
    budget = packs ? options->capacity : budget / multiple * multiple;
    return (uint32_t)(budget > 0 && budget < limit ? budget : limit);
}

static double length_of(uint32_t length, uint32_t cut)
{
    return length == UINT32_MAX ? 0 : length < cut ? length : cut;
}

/* polynomial:A,B */
static bool parse_factors(const char *text, double factors[2])
{
    for (int i = 0; i < 2; i++) {
        char *end = NULL;
        factors[i] = strtod(text, &end);
        if (end == text || *end != (i == 0 ? ',' : '\0'))
            return false;
        text = end + 1;
    }
    return true;
}

static void add_polynomial(const uint32_t *lengths, uint64_t count, uint32_t cut,
                           const double factors[2], double *costs)
{
    for (uint64_t i = 0; i < count; i++) {
        double length = length_of(lengths[i], cut);
        volatile double each = length * factors[1];
        costs[i] = length * (factors[0] + each);
    }
}

static rks_status add_column(rks_store *store, const char *name, double weight, uint32_t cut,
                             double *costs, rks_error *err)
{
    cli_column column;
    char problem[sizeof(err->text) - 16] = "";
    if (!cli_column_find(store, name, &column, problem, sizeof(problem)))
        return refuse_balance(err, RKS_ERR_ARGUMENT, "--balance: %s", problem);
    for (uint64_t i = 0; i < column.count; i++) {
        uint64_t key = 0;
        enum cli_entry entry = cli_column_key(&column, i, &key);
        double value = cli_column_is_length(&column) ? length_of(column.lengths[i], cut)
                       : entry == CLI_ENTRY_NUMBER   ? cli_column_number(&column, key)
                       : entry == CLI_ENTRY_ABSENT   ? 0
                                                     : NAN;
        volatile double cost = value * weight;
        costs[i] += cost;
    }
    return RKS_OK;
}

/* NAME=WEIGHT, cut out of `text`. */
static rks_status add_term(rks_store *store, const cli_plan_args *args, char *text, uint32_t cut,
                           double *costs, rks_error *err)
{
    char *sign = strrchr(text, '='), *end = NULL;
    double weight = sign == NULL ? 0 : strtod(sign + 1, &end);
    if (sign == NULL || sign == text || sign[1] == '\0' || *end != '\0')
        return refuse_balance(err, RKS_ERR_ARGUMENT,
                              "--balance: '%.120s' is neither NAME=WEIGHT,NAME=WEIGHT nor "
                              "polynomial:A,B",
                              args->balance);
    *sign = '\0';
    if (store != NULL)
        return add_column(store, text, weight, cut, costs, err);
    if (strcmp(text, "length") != 0)
        return refuse_balance(err, RKS_ERR_ARGUMENT,
                              "--balance: lengths alone have no column '%.120s'; name 'length'",
                              text);
    for (uint64_t i = 0; i < args->count; i++) {
        volatile double cost = length_of(args->lengths[i], cut) * weight;
        costs[i] += cost;
    }
    return RKS_OK;
}

static rks_status add_terms(rks_store *store, const cli_plan_args *args, uint32_t cut,
                            double *costs, rks_error *err)
{
    char *text = strdup(args->balance), *rest = NULL;
    if (text == NULL)
        return refuse_balance(err, RKS_ERR_MEMORY, "out of memory: %s", "balance");
    char *one = strtok_r(text, ",", &rest);
    rks_status status = RKS_OK;
    if (one == NULL)
        status = refuse_balance(err, RKS_ERR_ARGUMENT, "--balance: %s", "no column is named");
    for (; status == RKS_OK && one != NULL; one = strtok_r(NULL, ",", &rest))
        status = add_term(store, args, one, cut, costs, err);
    free(text);
    return status;
}

/* Whole numbers, the largest of 32 bits. */
static rks_status round_costs(const uint32_t *lengths, uint64_t count, const double *costs,
                              uint32_t *rounded, rks_error *err)
{
    double largest = 0;
    int exponent = 0;
    bool good = true;
    for (uint64_t i = 0; i < count; i++) {
        if (lengths[i] == UINT32_MAX)
            continue;
        good = good && isfinite(costs[i]) && costs[i] >= 0;
        largest = costs[i] > largest ? costs[i] : largest;
    }
    if (!good || (count > 0 && largest == 0))
        return refuse_balance(err, RKS_ERR_ARGUMENT, "--balance: %s",
                              "costs must be finite and at least 0, and one must be above 0");
    (void)frexp(largest, &exponent);
    for (uint64_t i = 0; i < count; i++)
        rounded[i] = lengths[i] == UINT32_MAX ? 0 : (uint32_t)rint(ldexp(costs[i], 31 - exponent));
    return RKS_OK;
}

static rks_status make_costs(rks_store *store, cli_plan_args *args, rks_error *err)
{
    static const char polynomial[] = "polynomial:";
    const uint32_t *lengths = store == NULL ? args->lengths : rks_store_sealed_lengths(store);
    uint64_t count = store == NULL ? args->count : rks_store_count(store);
    uint32_t cut = cut_of(&args->options);
    double factors[2], *costs = calloc(count + 1, sizeof(*costs));
    rks_status status = RKS_OK;
    args->taken_balance = malloc((count + 1) * sizeof(uint32_t));
    if (costs == NULL || args->taken_balance == NULL)
        status = refuse_balance(err, RKS_ERR_MEMORY, "out of memory: %s", "balance");
    else if (strncmp(args->balance, polynomial, strlen(polynomial)) != 0)
        status = add_terms(store, args, cut, costs, err);
    else if (!parse_factors(args->balance + strlen(polynomial), factors))
        status = refuse_balance(err, RKS_ERR_ARGUMENT, "--balance: '%.120s' is not polynomial:A,B",
                                args->balance);
    else if (factors[1] != 0 && too_long_is(&args->options, "split"))
        status = refuse_balance(err, RKS_ERR_ARGUMENT, "--balance: %s",
                                "polynomial:A,B counts the square of a whole sample, which "
                                "--too-long split plans in pieces; use --cost polynomial:A,B");
    else
        add_polynomial(lengths, count, cut, factors, costs);
    if (status == RKS_OK)
        status = round_costs(lengths, count, costs, args->taken_balance, err);
    free(costs);
    args->options.balance = args->taken_balance;
    return status;
}

rks_status cli_balance_take(rks_store *store, cli_plan_args *args, rks_error *err)
{
    if (args->balance == NULL)
        return RKS_OK;
    rks_status status = make_costs(store, args, err);
    return store == NULL ? status
                         : rks_group_agree(rks_store_group(store), "plan: balance", status, err);
}

void cli_balance_free(cli_plan_args *args)
{
    free(args->taken_balance);
    args->taken_balance = NULL;
    args->options.balance = NULL;
}
