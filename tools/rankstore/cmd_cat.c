/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_cat.c: rankstore cat: samples by key or #id: for people, as JSON, or one column's bytes. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list words; /* directory, then keys or #ids */
    cli_store_args store;
    const char *column;
    bool raw, force, json;
} args;

/* "#17" is an id, everything else a key; "##17" is the key "#17". */
static rks_status find(rks_store *store, const char *word, uint64_t *id, rks_error *err)
{
    if (word[0] == '#' && word[1] != '#') {
        char *end = NULL;
        errno = 0;
        *id = strtoull(word + 1, &end, 10);
        if (end != word + 1 && *end == '\0' && errno == 0 && word[1] >= '0' && word[1] <= '9')
            return RKS_OK;
    }
    if (word[0] == '#' && word[1] == '#')
        word++;
    return rks_store_find(store, word, strlen(word), id, err);
}

static rks_status print_raw(rks_batch *batch, int column, rks_error *err)
{
    rks_value value;
    rks_status status = rks_batch_value(batch, 0, (uint32_t)column, &value, err);
    if (status == RKS_OK && value.data != NULL)
        fwrite(value.data, 1, (size_t)value.size, stdout);
    return status;
}

/* Takes `value` over; all but the last `without` bytes of it. */
static void write_json(FILE *out, json_t *value, size_t without)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(value);
    if (text != NULL)
        fwrite(text, 1, strlen(text) - without, out);
    free(text);
}

/* A json value that is not JSON: as text. */
static rks_status write_value(FILE *out, const rks_schema *schema, uint32_t column,
                              const rks_value *value, rks_error *err)
{
    char *text = NULL;
    rks_status status = rks_value_json(schema, column, value, &text, err);
    if (status == RKS_OK)
        fputs(text, out);
    else if (status == RKS_ERR_DATA)
        write_json(out, cli_text_json(value->data, (size_t)value->size), 0);
    rks_release(text);
    return status == RKS_ERR_DATA ? RKS_OK : status;
}

static rks_status write_sample(FILE *out, rks_store *store, rks_batch *batch, int column,
                               rks_error *err)
{
    const rks_schema *schema = rks_store_schema(store);
    size_t key_size = 0;
    bool first = true;
    rks_status status = RKS_OK;
    const void *key = rks_batch_key(batch, 0, &key_size);
    write_json(out,
               json_pack("{s:I, s:o, s:I}", "id", (json_int_t)rks_batch_id(batch, 0), "key",
                         cli_text_json(key, key_size), "length",
                         (json_int_t)rks_batch_length(batch, 0)),
               1);
    fputs(",\"columns\":{", out);
    for (uint32_t i = 0; status == RKS_OK && i < rks_schema_columns(schema); i++) {
        rks_value value;
        if (column >= 0 && i != (uint32_t)column)
            continue;
        status = rks_batch_value(batch, 0, i, &value, err);
        fputs(first ? "" : ",", out);
        first = false;
        write_json(out, json_string(rks_schema_name(schema, i)), 0);
        fputc(':', out);
        if (status == RKS_OK)
            status = write_value(out, schema, i, &value, err);
    }
    fputs("}}\n", out);
    return status;
}

static rks_status print_sample_json(rks_store *store, rks_batch *batch, int column, rks_error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        snprintf(err->text, sizeof(err->text), "no memory for a sample as JSON");
        return RKS_ERR_MEMORY;
    }
    rks_status status = write_sample(out, store, batch, column, err);
    fclose(out);
    if (status == RKS_OK)
        fwrite(text, 1, size, stdout);
    free(text);
    return status;
}

/* "#7  KEY  length 12", then a line a column. */
static rks_status print_people(rks_store *store, rks_batch *batch, int column, rks_error *err)
{
    const rks_schema *schema = rks_store_schema(store);
    uint32_t columns = rks_schema_columns(schema);
    int name_width = 0, type_width = 0;
    size_t key_size = 0;
    const void *key = rks_batch_key(batch, 0, &key_size);
    for (uint32_t i = 0; i < columns; i++) {
        int name = (int)strlen(rks_schema_name(schema, i));
        int type = (int)strlen(rks_schema_type(schema, i));
        name_width = name > name_width ? name : name_width;
        type_width = type > type_width ? type : type_width;
    }
    printf("#%" PRIu64 "  ", rks_batch_id(batch, 0));
    cli_print_key(stdout, key, key_size);
    printf("  length %" PRIu32 "\n", rks_batch_length(batch, 0));
    for (uint32_t i = 0; i < columns; i++) {
        rks_value value;
        if (column >= 0 && i != (uint32_t)column)
            continue;
        rks_status status = rks_batch_value(batch, 0, i, &value, err);
        if (status != RKS_OK)
            return status;
        printf("  %-*s  %-*s  ", name_width, rks_schema_name(schema, i), type_width,
               rks_schema_type(schema, i));
        status = cli_print_value(stdout, schema, i, &value, err);
        if (status != RKS_OK)
            return status;
        printf("\n");
    }
    return RKS_OK;
}

static rks_status print_sample(rks_store *store, const args *a, int column, const char *word,
                               rks_error *err)
{
    uint64_t id = 0;
    rks_batch *batch = NULL;
    rks_status status = find(store, word, &id, err);
    if (status == RKS_OK)
        status = rks_store_fetch(store, &id, 1, &batch, err);
    if (status == RKS_OK)
        status = a->raw    ? print_raw(batch, column, err)
                 : a->json ? print_sample_json(store, batch, column, err)
                           : print_people(store, batch, column, err);
    rks_batch_free(batch);
    return status;
}

static int choose_column(rks_group *group, rks_store *store, const args *a, int *column)
{
    rks_error err = {0};
    const rks_schema *schema = rks_store_schema(store);
    *column = a->column == NULL ? -1 : rks_schema_find(schema, a->column);
    if (a->column != NULL && *column < 0) {
        snprintf(err.text, sizeof(err.text), "--column: there is no column '%.60s' in %.90s",
                 a->column, rks_schema_text(schema));
        err.rank = -1;
        return cli_fail(group, RKS_ERR_ARGUMENT, &err);
    }
    if (a->raw && a->column == NULL) {
        *column = 0;
        if (rks_schema_columns(schema) != 1) {
            snprintf(err.text, sizeof(err.text), "--raw: say which column: --column NAME");
            err.rank = -1;
            return cli_fail(group, RKS_ERR_ARGUMENT, &err);
        }
    }
    return -1;
}

static int run_cat(rks_group *group, void *user)
{
    const args *a = user;
    rks_error err = {0};
    rks_store *store = NULL;
    int column = -1, worst = CLI_GOOD;
    int code = cli_open(group, &(cli_list){&a->words.items[0], 1}, &a->store, &store);
    if (code >= 0)
        return code;
    code = choose_column(group, store, a, &column);
    if (code >= 0)
        worst = code;
    else if (rks_group_rank(group) == 0)
        for (size_t i = 1; i < a->words.count; i++) {
            rks_status status = cli_check_interrupt(&err);
            if (status == RKS_OK)
                status = print_sample(store, a, column, a->words.items[i], &err);
            if (status == RKS_OK)
                continue;
            if (status == RKS_ERR_ARGUMENT)
                status = RKS_ERR_NOT_FOUND; /* an id that is not there */
            code = cli_fail(group, status, &err);
            worst = code > worst ? code : worst;
            if (status == RKS_ERR_CANCELLED)
                break;
        }
    rks_group_agree(group, "cat", RKS_OK, &err);
    rks_store_close(store, 0);
    return worst;
}

static void set_cat_defaults(void *user)
{
    rks_store_options_default(&((args *)user)->store.options);
}

static int cat(void *user)
{
    args *a = user;
    if (a->raw && a->json)
        return cli_usage(&cli_cat, "--raw and --json cannot be used together");
    if (a->raw && !a->force && isatty(STDOUT_FILENO))
        return cli_usage(&cli_cat, "--raw writes bytes to a terminal; add --force to do it");
    return cli_run(1, run_cat, a);
}

static const cli_option options[] = {
    {"--column", "NAME", CLI_TEXT, offsetof(args, column), .help = "print only this column",
     .normal = "all"},
    {"--raw", NULL, CLI_FLAG, offsetof(args, raw),
     .help = "print the column's bytes as they are stored"},
    {"--force", NULL, CLI_FLAG, offsetof(args, force),
     .help = "write raw bytes even to a terminal"},
    CLI_JSON(args, json,
             "print exact values: a JSON object a line for each sample, with id, key, "
             "length, columns"),
    CLI_STORE_OPTIONS(args, store),
};

const cli_command cli_cat = {
    .name = "cat",
    .arguments = "DIR KEY|#ID...",
    .summary = "Print samples by key or id",
    .examples = {"rankstore cat store train.jsonl:0",
                 "rankstore cat store '#17' --column text --raw"},
    .text = "Strings are cut after a few hundred bytes. Of arrays you see shape, first and last "
            "items, minimum and maximum. --json prints everything.\n\n#17 is the sample with the "
            "id 17; ##17 is the one with the key #17.",
    CLI_OPTIONS(options, args, words),
    .least = 2,
    .most = CLI_MANY,
    .needs = "a dataset and a key or #id are needed",
    .defaults = set_cat_defaults,
    .run = cat,
};
