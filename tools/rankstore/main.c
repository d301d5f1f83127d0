/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: rankstore COMMAND. */
#include <string.h>

#include "cli.h"

static const cli_command *const commands[] = {
    &cli_build, &cli_info, &cli_ls, &cli_cat, &cli_verify, &cli_plan, &cli_bench, &cli_doctor,
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void print_usage(FILE *out)
{
    fprintf(out,
            "rankstore %s: a distributed, lazy-loading dataset store for training jobs\n\n"
            "Usage: rankstore COMMAND [ARGUMENT...]\n\nCommands:\n",
            rks_version());
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-8s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out,
            "\nAlone it is one rank; with -j N it is N processes; under 'mpirun -n N' it is N.\n"
            "'rankstore COMMAND --help' teaches a command.\n");
}

static int unknown_command(const char *word)
{
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++)
        names[i] = commands[i]->name;
    const char *near = cli_nearest(word, names, COMMANDS);
    fprintf(stderr, "rankstore: unknown command '%s'%s%s%s\n", word, near ? "; did you mean '" : "",
            near ? near : "", near ? "'?" : "");
    fprintf(stderr, "Try 'rankstore --help'.\n");
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return cli_finish(CLI_GOOD);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("rankstore %s\n", rks_version());
        return cli_finish(CLI_GOOD);
    }
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i]->name) == 0) {
            cli_set_command(commands[i]->name);
            return commands[i]->run(argc - 1, argv + 1);
        }
    return unknown_command(argv[1]);
}
