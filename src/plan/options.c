/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c: plan options: defaults, checks, and their digest. */
#include "plan/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static const char *const strategies[] = {"bucket", "sorted", "random", "sequential", NULL};
static const char *const costs[] = {"padded", "tokens", "quadratic", NULL};
static const char *const too_longs[] = {"error", "drop", "alone", "truncate", NULL};
static const char *const tails[] = {"split", "repeat", "drop", NULL};
static const char *const steps[] = {"constant", "per_epoch", NULL};

void rks_plan_options_default(rks_plan_options *options)
{
    if (options == NULL)
        return;
    memset(options, 0, sizeof(*options));
    options->struct_size = sizeof(*options);
    options->strategy = strategies[0];
    options->cost = costs[0];
    options->too_long = too_longs[0];
    options->tail = tails[0];
    options->steps = steps[0];
    options->batch_multiple = 1;
}

/* Letters to insert, delete or change (Levenshtein), of the first 31 letters. */
static size_t distance(const char *a, const char *b)
{
    size_t row[33];
    size_t b_size = strnlen(b, 31);
    for (size_t j = 0; j <= b_size; j++)
        row[j] = j;
    for (size_t i = 1; i < 32 && a[i - 1] != '\0'; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[b_size];
}

/* Half of the letters may differ. */
static bool is_near(const char *a, const char *b)
{
    size_t one = strnlen(a, 31), other = strnlen(b, 31);
    return 2 * distance(a, b) < (one > other ? one : other);
}

static rks_status choose(const char *option, const char *value, const char *const *names,
                         unsigned *choice, rks_error *err)
{
    *choice = 0;
    if (value == NULL)
        return RKS_OK;
    unsigned nearest = 0;
    for (unsigned i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], value) == 0) {
            *choice = i;
            return RKS_OK;
        }
        if (distance(value, names[i]) < distance(value, names[nearest]))
            nearest = i;
    }
    char list[96] = "";
    for (unsigned i = 0; names[i] != NULL; i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i == 0 ? "" : ", ",
                 names[i]);
    if (!is_near(value, names[nearest]))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s \"%.40s\": none of %s", option, value, list);
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s \"%.40s\": did you mean \"%s\"? (one of %s)",
                    option, value, names[nearest], list);
}

static rks_status read_names(const rks_plan_options *options, rks_plan_config *config,
                             rks_error *err)
{
    unsigned strategy, cost, too_long, tail, step;
    rks_status status = choose("strategy", options->strategy, strategies, &strategy, err);
    if (status == RKS_OK)
        status = choose("cost", options->cost, costs, &cost, err);
    if (status == RKS_OK)
        status = choose("too_long", options->too_long, too_longs, &too_long, err);
    if (status == RKS_OK)
        status = choose("tail", options->tail, tails, &tail, err);
    if (status == RKS_OK)
        status = choose("steps", options->steps, steps, &step, err);
    if (status != RKS_OK)
        return status;
    config->strategy = (enum strategy)strategy;
    config->cost = (enum cost)cost;
    config->too_long = (enum too_long)too_long;
    config->tail = (enum tail)tail;
    config->per_epoch = step == 1;
    return RKS_OK;
}

static rks_status check_numbers(const rks_plan_options *options, const rks_plan_config *config,
                                rks_error *err)
{
    if (options->batch_size > RKS_PLAN_BATCH_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "batch_size %" PRIu32 " is above %d",
                        options->batch_size, RKS_PLAN_BATCH_MAX);
    if (config->multiple > RKS_PLAN_BATCH_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "batch_multiple %" PRIu32 " is above %d",
                        config->multiple, RKS_PLAN_BATCH_MAX);
    if (config->multiple > config->batch_size)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "batch_multiple %" PRIu32 " is above batch_size %" PRIu32, config->multiple,
                        config->batch_size);
    if (config->world > RKS_PLAN_WORLD_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "world %" PRIu32 " is above %d", config->world,
                        RKS_PLAN_WORLD_MAX);
    if (config->per_epoch && (config->strategy != STRATEGY_RANDOM || options->max_tokens == 0))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "steps \"per_epoch\" goes with strategy=random and max_tokens only");
    return RKS_OK;
}

/* The options that decide the batches, as text: what equal digests have in common. */
static void digest_options(const rks_plan_options *options, rks_plan_config *config)
{
    char text[256];
    int size = snprintf(text, sizeof(text),
                        "strategy=%s batch_size=%" PRIu32 " max_tokens=%" PRIu64
                        " cost=%s max_length=%" PRIu32 " too_long=%s tail=%s steps=%s"
                        " batch_multiple=%" PRIu32 " no_shuffle=%d",
                        strategies[config->strategy], config->batch_size, config->max_tokens,
                        costs[config->cost], options->max_length, too_longs[config->too_long],
                        tails[config->tail], steps[config->per_epoch ? 1 : 0], config->multiple,
                        config->no_shuffle ? 1 : 0);
    snprintf(config->digest, sizeof(config->digest), "%016" PRIx64,
             rks_checksum64(text, (size_t)size));
}

/* The same for people, who are told which one differs. */
static void word_options(const rks_plan_options *options, rks_plan_config *config)
{
    const struct {
        const char *name, *value, *normal;
    } texts[] = {
        {"strategy", strategies[config->strategy], strategies[0]},
        {"cost", costs[config->cost], costs[0]},
        {"too_long", too_longs[config->too_long], too_longs[0]},
        {"tail", tails[config->tail], tails[0]},
        {"steps", steps[config->per_epoch ? 1 : 0], steps[0]},
    };
    const struct {
        const char *name;
        uint64_t value, normal;
    } numbers[] = {
        {"batch_size", options->batch_size, 0}, {"max_tokens", options->max_tokens, 0},
        {"max_length", options->max_length, 0}, {"batch_multiple", config->multiple, 1},
        {"no_shuffle", config->no_shuffle, 0},
    };
    size_t used = 0, room = sizeof(config->words);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (strcmp(texts[i].value, texts[i].normal) != 0)
            used += (size_t)snprintf(config->words + used, room - used, "%s%s=%s",
                                     used > 0 ? " " : "", texts[i].name, texts[i].value);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i].value != numbers[i].normal)
            used += (size_t)snprintf(config->words + used, room - used, "%s%s=%" PRIu64,
                                     used > 0 ? " " : "", numbers[i].name, numbers[i].value);
}

/* A struct of an older caller is shorter: what it lacks has its default. */
static rks_status read_struct(const rks_plan_options *given, rks_plan_options *options,
                              rks_error *err)
{
    rks_plan_options_default(options);
    if (given == NULL)
        return RKS_OK;
    if (given->struct_size < sizeof(given->struct_size) || given->struct_size > sizeof(*options))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "rks_plan_options: struct_size %zu, not %zu: call its _default first",
                        given->struct_size, sizeof(*options));
    memcpy(options, given, given->struct_size);
    options->struct_size = sizeof(*options);
    return RKS_OK;
}

rks_status rks_plan_config_read(const rks_plan_options *given, rks_plan_config *config,
                                rks_error *err)
{
    rks_plan_options options;
    rks_status status = read_struct(given, &options, err);
    if (status != RKS_OK)
        return status;
    rks_plan_config read = {0};
    status = read_names(&options, &read, err);
    if (status != RKS_OK)
        return status;

    read.no_shuffle = options.no_shuffle;
    read.batch_size = options.batch_size;
    if (options.batch_size == 0)
        read.batch_size = options.max_tokens == 0 ? 64 : UINT32_MAX;
    read.max_tokens = options.max_tokens == 0 ? UINT64_MAX : options.max_tokens;
    read.multiple = options.batch_multiple == 0 ? 1 : options.batch_multiple;
    read.world = options.world == 0 ? 1 : options.world;
    read.seed = options.seed;
    status = check_numbers(&options, &read, err);
    if (status != RKS_OK)
        return status;

    read.limit = options.max_length == 0 ? UINT32_MAX : options.max_length;
    read.limit_by = "max_length";
    if (read.max_tokens < read.limit) {
        read.limit = (uint32_t)read.max_tokens;
        read.limit_by = "max_tokens";
    }
    read.clamp = read.too_long == TOO_LONG_TRUNCATE ? read.limit : UINT32_MAX;
    digest_options(&options, &read);
    word_options(&options, &read);
    *config = read;
    return RKS_OK;
}

rks_status rks_plan_order_bytes(uint64_t count, const rks_plan_options *options, uint64_t *bytes,
                                rks_error *err)
{
    rks_plan_config config;
    rks_status status = rks_plan_config_read(options, &config, err);
    if (status != RKS_OK)
        return status;
    if (count > UINT32_MAX)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "plan: %" PRIu64 " samples; it is made for less than 2^32", count);
    bool sorts = config.strategy == STRATEGY_BUCKET || config.strategy == STRATEGY_SORTED;
    *bytes = sorts ? count * sizeof(uint32_t) : 0;
    return RKS_OK;
}
