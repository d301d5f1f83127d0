/* SPDX-License-Identifier: Apache-2.0
 *
 * cli.h: what the commands share: options, exit codes, the group they run in, and words for a
 * person. */
#ifndef RKS_TOOLS_CLI_H
#define RKS_TOOLS_CLI_H

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

/* ---- options ---------------------------------------------------------------------------- */

typedef enum cli_type {
    CLI_FLAG,
    CLI_TEXT,
    CLI_U32,
    CLI_U64,
    CLI_SIZE,
    CLI_SIZE32,
    CLI_LIST
} cli_type;

typedef struct cli_list {
    const char **items;
    size_t count;
} cli_list;

/* One option. `target` is a bool, const char *, uint32_t, uint64_t (CLI_U64, CLI_SIZE: bytes, with
 * k, M or G for 1024, 1024^2, 1024^3 behind it) or cli_list (given several times). */
typedef struct cli_option {
    const char *name;  /* "--max-tokens", or "-j" */
    const char *value; /* "N"; NULL for a flag */
    cli_type type;
    void *target;
    const char *help; /* one line: what it does, unit, default */
} cli_option;

typedef struct cli_command {
    const char *name;
    const char *arguments; /* "SRC... -o DIR" */
    const char *summary;   /* one line */
    const char *examples;  /* two that work */
    int (*run)(int argc, char **argv);
} cli_command;

extern const cli_command cli_build, cli_info, cli_ls, cli_cat, cli_verify, cli_plan, cli_bench,
    cli_doctor;

/* Parses options and positional arguments (`positional` has room for argc). `--` ends the options.
 * Returns -1 to go on; otherwise the exit code, with help on stdout or a message that names the
 * option on stderr. */
int cli_parse(const cli_command *command, const cli_option *options, size_t option_count, int argc,
              char **argv, const char **positional, size_t *positional_count);
/* "did you mean": the candidate with the fewest changes, or NULL where none is near. */
const char *cli_nearest(const char *word, const char *const *candidates, size_t count);

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
void cli_set_command(const char *name);

/* ---- output ------------------------------------------------------------------------------ */

/* "1.5 GiB", "17 B"; "12,345"; into a ring of static buffers. */
const char *cli_bytes(uint64_t bytes);
const char *cli_count(uint64_t count);

/* A progress bar on stderr, where that is a terminal and on rank 0; nothing otherwise. */
typedef struct cli_bar {
    bool shown;
    uint64_t begun_ms;
} cli_bar;
void cli_bar_begin(cli_bar *bar, rks_group *group);
void cli_bar_update(cli_bar *bar, const char *phase, uint64_t done, uint64_t total,
                    uint64_t samples);
void cli_bar_end(cli_bar *bar);

/* Opens the dataset in `directory`, alone. Prints what went wrong; returns -1 to go on, or the exit
 * code. */
int cli_open(rks_group *group, const char *directory, const rks_store_options *options,
             rks_store **store);

/* The plan's options as the commands take them. */
typedef struct cli_plan_args {
    rks_plan_options options;
    uint64_t epoch;
} cli_plan_args;
#define CLI_PLAN_OPTIONS(args)                                                                     \
    {"--strategy", "NAME", CLI_TEXT, &(args)->options.strategy,                                    \
     "sorted, bucket, random or sequential; default bucket"},                                      \
        {"--batch-size", "N", CLI_U32, &(args)->options.batch_size,                                \
         "at most N samples a batch; default 64 where no budget is given"},                        \
        {"--max-tokens", "N", CLI_SIZE, &(args)->options.max_tokens,                               \
         "budget of a batch: longest length x samples, padding included"},                         \
        {"--cost", "NAME", CLI_TEXT, &(args)->options.cost,                                        \
         "what the budget and the balance count: padded, tokens or quadratic; default padded"},    \
        {"--max-length", "N", CLI_SIZE32, &(args)->options.max_length,                             \
         "longest sample that is planned as it is; default no limit"},                             \
        {"--too-long", "WHAT", CLI_TEXT, &(args)->options.too_long,                                \
         "above --max-length: error, drop, alone or truncate; default error"},                     \
        {"--tail", "WHAT", CLI_TEXT, &(args)->options.tail,                                        \
         "last step: split, repeat or drop; default split"},                                       \
        {"--seed", "N", CLI_U64, &(args)->options.seed, "seed of the shuffles; default 0"},        \
        {"--no-shuffle", NULL, CLI_FLAG, &(args)->options.no_shuffle,                              \
         "the same order in every epoch"},                                                         \
    {                                                                                              \
        "--epoch", "N", CLI_U64, &(args)->epoch, "the epoch; default 0"                            \
    }

#endif
