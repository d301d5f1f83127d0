/* SPDX-License-Identifier: Apache-2.0
 *
 * help.c: --help from the commands' tables, and what all commands share. */
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "terminal.h"

enum { LEFT = 24, WIDTH = 96 };

/* A terminal may be narrower. */
static int help_width(void)
{
    int width = isatty(STDOUT_FILENO) ? cli_width(STDOUT_FILENO) : WIDTH;
    return width < WIDTH ? width : WIDTH;
}

const cli_fact cli_exit_codes[] = {
    {"0", "good"},          {"1", "data that is missing, malformed, damaged or (diff) different"},
    {"2", "usage"},         {"3", "environment or I/O"},
    {"4", "a peer failed"}, {"130", "interrupted"},
};
const size_t cli_exit_code_count = CLI_COUNT(cli_exit_codes);

const cli_fact cli_environment[] = {
    {"RKS_SILENCE_MS", "how long a rank may be silent before the others give it up, in "
                       "milliseconds; default 15000, from 200"},
    {"RKS_LAUNCH_GRACE_MS", "with -j: how long the other processes may take to end once one has "
                            "failed, before they are killed, in milliseconds; default 40000"},
    {"RKS_SECRET_FILE", "a file of mode 0600 with at least 32 random bytes that all ranks share; "
                        "default: none; ranks trust the public keys that the launcher hands round"},
    {"RKS_JOB_DIR", "a directory that all ranks of the job see: rank 0 makes a secret of mode 0600 "
                    "there and removes it when all have read it"},
    {"RKS_ENCRYPT", "1: what ranks send each other is encrypted; default authenticated between "
                    "hosts, plain on one host"},
    {"RKS_LISTEN", "address or interface that ranks listen on; default loopback where all of them "
                   "share it, else the default route's interface"},
    {"RKS_NODE",
     "what counts as a node; default the machine's boot id. Containers that can share no "
     "memory are nodes of their own; a name for each leaves the line about them out"},
    {"RKS_PATH",
     "patterns of folders, with : between them, that may hold more shards of the datasets "
     "that are opened, such as /nvme*/rks; --shards PATTERN goes before; default none"},
    {"RKS_TOP", "off: 'rankstore top' does not show this process; default shown to the same user"},
    {"RKS_METRICS",
     "PORT: a process shows its figures as Prometheus text at http://127.0.0.1:PORT, "
     "the next rank of its node at PORT + 1, and so on; any user of the machine can "
     "read them; default none"},
    {"RKS_MPI_MODULE", "path of librankstore_mpi.so; default beside the library"},
    {"RKS_LOG", "quiet, info or debug: what is said on standard error beside errors; default info"},
    {"TMPDIR", "where temporary files lie; default /tmp"},
};
const size_t cli_environment_count = CLI_COUNT(cli_environment);

/* `text` from column `at` on, lines broken at spaces and indented to `left`. */
static void print_wrapped(const char *text, int at, int left)
{
    bool space = false;
    int width = help_width();
    while (*text != '\0') {
        int size = (int)strcspn(text, " \n");
        if (space && at + 1 + size > width) {
            printf("\n%*s", left, "");
            at = left;
        } else if (space) {
            putchar(' ');
            at++;
        }
        at += printf("%.*s", size, text);
        text += size;
        for (space = false; *text == '\n'; text++, at = left)
            printf("\n%*s", text[1] == '\n' ? 0 : left, "");
        for (; *text == ' '; text++)
            space = true;
    }
    putchar('\n');
}

static void print_entry(const char *name, const char *value, const char *text)
{
    int at = printf("  %s%s%s", name, value != NULL ? " " : "", value != NULL ? value : "");
    if (at >= LEFT)
        at = printf("\n") - 1;
    printf("%*s", LEFT - at, "");
    print_wrapped(text, LEFT, LEFT);
}

/* "a, b or c" */
static size_t list_choices(const char *choices, char *text, size_t size)
{
    const char *word = NULL, *rest = choices;
    size_t used = 0, length;
    while ((length = cli_choice(&rest, &word)) > 0 && used < size) {
        const char *between = used == 0 ? "" : rest[strspn(rest, " ")] == '\0' ? " or " : ", ";
        used += (size_t)snprintf(text + used, size - used, "%s%.*s", between, (int)length, word);
    }
    return used < size ? used : size - 1;
}

const char *cli_option_text(const cli_option *option)
{
    static char text[640];
    size_t used = (size_t)snprintf(text, sizeof(text), "%s", option->help);
    if (option->choices != NULL && used + 2 < sizeof(text)) {
        memcpy(text + used, ": ", 3);
        used += 2 + list_choices(option->choices, text + used + 2, sizeof(text) - used - 2);
    }
    if (option->type == CLI_LIST && used < sizeof(text))
        used += (size_t)snprintf(text + used, sizeof(text) - used, "; may be given again");
    if (option->normal != NULL && used < sizeof(text))
        snprintf(text + used, sizeof(text) - used, "; default %s", option->normal);
    return text;
}

void cli_print_help(const cli_command *command)
{
    printf("%s\n\nUsage: rankstore %s%s%s%s\n\nExamples:\n  %s\n  %s\n", command->summary,
           command->name, command->arguments[0] != '\0' ? " " : "", command->arguments,
           command->option_count > 0 ? " [OPTION...]" : "", command->examples[0],
           command->examples[1]);
    if (command->text != NULL) {
        putchar('\n');
        print_wrapped(command->text, 0, 0);
    }
    printf("\nOptions:\n");
    for (size_t i = 0; i < command->option_count; i++)
        print_entry(command->options[i].name, command->options[i].value,
                    cli_option_text(&command->options[i]));
    print_entry("--help", NULL, "this text");
    char codes[320] = "Exit codes: ";
    for (size_t i = 0, used = strlen(codes); i < cli_exit_code_count && used < sizeof(codes); i++)
        used += (size_t)snprintf(codes + used, sizeof(codes) - used, "%s%s %s", i == 0 ? "" : ", ",
                                 cli_exit_codes[i].name, cli_exit_codes[i].text);
    putchar('\n');
    print_wrapped(codes, 0, 0);
}

void cli_print_usage(FILE *out)
{
    fprintf(out,
            "rankstore %s: a distributed, lazy-loading dataset store for training jobs\n\n"
            "Usage: rankstore COMMAND [ARGUMENT...]\n\nCommands:\n",
            rks_version());
    for (size_t i = 0; i < cli_command_count; i++)
        fprintf(out, "  %-10s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    fprintf(out,
            "\nAlone it is one rank; with -j N it is N processes; under 'mpirun -n N' it is N.\n"
            "'rankstore COMMAND --help' teaches a command, 'man rankstore' has all of them.\n");
}
