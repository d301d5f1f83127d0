/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_publish.c: rankstore publish: a dataset to its home. */
#include <inttypes.h>
#include <jansson.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the directory, and home */
    cli_list shards;
    rks_publish_options options;
    bool json;
    uint32_t processes;
    cli_bar bar;
} args;

static void print_words(const args *a, const rks_publish_report *report)
{
    const char *home = cli_shown(a->words.items[1]);
    if (report->nothing_to_do) {
        printf("%s: has generation %" PRIu64 " already: nothing to send\ndataset %s\n", home,
               report->before, report->dataset);
        return;
    }
    printf("%s: generation %" PRIu64 "; %s%s sent, %s in all; %s there already\ndataset %s\n", home,
           report->generation, cli_counted(report->sent_shards, "shard"),
           a->options.dry_run ? " would be" : "", cli_bytes(report->sent_bytes),
           cli_bytes(report->there_bytes), report->dataset);
}

static int run_publish(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    rks_publish_report report = {.struct_size = sizeof(report)};
    a->options.shards = a->shards.items;
    a->options.shard_count = a->shards.count;
    a->options.progress = cli_bar_update;
    a->options.progress_user = &a->bar;
    cli_bar_begin(&a->bar, group);
    rks_status status =
        rks_publish(group, a->words.items[0], a->words.items[1], &a->options, &report, &err);
    cli_bar_end(&a->bar);
    if (status != RKS_OK)
        return cli_fail(group, status, &err);
    if (rks_group_rank(group) != 0)
        return CLI_GOOD;
    if (!a->json) {
        print_words(a, &report);
        return CLI_GOOD;
    }
    cli_print_json(json_pack("{s:i, s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:b}",
                             "schema_version", 1, "home", a->words.items[1], "dataset",
                             report.dataset, "generation", (json_int_t)report.generation, "before",
                             (json_int_t)report.before, "nothing_to_do", report.nothing_to_do,
                             "shards", (json_int_t)report.shards, "sent_shards",
                             (json_int_t)report.sent_shards, "sent_bytes",
                             (json_int_t)report.sent_bytes, "there_bytes",
                             (json_int_t)report.there_bytes, "dry_run", a->options.dry_run),
                   JSON_INDENT(2));
    return CLI_GOOD;
}

static void set_publish_defaults(void *user)
{
    ((args *)user)->options.struct_size = sizeof(rks_publish_options);
}

static int publish(void *user)
{
    args *a = user;
    return cli_run(a->processes, run_publish, a);
}

static const cli_option options[] = {
    {"--dry-run", NULL, CLI_FLAG, offsetof(args, options.dry_run),
     .help = "only print what would be sent"},
    CLI_SHARDS(args, shards),
    CLI_PROCESSES(args, processes),
    CLI_JSON(args, json, "print the report as JSON"),
};

const cli_command cli_publish = {
    .name = "publish",
    .arguments = "DIR HOME",
    .summary = "Copy a dataset to its home, a directory that all nodes see, or a URL",
    .examples = {"rankstore publish store home", "rankstore publish store home --dry-run --json"},
    .text = "Each rank sends the shards that are on its disk, and compares every MiB with the "
            "shard's sums as it sends it. What HOME has is not sent again, so publish again after "
            "an append, or after publish was killed. Readers of HOME see the dataset of before "
            "until all of the new one is there. HOME is opened like any dataset.",
    CLI_OPTIONS(options, args, words),
    .least = 2,
    .most = 2,
    .needs = "a dataset and its home are needed",
    .defaults = set_publish_defaults,
    .run = publish,
};
