/* SPDX-License-Identifier: Apache-2.0
 *
 * completion.c: rankstore completion: what bash and zsh complete, from the commands' tables. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

typedef struct args {
    cli_list words;
    bool install;
} args;

static bool is_path(const cli_option *option)
{
    return option->value != NULL &&
           (strcmp(option->value, "FILE") == 0 || strcmp(option->value, "DIR") == 0 ||
            strcmp(option->value, "SRC") == 0);
}

/* ---- bash: a case of commands, in each a case of options that take a value ------------------- */

static void bash_command(FILE *out, const cli_command *command)
{
    fprintf(out, "    %s)\n        case $before in\n", command->name);
    for (size_t i = 0; i < command->option_count; i++) {
        const cli_option *option = &command->options[i];
        if (option->choices != NULL)
            fprintf(out, "        %s) _rankstore_words '%s'; return ;;\n", option->name,
                    option->choices);
        else if (is_path(option))
            fprintf(out, "        %s) return ;;\n", option->name);
        else if (option->type != CLI_FLAG)
            fprintf(out, "        %s) _rankstore_words ''; return ;;\n", option->name);
    }
    fprintf(out, "        esac\n        [[ $word == -* ]] && _rankstore_words '");
    for (size_t i = 0; i < command->option_count; i++)
        fprintf(out, "%s ", command->options[i].name);
    fprintf(out, "--help'\n");
    if (command->word_choices != NULL)
        fprintf(out, "        [[ $word != -* ]] && _rankstore_words '%s'\n", command->word_choices);
    fprintf(out, "        ;;\n");
}

static void print_bash(FILE *out)
{
    fprintf(
        out,
        "# bash completion for rankstore, made by 'rankstore completion bash'.\n"
        "# Anything but a command, an option or a known value is completed as a path.\n"
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
        fprintf(out, "%s ", cli_commands[i]->name);
    fprintf(out, "--help --version' ;;\n");
    for (size_t i = 0; i < cli_command_count; i++)
        bash_command(out, cli_commands[i]);
    fprintf(out, "    esac\n}\ncomplete -o default -F _rankstore rankstore\n");
}

/* ---- zsh: _arguments with a description for each option ----------------------------------- */

/* In single quotes; `special` characters get a backslash of their own. */
static void zsh_text(FILE *out, const char *text, const char *special)
{
    for (; *text != '\0'; text++)
        if (*text == '\'')
            fprintf(out, "'\\''");
        else if (strchr(special, *text) != NULL)
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
}

static void zsh_option(FILE *out, const cli_option *option)
{
    fprintf(out, " \\\n            '%s%s", option->type == CLI_LIST ? "*" : "", option->name);
    if (option->type != CLI_FLAG) /* --name value and --name=value; -j 4 and -j4 */
        fputc(option->name[1] == '-' ? '=' : '+', out);
    fputc('[', out);
    zsh_text(out, cli_option_text(option), "[]:\\");
    fputc(']', out);
    if (option->type != CLI_FLAG) {
        fputc(':', out);
        zsh_text(out, option->value, ":\\");
        if (option->choices != NULL)
            fprintf(out, ":(%s)", option->choices);
        else
            fprintf(out, is_path(option) ? ":_files" : ": ");
    }
    fputc('\'', out);
}

static void print_zsh(FILE *out)
{
    fprintf(
        out,
        "#compdef rankstore\n# zsh completion for rankstore, made by 'rankstore completion zsh'.\n"
        "_rankstore() {\n    local -a commands=(\n");
    for (size_t i = 0; i < cli_command_count; i++) {
        fprintf(out, "        '%s:", cli_commands[i]->name);
        zsh_text(out, cli_commands[i]->summary, ":\\");
        fprintf(out, "'\n");
    }
    fprintf(
        out,
        "    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n"
        "        return\n    fi\n    shift words\n    (( CURRENT-- ))\n    case $words[1] in\n");
    for (size_t i = 0; i < cli_command_count; i++) {
        const cli_command *command = cli_commands[i];
        fprintf(out, "    %s)\n        _arguments '--help[this text]'", command->name);
        for (size_t o = 0; o < command->option_count; o++)
            zsh_option(out, &command->options[o]);
        if (command->word_choices != NULL)
            fprintf(out, " \\\n            '*:argument:(%s)'", command->word_choices);
        else if (command->most > 0)
            fprintf(out, " \\\n            '*:argument:_files'");
        fprintf(out, "\n        ;;\n");
    }
    fprintf(out, "    esac\n}\nif [[ $funcstack[1] == _rankstore ]]; then\n    _rankstore \"$@\"\n"
                 "else\n    compdef _rankstore rankstore\nfi\n");
}

/* ---- --install: where shells and man look for them --------------------------------------- */

static const struct shell_file {
    const char *folder, *name; /* below the folder of shared data */
    void (*print)(FILE *out);
} files[] = {
    {"bash-completion/completions", "rankstore", print_bash},
    {"zsh/site-functions", "_rankstore", print_zsh},
    {"man/man1", "rankstore.1", cli_print_manual},
};

/* mkdir -p. */
static rks_status make_folders(char *path, rks_error *err)
{
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash != NULL)
            *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            int code = errno;
            snprintf(err->text, sizeof(err->text), "%.140s: %s", path, strerror(code));
            return RKS_ERR_IO;
        }
        if (slash == NULL)
            return RKS_OK;
        *slash = '/';
    }
}

static rks_status install_file(const char *top, const struct shell_file *file, rks_error *err)
{
    char path[PATH_MAX];
    int size = snprintf(path, sizeof(path), "%s/%s", top, file->folder);
    if (size < 0 || (size_t)size + strlen(file->name) + 2 > sizeof(path)) {
        snprintf(err->text, sizeof(err->text), "%.140s...: the path is too long", top);
        return RKS_ERR_ARGUMENT;
    }
    rks_status status = make_folders(path, err);
    if (status != RKS_OK)
        return status;
    snprintf(path + size, sizeof(path) - (size_t)size, "/%s", file->name);
    cli_output output;
    status = cli_output_open(&output, path, err);
    if (status != RKS_OK)
        return status;
    file->print(output.file);
    status = cli_output_close(&output, RKS_OK, err);
    if (status == RKS_OK)
        printf("%s\n", path);
    return status;
}

static int install(void)
{
    char top[PATH_MAX];
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    rks_error err = {.text = ""};
    int size = data != NULL && data[0] == '/' ? snprintf(top, sizeof(top), "%s", data)
               : home != NULL && home[0] == '/'
                   ? snprintf(top, sizeof(top), "%s/.local/share", home)
                   : -1;
    if (size < 0 || (size_t)size >= sizeof(top)) {
        snprintf(err.text, sizeof(err.text), "--install: set HOME or XDG_DATA_HOME to a full path");
        return cli_fail(NULL, RKS_ERR_ARGUMENT, &err);
    }
    for (size_t i = 0; i < CLI_COUNT(files); i++) {
        rks_status status = install_file(top, &files[i], &err);
        if (status != RKS_OK)
            return cli_fail(NULL, status, &err);
    }
    fprintf(stderr,
            "bash and man find them in a new shell. For zsh, put this line before compinit into "
            "~/.zshrc: fpath+=(%s/zsh/site-functions)\n",
            top);
    return cli_finish(CLI_GOOD);
}

static int completion(void *user)
{
    const args *a = user;
    if (a->install && a->words.count == 0)
        return install();
    if (a->install || a->words.count == 0)
        return cli_usage(&cli_completion, "give a shell, bash or zsh, or --install");
    if (strcmp(a->words.items[0], "bash") == 0)
        print_bash(stdout);
    else
        print_zsh(stdout);
    return cli_finish(CLI_GOOD);
}

static const cli_option options[] = {
    {"--install", NULL, CLI_FLAG, offsetof(args, install),
     .help = "write the completion of both shells and the manual page below $XDG_DATA_HOME "
             "(~/.local/share), where bash and man find them"},
};

const cli_command cli_completion = {
    .name = "completion",
    .arguments = "bash|zsh|--install",
    .summary = "Print or install what completes commands and options in bash or zsh",
    .examples = {"source <(rankstore completion bash)", "rankstore completion zsh > _rankstore"},
    .text = "A rankstore from `meson install` has both where the shells look for them. After pip "
            "install, use --install.",
    CLI_OPTIONS(options, args, words),
    .most = 1,
    .needs = "one shell is enough: bash or zsh",
    .word_choices = "bash zsh",
    .run = completion,
};
