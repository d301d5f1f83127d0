/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_export.c: rankstore export: a dataset into files that other tools read. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the directory */
    cli_list columns;
    const char *target;
    rks_export_options options;
    cli_store_args store;
    bool json;
    cli_bar bar;
} args;

static void print_export_report(const args *a, const rks_export_report *report)
{
    if (a->json) {
        cli_print_json(json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:f}",
                                 "schema_version", 1, "target", a->target, "to", report->to,
                                 "samples", (json_int_t)report->samples, "filtered",
                                 (json_int_t)report->filtered, "left_out",
                                 (json_int_t)report->left_out, "bytes", (json_int_t)report->bytes,
                                 "respelled", (json_int_t)report->respelled, "keys_left",
                                 report->keys_left, "seconds", report->seconds),
                       JSON_INDENT(2));
        return;
    }
    printf("%s: %s, %s, as %s", cli_shown(a->target), cli_counted(report->samples, "sample"),
           cli_bytes(report->bytes), report->to);
    if (report->filtered > 0)
        printf("; %s filtered out", cli_count(report->filtered));
    if (report->left_out > 0)
        printf("; %s left out, in quarantine or of absent shards", cli_count(report->left_out));
    if (report->respelled > 0)
        printf("; %s JSON values are read back in another spelling", cli_count(report->respelled));
    if (report->keys_left)
        printf("; their keys, of file and row, are not written: column __key__ is there; a dataset "
               "built without --key '' keeps its own");
    printf("\n");
}

static void print_quoted(FILE *to, const char *word)
{
    fputc('\'', to);
    for (word = cli_shown(word); *word != '\0'; word++)
        fputs(*word == '\'' ? "'\\''" : (const char[]){*word, '\0'}, to);
    fputc('\'', to);
}

/* The key's column in what was written; "__key__" where the dataset has none, and then in `schema`,
 * too. */
static const char *key_column(json_t *info, json_t *schema)
{
    const json_t *build = json_object_get(info, "build");
    const char *key = json_string_value(json_object_get(build, "key"));
    const char *format = json_string_value(json_object_get(build, "format"));
    if (key != NULL)
        return key;
    if (format != NULL && strcmp(format, "folder") == 0)
        return "path";
    json_t *columns = json_copy(schema);
    json_object_clear(schema);
    json_object_set_new(schema, "__key__", json_string("str"));
    json_object_update(schema, columns);
    json_decref(columns);
    return "__key__";
}

/* How the whole dataset is built from what was written: nothing of it is guessed then. */
static void print_way_back(const args *a, rks_store *store, const rks_export_report *report)
{
    enum { LONGEST = 500 };
    char *text = NULL;
    if (a->json || a->columns.count > 0 || a->options.where != NULL || report->left_out > 0 ||
        strcmp(report->to, "lmdb") == 0 || rks_store_info_json(store, &text, NULL) != RKS_OK)
        return;
    json_t *info = json_loads(text, 0, NULL);
    json_t *schema = json_loads(rks_schema_text(rks_store_schema(store)), 0, NULL);
    rks_release(text);
    const char *key = info == NULL || schema == NULL ? ""
                      : report->keys_left            ? "__key__"
                                                     : key_column(info, schema);
    char *types = json_dumps(schema, JSON_COMPACT);
    bool folder = strcmp(key, "path") == 0 && json_object_size(schema) == 2;
    bool read = folder || strcmp(report->to, "dir") != 0; /* other files are for other programs */
    if (read && types != NULL && strlen(types) <= LONGEST) {
        fprintf(stderr, "To build it again%s: rankstore build ",
                report->keys_left ? ", under the keys in column __key__" : "");
        print_quoted(stderr, a->target);
        fprintf(stderr, " -o DIR --key ");
        print_quoted(stderr, key);
        fprintf(stderr, " --schema ");
        print_quoted(stderr, types);
        fprintf(stderr, "\n");
    }
    free(types);
    json_decref(schema);
    json_decref(info);
}

static int run_export(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    rks_store *store = NULL;
    rks_export_report report = {.struct_size = sizeof(report)};
    int code = cli_open(group, &(cli_list){&a->words.items[0], 1}, &a->store, &store);
    if (code >= 0)
        return code;
    if (rks_group_rank(group) == 0 && rks_group_size(group) > 1)
        fprintf(stderr,
                "rankstore export: rank 0 writes; the other %" PRIu32 " send what they "
                "have\n",
                rks_group_size(group) - 1);
    a->options.columns = a->columns.items;
    a->options.column_count = a->columns.count;
    a->options.progress = cli_bar_update;
    a->options.progress_user = &a->bar;
    cli_bar_begin(&a->bar, group);
    rks_status status = rks_store_export(store, a->target, &a->options, &report, &err);
    cli_bar_end(&a->bar);
    code = status == RKS_OK ? CLI_GOOD : cli_fail(group, status, &err);
    if (status == RKS_OK && rks_group_rank(group) == 0) {
        print_export_report(a, &report);
        print_way_back(a, store, &report);
    }
    rks_store_close(store, 0);
    return code;
}

static void set_export_defaults(void *user)
{
    rks_export_options_default(&((args *)user)->options);
    rks_store_options_default(&((args *)user)->store.options);
}

static int export(void *user)
{
    args *a = user;
    if (a->target == NULL)
        return cli_usage(&cli_export, "no target given: -o FILE or -o DIR");
    if (strcmp(a->target, "-") == 0)
        return cli_usage(&cli_export, "-o -: a target is a file or directory that appears whole; "
                                      "name one (./- for a file of that name)");
    return cli_run(1, run_export, a);
}

static const cli_option options[] = {
    {"-o", "FILE", CLI_TEXT, offsetof(args, target),
     .help = "the file or directory to write; it appears when it is complete"},
    {"--to", "FORMAT", CLI_TEXT, offsetof(args, options.to),
     .help = "output format. jsonl: a line a sample; tar, dir: a file for each column of a "
             "sample; npz: an array a column; lmdb: a record a sample with the column's bytes, or "
             "JSON if there are several columns",
     .choices = "jsonl tar dir npz lmdb", .normal = "by the target's ending; dir if it has none"},
    CLI_WHERE(args, options.where, "write samples that match", ""),
    {"--column", "NAME", CLI_LIST, offsetof(args, columns), .help = "write only this column",
     .normal = "all"},
    {"--force", NULL, CLI_FLAG, offsetof(args, options.force),
     .help = "replace an existing file, or a directory that an export made"},
    CLI_JSON(args, json, "print the report as JSON"),
    CLI_STORE_OPTIONS(args, store),
};

const cli_command cli_export = {
    .name = "export",
    .arguments = "DIR -o TARGET",
    .summary = "Write a dataset's samples as JSON lines, tar, files, NumPy arrays or plain LMDB",
    .examples = {"rankstore export store -o store.jsonl",
                 "rankstore export store -o texts.tar --where 'text != \"\"' --column text"},
    .text =
        "One process writes; under mpirun the other ranks send it the samples that only they see. "
        "File names come from keys: other characters than letters, digits and some signs are %XX. "
        "A value that the format cannot hold is an error that names sample and column. After a "
        "whole dataset, export prints the command that builds it again with its types and keys. "
        "lmdb has no such command, and dir has one only if the dataset was built from a folder. "
        "If there is a column __key__, keys of file and row are not written, and the command uses "
        "that column as the key.",
    CLI_OPTIONS(options, args, words),
    CLI_ONE_DATASET,
    .defaults = set_export_defaults,
    .run = export,
};
