/* SPDX-License-Identifier: Apache-2.0
 *
 * completion.c: rankstore completion: what bash and zsh complete, from the commands' tables. */
#include <string.h>

#include "cli.h"

typedef struct args {
    cli_list words;
} args;

static bool is_path(const cli_option *option)
{
    return option->value != NULL &&
           (strcmp(option->value, "FILE") == 0 || strcmp(option->value, "DIR") == 0 ||
            strcmp(option->value, "SRC") == 0);
}

/* ---- bash: a case of commands, in each a case of options that take a value ------------------- */

static void bash_command(const cli_command *command)
{
    printf("    %s)\n        case $before in\n", command->name);
    for (size_t i = 0; i < command->option_count; i++) {
        const cli_option *option = &command->options[i];
        if (option->choices != NULL)
            printf("        %s) _rankstore_words '%s'; return ;;\n", option->name, option->choices);
        else if (is_path(option))
            printf("        %s) return ;;\n", option->name);
        else if (option->type != CLI_FLAG)
            printf("        %s) _rankstore_words ''; return ;;\n", option->name);
    }
    printf("        esac\n        [[ $word == -* ]] && _rankstore_words '");
    for (size_t i = 0; i < command->option_count; i++)
        printf("%s ", command->options[i].name);
    printf("--help'\n");
    if (command->word_choices != NULL)
        printf("        [[ $word != -* ]] && _rankstore_words '%s'\n", command->word_choices);
    printf("        ;;\n");
}

static void print_bash(void)
{
    printf(
        "# bash completion for rankstore, made by 'rankstore completion bash'.\n"
        "# What is no command, option or known value is completed as a path.\n"
        "_rankstore_words() {\n"
        "    COMPREPLY=($(compgen -W \"$1\" -- \"$word\"))\n"
        "    compopt +o default 2> /dev/null\n"
        "}\n"
        "_rankstore() {\n"
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=\n"
        "    COMPREPLY=()\n"
        "    (( COMP_CWORD > 1 )) && command=${COMP_WORDS[1]}\n"
        "    # --name=value comes as three words\n"
        "    [[ $word == = ]] && word=\n"
        "    [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]}\n"
        "    case $command in\n    '') _rankstore_words '");
    for (size_t i = 0; i < cli_command_count; i++)
        printf("%s ", cli_commands[i]->name);
    printf("--help --version' ;;\n");
    for (size_t i = 0; i < cli_command_count; i++)
        bash_command(cli_commands[i]);
    printf("    esac\n}\ncomplete -o default -F _rankstore rankstore\n");
}

/* ---- zsh: _arguments with a description for each option ----------------------------------- */

/* In single quotes; `special` characters get a backslash of their own. */
static void zsh_text(const char *text, const char *special)
{
    for (; *text != '\0'; text++)
        if (*text == '\'')
            printf("'\\''");
        else if (strchr(special, *text) != NULL)
            printf("\\%c", *text);
        else
            putchar(*text);
}

static void zsh_option(const cli_option *option)
{
    printf(" \\\n            '%s%s", option->type == CLI_LIST ? "*" : "", option->name);
    if (option->type != CLI_FLAG) /* --name value and --name=value; -j 4 and -j4 */
        putchar(option->name[1] == '-' ? '=' : '+');
    putchar('[');
    zsh_text(cli_option_text(option), "[]:\\");
    putchar(']');
    if (option->type != CLI_FLAG) {
        putchar(':');
        zsh_text(option->value, ":\\");
        if (option->choices != NULL)
            printf(":(%s)", option->choices);
        else
            printf(is_path(option) ? ":_files" : ": ");
    }
    putchar('\'');
}

static void print_zsh(void)
{
    printf(
        "#compdef rankstore\n# zsh completion for rankstore, made by 'rankstore completion zsh'.\n"
        "_rankstore() {\n    local -a commands=(\n");
    for (size_t i = 0; i < cli_command_count; i++) {
        printf("        '%s:", cli_commands[i]->name);
        zsh_text(cli_commands[i]->summary, ":\\");
        printf("'\n");
    }
    printf("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n"
           "        return\n    fi\n    shift words\n    (( CURRENT-- ))\n    case $words[1] in\n");
    for (size_t i = 0; i < cli_command_count; i++) {
        const cli_command *command = cli_commands[i];
        printf("    %s)\n        _arguments '--help[this text]'", command->name);
        for (size_t o = 0; o < command->option_count; o++)
            zsh_option(&command->options[o]);
        if (command->word_choices != NULL)
            printf(" \\\n            '*:argument:(%s)'", command->word_choices);
        else if (command->most > 0)
            printf(" \\\n            '*:argument:_files'");
        printf("\n        ;;\n");
    }
    printf("    esac\n}\nif [[ $funcstack[1] == _rankstore ]]; then\n    _rankstore \"$@\"\n"
           "else\n    compdef _rankstore rankstore\nfi\n");
}

static int completion(void *user)
{
    const args *a = user;
    if (strcmp(a->words.items[0], "bash") == 0)
        print_bash();
    else
        print_zsh();
    return cli_finish(CLI_GOOD);
}

const cli_command cli_completion = {
    .name = "completion",
    .arguments = "bash|zsh",
    .summary = "Print what completes commands and options in bash or zsh",
    .examples = {"source <(rankstore completion bash)", "rankstore completion zsh > _rankstore"},
    .text = "An installed rankstore has both where the shells look for them.",
    .args_size = sizeof(args),
    .words = offsetof(args, words),
    .least = 1,
    .most = 1,
    .needs = "the shell is needed: bash or zsh",
    .word_choices = "bash zsh",
    .run = completion,
};
