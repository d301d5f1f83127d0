/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_prune.c: rankstore prune: old generations, and what no generation names. */
#include <jansson.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the directory */
    rks_prune_options options;
    bool local; /* the directory is a local one, with copies of shards that a home has */
    bool json;
    uint32_t processes;
} args;

static int run_prune_local(rks_group *group, const args *a)
{
    rks_error err = {0};
    const rks_prune_local_options options = {.struct_size = sizeof(options),
                                             .dry_run = a->options.dry_run};
    rks_prune_local_report report = {.struct_size = sizeof(report)};
    rks_status status = rks_prune_local(group, a->words.items[0], &options, &report, &err);
    if (status != RKS_OK)
        return cli_fail(group, status, &err);
    if (rks_group_rank(group) != 0)
        return CLI_GOOD;
    if (a->json)
        cli_print_json(json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:b}", "schema_version", 1,
                                 "datasets", (json_int_t)report.datasets, "shards",
                                 (json_int_t)report.shards, "arrivals", (json_int_t)report.arrivals,
                                 "files", (json_int_t)report.files, "bytes",
                                 (json_int_t)report.bytes, "dry_run", options.dry_run),
                       JSON_INDENT(2));
    else
        printf("%s of %s%s, %s in %s\n", cli_counted(report.shards + report.arrivals, "shard"),
               cli_counted(report.datasets, "dataset"),
               options.dry_run ? " would be removed" : " removed", cli_bytes(report.bytes),
               cli_counted(report.files, "file"));
    return CLI_GOOD;
}

static void print_file(void *user, const char *file, uint64_t bytes)
{
    (void)user;
    printf("%s  %s\n", cli_shown(file), cli_bytes(bytes));
}

static int run_prune(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    if (a->options.dry_run && !a->json)
        a->options.each = print_file;
    if (a->local)
        return run_prune_local(group, a);
    rks_prune_report report = {.struct_size = sizeof(report)};
    rks_status status = rks_prune(group, a->words.items[0], &a->options, &report, &err);
    if (status != RKS_OK)
        return cli_fail(group, status, &err);
    if (rks_group_rank(group) != 0)
        return CLI_GOOD;
    if (a->json)
        cli_print_json(json_pack("{s:i, s:I, s:I, s:I, s:b}", "schema_version", 1, "generations",
                                 (json_int_t)report.generations, "files", (json_int_t)report.files,
                                 "bytes", (json_int_t)report.bytes, "dry_run", a->options.dry_run),
                       JSON_INDENT(2));
    else
        printf("%s and %s%s, %s\n", cli_counted(report.generations, "generation"),
               cli_counted(report.files, "file"),
               a->options.dry_run ? " would be removed" : " removed", cli_bytes(report.bytes));
    return CLI_GOOD;
}

static void set_prune_defaults(void *user)
{
    ((args *)user)->options.struct_size = sizeof(rks_prune_options);
}

static int prune(void *user)
{
    args *a = user;
    if (a->local && a->options.keep > 0)
        return cli_usage(&cli_prune, "--keep goes without --local, which removes all shards");
    return cli_run(a->processes, run_prune, a);
}

static const cli_option options[] = {
    {"--keep", "N", CLI_U64, offsetof(args, options.keep),
     .help = "forget all but the newest N generations", .normal = "keep all", .least = 1},
    {"--dry-run", NULL, CLI_FLAG, offsetof(args, options.dry_run),
     .help = "only print what would be removed: each file (not with --json), and sums"},
    {"--local", NULL, CLI_FLAG, offsetof(args, local),
     .help = "DIR is a local directory: remove shards that their home has, too"},
    CLI_NO_LOCK(args, options.no_lock, "prune"),
    CLI_PROCESSES(args, processes),
    CLI_JSON(args, json, "print generations, files, bytes"),
};

const cli_command cli_prune = {
    .name = "prune",
    .arguments = "DIR|URL",
    .summary = "Remove leftover files of a dataset, and old generations",
    .examples = {"rankstore prune store --dry-run", "rankstore prune store --keep 2"},
    .text = "Leftover files are shards of failed or abandoned builds, and temporary files of "
            "killed processes. Readers that have the dataset open are not disturbed. In a home, "
            "which may be "
            "a URL, it does not run while somebody publishes; jobs that still bring shards of a "
            "forgotten generation end with an error. With --local, "
            "DIR is a "
            "directory that stage and open (--local) have filled, or one dataset's folder in it: "
            "its shards are removed if nobody has them open, and home, asked now, has each with "
            "the same digests; otherwise nothing is.",
    CLI_OPTIONS(options, args, words),
    CLI_ONE_DATASET,
    .defaults = set_prune_defaults,
    .run = prune,
};
