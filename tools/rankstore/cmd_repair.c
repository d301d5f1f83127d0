/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_repair.c: rankstore repair: which shards of a dataset are lost, and building them again. */
#include <jansson.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the directory, then the input */
    cli_list shards;
    rks_repair_options options;
    bool json;
    uint32_t processes;
    cli_bar bar;
} args;

static void print_repair_json(const rks_repair_report *report)
{
    cli_print_json(
        json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f}", "schema_version",
                  1, "dataset", report->dataset, "shards", (json_int_t)report->shards, "samples",
                  (json_int_t)report->samples, "units", (json_int_t)report->units, "lost_shards",
                  (json_int_t)report->lost_shards, "lost_samples", (json_int_t)report->lost_samples,
                  "lost_units", (json_int_t)report->lost_units, "shards_rebuilt",
                  (json_int_t)report->shards_rebuilt, "units_rebuilt",
                  (json_int_t)report->units_rebuilt, "origins", report->origins, "seconds",
                  report->seconds),
        JSON_INDENT(2));
}

static void print_repair_report(const rks_repair_report *report, const char *directory)
{
    printf("%s: dataset %s, %s in %s\n", cli_shown(directory), report->dataset,
           cli_counted(report->samples, "sample"), cli_counted(report->shards, "shard"));
    if (report->lost_shards == 0) {
        printf("no shard is lost\n");
        return;
    }
    printf("lost: %s of %s, with %s of %s", cli_counted(report->lost_shards, "shard"),
           cli_count(report->shards), cli_counted(report->lost_units, "unit"),
           cli_count(report->units));
    printf(" and %s%s%s\n", cli_counted(report->lost_samples, "sample"),
           report->origins[0] == '\0' ? "" : "; built by ", cli_shown(report->origins));
    if (report->shards_rebuilt > 0)
        printf("built again: %s, in %.2f s\n", cli_counted(report->shards_rebuilt, "shard"),
               report->seconds);
}

/* What is left to do. */
static void print_repair_advice(const rks_repair_report *report, bool given)
{
    if (report->shards_rebuilt == report->lost_shards)
        return;
    if (given)
        fprintf(stderr,
                "rankstore repair: %s left: another build wrote them; repair with its input\n",
                cli_counted(report->lost_shards - report->shards_rebuilt, "lost shard"));
    else
        fprintf(stderr,
                "rankstore repair: to build them again: rankstore repair DIR INPUT..., with "
                "the files or folders that the build was given; if a program built the "
                "dataset, run it again\n");
}

static int run_repair(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    rks_repair_report report = {.struct_size = sizeof(report)};
    size_t inputs = a->words.count - 1;
    a->options.progress = cli_bar_update;
    a->options.shards = a->shards.items;
    a->options.shard_count = a->shards.count;
    a->options.progress_user = &a->bar;
    cli_bar_begin(&a->bar, group);
    rks_status status = rks_repair(group, a->words.items[0], a->words.items + 1, inputs,
                                   &a->options, &report, &err);
    cli_bar_end(&a->bar);
    if (status != RKS_OK)
        return cli_fail(group, status, &err);
    int code = report.shards_rebuilt == report.lost_shards ? CLI_GOOD : CLI_PROBLEM;
    if (rks_group_rank(group) != 0)
        return code;
    if (a->json)
        print_repair_json(&report);
    else
        print_repair_report(&report, a->words.items[0]);
    print_repair_advice(&report, inputs > 0);
    return code;
}

static void set_repair_defaults(void *user)
{
    ((args *)user)->options.struct_size = sizeof(rks_repair_options);
}

static int repair(void *user)
{
    args *a = user;
    return cli_run(a->processes, run_repair, a);
}

static const cli_option options[] = {
    CLI_PROCESSES(args, processes),
    {"--threads", "N", CLI_U32, offsetof(args, options.threads),
     .help = "threads that read units on each rank",
     .normal = "the node's cores divided by its ranks, at most 4", .least = 1, .most = 64},
    {"--max-total", "BYTES", CLI_SIZE, offsetof(args, options.max_total),
     .help = "most bytes that a compressed file or an archive may unpack to", .normal = "1024G",
     .least = 1},
    {"--no-check-source", NULL, CLI_FLAG, offsetof(args, options.unchecked),
     .help = "do not verify checksums that the source itself has"},
    CLI_SHARDS(args, shards),
    CLI_NO_LOCK(args, options.no_lock, "repair"),
    CLI_JSON(args, json, "print the report as JSON"),
};

const cli_command cli_repair = {
    .name = "repair",
    .arguments = "DIR [INPUT...]",
    .summary = "Find shards that are on no rank's disk, and build them again",
    .examples = {"mpirun -n 4 rankstore repair store",
                 "mpirun -n 4 rankstore repair store train.jsonl"},
    .text = "Without INPUT, says what is lost, and where it was built. With the input of the build "
            "that made the lost shards, builds those alone, with the build's own options. Dataset "
            "id and saved states stay. Fails if the source holds other samples now. Exit code 1: "
            "shards are still lost. The build itself, run again, repairs too.",
    CLI_OPTIONS(options, args, words),
    .least = 1,
    .most = CLI_MANY,
    .needs = "one dataset is needed",
    .defaults = set_repair_defaults,
    .run = repair,
};
