/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_diff.c: rankstore diff: what differs between two datasets. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the two datasets */
    cli_list columns;
    cli_store_args store;
    uint64_t head;
    bool json;
    uint32_t processes;
    cli_bar bar;
    json_t *lists[3]; /* by rks_difference */
} args;

static const char *const list_names[] = {"only_a_keys", "only_b_keys", "changed_keys"};

static void on_difference(void *user, rks_difference kind, const void *key, size_t key_size,
                          uint64_t id_a, uint64_t id_b)
{
    static const char *const marks[] = {"only in A", "only in B", "changed  "};
    args *a = user;
    if (a->json) {
        json_array_append_new(a->lists[kind], cli_text_json(key, key_size));
        return;
    }
    if (a->bar.shown)
        fprintf(stderr, "\r\033[K");
    printf("%s  #%" PRIu64 "  ", marks[kind], kind == RKS_ONLY_IN_B ? id_b : id_a);
    cli_print_key(stdout, key, key_size);
    printf("\n");
}

static void print_diff_json(const args *a, const rks_diff_report *report, bool same)
{
    json_t *object = json_pack("{s:i, s:b, s:I, s:I, s:I, s:I, s:s}", "schema_version", 1, "equal",
                               same, "same", (json_int_t)report->same, "only_a",
                               (json_int_t)report->only_a, "only_b", (json_int_t)report->only_b,
                               "changed", (json_int_t)report->changed, "columns", report->columns);
    for (int kind = 0; kind < 3; kind++)
        json_object_set(object, list_names[kind], a->lists[kind]);
    cli_print_json(object, JSON_INDENT(2));
}

static void print_diff_report(const rks_diff_report *report, bool same)
{
    if (report->columns[0] != '\0')
        printf("columns    %s\n", report->columns);
    printf("%s the same, %s only in A, %s only in B, %s changed%s\n", cli_count(report->same),
           cli_count(report->only_a), cli_count(report->only_b), cli_count(report->changed),
           same ? ": equal" : "");
}

static int compare_stores(rks_group *group, args *a, rks_store *one, rks_store *other)
{
    rks_error err = {0};
    rks_diff_report report = {.struct_size = sizeof(report)};
    rks_diff_options options;
    rks_diff_options_default(&options);
    options.columns = a->columns.items;
    options.column_count = a->columns.count;
    options.head = a->head;
    options.progress = cli_bar_update;
    options.progress_user = &a->bar;
    cli_bar_begin(&a->bar, group);
    rks_status status = rks_diff(one, other, &options, on_difference, a, &report, &err);
    cli_bar_end(&a->bar);
    if (status != RKS_OK)
        return cli_fail(group, status, &err);
    bool same = report.only_a + report.only_b + report.changed == 0 && report.columns[0] == '\0';
    if (rks_group_rank(group) == 0) {
        if (a->json)
            print_diff_json(a, &report, same);
        else
            print_diff_report(&report, same);
    }
    return same ? CLI_GOOD : CLI_PROBLEM;
}

static int run_diff(rks_group *group, void *user)
{
    args *a = user;
    rks_store *one = NULL, *other = NULL;
    int code = cli_open(group, &(cli_list){&a->words.items[0], 1}, &a->store, &one);
    if (code < 0)
        code = cli_open(group, &(cli_list){&a->words.items[1], 1}, &a->store, &other);
    if (code < 0)
        code = compare_stores(group, a, one, other);
    rks_store_close(other, 0);
    rks_store_close(one, 0);
    return code;
}

static void set_diff_defaults(void *user)
{
    ((args *)user)->head = 10;
    rks_store_options_default(&((args *)user)->store.options);
}

static int diff(void *user)
{
    args *a = user;
    for (int kind = 0; kind < 3; kind++)
        a->lists[kind] = json_array();
    int code = cli_run(a->processes, run_diff, a);
    for (int kind = 0; kind < 3; kind++)
        json_decref(a->lists[kind]);
    return code;
}

static const cli_option options[] = {
    {"--head", "N", CLI_U64, offsetof(args, head), .help = "show at most N keys of each kind",
     .normal = "10"},
    {"--column", "NAME", CLI_LIST, offsetof(args, columns), .help = "compare only this column",
     .normal = "all"},
    CLI_SHARDS(args, store.shards),
    CLI_PROCESSES(args, processes),
    CLI_JSON(args, json, "print equal, same, only_a, only_b, changed, columns and the keys"),
};

const cli_command cli_diff = {
    .name = "diff",
    .arguments = "A B",
    .summary = "Compare two datasets by key and contents",
    .examples = {"rankstore diff store store", "rankstore diff store store --column text --json"},
    .text = "The order of samples, their lengths and their shards do not matter. The exit code is "
            "1 if the datasets differ.",
    CLI_OPTIONS(options, args, words),
    .least = 2,
    .most = 2,
    .needs = "two datasets are needed",
    .defaults = set_diff_defaults,
    .run = diff,
};
