/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_merge.c: rankstore merge: several datasets as one. */
#include <jansson.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the sources */
    const char *target;
    rks_merge_options options;
    bool json;
    uint32_t processes;
    cli_bar bar;
} args;

static int run_merge(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    rks_merge_report report = {.struct_size = sizeof(report)};
    a->options.progress = cli_bar_update;
    a->options.progress_user = &a->bar;
    cli_bar_begin(&a->bar, group);
    rks_status status =
        rks_merge(group, a->words.items, a->words.count, a->target, &a->options, &report, &err);
    cli_bar_end(&a->bar);
    if (status != RKS_OK)
        return cli_fail(group, status, &err);
    if (rks_group_rank(group) != 0)
        return CLI_GOOD;
    if (a->json)
        cli_print_json(json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:s}", "schema_version", 1,
                                 "directory", a->target, "samples", (json_int_t)report.samples,
                                 "shards", (json_int_t)report.shards, "linked_bytes",
                                 (json_int_t)report.linked_bytes, "copied_bytes",
                                 (json_int_t)report.copied_bytes, "dataset", report.dataset),
                       JSON_INDENT(2));
    else
        printf("%s: %s in %s; %s linked, %s copied\ndataset %s\n", cli_shown(a->target),
               cli_counted(report.samples, "sample"), cli_counted(report.shards, "shard"),
               cli_bytes(report.linked_bytes), cli_bytes(report.copied_bytes), report.dataset);
    return CLI_GOOD;
}

static void set_merge_defaults(void *user)
{
    ((args *)user)->options.struct_size = sizeof(rks_merge_options);
}

static int merge_datasets(void *user)
{
    args *a = user;
    if (a->target == NULL)
        return cli_usage(&cli_merge, "no directory given: -o DIR");
    return cli_run(a->processes, run_merge, a);
}

static const cli_option options[] = {
    {"-o", "DIR", CLI_TEXT, offsetof(args, target),
     .help = "the merged dataset's directory; {rank} and {node} stand for this rank's numbers"},
    {"--copy", NULL, CLI_FLAG, offsetof(args, options.copy),
     .help = "copy shards instead of linking them"},
    CLI_NO_LOCK(args, options.no_lock, "merge"),
    CLI_PROCESSES(args, processes),
    CLI_JSON(args, json, "print the report as JSON"),
};

const cli_command cli_merge = {
    .name = "merge",
    .arguments = "DIR DIR... -o DIR",
    .summary = "Make one dataset of several without reading their samples",
    .examples = {"rankstore merge store more -o both",
                 "rankstore merge store@1 more -o copied --copy --json"},
    .text = "Shards are linked if source and target are on one file system, else copied. Schemas, "
            "index columns, the kind of keys, and --length and --length-unit of the builds must "
            "be the same, and no two datasets may have a key in common. Samples of the first "
            "dataset come first.",
    CLI_OPTIONS(options, args, words),
    .least = 2,
    .most = CLI_MANY,
    .needs = "two datasets are needed",
    .defaults = set_merge_defaults,
    .run = merge_datasets,
};
