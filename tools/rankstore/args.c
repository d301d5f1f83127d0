/* SPDX-License-Identifier: Apache-2.0
 *
 * args.c: options by table. A wrong one is named, with the nearest that exists. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "value.h"

/* Levenshtein distance of short words; longer ones are not near. */
static size_t word_distance(const char *a, const char *b)
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

/* Letters of the longer one, without the dashes of an option. */
static size_t longer(const char *a, const char *b)
{
    size_t one = strlen(a + strspn(a, "-")), other = strlen(b + strspn(b, "-"));
    return one > other ? one : other;
}

const char *cli_nearest(const char *word, const char *const *candidates, size_t count)
{
    const char *best = NULL;
    size_t least = 4;
    for (size_t i = 0; i < count; i++) {
        size_t changes = word_distance(word, candidates[i]);
        if (changes < least && 2 * changes < longer(word, candidates[i])) {
            least = changes;
            best = candidates[i];
        }
    }
    return best;
}

int cli_usage(const cli_command *command, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fprintf(stderr, "rankstore %s: %s\nTry 'rankstore %s --help'.\n", command->name,
            cli_shown(text), command->name);
    return CLI_USAGE;
}

size_t cli_choice(const char **choices, const char **word)
{
    *word = *choices + strspn(*choices, " ");
    size_t size = strcspn(*word, " ");
    *choices = *word + size;
    return size;
}

/* After a number: "", "B", or one of k, M, G, T, alone or with "iB". 0: something else. */
static uint64_t unit_of(const char *text)
{
    static const char letters[] = "kMGT";
    if (*text == '\0' || strcmp(text, "B") == 0)
        return 1;
    const char *found = strchr(letters, *text == 'K' ? 'k' : *text);
    if (found == NULL || (text[1] != '\0' && strcmp(text + 1, "iB") != 0))
        return 0;
    return UINT64_C(1) << 10 * (found - letters + 1);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads digits from *at on: no sign, no space, no 0x. Returns false if there are none, or the
 * number is above 2^64 - 1. */
static bool parse_digits(const char **at, uint64_t *value)
{
    const char *begin = *at;
    for (*value = 0; is_digit(**at); ++*at)
        if (__builtin_mul_overflow(*value, 10u, value) ||
            __builtin_add_overflow(*value, (uint64_t)(**at - '0'), value))
            return false;
    return *at != begin;
}

/* Reads digits; with `units` also as sizes are printed: "195.3 KiB". */
static bool parse_number(const char *text, uint64_t max, bool units, uint64_t *number)
{
    uint64_t value = 0, part = 0, parts = 1, unit = 1;
    const char *at = text;
    if (!parse_digits(&at, &value))
        return false;
    if (units && *at == '.' && is_digit(at[1]))
        for (at++; is_digit(*at) && parts < 1000; at++, parts *= 10)
            part = 10 * part + (uint64_t)(*at - '0');
    if (units && *at != '\0')
        unit = unit_of(at + (*at == ' '));
    if ((!units && *at != '\0') || unit == 0 || (unit == 1 && parts > 1) ||
        __builtin_mul_overflow(value, unit, &value) ||
        __builtin_add_overflow(value, unit * part / parts, &value) || value > max)
        return false;
    *number = value;
    return true;
}

bool cli_parse_size(const char *text, uint64_t max, uint64_t *number)
{
    return parse_number(text, max, true, number);
}

/* As it is typed: 4k, 3G, 4096. */
static const char *size_text(uint64_t size, char text[32])
{
    static const char units[] = "kMG";
    int unit = -1;
    for (; unit < 2 && size > 0 && size % 1024 == 0; unit++)
        size /= 1024;
    snprintf(text, 32, unit < 0 ? "%" PRIu64 : "%" PRIu64 "%c", size, unit < 0 ? 0 : units[unit]);
    return text;
}

static int set_number(const cli_command *command, const cli_option *option, const char *value,
                      void *target)
{
    bool small = option->type == CLI_U32 || option->type == CLI_SIZE32;
    bool units = option->type == CLI_SIZE || option->type == CLI_SIZE32;
    uint64_t number = 0, most = option->most > 0 ? option->most : small ? UINT32_MAX : UINT64_MAX;
    if (parse_number(value, most, units, &number) && number >= option->least) {
        if (small)
            *(uint32_t *)target = (uint32_t)number;
        else
            *(uint64_t *)target = number;
        return -1;
    }
    char low[32], high[32];
    const char *top = most == UINT64_MAX ? "2^64 - 1"
                      : units            ? size_text(most, high)
                                         : cli_count(most);
    return cli_usage(command, "%s: '%s' is not a whole number from %s to %s%s", option->name, value,
                     units ? size_text(option->least, low) : cli_count(option->least), top,
                     units ? " (k, M, G: times 1024, 1024^2, 1024^3)" : "");
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

enum { CHOICES_MAX = 32, CHOICE_SIZE = 32 };

/* -1 if the value is one of the choices, also with ":" and options of its own after it, which
 * who takes the value looks at. */
static int check_choice(const cli_command *command, const char *what, const char *choices,
                        const char *value)
{
    char words[CHOICES_MAX][CHOICE_SIZE];
    const char *names[CHOICES_MAX], *word = NULL, *rest = choices;
    size_t count = 0, size, own = strcspn(value, ":");
    while ((size = cli_choice(&rest, &word)) > 0 && count < CHOICES_MAX) {
        snprintf(words[count], CHOICE_SIZE, "%.*s", (int)size, word);
        names[count] = words[count];
        if (strlen(names[count]) == own && strncmp(names[count], value, own) == 0)
            return -1;
        count++;
    }
    const char *near = cli_nearest(value, names, count);
    return cli_usage(command, "%s: '%s' is not one of: %s%s%s%s", what, value, choices,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int set_option(const cli_command *command, const cli_option *option, const char *value,
                      bool *given, void *args)
{
    bool *before = &given[option - command->options];
    if (*before && option->type != CLI_LIST && option->type != CLI_FLAG)
        return cli_usage(command, "option %s is given twice, and takes one value", option->name);
    *before = true;
    void *target = (char *)args + option->field;
    if (option->choices != NULL) {
        int code = check_choice(command, option->name, option->choices, value);
        if (code >= 0)
            return code;
    }
    switch (option->type) {
    case CLI_FLAG:
        *(bool *)target = true;
        return -1;
    case CLI_TEXT:
        *(const char **)target = value;
        return -1;
    case CLI_LIST:
        return add_to_list(target, value) ? -1 : CLI_ENVIRONMENT;
    default:
        return set_number(command, option, value, target);
    }
}

static const cli_option *find_option(const cli_command *command, const char *name, size_t size)
{
    for (size_t i = 0; i < command->option_count; i++)
        if (strlen(command->options[i].name) == size &&
            memcmp(command->options[i].name, name, size) == 0)
            return &command->options[i];
    return NULL;
}

static int unknown(const cli_command *command, const char *word)
{
    enum { MOST = 64 };
    const char *names[MOST];
    size_t count = command->option_count < MOST ? command->option_count : MOST;
    for (size_t i = 0; i < count; i++)
        names[i] = command->options[i].name;
    if (strcmp(word, "--partial") == 0)
        return cli_usage(command, "option '--partial' is now '--missing partial'");
    const char *near = cli_nearest(word, names, count);
    return cli_usage(command, "unknown option '%s'%s%s%s", word, near ? "; did you mean " : "",
                     near ? near : "", near ? "?" : "");
}

/* One word that begins with '-': --name value, --name=value, -jN. `given`: by option, whether it
 * was there before. */
static int parse_option(const cli_command *command, int argc, char **argv, int *at, bool *given,
                        void *args)
{
    const char *word = argv[*at], *equals = strchr(word, '=');
    size_t size = equals == NULL ? strlen(word) : (size_t)(equals - word);
    const cli_option *option = find_option(command, word, size);
    const char *value = equals == NULL ? NULL : equals + 1;
    if (option == NULL && word[1] != '-' && strlen(word) > 2) {
        option = find_option(command, word, 2);
        value = word + 2;
    }
    if (option == NULL)
        return unknown(command, word);
    if (option->type == CLI_FLAG && value != NULL)
        return cli_usage(command, "option %s takes no value", option->name);
    if (option->type != CLI_FLAG && value == NULL) {
        if (*at + 1 >= argc)
            return cli_usage(command, "option %s needs a value", option->name);
        value = argv[++*at];
    }
    return set_option(command, option, value, given, args);
}

static int parse_word(const cli_command *command, const char *word, cli_list *words)
{
    if (command->word_choices != NULL) {
        int code = check_choice(command, command->arguments, command->word_choices, word);
        if (code >= 0)
            return code;
    }
    return add_to_list(words, word) ? -1 : CLI_ENVIRONMENT;
}

static int parse(const cli_command *command, int argc, char **argv, bool *given, void *args)
{
    cli_list *words = (cli_list *)(void *)((char *)args + command->words);
    bool ended = false;
    for (int at = 1; at < argc; at++) {
        const char *word = argv[at];
        int code = -1;
        if (!ended && strcmp(word, "--") == 0) {
            ended = true;
        } else if (!ended && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            cli_print_help(command);
            return cli_finish(CLI_GOOD);
        } else if (!ended && word[0] == '-' && word[1] != '\0') {
            code = parse_option(command, argc, argv, &at, given, args);
        } else {
            code = parse_word(command, word, words);
        }
        if (code >= 0)
            return code;
    }
    if (words->count > command->most)
        return cli_usage(command, "%s; got %zu", command->needs, words->count);
    if (words->count < command->least)
        return cli_usage(command, "%s", command->needs);
    return -1;
}

static void free_lists(const cli_command *command, void *args)
{
    free(((cli_list *)(void *)((char *)args + command->words))->items);
    for (size_t i = 0; i < command->option_count; i++)
        if (command->options[i].type == CLI_LIST)
            free(((cli_list *)(void *)((char *)args + command->options[i].field))->items);
}

int cli_dispatch(const cli_command *command, int argc, char **argv)
{
    void *args = calloc(1, command->args_size);
    bool *given = calloc(command->option_count + 1, sizeof(*given));
    if (args == NULL || given == NULL) {
        free(given);
        free(args);
        return CLI_ENVIRONMENT;
    }
    if (command->defaults != NULL)
        command->defaults(args);
    int code = parse(command, argc, argv, given, args);
    free(given);
    if (code < 0)
        code = command->run(args);
    free_lists(command, args);
    free(args);
    return code;
}
