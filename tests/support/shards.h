/* SPDX-License-Identifier: Apache-2.0
 *
 * shards.h: small sealed shards and datasets with known contents, made by the shard writer. A
 * failure on the way fails the test. */
#ifndef RKS_TESTS_SHARDS_H
#define RKS_TESTS_SHARDS_H

#include "dataset/dataset.h"
#include "shard/shard.h"

/* "data:bytes,id:int64,wide:float32[*]?" */
extern const char SHARDS_SCHEMA[];

/* Samples of a shard are numbered first, first + 1, ... ; all about a sample follows from its
 * number. Zeros are the defaults. */
typedef struct shards_recipe {
    uint64_t first;      /* number of the first sample */
    uint64_t samples;    /* default 100 */
    uint64_t units;      /* spread over so many units; default 3 */
    uint64_t first_unit; /* number of the first unit */
    uint32_t size_most;  /* `data` is shorter than this; default 200 */
    uint32_t wide_every; /* each so many-th sample has 5,000 bytes in `wide`; 0: none */
    uint64_t block_size; /* default 64 KiB */
    bool derived_keys;   /* "part UNIT:row", rows step by 2 */
    bool index;          /* `id` travels with the index */
} shards_recipe;

/* A new directory under /tmp; free with shards_directory_remove, which empties it first. */
char *shards_directory(void);
void shards_directory_remove(char *directory);

/* The directory of the test at hand: shards_begin and shards_end are set-up and tear-down of a
 * test; the latter fails where memory is in use. shards_path: of a file in it; valid until the next
 * call. */
extern char *shards_here;
int shards_begin(void **state);
int shards_end(void **state);
char *shards_path(const char *file);

/* Writes and seals DIRECTORY/NAME. */
void shards_write(const char *directory, const char *name, const shards_recipe *recipe);
/* Writes DIRECTORY/dataset.json over sealed shards. */
void shards_commit(const char *directory, const char *const *names, size_t count);
/* A dataset of one shard, "a", in shards_here. */
void shards_dataset(const shards_recipe *recipe);
/* DIRECTORY/NAME.json, opened. */
rks_shard *shards_open(const char *directory, const char *name);

/* What sample `number` is. */
uint32_t shards_length(uint64_t number);
size_t shards_data_size(const shards_recipe *recipe, uint64_t number);
uint8_t shards_data_byte(uint64_t number, size_t at);
/* The key of the row-th sample of the shard, in key[RKS_KEY_MAX + 1]; its size. */
size_t shards_key(const shards_recipe *recipe, uint64_t row, char *key);
/* Does the payload hold exactly what was added? */
bool shards_payload_right(const shards_recipe *recipe, const rks_schema *schema, uint64_t row,
                          const uint8_t *payload, size_t size);

/* Whole files, for damaging them. *size may be NULL. free() the bytes. */
uint8_t *shards_load(const char *directory, const char *file, size_t *size);
/* Both directories have the same three files of the shard. */
void shards_same(const char *one, const char *other, const char *name);
/* Changes bits of one byte where it lies. */
void shards_flip(const char *directory, const char *file, size_t at, uint8_t bits);
void shards_store(const char *directory, const char *file, const void *bytes, size_t size);
/* a.rks in shards_here becomes these bytes, with sums and manifest that agree with them.
 * page_size 0: as it was; else a page of that size is added, which names the shard. */
void shards_seal_again(const uint8_t *bytes, size_t size, uint32_t page_size);

#endif
