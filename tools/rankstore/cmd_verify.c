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
    const char **paths;
    size_t path_count;
    bool full, deep, json;
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
    uint64_t samples = 0, findings = 0;
    int worst = CLI_GOOD;
    bool failed = false;
    rks_verify_level level = a->deep   ? RKS_VERIFY_DEEP
                             : a->full ? RKS_VERIFY_FULL
                                       : RKS_VERIFY_FAST;
    if (rks_group_rank(group) != 0)
        return CLI_GOOD; /* what this node has is looked at once */
    for (size_t i = 0; i < a->path_count; i++) {
        uint64_t some = 0, found = 0;
        rks_status status = rks_verify(a->paths[i], level, on_finding, a, &some, &found, &err);
        int code =
            status == RKS_OK ? (found > 0 ? CLI_PROBLEM : CLI_GOOD) : cli_fail(group, status, &err);
        worst = code > worst ? code : worst;
        failed = failed || status != RKS_OK;
        samples += some;
        findings += found;
    }
    if (a->json) {
        json_t *result =
            json_pack("{s:i, s:b, s:I, s:O}", "schema_version", 1, "ok", worst == CLI_GOOD,
                      "samples", (json_int_t)samples, "errors", a->errors);
        char *text = json_dumps(result, JSON_INDENT(2));
        printf("%s\n", text == NULL ? "{}" : text);
        free(text);
        json_decref(result);
    } else if (!failed) {
        printf("%s samples looked at, %s\n", cli_count(samples),
               findings == 0 ? "all good" : "damage found");
    }
    return worst;
}

static int verify(int argc, char **argv)
{
    args a = {0};
    const cli_option options[] = {
        {"--full", NULL, CLI_FLAG, &a.full, "also every byte of every file, by the sums"},
        {"--deep", NULL, CLI_FLAG, &a.deep,
         "also LMDB's own view, in a child process with a time limit"},
        {"--json", NULL, CLI_FLAG, &a.json, "print ok, samples, errors (file, offset, key, what)"},
    };
    a.paths = calloc((size_t)argc, sizeof(*a.paths));
    a.errors = json_array();
    if (a.paths == NULL || a.errors == NULL)
        return CLI_ENVIRONMENT;
    int code = cli_parse(&cli_verify, options, 3, argc, argv, a.paths, &a.path_count);
    if (code < 0 && a.path_count == 0) {
        fprintf(stderr, "rankstore verify: no dataset given\nTry 'rankstore verify --help'.\n");
        code = CLI_USAGE;
    }
    if (code < 0)
        code = cli_run(1, run_verify, &a);
    json_decref(a.errors);
    free(a.paths);
    return code;
}

const cli_command cli_verify = {
    "verify",
    "DIR...",
    "Check manifests and every sample (or every byte) of a dataset",
    "Examples:\n  rankstore verify store\n  rankstore verify --full --json store",
    verify,
};
