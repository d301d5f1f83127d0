/* SPDX-License-Identifier: Apache-2.0
 *
 * states_version_2.h: states that planner version 2 saved of mixes, with what it made of them: the
 * digest of the whole epoch, and of what three ranks have left to do. 4,000 samples of 42 sources,
 * of which 40 have a sample each; two ranks. The states are never made anew. */
#ifndef RKS_TESTS_STATES_VERSION_2_H
#define RKS_TESTS_STATES_VERSION_2_H

#include "rankstore/mix.h"

enum { V2_SAMPLES = 4000, V2_SOURCES = 42, V2_EPOCH = 2, V2_STEP = 7 };

typedef struct v2_case {
    const char *strategy;
    uint64_t max_tokens, samples;
    uint32_t batch_size, capacity;
    double rare; /* the weight of each of the 40; those of the others are 3 and 1 */
    bool counts, odds, tokens;
    uint32_t piece; /* longer samples are split */
    bool remixed;   /* v2_remix was called */
} v2_case;

static const v2_case v2_cases[] = {
    {.strategy = "random", .batch_size = 3, .samples = 30000, .rare = 0.0003},
    {.strategy = "sequential", .batch_size = 3, .samples = 30000, .rare = 0.0003},
    {.strategy = "random", .max_tokens = 4096, .samples = 30000, .rare = 0.0003},
    {.strategy = "random", .batch_size = 3, .samples = 9000, .rare = 0.01},
    {.strategy = "bucket", .max_tokens = 4096, .samples = 9000, .rare = 0.05},
    {.strategy = "bucket", .batch_size = 4, .samples = 9000, .rare = 0.05},
    {.strategy = "pack", .capacity = 4096, .samples = 9000, .rare = 0.05},
    {.strategy = "random", .batch_size = 3, .counts = true},
    {.strategy = "random", .batch_size = 3, .samples = 9000, .odds = true},
    {.strategy = "random", .batch_size = 3, .samples = 30000, .rare = 0.0003, .tokens = true},
    {.strategy = "random", .batch_size = 3, .samples = 20000, .rare = 0.0003, .piece = 200},
    {.strategy = "random", .batch_size = 3, .samples = 30000, .rare = 0.0003, .remixed = true},
    {.strategy = "bucket", .max_tokens = 4096, .samples = 9000, .rare = 0.05, .remixed = true},
    {.strategy = "pack",
     .capacity = 300,
     .samples = 9000,
     .rare = 0.05,
     .piece = 300,
     .remixed = true},
};
enum { V2_CASES = sizeof(v2_cases) / sizeof(v2_cases[0]) };

/* The plan of a case. */
static inline rks_status v2_plan(const v2_case *c, const uint32_t *lengths, uint32_t world,
                                 rks_plan **plan, rks_error *error)
{
    uint64_t bounds[V2_SOURCES + 1];
    double weights[V2_SOURCES];
    static uint32_t counts[V2_SAMPLES]; /* borrowed by the plan, as odds are */
    static double odds[V2_SAMPLES];
    for (size_t i = 0; i < V2_SOURCES; i++) {
        bounds[i + 1] = i == 0 ? 3000 : V2_SAMPLES - V2_SOURCES + 1 + i;
        weights[i] = i == 0 ? 3 : i == 1 ? 1 : c->rare;
    }
    bounds[0] = 0;
    for (size_t i = 0; i < V2_SAMPLES; i++)
        odds[i] = counts[i] = (uint32_t)(i % 4);
    rks_plan_mix mix;
    rks_plan_mix_default(&mix);
    mix.sources = V2_SOURCES;
    mix.bounds = bounds;
    mix.weights = c->counts || c->odds ? NULL : weights;
    mix.counts = c->counts ? counts : NULL;
    mix.odds = c->odds ? odds : NULL;
    mix.tokens = c->tokens;
    mix.samples = c->samples;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = c->strategy;
    options.batch_size = c->batch_size;
    options.max_tokens = c->max_tokens;
    options.capacity = c->capacity;
    options.world = world;
    options.too_long = c->piece > 0 ? "split" : options.too_long;
    options.max_length = strcmp(c->strategy, "pack") == 0 ? 0 : c->piece;
    options.seed = 11;
    options.mix = &mix;
    return rks_plan_create(lengths, V2_SAMPLES, NULL, &options, plan, error);
}

/* From the third step of the epoch on, the first source has half of its share. */
static inline rks_status v2_remix(rks_plan *plan, rks_error *error)
{
    double weights[V2_SOURCES];
    for (size_t i = 0; i < V2_SOURCES; i++)
        weights[i] = i == 0 ? 1.5 : i == 1 ? 2.5 : 0.001;
    return rks_plan_change(plan, V2_EPOCH, 3, weights, V2_SOURCES, 0, error);
}

typedef struct v2_state {
    const char *whole, *text, *rest;
} v2_state;

/* clang-format off */
static const v2_state v2_states[] = {
    {"6a3f8036941349b4d6385b52f6ae4da8",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"1c79bf0958cab19c\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"fd9ccfef65f878ce\", \"given\": \"strategy=random "
     "batch_size=3\"}",
     "c586b1ed04d268670d15486759394bc8"},
    {"292b048a559637a11a8d0286315c2934",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"23b23b7a2b9cc279\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"fd9ccfef65f878ce\", \"given\": "
     "\"strategy=sequential batch_size=3\"}",
     "de5155d03c6a0802651a2a2c53501e93"},
    {"d07366505694c0191486c9fc13928b39",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"03206d363a6dc4d0\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"fd9ccfef65f878ce\", \"given\": \"strategy=random "
     "max_tokens=4096\"}",
     "a94d74f6869bef23a87b5e0a81b0fc5c"},
    {"4b0f874eda67f76eba2f69f54c2f658e",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"1c79bf0958cab19c\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"9697e62c49cab3ff\", \"given\": \"strategy=random "
     "batch_size=3\"}",
     "c0c3a6e1c1731205b3a7e767be2c3f8f"},
    {"924586bd5d62db1085553a1a33904a21",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"0c59e3a39622cfd4\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"6eb2834882572856\", \"given\": "
     "\"max_tokens=4096\"}",
     "dafeb4552ef3218503ac3e76fddbc474"},
    {"33c6aecd85f0c844da3c9ec0c3c56673",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"98a4785910c69e33\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"6eb2834882572856\", \"given\": \"batch_size=4\"}",
     "ea059da4315856ff72bdee21f8f71b17"},
    {"c15a7db92acaa0439ed320cb2dc9af1d",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"6c62d54f9f462aee\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"6eb2834882572856\", \"given\": \"strategy=pack "
     "capacity=4096\"}",
     "326e9c6f7b12d85092973183d0d85e1f"},
    {"8f80e4ecaa9490d086793ebdc60a56bc",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"1c79bf0958cab19c\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"2a595e32599a3d0b\", \"given\": \"strategy=random "
     "batch_size=3\"}",
     "5492aa8e9ea773ab95216c788247f651"},
    {"6f87f9e5f33116e8edb80fb5f5c54889",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"1c79bf0958cab19c\", \"seed\": \"11\", "
     "\"epoch\": 2, \"segments\": [[2, 7]], \"mix\": \"f423ffadfe77cc3e\", \"given\": "
     "\"strategy=random batch_size=3\"}",
     "e20934a174979a206ee5012db440bda6"},
    {"b04a370338f35537faadd4c625343785",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"1c79bf0958cab19c\", \"seed\": \"11\", "
     "\"epoch\": 2, \"segments\": [[2, 7]], \"mix\": \"f39777d1197cf703\", \"given\": "
     "\"strategy=random batch_size=3\"}",
     "c5618adb468fe27eb96b4a10bf34c398"},
    {"682878f81afef062681fcb3e7416f48b",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"86245e74123f6140\", \"seed\": \"11\", "
     "\"epoch\": 2, \"segments\": [[2, 7]], \"mix\": \"128413abe38c6652\", \"given\": "
     "\"strategy=random too_long=split batch_size=3 max_length=200\"}",
     "207ca882a2ff41ecfb039e3ac3a31c77"},
    {"e66198f4d8feb5d6aee40f76a355e5c7",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"1c79bf0958cab19c\", \"seed\": \"11\", "
     "\"epoch\": 2, \"segments\": [[2, 7]], \"mix\": \"fd9ccfef65f878ce\", \"changes\": "
     "[[2, 3, 4294967295, [168884986026394, 281474976710656, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684]]], \"given\": \"strategy=random batch_size=3\"}",
     "b6d0feba108d679b9d348ac0f272895d"},
    {"dc20b6bc9420ed9c721c940d68348e0b",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"0c59e3a39622cfd4\", \"seed\": \"11\", "
     "\"epoch\": 2, \"segments\": [[2, 7]], \"mix\": \"6eb2834882572856\", \"changes\": "
     "[[2, 3, 4294967295, [168884986026394, 281474976710656, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684]]], \"given\": \"max_tokens=4096\"}",
     "777917c4f0e1714e2515d7cc0d8789b6"},
    {"24cb766e8bc41dee8b44bc6a61be58e6",
     "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"93ac5f94449a6cb2\", \"seed\": \"11\", "
     "\"epoch\": 2, \"segments\": [[2, 7]], \"mix\": \"6eb2834882572856\", \"changes\": "
     "[[2, 3, 4294967295, [168884986026394, 281474976710656, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684, 112589990684, 112589990684, 112589990684, 112589990684, "
     "112589990684, 112589990684]]], \"given\": \"strategy=pack too_long=split "
     "capacity=300\"}",
     "d4f1e286fba206d954d48a842da1734d"},
};
/* clang-format on */

#endif
