/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore.h: the whole public interface of librankstore.
 *
 * A store is one dataset spread over the ranks of a job. Each rank serves the sealed
 * shards on its local disk. Every rank knows the index (length, key hash and owner of
 * every sample) and fetches a sample's bytes from its owner only when asked.
 *
 *   group ──► builder ──► dataset on disk          (once)
 *   group ──► store ──► plan ──► epoch ──► batch   (each job)
 *
 * Errors     A call that can fail returns rks_status and, if err is not NULL, fills
 *            *err. On failure the other outputs keep the values they had.
 * Collective Calls marked COLLECTIVE are made by all ranks of the group in the same
 *            order; their status is the same on all of them: a failure on one rank is
 *            returned, with that rank's number and text, by every rank.
 * Waiting    No wait is endless. A rank that is silent for `silence_ms` ends the waits of
 *            the others with RKS_ERR_PEER or RKS_ERR_TIMEOUT, naming it; a rank that
 *            is slow but alive is waited for.
 * Threads    A group, store or plan may be shared by threads, but collective calls of one
 *            group come from one thread at a time. A batch, a builder and an epoch have
 *            one user at a time.
 * Fork       A child must not use its parent's handles; it opens its own.
 * Units      Sizes are bytes, times are milliseconds, unless a name says otherwise.
 * Options    Structs that begin with `struct_size` are filled by their _default call
 *            first, then changed. 0 and NULL mean the default where not said otherwise.
 * Strings    UTF-8, NUL-terminated; keys are any bytes with a size.
 */
#ifndef RANKSTORE_H
#define RANKSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RKS_API __attribute__((visibility("default")))

/* ---- status, errors, version -------------------------------------------------------- */

/* Values are part of the interface: append, never renumber. */
typedef enum rks_status {
    RKS_OK = 0,
    RKS_ERR_ARGUMENT = -1,     /* the caller broke a rule of this header */
    RKS_ERR_MEMORY = -2,       /* an allocation or a mapping failed */
    RKS_ERR_IO = -3,           /* disk, file system, network or another system resource */
    RKS_ERR_CORRUPT = -4,      /* bytes that do not match their checksum or format */
    RKS_ERR_PEER = -5,         /* another rank failed or went away */
    RKS_ERR_TIMEOUT = -6,      /* a rank was silent, or a limit that the user set is over */
    RKS_ERR_STATE = -7,        /* the call does not fit what was called before */
    RKS_ERR_NOT_FOUND = -8,    /* no such key, file or dataset */
    RKS_ERR_DATA = -9,         /* input that cannot be taken: malformed, duplicate, too large */
    RKS_ERR_UNSUPPORTED = -10, /* a feature this build, machine or format version lacks */
    RKS_ERR_CANCELLED = -11,   /* the interrupt callback asked for an end */
} rks_status;

/* What went wrong and where; 256 bytes. It holds no pointers, so it is copied between
 * threads and sent between ranks as it is. */
typedef struct rks_error {
    int32_t status;       /* rks_status */
    int32_t rank;         /* where it happened; -1 if not known */
    int64_t cause;        /* errno, LMDB, MPI or NCCL code; 0 if there is none */
    char host[32];        /* the rank's host, shortened; empty if not known */
    char text[192];       /* one line, always terminated, UTF-8 */
    uint8_t reserved[16]; /* zero */
} rks_error;

/* "0.1.0". Static. */
RKS_API const char *rks_version(void);

/* "corrupt", "peer failed", ... one or two words. Static; "unknown" for other numbers. */
RKS_API const char *rks_status_name(rks_status status);

/* Frees memory that a call of this header handed out as "free with rks_release".
 * NULL is accepted. */
RKS_API void rks_release(void *memory);

/* Asked by every waiting call and by long computations (plans), in the calling thread, at least
 * each 100 ms; non-zero ends the call with RKS_ERR_CANCELLED. Process-wide. NULL removes it. */
typedef int (*rks_interrupt_fn)(void *user);
RKS_API void rks_set_interrupt(rks_interrupt_fn interrupt, void *user);

/* ---- group: the ranks of a job -------------------------------------------------------- */

typedef struct rks_group rks_group;

/* How ranks find each other: one all-gather of a record of at most RKS_RECORD_MAX bytes.
 * It may be called a few times, by all ranks. On success `all` holds size * record_size
 * bytes in rank order. Errors hold the rank that is missing, or -1, and what became of it without
 * its name ("did not come within 30000 ms"): the group puts rank and host before it. Give your own
 * to bring a launcher that Rankstore does not know. */
enum { RKS_RECORD_MAX = 4096 };
typedef struct rks_bootstrap {
    size_t struct_size;
    const char *name; /* "solo", "local", "fork", "mpi" or the caller's own; for messages */
    uint32_t rank;
    uint32_t size;
    void *user;
    rks_status (*allgather)(void *user, const void *record, size_t record_size, void *all,
                            uint32_t timeout_ms, rks_error *err);
    /* May be NULL. Asked by waiting calls: has the launcher seen a rank end before its time? Then
     * its error: the rank, and what became of it ("was killed by signal 9"). On entry err->rank is
     * -1, or the rank whose connection has just broken: any end of that one is before its time. */
    rks_status (*check)(void *user, rks_error *err);
    void (*close)(void *user); /* may be NULL; called once by rks_group_close */
    void *local_hub;           /* the library's own: ranks that are threads of one process */
} rks_bootstrap;

typedef struct rks_group_options {
    size_t struct_size;
    const rks_bootstrap *bootstrap; /* NULL: Open MPI if a launcher set its variables, else solo */
    uint32_t silence_ms;            /* T: how long a rank may be silent; default 15,000, from 200 */
    uint32_t patience_ms;    /* after this wait a line on stderr says who is waited for; 60,000 */
    const char *listen;      /* address or interface to listen on; NULL: RKS_LISTEN, else loopback
                              * where all ranks share it, else the default route's interface, or
                              * the only one that is up */
    const char *secret_file; /* 0600 file with at least 32 bytes; NULL: RKS_SECRET_FILE, else a
                              * secret that rank 0 draws and the bootstrap hands round */
    const char *node;        /* what counts as a node; NULL: RKS_NODE, else the machine's boot id */
    uint32_t io_threads;     /* most threads of this rank that answer other ranks, and wait for cold
                              * pages, for all stores of the group; default 16, from 1 to 1024 */
} rks_group_options;

RKS_API void rks_group_options_default(rks_group_options *options);

/* COLLECTIVE. Connects the ranks. Fails on all ranks with the field and two ranks named
 * where versions or options differ. The caller owns *group. */
RKS_API rks_status rks_group_open(const rks_group_options *options, rks_group **group,
                                  rks_error *err);

/* Says goodbye and frees the group; waits at most T for the others. Not collective in
 * effect: a rank that never closes delays the others by T, no more. NULL is accepted. */
RKS_API void rks_group_close(rks_group *group);

RKS_API uint32_t rks_group_rank(const rks_group *group);
RKS_API uint32_t rks_group_size(const rks_group *group);
RKS_API uint32_t rks_group_node(const rks_group *group);  /* this rank's node, 0.. */
RKS_API uint32_t rks_group_nodes(const rks_group *group); /* how many */

/* How far the ranks are with a build or a comparison, from what each tells rank 0 about once a
 * second: sums over those that have told it. On other ranks than 0 it is what they know. */
typedef struct rks_group_progress {
    size_t struct_size;
    uint64_t done, total, samples; /* bytes of work, and samples, of all ranks */
    uint32_t ranks;                /* that have told theirs; 0: none, and all else is 0, too */
    uint32_t slowest_rank;         /* the one with the smallest share of its own work done */
    uint64_t slowest_done, slowest_total;
} rks_group_progress;

/* The caller sets struct_size. Not collective, never waiting, any thread. */
RKS_API void rks_group_progress_get(rks_group *group, rks_group_progress *progress);

/* COLLECTIVE. Ends a phase: every rank brings its own status (and error if it is not
 * RKS_OK); all return the failing rank's with the lowest number, or RKS_OK. `phase` is a
 * short name, equal on all ranks; ranks in different phases get RKS_ERR_STATE. */
RKS_API rks_status rks_group_agree(rks_group *group, const char *phase, rks_status status,
                                   rks_error *err);

/* Between collective calls; not collective, never waiting, any thread. A rank whose own long work
 * fails says so at once (_stop), and brings its error to the next collective call. The others ask
 * now and then (_must_stop): RKS_ERR_PEER where a rank has said so, or was lost; who gets it makes
 * that call early, with this status and error, and there the failing rank's own error counts. */
RKS_API void rks_group_stop(rks_group *group);
RKS_API rks_status rks_group_must_stop(rks_group *group, rks_error *err);

/* COLLECTIVE. Every rank brings its status and `size` bytes (sizes may differ; also 0); on success
 * *all holds them in rank order, (*offsets)[r] to (*offsets)[r + 1] being rank r's (size of the
 * group + 1 entries). Free both with rks_release. A rank that brings an error fails the call on
 * all, as with agree. */
RKS_API rks_status rks_group_allgather(rks_group *group, const char *phase, rks_status mine,
                                       const void *bytes, size_t size, uint8_t **all,
                                       uint64_t **offsets, rks_error *err);

/* Runs `main_fn` on `ranks` new processes of this machine and supervises them: when one
 * ends badly the others learn its rank and how it ended. Returns the exit code of the
 * first rank that failed (128 + signal for one that was killed), else 0. SIGINT and SIGTERM are
 * passed on. No process outlives the caller. Call it before any thread is started. */
typedef int (*rks_rank_fn)(const rks_bootstrap *bootstrap, void *user);
RKS_API rks_status rks_launch(uint32_t ranks, rks_rank_fn main_fn, void *user, int *exit_code,
                              rks_error *err);

/* The same on threads of this process: for tests and tools. */
RKS_API rks_status rks_launch_threads(uint32_t ranks, rks_rank_fn main_fn, void *user,
                                      int *exit_code, rks_error *err);

/* ---- memory: what the library holds, told truly ------------------------------------------ */

/* The figures are the process's since its start, of all its stores together: ranks that are threads
 * of one process have them in common. Values are part of the interface: append, never renumber. */
typedef enum rks_memory_kind {
    RKS_MEMORY_INDEX = 0,     /* the index, and the sorted order that plans use: one copy a node,
                               * shared by its ranks. Each of them tells all of it: don't add up */
    RKS_MEMORY_INDEX_OWN = 1, /* of this process alone: where samples lie, the table that finds keys
                               * (made by the first search), pieces of index that come in */
    RKS_MEMORY_PLAN = 2,      /* of this process alone: an epoch's ids and batches */
    RKS_MEMORY_STAGING = 3,   /* chunks of index on their way, at both ends, while a store opens */
    RKS_MEMORY_BATCHES =
        4, /* batches and arrays that are alive, those fetched ahead and replies that
            * come in included, and up to 64 MiB a store kept for the next ones */
    RKS_MEMORY_IN_FLIGHT = 5, /* of RKS_MEMORY_BATCHES: replies of owners that are on their way */
    RKS_MEMORY_PINNED = 6,    /* host memory that is pinned for a GPU */
    RKS_MEMORY_GPU_SLOTS = 7, /* GPU memory of the exchange's own slots */
    RKS_MEMORY_GPU_NCCL =
        8, /* GPU memory that NCCL took: what the driver's free memory fell by while
            * it was set up. Others that allocate there meanwhile are in it */
    RKS_MEMORY_RESIDENT = 9, /* of the process, by the kernel (VmRSS, VmHWM): all above that is host
                              * memory and was touched, pages of mapped shards, and everything
                              * else that the process holds */
} rks_memory_kind;
enum { RKS_MEMORY_KINDS = 10 }; /* that this header knows */

/* "index", "index_own", "plan", "staging", "batches", "in_flight", "pinned", "gpu_slots",
 * "gpu_nccl", "resident": the names in JSON and Python. Static; NULL from the first number on that
 * the library does not know. */
RKS_API const char *rks_memory_kind_name(uint32_t kind);

typedef struct rks_memory_figure {
    uint64_t current; /* bytes now */
    uint64_t peak;    /* the most so far */
} rks_memory_figure;

typedef struct rks_memory_use {
    size_t struct_size;
    rks_memory_figure kinds[RKS_MEMORY_KINDS]; /* by rks_memory_kind */
} rks_memory_use;

/* Of this process. The caller sets struct_size. Any thread. */
RKS_API void rks_memory_use_get(rks_memory_use *use);

/* Over all ranks; of equal ones the lowest rank. A least_peak far below peak: one rank alone pays.
 */
typedef struct rks_memory_extreme {
    uint64_t current;
    uint64_t peak;
    uint64_t least_peak; /* the smallest of the ranks' peaks */
    uint32_t current_rank;
    uint32_t peak_rank;
} rks_memory_extreme;

typedef struct rks_memory_most {
    size_t struct_size;
    rks_memory_extreme kinds[RKS_MEMORY_KINDS];
} rks_memory_most;

/* COLLECTIVE. The figures of all ranks, on all of them. `struct_size`: sizeof(rks_memory_use).
 * *ranks has one entry a rank (free with rks_release); NULL: not wanted. most->struct_size is set
 * by the caller; most may be NULL. */
RKS_API rks_status rks_memory_use_all(rks_group *group, size_t struct_size, rks_memory_use **ranks,
                                      rks_memory_most *most, rks_error *err);

/* ---- schema and samples --------------------------------------------------------------- */

/* A sample is a flat record of named, typed columns. A type is one of
 *     bool int8..int64 uint8..uint64 float16 float32 float64 bfloat16
 *     float8_e4m3fn float8_e5m2 complex64, alone (a scalar) or with dimensions:
 *     int32[*]   float16[80,*]   uint8[*,*,3]          at most RKS_DIMS_MAX of them
 *     str   bytes   json                               (sizes in bytes)
 * with `?` behind it where a value may be missing ("int64?"). `*` may differ from sample
 * to sample. Data is little-endian, row-major, without gaps. */
typedef struct rks_schema rks_schema;

enum { RKS_DIMS_MAX = 8, RKS_COLUMNS_MAX = 1024, RKS_KEY_MAX = 511 };

/* `text`: a JSON object {"name": "type", ...} or the short form "name:type,name:type".
 * The order is kept. Names: 1 to 255 bytes of UTF-8 without control characters.
 * RKS_ERR_ARGUMENT names the column. The caller owns *schema. */
RKS_API rks_status rks_schema_parse(const char *text, rks_schema **schema, rks_error *err);
RKS_API void rks_schema_free(rks_schema *schema); /* NULL is accepted */
RKS_API uint32_t rks_schema_columns(const rks_schema *schema);
RKS_API const char *rks_schema_name(const rks_schema *schema, uint32_t column); /* as schema */
RKS_API const char *rks_schema_type(const rks_schema *schema, uint32_t column); /* "int32[*]" */
/* -1 where there is none. */
RKS_API int rks_schema_find(const rks_schema *schema, const char *name);
/* The canonical JSON object. Valid as long as the schema. */
RKS_API const char *rks_schema_text(const rks_schema *schema);

/* One column of one sample. `data` NULL: missing (nullable columns only). */
typedef struct rks_value {
    const void *data;
    uint64_t size;               /* bytes */
    uint32_t dims[RKS_DIMS_MAX]; /* sizes of all dimensions; unused ones 0. At `add` a type with
                                  * one `*` may leave them 0: size says it */
} rks_value;

/* A sample as callbacks and readers see it. */
typedef struct rks_sample {
    const rks_schema *schema;
    const rks_value *values; /* rks_schema_columns() of them */
    const void *key;
    size_t key_size;
    uint32_t length; /* 0 before the length function has run */
} rks_sample;

/* ---- building ------------------------------------------------------------------------- */

/* Callbacks return 1 to keep and 0 to drop a sample; negative is an error on all ranks, with
 * the text that the callback left in *err. They run in the thread that builds. */
typedef int (*rks_filter_fn)(void *user, const rks_sample *sample, rks_error *err);
typedef rks_status (*rks_length_fn)(void *user, const rks_sample *sample, uint64_t *length,
                                    rks_error *err);

/* Progress of a long call; `total` 0 if not known. Called at most each 100 ms, in the
 * calling thread, on every rank; `done` and `total` count the bytes of this rank
 * (rks_group_progress_get: of all). Rank 0 is also called while it waits for the others. */
typedef void (*rks_progress_fn)(void *user, const char *phase, uint64_t done, uint64_t total,
                                uint64_t samples);

typedef struct rks_build_options {
    size_t struct_size;
    const char *schema;   /* as rks_schema_parse(); NULL: inferred from the input */
    const char *format;   /* "jsonl", "text", "folder", "tar", "zip", "csv", "tsv", "npy",
                           * "npz", "megatron", "mds"; NULL: by name and content */
    const char *key;      /* column that holds the key (str, bytes or an integer); NULL: derived
                           * "relative path:row", rows from 0 */
    const char *length;   /* "COLUMN" (items of an array, bytes of a string, an integer as it
                           * is), "chars:COLUMN" (UTF-8 characters), "wav:COLUMN" (sample
                           * frames of a WAV file, by its header); NULL: the first column
                           * with a variable dimension that is not `key`, else 1 */
    uint32_t length_unit; /* lengths are divided by it, rounded up; default 1 */
    const char *where;    /* "COLUMN OP VALUE [and ...]", OP one of == != < <= > >= ; NULL: all */
    const char *const *index; /* numeric columns that travel with the index */
    size_t index_count;
    rks_filter_fn filter;
    rks_length_fn length_fn; /* instead of `length` */
    void *callback_user;
    uint64_t max_sample; /* bytes of one sample, larger is an error; default 1 GiB */
    bool skip_bad;       /* count and list malformed samples instead of failing */
    bool own_keys;       /* from memory: each rks_builder_add brings its key */
    bool replace;        /* a finished dataset in the directory is replaced at the commit */
    uint64_t unit_size;  /* bytes of input in a unit; default 64 MiB */
    uint64_t block_size; /* default 1 MiB, 64 KiB to 64 MiB */
    rks_progress_fn progress;
    void *progress_user;
    const char *source;  /* from memory: what the samples come from, in the caller's words, equal on
                          * all ranks: a build that was interrupted is resumed only where it is the
                          * same */
    uint32_t min_length; /* samples of a smaller length are filtered out; default 0 */
    uint32_t max_length; /* and those of a greater one; default 0: no limit */
    double sample_rate;  /* above 0 and below 1: each row of the input is taken with this chance,
                          * before anything else is looked at; default 0: all. Which ones follows
                          * from the seed, the unit and the row in it, so not from the ranks */
    uint64_t seed;       /* of sample_rate and sample; default 0 */
    uint64_t max_total;  /* bytes that one compressed file or archive may unpack to, more is an
                          * error; default 1 TiB */
    uint64_t sample;     /* keep this many of the samples that are left, by chance: also the same on
                          * any ranks; default 0: all. Not with sample_rate. Shards hold the others
                          * too, and dataset.json leaves them out */
    bool dedup; /* of samples with equal contents (all columns but the key's) only the first
                 * in (unit, row) order counts; the shards hold the others too. What has one hash is
                 * compared byte by byte before it is left out */
    const char *columns; /* names of the columns of CSV or TSV, by commas, where files have no
                          * header; NULL: the first record of each file names them */
    bool append;         /* the samples come behind those of the dataset in the directory, as its
                          * next generation; schema, key, length and index columns are by default
                          * that one's. Where there is none it is built as generation 1 */
} rks_build_options;

RKS_API void rks_build_options_default(rks_build_options *options);

typedef struct rks_build_report {
    size_t struct_size;
    uint64_t samples;       /* kept, all ranks */
    uint64_t filtered;      /* dropped by where, filter or length, all ranks */
    uint64_t bad;           /* skipped by skip_bad, all ranks */
    uint64_t bytes;         /* column and key bytes kept, all ranks */
    uint64_t input_bytes;   /* all ranks */
    uint64_t units;         /* in the dataset */
    uint64_t units_resumed; /* of them taken over from an interrupted build */
    double seconds;         /* this rank */
    char dataset[33];       /* the dataset id, 32 hexadecimal digits */
    char bad_first[512];    /* the first that this call skipped, a line each, all ranks; cut */
    uint64_t sampled_out;   /* that sample_rate or sample did not take, all ranks */
    uint64_t duplicates;    /* that dedup left out, all ranks */
} rks_build_report;

/* COLLECTIVE. Builds `directory` from files and folders, dealt out over the ranks. The same
 * call resumes an interrupted build, also on another number of ranks. `directory` may hold
 * {rank} and {node}. *report may be NULL. Errors: RKS_ERR_DATA names file and line; RKS_ERR_STATE
 * where another build runs in the directory (naming pid and host) or a finished dataset is
 * there and `replace` is not set (RKS_ERR_ARGUMENT). */
RKS_API rks_status rks_build(rks_group *group, const char *const *sources, size_t source_count,
                             const char *directory, const rks_build_options *options,
                             rks_build_report *report, rks_error *err);

/* Building from memory: each rank adds samples in units of its own.
 * A unit is the piece that resume works by; its number is unique over all ranks, and samples are
 * numbered in (unit, row) order, whichever rank added them. */
typedef struct rks_builder rks_builder;

/* COLLECTIVE. `options->schema` is needed; format, skip_bad and unit_size are not used. */
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

/* Counts samples of the current unit that the caller left out itself, as `filtered` or as `bad`:
 * kept with the unit, so that reports count them also where a later build takes the unit over. Rows
 * of derived keys do not count them. Nothing happens in a unit that was to be skipped. */
RKS_API rks_status rks_builder_left_out(rks_builder *builder, uint64_t filtered, uint64_t bad,
                                        rks_error *err);

/* COLLECTIVE. Seals the shards and commits the dataset. A rank that failed brings its status, so
 * that all fail alike: RKS_OK, or what `rks_builder_add` or the caller's own work ended with. */
RKS_API rks_status rks_builder_commit(rks_builder *builder, rks_status status,
                                      rks_build_report *report, rks_error *err);

/* Frees the builder. What was not committed stays for a resume. NULL is accepted. */
RKS_API void rks_builder_close(rks_builder *builder);

/* ---- reading an input without building ---------------------------------------------------- */

/* For callers that make samples of their own of what an input holds, and give them to a builder.
 * The input is found, cut and read as rks_build does it. */
typedef struct rks_reader rks_reader;

/* `sample` is valid during the call; its key is the one that rks_build would give it, also where it
 * would be derived. `row` counts from 0 in the sample's file. A failure ends the unit, with the
 * row's place in front of its text. */
typedef rks_status (*rks_read_fn)(void *user, const rks_sample *sample, uint64_t row,
                                  rks_error *err);

typedef struct rks_read_report {
    size_t struct_size;
    uint64_t filtered;   /* rows that where, filter, length or sample_rate left out */
    uint64_t bad;        /* rows that skip_bad passed over */
    char bad_first[512]; /* the first of them, a line each; cut */
} rks_read_report;

/* COLLECTIVE. Looks at the input and agrees a schema, as rks_build; what options say of the target
 * (replace, append, dedup, sample, index) is not used. The strings and callbacks of `options` must
 * outlive the reader, which the caller owns. The group is not needed later. Errors as of
 * rks_build. */
RKS_API rks_status rks_reader_open(rks_group *group, const char *const *sources,
                                   size_t source_count, const rks_build_options *options,
                                   rks_reader **reader, rks_error *err);
RKS_API const rks_schema *rks_reader_schema(const rks_reader *reader); /* valid as the reader */
RKS_API uint64_t rks_reader_units(const rks_reader *reader);
/* The unit's first file, as keys name it (valid as the reader), and its bytes. RKS_ERR_ARGUMENT for
 * a unit that is not there. */
RKS_API rks_status rks_reader_unit(const rks_reader *reader, uint64_t unit, const char **name,
                                   uint64_t *bytes, rks_error *err);
/* Not collective: each sample of a unit, in order. One thread at a time. *report may be NULL. */
RKS_API rks_status rks_reader_read(rks_reader *reader, uint64_t unit, rks_read_fn take, void *user,
                                   rks_read_report *report, rks_error *err);
RKS_API void rks_reader_close(rks_reader *reader); /* NULL is accepted */

/* The format that rks_build would read the sources as, "jsonl" for one. *format is static. */
RKS_API rks_status rks_source_format(const char *const *sources, size_t source_count,
                                     const rks_build_options *options, const char **format,
                                     rks_error *err);

/* ---- generations ------------------------------------------------------------------------ */

typedef struct rks_prune_options {
    size_t struct_size;
    uint64_t keep; /* generations that stay, the newest ones; 0: all */
    bool dry_run;  /* count only */
} rks_prune_options;

typedef struct rks_prune_report {
    size_t struct_size;
    uint64_t generations; /* forgotten, all ranks' directories */
    uint64_t files;       /* removed with them: shards that no generation names, unfinished parts,
                           * what killed processes left */
    uint64_t bytes;
} rks_prune_report;

/* COLLECTIVE. Forgets old generations and removes what the others do not name, in each rank's
 * `directory`; the newest generation always stays. Killed at any instant it leaves each generation
 * whole or forgotten; another call goes on. RKS_ERR_STATE where a build runs there,
 * RKS_ERR_NOT_FOUND where there is no dataset (an unfinished build keeps its parts). `options` and
 * `report` may be NULL. */
RKS_API rks_status rks_prune(rks_group *group, const char *directory,
                             const rks_prune_options *options, rks_prune_report *report,
                             rks_error *err);

/* ---- merging ----------------------------------------------------------------------------- */

typedef struct rks_merge_options {
    size_t struct_size;
    bool copy; /* shards are copied; default: linked where source and target are of one file system
                */
    rks_progress_fn progress;
    void *progress_user;
} rks_merge_options;

typedef struct rks_merge_report {
    size_t struct_size;
    uint64_t samples;
    uint64_t shards;
    uint64_t linked_bytes; /* of files that are links of the sources', this rank */
    uint64_t copied_bytes;
    char dataset[33]; /* the dataset id, 32 hexadecimal digits */
} rks_merge_report;

/* COLLECTIVE. Makes one dataset of `count` (2 and more) in `target`, without reading a sample: the
 * sources' sealed shards are linked or copied, and a new dataset.json names them, the samples of
 * the first source first. Each rank brings the shards that it sees ({rank}, {node} and "DIR@2" as
 * in rks_store_open). Schema, index columns and kind of keys must agree (RKS_ERR_ARGUMENT);
 * RKS_ERR_DATA names a key that is in two of them. RKS_ERR_ARGUMENT where a dataset is in `target`.
 * Options and report may be NULL. A merge that was killed is done again by the same call. */
RKS_API rks_status rks_merge(rks_group *group, const char *const *sources, size_t count,
                             const char *target, const rks_merge_options *options,
                             rks_merge_report *report, rks_error *err);

/* ---- verifying ------------------------------------------------------------------------ */

typedef enum rks_verify_level {
    RKS_VERIFY_FAST = 0, /* manifests, sizes, every sample */
    RKS_VERIFY_FULL = 1, /* and every byte of every file by the sums */
    RKS_VERIFY_DEEP = 2, /* and LMDB's own view, in a child process with a time limit */
} rks_verify_level;

/* One finding. `key` is empty where the bytes lie in no sample. */
typedef struct rks_finding {
    const char *file;
    uint64_t offset;
    const void *key;
    size_t key_size;
    const char *what;
    int64_t sample_id; /* in the dataset; -1 where the bytes lie in no one sample, or a shard's file
                        * was looked at alone */
} rks_finding;
typedef void (*rks_finding_fn)(void *user, const rks_finding *finding);

/* Looks at the dataset in `directory`, or at one shard's file. Calls `found` for each problem;
 * *samples counts what was checked, *findings the problems. RKS_OK also where problems were
 * found; an error only where looking itself failed. Never writes. */
RKS_API rks_status rks_verify(const char *path, rks_verify_level level, rks_finding_fn found,
                              void *user, uint64_t *samples, uint64_t *findings, rks_error *err);

typedef struct rks_verify_options {
    size_t struct_size;
    rks_verify_level level;
    /* Directories that are verified together, each by a call of its own, `path` among them: a shard
     * that is not in `path` may lie in another one that holds the same dataset, as those of ranks
     * with disks of their own do. What none of them has is told of with the first. */
    const char *const *together; /* NULL: `path` alone */
    size_t together_count;
    bool partial; /* a shard that none of them has is counted, and no finding */
} rks_verify_options;

typedef struct rks_verify_counts {
    size_t struct_size;
    uint64_t samples;   /* checked */
    uint64_t findings;  /* problems */
    uint64_t elsewhere; /* shards that were not at hand, with `partial` */
} rks_verify_counts;

RKS_API void rks_verify_options_default(rks_verify_options *options);
/* rks_verify with options (NULL: the defaults). The caller sets counts->struct_size; NULL: not
 * wanted. */
RKS_API rks_status rks_verify_with(const char *path, const rks_verify_options *options,
                                   rks_finding_fn found, void *user, rks_verify_counts *counts,
                                   rks_error *err);

/* Writes a list of samples that an open can leave out (FORMAT.md): `count` ids of the dataset in
 * `directory`, in any order; `reasons` holds a line for each, or is NULL. Replaces `path` at once
 * or not at all. RKS_ERR_ARGUMENT for an id out of range. */
RKS_API rks_status rks_quarantine_write(const char *path, const char *directory,
                                        const uint64_t *sample_ids, const char *const *reasons,
                                        size_t count, rks_error *err);

/* ---- store: a dataset, open over a group ------------------------------------------------- */

typedef struct rks_store rks_store;
typedef struct rks_batch rks_batch;
typedef struct rks_fetch rks_fetch;

/* The NCCL that exchange "nccl" uses where none is loaded in the process yet and RKS_NCCL_LIBRARY
 * does not name one: a path of libnccl.so.2. Copied; NULL: what the system finds. Any thread.
 * RKS_ERR_MEMORY. */
RKS_API rks_status rks_nccl_library(const char *path, rks_error *err);

typedef struct rks_store_options {
    size_t struct_size;
    const char *exchange;    /* "auto", "local", "nccl", "mpi", "pull": how the index travels; auto
                              * needs none on one node. "nccl" takes options: "nccl:rails=off,
                              * timeout=SECONDS,slot=BYTES" (see the README) */
    bool no_share;           /* fetch all that this rank does not own over TCP, also on one node */
    bool no_check;           /* do not compare each sample with its checksum */
    bool partial;            /* open although shards are missing; ids do not change */
    uint64_t inflight_bytes; /* replies on their way to this rank; default 256 MiB */
    uint32_t fetch_timeout_ms; /* how long an owner that beats may send nothing of the samples that
                                * were asked of it (its disk hangs): then the next owner of the
                                * shard is asked; where there is none the fetch ends with
                                * RKS_ERR_TIMEOUT. Default 0: as long as it beats */
    /* A list of samples that are left out, as rks_quarantine_write makes it; may hold {rank} and
     * {node}; NULL: none. A rank that does not see it takes the others'; where lists differ, what
     * any of them names is left out. Ids do not change: such a sample has the length UINT32_MAX and
     * the owner -1, is never planned, and a fetch of it is RKS_ERR_NOT_FOUND. RKS_ERR_DATA: a list
     * of another dataset. */
    const char *quarantine;
} rks_store_options;

RKS_API void rks_store_options_default(rks_store_options *options);

/* COLLECTIVE. Opens the dataset in `directory` (may hold {rank} and {node}; "DIR@2" is its
 * generation 2, where no directory has that name), each rank serving the shards it sees, and
 * exchanges the index. Samples are numbered 0..count-1. The group must outlive the store. The
 * caller owns *store. */
RKS_API rks_status rks_store_open(rks_group *group, const char *directory,
                                  const rks_store_options *options, rks_store **store,
                                  rks_error *err);

/* COLLECTIVE. Serves the other ranks until all have closed or `timeout_ms` is over (0: T), then
 * frees the store. End its fetches and close its epochs first; batches, views and arrays may
 * outlive it. NULL is accepted. */
RKS_API void rks_store_close(rks_store *store, uint32_t timeout_ms);

RKS_API uint64_t rks_store_count(const rks_store *store);
RKS_API const char *rks_store_dataset(const rks_store *store); /* 32 hexadecimal digits */
RKS_API const rks_schema *rks_store_schema(const rks_store *store);
RKS_API rks_group *rks_store_group(const rks_store *store);

/* count entries, in id order, shared by the ranks of a node; read-only, valid as long as the store.
 */
RKS_API const uint32_t *rks_store_lengths(const rks_store *store);
RKS_API const uint64_t *rks_store_key_hashes(const rks_store *store);
/* An index column: raw values of its type; NULL where there is none of that name. */
RKS_API const void *rks_store_column(const rks_store *store, const char *name, const char **type);

/* Keeps what these three point to, and plans of the store, valid until rks_index_close, also after
 * the store has been closed. Any threads; the caller owns what is returned. */
typedef struct rks_index rks_index;
RKS_API rks_index *rks_store_index(rks_store *store);
RKS_API void rks_index_close(rks_index *index); /* NULL is accepted */

/* The rank that serves the sample; -1 for an id out of range, a shard that nobody serves, or a
 * sample in quarantine. */
RKS_API int64_t rks_store_owner(const rks_store *store, uint64_t sample_id);

/* The shard that holds the sample, as its place in the list that rks_store_info_json prints; -1 for
 * an id out of range. */
RKS_API int64_t rks_store_shard(const rks_store *store, uint64_t sample_id);

/* The key of a sample, stored or derived; read from its owner where its shard is not on this node.
 */
RKS_API rks_status rks_store_key(rks_store *store, uint64_t sample_id, uint8_t key[RKS_KEY_MAX],
                                 size_t *key_size, rks_error *err);

/* The id of the sample with this key. RKS_ERR_NOT_FOUND shows the key. */
RKS_API rks_status rks_store_find(rks_store *store, const void *key, size_t key_size,
                                  uint64_t *sample_id, rks_error *err);

/* What `info --json` prints: dataset, schema, shards, lengths, ... Free with rks_release. */
RKS_API rks_status rks_store_info_json(rks_store *store, char **json, rks_error *err);

/* Figures of this rank since the store was opened. Free the text with rks_release. */
typedef struct rks_store_stats {
    size_t struct_size;
    uint64_t samples;      /* delivered */
    uint64_t bytes;        /* payload delivered: column and key bytes */
    uint64_t local_bytes;  /* of them read from a map of this node */
    uint64_t remote_bytes; /* of them received from other ranks */
    uint64_t served_bytes; /* sent to other ranks */
    uint64_t wait_ns;      /* time in which a caller waited for samples */
    uint64_t peak_inflight_bytes;
    uint64_t peak_batch_bytes; /* memory of batches alive at once */
    uint64_t index_bytes_node; /* index memory of this node */
    uint64_t
        exchange_bytes; /* index bytes that this node took in from the ranks, headers included */
    char exchange[16];  /* the backend that ran: "shared", "local", "nccl", "mpi", "pull" */
    char exchange_why[128]; /* "named", "auto: ...": why that one */
    uint64_t quarantined;   /* samples of the dataset that the quarantine list leaves out */
} rks_store_stats;
RKS_API void rks_store_stats_get(rks_store *store, rks_store_stats *stats);

/* Fetches `count` samples in the order of `sample_ids` (repeats are allowed; count 0 gives an
 * empty batch). All samples arrive or none. Blocks until then; an owner's silence ends it.
 * RKS_ERR_ARGUMENT for an id out of range, RKS_ERR_CORRUPT names the sample. The caller owns
 * *batch. */
RKS_API rks_status rks_store_fetch(rks_store *store, const uint64_t *sample_ids, size_t count,
                                   rks_batch **batch, rks_error *err);

/* The same without waiting. The ids are copied. The caller owns *fetch and ends it with exactly
 * one of rks_fetch_wait (which blocks) or rks_fetch_cancel. */
RKS_API rks_status rks_store_fetch_start(rks_store *store, const uint64_t *sample_ids, size_t count,
                                         rks_fetch **fetch, rks_error *err);
RKS_API bool rks_fetch_ready(rks_fetch *fetch);
RKS_API rks_status rks_fetch_wait(rks_fetch *fetch, rks_batch **batch, rks_error *err);
RKS_API void rks_fetch_cancel(rks_fetch *fetch); /* NULL is accepted */

/* A batch owns the bytes of its samples; writable, valid until rks_batch_free. It may outlive its
 * store: all of it stays readable, and what the store had mapped stays so until its last batch and
 * view are gone. */
RKS_API size_t rks_batch_count(const rks_batch *batch);
RKS_API uint64_t rks_batch_id(const rks_batch *batch, size_t i);
RKS_API uint32_t rks_batch_length(const rks_batch *batch, size_t i);
RKS_API const void *rks_batch_key(const rks_batch *batch, size_t i, size_t *size);
/* All columns of sample i in the stored layout (FORMAT.md). */
RKS_API uint8_t *rks_batch_payload(rks_batch *batch, size_t i, size_t *size);
/* One column of sample i; value->data points into the batch. */
RKS_API rks_status rks_batch_value(rks_batch *batch, size_t i, uint32_t column, rks_value *value,
                                   rks_error *err);
/* Adds the digest (XXH3-128 over key and contents) of each sample to sum[0] (low) and sum[1]
 * (high), modulo 2^128: a sum that does not depend on order, batches or ranks. */
RKS_API void rks_batch_digest(rks_batch *batch, uint64_t sum[2]);
RKS_API void rks_batch_free(rks_batch *batch); /* NULL is accepted */

/* One sample read-only and without a copy: in the map of its shard where that lies on this node
 * (checked once, when it is opened), else fetched. Valid until rks_view_free, also after the store
 * has been closed. Where the file is cut underneath it reads as zeros. RKS_ERR_ARGUMENT for an id
 * out of range, RKS_ERR_CORRUPT names the sample. The caller owns *view. */
typedef struct rks_view rks_view;
RKS_API rks_status rks_store_view(rks_store *store, uint64_t sample_id, rks_view **view,
                                  rks_error *err);
/* value->data points into the view: not to be written. */
RKS_API rks_status rks_view_value(const rks_view *view, uint32_t column, rks_value *value,
                                  rks_error *err);
RKS_API void rks_view_free(rks_view *view); /* NULL is accepted */

/* ---- collate: samples of a batch as arrays -------------------------------------------------- */

/* Layouts. A column's items lie along its variable dimensions; str, bytes and json are uint8[*],
 * and are packed in both layouts, neither cut nor filled up.
 *
 * pad    one array a column, [count, sizes...]: every variable dimension is as wide as the widest
 *        sample that has items, the first of them rounded up to a multiple of `to_multiple`, filled
 *        with `pad`
 * pack   one array a column, [total, sizes...]: samples one behind the other along the first
 *        dimension (the only one that may vary), rounded up to a multiple of `to_multiple` and
 *        filled with `pad`; `offsets` tells where each begins
 *
 * Columns without a variable dimension are stacked in both: [count, sizes...]. A missing value has
 * no items: where it is stacked, all of its place is `pad`. */
typedef struct rks_collate_column {
    const char *column; /* of the schema */
    const char *name;   /* of the array; NULL: the column's */
    const char *type;   /* of the array's items; NULL: as stored. One that holds every value of the
                         * stored type: wider integers, floats that are exact (int16 to float32);
                         * a bool is 0 or 1. complex64 and float8 come from themselves alone */
    double pad;         /* fills up; must be a value of the type (floats are rounded) */
    double first;       /* layout pack: stands for the first item of each sample, all of it where
                         * items have further dimensions, where `mark_first` */
    bool mark_first;
    uint8_t reserved[31]; /* zero */
} rks_collate_column;

typedef struct rks_collate_options {
    size_t struct_size;
    const char *layout;                /* "pad" (default) or "pack" */
    const rks_collate_column *columns; /* NULL: all of them, as stored, filled with 0 */
    size_t column_count;
    uint32_t to_multiple; /* default 1, from 1 */
    uint32_t max_length;  /* samples are cut to so many items along the first variable dimension of
                           * each column; 0: none */
    bool left;            /* pad: samples lie at the right edge of the first variable dimension */
    const char *mask; /* pad: name of an int64 array [count, width]: 1 where the first column with
                       * a variable dimension has items, else 0; NULL: none */
    const char *positions; /* pack: name of an int64 array [total]: the place of each item in its
                            * sample, of that same column; 0 where filled; NULL: none */
} rks_collate_options;

RKS_API void rks_collate_options_default(rks_collate_options *options);

typedef struct rks_array {
    const char *name;
    const char *type; /* of the items: "int64" */
    uint32_t dim_count;
    uint64_t dims[RKS_DIMS_MAX + 1];
    void *data;             /* row-major, aligned to 64 bytes; writable */
    uint64_t size;          /* bytes */
    const int64_t *offsets; /* pack: [count + 1] items along the first dimension; NULL: stacked */
} rks_array;

/* Arrays own their memory: valid until rks_arrays_free (in any thread), also after their store has
 * been closed. */
typedef struct rks_arrays rks_arrays;
RKS_API size_t rks_arrays_count(const rks_arrays *arrays);
/* Valid as long as `arrays`; NULL where there is none. In the order of the columns, then mask or
 * positions. */
RKS_API const rks_array *rks_arrays_get(const rks_arrays *arrays, size_t i);
RKS_API size_t rks_arrays_samples(const rks_arrays *arrays);
RKS_API const uint64_t *rks_arrays_ids(const rks_arrays *arrays);
RKS_API const uint32_t *rks_arrays_lengths(const rks_arrays *arrays);
RKS_API void rks_arrays_free(rks_arrays *arrays); /* NULL is accepted */

/* Arrays of a batch, which stays as it is. RKS_ERR_ARGUMENT names the column and the rule that it
 * breaks. The caller owns *arrays. */
RKS_API rks_status rks_batch_collate(rks_batch *batch, const rks_collate_options *options,
                                     rks_arrays **arrays, rks_error *err);

/* Fetches and collates: rks_store_fetch and rks_batch_collate in one, samples of this node straight
 * from their map into the arrays. What was checked is what arrives, also where somebody writes to
 * the file meanwhile; for samples above 64 KiB that holds of sealed files that nobody writes to. A
 * file that is cut or cannot be read is RKS_ERR_IO and names the sample. */
RKS_API rks_status rks_store_collate(rks_store *store, const uint64_t *sample_ids, size_t count,
                                     const rks_collate_options *options, rks_arrays **arrays,
                                     rks_error *err);

/* ---- plan: which samples form which batch, at which step, on which rank ------------------- */

typedef struct rks_plan rks_plan;

/* Strategies:
 * bucket      neighbourhoods of like length, shuffled inside and across; the batches of a step have
 *             like cost on all ranks
 * sorted      longest first, steps in that order; epochs differ in the places of equal lengths, so
 *             padded tokens are the same in all of them
 * random      any samples together, floor(max_tokens / longest of all) a batch
 * sequential  by id, step-major and rank-minor; never shuffled
 *
 * A sample above max_length, or one that max_tokens has no room for, is too long: an error that
 * names it, or it is dropped, alone in a batch (which may break the budget), or counted as
 * truncated to that limit (the bytes fetched stay whole). A length of 0 takes room for 1 in a
 * budget.
 *
 * Every rank has the same number of steps and no batch is empty: the last step's batches are split
 * over all ranks, or full and repeating samples of theirs, or dropped. Where batches hold one
 * sample and their number is no multiple of the ranks, there is nothing to split: RKS_ERR_DATA. */
typedef struct rks_plan_options {
    size_t struct_size;
    const char *strategy; /* "bucket" (default), "sorted", "random", "sequential" */
    uint32_t batch_size;  /* samples a batch at most, to 2^24; 0: no such bound */
    uint64_t max_tokens;  /* budget of a batch in the units of `cost`; 0: no such bound. With
                           * neither bound given, batch_size is 64 */
    const char *cost;     /* "padded" (default: longest * count), "tokens" (sum of lengths),
                           * "quadratic" (padded for the budget; longest squared * count
                           * for the balance over ranks) */
    uint32_t max_length;  /* 0: none */
    const char *too_long; /* "error" (default), "drop", "alone", "truncate" */
    const char *tail;     /* "split" (default: the last batches are smaller), "repeat" (filled with
                           * samples already used), "drop" */
    const char *steps;    /* "constant" (default), "per_epoch" (random with max_tokens only: batches
                           * are filled, and their number varies; an epoch that cannot be made
                           * even is RKS_ERR_DATA when it is asked for) */
    uint32_t batch_multiple; /* batches hold a multiple of it where they can; default 1 */
    bool no_shuffle;         /* every epoch is as epoch 0; sorted breaks ties by id */
    uint32_t world;          /* ranks to plan for; 0: the group's size (rks_plan_create: 1) */
    uint64_t seed;
} rks_plan_options;

RKS_API void rks_plan_options_default(rks_plan_options *options);

/* Plans over `count` lengths (copied by no one: they must outlive the plan). A pure function: the
 * same bits for the same lengths, options and version, on any machine. `dataset` (32 hexadecimal
 * digits, or NULL) is written into states. RKS_ERR_ARGUMENT names the option; RKS_ERR_DATA
 * where no plan exists (fewer samples than ranks, a sample above max_length). A length of
 * UINT32_MAX is that of a sample that is not there (a partial store): it is never planned, and
 * counts as dropped. Own *plan. */
RKS_API rks_status rks_plan_create(const uint32_t *lengths, uint64_t count, const char *dataset,
                                   const rks_plan_options *options, rks_plan **plan,
                                   rks_error *err);

/* COLLECTIVE. The same over a store's lengths; sorted order shared by the ranks of a node. */
RKS_API rks_status rks_plan_open(rks_store *store, const rks_plan_options *options, rks_plan **plan,
                                 rks_error *err);
RKS_API void rks_plan_free(rks_plan *plan); /* NULL is accepted */

RKS_API uint32_t rks_plan_world(const rks_plan *plan);
/* Steps of an epoch: equal on all ranks, and in all epochs unless steps is "per_epoch". */
RKS_API rks_status rks_plan_steps(rks_plan *plan, uint64_t epoch, uint64_t *steps, rks_error *err);

/* The batch of `rank` at `step`: *count ids, owned by the plan, valid until the plan is asked for
 * another epoch or freed. Never empty. The first question for an epoch computes that epoch.
 * One thread at a time. */
RKS_API rks_status rks_plan_batch(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                                  const uint32_t **sample_ids, size_t *count, rks_error *err);

typedef struct rks_plan_report {
    size_t struct_size;
    uint64_t samples; /* delivered in the epoch, repeats included */
    uint64_t dropped; /* left out, by too_long or tail */
    uint64_t repeated;
    uint64_t truncated;
    uint64_t steps;
    uint64_t batches;
    uint64_t tokens;        /* sum of lengths, truncated ones as truncated */
    uint64_t padded_tokens; /* sum over batches of longest * count */
    uint64_t largest_batch; /* padded tokens of the largest */
    double efficiency;      /* tokens / padded_tokens */
    double balance;         /* mean over steps of mean cost / max cost over ranks */
    double tokens_per_step; /* mean over steps, all ranks */
    char digest[33];        /* of the epoch's batches: 32 hexadecimal digits */
    /* Size GPU memory by the largest batch, not by the mean. All in padded tokens: */
    uint32_t largest_batch_rank; /* where the largest batch is: of equal ones the first step's, */
    uint64_t largest_batch_step; /* and in it the lowest rank's */
    uint64_t smallest_batch;
    uint64_t median_batch;           /* at least half of the batches have no more */
    uint64_t p95_batch;              /* at least 95 % of the batches have no more */
    uint64_t least_largest_of_ranks; /* each rank has a largest batch: the least of these */
    uint64_t least_largest_of_steps; /* each step has a largest batch: the least of these */
} rks_plan_report;
/* The caller sets struct_size. In a resumed epoch: of what was left; steps count from there. Takes
 * 8 bytes a batch meanwhile. */
RKS_API rks_status rks_plan_report_get(rks_plan *plan, uint64_t epoch, rks_plan_report *report,
                                       rks_error *err);

/* Bounds of an epoch's neighbourhoods (strategy bucket; others have none: *count is 0): a length
 * for each, which none of its samples is above, ascending, each once. The lengths of a batch, as
 * truncated, lie between two that follow each other, both included; samples that are alone in a
 * batch have no bound. The caller frees *bounds (NULL where *count is 0) with rks_release. */
RKS_API rks_status rks_plan_bounds(rks_plan *plan, uint64_t epoch, uint32_t **bounds, size_t *count,
                                   rks_error *err);

/* Where a job is in an epoch: equal on all ranks, at most RKS_STATE_MAX bytes of JSON. */
enum { RKS_STATE_MAX = 1024 };
/* Writes the state "before step `step` of `epoch`" of this plan as JSON into `text`; step may be
 * the number of steps: the epoch is over. RKS_ERR_STATE after dozens of changes of world in one
 * epoch. */
RKS_API rks_status rks_plan_state(rks_plan *plan, uint64_t epoch, uint64_t step, char *text,
                                  size_t text_size, rks_error *err);
/* Takes a state over, also one of another number of ranks: the plan then holds, for the state's
 * epoch, what is left of it, and *epoch and *step say where to go on. With the same world they are
 * what was saved; with another one, step is 0 of the rest, spread over the new ranks, or of the
 * next epoch where nothing was left. Other epochs are whole. RKS_ERR_STATE names what differs
 * (planner version, dataset, samples, lengths, options, seed); RKS_ERR_DATA: what is left cannot be
 * made even for these ranks (fewer samples than ranks). On failure the plan is as it was. */
RKS_API rks_status rks_plan_resume(rks_plan *plan, const char *state, uint64_t *epoch,
                                   uint64_t *step, rks_error *err);

/* ---- epoch: batches of this rank, in step order, fetched ahead --------------------------- */

typedef struct rks_epoch rks_epoch;

typedef struct rks_epoch_options {
    size_t struct_size;
    uint64_t epoch;
    uint64_t first_step;
    uint32_t prefetch_batches; /* default 4, from 1 */
    uint64_t prefetch_bytes;   /* memory of batches fetched ahead; default 1 GiB */
    /* Batches come as arrays, from rks_epoch_next_arrays alone, made by threads ahead of time.
     * Copied; NULL: as samples, from rks_epoch_next. */
    const rks_collate_options *collate;
} rks_epoch_options;

RKS_API void rks_epoch_options_default(rks_epoch_options *options);

/* Not collective. Store and plan must outlive it; the plan's world is the group's size. */
RKS_API rks_status rks_epoch_open(rks_store *store, rks_plan *plan,
                                  const rks_epoch_options *options, rks_epoch **epoch,
                                  rks_error *err);
/* The next batch, owned by the caller; *batch is NULL at the end. *step may be NULL. */
RKS_API rks_status rks_epoch_next(rks_epoch *epoch, rks_batch **batch, uint64_t *step,
                                  rks_error *err);
/* The same for an epoch with `collate`; *arrays is NULL at the end. RKS_ERR_STATE where the epoch
 * was opened for the other kind. */
RKS_API rks_status rks_epoch_next_arrays(rks_epoch *epoch, rks_arrays **arrays, uint64_t *step,
                                         rks_error *err);
RKS_API void rks_epoch_close(rks_epoch *epoch); /* cancels what is in flight; NULL is accepted */

/* ---- where: conditions on a sample's columns ------------------------------------------- */

/* As a build's `where`: "COLUMN OP VALUE [and ...]", OP one of == != < <= > >=. A column's name or
 * a value with spaces is written in quotes; `null` is a missing value. RKS_ERR_ARGUMENT names the
 * column, or the place in the text (from 1). The schema must outlive *where, which the caller
 * owns. */
typedef struct rks_where rks_where;
RKS_API rks_status rks_where_parse(const rks_schema *schema, const char *text, rks_where **where,
                                   rks_error *err);
/* Do all conditions hold? `values` has one entry a column of the schema. Any threads. RKS_ERR_DATA:
 * a value whose size does not fit its type. */
RKS_API rks_status rks_where_test(const rks_where *where, const rks_value *values, bool *keep,
                                  rks_error *err);
RKS_API void rks_where_free(rks_where *where); /* NULL is accepted */

/* ---- trace: what this process did when --------------------------------------------------- */

typedef enum rks_trace_kind {
    RKS_TRACE_PLAN = 0,     /* an epoch's batches were computed */
    RKS_TRACE_PREFETCH = 1, /* a batch was on its way ahead of time: from its start until it was
                             * handed out; overlaps others */
    RKS_TRACE_FETCH = 2,    /* a request to an owner, until its reply was there; overlaps others */
    RKS_TRACE_COPY = 3,     /* samples came from maps of this node */
    RKS_TRACE_WAIT = 4,     /* a caller waited for samples */
    RKS_TRACE_BATCH = 5,    /* a batch was with the caller, from one rks_epoch_next to the next */
} rks_trace_kind;

typedef struct rks_trace_event {
    rks_trace_kind kind;
    uint32_t thread;   /* of this process, numbered from 1 */
    uint64_t begin_ns; /* CLOCK_MONOTONIC */
    uint64_t duration_ns;
    int64_t peer;     /* fetch: the owner's rank; else -1 */
    uint64_t samples; /* 0 where it is not known */
    uint64_t bytes;
} rks_trace_event;

/* "plan", "prefetch", ... Static. */
RKS_API const char *rks_trace_name(rks_trace_kind kind);

/* Process-wide, and off until it is started; off it costs nothing that can be measured. Each thread
 * keeps its last `events_a_thread` events (56 bytes each; 0: 65,536; of several calls the first one
 * decides). RKS_ERR_ARGUMENT above RKS_TRACE_EVENTS_MAX. */
enum { RKS_TRACE_EVENTS_MAX = 1 << 24 };
RKS_API rks_status rks_trace_start(uint32_t events_a_thread, rks_error *err);
/* What was kept stays for a drain. */
RKS_API void rks_trace_stop(void);
/* Hands out the events that were kept, thread by thread, each from its oldest, and forgets them;
 * *dropped counts those that were overwritten since the last drain. Any thread, also while others
 * trace. Free *events with rks_release. */
RKS_API rks_status rks_trace_drain(rks_trace_event **events, size_t *count, uint64_t *dropped,
                                   rks_error *err);

/* ---- gather: uneven results of all ranks to one ------------------------------------------ */

/* Results are samples with the key (name, index): `schema` describes one result. Each rank adds
 * what it has; `dst` receives all of it ordered by (name, index), one at a time, with its memory
 * bounded. Nothing goes through a GPU or pickle; results lie in files of a temporary directory
 * under `directory` (NULL: TMPDIR, else /tmp) until the call ends. */
typedef struct rks_gather rks_gather;

typedef struct rks_gather_item {
    const char *name;
    uint64_t index;
    uint32_t rank;           /* who added it */
    const rks_value *values; /* valid during the callback */
} rks_gather_item;
/* A failure ends the gather with that error on all ranks. */
typedef rks_status (*rks_gather_fn)(void *user, const rks_gather_item *item, rks_error *err);

typedef struct rks_gather_report {
    size_t struct_size;
    uint64_t items; /* all ranks */
    uint64_t names;
    uint64_t gaps;       /* indices missing between a name's lowest and highest */
    char gap_first[256]; /* the first ones: "name: 3..5"; may be cut */
} rks_gather_report;

/* COLLECTIVE. */
RKS_API rks_status rks_gather_open(rks_group *group, const char *schema, const char *directory,
                                   rks_gather **gather, rks_error *err);
/* Name: 1 to 500 bytes of UTF-8 without control characters. */
RKS_API rks_status rks_gather_add(rks_gather *gather, const char *name, uint64_t index,
                                  const rks_value *values, rks_error *err);
/* COLLECTIVE. `receive` is called on `dst` only. A (name, index) added twice is RKS_ERR_DATA naming
 * both ranks. `status` as in rks_builder_commit. */
RKS_API rks_status rks_gather_run(rks_gather *gather, rks_status status, uint32_t dst,
                                  rks_gather_fn receive, void *user, rks_gather_report *report,
                                  rks_error *err);
RKS_API void rks_gather_close(rks_gather *gather); /* NULL is accepted */

/* ---- exporting ---------------------------------------------------------------------------- */

/* Formats
 * jsonl  an object a line: "__key__" where no column holds the keys, then the columns; bytes are
 *        {"base64": "..."}, NaN and infinities strings, integers above 2^63 - 1 strings
 * tar    as WebDataset has it: members KEY.COLUMN, side by side for each sample
 * dir    the same as files; samples {path, data} or {path, text} become a folder again
 * npz    an array a column; columns of varying size lie one behind the other, with COLUMN.offsets
 *        (and .shapes); .missing where a type has `?`
 * lmdb   an environment with a record a sample: its key, and its column's bytes, or a line of jsonl
 *        where there are several columns
 *
 * In names of files and members all but letters, digits and some signs of a key is %XX, and long
 * parts end in a hash; no name leads out of the target. */
typedef struct rks_export_options {
    size_t struct_size;
    const char *to;    /* "jsonl", "tar", "dir", "npz", "lmdb"; NULL: by the target's ending, else
                        * dir */
    const char *where; /* as rks_build_options.where; NULL: all */
    const char *const *columns; /* NULL: all */
    size_t column_count;
    bool force; /* an existing target is replaced; a directory only where an export made it */
    rks_progress_fn progress;
    void *progress_user;
} rks_export_options;

RKS_API void rks_export_options_default(rks_export_options *options);

typedef struct rks_export_report {
    size_t struct_size;
    uint64_t samples;  /* written */
    uint64_t filtered; /* dropped by where */
    uint64_t bytes;    /* column and key bytes of the written ones, all columns */
    double seconds;
    char to[8];         /* the format */
    uint64_t respelled; /* JSON values whose text build would write in another way: spaces, escapes,
                         * digits. The same JSON is read back, not the same bytes */
    bool keys_left;     /* keys are derived, and not written, since a column "__key__" is */
} rks_export_report;

/* COLLECTIVE. Writes the samples of a store, in id order, into `target`: rank 0 writes, the others
 * send it what they serve; a few batches are in memory at once. The target is there when all of it
 * is written, durable, or not at all; what a killed export left is removed by the next one.
 * RKS_ERR_ARGUMENT where something is there and `force` is not set; RKS_ERR_STATE where another
 * export writes it. What a format cannot hold is refused, RKS_ERR_DATA naming sample and column:
 * jsonl and tar are built into the same samples again (rks_diff: equal) with the store's schema and
 * key, dir where the store was built from a folder. Derived keys are written as "__key__" unless
 * a column has that name: then they are derived again, from the name of the file that is built.
 * *report may be NULL. */
RKS_API rks_status rks_store_export(rks_store *store, const char *target,
                                    const rks_export_options *options, rks_export_report *report,
                                    rks_error *err);

/* ---- comparing ----------------------------------------------------------------------------- */

typedef enum rks_difference {
    RKS_ONLY_IN_A = 0, /* the key is in `a` alone */
    RKS_ONLY_IN_B = 1,
    RKS_CHANGED = 2, /* the key is in both, with other contents */
} rks_difference;

/* One difference; the ids where the key is there, else UINT64_MAX. Valid during the call. */
typedef void (*rks_diff_fn)(void *user, rks_difference kind, const void *key, size_t key_size,
                            uint64_t id_a, uint64_t id_b);

typedef struct rks_diff_options {
    size_t struct_size;
    const char *const *columns; /* compare these alone; NULL: all of both */
    size_t column_count;
    uint64_t head; /* at most so many differences of each kind are told; default 10 */
    rks_progress_fn progress;
    void *progress_user;
} rks_diff_options;

RKS_API void rks_diff_options_default(rks_diff_options *options);

typedef struct rks_diff_report {
    size_t struct_size;
    uint64_t same; /* keys with the same contents in both */
    uint64_t only_a;
    uint64_t only_b;
    uint64_t changed;
    char columns[512]; /* those that only one has, or that differ in type: "x: int64, not in b; y:
                        * int32 in a, int64 in b"; empty: none; may be cut. Contents are compared
                        * over the other ones */
} rks_diff_report;

/* COLLECTIVE. Compares what two stores of one group hold, by key and contents: order, lengths,
 * shards and ranks do not matter, nor the order of columns, nor whether a type may be missing, nor
 * whether a column "__key__" repeats the keys.
 * Every rank reads what it serves; rank 0 compares (14 bytes of memory a sample of `b`), and
 * `found` is called there alone. The report is the same on all ranks. RKS_ERR_ARGUMENT for a column
 * that neither has; a damaged sample is an error that names it. */
RKS_API rks_status rks_diff(rks_store *a, rks_store *b, const rks_diff_options *options,
                            rks_diff_fn found, void *user, rks_diff_report *report, rks_error *err);

/* ---- doctor ------------------------------------------------------------------------------ */

/* What this machine and job offer, as `doctor --json` prints it: a list of {name, ok, value,
 * advice}. `directory` may be NULL; where given, the disk under it is tried. Not collective; the
 * group may be NULL. Free with rks_release. */
RKS_API rks_status rks_doctor_json(rks_group *group, const char *directory, char **json,
                                   rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
