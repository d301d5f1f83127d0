/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_verify.c: rankstore verify: is every byte what was written? */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list paths;
    bool full, deep, partial, json;
    json_t *errors;
} args;

static void on_finding(void *user, const rks_finding *finding)
{
    args *a = user;
    if (a->json) {
        json_array_append_new(
            a->errors,
            json_pack("{s:o, s:I, s:o, s:o}", "file",
                      cli_text_json(finding->file, strlen(finding->file)), "offset",
                      (json_int_t)finding->offset, "key",
                      finding->key_size == 0 ? json_null()
                                             : cli_text_json(finding->key, finding->key_size),
                      "what", cli_text_json(finding->what, strlen(finding->what))));
        return;
    }
    printf("%s: offset %" PRIu64 ": ", finding->file, finding->offset);
    if (finding->key_size > 0) {
        printf("key ");
        cli_print_key(stdout, finding->key, finding->key_size);
        printf(": ");
    }
    printf("%s\n", finding->what);
}

static int run_verify(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    uint64_t samples = 0, findings = 0, elsewhere = 0;
    int worst = CLI_GOOD;
    bool failed = false;
    rks_verify_options chosen;
    rks_verify_options_default(&chosen);
    chosen.level = a->deep ? RKS_VERIFY_DEEP : a->full ? RKS_VERIFY_FULL : RKS_VERIFY_FAST;
    chosen.together = (const char *const *)a->paths.items;
    chosen.together_count = a->paths.count;
    chosen.partial = a->partial;
    if (rks_group_rank(group) != 0)
        return CLI_GOOD; /* what this node has is looked at once */
    for (size_t i = 0; i < a->paths.count; i++) {
        rks_verify_counts counts = {.struct_size = sizeof(counts)};
        rks_status status =
            rks_verify_with(a->paths.items[i], &chosen, on_finding, a, &counts, &err);
        int code = status == RKS_OK ? (counts.findings > 0 ? CLI_PROBLEM : CLI_GOOD)
                                    : cli_fail(group, status, &err);
        worst = code > worst ? code : worst;
        failed = failed || status != RKS_OK;
        samples += counts.samples;
        findings += counts.findings;
        elsewhere += counts.elsewhere;
    }
    if (a->json) {
        json_t *result = json_pack("{s:i, s:b, s:I, s:I, s:O}", "schema_version", 1, "ok",
                                   worst == CLI_GOOD, "samples", (json_int_t)samples,
                                   "shards_elsewhere", (json_int_t)elsewhere, "errors", a->errors);
        cli_print_json(result, JSON_INDENT(2));
    } else if (!failed) {
        printf("%s samples looked at, %s", cli_count(samples),
               findings == 0 ? "all good" : "damage found");
        if (elsewhere > 0)
            printf("; %s shards are elsewhere", cli_count(elsewhere));
        printf("\n");
    }
    return worst;
}

static int verify(void *user)
{
    args *a = user;
    a->errors = json_array();
    int code = a->errors == NULL ? CLI_ENVIRONMENT : cli_run(1, run_verify, a);
    json_decref(a->errors);
    return code;
}

static const cli_option options[] = {
    {"--full", NULL, CLI_FLAG, offsetof(args, full),
     .help = "also every byte of every file, by the sums"},
    {"--deep", NULL, CLI_FLAG, offsetof(args, deep),
     .help = "also LMDB's own view, in a child process with a time limit"},
    {"--partial", NULL, CLI_FLAG, offsetof(args, partial),
     .help = "shards that lie in none of the directories are elsewhere, not missing"},
    CLI_JSON(args, json, "print ok, samples, shards_elsewhere, errors (file, offset, key, what)"),
};

const cli_command cli_verify = {
    .name = "verify",
    .arguments = "DIR...",
    .summary = "Check manifests and every sample (or every byte) of a dataset",
    .examples = {"rankstore verify store", "rankstore verify --full --json store/*"},
    .text =
        "Nothing is written. Exit code 1 where damage was found; each finding names file and "
        "offset, and the key where the bytes lie in a sample. A shard's file (part-*.rks) can be "
        "given too. Where ranks have directories of their own (store/{rank}), give all of them: "
        "shards are looked for in each.",
    .options = options,
    .option_count = CLI_COUNT(options),
    .args_size = sizeof(args),
    .words = offsetof(args, paths),
    .least = 1,
    .most = CLI_MANY,
    .needs = "no dataset given",
    .run = verify,
};
