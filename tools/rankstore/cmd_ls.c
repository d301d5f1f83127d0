/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_ls.c: rankstore ls: the samples of a dataset, a line each: id, length, key. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    const char *directory;
    uint64_t head;
    bool json, partial;
} args;

static rks_status print_sample(rks_store *store, uint64_t id, bool as_json, rks_error *err)
{
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    rks_status status = rks_store_key(store, id, key, &size, err);
    if (status != RKS_OK)
        return status;
    uint32_t length = rks_store_lengths(store)[id];
    if (as_json) {
        json_t *line = json_pack("{s:I, s:I, s:o, s:I}", "id", (json_int_t)id, "length",
                                 (json_int_t)length, "key", cli_text_json(key, size), "owner",
                                 (json_int_t)rks_store_owner(store, id));
        char *text = json_dumps(line, JSON_COMPACT);
        printf("%s\n", text == NULL ? "{}" : text);
        free(text);
        json_decref(line);
    } else {
        printf("#%-10" PRIu64 " %10" PRIu32 "  ", id, length);
        cli_print_key(stdout, key, size);
        printf("\n");
    }
    return RKS_OK;
}

static int run_ls(rks_group *group, void *user)
{
    const args *a = user;
    rks_error err = {0};
    rks_store *store = NULL;
    rks_store_options options;
    rks_store_options_default(&options);
    options.partial = a->partial;
    int code = cli_open(group, a->directory, &options, &store);
    if (code >= 0)
        return code;
    uint64_t count = rks_store_count(store);
    rks_status status = RKS_OK;
    if (a->head > 0 && a->head < count)
        count = a->head;
    if (rks_group_rank(group) == 0)
        for (uint64_t id = 0; status == RKS_OK && id < count && !ferror(stdout); id++)
            if (rks_store_owner(store, id) >= 0)
                status = print_sample(store, id, a->json, &err);
    status = rks_group_agree(group, "ls", status, &err);
    rks_store_close(store, 0);
    return status == RKS_OK ? CLI_GOOD : cli_fail(group, status, &err);
}

static int ls(int argc, char **argv)
{
    args a = {0};
    const cli_option options[] = {
        {"--head", "N", CLI_U64, &a.head, "the first N samples only"},
        {"--json", NULL, CLI_FLAG, &a.json, "a JSON object a line: id, length, key, owner"},
        {"--partial", NULL, CLI_FLAG, &a.partial, "open although shards are missing"},
    };
    const char **paths = calloc((size_t)argc, sizeof(*paths));
    size_t count = 0;
    if (paths == NULL)
        return CLI_ENVIRONMENT;
    int code = cli_parse(&cli_ls, options, 3, argc, argv, paths, &count);
    if (code < 0 && count != 1) {
        fprintf(stderr, "rankstore ls: one dataset is needed\nTry 'rankstore ls --help'.\n");
        code = CLI_USAGE;
    }
    if (code < 0) {
        a.directory = paths[0];
        code = cli_run(1, run_ls, &a);
    }
    free(paths);
    return code;
}

const cli_command cli_ls = {
    "ls",
    "DIR",
    "List samples: id, length, key",
    "Examples:\n  rankstore ls store --head 10\n  rankstore ls store --json | tail -1",
    ls,
};
