/* SPDX-License-Identifier: Apache-2.0
 *
 * args.c: options by table. A wrong one is named, with the nearest that exists. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* Levenshtein distance of short words; longer ones are not near. */
static size_t distance(const char *a, const char *b)
{
    size_t m = strlen(a), n = strlen(b), row[64];
    if (m >= 64 || n >= 64)
        return 64;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            size_t add = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < add ? change : add;
        }
    }
    return row[n];
}

const char *cli_nearest(const char *word, const char *const *candidates, size_t count)
{
    const char *best = NULL;
    size_t least = 4;
    for (size_t i = 0; i < count; i++) {
        size_t changes = distance(word, candidates[i]);
        if (changes < least && changes < strlen(candidates[i])) {
            least = changes;
            best = candidates[i];
        }
    }
    return best;
}

static void print_help(const cli_command *command, const cli_option *options, size_t count)
{
    printf("%s\n\nUsage: rankstore %s %s [OPTION...]\n\n%s\n\nOptions:\n", command->summary,
           command->name, command->arguments, command->examples);
    for (size_t i = 0; i < count; i++) {
        char left[64];
        snprintf(left, sizeof(left), "%s%s%s", options[i].name, options[i].value ? " " : "",
                 options[i].value ? options[i].value : "");
        printf("  %-20s %s\n", left, options[i].help);
    }
    printf("  %-20s %s\n", "--help", "this text");
    printf("\nExit codes: 0 good, 1 data problem found, 2 usage, 3 environment or I/O, "
           "4 a peer failed, 130 interrupted\n");
}

static int usage(const cli_command *command, const char *format, const char *what,
                 const char *advice)
{
    fprintf(stderr, "rankstore %s: ", command->name);
    fprintf(stderr, format, what);
    if (advice != NULL)
        fprintf(stderr, "; did you mean %s?", advice);
    fprintf(stderr, "\nTry 'rankstore %s --help'.\n", command->name);
    return CLI_USAGE;
}

/* Digits only: no sign, no space, no 0x; with `units` one of k, M, G behind them. */
static bool parse_number(const char *text, uint64_t max, bool units, uint64_t *number)
{
    uint64_t value = 0, unit = 1;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    if (at == text)
        return false;
    if (units && (*at == 'k' || *at == 'K' || *at == 'M' || *at == 'G')) {
        unit = *at == 'G' ? UINT64_C(1) << 30 : *at == 'M' ? 1u << 20 : 1u << 10;
        at++;
    }
    if (*at != '\0' || __builtin_mul_overflow(value, unit, &value) || value > max)
        return false;
    *number = value;
    return true;
}

static bool set_number(const cli_option *option, const char *value)
{
    bool small = option->type == CLI_U32 || option->type == CLI_SIZE32;
    bool units = option->type == CLI_SIZE || option->type == CLI_SIZE32;
    uint64_t number = 0, max = small ? UINT32_MAX : UINT64_MAX;
    bool batch = strcmp(option->name, "--batch-size") == 0 ||
                 strcmp(option->name, "--max-tokens") == 0 || strcmp(option->name, "-j") == 0;
    if (!parse_number(value, max, units, &number) || (batch && number == 0))
        return false;
    if (small)
        *(uint32_t *)option->target = (uint32_t)number;
    else
        *(uint64_t *)option->target = number;
    return true;
}

static bool add_to_list(cli_list *list, const char *value)
{
    const char **items = realloc(list->items, (list->count + 1) * sizeof(*items));
    if (items == NULL)
        return false;
    list->items = items;
    items[list->count++] = value;
    return true;
}

static int set_option(const cli_command *command, const cli_option *option, const char *value)
{
    char message[256];
    switch (option->type) {
    case CLI_FLAG:
        *(bool *)option->target = true;
        return -1;
    case CLI_TEXT:
        *(const char **)option->target = value;
        return -1;
    case CLI_LIST:
        return add_to_list(option->target, value) ? -1 : CLI_ENVIRONMENT;
    default:
        if (set_number(option, value))
            return -1;
        snprintf(message, sizeof(message), "%s: '%%s' is not a whole number in range",
                 option->name);
        return usage(command, message, value, NULL);
    }
}

static const cli_option *find_option(const cli_option *options, size_t count, const char *name,
                                     size_t size)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(options[i].name) == size && memcmp(options[i].name, name, size) == 0)
            return &options[i];
    return NULL;
}

static int unknown(const cli_command *command, const cli_option *options, size_t count,
                   const char *word)
{
    const char *names[64];
    for (size_t i = 0; i < count && i < 64; i++)
        names[i] = options[i].name;
    return usage(command, "unknown option '%s'", word,
                 cli_nearest(word, names, count < 64 ? count : 64));
}

/* One word that begins with '-': --name value, --name=value, -jN. */
static int take_option(const cli_command *command, const cli_option *options, size_t count,
                       int argc, char **argv, int *at)
{
    const char *word = argv[*at], *equals = strchr(word, '=');
    size_t size = equals == NULL ? strlen(word) : (size_t)(equals - word);
    const cli_option *option = find_option(options, count, word, size);
    const char *value = equals == NULL ? NULL : equals + 1;
    if (option == NULL && word[1] != '-' && strlen(word) > 2) {
        option = find_option(options, count, word, 2);
        value = word + 2;
    }
    if (option == NULL)
        return unknown(command, options, count, word);
    if (option->type == CLI_FLAG && value != NULL)
        return usage(command, "option %s takes no value", option->name, NULL);
    if (option->type != CLI_FLAG && value == NULL) {
        if (*at + 1 >= argc)
            return usage(command, "option %s needs a value", option->name, NULL);
        value = argv[++*at];
    }
    return set_option(command, option, value);
}

int cli_parse(const cli_command *command, const cli_option *options, size_t option_count, int argc,
              char **argv, const char **positional, size_t *positional_count)
{
    size_t count = 0;
    bool ended = false;
    for (int at = 1; at < argc; at++) {
        const char *word = argv[at];
        if (!ended && strcmp(word, "--") == 0) {
            ended = true;
        } else if (!ended && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            print_help(command, options, option_count);
            return cli_finish(CLI_GOOD);
        } else if (!ended && word[0] == '-' && word[1] != '\0') {
            int code = take_option(command, options, option_count, argc, argv, &at);
            if (code >= 0)
                return code;
        } else {
            positional[count++] = word;
        }
    }
    *positional_count = count;
    return -1;
}
