/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: rankstore COMMAND. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "value.h"

const cli_command *const cli_commands[] = {
    &cli_build,  &cli_info,  &cli_ls,      &cli_cat,        &cli_verify, &cli_stats,  &cli_diff,
    &cli_export, &cli_merge, &cli_publish, &cli_stage,      &cli_prune,  &cli_repair, &cli_plan,
    &cli_bench,  &cli_top,   &cli_doctor,  &cli_completion, &cli_manual,
};
const size_t cli_command_count = CLI_COUNT(cli_commands);

static int unknown_command(const char *word)
{
    const char *names[CLI_COUNT(cli_commands)];
    for (size_t i = 0; i < cli_command_count; i++)
        names[i] = cli_commands[i]->name;
    const char *near = cli_nearest(word, names, cli_command_count);
    fprintf(stderr, "rankstore: unknown command '%s'%s%s%s\n", cli_shown(word),
            near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    fprintf(stderr, "Try 'rankstore --help'.\n");
    return CLI_USAGE;
}

/* If a caller closed one of the three, the next file that is opened would take its place, and words
 * would go into a shard. Writing to what was closed is an error. */
static bool hold_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
            return false;
    return true;
}

/* argv[0] is the command. */
static int run_command(int argc, char **argv)
{
    for (size_t i = 0; i < cli_command_count; i++)
        if (strcmp(argv[0], cli_commands[i]->name) == 0) {
            cli_set_command(cli_commands[i]);
            return cli_dispatch(cli_commands[i], argc, argv);
        }
    return unknown_command(argv[0]);
}

int main(int argc, char **argv)
{
    if (!hold_standard_files())
        return CLI_ENVIRONMENT;
    signal(SIGPIPE, SIG_IGN); /* a reader that has gone is seen by the write that fails */
    signal(SIGXFSZ, SIG_IGN); /* so is a limit on a file's size */
    if (argc < 2) {
        cli_print_usage(stderr);
        return CLI_USAGE;
    }
    if (argc == 3 && strcmp(argv[1], "help") == 0) { /* help COMMAND: COMMAND --help */
        char help[] = "--help", *words[] = {argv[2], help, NULL};
        return run_command(2, words);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        cli_print_usage(stdout);
        return cli_finish(CLI_GOOD);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("rankstore %s\n", rks_version());
        return cli_finish(CLI_GOOD);
    }
    return run_command(argc - 1, argv + 1);
}
