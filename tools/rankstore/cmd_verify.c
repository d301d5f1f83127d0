/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_verify.c: rankstore verify: is every byte what was written? */
#include <glob.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list words;   /* as they were given */
    cli_list paths;   /* with {rank} and {node} made directories; items are this command's own */
    cli_list shards;  /* as they were given */
    cli_list folders; /* patterns of folders with shards; items are this command's own */
    bool full, deep, json;
    bool sizes_only; /* of URLs alone, without --full */
    const char *missing;
    const char *quarantine; /* file or directory; NULL: none is written */
    json_t *errors;
    json_t *leftovers;     /* {file, what} of each shard that is not listed, and no damage */
    json_t *bad;           /* [sample, what] of each finding that lies in a sample */
    uint64_t in_no_sample; /* findings that lie in none */
} args;

/* ---- which directories --------------------------------------------------------------------- */

static bool is_number(const char *text, size_t size)
{
    size_t digits = strspn(text, "0123456789");
    return size > 0 && digits >= size;
}

/* `path` is `pattern` with numbers in the place of {rank} and {node}. */
static bool fits(const char *pattern, const char *path)
{
    const char *brace = strchr(pattern, '{');
    while (brace != NULL && strncmp(brace, "{rank}", 6) != 0 && strncmp(brace, "{node}", 6) != 0)
        brace = strchr(brace + 1, '{');
    if (brace == NULL)
        return strcmp(pattern, path) == 0;
    size_t head = (size_t)(brace - pattern), digits;
    if (strncmp(pattern, path, head) != 0)
        return false;
    for (digits = 1; is_number(path + head, digits); digits++)
        if (fits(brace + 6, path + head + digits))
            return true;
    return false;
}

/* The pattern for glob(): nothing but {rank}, {node} and, if `star`, `*` stands for other text. */
static void glob_pattern(const char *word, bool star, char *pattern, size_t room)
{
    size_t used = 0;
    for (; *word != '\0' && used + 3 < room; word++) {
        if (strncmp(word, "{rank}", 6) == 0 || strncmp(word, "{node}", 6) == 0) {
            pattern[used++] = '*';
            word += 5;
            continue;
        }
        if (!star || *word != '*')
            pattern[used++] = '\\';
        pattern[used++] = *word;
    }
    pattern[used] = '\0';
}

static bool add_path(cli_list *list, const char *path, const char *generation)
{
    char *named = malloc(strlen(path) + strlen(generation) + 1);
    const char **grown = realloc(list->items, (list->count + 1) * sizeof(*grown));
    if (grown != NULL)
        list->items = grown;
    if (grown == NULL || named == NULL) {
        free(named);
        return false;
    }
    strcat(strcpy(named, path), generation);
    grown[list->count++] = named;
    return true;
}

static void free_paths(cli_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free((void *)(uintptr_t)list->items[i]);
    free(list->items);
}

static bool has_dataset(const char *directory)
{
    char path[8192];
    snprintf(path, sizeof(path), "%s/dataset.json", directory);
    return access(path, F_OK) == 0;
}

/* Ranks' own directories that lie here, or the folders that a `*` fits; a word without {rank},
 * {node} and `*` is taken as it is. */
static bool add_directories(args *a, const char *word)
{
    char pattern[8192];
    glob_t found;
    struct stat info;
    size_t before = a->paths.count;
    if (strstr(word, "://") != NULL)
        return add_path(&a->paths, word, "");
    const bool ranks = strstr(word, "{rank}") != NULL || strstr(word, "{node}") != NULL;
    const bool star = !ranks && strchr(word, '*') != NULL && lstat(word, &info) != 0;
    if (!ranks && !star)
        return add_path(&a->paths, word, "");
    char *directory = strdup(word), *sign = directory == NULL ? NULL : strrchr(directory, '@');
    const char *generation = ""; /* "@2", of each directory */
    if (directory == NULL)
        return false;
    if (sign != NULL && is_number(sign + 1, strlen(sign + 1))) {
        generation = word + (sign - directory);
        *sign = '\0';
    }
    glob_pattern(directory, star, pattern, sizeof(pattern));
    bool good = !star || add_path(&a->folders, directory, "");
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; good && i < found.gl_pathc; i++) {
            const char *path = found.gl_pathv[i];
            if (star ? has_dataset(path) : fits(directory, path))
                good = add_path(&a->paths, path, generation);
        }
        globfree(&found);
    }
    free(directory);
    return good &&
           (a->paths.count > before || add_path(&a->paths, word, "")); /* which is not there */
}

/* ---- findings -------------------------------------------------------------------------------- */

static void note_sample(args *a, const rks_finding *finding)
{
    char what[256];
    if (finding->sample_id < 0) {
        a->in_no_sample += !finding->lost || a->quarantine == NULL;
        return;
    }
    snprintf(what, sizeof(what), "offset %" PRIu64 ": %s", finding->offset, finding->what);
    json_array_append_new(a->bad, json_pack("[I, o]", (json_int_t)finding->sample_id,
                                            cli_text_json(what, strlen(what))));
}

static void note_lost(void *user, uint64_t first_id, uint64_t count)
{
    const args *a = user;
    for (uint64_t id = first_id; id < first_id + count; id++)
        json_array_append_new(a->bad, json_pack("[I, s]", (json_int_t)id, "its shard is lost"));
}

/* Checks that the directories hold one dataset: a list names samples of one. */
static rks_status check_one_dataset(const args *a, rks_error *err)
{
    char first[40] = "";
    for (size_t i = 0; i < a->paths.count; i++) {
        char *text = NULL;
        rks_status status = rks_dataset_info_json(a->paths.items[i], &text, err);
        if (status != RKS_OK)
            return status;
        json_t *info = json_loads(text, 0, NULL);
        const char *found = json_string_value(json_object_get(info, "dataset"));
        const char *id = found == NULL ? "" : found;
        bool same = i == 0 || strcmp(id, first) == 0;
        snprintf(first, sizeof(first), "%s", id);
        json_decref(info);
        rks_release(text);
        if (same)
            continue;
        *err = (rks_error){.status = RKS_ERR_ARGUMENT, .rank = -1};
        snprintf(err->text, sizeof(err->text),
                 "%s and %s hold different datasets: --quarantine makes a list for one",
                 a->paths.items[0], a->paths.items[i]);
        return RKS_ERR_ARGUMENT;
    }
    return RKS_OK;
}

/* FILE, or DIR/quarantine.json. */
static rks_status write_quarantine(const args *a, rks_error *err)
{
    size_t count = json_array_size(a->bad);
    uint64_t *ids = calloc(count + 1, sizeof(*ids));
    const char **reasons = calloc(count + 1, sizeof(*reasons));
    char path[4096];
    struct stat info;
    bool folder = stat(a->quarantine, &info) == 0 && S_ISDIR(info.st_mode);
    snprintf(path, sizeof(path), "%s%s", a->quarantine, folder ? "/quarantine.json" : "");
    rks_status status = RKS_ERR_MEMORY;
    if (ids != NULL && reasons != NULL) {
        for (size_t i = 0; i < count; i++) {
            const json_t *one = json_array_get(a->bad, i);
            ids[i] = (uint64_t)json_integer_value(json_array_get(one, 0));
            reasons[i] = json_string_value(json_array_get(one, 1));
        }
        status = rks_quarantine_write(path, a->paths.items[0], ids, reasons, count, err);
    }
    if (status == RKS_OK)
        fprintf(stderr, "%s: %s in samples, now in quarantine\n", cli_shown(path),
                cli_counted(count, "finding"));
    if (status == RKS_OK && a->in_no_sample > 0)
        fprintf(stderr,
                "%s outside of samples: a quarantine does not help; copy a good file, or build "
                "again with --replace\n",
                cli_counted(a->in_no_sample, "finding"));
    free(ids);
    free(reasons);
    return status;
}

static void on_leftover(args *a, const rks_finding *finding)
{
    if (a->json)
        json_array_append_new(a->leftovers,
                              json_pack("{s:o, s:o}", "file",
                                        cli_text_json(finding->file, strlen(finding->file)), "what",
                                        cli_text_json(finding->what, strlen(finding->what))));
    else
        printf("%s: %s\n", cli_shown(finding->file), finding->what);
}

static void on_finding(void *user, const rks_finding *finding)
{
    args *a = user;
    if (finding->leftover) {
        on_leftover(a, finding);
        return;
    }
    note_sample(a, finding);
    if (a->json) {
        json_array_append_new(
            a->errors,
            json_pack("{s:o, s:I, s:o, s:o, s:o}", "file",
                      cli_text_json(finding->file, strlen(finding->file)), "offset",
                      (json_int_t)finding->offset, "key",
                      finding->key_size == 0 ? json_null()
                                             : cli_text_json(finding->key, finding->key_size),
                      "what", cli_text_json(finding->what, strlen(finding->what)), "sample",
                      finding->sample_id < 0 ? json_null()
                                             : json_integer((json_int_t)finding->sample_id)));
        return;
    }
    printf("%s: offset %" PRIu64 ": ", cli_shown(finding->file), finding->offset);
    if (finding->key_size > 0) {
        printf("key ");
        cli_print_key(stdout, finding->key, finding->key_size);
        printf(": ");
    }
    printf("%s\n", finding->what);
}

static void print_advice(const args *a)
{
    if (json_array_size(a->bad) > 0)
        fprintf(stderr,
                "To leave damaged samples out, run 'rankstore verify DIR --quarantine FILE' and "
                "give --quarantine FILE to the commands that read DIR.\n");
    if (a->in_no_sample > 0)
        fprintf(stderr, "For damage outside of samples, copy a good file, or build again with "
                        "'rankstore build --replace'.\n");
}

static void print_counts(const args *a, const rks_verify_counts *all, bool good)
{
    if (a->json) {
        cli_print_json(json_pack("{s:i, s:b, s:I, s:I, s:O, s:O}", "schema_version", 1, "ok", good,
                                 "samples", (json_int_t)all->samples, "shards_elsewhere",
                                 (json_int_t)all->elsewhere, "errors", a->errors, "leftovers",
                                 a->leftovers),
                       JSON_INDENT(2));
        return;
    }
    if (a->sizes_only)
        printf("manifests, sums and sizes looked at, ");
    else
        printf("%s looked at, ", cli_counted(all->samples, "sample"));
    printf("%s", all->findings == 0 ? "all good" : "damage found");
    if (all->elsewhere > 0)
        printf("; %s elsewhere", cli_counted(all->elsewhere, "shard"));
    if (all->leftovers > 0)
        printf("; %s not listed", cli_counted(all->leftovers, "shard"));
    printf("\n");
}

static int run_verify(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    rks_verify_counts all = {0};
    int worst = CLI_GOOD;
    bool failed = false;
    rks_verify_options chosen;
    rks_verify_options_default(&chosen);
    chosen.level = a->deep ? RKS_VERIFY_DEEP : a->full ? RKS_VERIFY_FULL : RKS_VERIFY_FAST;
    chosen.together = (const char *const *)a->paths.items;
    chosen.together_count = a->paths.count;
    chosen.missing = a->missing;
    chosen.shards = a->folders.items;
    chosen.shard_count = a->folders.count;
    chosen.lost = a->quarantine == NULL ? NULL : note_lost;
    if (rks_group_rank(group) != 0)
        return CLI_GOOD; /* what this node has is looked at once */
    if (a->quarantine != NULL && a->paths.count > 1) {
        rks_status status = check_one_dataset(a, &err);
        if (status != RKS_OK)
            return cli_fail(group, status, &err);
    }
    for (size_t i = 0; i < a->paths.count; i++) {
        rks_verify_counts counts = {.struct_size = sizeof(counts)};
        rks_status status =
            rks_verify_with(a->paths.items[i], &chosen, on_finding, a, &counts, &err);
        int code = status == RKS_OK ? (counts.findings > 0 ? CLI_PROBLEM : CLI_GOOD)
                                    : cli_fail(group, status, &err);
        worst = code > worst ? code : worst;
        failed = failed || status != RKS_OK;
        all.samples += counts.samples;
        all.findings += counts.findings;
        all.elsewhere += counts.elsewhere;
        all.leftovers += counts.leftovers;
    }
    if (a->json || !failed)
        print_counts(a, &all, worst == CLI_GOOD);
    cli_flush();
    if (a->quarantine == NULL)
        print_advice(a);
    if (a->quarantine != NULL && !failed) {
        rks_status status = write_quarantine(a, &err);
        return status == RKS_OK ? worst : cli_fail(group, status, &err);
    }
    return worst;
}

static int verify(void *user)
{
    args *a = user;
    bool good = true;
    int code = CLI_ENVIRONMENT;
    a->sizes_only = !a->full;
    for (size_t i = 0; i < a->words.count; i++)
        a->sizes_only = a->sizes_only && strstr(a->words.items[i], "://") != NULL;
    for (size_t i = 0; good && i < a->words.count; i++)
        good = add_directories(a, a->words.items[i]);
    for (size_t i = 0; good && i < a->shards.count; i++)
        good = add_path(&a->folders, a->shards.items[i], "");
    a->errors = json_array();
    a->leftovers = json_array();
    a->bad = json_array();
    if (good && a->errors != NULL && a->leftovers != NULL && a->bad != NULL)
        code = cli_run(1, run_verify, a);
    json_decref(a->errors);
    json_decref(a->leftovers);
    json_decref(a->bad);
    free_paths(&a->paths);
    free_paths(&a->folders);
    return code;
}

static const cli_option options[] = {
    {"--full", NULL, CLI_FLAG, offsetof(args, full),
     .help = "also check every byte of every file against its checksums"},
    {"--deep", NULL, CLI_FLAG, offsetof(args, deep),
     .help = "also let LMDB read each shard, in a child process with a time limit"},
    {"--missing", "WHAT", CLI_TEXT, offsetof(args, missing),
     .help = "what a shard is that is in none of the directories: error, a problem; partial: it is "
             "only counted",
     .choices = "error partial", .normal = "error"},
    {"--quarantine", "FILE", CLI_TEXT, offsetof(args, quarantine),
     .help = "write the damaged samples, and those of lost shards, into this list (in a folder: "
             "quarantine.json); other commands and rankstore.open can exclude them by it"},
    CLI_SHARDS(args, shards),
    CLI_JSON(args, json,
             "print ok, samples, shards_elsewhere, errors (file, offset, key, what, sample), "
             "leftovers (file, what)"),
};

const cli_command cli_verify = {
    .name = "verify",
    .arguments = "DIR|URL...",
    .summary = "Check manifests and every sample (or every byte) of a dataset",
    .examples = {"rankstore verify store", "rankstore verify --full --json store/*"},
    .text =
        "verify never writes to the dataset. The exit code is 1 if it found damage. Each finding "
        "names file and offset and, if the byte belongs to a sample, that sample's key. Leftover "
        "shards of a failed build or append are reported but are not damage; 'rankstore prune' "
        "removes them. You can also give a shard's file (part-*.rks), or DIR@N for generation N. "
        "Of a URL of an object store it checks manifests, sums and sizes, and with --full every "
        "byte of the shards. "
        "If ranks have directories of their own, 'store/{rank}' stands for all of them on this "
        "machine, and shards are looked for in each; so it is with the folders that a '*' fits.",
    CLI_OPTIONS(options, args, words),
    .least = 1,
    .most = CLI_MANY,
    .needs = "no dataset given",
    .run = verify,
};
