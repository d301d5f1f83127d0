/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_info.c: rankstore info: what a dataset is. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "cli.h"

typedef struct args {
    const char **paths;
    size_t path_count;
    bool json, partial;
} args;

static uint64_t number(const json_t *object, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

static void print_info(const json_t *info)
{
    const json_t *shards = json_object_get(info, "shards"), *shard, *type;
    json_t *lengths = json_object_get(info, "lengths"), *schema = json_object_get(info, "schema");
    const char *name;
    size_t i;
    printf("%s\n", json_string_value(json_object_get(info, "directory")));
    printf("  dataset   %s\n", json_string_value(json_object_get(info, "dataset")));
    printf("  samples   %s", cli_count(number(info, "samples")));
    if (number(info, "filtered") > 0)
        printf("  (%s filtered out)", cli_count(number(info, "filtered")));
    if (number(info, "bad") > 0)
        printf("  (%s malformed and skipped)", cli_count(number(info, "bad")));
    printf("\n  bytes     %s in columns and keys, %s in files\n", cli_bytes(number(info, "bytes")),
           cli_bytes(number(info, "file_bytes")));
    printf("  keys      %s\n  columns  ", json_string_value(json_object_get(info, "keys")));
    json_object_foreach(schema, name, type) printf(" %s:%s", name, json_string_value(type));
    printf("\n  lengths   min %s, median %s, mean %.1f, p99 %s, max %s, total %s\n",
           cli_count(number(lengths, "min")), cli_count(number(lengths, "median")),
           json_number_value(json_object_get(lengths, "mean")), cli_count(number(lengths, "p99")),
           cli_count(number(lengths, "max")), cli_count(number(lengths, "total")));
    printf("  shards    %zu\n", json_array_size(shards));
    json_array_foreach(shards, i, shard)
    {
        printf("    %.8s  %10s samples  %10s  %s\n",
               json_string_value(json_object_get(shard, "id")), cli_count(number(shard, "samples")),
               cli_bytes(number(shard, "bytes")),
               json_string_value(json_object_get(shard, "path")));
    }
}

static int show(rks_group *group, const args *a, const char *path)
{
    rks_error err = {0};
    rks_store *store = NULL;
    char *text = NULL;
    rks_store_options options;
    rks_store_options_default(&options);
    options.partial = a->partial;
    int code = cli_open(group, path, &options, &store);
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

static int run_info(rks_group *group, void *user)
{
    const args *a = user;
    int worst = CLI_GOOD;
    for (size_t i = 0; i < a->path_count; i++) {
        int code = show(group, a, a->paths[i]);
        if (code > worst)
            worst = code;
    }
    return worst;
}

static int info(int argc, char **argv)
{
    args a = {0};
    const cli_option options[] = {
        {"--json", NULL, CLI_FLAG, &a.json, "print JSON"},
        {"--partial", NULL, CLI_FLAG, &a.partial, "open although shards are missing"},
    };
    a.paths = calloc((size_t)argc, sizeof(*a.paths));
    if (a.paths == NULL)
        return CLI_ENVIRONMENT;
    int code = cli_parse(&cli_info, options, 2, argc, argv, a.paths, &a.path_count);
    if (code < 0 && a.path_count == 0) {
        fprintf(stderr, "rankstore info: no dataset given\nTry 'rankstore info --help'.\n");
        code = CLI_USAGE;
    }
    if (code < 0)
        code = cli_run(1, run_info, &a);
    free(a.paths);
    return code;
}

const cli_command cli_info = {
    "info",
    "DIR...",
    "Show what a dataset holds",
    "Examples:\n  rankstore info store\n  rankstore info --json store | python3 -m json.tool",
    info,
};
