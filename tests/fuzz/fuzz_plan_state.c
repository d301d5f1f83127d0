/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_plan_state.c: any text as a plan's state. The first byte chooses the strategy, the ranks and
 * how the rest is used: as the whole text, or as the segments of a state that is right otherwise,
 * since a fuzzer cannot guess its digests. */
#include "fuzz.h"

#include "plan/plan.h"

enum { SAMPLES = 64, STRATEGIES = 6 };

static rks_plan *make_plan(unsigned strategy, uint32_t world, const uint32_t *lengths)
{
    static const char *const names[STRATEGIES] = {"bucket",     "sorted", "random",
                                                  "sequential", "pack",   "pack"};
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = names[strategy];
    if (strategy < 4) {
        options.max_tokens = 40;
    } else {
        options.capacity = 40;
        options.micro_batches = 1 + strategy % 2; /* steps come in pairs */
    }
    options.world = world;
    rks_plan *plan = NULL;
    FUZZ_CHECK(rks_plan_create(lengths, SAMPLES, NULL, &options, &plan, NULL) == RKS_OK);
    return plan;
}

/* A state of `plan` with these bytes as its segments. */
static char *with_segments(rks_plan *plan, const uint8_t *data, size_t size)
{
    static const char field[] = "\"segments\": ";
    char state[RKS_STATE_MAX];
    FUZZ_CHECK(rks_plan_state(plan, 1, 0, state, sizeof(state), NULL) == RKS_OK);
    char *at = strstr(state, field);
    FUZZ_CHECK(at != NULL);
    size_t head = (size_t)(at - state) + sizeof(field) - 1;
    char *text = malloc(head + size + 2);
    FUZZ_CHECK(text != NULL);
    memcpy(text, state, head);
    memcpy(text + head, data, size);
    memcpy(text + head + size, "}", 2);
    return text;
}

/* What was taken over must hold: each batch, and a state that leads to the same place. */
static void check_place(rks_plan *plan, uint64_t epoch, uint64_t step)
{
    uint64_t steps = 0;
    FUZZ_CHECK(rks_plan_steps(plan, epoch, &steps, NULL) == RKS_OK);
    FUZZ_CHECK(step <= steps);
    uint8_t seen[SAMPLES] = {0};
    for (uint64_t slot = 0; slot < steps * rks_plan_world(plan); slot++) {
        const uint32_t *ids;
        size_t count = 0;
        uint32_t rank = (uint32_t)(slot % rks_plan_world(plan));
        FUZZ_CHECK(rks_plan_batch(plan, epoch, slot / rks_plan_world(plan), rank, &ids, &count,
                                  NULL) == RKS_OK);
        FUZZ_CHECK(count > 0);
        for (size_t i = 0; i < count; i++)
            FUZZ_CHECK(ids[i] < SAMPLES && seen[ids[i]]++ == 0);
    }
    char state[RKS_STATE_MAX];
    uint64_t same_epoch = 0, same_step = 0;
    if (rks_plan_state(plan, epoch, step, state, sizeof(state), NULL) != RKS_OK)
        return; /* too many segments, or an epoch at the end of numbers */
    FUZZ_CHECK(rks_plan_resume(plan, state, &same_epoch, &same_step, NULL) == RKS_OK);
    FUZZ_CHECK(same_epoch == epoch && same_step == step);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    uint32_t lengths[SAMPLES];
    for (uint32_t i = 0; i < SAMPLES; i++)
        lengths[i] = 1 + i * 7 % 20;
    rks_plan *plan = make_plan(data[0] % STRATEGIES, 1 + data[0] / STRATEGIES % 4, lengths);
    char *text;
    if (data[0] >= 128) {
        text = with_segments(plan, data + 1, size - 1);
    } else {
        text = malloc(size);
        FUZZ_CHECK(text != NULL);
        memcpy(text, data + 1, size - 1);
        text[size - 1] = '\0';
    }
    uint64_t epoch = 0, step = 0;
    rks_status status = rks_plan_resume(plan, text, &epoch, &step, NULL);
    FUZZ_CHECK(status == RKS_OK || status == RKS_ERR_STATE || status == RKS_ERR_DATA);
    if (status != RKS_OK)
        epoch = step = 0;
    check_place(plan, epoch, step);
    free(text);
    rks_plan_free(plan);
    FUZZ_CHECK(rks_memory_in_use() == 0);
    return 0;
}
