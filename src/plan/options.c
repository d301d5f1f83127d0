/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c: reads plan options: their defaults, checks, and digest. */
#include "plan/strategy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static const char *const costs[] = {"padded", "tokens", "quadratic", "polynomial", NULL};
static const char *const too_longs[] = {"error", "drop", "alone", "truncate", "split", NULL};
static const char *const tails[] = {"split", "repeat", "drop", NULL};
static const char *const steps[] = {"constant", "per_epoch", NULL};
static const char *const orders[] = {"plan", "longest_first", NULL};

void(rks_plan_options_default)(rks_plan_options *options)
{
    if (options == NULL)
        return;
    memset(options, 0, sizeof(*options));
    options->struct_size = sizeof(*options);
    options->strategy = rks_strategy_at(0)->name;
    options->cost = costs[0];
    options->too_long = too_longs[0];
    options->tail = tails[0];
    options->steps = steps[0];
    options->batch_multiple = 1;
    options->length_multiple = 1;
    options->micro_batches = 1;
}

/* Returns how many letters to insert, delete or change (Levenshtein), of the first 31 letters. */
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

/* Returns true if fewer than half of the letters differ. */
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
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s \"%.40s\" is not one of %s", option, value,
                        list);
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s \"%.40s\": did you mean \"%s\"? (one of %s)",
                    option, value, names[nearest], list);
}

static rks_status read_names(const rks_plan_options *options, rks_plan_config *config,
                             rks_error *err)
{
    unsigned strategy, cost, too_long, tail, step, order;
    const char *strategies[8] = {NULL}; /* one more than there are */
    for (size_t i = 0; i + 1 < sizeof(strategies) / sizeof(strategies[0]); i++)
        strategies[i] = rks_strategy_at(i) == NULL ? NULL : rks_strategy_at(i)->name;
    rks_status status = choose("strategy", options->strategy, strategies, &strategy, err);
    if (status == RKS_OK)
        status = choose("cost", options->cost, costs, &cost, err);
    if (status == RKS_OK)
        status = choose("too_long", options->too_long, too_longs, &too_long, err);
    if (status == RKS_OK)
        status = choose("tail", options->tail, tails, &tail, err);
    if (status == RKS_OK)
        status = choose("steps", options->steps, steps, &step, err);
    if (status == RKS_OK)
        status = choose("order", options->order, orders, &order, err);
    if (status != RKS_OK)
        return status;
    config->strategy = rks_strategy_at(strategy);
    config->cost = (enum cost)cost;
    config->too_long = (enum too_long)too_long;
    config->tail = (enum tail)tail;
    config->per_epoch = step == 1;
    config->longest_first = order == 1;
    return RKS_OK;
}

static rks_status check_most(const char *name, uint64_t value, uint64_t most, rks_error *err)
{
    return value <= most ? RKS_OK
                         : rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s %" PRIu64 " is above %" PRIu64,
                                    name, value, most);
}

static rks_status misfit(const char *option, const char *why, rks_error *err)
{
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s cannot be used with strategy=pack: %s", option,
                    why);
}

/* Checks which options go with pack, and which only with pack. */
static rks_status check_pack(const rks_plan_options *options, const rks_plan_config *config,
                             rks_error *err)
{
    if (!config->strategy->packs) {
        const char *wrong = options->capacity != 0      ? "capacity"
                            : config->micro_batches > 1 ? "micro_batches"
                            : options->mixed            ? "mixed"
                            : options->pack_window != 0 ? "pack_window"
                                                        : NULL;
        return wrong == NULL ? RKS_OK
                             : rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s needs strategy=pack", wrong);
    }
    if (options->capacity == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "strategy=pack needs a capacity");
    if (options->max_tokens != 0)
        return misfit("max_tokens", "capacity and batch_size bound a batch", err);
    if (config->multiple > 1)
        return misfit("batch_multiple", "set batch_size, the bins of a batch", err);
    if (config->too_long == TOO_LONG_ALONE)
        return misfit("too_long=alone", "a bin holds at most capacity", err);
    if (options->capacity % config->length_multiple != 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "capacity %" PRIu32 " is not a multiple of length_multiple %" PRIu32,
                        options->capacity, config->length_multiple);
    rks_status status = check_most("capacity", options->capacity, RKS_PLAN_CAPACITY_MAX, err);
    if (status == RKS_OK)
        status = check_most("micro_batches", config->micro_batches, RKS_PLAN_MICRO_MAX, err);
    return status;
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
    if (config->max_tokens < config->length_multiple)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "max_tokens %" PRIu64 " is below length_multiple %" PRIu32,
                        config->max_tokens, config->length_multiple);
    if (config->per_epoch && (config->strategy->order != RKS_ORDER_ANY || options->max_tokens == 0))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "steps \"per_epoch\" needs strategy=random and max_tokens");
    return check_most("length_multiple", config->length_multiple, RKS_PLAN_MULTIPLE_MAX, err);
}

/* Adds options that few plans have. Writes nothing for their defaults. */
static size_t digest_rare(const rks_plan_config *config, char *text, size_t room)
{
    size_t size = 0;
    if (config->strategy->packs)
        size += (size_t)snprintf(text, room,
                                 " capacity=%" PRIu32 " length_multiple=%" PRIu32
                                 " micro_batches=%" PRIu32 " mixed=%d",
                                 config->capacity, config->length_multiple, config->micro_batches,
                                 config->mixed ? 1 : 0);
    else if (config->length_multiple > 1)
        size += (size_t)snprintf(text, room, " length_multiple=%" PRIu32, config->length_multiple);
    if (config->pack_window > 0)
        size += (size_t)snprintf(text + size, room - size, " pack_window=%" PRIu32,
                                 config->pack_window);
    if (config->longest_first)
        size += (size_t)snprintf(text + size, room - size, " order=%s", orders[1]);
    if (config->cost == COST_POLYNOMIAL)
        size += (size_t)snprintf(text + size, room - size,
                                 " cost_linear=%" PRIu64 " cost_quadratic=%" PRIu64,
                                 config->cost_linear, config->cost_quadratic);
    return size;
}

/* Digests a text of the options that decide the batches. */
static void digest_options(const rks_plan_options *options, rks_plan_config *config)
{
    char text[512];
    size_t size = (size_t)snprintf(
        text, sizeof(text),
        "strategy=%s batch_size=%" PRIu32 " max_tokens=%" PRIu64 " cost=%s max_length=%" PRIu32
        " too_long=%s tail=%s steps=%s"
        " batch_multiple=%" PRIu32 " no_shuffle=%d",
        config->strategy->name, config->batch_size, config->max_tokens, costs[config->cost],
        options->max_length, too_longs[config->too_long], tails[config->tail],
        steps[config->per_epoch ? 1 : 0], config->multiple, config->no_shuffle ? 1 : 0);
    size += digest_rare(config, text + size, sizeof(text) - size);
    snprintf(config->digest, sizeof(config->digest), "%016" PRIx64, rks_checksum64(text, size));
}

/* Writes the options as words for people, so that an error can name the one that differs. */
static void word_options(const rks_plan_options *options, rks_plan_config *config)
{
    bool polynomial = config->cost == COST_POLYNOMIAL;
    const struct {
        const char *name, *value, *normal;
    } texts[] = {
        {"strategy", config->strategy->name, rks_strategy_at(0)->name},
        {"cost", costs[config->cost], costs[0]},
        {"too_long", too_longs[config->too_long], too_longs[0]},
        {"tail", tails[config->tail], tails[0]},
        {"steps", steps[config->per_epoch ? 1 : 0], steps[0]},
        {"order", orders[config->longest_first ? 1 : 0], orders[0]},
    };
    const struct {
        const char *name;
        uint64_t value, normal;
    } numbers[] = {
        {"batch_size", options->batch_size, 0},
        {"max_tokens", options->max_tokens, 0},
        {"max_length", options->max_length, 0},
        {"batch_multiple", config->multiple, 1},
        {"no_shuffle", config->no_shuffle, 0},
        {"capacity", config->capacity, 0},
        {"length_multiple", config->length_multiple, 1},
        {"micro_batches", config->micro_batches, 1},
        {"mixed", config->mixed, 0},
        {"pack_window", config->pack_window, 0},
        {"cost_linear", polynomial ? config->cost_linear : 0, 0},
        {"cost_quadratic", polynomial ? config->cost_quadratic : 0, 0},
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

/* Copies the struct. A struct of an older caller is shorter; the rest gets its defaults. */
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

/* Reads the factors that measure pack's bins, and with cost=polynomial other batches. */
static rks_status read_cost(const rks_plan_options *options, rks_plan_config *config,
                            rks_error *err)
{
    if (config->cost == COST_POLYNOMIAL)
        return rks_plan_cost_read(options->cost_linear, options->cost_quadratic, config, err);
    if (options->cost_linear != 0 || options->cost_quadratic != 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "cost_linear and cost_quadratic need cost=polynomial");
    config->cost_linear = config->cost != COST_QUADRATIC;
    config->cost_quadratic = config->cost == COST_QUADRATIC;
    return RKS_OK;
}

/* Sets how long a sample may be, and which option says so. */
static void set_limit(const rks_plan_options *options, rks_plan_config *config)
{
    config->limit = options->max_length == 0 ? UINT32_MAX : options->max_length;
    config->limit_by = "max_length";
    uint64_t room = config->max_tokens - config->max_tokens % config->length_multiple;
    if (config->max_tokens != UINT64_MAX && room < config->limit) {
        config->limit = (uint32_t)room;
        config->limit_by = room == config->max_tokens
                               ? "max_tokens"
                               : "max_tokens (in multiples of length_multiple)";
    }
    if (config->strategy->packs && config->capacity < config->limit) {
        config->limit = config->capacity;
        config->limit_by = "capacity";
    }
    config->clamp = config->too_long == TOO_LONG_TRUNCATE ? config->limit : UINT32_MAX;
}

/* Returns what lengths are rounded up to. 0 stands for the default of padded batches: 8, or less if
 * the budget is not a multiple of 8. Bins and sums of lengths have no padding. */
static uint32_t multiple_of(const rks_plan_options *options, const rks_plan_config *config)
{
    enum { PADDED = 8 };
    if (options->length_multiple != 0)
        return options->length_multiple;
    if (config->strategy->packs || config->cost == COST_TOKENS)
        return 1;
    uint32_t multiple = PADDED;
    while (options->max_tokens % multiple != 0)
        multiple /= 2;
    return multiple;
}

/* Checks the options, which are complete, and reads them into a config without digest and words. */
static rks_status read_config(const rks_plan_options *options, rks_plan_config *config,
                              rks_error *err)
{
    rks_plan_config read = {0};
    rks_status status = read_names(options, &read, err);
    if (status != RKS_OK)
        return status;

    read.no_shuffle = options->no_shuffle;
    read.batch_size = options->batch_size;
    if (options->batch_size == 0)
        read.batch_size = read.strategy->packs ? 1 : options->max_tokens == 0 ? 64 : UINT32_MAX;
    read.max_tokens = options->max_tokens == 0 ? UINT64_MAX : options->max_tokens;
    read.multiple = options->batch_multiple == 0 ? 1 : options->batch_multiple;
    read.world = options->world == 0 ? 1 : options->world;
    read.seed = options->seed;
    read.capacity = options->capacity;
    read.length_multiple = multiple_of(options, &read);
    read.micro_batches = options->micro_batches == 0 ? 1 : options->micro_batches;
    read.mixed = options->mixed;
    read.pack_window = options->pack_window;
    read.balance = options->balance;
    read.skip = options->skip;
    read.skips = options->skips;
    status = check_numbers(options, &read, err);
    if (status == RKS_OK)
        status = check_pack(options, &read, err);
    if (status == RKS_OK)
        status = read_cost(options, &read, err);
    if (status != RKS_OK)
        return status;
    set_limit(options, &read);
    read.mix = options->mix;
    read.alone_in_order = options->mix != NULL && read.strategy->order == RKS_ORDER_ANY &&
                          read.too_long == TOO_LONG_ALONE;
    *config = read;
    return RKS_OK;
}

rks_status rks_plan_config_read(const rks_plan_options *given, rks_plan_config *config,
                                rks_error *err)
{
    rks_plan_options options;
    rks_plan_config read;
    rks_status status = read_struct(given, &options, err);
    if (status == RKS_OK)
        status = read_config(&options, &read, err);
    if (status != RKS_OK)
        return status;
    digest_options(&options, &read);
    word_options(&options, &read);
    *config = read;
    return RKS_OK;
}

/* Returns the most items of a batch; 0: no bound. */
static uint64_t budget_of(const rks_plan_config *config)
{
    if (config->strategy->packs)
        return (uint64_t)config->capacity * config->batch_size;
    return config->max_tokens == UINT64_MAX ? 0 : config->max_tokens;
}

rks_status rks_plan_limits_get(const rks_plan_options *given, rks_plan_limits *limits,
                               rks_error *err)
{
    rks_plan_options options;
    rks_plan_config config;
    if (limits == NULL || limits->struct_size < sizeof(limits->struct_size))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "a plan's limits need a struct with its struct_size");
    rks_status status = read_struct(given, &options, err);
    if (status == RKS_OK)
        status = read_config(&options, &config, err);
    if (status != RKS_OK)
        return status;
    uint32_t limit = config.limit == UINT32_MAX ? 0 : config.limit;
    bool whole = config.too_long != TOO_LONG_ALONE && config.too_long != TOO_LONG_TRUNCATE;
    const rks_plan_limits found = {
        .struct_size = limits->struct_size,
        .budget = budget_of(&config),
        .sums = rks_plan_sums(&config),
        .length_multiple = config.length_multiple,
        .cut = config.too_long == TOO_LONG_TRUNCATE ? limit : 0,
        .longest = whole ? limit : 0,
        .piece = config.too_long == TOO_LONG_SPLIT ? limit : 0,
        .row = config.strategy->packs ? config.capacity : 0,
    };
    memcpy(limits, &found,
           limits->struct_size < sizeof(found) ? limits->struct_size : sizeof(found));
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
    *bytes = rks_plan_sorts(&config) ? count * sizeof(uint32_t) : 0;
    return RKS_OK;
}
