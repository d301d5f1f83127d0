/* SPDX-License-Identifier: Apache-2.0
 *
 * wording.c: what the library says, in the command line's words: its `too_long` is the option
 * --too-long here.
 *
 *   too_long may be drop          an option of two words, anywhere
 *   where: no column "txet"       one of one word, before a colon at the beginning
 *   use fewer ranks, or tail=repeat        ... or before its value
 */
#include <string.h>

#include "cli.h"

static const cli_command *command;

void cli_set_command(const cli_command *running)
{
    command = running;
}

const char *cli_command_name(void)
{
    return command == NULL ? "" : command->name;
}

/* Paths and quoted names hold no words of ours. */
static bool ends_word(char c)
{
    return strchr(" ,:;=()", c) != NULL; /* the NUL, too */
}

/* Bytes of `text` that are the option's name in the library's words; 0: they are not. */
static size_t match(const char *text, const char *option)
{
    size_t size = 0;
    if (strncmp(option, "--", 2) != 0)
        return 0;
    for (option += 2; *option != '\0'; option++, size++)
        if (text[size] != (*option == '-' ? '_' : *option))
            return 0;
    return ends_word(text[size]) ? size : 0;
}

static const char *option_at(const char *text, bool first, size_t *size)
{
    for (size_t i = 0; command != NULL && i < command->option_count; i++) {
        const char *name = command->options[i].name;
        *size = match(text, name);
        if (*size > 0 &&
            (strchr(name + 2, '-') != NULL || text[*size] == '=' || (first && text[*size] == ':')))
            return name;
    }
    return NULL;
}

const char *cli_words(const char *text)
{
    static char words[2 * sizeof(((rks_error *)0)->text)];
    size_t used = 0;
    bool begins = true;
    for (const char *at = text; *at != '\0' && used + 64 < sizeof(words);) {
        size_t size = 0;
        const char *option = begins ? option_at(at, at == text, &size) : NULL;
        if (option == NULL) {
            begins = ends_word(*at);
            words[used++] = *at++;
            continue;
        }
        used += (size_t)snprintf(words + used, sizeof(words) - used, "%.60s", option);
        at += size;
        if (*at == '=') {
            words[used++] = ' ';
            at++;
        }
        begins = false;
    }
    words[used] = '\0';
    return words;
}
