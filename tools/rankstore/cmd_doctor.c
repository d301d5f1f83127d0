/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_doctor.c: rankstore doctor: is this machine fit for it, and what to do where not. */
#include <jansson.h>
#include <stdlib.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the directory, or none */
    bool json;
} args;

static int run_doctor(rks_group *group, void *user)
{
    const args *a = user;
    rks_error err = {0};
    const char *directory = a->words.count == 1 ? a->words.items[0] : NULL;
    char *text = NULL;
    size_t i, bad = 0;
    json_t *finding;
    rks_status status = rks_doctor_json(group, directory, &text, &err);
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
        cli_print_json(result, JSON_INDENT(2));
    }
    json_decref(findings);
    rks_release(text);
    return bad == 0 ? CLI_GOOD : CLI_ENVIRONMENT;
}

static int doctor(void *user)
{
    return cli_run(1, run_doctor, user);
}

static const cli_option options[] = {
    CLI_JSON(args, json, "print ok and findings (name, ok, value, advice)"),
};

const cli_command cli_doctor = {
    .name = "doctor",
    .arguments = "[DIR]",
    .summary = "Look at launcher, network, limits and the disk under DIR",
    .examples = {"rankstore doctor", "mpirun -n 2 rankstore doctor --json /tmp"},
    .text = "Exit code 3 where something must be put right; each finding says how.",
    .options = options,
    .option_count = CLI_COUNT(options),
    .args_size = sizeof(args),
    .words = offsetof(args, words),
    .most = 1,
    .needs = "at most one directory",
    .run = doctor,
};
