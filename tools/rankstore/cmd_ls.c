/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_ls.c: rankstore ls: the samples of a dataset, a line each: id, length, key. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the directory */
    rks_store_options store;
    uint64_t head;
    bool json;
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
        cli_print_json(line, JSON_COMPACT);
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
    int code = cli_open(group, a->words.items[0], &a->store, &store);
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

static void defaults(void *user)
{
    rks_store_options_default(&((args *)user)->store);
}

static int ls(void *user)
{
    return cli_run(1, run_ls, user);
}

static const cli_option options[] = {
    {"--head", "N", CLI_U64, offsetof(args, head), .help = "the first N samples only",
     .normal = "all", .least = 1},
    CLI_JSON(args, json, "a JSON object a line: id, length, key, owner"),
    CLI_STORE_OPTIONS(args, store),
};

const cli_command cli_ls = {
    .name = "ls",
    .arguments = "DIR",
    .summary = "List samples: id, length, key",
    .examples = {"rankstore ls store --head 10", "rankstore ls store --json | tail -1"},
    .options = options,
    .option_count = CLI_COUNT(options),
    .args_size = sizeof(args),
    .words = offsetof(args, words),
    .least = 1,
    .most = 1,
    .needs = "one dataset is needed",
    .defaults = defaults,
    .run = ls,
};
