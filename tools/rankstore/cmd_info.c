/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_info.c: rankstore info: what a dataset is. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "cli.h"
#include "sources.h"
#include "value.h"

typedef struct args {
    cli_list paths;
    cli_store_args store;
    bool json;
} args;

static uint64_t number(const json_t *object, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

/* Nothing if there is one alone. */
static void print_generations(const json_t *info)
{
    const json_t *list = json_object_get(info, "generations"), *one;
    size_t i;
    if (json_array_size(list) < 2)
        return;
    printf("  generations");
    json_array_foreach(list, i, one)
        printf("%s @%s: %s", i == 0 ? "" : ",", cli_count(number(one, "generation")),
               cli_counted(number(one, "samples"), "sample"));
    printf("\n");
}

static void print_info(const json_t *info)
{
    const json_t *shards = json_object_get(info, "shards"), *shard, *type;
    json_t *lengths = json_object_get(info, "lengths"), *schema = json_object_get(info, "schema");
    const char *name;
    size_t i;
    printf("%s\n", cli_shown(json_string_value(json_object_get(info, "directory"))));
    printf("  dataset   %s\n", json_string_value(json_object_get(info, "dataset")));
    printf("  samples   %s", cli_count(number(info, "samples")));
    if (number(info, "filtered") > 0)
        printf("  (%s filtered out)", cli_count(number(info, "filtered")));
    if (number(info, "duplicates") > 0)
        printf("  (%s left out)", cli_counted(number(info, "duplicates"), "duplicate"));
    if (number(info, "sampled_out") > 0)
        printf("  (%s not in the sample)", cli_count(number(info, "sampled_out")));
    if (number(info, "quarantined") > 0)
        printf("  (%s in quarantine)", cli_count(number(info, "quarantined")));
    if (number(info, "bad") > 0)
        printf("  (%s malformed and skipped)", cli_count(number(info, "bad")));
    printf("\n  bytes     %s in columns and keys, %s in files\n", cli_bytes(number(info, "bytes")),
           cli_bytes(number(info, "file_bytes")));
    printf("  keys      %s\n  columns  ", json_string_value(json_object_get(info, "keys")));
    json_object_foreach(schema, name, type)
        printf(" %s:%s", cli_shown(name), json_string_value(type));
    if (json_object_get(info, "length") != NULL)
        printf("\n  length    %s", cli_shown(json_string_value(json_object_get(info, "length"))));
    printf("\n  lengths   min %s, median %s, mean %.1f, p99 %s, max %s, total %s\n",
           cli_count(number(lengths, "min")), cli_count(number(lengths, "median")),
           json_number_value(json_object_get(lengths, "mean")), cli_count(number(lengths, "p99")),
           cli_count(number(lengths, "max")), cli_count(number(lengths, "total")));
    print_generations(info);
    if (number(info, "unit_size") > 0)
        printf("  units     %s, of %s of input each\n", cli_count(number(info, "units")),
               cli_bytes(number(info, "unit_size")));
    printf("  shards    %zu\n", json_array_size(shards));
    json_array_foreach(shards, i, shard)
    {
        printf("    %.8s  %10s samples  %10s  %s\n",
               json_string_value(json_object_get(shard, "id")), cli_count(number(shard, "samples")),
               cli_bytes(number(shard, "bytes")),
               cli_shown(json_string_value(json_object_get(shard, "path"))));
    }
}

static int show(rks_group *group, const args *a, const char *path)
{
    rks_error err = {0};
    rks_store *store = NULL;
    char *text = NULL;
    const char *directory = a->paths.count > 1 ? cli_directory(path) : path;
    int code = cli_open(group, &(cli_list){&directory, 1}, &a->store, &store);
    if (code >= 0)
        return code;
    rks_status status = rks_store_info_json(store, &text, &err);
    code = status == RKS_OK ? CLI_GOOD : cli_fail(group, status, &err);
    if (status == RKS_OK && rks_group_rank(group) == 0) {
        json_t *info = json_loads(text, 0, NULL);
        if (a->json)
            printf("%s\n", text);
        else
            print_info(info);
        json_decref(info);
    }
    rks_release(text);
    rks_store_close(store, 0);
    return code;
}

/* What they are if they are opened together. Datasets that do not go together are not an error
 * here. */
static int show_all(rks_group *group, const args *a)
{
    rks_error err = {0};
    rks_store *store = NULL;
    char *text = NULL;
    bool talks = rks_group_rank(group) == 0;
    rks_status status = cli_open_several(group, &a->paths, &a->store, &store, &err);
    if (status == RKS_ERR_ARGUMENT) {
        if (talks && !a->json)
            printf("not one dataset: %s\n", err.text);
        return CLI_GOOD;
    }
    if (status == RKS_OK)
        status = rks_store_info_json(store, &text, &err);
    if (status == RKS_OK && talks && a->json) {
        printf("%s\n", text);
    } else if (status == RKS_OK && talks) {
        printf("%s as one: %s\n", cli_counted(a->paths.count, "dataset"),
               cli_counted(rks_store_count(store), "sample"));
        cli_print_sources(store);
    }
    rks_release(text);
    rks_store_close(store, 0);
    return status == RKS_OK ? CLI_GOOD : cli_fail(group, status, &err);
}

static int run_info(rks_group *group, void *user)
{
    const args *a = user;
    int worst = CLI_GOOD;
    for (size_t i = 0; i < a->paths.count; i++) {
        int code = show(group, a, a->paths.items[i]);
        if (code > worst)
            worst = code;
    }
    return worst == CLI_GOOD && a->paths.count > 1 ? show_all(group, a) : worst;
}

static void set_info_defaults(void *user)
{
    rks_store_options_default(&((args *)user)->store.options);
}

static int info(void *user)
{
    return cli_run(1, run_info, user);
}

static const cli_option options[] = {
    CLI_JSON(args, json, "print JSON"),
    CLI_STORE_OPTIONS(args, store),
};

const cli_command cli_info = {
    .name = "info",
    .arguments = "DIR...",
    .summary = "Show what a dataset holds",
    .examples = {"rankstore info store", "rankstore info --json store | python3 -m json.tool"},
    .text = "For several directories, it shows each, and then the one dataset that ls, stats, "
            "plan and bench open, by source. NAME=DIR names a source. With --json it prints an "
            "object for each, and one for all if they fit together.",
    CLI_OPTIONS(options, args, paths),
    .least = 1,
    .most = CLI_MANY,
    .needs = "no dataset given",
    .defaults = set_info_defaults,
    .run = info,
};
