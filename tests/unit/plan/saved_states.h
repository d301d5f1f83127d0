/* SPDX-License-Identifier: Apache-2.0
 *
 * saved_states.h: states of plans without a mix, with what the planner made of them: the digest of
 * the whole epoch, and of what `other` ranks have left to do. They are never made anew. */
#ifndef RKS_TESTS_SAVED_STATES_H
#define RKS_TESTS_SAVED_STATES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct stored_state {
    const char *strategy, *tail, *cost, *too_long, *steps;
    uint32_t batch_size;
    uint64_t max_tokens;
    uint32_t max_length, batch_multiple, world, other, capacity, length_multiple, micro_batches;
    bool mixed;
    double cost_linear, cost_quadratic;
    uint64_t step;
    const char *text, *whole, *rest;
} stored_state;

/* clang-format off */
static const stored_state stored_states[] = {
    {"bucket", "split", "padded", "error", "constant", 0, 5000, 0, 1, 4, 3, 0, 1, 1, false, 0, 0,
     4,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"7a38188c8d6329e7\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[4, 4]], \"given\": \"max_tokens=5000\"}",
     "a4de6d1067323cf39c8016bb18702d88", "ac396f8af849e8d21bed20614b23a5d0"},
    {"bucket", "repeat", "quadratic", "error", "constant", 16, 5000, 0, 8, 8, 4, 0, 1, 1, false, 0, 0,
     11,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"81044c371eee3185\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[8, 11]], \"given\": \"cost=quadratic "
     "tail=repeat batch_size=16 max_tokens=5000 batch_multiple=8\"}",
     "70c1a1cb12d573e083e8f9e81f246e41", "134ab5d65ab91a2a00e39b40fa96c5e6"},
    {"bucket", "drop", "tokens", "alone", "constant", 0, 300, 0, 1, 3, 5, 0, 1, 1, false, 0, 0,
     92,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"7642ad7da584fca3\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[3, 92]], \"given\": \"cost=tokens "
     "too_long=alone tail=drop max_tokens=300\"}",
     "945cf10a7047b1d68a70cc59b57c4d4b", "f7bed84a4d3a5b0a9f14a459c8a80d84"},
    {"bucket", "split", "padded", "error", "constant", 0, 0, 0, 1, 2, 4, 0, 1, 1, false, 0, 0,
     10,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"f8caddd0f6ccd9b4\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[2, 10]], \"given\": \"\"}",
     "941351e931a7361c07744ffd1179c0f2", "dcf480e412ab44b80f869cb143db1d30"},
    {"bucket", "split", "polynomial", "drop", "constant", 0, 2000, 400, 1, 4, 2, 0, 1, 1, false, 1, 0.001,
     8,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"aeb50b78bdab5147\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[4, 8]], \"given\": \"cost=polynomial "
     "too_long=drop max_tokens=2000 max_length=400 cost_linear=137438953472 cost_quadratic=137438953\"}",
     "eb1119964ca8d58e96f9f42be6d57cdd", "aaf42f93379bca906dd5c824eed01f26"},
    {"sorted", "split", "padded", "error", "constant", 0, 5000, 0, 1, 4, 3, 0, 1, 1, false, 0, 0,
     4,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"03a08ff605384983\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[4, 4]], \"given\": \"strategy=sorted "
     "max_tokens=5000\"}",
     "934b12fcae3643abdb9f4c3fce45997e", "3205f7b2a7a669997938392b521d6331"},
    {"sorted", "repeat", "tokens", "error", "constant", 0, 3000, 0, 4, 7, 2, 0, 1, 1, false, 0, 0,
     4,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"9cdea08b49aa760e\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[7, 4]], \"given\": \"strategy=sorted "
     "cost=tokens tail=repeat max_tokens=3000 batch_multiple=4\"}",
     "fa426319580f107bbfd4c5e62c3b607a", "47d89c328818f5374bf0d67c783dca39"},
    {"sorted", "drop", "padded", "truncate", "constant", 16, 0, 300, 1, 4, 2, 0, 1, 1, false, 0, 0,
     20,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"e51bde4693676856\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[4, 20]], \"given\": \"strategy=sorted "
     "too_long=truncate tail=drop batch_size=16 max_length=300\"}",
     "081fc78d113f2f4c4ea1935a59ee783c", "8dbf2b3459b65f9a1559071990038945"},
    {"random", "split", "padded", "error", "constant", 32, 0, 0, 1, 4, 6, 0, 1, 1, false, 0, 0,
     10,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"3411b7c422f66c50\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[4, 10]], \"given\": \"strategy=random "
     "batch_size=32\"}",
     "93eb407069a551eacfc1a3b3377271fb", "c5584f48adfb38cac4fab2409f98864b"},
    {"random", "split", "padded", "truncate", "constant", 0, 400, 0, 1, 8, 4, 0, 1, 1, false, 0, 0,
     166,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"79ca821bc0991245\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[8, 166]], \"given\": \"strategy=random "
     "too_long=truncate max_tokens=400\"}",
     "864cc8f614dfe6bc26624a809688510f", "fcf05cd003a755ce46f1b65ae561546b"},
    {"random", "split", "padded", "error", "constant", 0, 1024, 0, 1, 4, 3, 0, 1, 1, false, 0, 0,
     166,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"9fc19047984e0310\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[4, 166]], \"given\": \"strategy=random "
     "max_tokens=1024\"}",
     "d906468ec5ed6fa5ddc3f2a21c95d68d", "4ec1cfd89b39650d06314601fca3a324"},
    {"random", "split", "tokens", "error", "per_epoch", 0, 2000, 0, 1, 2, 3, 0, 1, 1, false, 0, 0,
     20,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"75a91a919cd6cec7\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[2, 20]], \"given\": \"strategy=random "
     "cost=tokens steps=per_epoch max_tokens=2000\"}",
     "6952b7a87627d83d7244fd38403945c8", "b8aa369ee8d17b23fe439bbdd6e4af4d"},
    {"sequential", "split", "padded", "drop", "constant", 0, 350, 0, 1, 4, 3, 0, 1, 1, false, 0, 0,
     102,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"e98f9cc87c6da625\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[4, 102]], \"given\": \"strategy=sequential "
     "too_long=drop max_tokens=350\"}",
     "447f280c77b121835c92327e005ca56f", "15552adf27ae4401d6ee8bf8c882d7a9"},
    {"sequential", "repeat", "padded", "error", "constant", 64, 0, 0, 1, 7, 2, 0, 1, 1, false, 0, 0,
     3,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"1c35f33cdbe2df1a\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[7, 3]], \"given\": \"strategy=sequential "
     "tail=repeat batch_size=64\"}",
     "f30ed532a26820b8ca33cc933d975964", "85e8818cbcfaba116ca2326788a93032"},
    {"pack", "split", "tokens", "error", "constant", 1, 0, 0, 1, 8, 3, 8192, 1, 1, false, 0, 0,
     1,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"96d1c80726a77d36\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[8, 1]], \"given\": \"strategy=pack "
     "cost=tokens batch_size=1 capacity=8192\"}",
     "4efeb5dba50e48d57dc491bf117ad9a1", "87a18fcadf958807ac311c5ab3851dd9"},
    {"pack", "split", "quadratic", "error", "constant", 4, 0, 0, 1, 3, 8, 8192, 1, 1, false, 0, 0,
     1,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"332e91bd65b14ed4\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[3, 1]], \"given\": \"strategy=pack "
     "cost=quadratic batch_size=4 capacity=8192\"}",
     "e8fecd583119b95c2f6490c0ca323ee8", "631cdbd59e93af458daead8283461bd0"},
    {"pack", "repeat", "polynomial", "truncate", "constant", 2, 0, 300, 1, 8, 2, 4096, 16, 1, false, 1, 1.0 / 49152,
     1,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"6b571f26c81629ed\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[8, 1]], \"given\": \"strategy=pack "
     "cost=polynomial too_long=truncate tail=repeat batch_size=2 max_length=300 capacity=4096 "
     "length_multiple=16 cost_linear=137438953472 cost_quadratic=2796203\"}",
     "886e1ed6f53eb9246cfd8fb801369a86", "ceabea98f2f0429b8bac23f9dc2543dd"},
    {"pack", "drop", "polynomial", "error", "constant", 1, 0, 0, 1, 4, 2, 2048, 1, 4, true, 1, 1.0 / 49152,
     8,
     "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
     "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"ee3209019be02b9a\", "
     "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[4, 8]], \"given\": \"strategy=pack "
     "cost=polynomial tail=drop batch_size=1 capacity=2048 micro_batches=4 mixed=1 cost_linear=137438953472 "
     "cost_quadratic=2796203\"}",
     "452adfac47573da064076b96a951bea7", "c145cc7915795bf977c84f2a2959312e"},
};
/* clang-format on */

#endif
