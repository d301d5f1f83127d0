/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_stage.c: rankstore stage: a dataset from its home to local directories. */
#include <inttypes.h>
#include <jansson.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list words; /* home, and the local directory */
    rks_stage_options options;
    bool json;
    uint32_t processes;
    cli_bar bar;
} args;

static void print_words(const args *a, const rks_stage_report *report)
{
    printf("%s: generation %" PRIu64 "; %s, with all copies %s, in %s\n",
           cli_shown(a->words.items[0]), report->generation, cli_counted(report->shards, "shard"),
           cli_bytes(report->wanted_bytes), cli_counted(report->places, "place"));
    printf("%s were there, %s read from home\ndataset %s\n", cli_bytes(report->here_bytes),
           cli_bytes(report->home_bytes), report->dataset);
}

static int run_stage(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    rks_stage_report report = {.struct_size = sizeof(report)};
    a->options.progress = cli_bar_update;
    a->options.progress_user = &a->bar;
    cli_bar_begin(&a->bar, group);
    rks_status status =
        rks_stage(group, a->words.items[0], a->words.items[1], &a->options, &report, &err);
    cli_bar_end(&a->bar);
    if (status != RKS_OK)
        return cli_fail(group, status, &err);
    if (rks_group_rank(group) != 0)
        return CLI_GOOD;
    if (!a->json) {
        print_words(a, &report);
        return CLI_GOOD;
    }
    cli_print_json(json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "schema_version",
                             1, "home", a->words.items[0], "dataset", report.dataset, "generation",
                             (json_int_t)report.generation, "shards", (json_int_t)report.shards,
                             "bytes", (json_int_t)report.bytes, "places", (json_int_t)report.places,
                             "wanted_bytes", (json_int_t)report.wanted_bytes, "here_bytes",
                             (json_int_t)report.here_bytes, "home_bytes",
                             (json_int_t)report.home_bytes),
                   JSON_INDENT(2));
    return CLI_GOOD;
}

static void set_stage_defaults(void *user)
{
    ((args *)user)->options.struct_size = sizeof(rks_stage_options);
}

static int stage(void *user)
{
    args *a = user;
    return cli_run(a->processes, run_stage, a);
}

static const cli_option options[] = {
    {"--copies", "N", CLI_U32, offsetof(args, options.copies),
     .help = "bring each shard to N nodes, so that one that is lost costs nothing", .normal = "1",
     .least = 1, .most = UINT32_MAX},
    {"--all", NULL, CLI_FLAG, offsetof(args, options.everywhere),
     .help = "bring all shards to each node"},
    {"--local-room", "BYTES", CLI_SIZE, offsetof(args, options.local_room),
     .help = "add at most BYTES to the disk of a local directory",
     .normal = "three quarters of what is free", .least = 1, .most = INT64_MAX},
    CLI_PROCESSES(args, processes),
    CLI_JSON(args, json, "print the report as JSON"),
};

const cli_command cli_stage = {
    .name = "stage",
    .arguments = "HOME LOCAL",
    .summary = "Bring a dataset from its home to local disks ahead of a job",
    .examples = {"rankstore stage home /nvme/rks", "rankstore stage home /nvme/rks -j 2 --all"},
    .text = "The shards are spread over the ranks' local directories. LOCAL is one on a disk of "
            "each node; it may hold {rank} and {node}. Shards that are there already are not read "
            "again. A job that opens HOME with the same LOCAL (--local, or local= in Python) then "
            "reads nothing from home; HOME may be a URL of an object store. Without stage it "
            "brings the shards while it runs.",
    CLI_OPTIONS(options, args, words),
    .least = 2,
    .most = 2,
    .needs = "a home and a local directory are needed",
    .defaults = set_stage_defaults,
    .run = stage,
};
