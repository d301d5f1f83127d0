/* SPDX-License-Identifier: Apache-2.0
 *
 * cli.h: what the commands share: options, exit codes, the group they run in, and words for a
 * person. */
#ifndef RKS_TOOLS_CLI_H
#define RKS_TOOLS_CLI_H

#include <stddef.h>
#include <stdio.h>

#include "rankstore.h"

enum cli_exit {
    CLI_GOOD = 0,
    CLI_PROBLEM = 1, /* data problem found */
    CLI_USAGE = 2,
    CLI_ENVIRONMENT = 3, /* input/output, memory, a missing feature */
    CLI_PEER = 4,
    CLI_INTERRUPTED = 130,
};

/* ---- commands as data ------------------------------------------------------------------
 *
 * A command is a table: what it is for, its options and where their values go. The parser, --help,
 * the shells' completion and the manual page are all read from it. */

typedef enum cli_type {
    CLI_FLAG,
    CLI_TEXT,
    CLI_U32,
    CLI_U64,
    CLI_SIZE,   /* uint64_t; with k, M or G for 1024, 1024^2, 1024^3 after the digits */
    CLI_SIZE32, /* the same in a uint32_t */
    CLI_LIST    /* given several times */
} cli_type;

/* Texts in the order in which they were given. */
typedef struct cli_list {
    const char **items;
    size_t count;
} cli_list;

typedef struct cli_option {
    const char *name;  /* "--max-tokens", or "-j" */
    const char *value; /* "N"; NULL for a flag. "FILE", "DIR" and "SRC" are completed as paths */
    cli_type type;
    size_t field; /* offsetof(args, ...) of a bool, const char *, uint32_t, uint64_t or cli_list */
    const char *help;    /* what it does, with its unit; no full stop, no default */
    const char *choices; /* all values that it takes, by spaces: "sorted bucket"; NULL: any */
    const char *normal;  /* its default, in words: "4"; NULL: none worth saying */
    uint64_t least;      /* numbers below are refused */
    uint64_t most;       /* and above; 0: what the type holds */
} cli_option;

typedef struct cli_command {
    const char *name;
    const char *arguments;   /* "SRC... -o DIR" */
    const char *summary;     /* what it is for: one line, no full stop */
    const char *examples[2]; /* commands that work as they stand where `store` is a dataset
                                (tests/help.py) */
    const char
        *text; /* what else there is to know: sentences, "\n\n" between paragraphs; may be NULL */
    const cli_option *options;
    size_t option_count;
    size_t args_size;   /* of what the fields are in */
    size_t words;       /* offsetof(args, ...) of a cli_list: arguments that are not options */
    size_t least, most; /* how many of them; CLI_MANY: no bound */
    const char *needs;  /* "one dataset is needed": said if there are fewer or more */
    const char *word_choices;     /* as an option's; NULL: paths */
    void (*defaults)(void *args); /* before the options are read; NULL: all zero */
    int (*run)(void *args);       /* the exit code */
} cli_command;
#define CLI_MANY SIZE_MAX
/* The ends of most tables: where options and words go, and how many words. */
#define CLI_OPTIONS(table, args, field)                                                            \
    .options = (table), .option_count = CLI_COUNT(table), .args_size = sizeof(args),               \
    .words = offsetof(args, field)
#define CLI_DATASETS .least = 1, .most = CLI_MANY, .needs = "one dataset is needed"
#define CLI_SEVERAL                                                                                \
    "Several directories are opened as one dataset; samples of the first come first. NAME=DIR "    \
    "names a source, for directories whose last parts are the same."
#define CLI_ONE_DATASET .least = 1, .most = 1, .needs = "one dataset is needed"
#define CLI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

extern const cli_command cli_build, cli_info, cli_ls, cli_cat, cli_verify, cli_stats, cli_diff,
    cli_export, cli_merge, cli_publish, cli_stage, cli_prune, cli_repair, cli_plan, cli_bench,
    cli_top, cli_doctor, cli_completion, cli_manual;
extern const cli_command *const cli_commands[]; /* in the order of a dataset's life */
extern const size_t cli_command_count;

/* Parses `argv` (argv[0] is the command's name) and runs the command. `--` ends the options. The
 * exit code: of the command, of its help on stdout, or of a message that names the wrong option. */
int cli_dispatch(const cli_command *command, int argc, char **argv);
/* "rankstore COMMAND: MESSAGE", and where help is. Returns CLI_USAGE. */
int cli_usage(const cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A size as options take it (4096, 4k, 195.3 KiB), up to `max`. */
bool cli_parse_size(const char *text, uint64_t max, uint64_t *number);
/* "did you mean": the candidate with the fewest changes, or NULL if none is near. */
const char *cli_nearest(const char *word, const char *const *candidates, size_t count);
/* The next word of `*choices`, moved after it; 0 at the end. */
size_t cli_choice(const char **choices, const char **word);

/* The help of all commands, and of one. */
void cli_print_usage(FILE *out);
void cli_print_help(const cli_command *command);
/* An option's whole sentence, with choices and default; valid until the next call. */
const char *cli_option_text(const cli_option *option);

/* The manual page, as troff. */
void cli_print_manual(FILE *out);

/* What all commands share: exit codes and variables of the environment. */
typedef struct cli_fact {
    const char *name, *text;
} cli_fact;
extern const cli_fact cli_exit_codes[], cli_environment[];
extern const size_t cli_exit_code_count, cli_environment_count;

/* ---- running ---------------------------------------------------------------------------- */

/* Opens the group (alone, -j processes, or mpirun's ranks) and runs `body` on each rank. The body's
 * result is the exit code. */
typedef int (*cli_body)(rks_group *group, void *user);
int cli_run(uint32_t processes, cli_body body, void *user);

/* Prints "rankstore COMMAND: ..." on rank 0 (or where there is no group) and returns the exit code
 * that fits. */
int cli_fail(rks_group *group, rks_status status, const rks_error *err);
int cli_exit_code(rks_status status);
/* Flushes stdout: a full disk or another error there is exit 3; a reader that has gone (`| head`)
 * is fine. */
int cli_finish(int code);
/* Writes what stdout holds, before words to stderr that belong after it. cli_finish() tells what
 * went wrong. */
void cli_flush(void);
/* The command that runs: its name is in messages. */
void cli_set_command(const cli_command *command);
const char *cli_command_name(void);
/* Returns this process's rank as mpirun or srun says; NULL: neither started it with others. */
const char *cli_launched_rank(void);
/* Returns true if the processes of this launcher meet. torchrun's do not, wherever it was started.
 */
bool cli_meets_others(void);
/* Returns this process's number among those that a launcher started which do not meet; 0 if it is
 * alone. */
uint32_t cli_lone_rank(void);
/* RKS_ERR_CANCELLED if Ctrl-C or SIGTERM has come: work of the command's own ends, as the
 * library's waits do. */
rks_status cli_check_interrupt(rks_error *err);

/* ---- output ------------------------------------------------------------------------------ */

/* "1.5 GiB", "17 B"; "12,345"; into a ring of static buffers. */
const char *cli_bytes(uint64_t bytes);
const char *cli_count(uint64_t count);
/* "1 sample", "2 samples", "2 batches". */
const char *cli_counted(uint64_t count, const char *thing);

/* A file that appears whole: written beside its place, then moved there. What is there and is no
 * regular file (a pipe, a device) is written to as it is. */
typedef struct cli_output {
    FILE *file;
    const char *path;
    char *temporary; /* NULL: none */
} cli_output;
rks_status cli_output_open(cli_output *output, const char *path, rks_error *err);
/* `status` RKS_OK: moves it into place; else removes it and returns that status. */
rks_status cli_output_close(cli_output *output, rks_status status, rks_error *err);

/* A progress bar on stderr, where that is a terminal that can draw one and on rank 0; nothing
 * otherwise. It counts bytes of all ranks, where they tell theirs, else of rank 0: done, the time
 * that is left until the slowest rank is there, bytes a second. */
typedef struct cli_bar {
    bool shown;
    int terminal; /* its descriptor */
    rks_group *group;
    uint64_t begun_ms;
} cli_bar;
void cli_bar_begin(cli_bar *bar, rks_group *group);
/* An rks_progress_fn; `user` is the bar. */
void cli_bar_update(void *user, const char *phase, uint64_t done, uint64_t total, uint64_t samples);
void cli_bar_end(cli_bar *bar);
/* The same for work that is not counted in bytes. `bar` may be NULL. */
void cli_bar_part(cli_bar *bar, const char *phase, uint64_t done, uint64_t total);

/* The options of an open; see CLI_STORE_OPTIONS. */
typedef struct cli_store_args {
    rks_store_options options;
    cli_list shards; /* instead of those of `options` */
} cli_store_args;

/* Opens the dataset in the directory that `words` names, or those of several as one. Prints what
 * went wrong, and on stderr how many samples a quarantine list leaves out; returns -1 to go on, or
 * the exit code. */
int cli_open(rks_group *group, const cli_list *words, const cli_store_args *args,
             rks_store **store);
/* Several as one, without a word. A source is called as its word says, NAME=DIR, or as the last
 * part of its directory. */
rks_status cli_open_several(rks_group *group, const cli_list *words, const cli_store_args *args,
                            rks_store **store, rks_error *err);
/* The directory of such a word. */
const char *cli_directory(const char *word);

/* ---- options that several commands take; `field` is that of the struct in `args` ---------- */

#define CLI_PROCESSES(args, field)                                                                 \
    {"-j",                                                                                         \
     "N",                                                                                          \
     CLI_U32,                                                                                      \
     offsetof(args, field),                                                                        \
     .help = "run on N processes of this machine",                                                 \
     .normal = "1",                                                                                \
     .least = 1,                                                                                   \
     .most = 4096}
/* `columns`: what more than the columns it names, or "" */
#define CLI_WHERE(args, field, what, columns)                                                      \
    {"--where",                                                                                    \
     "EXPR",                                                                                       \
     CLI_TEXT,                                                                                     \
     offsetof(args, field),                                                                        \
     .help = what ": 'COLUMN OP VALUE [and ...]', OP one of == != < <= > >=" columns               \
                  "; put a number in quotes to compare it as text by < <= > >=; a missing "        \
                  "value is == null, != every other value (text != \"\" keeps it), and "           \
                  "neither < nor >",                                                               \
     .normal = "all"}
#define CLI_JSON(args, field, what) {"--json", NULL, CLI_FLAG, offsetof(args, field), .help = what}
/* rks_build_options.no_lock and its like; `verb`: what the command does on several ranks */
#define CLI_NO_LOCK(args, field, verb)                                                             \
    {"--no-lock", NULL, CLI_FLAG, offsetof(args, field),                                           \
     .help = verb " on several ranks even if the file system has no locks (Lustre "                \
                  "without -o flock); make sure that nothing else writes in DIR, since "           \
                  "no lock stops it"}
/* cli_store_args */
#define CLI_SHARDS(args, field)                                                                    \
    {"--shards", "PATTERN", CLI_LIST, offsetof(args, field),                                       \
     .help = "folders that may hold more of the shards, such as '/nvme*/rks'; those of the "       \
             "variable RKS_PATH (patterns with : between them) come after them"}
#define CLI_STORE_OPTIONS(args, field)                                                             \
    {"--missing",                                                                                  \
     "WHAT",                                                                                       \
     CLI_TEXT,                                                                                     \
     offsetof(args, field.options.missing),                                                        \
     .help = "what to do if shards are on no rank's disk: error; partial: open the rest, whose "   \
             "ids do not change; fetch: read them from home, which --local does",                  \
     .choices = "error partial fetch",                                                             \
     .normal = "error, or fetch with --local"},                                                    \
        {"--local", "LOCAL", CLI_TEXT, offsetof(args, field.options.local),                        \
         .help =                                                                                   \
             "open a dataset that is kept at a home from local directories: LOCAL is one on "      \
             "a disk of each node; shards that no node has are read from home and stay there"},    \
        {"--copies",                                                                               \
         "N",                                                                                      \
         CLI_U32,                                                                                  \
         offsetof(args, field.options.copies),                                                     \
         .help = "with --local: bring each shard to N nodes",                                      \
         .normal = "1",                                                                            \
         .least = 1,                                                                               \
         .most = UINT32_MAX},                                                                      \
        {"--local-room",                                                                           \
         "BYTES",                                                                                  \
         CLI_SIZE,                                                                                 \
         offsetof(args, field.options.local_room),                                                 \
         .help = "with --local: what the dataset may add to a rank's disk",                        \
         .normal = "three quarters of what is free"},                                              \
        {"--room",                                                                                 \
         "WHAT",                                                                                   \
         CLI_TEXT,                                                                                 \
         offsetof(args, field.options.room),                                                       \
         .help = "with --local: what to do with shards for which the disks have no room: error; "  \
                 "through: read them at home, and keep nothing of them",                           \
         .choices = "error through",                                                               \
         .normal = "error"},                                                                       \
        {"--index-dir",                                                                            \
         "DIR",                                                                                    \
         CLI_TEXT,                                                                                 \
         offsetof(args, field.options.index_dir),                                                  \
         .help = "put an index above 1 GiB into an unnamed file in this directory",                \
         .normal =                                                                                 \
             "memory, or a local temporary directory if it takes a quarter of what is free"},      \
        {"--quarantine", "FILE", CLI_TEXT, offsetof(args, field.options.quarantine),               \
         .help = "exclude the samples in this list, written by 'verify --quarantine'; ids do "     \
                 "not change"},                                                                    \
        CLI_SHARDS(args, field.shards)
/* cli_plan_args */
typedef struct cli_plan_args {
    rks_plan_options options;
    uint64_t epoch;
    const uint32_t *lengths; /* instead of a store's, if there is none */
    uint64_t count;
    const char *balance;
    uint32_t *taken_balance; /* balance.c's */
    const char *mix, *mix_by, *mix_unit;
    cli_list remixes, stages; /* --remix and --curriculum */
    uint64_t samples;         /* 0: not given */
    void *taken_mix;          /* mix.c's */
    bool lengths_file;        /* --lengths: there is no store */
} cli_plan_args;
/* Takes the factors out of --cost polynomial:A,B; to be called once, before anything else. -1, or
 * an exit code after saying what is wrong. */
int cli_plan_cost(const cli_command *command, cli_plan_args *args);
/* clang-format off */
#define CLI_PLAN_OPTIONS(args, field)                                                              \
    {"--strategy", "NAME", CLI_TEXT, offsetof(args, field.options.strategy),                       \
     .help = "how to group samples into batches",                                                  \
     .choices = "bucket sorted random sequential pack", .normal = "bucket"},                       \
    {"--batch-size", "N", CLI_U32, offsetof(args, field.options.batch_size),                       \
     .help = "most samples in a batch; pack: most bins",                                           \
     .normal = "64 without a budget; pack: 1", .least = 1, .most = 1 << 24},                       \
    {"--max-tokens", "N", CLI_SIZE, offsetof(args, field.options.max_tokens),                      \
     .help = "budget of a batch: longest length x samples, padding included",                      \
     .least = 1},                                                                                  \
    {"--cost", "NAME", CLI_TEXT, offsetof(args, field.options.cost),                               \
     .help = "what the budget and the balance over ranks count; with polynomial:A,B the balance "  \
             "counts A L + B L^2 for a length L",                                                  \
     .choices = "padded tokens quadratic polynomial", .normal = "padded"},                         \
    {"--balance", "TERMS", CLI_TEXT, offsetof(args, field.balance),                                \
     .help = "balance this sum over ranks instead of --cost: NAME=WEIGHT,... of index columns "    \
             "and 'length', or polynomial:A,B for A L + B L^2",                                    \
     .normal = "the same as --cost"},                                                              \
    {"--capacity", "N", CLI_SIZE32, offsetof(args, field.options.capacity),                        \
     .help = "with --strategy pack: most tokens in a bin", .least = 1, .most = 1 << 24},           \
    {"--length-multiple", "N", CLI_U32, offsetof(args, field.options.length_multiple),             \
     .help = "round lengths up to a multiple of N, as a collator pads them",                       \
     .normal = "1 for pack and --cost tokens, else gcd(8, --max-tokens)",                          \
     .least = 1, .most = 1 << 16},                                                                 \
    {"--micro-batches", "K", CLI_U32, offsetof(args, field.options.micro_batches),                 \
     .help = "pack: K batches of a rank make one optimizer step, balanced over ranks",             \
     .normal = "1", .least = 1, .most = 1 << 16},                                                  \
    {"--mixed", NULL, CLI_FLAG, offsetof(args, field.options.mixed),                               \
     .help = "pack: an optimizer step mixes cheap and costly bins"},                               \
    {"--pack-window", "N", CLI_U32, offsetof(args, field.options.pack_window),                     \
     .help = "pack: shuffle samples in each epoch and pack stretches of N bins separately, so "    \
             "that other samples share a bin",                                                     \
     .normal = "0: pack all samples at once"},                                                     \
    {"--order", "WHAT", CLI_TEXT, offsetof(args, field.options.order),                             \
     .help = "order of samples in a batch (pack: in a bin)",                                       \
     .choices = "plan longest_first", .normal = "plan"},                                           \
    {"--max-length", "N", CLI_SIZE32, offsetof(args, field.options.max_length),                    \
     .help = "longer samples are too long: see --too-long",                                        \
     .normal = "no limit"},                                                                        \
    {"--too-long", "WHAT", CLI_TEXT, offsetof(args, field.options.too_long),                       \
     .help = "what to do with samples that are too long",                                          \
     .choices = "error drop alone truncate split", .normal = "error"},                                   \
    {"--tail", "WHAT", CLI_TEXT, offsetof(args, field.options.tail),                               \
     .help = "what to do with an incomplete last step",                                            \
     .choices = "split repeat drop", .normal = "split"},                                           \
    {"--steps", "WHAT", CLI_TEXT, offsetof(args, field.options.steps),                             \
     .help = "number of steps in each epoch; per_epoch lets it vary, for random with "             \
             "--max-tokens only",                                                                  \
     .choices = "constant per_epoch", .normal = "constant"},                                       \
    {"--seed", "N", CLI_U64, offsetof(args, field.options.seed),                                   \
     .help = "seed of the shuffles",                                                               \
     .normal = "0"},                                                                               \
    {"--no-shuffle", NULL, CLI_FLAG, offsetof(args, field.options.no_shuffle),                     \
     .help = "use the same order in every epoch"},                                                 \
    {"--mix", "WEIGHTS", CLI_TEXT, offsetof(args, field.mix),                                      \
     .help = "NAME=WEIGHT,...: draw from each source in proportion to its weight; a source "       \
             "without a weight is not drawn",                                                      \
     .normal = "each sample once"},                                                                \
    {"--mix-by", "COLUMN", CLI_TEXT, offsetof(args, field.mix_by),                                 \
     .help = "with --mix or --curriculum: use the values of this index column as sources",         \
     .normal = "the opened datasets"},                                                             \
    {"--mix-unit", "WHAT", CLI_TEXT, offsetof(args, field.mix_unit),                               \
     .help = "with --mix: what weights count", .choices = "samples tokens", .normal = "samples"},  \
    {"--samples", "N", CLI_SIZE, offsetof(args, field.samples),                                    \
     .help = "draws in an epoch",                                                                  \
     .normal = "the fewest that show every sample of each source with a weight",                   \
     .least = 1},                                                                                  \
    {"--remix", "EPOCH:STEP:WEIGHTS", CLI_LIST, offsetof(args, field.remixes),                     \
     .help = "change the weights from this step on, for the rest of the epoch and later epochs"},  \
    {"--curriculum", "EPOCH:STEP[:WEIGHTS][:LENGTH]", CLI_LIST, offsetof(args, field.stages),      \
     .help = "begin a stage at this step: samples longer than LENGTH wait for a later stage "      \
             "(without it none waits); without WEIGHTS they stay as before"},                      \
    {"--epoch", "N", CLI_U64, offsetof(args, field.epoch),                                         \
     .help = "the first epoch",                                                                    \
     .normal = "0"}
/* clang-format on */

#endif
