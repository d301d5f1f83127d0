/* SPDX-License-Identifier: Apache-2.0
 *
 * manual.c: rankstore manual: the manual page, from the commands' tables. */
#include <string.h>

#include "cli.h"

typedef struct args {
    cli_list words;
} args;

/* Text as troff takes it: no request at the start of a line, minus signs that can be copied. */
static void print_text(const char *text)
{
    bool begins = true;
    for (; *text != '\0'; text++) {
        if (begins && (*text == '.' || *text == '\''))
            printf("\\&");
        begins = false;
        if (*text == '\\')
            printf("\\e");
        else if (*text == '-')
            printf("\\-");
        else if (*text == '\'')
            printf("\\(aq");
        else if (*text == '"')
            printf("\\(dq");
        else if (*text == '^')
            printf("\\(ha");
        else if (*text == '~')
            printf("\\(ti");
        else if (strncmp(text, "\n\n", 2) == 0) {
            printf("\n.PP\n");
            text++;
            begins = true;
        } else {
            putchar(*text);
            begins = *text == '\n';
        }
    }
}

static void print_line(const char *text)
{
    print_text(text);
    putchar('\n');
}

static void print_entry(const char *name, const char *value, const char *text)
{
    printf(".TP\n\\fB");
    print_text(name);
    printf("\\fR");
    if (value != NULL) {
        printf(" \\fI");
        print_text(value);
        printf("\\fR");
    }
    putchar('\n');
    print_line(text);
}

static void print_facts(const char *title, const cli_fact *facts, size_t count)
{
    printf(".SH %s\n", title);
    for (size_t i = 0; i < count; i++)
        print_entry(facts[i].name, NULL, facts[i].text);
}

static void print_command(const cli_command *command)
{
    printf(".SS ");
    print_line(command->name);
    print_text(command->summary);
    printf(".\n.PP\n\\fBrankstore ");
    print_text(command->name);
    printf("\\fR ");
    print_text(command->arguments);
    printf("%s\n", command->option_count > 0 ? " [OPTION...]" : "");
    if (command->text != NULL) {
        printf(".PP\n");
        print_line(command->text);
    }
    printf(".PP\nExamples:\n.PP\n.RS 4\n.nf\n");
    for (size_t i = 0; i < 2; i++)
        print_line(command->examples[i]);
    printf(".fi\n.RE\n");
    for (size_t i = 0; i < command->option_count; i++)
        print_entry(command->options[i].name, command->options[i].value,
                    cli_option_text(&command->options[i]));
}

static int manual(void *user)
{
    (void)user;
    printf(
        ".\\\" Made by 'rankstore manual'.\n.TH RANKSTORE 1 \"\" \"rankstore %s\"\n.SH NAME\n"
        "rankstore \\- a distributed, lazy-loading dataset store for training jobs\n"
        ".SH SYNOPSIS\n\\fBrankstore\\fR \\fICOMMAND\\fR [\\fIARGUMENT\\fR...]\n"
        ".SH DESCRIPTION\n"
        "Each rank of a job builds a shard of a dataset on its own disk. Ranks exchange an index\n"
        "of 12 bytes a sample, plan the same batches, and fetch each sample from its owner when\n"
        "it is needed.\n.PP\n"
        "Alone the command is one rank; with \\fB\\-j\\fR \\fIN\\fR it is \\fIN\\fR processes;\n"
        "under \\fBmpirun \\-n\\fR \\fIN\\fR it is \\fIN\\fR ranks. Results go to standard\n"
        "output, words about them to standard error.\n.SH COMMANDS\n",
        rks_version());
    for (size_t i = 0; i < cli_command_count; i++)
        print_command(cli_commands[i]);
    print_facts("EXIT STATUS", cli_exit_codes, cli_exit_code_count);
    print_facts("ENVIRONMENT", cli_environment, cli_environment_count);
    return cli_finish(CLI_GOOD);
}

const cli_command cli_manual = {
    .name = "manual",
    .arguments = "",
    .summary = "Print the manual page",
    .examples = {"rankstore manual | man -l -", "rankstore manual > rankstore.1"},
    .needs = "it takes no arguments",
    .args_size = sizeof(args),
    .words = offsetof(args, words),
    .run = manual,
};
