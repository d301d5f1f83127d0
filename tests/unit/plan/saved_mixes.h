/* SPDX-License-Identifier: Apache-2.0
 *
 * saved_mixes.h: states of mixes, with what the planner made of them: the digest of the whole
 * epoch, and of what three ranks have left to do. 4,000 samples of 42 sources, of which 40 have a
 * sample each; two ranks. The states are never made anew. */
#ifndef RKS_TESTS_SAVED_MIXES_H
#define RKS_TESTS_SAVED_MIXES_H

#include "rankstore/mix.h"

enum { MIX_SAMPLES = 4000, MIX_SOURCES = 42, MIX_EPOCH = 2, MIX_STEP = 7 };

typedef struct mix_case {
    const char *strategy;
    uint64_t max_tokens, samples;
    uint32_t batch_size, capacity;
    double rare; /* the weight of each of the 40; those of the others are 3 and 1 */
    bool counts, odds, tokens;
    uint32_t piece; /* longer samples are split */
    bool remixed;   /* mix_remix was called */
} mix_case;

static const mix_case mix_cases[] = {
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
enum { MIX_CASES = sizeof(mix_cases) / sizeof(mix_cases[0]) };

/* The plan of a case. */
static inline rks_status mix_plan(const mix_case *c, const uint32_t *lengths, uint32_t world,
                                  rks_plan **plan, rks_error *error)
{
    uint64_t bounds[MIX_SOURCES + 1];
    double weights[MIX_SOURCES];
    static uint32_t counts[MIX_SAMPLES]; /* borrowed by the plan, as odds are */
    static double odds[MIX_SAMPLES];
    for (size_t i = 0; i < MIX_SOURCES; i++) {
        bounds[i + 1] = i == 0 ? 3000 : MIX_SAMPLES - MIX_SOURCES + 1 + i;
        weights[i] = i == 0 ? 3 : i == 1 ? 1 : c->rare;
    }
    bounds[0] = 0;
    for (size_t i = 0; i < MIX_SAMPLES; i++)
        odds[i] = counts[i] = (uint32_t)(i % 4);
    rks_plan_mix mix;
    rks_plan_mix_default(&mix);
    mix.sources = MIX_SOURCES;
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
    return rks_plan_create(lengths, MIX_SAMPLES, NULL, &options, plan, error);
}

/* From the third step of the epoch on, the first source has half of its share. */
static inline rks_status mix_remix(rks_plan *plan, rks_error *error)
{
    double weights[MIX_SOURCES];
    for (size_t i = 0; i < MIX_SOURCES; i++)
        weights[i] = i == 0 ? 1.5 : i == 1 ? 2.5 : 0.001;
    return rks_plan_change(plan, MIX_EPOCH, 3, weights, MIX_SOURCES, 0, error);
}

typedef struct mix_state {
    const char *whole, *text, *rest;
} mix_state;

/* clang-format off */
static const mix_state mix_states[] = {
    {"bf7de9027102916b6594781e5bd19494",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"1c79bf0958cab19c\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"fd9ccfef65f878ce\", \"given\": \"strategy=random "
     "batch_size=3\"}",
     "5c3380713bfb6cd05c2736c4697b1a93"},
    {"4afc48a81d28198e1912329d1a401b3f",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"23b23b7a2b9cc279\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"fd9ccfef65f878ce\", \"given\": "
     "\"strategy=sequential batch_size=3\"}",
     "47c2228ac7f54b73a13f33ce1a9db327"},
    {"2e13a778519b6e6d83f4bea4171a2ccc",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"03206d363a6dc4d0\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"fd9ccfef65f878ce\", \"given\": \"strategy=random "
     "max_tokens=4096\"}",
     "56898b745bc4fb14d44c4cd51b155568"},
    {"4b0f874eda67f76eba2f69f54c2f658e",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"1c79bf0958cab19c\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"9697e62c49cab3ff\", \"given\": \"strategy=random "
     "batch_size=3\"}",
     "c0c3a6e1c1731205b3a7e767be2c3f8f"},
    {"864218d565ded02ddc09252d0861fa4c",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"0c59e3a39622cfd4\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"6eb2834882572856\", \"given\": "
     "\"max_tokens=4096\"}",
     "e48848ceda4cc04347089450d83adabf"},
    {"169e3195e904fea7de5a8416539ed5ba",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"98a4785910c69e33\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"6eb2834882572856\", \"given\": \"batch_size=4\"}",
     "1d2c4c7189c6c22dde65cc1fcbb8ed1f"},
    {"c15a7db92acaa0439ed320cb2dc9af1d",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"6c62d54f9f462aee\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"6eb2834882572856\", \"given\": \"strategy=pack "
     "capacity=4096\"}",
     "326e9c6f7b12d85092973183d0d85e1f"},
    {"8f80e4ecaa9490d086793ebdc60a56bc",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"1c79bf0958cab19c\", \"seed\": \"11\", \"epoch\": "
     "2, \"segments\": [[2, 7]], \"mix\": \"2a595e32599a3d0b\", \"given\": \"strategy=random "
     "batch_size=3\"}",
     "5492aa8e9ea773ab95216c788247f651"},
    {"6f87f9e5f33116e8edb80fb5f5c54889",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"1c79bf0958cab19c\", \"seed\": \"11\", "
     "\"epoch\": 2, \"segments\": [[2, 7]], \"mix\": \"f423ffadfe77cc3e\", \"given\": "
     "\"strategy=random batch_size=3\"}",
     "e20934a174979a206ee5012db440bda6"},
    {"e01485f9a67944beabf72643108e0f15",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"1c79bf0958cab19c\", \"seed\": \"11\", "
     "\"epoch\": 2, \"segments\": [[2, 7]], \"mix\": \"f39777d1197cf703\", \"given\": "
     "\"strategy=random batch_size=3\"}",
     "f83d476e6e8050c594e7f74c0bf9b140"},
    {"40e9318d9c9f3d82eded0bbdefef51ed",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
     "\"ae26ff0baf66b00c\", \"options\": \"86245e74123f6140\", \"seed\": \"11\", "
     "\"epoch\": 2, \"segments\": [[2, 7]], \"mix\": \"128413abe38c6652\", \"given\": "
     "\"strategy=random too_long=split batch_size=3 max_length=200\"}",
     "e860b3be84b69bb7e2e5f10a40ab68d3"},
    {"e18d5b4298441f13736d11772647412b",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
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
     "47b497bb308146bcc0232bedc3a4f01c"},
    {"587f5c1d40fa263b01d80bf4d75d6546",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
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
     "fddcabbd8aabc92cd1a78bbd46aad48e"},
    {"e2445005378cd997e9e4e2daa3c5d935",
     "{\"format\": 1, \"planner\": 3, \"dataset\": null, \"samples\": 4000, \"lengths\": "
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
     "c8287ead81693ec068949a168566eff4"},
};
/* clang-format on */

#endif
