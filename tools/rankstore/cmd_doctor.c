/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_doctor.c: rankstore doctor: is this machine fit for it, and what to do where not. */
#include <jansson.h>
#include <stdlib.h>

#include "cli.h"

typedef struct args {
    const char *directory;
    bool json;
} args;

static int run_doctor(rks_group *group, void *user)
{
    const args *a = user;
    rks_error err = {0};
    char *text = NULL;
    size_t i, bad = 0;
    json_t *finding;
    rks_status status = rks_doctor_json(group, a->directory, &text, &err);
    if (status != RKS_OK)
        return cli_fail(group, status, &err);
    json_t *findings = json_loads(text, 0, NULL);
    json_array_foreach(findings, i, finding)
    {
        const char *advice = json_string_value(json_object_get(finding, "advice"));
        bool ok = json_is_true(json_object_get(finding, "ok"));
        bad += !ok;
        if (a->json || rks_group_rank(group) != 0)
            continue;
        printf("%-4s %-14s %s\n", ok ? "ok" : "BAD",
               json_string_value(json_object_get(finding, "name")),
               json_string_value(json_object_get(finding, "value")));
        if (advice[0] != '\0')
            printf("     %-14s %s\n", "", advice);
    }
    if (a->json && rks_group_rank(group) == 0) {
        json_t *result =
            json_pack("{s:i, s:b, s:O}", "schema_version", 1, "ok", bad == 0, "findings", findings);
        char *shown = json_dumps(result, JSON_INDENT(2));
        printf("%s\n", shown == NULL ? "{}" : shown);
        free(shown);
        json_decref(result);
    }
    json_decref(findings);
    rks_release(text);
    return bad == 0 ? CLI_GOOD : CLI_ENVIRONMENT;
}

static int doctor(int argc, char **argv)
{
    args a = {0};
    const cli_option options[] = {
        {"--json", NULL, CLI_FLAG, &a.json, "print ok and findings (name, ok, value, advice)"},
    };
    const char **paths = calloc((size_t)argc, sizeof(*paths));
    size_t count = 0;
    if (paths == NULL)
        return CLI_ENVIRONMENT;
    int code = cli_parse(&cli_doctor, options, 1, argc, argv, paths, &count);
    if (code < 0 && count > 1) {
        fprintf(stderr, "rankstore doctor: at most one directory\n"
                        "Try 'rankstore doctor --help'.\n");
        code = CLI_USAGE;
    }
    if (code < 0) {
        a.directory = count == 1 ? paths[0] : NULL;
        code = cli_run(1, run_doctor, &a);
    }
    free(paths);
    return code;
}

const cli_command cli_doctor = {
    "doctor",
    "[DIR]",
    "Look at launcher, network, limits and the disk under DIR",
    "Examples:\n  rankstore doctor\n  mpirun -n 2 rankstore doctor --json /local",
    doctor,
};
