/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset.h: dataset.json, which makes a set of sealed shards one dataset. Its picture is in
 * dataset_json.c. */
#ifndef RKS_DATASET_DATASET_H
#define RKS_DATASET_DATASET_H

#include <stdatomic.h>

#include "base/checksum.h"
#include "dataset/dataset_list.h"
#include "dataset/excluded_samples.h"
#include "dataset/index_file.h"
#include "shard/schema.h"
#include "shard/shard_writer.h"

enum { RKS_MADE_FROM_MAX = 128, RKS_ORIGIN_MAX = 255 };

typedef struct rks_dataset_shard {
    rks_digest id;
    rks_digest manifest; /* digest of its manifest */
    char name[128];      /* file name without ending; no slash */
    uint64_t samples;
    uint64_t bytes;
    uint64_t file_bytes;
    uint64_t largest;                /* bytes in its largest record */
    char origin[RKS_ORIGIN_MAX + 1]; /* "HOST:DIRECTORY" where it was built, UTF-8; empty: not
                                      * recorded */
    /* For a dataset made by several builds: the build that wrote the shard, and what must be added
     * to its unit numbers. All zero: the dataset's build, and 0. */
    rks_digest build;
    uint64_t first_unit;
    uint32_t list; /* number of the list in dataset->lists that has it, from 1; 0: dataset.json
                    * itself */
} rks_dataset_shard;

typedef struct rks_dataset_unit {
    rks_unit_summary summary;
    uint32_t shard;       /* index into shards */
    uint64_t first_row;   /* in that shard */
    const char *key_name; /* for derived keys; NULL if keys are stored */
} rks_dataset_unit;

typedef struct rks_dataset rks_dataset;

/* One of the datasets that rks_dataset_unite put together. */
typedef struct rks_dataset_source {
    rks_dataset *dataset;
    char *name;
    char *directory;      /* on this rank; NULL: not given */
    uint64_t first;       /* its first sample id in the united dataset */
    uint32_t first_shard; /* and its first shard */
} rks_dataset_source;

/* rks_dataset_free frees all of it. Units are sorted by number, so ids follow from them. Shards are
 * in any order when encoded (the file has them by id), and by id when decoded. */
struct rks_dataset {
    rks_digest id;
    rks_digest build_id;
    uint64_t count; /* N: samples that count */
    rks_schema *schema;
    bool derived_keys;
    char **index; /* names of index columns */
    size_t index_count;
    rks_dataset_shard *shards;
    size_t shard_count;
    rks_dataset_unit *units;
    size_t unit_count;
    char *build_options;                   /* JSON text: the options of the first build */
    char *added_options;                   /* likewise, of the newest one; NULL: it is the first */
    char made_from[RKS_MADE_FROM_MAX + 1]; /* the builder's words for its input, printable ASCII;
                                            * empty: none */
    uint64_t generation;                   /* from 1; 0 means 1 */
    uint64_t revision;     /* of this generation: how often lost shards were built again */
    uint64_t unit_size;    /* bytes of input in a unit of the newest build; 0: not recorded */
    rks_excluded excluded; /* `samples` 0: nothing is excluded */
    /* Files beside dataset.json that hold the first shards and units, if the dataset was read from
     * a directory. A dataset made in memory has none. rks_dataset_encode writes everything into one
     * text. */
    rks_dataset_list lists[RKS_DATASET_LISTS_MAX];
    size_t list_count;
    /* Files beside dataset.json with the index of all samples, in the order of their ids. */
    rks_index_file index_files[RKS_INDEX_FILES_MAX];
    size_t index_file_count;     /* 0: there are none */
    rks_dataset_source *sources; /* of a united dataset; in memory only */
    size_t source_count;         /* 0: it is not united */
    atomic_uint sharers;         /* rks_dataset_share */
};

/* Combines the unit digests, in unit order, into the dataset id. */
rks_digest rks_dataset_fold(const rks_dataset_unit *units, size_t count, const rks_schema *schema);
/* Continues a fold with the units that come next. */
rks_digest rks_dataset_fold_on(rks_digest folded, const rks_dataset_unit *units, size_t count);
/* Returns the id of units with this fold, of which samples are excluded. */
rks_digest rks_dataset_id_without(rks_digest folded, const rks_excluded *excluded);
/* Returns the id: rks_dataset_fold and, if samples are excluded, the digest of their list. */
rks_digest rks_dataset_id(const rks_dataset *dataset);
/* Writes the bytes of an item of each array of the dataset's index files. Free items->sizes with
 * rks_free. */
rks_status rks_dataset_index_items(const rks_dataset *dataset, rks_index_items *items,
                                   rks_error *err);
/* Returns the number of samples in the shards, with excluded ones. */
uint64_t rks_dataset_stored(const rks_dataset *dataset);
/* Returns the column and key bytes of the samples that count. */
uint64_t rks_dataset_bytes(const rks_dataset *dataset);

/* Joins two datasets: the samples of `a`, then those of `b`. Units of `b` get the numbers after
 * those of `a`. Sealed shards do not change. RKS_ERR_ARGUMENT names what differs (schema, index
 * columns, kind of keys). RKS_ERR_DATA if a shard, or a shard's name, is in both. The result has
 * the build of `b` and the generation of `a` + 1. */
rks_status rks_dataset_join(const rks_dataset *a, const rks_dataset *b, rks_dataset **joined,
                            rks_error *err);
/* Joins `count` datasets, at least one. The build is the last one's, and the generation the first
 * one's + 1. After a failure *which is the first one that does not fit those before it. */
rks_status rks_dataset_join_all(const rks_dataset *const *parts, size_t count, rks_dataset **joined,
                                size_t *which, rks_error *err);
/* Copies a dataset, with its runs of excluded samples. The copy's shards are by id, as in one read
 * from a file without lists. RKS_ERR_ARGUMENT as in rks_dataset_encode. Not for a united
 * dataset. */
rks_status rks_dataset_copy(const rks_dataset *dataset, rks_dataset **copy, rks_error *err);
/* Makes a dataset in memory of the shards for which `chosen[i]` is set, with their units. The
 * dataset must not exclude samples or be united. */
rks_status rks_dataset_choose(const rks_dataset *dataset, const bool *chosen, rks_dataset **made,
                              rks_error *err);
enum { RKS_SOURCES_MAX = 65535 };

/* Makes one dataset in memory over the shards of several: the samples of the first, then those of
 * the second, and so on. `columns` (NULL: all) are the columns that samples have, in the order in
 * which sources first have them. A column that a source lacks is nullable, and missing there. Index
 * columns are those that are index columns of all sources. Takes over `datasets`, also after a
 * failure. The id is that of the sources' ids in order; with a single source, its own.
 * RKS_ERR_ARGUMENT names the sources and the column whose types differ, a name that appears twice,
 * or a column that no source has. */
rks_status rks_dataset_unite(rks_dataset **datasets, const char *const *names, size_t count,
                             const char *const *columns, size_t column_count, rks_dataset **united,
                             rks_error *err);
/* Returns the id of datasets with these ids that are united. */
rks_digest rks_dataset_united_id(const rks_digest *ids, size_t count);
/* Returns the source of the shard, or of the sample id. The dataset must be united. */
size_t rks_dataset_source_of_shard(const rks_dataset *dataset, size_t shard);
size_t rks_dataset_source_of_id(const rks_dataset *dataset, uint64_t id);
/* Returns the dataset to which the shard's manifest belongs: schema, index columns, kind of
 * keys. */
const rks_dataset *rks_dataset_of_shard(const rks_dataset *dataset, size_t shard);
/* Writes "HOST:DIRECTORY" of a directory of this node. Of a path that is too long it writes the
 * end. */
void rks_dataset_origin_here(const char *directory, char origin[RKS_ORIGIN_MAX + 1]);
/* Takes an origin from a file. One that is too long, no UTF-8 or has control characters becomes
 * empty: it is shown on terminals. */
void rks_dataset_origin_take(const char *text, size_t size, char origin[RKS_ORIGIN_MAX + 1]);
/* Writes the origins of the shards for which chosen[i] is not 0, each once, the first ones by name:
 * "node3:/nvme/rks (2), node4:/nvme/rks". Empty if none is recorded. */
void rks_dataset_put_origins(const rks_dataset *dataset, const uint8_t *chosen, char *text,
                             size_t room);
/* Returns the build that wrote the shard. */
rks_digest rks_dataset_build_of(const rks_dataset *dataset, size_t shard);

/* Generations: dataset.json is the newest one, dataset.N.json an older one. */

/* Parses "dataset.N.json", N from 1, without leading zeros. Returns false for other names. */
bool rks_dataset_is_generation_name(const char *name, uint64_t *generation);
/* Returns the dataset's generation, from 1. */
uint64_t rks_dataset_number(const rks_dataset *dataset);
/* Loads a generation; 0: the newest. RKS_ERR_NOT_FOUND names those that exist. */
rks_status rks_dataset_load_generation(const char *directory, uint64_t generation,
                                       rks_dataset **dataset, rks_error *err);
/* Returns the '@' in "DIR@2", which means generation 2 of DIR; NULL if the name has none. */
const char *rks_dataset_generation_sign(const char *name);
/* Cuts "@N" off and returns N, unless a file or directory of the whole name exists. Returns 0 if no
 * generation is named. */
uint64_t rks_dataset_take_generation(char *directory);
/* What a generation's file says, without the lists that it refers to. */
typedef struct rks_dataset_summary {
    rks_digest id;
    uint64_t generation; /* from 1 */
    uint64_t samples;
    uint64_t bytes; /* column and key bytes of the samples that count */
    rks_dataset_list lists[RKS_DATASET_LISTS_MAX];
    size_t list_count;
} rks_dataset_summary;

/* Reads "DIRECTORY/dataset.N.json", or dataset.json for 0. */
rks_status rks_dataset_summarize(const char *directory, uint64_t generation,
                                 rks_dataset_summary *summary, rks_error *err);
/* Lists the numbers of the older generations, ascending. Free *generations with rks_free. */
rks_status rks_dataset_generations(const char *directory, uint64_t **generations, size_t *count,
                                   rks_error *err);
/* Finds the newest of the older generations; 0: there are none. */
rks_status rks_dataset_newest_kept(const char *directory, uint64_t *newest, rks_error *err);
/* Returns "DIRECTORY/dataset.N.json". Free it with rks_free. */
char *rks_dataset_generation_path(const char *directory, uint64_t generation, rks_error *err);

/* Writes the list of excluded samples if there are any, then DIRECTORY/dataset.json, last and
 * atomically. If the generation before it exists, it is first kept as dataset.N.json. A later
 * generation with many shards or units puts those into lists (dataset_list.h). It continues the
 * lists of the generation before, if the dataset was joined to that one. */
rks_status rks_dataset_commit(const char *directory, const rks_dataset *dataset, rks_error *err);
/* Syncs dataset.json and its directory once more, after a commit that may have failed at the last
 * sync. */
rks_status rks_dataset_make_durable(const char *directory, rks_error *err);
/* Loads dataset.json. RKS_ERR_NOT_FOUND: "build not finished" (parts exist), "dataset.json is lost"
 * (older generations exist) or "no dataset here". */
rks_status rks_dataset_load(const char *directory, rks_dataset **dataset, rks_error *err);
/* The same in two steps: first everything but the list of excluded samples, then the list. */
rks_status rks_dataset_load_json(const char *directory, rks_dataset **dataset, rks_error *err);
rks_status rks_dataset_load_excluded(const char *directory, rks_dataset *dataset, rks_error *err);
/* Computes a digest of everything that dataset.json says, without printing it. Two digests are
 * equal if and only if the texts of rks_dataset_encode are. A new field must be added here, too.
 * The dataset must have been decoded (its shards are by id), and not be united. */
rks_status rks_dataset_digest(const rks_dataset *dataset, rks_digest *digest, rks_error *err);
/* Computes a digest of how the units lie in shards: builds, digests, rows. Ids and names of shards
 * are not in it, so two builds of one input that were cut alike have the same. */
rks_status rks_dataset_places_digest(const rks_dataset *dataset, rks_digest *digest,
                                     rks_error *err);
/* Writes dataset.json as bytes, the same on every rank, for sending. Free *text with rks_free.
 * RKS_ERR_ARGUMENT if the parts do not fit together: `id` is not the fold, units are not sorted or
 * do not fill their shards, counts differ. build_options NULL is an empty object. The runs of
 * excluded samples are not included. */
rks_status rks_dataset_encode(const rks_dataset *dataset, char **text, size_t *size,
                              rks_error *err);
rks_status rks_dataset_decode(const char *text, size_t size, const char *path,
                              rks_dataset **dataset, rks_error *err);
/* Returns the dataset, for one more user, who frees it, too. Nobody changes it from then on. */
rks_dataset *rks_dataset_share(const rks_dataset *dataset);
void rks_dataset_free(rks_dataset *dataset); /* NULL is accepted */

/* Names of shards, for finding one among many. Begin with {0} and end with rks_shard_names_free. */
typedef struct rks_shard_names {
    char (*sorted)[128];
    size_t count;
} rks_shard_names;

/* Adds the names of a dataset; NULL adds none. */
rks_status rks_shard_names_add(rks_shard_names *names, const rks_dataset *dataset, rks_error *err);
bool rks_shard_names_have(const rks_shard_names *names, const char *name);
void rks_shard_names_free(rks_shard_names *names);

/* Opens copies of those of the shards [first, first + count) that are not open: for shard first + i
 * shards[i] is NULL. Copies are sealed shards that the dataset does not name, of the same build,
 * with the same units in the same rows. There are some after lost shards were built again, and
 * their node came back; they have the same id. If the input was built twice, the id is another one.
 * A copy with the same id comes first. Shards without a copy in the directory stay NULL. */
struct rks_shard;
rks_status rks_dataset_open_copies(const rks_dataset *dataset, const char *directory, size_t first,
                                   size_t count, struct rks_shard **shards, rks_error *err);
/* Returns true if NAME in the directory is such a copy of a shard of the dataset, and may be
 * needed. One with another id is not if the named shard lies there, too. */
bool rks_dataset_is_copy(const rks_dataset *dataset, const char *directory, const char *name);

/* Lists the parts (NAME.rks, sealed or not) of a build in a directory: their names without ending,
 * sorted. */
rks_status rks_dataset_parts(const char *directory, char ***names, size_t *count, rks_error *err);
/* The same of NAME.json, which makes a part a shard; other files of that ending are among them. */
rks_status rks_dataset_sealed(const char *directory, char ***names, size_t *count, rks_error *err);
void rks_dataset_parts_free(char **names, size_t count);

#endif
