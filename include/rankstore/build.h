/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/build.h: datasets on disk: building, and adding to them. Part of rankstore.h. */
#ifndef RANKSTORE_BUILD_H
#define RANKSTORE_BUILD_H

#include "rankstore/group.h"
#include "rankstore/schema.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- building -------------------------------------------------------------------------------- */

/* where: a str or bytes column is < or > a number in quotes only, and then as text. A missing value
 * is == null and != every other (text != "" keeps it), and neither below nor above any. */
typedef struct rks_build_options {
    size_t struct_size;
    const char *schema;   /* as rks_schema_parse(); NULL or "auto": inferred from the first rows of
                           * at most 16 units of lines, of all units of other formats; "auto:all":
                           * from all rows, which are read twice */
    const char *format;   /* "jsonl", "json" (an array of objects), "text", "folder", "tar", "zip", "csv", "tsv", "npy",
                           * "npz", "megatron", "mds", "raw"; NULL: by name and content */
    const char *key;      /* column that holds the key (str, bytes or an integer); NULL: of a tar
                           * or zip "__key__", of a folder "path", else derived "relative
                           * path:row", rows from 0; "": derived, not of a folder */
    const char *length;   /* "COLUMN" (items of an array, bytes of a string, an integer as it
                           * is), "chars:COLUMN" (UTF-8 characters), "wav:COLUMN" (sample
                           * frames of a WAV file, by its header); NULL: the first column
                           * with a variable dimension that is neither `key` nor "__key__", the
                           * name of a sample in an archive; else the first array of fixed
                           * size ("uint16[257]": 257; a dataset that an earlier version built
                           * keeps 1); else 1. An append: as the dataset has it */
    uint32_t length_unit; /* lengths are divided by it, rounded up; default 1 */
    const char *where;    /* "COLUMN OP VALUE [and ...]", OP one of == != < <= > >= ; NULL: all */
    const char *const *index; /* numeric columns that travel with the index */
    size_t index_count;
    rks_filter_fn filter;
    rks_length_fn length_fn; /* instead of `length` */
    void *callback_user;
    uint64_t max_sample; /* bytes of one sample, larger is an error; default 1 GiB */
    bool skip_bad;       /* count and list malformed samples instead of failing; if the schema is
                          * inferred, first rows that disagree about a type are an error still */
    bool own_keys;       /* from memory: each rks_builder_add brings its key */
    bool replace;        /* replace a finished dataset at the commit; reuse no part of an
                          * interrupted build */
    uint64_t unit_size;  /* bytes of input in a unit; default 0: as the directory's dataset or
                          * unfinished parts have it (64 MiB if an earlier version made them), else
                          * about 1/64 of the input in whole MiB, 1 to 64 MiB */
    uint64_t block_size; /* default 1 MiB, 64 KiB to 64 MiB */
    rks_progress_fn progress;
    void *progress_user;
    const char *source;  /* from memory: what the samples come from, in the caller's words, equal on
                          * all ranks: a build that was interrupted is resumed only if it is the
                          * same */
    uint32_t min_length; /* samples of a smaller length are filtered out; default 0 */
    uint32_t max_length; /* and those of a greater one; default 0: no limit */
    double sample_rate;  /* above 0 and below 1: each row of the input is taken with this chance,
                          * before anything else is looked at; default 0: all. Which ones follows
                          * from the seed, the unit and the row in it, so not from the ranks, but
                          * from unit_size and how rows are spread over files */
    uint64_t seed;       /* of sample_rate and sample; default 0 */
    uint64_t max_total;  /* bytes that one compressed file or archive may unpack to, more is an
                          * error; default 1 TiB */
    uint64_t sample;     /* keep this many of the samples that are left, by chance: also the same on
                          * any ranks; default 0: all. Not with sample_rate. Shards hold the others
                          * too, and dataset.json leaves them out */
    bool dedup; /* of samples with equal contents (all columns but the key's) only the first
                 * in (unit, row) order counts; a tar's or zip's __key__ is one of the columns
                 * where another one is the key, and keeps equal members apart; the shards hold the
                 * others too. What has one hash is compared byte by byte before it is dropped */
    const char *columns; /* names of the columns of CSV or TSV, by commas, where files have no
                          * header; NULL: the first record of each file names them */
    bool append;         /* the samples come behind those of the dataset in the directory, as its
                          * next generation; schema, key, length and index columns are by default
                          * that one's; a column of the input that it lacks is an error, and left
                          * out if `schema` is given, which must be that one's. If there is no
                          * dataset it is built as generation 1 */
    bool no_lock; /* if the file system has no locks (Lustre without -o flock), several ranks
                   * build without one; one rank alone needs no option. The caller makes sure that
                   * no second build runs there. Locks that are there are taken all the same */
    const char *json_path; /* member of a JSON object that is the array of samples: "data", or
                            * "outer.data"; makes `format` "json" by default. NULL: the array is the
                            * file */
    bool flatten; /* of "json" and "jsonl": the members of an object in a sample become columns
                   * "outer.inner". Default: the object is a json column */
    const char *extra; /* what becomes of a column of the input that the schema lacks: "error",
                        * "drop", or "json": its values go to one column "extra" (json?), as members
                        * of an object ("json" and "jsonl" alone). NULL: "drop" where `schema` is
                        * given, else "error" */
    const char *made_from; /* at most 128 printable ASCII characters, equal on all ranks: written into
                            * dataset.json ("made_from") by the commit, for the caller to find again;
                            * no part of the build's id. NULL: none */
    const char *dtype; /* of "raw", which needs it: the type of the items of a file that holds nothing
                        * else, "uint16". Samples are runs of 1,024 items, the column "tokens" */
    bool wait;         /* if another build runs in the directory, wait for its end; a line on stderr
                        * names it. A holder that is killed ends the wait; one that gives no sign of
                        * life within the silence limit (a stopped process) is RKS_ERR_PEER. Where the
                        * file system has no locks nothing is waited for. Default: RKS_ERR_STATE */
    bool keep;         /* a finished dataset of this very build (the same input and options) is no
                        * error: nothing is built, and the report, with kept set, is of that dataset */
    uint32_t threads;    /* that read units of files on this rank; the dataset is the same. Another
                          * one writes. Each beyond the first may hold 64 MiB, or two samples if they
                          * are larger. Default 0: the cores that this process may use, divided by the
                          * node's ranks, at most 4. With filter or length_fn it is 1 */
} rks_build_options;

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
    uint64_t units_resumed;  /* of them taken over from an interrupted build */
    double seconds;          /* this rank */
    char dataset[33];        /* the dataset id, 32 hexadecimal digits */
    char bad_first[512];     /* the first that this call skipped, a whole line each, all ranks */
    uint64_t sampled_out;    /* that sample_rate or sample did not take, all ranks */
    uint64_t duplicates;     /* that dedup dropped, all ranks */
    uint64_t hidden;         /* not read, of folders: names with a dot in front, */
    uint64_t linked_folders; /* links to folders, */
    uint64_t special_files;  /* and FIFOs, sockets and devices */
    uint64_t collectives;    /* collective calls of the group from the build's begin to its end */
    /* Of JSON whose schema was inferred, names with ", " between them: */
    char json_columns[256];   /* columns that hold JSON text, for objects and lists */
    char object_columns[256]; /* columns that flatten made of objects */
    uint64_t unit_size;      /* bytes of input in a unit; 0: the samples came from memory */
    bool kept;               /* the dataset was there: see rks_build_options.keep */
    char length[160];        /* what lengths count, in words: "items of tokens, 257 each", "bytes of
                              * text", "1 each"; a long name is cut */
} rks_build_report;

/* COLLECTIVE. Builds `directory` from files and folders, dealt out over the ranks. The same
 * call resumes an interrupted build, also on another number of ranks. `directory` may hold
 * {rank} and {node}. *report may be NULL. Errors: RKS_ERR_DATA names file and line; RKS_ERR_STATE
 * where another build runs in the directory (naming pid and host) or a finished dataset is
 * there and `replace` is not set (RKS_ERR_ARGUMENT, cause EEXIST; see `keep`); RKS_ERR_UNSUPPORTED if the
 * file system has no locks (see no_lock). */
RKS_API rks_status rks_build(rks_group *group, const char *const *sources, size_t source_count,
                             const char *directory, const rks_build_options *options,
                             rks_build_report *report, rks_error *err);

/* The unit size that the dataset in a directory was built with, or else its unfinished parts; 64 MiB
 * if an earlier version, which did not record it, made them; 0 if there are none. For callers that
 * read an input in units themselves (rks_reader). Fails only if memory lacks. */
RKS_API rks_status rks_unit_size_kept(const char *directory, uint64_t *unit_size, rks_error *err);

/* Building from memory: each rank adds samples in units of its own.
 * A unit is the piece that resume works by; its number is unique over all ranks, and samples are
 * numbered in (unit, row) order, whichever rank added them. */
typedef struct rks_builder rks_builder;

/* COLLECTIVE. `options->schema` is needed; format and skip_bad are not used. unit_size is recorded
 * only: of what the caller's units were read from (rks_reader_unit_size), 0 for none. */
RKS_API rks_status rks_builder_open(rks_group *group, const char *directory,
                                    const rks_build_options *options, rks_builder **builder,
                                    rks_error *err);

/* Begins a unit, ending the one before it. `name` ("part 3") makes derived keys "name:row" and must
 * be unique. *skip is true where an interrupted build has finished it already: add nothing. */
RKS_API rks_status rks_builder_unit(rks_builder *builder, uint64_t unit, const char *name,
                                    bool *skip, rks_error *err);

/* Adds a sample to the current unit; `values` has one entry a column. `key` is given if and only if
 * `own_keys` is set; else it comes from the `key` option, or is derived. The filter and length
 * options apply. A refused sample (a wrong type, a key that is empty or over 511 bytes, one above
 * max_sample) leaves the builder usable. */
RKS_API rks_status rks_builder_add(rks_builder *builder, const rks_value *values, const void *key,
                                   size_t key_size, rks_error *err);

/* Counts samples of the current unit that the caller dropped itself, as `filtered` or as `bad`:
 * kept with the unit, so that reports count them also if a later build takes the unit over. Rows
 * of derived keys do not count them. Nothing happens in a unit that was to be skipped. */
RKS_API rks_status rks_builder_left_out(rks_builder *builder, uint64_t filtered, uint64_t bad,
                                        rks_error *err);

/* COLLECTIVE. Seals the shards and commits the dataset. A rank that failed brings its status, so
 * that all fail alike: RKS_OK, or what `rks_builder_add` or the caller's own work ended with. */
RKS_API rks_status rks_builder_commit(rks_builder *builder, rks_status status,
                                      rks_build_report *report, rks_error *err);

/* Frees the builder. What was not committed stays for a resume. NULL is accepted. */
RKS_API void rks_builder_close(rks_builder *builder);

#ifdef __cplusplus
}
#endif

#endif
