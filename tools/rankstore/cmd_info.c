/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_info.c: rankstore info: what a dataset is. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "cli.h"
#include "sources.h"
#include "terminal.h"
#include "value.h"

typedef struct args {
    cli_list paths;
    cli_store_args store;
    bool json;
    bool where;
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

/* ---- where its shards lie -------------------------------------------------------------------- */

enum { BAR_CELLS = 12 };

static const char *json_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text == NULL ? "" : text;
}

static void print_places(const json_t *places, size_t shards)
{
    const json_t *one;
    size_t i;
    json_array_foreach(places, i, one)
    {
        const char *home = json_text(one, "home");
        printf("  [%zu] %s:%s  %s of %s whole, %s%s\n", i, cli_shown(json_text(one, "host")),
               cli_shown(json_text(one, "directory")), cli_count(number(one, "whole")),
               cli_counted(shards, "shard"), cli_bytes(number(one, "bytes")),
               home[0] == '\0' ? "; built here or moved here" : "; they come from home");
    }
}

/* A bar for each place: how much of the shard is there. */
static void print_bars(const json_t *shard, size_t places)
{
    const uint64_t bytes = number(shard, "bytes");
    const json_t *held = json_object_get(shard, "places"), *one;
    for (size_t place = 0; place < places; place++) {
        double part = 0;
        size_t i;
        json_array_foreach(held, i, one) if (number(one, "place") == place) part =
            bytes == 0 ? 1 : (double)number(one, "bytes") / (double)bytes;
        printf("  ");
        int used = cli_print_bar(stdout, part, BAR_CELLS);
        printf("%*s", BAR_CELLS - used, "");
        if (part > 0)
            printf(" %3.0f %%", part >= 1 ? 100 : part > 0.99 ? 99 : part * 100);
        else
            printf("     -");
    }
    printf("\n");
}

static void print_where(const json_t *placed)
{
    const json_t *places = json_object_get(placed, "places"), *shard;
    const json_t *shards = json_object_get(placed, "shards");
    const char *home = json_text(placed, "home");
    size_t i;
    printf("dataset %s, generation %s\n", json_text(placed, "dataset"),
           cli_count(number(placed, "generation")));
    printf("  home      %s\n", home[0] == '\0' ? "none, or not known here" : cli_shown(home));
    print_places(places, json_array_size(shards));
    printf("  shard          bytes");
    for (i = 0; i < json_array_size(places); i++)
        printf("  [%zu]%*s", i, i + 1 < json_array_size(places) ? BAR_CELLS + (i < 10 ? 3 : 2) : 0,
               "");
    printf("\n");
    json_array_foreach(shards, i, shard)
    {
        printf("  %.8s  %10s", json_text(shard, "id"), cli_bytes(number(shard, "bytes")));
        print_bars(shard, json_array_size(places));
    }
}

/* Looks at directories alone: needs no rank that serves them. */
static int show_where(rks_group *group, void *user)
{
    const args *a = user;
    char *text = NULL;
    rks_error err = {0};
    rks_status status = rks_placement_json(a->paths.items, a->paths.count, &text, &err);
    if (status != RKS_OK)
        return cli_fail(group, status, &err);
    json_t *placed = json_loads(text, 0, NULL);
    if (a->json)
        printf("%s\n", text);
    else
        print_where(placed);
    json_decref(placed);
    rks_release(text);
    return CLI_GOOD;
}

static void set_info_defaults(void *user)
{
    rks_store_options_default(&((args *)user)->store.options);
}

static int info(void *user)
{
    return cli_run(1, ((args *)user)->where ? show_where : run_info, user);
}

static const cli_option options[] = {
    CLI_JSON(args, json, "print JSON"),
    {"--where", NULL, CLI_FLAG, offsetof(args, where),
     .help = "show how much of each shard lies in each DIR"},
    CLI_STORE_OPTIONS(args, store),
};

const cli_command cli_info = {
    .name = "info",
    .arguments = "DIR...",
    .summary = "Show what a dataset holds",
    .examples = {"rankstore info store", "rankstore info --json store | python3 -m json.tool"},
    .text = "For several directories, it shows each, and then the one dataset that ls, stats, "
            "plan and bench open, by source. NAME=DIR names a source. With --json it prints an "
            "object for each, and one for all if they fit together. With --where, the DIRs hold "
            "one dataset: those of its nodes, or LOCAL/DATASET-ID, which stage and --local fill; "
            "no shard is opened.",
    CLI_OPTIONS(options, args, paths),
    .least = 1,
    .most = CLI_MANY,
    .needs = "no dataset given",
    .defaults = set_info_defaults,
    .run = info,
};
