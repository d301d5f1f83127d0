/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/build.h: datasets on disk: building, and adding to them. Part of rankstore.h. */
#ifndef RANKSTORE_BUILD_H
#define RANKSTORE_BUILD_H

#include "rankstore/group.h"
#include "rankstore/input.h"
#include "rankstore/schema.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- building -------------------------------------------------------------------------------- */

/* where: a str or bytes column is compared by < and > only with text in quotes. A missing value is
 * == null and != every other value (text != "" keeps it). It is neither below nor above any value.
 */
typedef struct rks_build_options {
    size_t struct_size;
    const char *schema;   /* as rks_schema_parse(); NULL or "auto": inferred from the first rows of
                           * at most 16 units of lines, of all units of other formats; "auto:all":
                           * from all rows, which are read twice */
    const char *format;   /* "jsonl", "json" (an array of objects), "text", "folder", "tar", "zip",
                           * "csv", "tsv", "npy", "npz", "megatron", "mds", "raw"; NULL: by name and
                           * content */
    const char *key;      /* column that holds the key (str, bytes or an integer); NULL: of a tar
                           * or zip "__key__", of a folder "path", else derived "relative
                           * path:row", rows from 0; "": derived, not of a folder */
    const char *length;   /* "COLUMN" (items of an array, bytes of a string, an integer as it
                           * is), "chars:COLUMN" (UTF-8 characters), "wav:COLUMN" (sample
                           * frames of a WAV file, by its header); NULL: the first column
                           * with a variable dimension that is neither `key` nor "__key__", the
                           * name of a sample in an archive; else the first array of fixed
                           * size ("uint16[257]": 257); else 1. An append uses the dataset's */
    uint32_t length_unit; /* lengths are divided by it, rounded up; default 1 */
    const char *where;    /* "COLUMN OP VALUE [and ...]", OP one of == != < <= > >= ; NULL: all */
    const char *const *index; /* numeric columns that travel with the index */
    size_t index_count;       /* columns of `counts` may be among them */
    rks_filter_fn filter;
    rks_length_fn length_fn; /* instead of `length` */
    void *callback_user;
    uint64_t max_sample; /* bytes of one sample, larger is an error; default 1 GiB,
                          * at most RKS_SAMPLE_MAX */
    bool skip_bad;       /* count and list malformed samples instead of failing. If the schema is
                          * inferred, first rows that disagree about a type are still an error */
    bool own_keys;       /* rks_build_input: each row has its own key, and `key` is not set */
    bool replace;        /* replace a finished dataset at the commit; reuse no part of an
                          * interrupted build */
    uint64_t unit_size;  /* bytes of input in a unit. Default 0: that of the directory's dataset or
                          * unfinished parts (64 MiB if their samples came from memory). Without
                          * any: about 1/64 of the input in whole MiB, 1 to 64 MiB */
    uint64_t block_size; /* default 1 MiB, 64 KiB to 64 MiB */
    rks_progress_fn progress;
    void *progress_user;
    const char *source;  /* rks_build_input: a name for the samples' origin, equal on all ranks. An
                          * interrupted build is resumed only if it has the same name */
    uint32_t min_length; /* drops samples that are shorter; default 0 */
    uint32_t max_length; /* drops samples that are longer; default 0: no limit */
    double sample_rate;  /* above 0 and below 1: takes each row of the input with this probability,
                          * before any other option applies; default 0: all. The choice depends on
                          * the seed, the unit and the row in it, so on unit_size and how rows are
                          * spread over files, but not on the ranks */
    uint64_t seed;       /* of sample_rate and sample; default 0 */
    uint64_t max_total;  /* bytes that one compressed file or archive may unpack to, more is an
                          * error; default 1 TiB */
    uint64_t sample;     /* keeps this many of the remaining samples, chosen at random, the same for
                          * any number of ranks; default 0: all. Not with sample_rate. Shards also
                          * hold the others; dataset.json excludes them */
    bool dedup; /* keeps only the first of samples with equal contents (all columns but the key's),
                 * in (unit, row) order. If another column is the key, a tar's or zip's __key__
                 * counts as contents, and keeps equal members apart. Samples with one hash are
                 * compared byte by byte before one is dropped. Shards also hold the dropped ones */
    const char *columns; /* names of the columns of CSV or TSV, separated by commas, if files have
                          * no header; NULL: the first record of each file names them */
    bool append;  /* adds the samples after those of the dataset in the directory, as its next
                   * generation. Defaults of schema, key, length and index columns are the
                   * dataset's. A column that the dataset lacks is an error; if `schema` is
                   * given, it is dropped, and the schema must be the dataset's. If there is no
                   * dataset, generation 1 is built */
    bool no_lock; /* lets several ranks build on a file system without locks (Lustre without -o
                   * flock); a single rank needs no option. You make sure that no second build runs
                   * there. If the file system has locks, they are used all the same */
    const char *json_path; /* the member of a JSON object that is the array of samples: "data", or
                            * "outer.data"; `format` is then "json" by default. NULL: the file is
                            * the array */
    bool flatten; /* for "json" and "jsonl": the members of an object in a sample become columns
                   * "outer.inner". Default: the object is a json column */
    const char *extra;     /* what to do with a column of the input that the schema lacks: "error",
                            * "drop", or, for "json" and "jsonl", "json": its values become members of
                            * an object in one column "extra" (json?). NULL: "drop" if `schema` is
                            * given, else "error" */
    const char *made_from; /* a note of at most 128 printable ASCII characters, equal on all ranks.
                            * The commit writes it into dataset.json ("made_from"). It is not part
                            * of the build's id. NULL: none */
    /* For "raw", which needs it: the type of the items of a file that holds nothing else, "uint16".
     * Samples are runs of 1,024 items, the column "tokens". */
    const char *dtype;
    bool wait;        /* waits for the end of another build in the directory; a line on stderr names
                       * it. If its process is killed, the wait ends. If it gives no sign of life
                       * within the silence limit (a stopped process), the error is RKS_ERR_PEER.
                       * Without locks on the file system there is no wait. Default: RKS_ERR_STATE */
    bool keep;        /* accepts a finished dataset of the same input and options: nothing is built,
                       * and the report describes that dataset, with `kept` set. A rank whose
                       * directory is empty has no say. A stream of
                       * rks_build_input is read and compared with it (RKS_ERR_ARGUMENT with cause
                       * ESTALE if it has other samples) */
    uint32_t threads; /* threads that read units of files on this rank; one more writes. The dataset
                       * does not depend on it. Each thread beyond the first may hold 64 MiB, or two
                       * samples if they are larger. Default 0: the cores that this process may
                       * use, divided by the node's ranks, at most 4. With filter or length_fn: 1 */
    bool own_lengths; /* rks_build_input: each row has its own length. Not with length, length_fn or
                       * filter */
    bool unchecked; /* does not verify hashes that the source itself has, such as those in the index
                     * of MDS shards. Default: the fastest of them is verified */
    uint64_t
        max_shard; /* ends a shard with the unit that brings it to so many bytes of samples, and
                    * begins another: so one rank's dataset can be spread over disks, file by
                    * file. The dataset id does not depend on it. Default 0: a shard a rank */
    bool repair;   /* only builds lost shards of the dataset in `directory`, which may have been
                    * added to since. RKS_ERR_ARGUMENT with cause ESTALE if shards are lost, but
                    * none that this input made. If none is lost, as `keep`. rks_repair takes the
                    * other options from the dataset */
    /* Where the dataset is published once it is built, as by rks_publish; also if it was there (see
     * `keep`). Shards that max_shard ends are sent while others are built, unless home holds
     * another dataset; no reader sees them before all are there. NULL: nowhere. */
    const char *home;
    /* Folders that may hold shards of the dataset in `directory`, as in rks_store_options: shards
     * that lie there are not lost. Nothing is written or removed there. */
    const char *const *shards;
    size_t shard_count;
    /* Of `home` and of sources that are URLs, as in rks_store_options. */
    const char *storage_options;
    /* Bytes of sources that are URLs that this rank holds in memory at once, those sent ahead
     * included, and samples parsed from them that wait to be written; more only while one sample
     * is larger. Default 0: 256 MiB; at least 1 MiB. */
    uint64_t input_bytes;
    /* What rks_source_list returned for the same sources: their stores are not asked again. Default
     * NULL: rank 0 asks. Given to all ranks or to none. */
    const char *listing;
    bool only_ahead; /* `home` gets only the shards that are ended while others are built: the
                      * caller calls rks_publish when it has written what belongs beside them */
    /* Rules of columns that count items of other columns, "NAME = COLUMN OP NUMBER", such as
     * "learned = labels != -100": how many items of the numeric array (or number) the comparison
     * holds for; 0 of a missing value. NAME, COLUMN and OP are those of `where`. The columns are
     * int64, come last in the schema, and may be named by where, length and index; rows of an input
     * do not have them. If `schema` has them, they are moved to its end; they must be int64. An
     * append uses the dataset's rules, and takes no others. */
    const char *const *counts;
    size_t counts_count;
} rks_build_options;

/* Writes the schema that rows of an input have, as text: `schema` without the columns of the rules
 * `counts` of rks_build_options. If it was `inferred` from rows, a column of such a name is
 * RKS_ERR_ARGUMENT. Free *rows with rks_release. */
RKS_API rks_status rks_build_row_schema(const char *schema, const char *const *counts,
                                        size_t counts_count, bool inferred, char **rows,
                                        rks_error *err);

RKS_API void rks_build_options_default(rks_build_options *options);
RKS_SIZED_DEFAULT(rks_build_options)
#define rks_build_options_default(options) rks_build_options_default_sized(options)

typedef struct rks_build_report {
    size_t struct_size;
    uint64_t samples;        /* kept, all ranks */
    uint64_t filtered;       /* dropped by where, filter or length, all ranks */
    uint64_t bad;            /* skipped by skip_bad, all ranks */
    uint64_t bytes;          /* column and key bytes kept, all ranks */
    uint64_t input_bytes;    /* all ranks */
    uint64_t units;          /* in the dataset */
    uint64_t units_resumed;  /* of them, units that an interrupted build had finished */
    double seconds;          /* this rank */
    char dataset[33];        /* the dataset id, 32 hexadecimal digits */
    char bad_first[512];     /* the first that this call skipped, a whole line each, all ranks; and
                              * how many members of archives only macOS reads */
    uint64_t sampled_out;    /* not chosen by sample_rate or sample, all ranks */
    uint64_t duplicates;     /* that dedup dropped, all ranks */
    uint64_t hidden;         /* not read, of folders: names with a dot in front, */
    uint64_t linked_folders; /* links to folders, */
    uint64_t special_files;  /* and FIFOs, sockets and devices */
    uint64_t collectives;    /* collective calls of the group from the build's begin to its end */
    /* Of JSON whose schema was inferred, names with ", " between them: */
    char json_columns[256];   /* columns that hold JSON text, for objects and lists */
    char object_columns[256]; /* columns that flatten made of objects */
    uint64_t unit_size;       /* bytes of input in a unit; 0: the samples came from memory */
    bool kept;                /* the dataset was there: see rks_build_options.keep */
    char length[160]; /* the unit of lengths, in words: "items of tokens, 257 each", "bytes of
                       * text", "1 each"; a long name is cut */
    uint64_t shards_rebuilt; /* lost ones of a finished dataset, see rks_build */
    uint64_t units_rebuilt;  /* of them */
    uint64_t sent_bytes;     /* to home, all ranks */
} rks_build_report;

/* COLLECTIVE. Builds `directory` from files and folders, divided among the ranks. The same call
 * resumes an interrupted build, also on another number of ranks. If the finished dataset of this
 * very build is there, but shards of it are on no rank's disk, only those are built again: with the
 * same samples, so that dataset id and saved states stay. RKS_ERR_DATA with cause ESTALE if the
 * source holds other samples now; RKS_ERR_NOT_FOUND if another build wrote all that is lost.
 * `directory` may hold {rank} and {node}. `report` may be NULL. Errors: RKS_ERR_DATA names file and
 * line. The source "-", alone and on one rank, is standard input: lines, "jsonl" by default or
 * "text", which are read once, in blocks of unit_size (8 MiB by default), none of them written to a
 * disk. A block is a unit, so an interrupted build goes on if the same lines come again. Keys that
 * are derived are "stdin@BLOCK:ROW". RKS_ERR_STATE names pid and host of another build that runs in
 * the directory. RKS_ERR_ARGUMENT with cause EEXIST: a finished dataset is there and `replace` is
 * not set (see `keep`). RKS_ERR_UNSUPPORTED: the file system has no locks (see no_lock). */
RKS_API rks_status rks_build(rks_group *group, const char *const *sources, size_t source_count,
                             const char *directory, const rks_build_options *options,
                             rks_build_report *report, rks_error *err);

/* Returns the unit size of the dataset in a directory, or else of its unfinished parts: 64 MiB if
 * their samples came from memory; 0 if there are none. For callers that open files as an input
 * (rks_files_open). RKS_ERR_UNSUPPORTED if another version of the library began a part. */
RKS_API rks_status rks_unit_size_kept(const char *directory, uint64_t *unit_size, rks_error *err);

/* ---- repairing ------------------------------------------------------------------------------- */

typedef struct rks_repair_options {
    size_t struct_size;
    rks_progress_fn progress;
    void *progress_user;
    uint32_t threads;          /* as in rks_build_options */
    uint64_t max_total;        /* likewise */
    bool no_lock;              /* likewise */
    bool unchecked;            /* likewise */
    const char *const *shards; /* likewise */
    size_t shard_count;
} rks_repair_options;

typedef struct rks_repair_report {
    size_t struct_size;
    uint64_t shards; /* of the dataset */
    uint64_t samples;
    uint64_t units;
    uint64_t lost_shards;  /* found lost: on no rank's disk */
    uint64_t lost_samples; /* in them, also those that the dataset excludes */
    uint64_t lost_units;
    uint64_t shards_rebuilt; /* of the lost ones */
    uint64_t units_rebuilt;
    double seconds;      /* this rank */
    char dataset[33];    /* the dataset id, 32 hexadecimal digits */
    char origins[256];   /* where lost shards were built: "node3:/nvme/rks (2), node4:/nvme/rks" */
    char made_from[129]; /* the builder's words for its input; empty: none */
} rks_repair_report;

/* COLLECTIVE. Finds the shards of the dataset in `directory` that are on no rank's disk, and builds
 * them again from `sources`: the files and folders that made them, in the order that the build was
 * given. With `source_count` 0 it only looks. Options of the build come from dataset.json. Each
 * rank makes whole shards; first those that have the fewest samples. The samples, the dataset id
 * and saved states stay: each unit's digest is compared with the recorded one, and dataset.json
 * gets the next revision of the same generation. A rebuilt shard keeps its id, under a new name; if
 * the lost file comes back, it serves as a copy. Shards of several builds (appends) need a call for
 * each input. Errors: RKS_ERR_NOT_FOUND: no dataset is there. RKS_ERR_ARGUMENT with cause ESTALE:
 * none of the lost shards was built from this input. RKS_ERR_DATA with cause ESTALE: the source has
 * changed, and nothing was. RKS_ERR_UNSUPPORTED: a program made the samples, or a function chose
 * them: run the same build there. `options` and `report` may be NULL. */
RKS_API rks_status rks_repair(rks_group *group, const char *directory, const char *const *sources,
                              size_t source_count, const rks_repair_options *options,
                              rks_repair_report *report, rks_error *err);

/* ---- rows that a program makes --------------------------------------------------------------- */

/* COLLECTIVE. Builds `directory` of an input, divided among the ranks. options->schema is required;
 * options->source distinguishes this input from others: equal on all ranks, and an interrupted
 * build is resumed only if it has the same. Options about files (format, columns, skip_bad, ...)
 * are not used; unit_size is only recorded: rks_files_unit_size() of files that the input wraps, or
 * 0. Samples are numbered in the order of units and rows, for any number of ranks. Errors, report
 * and resume are as in rks_build. */
RKS_API rks_status rks_build_input(rks_group *group, const rks_input_ops *ops, void *input,
                                   const char *directory, const rks_build_options *options,
                                   rks_build_report *report, rks_error *err);

/* ---- files as an input ----------------------------------------------------------------------- */

/* Files and folders, found, divided and read as rks_build does, for an input that wraps them. */
typedef struct rks_files rks_files;

/* COLLECTIVE. Looks at the files and agrees on a schema, like rks_build. Options about the target
 * (replace, append, dedup, sample, index) are not used. The strings and callbacks of `options` must
 * outlive the files. The group is not needed later. Errors are those of rks_build. The caller owns
 * *files. */
RKS_API rks_status rks_files_open(rks_group *group, const char *const *sources, size_t source_count,
                                  const rks_build_options *options, rks_files **files,
                                  rks_error *err);
RKS_API const rks_schema *rks_files_schema(const rks_files *files); /* valid as the files */
RKS_API uint64_t rks_files_unit_size(const rks_files *files);       /* bytes of input */
/* Returns the functions of an rks_files as an input. Its units have the name of their first file,
 * which is not unique, and their bytes as weight. Rows have the key that rks_build would store or
 * derive. If the sink refuses a row, the row's place is put before the error. One thread at a
 * time. */
RKS_API const rks_input_ops *rks_files_input(void);
RKS_API void rks_files_close(rks_files *files); /* NULL is accepted */

/* Returns the format that rks_build would read the sources as, such as "jsonl". *format is static.
 */
RKS_API rks_status rks_source_format(const char *const *sources, size_t source_count,
                                     const rks_build_options *options, const char **format,
                                     rks_error *err);

/* Called for each file: its name as keys have it, its size, and its version in a store, which is ""
 * for a local file. Anything but RKS_OK ends the look. */
typedef rks_status (*rks_source_file_fn)(void *user, const char *name, uint64_t size,
                                         const char *version, rks_error *err);
/* COLLECTIVE. Rank 0 asks the stores of sources that are URLs which objects there are, and as what
 * they would be read; all ranks get its answer, for options->listing. *listing is NULL if no source
 * is in a store; else free it with rks_release. Fails on all ranks as rank 0 does: see
 * rks_build. RKS_ERR_ARGUMENT: ranks have other URLs. */
RKS_API rks_status rks_source_list(rks_group *group, const char *const *sources,
                                   size_t source_count, const rks_build_options *options,
                                   char **listing, rks_error *err);
/* As rks_source_format, and says which files the sources are. */
RKS_API rks_status rks_source_look(const char *const *sources, size_t source_count,
                                   const rks_build_options *options, const char **format,
                                   rks_source_file_fn each, void *user, rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
