/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_build.c: rankstore build: files in, a dataset out. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "python_reader.h"
#include "value.h"

enum { WORTH_A_RANK = 64 << 10 }; /* bytes of input */

typedef struct args {
    cli_list sources;
    const char *directory;
    rks_build_options options;
    cli_list index;
    cli_list counts;
    cli_list shards;
    const char *sample;
    uint32_t copies;
    bool json;
    uint32_t processes;
    cli_bar bar;
} args;

static void print_build_json(const rks_build_report *report, const char *directory)
{
    json_t *object = json_pack(
        "{s:i, s:s*, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:s}",
        "schema_version", 1, "directory", directory, "samples", (json_int_t)report->samples,
        "filtered", (json_int_t)report->filtered, "sampled_out", (json_int_t)report->sampled_out,
        "duplicates", (json_int_t)report->duplicates, "bad", (json_int_t)report->bad, "bytes",
        (json_int_t)report->bytes, "input_bytes", (json_int_t)report->input_bytes, "units",
        (json_int_t)report->units, "units_resumed", (json_int_t)report->units_resumed, "unit_size",
        (json_int_t)report->unit_size, "collectives", (json_int_t)report->collectives, "seconds",
        report->seconds, "dataset", report->dataset, "bad_first", report->bad_first);
    json_object_set_new(object, "json_columns", json_string(report->json_columns));
    json_object_set_new(object, "object_columns", json_string(report->object_columns));
    json_object_set_new(object, "length", json_string(report->length));
    json_object_set_new(object, "kept", json_boolean(report->kept));
    json_object_set_new(object, "shards_rebuilt", json_integer((json_int_t)report->shards_rebuilt));
    json_object_set_new(object, "units_rebuilt", json_integer((json_int_t)report->units_rebuilt));
    json_object_set_new(object, "not_read",
                        json_pack("{s:I, s:I, s:I}", "hidden", (json_int_t)report->hidden,
                                  "linked_folders", (json_int_t)report->linked_folders,
                                  "special_files", (json_int_t)report->special_files));
    cli_print_json(object, JSON_INDENT(2));
}

/* What folders hold that is passed over. */
static void print_not_read(const rks_build_report *report)
{
    const struct {
        uint64_t count;
        const char *what;
    } each[] = {{report->hidden, "hidden name"},
                {report->linked_folders, "linked folder"},
                {report->special_files, "special file"}};
    const char *before = "not read: ";
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        if (each[i].count == 0)
            continue;
        printf("%s%s", before, cli_counted(each[i].count, each[i].what));
        before = ", ";
    }
    if (before[0] == ',')
        printf("\n");
}

static void print_build_report(const rks_build_report *report, const char *directory)
{
    printf("%s: %s, %s", cli_shown(directory), cli_counted(report->samples, "sample"),
           cli_bytes(report->bytes));
    if (report->filtered > 0)
        printf("; %s filtered out", cli_count(report->filtered));
    if (report->duplicates > 0)
        printf("; %s left out", cli_counted(report->duplicates, "duplicate"));
    if (report->sampled_out > 0)
        printf("; %s not in the sample", cli_count(report->sampled_out));
    if (report->bad > 0)
        printf("; %s malformed and skipped", cli_count(report->bad));
    if (report->kept)
        printf("\nthe finished dataset %s was there: the input and the options are the same\n",
               report->dataset);
    else
        printf("\n%s of input in %.2f s; dataset %s; length: %s\n", cli_bytes(report->input_bytes),
               report->seconds, report->dataset, cli_shown(report->length));
    if (report->json_columns[0] != '\0')
        printf("json columns: %s (objects and lists as they stand; --flatten makes columns of "
               "objects)\n",
               report->json_columns);
    if (report->object_columns[0] != '\0')
        printf("columns of objects: %s\n", report->object_columns);
    print_not_read(report);
    if (report->shards_rebuilt > 0)
        printf("repaired: %s with %s were built again\n",
               cli_counted(report->shards_rebuilt, "lost shard"),
               cli_counted(report->units_rebuilt, "unit"));
    if (report->units_resumed > 0)
        printf("resumed: %s of %s were finished before\n", cli_count(report->units_resumed),
               cli_counted(report->units, "unit"));
}

static void print_skipped(const char *lines)
{
    size_t size = strlen(lines);
    fprintf(stderr, "skipped:\n%s%s", lines, size > 0 && lines[size - 1] != '\n' ? "\n" : "");
}

/* Words about a result that may not be what was meant. */
static void print_hints(const rks_build_report *report, uint32_t ranks)
{
    if (report->bad_first[0] != '\0')
        print_skipped(report->bad_first);
    if (report->samples == 0 && report->filtered > 0)
        fprintf(stderr, "rankstore build: no sample is left; check --where, --min-length and "
                        "--max-length\n");
    if (!report->kept && report->units < ranks && report->input_bytes / ranks >= WORTH_A_RANK)
        fprintf(stderr,
                "rankstore build: %s for %s, so some had nothing to read; a unit has --unit-size "
                "(%s) of input, and a compressed file is one unit\n",
                cli_counted(report->units, "unit"), cli_counted(ranks, "rank"),
                cli_bytes(report->unit_size));
}

static rks_status make_copies(rks_group *group, args *a, rks_error *err)
{
    const rks_stage_options options = {.struct_size = sizeof(options),
                                       .copies = a->copies,
                                       .progress = cli_bar_update,
                                       .progress_user = &a->bar};
    return rks_stage(group, NULL, a->directory, &options, NULL, err);
}

static void take_lists(args *a)
{
    a->options.index = a->index.items;
    a->options.index_count = a->index.count;
    a->options.counts = a->counts.items;
    a->options.counts_count = a->counts.count;
}

static int run_build(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    rks_build_report report = {.struct_size = sizeof(report)};
    take_lists(a);
    a->options.keep = a->options.wait;
    a->options.progress = cli_bar_update;
    a->options.progress_user = &a->bar;
    cli_bar_begin(&a->bar, group);
    rks_status status = rks_build(group, a->sources.items, a->sources.count, a->directory,
                                  &a->options, &report, &err);
    if (status == RKS_OK && a->copies > 1)
        status = make_copies(group, a, &err);
    cli_bar_end(&a->bar);
    if (status != RKS_OK) {
        int code = cli_fail(group, status, &err);
        if (status == RKS_ERR_CANCELLED && rks_group_rank(group) == 0)
            fprintf(stderr, "run the same command again to resume\n");
        return code;
    }
    if (rks_group_rank(group) != 0)
        return CLI_GOOD;
    if (a->json)
        print_build_json(&report, a->directory);
    else
        print_build_report(&report, a->directory);
    if (!a->json && a->options.home != NULL)
        printf("%s: %s sent\n", cli_shown(a->options.home), cli_bytes(report.sent_bytes));
    print_hints(&report, rks_group_size(group));
    return CLI_GOOD;
}

/* How many, "1000", or a share, "0.1" or "10%". */
static bool parse_sample(const char *text, rks_build_options *options)
{
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9') /* neither spaces nor signs, nan or inf */
        return false;
    if (strspn(text, "0123456789") == strlen(text)) {
        errno = 0;
        options->sample = strtoull(text, NULL, 10);
        return errno == 0 && options->sample > 0 && options->sample <= UINT32_MAX;
    }
    double rate = strtod(text, &end);
    if (*end == '%') {
        rate /= 100;
        end++;
    }
    if (*end != '\0' || !(rate > 0 && rate < 1))
        return false;
    options->sample_rate = rate;
    return true;
}

static void set_build_defaults(void *user)
{
    rks_build_options_default(&((args *)user)->options);
}

static int build(void *user)
{
    args *a = user;
    if (a->directory == NULL)
        return cli_usage(&cli_build, "no directory given: -o DIR");
    if (a->sample != NULL && !parse_sample(a->sample, &a->options))
        return cli_usage(&cli_build,
                         "--sample: '%s' is neither a number of samples nor a share (0.1, 10%%)",
                         a->sample);
    a->options.shards = a->shards.items;
    a->options.shard_count = a->shards.count;
    if (cli_python_format(&a->sources, a->options.format) == NULL)
        return cli_run(a->processes, run_build, a);
    take_lists(a);
    return cli_python_build(&a->sources, a->directory, &a->options, a->copies, a->processes,
                            a->json);
}

static const cli_option options[] = {
    {"-o", "DIR", CLI_TEXT, offsetof(args, directory),
     .help = "the dataset's directory; {rank} and {node} stand for this rank's numbers"},
    CLI_PROCESSES(args, processes),
    {"--format", "NAME", CLI_TEXT, offsetof(args, options.format), .help = "format of the input",
     .choices = "jsonl json text folder tar zip csv tsv npy npz megatron mds raw parquet arrow",
     .normal = "by name and content"},
    {"--schema", "TEXT", CLI_TEXT, offsetof(args, options.schema),
     .help = "columns, as name:type,...; auto:all infers them from all rows, which are read twice",
     .normal = "auto: inferred from the first rows"},
    {"--extra", "WHAT", CLI_TEXT, offsetof(args, options.extra),
     .help =
         "what to do with columns of the input that the schema lacks; json collects their values "
         "in a column 'extra', for JSON input",
     .choices = "error drop json", .normal = "drop with --schema, else error"},
    {"--columns", "NAMES", CLI_TEXT, offsetof(args, options.columns),
     .help = "names of the columns of CSV or TSV without a header: a,b,c",
     .normal = "the first record of each file"},
    {"--json-path", "NAME", CLI_TEXT, offsetof(args, options.json_path),
     .help = "the member of a JSON object that is the array of samples: data, or outer.data",
     .normal = "the file is the array"},
    {"--flatten", NULL, CLI_FLAG, offsetof(args, options.flatten),
     .help = "JSON input: make columns outer.inner of an object's members, instead of one json "
             "column"},
    {"--dtype", "TYPE", CLI_TEXT, offsetof(args, options.dtype),
     .help = "with --format raw: type of the items in the file, such as uint16; samples are runs "
             "of 1,024 items"},
    {"--key", "COLUMN", CLI_TEXT, offsetof(args, options.key),
     .help = "column with a unique key; an empty name makes keys of path and row, also for tar "
             "and zip",
     .normal = "__key__ of a tar or zip, else path:row"},
    {"--length", "COLUMN", CLI_TEXT, offsetof(args, options.length),
     .help = "what plans sort by: the items of a list, the bytes of a string, or a number itself; "
             "chars:COLUMN counts characters, wav:COLUMN the sample frames of a WAV file",
     .normal = "the first array of variable size, else the first text, bytes or JSON, else the "
               "first array of fixed size, else 1"},
    {"--length-unit", "N", CLI_U32, offsetof(args, options.length_unit),
     .help = "divide lengths by N, rounded up", .normal = "1", .least = 1},
    {"--index", "COLUMN", CLI_LIST, offsetof(args, index),
     .help = "put a numeric column into the index, so that every rank has it without fetching"},
    {"--count", "RULE", CLI_LIST, offsetof(args, counts),
     .help = "add an integer column that counts items of another one: 'learned = labels != -100'; "
             "--index learned puts it into the index. --append uses the dataset's rules"},
    CLI_WHERE(args, options.where, "keep samples that match", ""),
    {"--min-length", "N", CLI_U32, offsetof(args, options.min_length),
     .help = "drop shorter samples", .normal = "0"},
    {"--max-length", "N", CLI_U32, offsetof(args, options.max_length),
     .help = "drop longer samples", .normal = "no limit", .least = 1},
    {"--sample", "N", CLI_TEXT, offsetof(args, sample),
     .help =
         "keep N samples, or a share of the input's rows (0.1, 10%), chosen at random; the choice "
         "depends on --unit-size and on how rows are spread over files, but not on the ranks",
     .normal = "all"},
    {"--seed", "N", CLI_U64, offsetof(args, options.seed), .help = "seed of --sample",
     .normal = "0"},
    {"--dedup", NULL, CLI_FLAG, offsetof(args, options.dedup),
     .help = "keep only the first of samples with equal contents (all columns but the key); a "
             "tar's or zip's key is __key__, unless --key names another"},
    {"--max-sample", "BYTES", CLI_SIZE, offsetof(args, options.max_sample),
     .help = "largest sample; a larger one is an error", .normal = "1G", .least = 1,
     .most = RKS_SAMPLE_MAX},
    {"--max-total", "BYTES", CLI_SIZE, offsetof(args, options.max_total),
     .help = "most bytes that a compressed file or an archive may unpack to", .normal = "1024G",
     .least = 1},
    {"--no-check-source", NULL, CLI_FLAG, offsetof(args, options.unchecked),
     .help = "do not verify checksums that the source itself has: hashes in the index of MDS "
             "shards, and those of Parquet's pages"},
    {"--skip-bad", NULL, CLI_FLAG, offsetof(args, options.skip_bad),
     .help = "skip malformed samples, count them and list the first ones, instead of failing; if "
             "the first rows disagree about a type, give --schema, too"},
    {"--replace", NULL, CLI_FLAG, offsetof(args, options.replace),
     .help = "build anew and replace a finished dataset, which stays until the new one is "
             "complete; do not resume an interrupted build"},
    {"--append", NULL, CLI_FLAG, offsetof(args, options.append),
     .help = "add to the dataset in DIR, as its next generation; defaults of schema, key, length "
             "and index columns are the dataset's; --dedup and --sample apply to the new samples"},
    {"--home", "HOME", CLI_TEXT, offsetof(args, options.home),
     .help = "publish the dataset there once it is built, as rankstore publish does"},
    {"--copies", "N", CLI_U32, offsetof(args, copies),
     .help = "bring each shard to N nodes once the dataset is built, so that one may be lost",
     .normal = "1", .least = 1, .most = UINT32_MAX},
    CLI_SHARDS(args, shards),
    CLI_NO_LOCK(args, options.no_lock, "build"),
    {"--wait", NULL, CLI_FLAG, offsetof(args, options.wait),
     .help = "if another build runs in DIR, wait for its end, and keep its dataset if input and "
             "options are the same (with --replace: build it anew)"},
    {"--unit-size", "BYTES", CLI_SIZE, offsetof(args, options.unit_size),
     .help = "input in a unit; ranks and resumes work by whole units",
     .normal = "as DIR was built, else 1/64 of the input, from 1M to 64M", .least = 4096},
    {"--input-bytes", "BYTES", CLI_SIZE, offsetof(args, options.input_bytes),
     .help = "bytes of sources that are URLs that each rank holds in memory, those sent ahead "
             "included",
     .normal = "256M", .least = 1 << 20},
    {"--max-shard", "BYTES", CLI_SIZE, offsetof(args, options.max_shard),
     .help = "end a shard with the unit that brings it to so many bytes of samples, so that the "
             "shards of one rank can be spread over disks; the dataset does not depend on it",
     .normal = "a shard a rank", .least = 1},
    {"--threads", "N", CLI_U32, offsetof(args, options.threads),
     .help = "threads that read units on each rank; the dataset does not depend on it",
     .normal = "the node's cores divided by its ranks, at most 4", .least = 1, .most = 64},
    CLI_JSON(args, json, "print the report as JSON"),
};

const cli_command cli_build = {
    .name = "build",
    .arguments = "SRC... -o DIR",
    .summary = "Build a dataset from JSON, text lines or folders of files",
    .examples = {"rankstore build train.jsonl -o store --length text --where 'text != \"\"'",
                 "mpirun -n 4 rankstore build books/ -o 'store-{rank}' --format folder"},
    .text =
        "Run the same command again to resume an interrupted build, on any number of ranks, or to "
        "build lost shards of a finished dataset again. - is standard input, for one rank: lines "
        "of "
        "JSON, or of text with --format text. The "
        "Python package reads Parquet and Arrow files, by the Python beside this command, the one "
        "on PATH, or RANKSTORE_PYTHON.",
    CLI_OPTIONS(options, args, sources),
    .least = 1,
    .most = CLI_MANY,
    .needs = "no source given",
    .defaults = set_build_defaults,
    .run = build,
};
