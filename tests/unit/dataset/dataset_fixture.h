/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_fixture.h: a dataset.json in memory. */
#ifndef RKS_TESTS_DATASET_FIXTURE_H
#define RKS_TESTS_DATASET_FIXTURE_H

#include "unit/shard/shard_fixture.h"

#include "dataset/dataset.h"

typedef struct fixture {
    rks_dataset dataset;
    rks_dataset_shard shards[2];
    rks_dataset_unit units[4];
    char *index[1];
} fixture;

/* Two shards, four units, one of them empty; shard 1 has the lower id. */
static inline void good_fixture(fixture *f, rks_schema *schema)
{
    *f = (fixture){
        .shards = {{.id = {9, 9},
                    .manifest = {10, 11},
                    .name = "part-0",
                    .samples = 8,
                    .bytes = 80,
                    .file_bytes = 9000,
                    .largest = 40},
                   {.id = {1, 1},
                    .manifest = {12, 13},
                    .name = "part-1",
                    .samples = 3,
                    .bytes = 30,
                    .file_bytes = 8000,
                    .largest = 41}},
        .units = {{.summary = {.unit = 0, .seen = 5, .samples = 5, .bytes = 50, .digest = {1, 2}},
                   .shard = 0,
                   .first_row = 3,
                   .key_name = "a"},
                  {.summary = {.unit = 1,
                               .seen = 4,
                               .samples = 3,
                               .filtered = 1,
                               .bytes = 30,
                               .digest = {3, 4}},
                   .shard = 1,
                   .first_row = 0,
                   .key_name = "b/\xc3\xa4"},
                  {.summary = {.unit = 5,
                               .seen = 3,
                               .samples = 3,
                               .bytes = 30,
                               .digest = {5, 6},
                               .first_source_row = 77},
                   .shard = 0,
                   .first_row = 0,
                   .key_name = "c\xff"},
                  {.summary = {.unit = 6, .seen = 2, .bad = 2, .digest = {7, 8}},
                   .shard = 0,
                   .first_row = 3,
                   .key_name = "d\"\\\x01"}},
        .index = {(char *)"n"},
    };
    f->dataset = (rks_dataset){.build_id = {3, 4},
                               .count = 11,
                               .schema = schema,
                               .derived_keys = true,
                               .index = f->index,
                               .index_count = 1,
                               .shards = f->shards,
                               .shard_count = 2,
                               .units = f->units,
                               .unit_count = 4,
                               .build_options = (char *)"{\"where\": \"n > 3\", \"b\": [1]}"};
    f->dataset.id = rks_dataset_fold(f->units, 4, schema);
}

#endif
