/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_doctor.c: rankstore doctor: is this machine fit for it, and what to do where not. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "gather_facts.h"
#include "python_reader.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the directory or URL, or none */
    bool json;
    bool met; /* the ranks have a group */
} args;

static bool is_ok(const json_t *finding)
{
    return json_is_true(json_object_get(finding, "ok"));
}

/* `rank` -1: rank 0's own. */
static void print_finding(const json_t *finding, int64_t rank)
{
    const char *advice = json_string_value(json_object_get(finding, "advice"));
    bool ok = is_ok(finding);
    if (rank >= 0)
        printf("rank %lld: ", (long long)rank);
    printf("%-4s %-14s %s\n", ok ? "ok" : "BAD",
           json_string_value(json_object_get(finding, "name")),
           cli_shown(json_string_value(json_object_get(finding, "value"))));
    if (advice[0] != '\0')
        printf("     %-14s %s\n", "", advice);
}

/* Rank 0's findings, and of the others those that are not good: `all` holds each rank's list. */
static void report(const args *a, json_t *all, bool ok)
{
    size_t rank, i;
    json_t *list, *finding, *others = json_array();
    json_array_foreach(all, rank, list) json_array_foreach(list, i, finding)
    {
        if (rank > 0 && is_ok(finding))
            continue;
        if (!a->json)
            print_finding(finding, rank == 0 ? -1 : (int64_t)rank);
        if (rank == 0)
            continue;
        json_t *named = json_copy(finding);
        json_object_set_new(named, "rank", json_integer((json_int_t)rank));
        json_array_append_new(others, named);
    }
    if (a->json)
        cli_print_json(json_pack("{s:i, s:b, s:O, s:O}", "schema_version", 1, "ok", ok, "findings",
                                 json_array_get(all, 0), "other_ranks", others),
                       JSON_INDENT(2));
    json_decref(others);
}

/* Every process of a launcher whose processes do not meet says what is wrong; the first says all.
 */
static void report_alone(const args *a, json_t *all, bool ok)
{
    uint32_t rank = cli_lone_rank();
    size_t i;
    json_t *finding;
    if (rank == 0)
        report(a, all, ok);
    else if (!a->json) /* rank 0's is the output */
        json_array_foreach(json_array_get(all, 0), i, finding) if (!is_ok(finding))
            print_finding(finding, rank);
}

/* Prints what each rank found, if this one talks. The exit code. */
static int judge(const args *a, const rks_gathered *found, uint32_t ranks, bool talks)
{
    json_t *all = json_array(), *list, *finding;
    bool ok = true;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        size_t i, size;
        const char *text = cli_gathered_of(found, rank, &size);
        list = json_loadb(text, size, 0, NULL);
        json_array_foreach(list, i, finding) ok = ok && is_ok(finding);
        json_array_append_new(all, list == NULL ? json_array() : list);
    }
    if (ranks == 1 && !a->met)
        report_alone(a, all, ok);
    else if (talks)
        report(a, all, ok);
    json_decref(all);
    return ok ? CLI_GOOD : CLI_ENVIRONMENT;
}

static const char *directory_of(const args *a)
{
    return a->words.count == 1 ? a->words.items[0] : NULL;
}

static int run_doctor(rks_group *group, void *user)
{
    args *a = user;
    a->met = true;
    rks_error err = {0};
    char *text = NULL;
    rks_gathered found;
    rks_status status = rks_doctor_json(group, directory_of(a), &text, &err);
    status =
        cli_gather(group, "doctor", status, text, text == NULL ? 0 : strlen(text), &found, &err);
    rks_release(text);
    int code = status != RKS_OK
                   ? cli_fail(group, status, &err)
                   : judge(a, &found, rks_group_size(group), rks_group_rank(group) == 0);
    cli_gathered_free(&found);
    return code;
}

/* Without other ranks no group is needed: what keeps one from opening is among the findings. */
static int look_alone(const args *a)
{
    rks_error err = {0};
    char *text = NULL;
    rks_status status = rks_doctor_json(NULL, directory_of(a), &text, &err);
    if (status != RKS_OK)
        return cli_fail(NULL, status, &err);
    uint64_t offsets[] = {0, strlen(text)};
    const rks_gathered found = {(uint8_t *)text, offsets};
    int code = judge(a, &found, 1, true);
    rks_release(text);
    return cli_finish(code);
}

static int doctor(void *user)
{
    const args *a = user;
    if (!cli_meets_others()) {
        cli_use_store_helper();
        return look_alone(a);
    }
    int code = cli_run(1, run_doctor, user);
    if (!a->met && strcmp(cli_launched_rank(), "0") == 0) /* the findings may say why */
        look_alone(a);
    return code;
}

static const cli_option options[] = {
    CLI_JSON(args, json,
             "print ok, findings (name, ok, value, advice), and other_ranks: the problems of other "
             "ranks"),
};

const cli_command cli_doctor = {
    .name = "doctor",
    .arguments = "[DIR|URL]",
    .summary = "Check launcher, network, limits and the disk under DIR, or an object store",
    .examples = {"rankstore doctor", "mpirun -n 2 rankstore doctor --json /tmp"},
    .text =
        "Every rank checks its machine; of other ranks than 0 only problems are shown. The "
        "exit code is 3 if something must be fixed; each finding says how. Of a URL it says "
        "whether "
        "the store answers, with which credentials, how fast, and whether writes work: it puts a "
        "small object there and removes it.",
    CLI_OPTIONS(options, args, words),
    .most = 1,
    .needs = "at most one directory or URL",
    .run = doctor,
};
