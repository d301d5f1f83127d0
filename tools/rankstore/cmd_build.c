/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_build.c: rankstore build: files in, a dataset out. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "cli.h"

typedef struct args {
    const char **sources;
    size_t source_count;
    const char *directory;
    rks_build_options options;
    cli_list index;
    bool json;
    uint32_t processes;
    cli_bar bar;
} args;

static void on_progress(void *user, const char *phase, uint64_t done, uint64_t total,
                        uint64_t samples)
{
    cli_bar_update(user, phase, done, total, samples);
}

static void print_json(const rks_build_report *report, const char *directory)
{
    json_t *object = json_pack(
        "{s:i, s:s*, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:s}", "schema_version", 1,
        "directory", directory, "samples", (json_int_t)report->samples, "filtered",
        (json_int_t)report->filtered, "bad", (json_int_t)report->bad, "bytes",
        (json_int_t)report->bytes, "input_bytes", (json_int_t)report->input_bytes, "units",
        (json_int_t)report->units, "units_resumed", (json_int_t)report->units_resumed, "seconds",
        report->seconds, "dataset", report->dataset, "bad_first", report->bad_first);
    char *text = object == NULL ? NULL : json_dumps(object, JSON_INDENT(2));
    printf("%s\n", text == NULL ? "{}" : text);
    free(text);
    json_decref(object);
}

static void print_report(const rks_build_report *report, const char *directory)
{
    printf("%s: %s samples, %s", directory, cli_count(report->samples), cli_bytes(report->bytes));
    if (report->filtered > 0)
        printf("; %s filtered out", cli_count(report->filtered));
    if (report->bad > 0)
        printf("; %s malformed and skipped", cli_count(report->bad));
    printf("\n%s of input in %.2f s; dataset %s\n", cli_bytes(report->input_bytes), report->seconds,
           report->dataset);
    if (report->units_resumed > 0)
        printf("resumed: %s of %s units were finished before\n", cli_count(report->units_resumed),
               cli_count(report->units));
    if (report->bad > 0)
        fprintf(stderr, "skipped:\n%s", report->bad_first);
}

static int run_build(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    rks_build_report report = {.struct_size = sizeof(report)};
    a->options.index = a->index.items;
    a->options.index_count = a->index.count;
    a->options.progress = on_progress;
    a->options.progress_user = &a->bar;
    cli_bar_begin(&a->bar, group);
    rks_status status =
        rks_build(group, a->sources, a->source_count, a->directory, &a->options, &report, &err);
    cli_bar_end(&a->bar);
    if (status != RKS_OK) {
        int code = cli_fail(group, status, &err);
        if (status == RKS_ERR_CANCELLED && rks_group_rank(group) == 0)
            fprintf(stderr, "the same command goes on where this one ended\n");
        return code;
    }
    if (rks_group_rank(group) != 0)
        return CLI_GOOD;
    if (a->json)
        print_json(&report, a->directory);
    else
        print_report(&report, a->directory);
    return CLI_GOOD;
}

static int build(int argc, char **argv)
{
    args a = {0};
    rks_build_options_default(&a.options);
    const cli_option options[] = {
        {"-o", "DIR", CLI_TEXT, &a.directory,
         "the dataset's directory; {rank} and {node} stand for this rank's numbers"},
        {"-j", "N", CLI_U32, &a.processes, "build with N processes; default 1"},
        {"--format", "NAME", CLI_TEXT, &a.options.format,
         "jsonl, text or folder; default by name and content"},
        {"--schema", "TEXT", CLI_TEXT, &a.options.schema,
         "columns, as name:type,...; default inferred from the input"},
        {"--key", "COLUMN", CLI_TEXT, &a.options.key, "column with a unique key; default path:row"},
        {"--length", "COLUMN", CLI_TEXT, &a.options.length,
         "what plans sort by: items of a list, bytes of a string, or a number as it is; "
         "chars:COLUMN "
         "counts characters; default the first such column"},
        {"--length-unit", "N", CLI_U32, &a.options.length_unit,
         "lengths are divided by N, rounded up; default 1"},
        {"--index", "COLUMN", CLI_LIST, &a.index,
         "a numeric column that every rank knows without fetching; may be given again"},
        {"--where", "EXPR", CLI_TEXT, &a.options.where,
         "keep what fits: 'COLUMN OP VALUE [and ...]', OP one of == != < <= > >="},
        {"--max-sample", "BYTES", CLI_SIZE, &a.options.max_sample,
         "a larger sample is an error; default 1G"},
        {"--skip-bad", NULL, CLI_FLAG, &a.options.skip_bad,
         "count and list malformed samples instead of ending"},
        {"--replace", NULL, CLI_FLAG, &a.options.replace,
         "build anew over a finished dataset, which stays until the new one is whole"},
        {"--unit-size", "BYTES", CLI_SIZE, &a.options.unit_size,
         "input in a unit, the piece that ranks and resumes work by; default 64M"},
        {"--json", NULL, CLI_FLAG, &a.json, "print the report as JSON"},
    };
    a.sources = calloc((size_t)argc, sizeof(*a.sources));
    if (a.sources == NULL)
        return CLI_ENVIRONMENT;
    int code = cli_parse(&cli_build, options, sizeof(options) / sizeof(options[0]), argc, argv,
                         a.sources, &a.source_count);
    if (code < 0 && (a.source_count == 0 || a.directory == NULL)) {
        fprintf(stderr, "rankstore build: %s\nTry 'rankstore build --help'.\n",
                a.source_count == 0 ? "no source given" : "no directory given: -o DIR");
        code = CLI_USAGE;
    }
    if (code < 0)
        code = cli_run(a.processes, run_build, &a);
    free(a.sources);
    free(a.index.items);
    return code;
}

const cli_command cli_build = {
    "build",
    "SRC... -o DIR",
    "Build a dataset from JSONL, text lines or folders of files",
    "Examples:\n"
    "  rankstore build data/train.jsonl -o store --length question --where 'question != \"\"'\n"
    "  mpirun -n 4 rankstore build books/ -o '/local/store-{rank}' --format folder",
    build,
};
