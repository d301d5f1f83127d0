/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset.h: dataset.json, which makes a set of sealed shards one dataset. Its picture is in
 * dataset_json.c. */
#ifndef RKS_DATASET_DATASET_H
#define RKS_DATASET_DATASET_H

#include "base/checksum.h"
#include "dataset/dataset_list.h"
#include "dataset/excluded.h"
#include "shard/schema.h"
#include "shard/shard_writer.h"

enum { RKS_MADE_FROM_MAX = 128 };

typedef struct rks_dataset_shard {
    rks_digest id;
    rks_digest manifest; /* digest of its manifest */
    char name[128];      /* file name without ending; no slash */
    uint64_t samples;
    uint64_t bytes;
    uint64_t file_bytes;
    uint64_t largest; /* bytes of its largest record */
    /* Of a dataset that several builds made: the build that wrote it, and what its own unit numbers
     * are below those of the dataset. All zero: the dataset's build, and 0. */
    rks_digest build;
    uint64_t first_unit;
    uint32_t list; /* of dataset->lists, which has it, counted from 1; 0: dataset.json itself */
} rks_dataset_shard;

typedef struct rks_dataset_unit {
    rks_unit_summary summary;
    uint32_t shard;       /* index into shards */
    uint64_t first_row;   /* in that shard */
    const char *key_name; /* for derived keys; NULL if keys are stored */
} rks_dataset_unit;

typedef struct rks_dataset rks_dataset;

/* One of the datasets that rks_dataset_unite made one of. */
typedef struct rks_dataset_source {
    rks_dataset *dataset;
    char *name;
    char *directory;      /* on this rank; NULL: not said */
    uint64_t first;       /* its first sample id in the united dataset */
    uint32_t first_shard; /* likewise */
} rks_dataset_source;

/* Owned whole by rks_dataset_free. Units are sorted by number, so ids follow from them. Shards in
 * any order when encoded (the file has them by id), by id when decoded. */
struct rks_dataset {
    rks_digest id;
    rks_digest build_id;
    uint64_t count; /* N: samples that count */
    rks_schema *schema;
    bool derived_keys;
    char **index; /* index column names */
    size_t index_count;
    rks_dataset_shard *shards;
    size_t shard_count;
    rks_dataset_unit *units;
    size_t unit_count;
    char *build_options;   /* JSON text: what was asked for, for people */
    char made_from[RKS_MADE_FROM_MAX + 1]; /* the builder's words, printable ASCII; empty: none */
    uint64_t generation;   /* from 1; 0 counts as 1 */
    uint64_t unit_size;    /* bytes of input in a unit of the newest build; 0: not recorded */
    rks_excluded excluded; /* `samples` 0: nothing is */
    /* Files beside dataset.json that hold the first of the shards and units, as it was read; what was
     * made in memory has none. rks_dataset_encode puts everything into one text. */
    rks_dataset_list lists[RKS_DATASET_LISTS_MAX];
    size_t list_count;
    rks_dataset_source *sources; /* of a united dataset; in memory only */
    size_t source_count;         /* 0: it is not united */
};

/* Folds the unit digests, in unit order, into the dataset id. */
rks_digest rks_dataset_fold(const rks_dataset_unit *units, size_t count, const rks_schema *schema);
/* The id: that fold and, where samples are excluded, their list's digest. */
rks_digest rks_dataset_id(const rks_dataset *dataset);
/* Samples in the shards, excluded ones among them. */
uint64_t rks_dataset_stored(const rks_dataset *dataset);
/* Column and key bytes of the samples that count. */
uint64_t rks_dataset_bytes(const rks_dataset *dataset);

/* The samples of `a`, then those of `b`: units of `b` get the numbers after those of `a`. Shards
 * stay as they are sealed. RKS_ERR_ARGUMENT names what differs (schema, index columns, kind of
 * keys); RKS_ERR_DATA if a shard, or the name of one, is in both. The build, and generation + 1,
 * are b's and a's. */
rks_status rks_dataset_join(const rks_dataset *a, const rks_dataset *b, rks_dataset **joined,
                            rks_error *err);
/* The same of `count` datasets, at least one: the build is the last one's, and the generation the first
 * one's + 1. On failure *which is the first one that does not fit to those before it. */
rks_status rks_dataset_join_all(const rks_dataset *const *parts, size_t count,
                                rks_dataset **joined, size_t *which, rks_error *err);
/* The same dataset with its shards by id, as one that is read from a file without lists; the runs of
 * excluded samples too. RKS_ERR_ARGUMENT as rks_dataset_encode. Not of a united dataset. */
rks_status rks_dataset_copy(const rks_dataset *dataset, rks_dataset **copy, rks_error *err);
/* The shards that `chosen[i]` is set for, with their units, as a dataset in memory. The dataset
 * neither excludes samples nor is united. */
rks_status rks_dataset_choose(const rks_dataset *dataset, const bool *chosen, rks_dataset **made,
                              rks_error *err);
enum { RKS_SOURCES_MAX = 65535 };

/* One dataset in memory over the shards of several: the samples of the first, then those of the
 * second, and on. `columns` (NULL: all) are those that samples have, in the order in which the
 * sources have them first; one that a source lacks is nullable, and missing there. Index columns
 * are those that all sources have as such. Takes `datasets` over, also on failure. The id is that
 * of the sources' ids in order; of one source alone, its own. RKS_ERR_ARGUMENT names the sources
 * and the column whose types differ, a name that appears twice, or a column that none has. */
rks_status rks_dataset_unite(rks_dataset **datasets, const char *const *names, size_t count,
                             const char *const *columns, size_t column_count, rks_dataset **united,
                             rks_error *err);
/* The source that the shard, or the sample id, is of; the dataset is united. */
size_t rks_dataset_source_of_shard(const rks_dataset *dataset, size_t shard);
size_t rks_dataset_source_of_id(const rks_dataset *dataset, uint64_t id);
/* The dataset as the shard's manifest knows it: schema, index columns, kind of keys. */
const rks_dataset *rks_dataset_of_shard(const rks_dataset *dataset, size_t shard);
/* The build that wrote the shard. */
rks_digest rks_dataset_build_of(const rks_dataset *dataset, size_t shard);

/* Generations: dataset.json is the newest one, dataset.N.json an older one. */

/* 0: the newest. RKS_ERR_NOT_FOUND names those that are there. */
rks_status rks_dataset_load_generation(const char *directory, uint64_t generation,
                                       rks_dataset **dataset, rks_error *err);
/* The '@' of "DIR@2", which stands for generation 2 of DIR; NULL: no such name. */
const char *rks_dataset_generation_sign(const char *name);
/* Cuts that off, unless there is something of that very name. 0: none is named. */
uint64_t rks_dataset_take_generation(char *directory);
/* What a generation's file says without the lists that it refers to. */
typedef struct rks_dataset_summary {
    rks_digest id;
    uint64_t generation; /* from 1 */
    uint64_t samples;
    uint64_t bytes; /* column and key bytes of the samples that count */
    rks_dataset_list lists[RKS_DATASET_LISTS_MAX];
    size_t list_count;
} rks_dataset_summary;

/* Of "DIRECTORY/dataset.N.json", or of dataset.json (0). */
rks_status rks_dataset_summarize(const char *directory, uint64_t generation,
                                 rks_dataset_summary *summary, rks_error *err);
/* Numbers of the older ones, ascending. rks_free(*generations). */
rks_status rks_dataset_generations(const char *directory, uint64_t **generations, size_t *count,
                                   rks_error *err);
/* The newest of them; 0: none. */
rks_status rks_dataset_newest_kept(const char *directory, uint64_t *newest, rks_error *err);
/* "DIRECTORY/dataset.N.json". rks_free. */
char *rks_dataset_generation_path(const char *directory, uint64_t generation, rks_error *err);

/* Writes the list of excluded samples where there is one, then DIRECTORY/dataset.json, last and
 * atomically. Where the generation before it is there, that one is kept as dataset.N.json first. A
 * later generation of many shards or units leaves those to lists (dataset_list.h): it goes on with
 * those of the generation before if the dataset was joined to that one, as it lies there. */
rks_status rks_dataset_commit(const char *directory, const rks_dataset *dataset, rks_error *err);
/* Syncs dataset.json and its directory once more, after a commit that may have failed at the last sync. */
rks_status rks_dataset_make_durable(const char *directory, rks_error *err);
/* RKS_ERR_NOT_FOUND: "build not finished" (parts are there), "dataset.json is lost" (older
 * generations are) or "no dataset here". */
rks_status rks_dataset_load(const char *directory, rks_dataset **dataset, rks_error *err);
/* The same in two steps: all but the list of excluded samples, and the list. */
rks_status rks_dataset_load_json(const char *directory, rks_dataset **dataset, rks_error *err);
rks_status rks_dataset_load_excluded(const char *directory, rks_dataset *dataset, rks_error *err);
/* Of all that dataset.json says, without printing it: equal if and only if the texts of
 * rks_dataset_encode are. A field that is added there belongs here too. Of a dataset that was decoded
 * (its shards are by id), and not of a united one. */
rks_status rks_dataset_digest(const rks_dataset *dataset, rks_digest *digest, rks_error *err);
/* dataset.json as bytes, the same on every rank; for sending. rks_free(*text).
 * RKS_ERR_ARGUMENT if the parts do not fit together: `id` is not the fold, units are not sorted
 * or do not fill their shards, counts differ. build_options NULL is an empty object. The runs of
 * excluded samples are not part of it. */
rks_status rks_dataset_encode(const rks_dataset *dataset, char **text, size_t *size,
                              rks_error *err);
rks_status rks_dataset_decode(const char *text, size_t size, const char *path,
                              rks_dataset **dataset, rks_error *err);
void rks_dataset_free(rks_dataset *dataset); /* NULL is accepted */

/* Names of shards, to look for one among many. Begin with {0}; end with rks_shard_names_free. */
typedef struct rks_shard_names {
    char (*sorted)[128];
    size_t count;
} rks_shard_names;

/* Adds the dataset's; NULL adds none. */
rks_status rks_shard_names_add(rks_shard_names *names, const rks_dataset *dataset, rks_error *err);
bool rks_shard_names_have(const rks_shard_names *names, const char *name);
void rks_shard_names_free(rks_shard_names *names);

/* Parts (NAME.rks, sealed or not) of a build in a directory: their names without ending, sorted. */
rks_status rks_dataset_parts(const char *directory, char ***names, size_t *count, rks_error *err);
void rks_dataset_parts_free(char **names, size_t count);

#endif
