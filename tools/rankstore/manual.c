/* SPDX-License-Identifier: Apache-2.0
 *
 * manual.c: rankstore manual: the manual page, from the commands' tables. */
#include <string.h>

#include "cli.h"

typedef struct args {
    cli_list words;
} args;

/* Text as troff takes it: no request at the start of a line, minus signs that can be copied. */
static void print_text(FILE *out, const char *text)
{
    bool begins = true;
    for (; *text != '\0'; text++) {
        if (begins && (*text == '.' || *text == '\''))
            fprintf(out, "\\&");
        begins = false;
        if (*text == '\\')
            fprintf(out, "\\e");
        else if (*text == '-')
            fprintf(out, "\\-");
        else if (*text == '\'')
            fprintf(out, "\\(aq");
        else if (*text == '"')
            fprintf(out, "\\(dq");
        else if (*text == '^')
            fprintf(out, "\\(ha");
        else if (*text == '~')
            fprintf(out, "\\(ti");
        else if (strncmp(text, "\n\n", 2) == 0) {
            fprintf(out, "\n.PP\n");
            text++;
            begins = true;
        } else {
            fputc(*text, out);
            begins = *text == '\n';
        }
    }
}

static void print_line(FILE *out, const char *text)
{
    print_text(out, text);
    fputc('\n', out);
}

static void print_entry(FILE *out, const char *name, const char *value, const char *text)
{
    fprintf(out, ".TP\n\\fB");
    print_text(out, name);
    fprintf(out, "\\fR");
    if (value != NULL) {
        fprintf(out, " \\fI");
        print_text(out, value);
        fprintf(out, "\\fR");
    }
    fputc('\n', out);
    print_line(out, text);
}

static void print_facts(FILE *out, const char *title, const cli_fact *facts, size_t count)
{
    fprintf(out, ".SH %s\n", title);
    for (size_t i = 0; i < count; i++)
        print_entry(out, facts[i].name, NULL, facts[i].text);
}

static void print_command(FILE *out, const cli_command *command)
{
    fprintf(out, ".SS ");
    print_line(out, command->name);
    print_text(out, command->summary);
    fprintf(out, ".\n.PP\n\\fBrankstore ");
    print_text(out, command->name);
    fprintf(out, "\\fR ");
    print_text(out, command->arguments);
    fprintf(out, "%s\n", command->option_count > 0 ? " [OPTION...]" : "");
    if (command->text != NULL) {
        fprintf(out, ".PP\n");
        print_line(out, command->text);
    }
    fprintf(out, ".PP\nExamples:\n.PP\n.RS 4\n.nf\n");
    for (size_t i = 0; i < 2; i++)
        print_line(out, command->examples[i]);
    fprintf(out, ".fi\n.RE\n");
    for (size_t i = 0; i < command->option_count; i++)
        print_entry(out, command->options[i].name, command->options[i].value,
                    cli_option_text(&command->options[i]));
}

void cli_print_manual(FILE *out)
{
    fprintf(
        out,
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
        print_command(out, cli_commands[i]);
    print_facts(out, "EXIT STATUS", cli_exit_codes, cli_exit_code_count);
    print_facts(out, "ENVIRONMENT", cli_environment, cli_environment_count);
}

static int manual(void *user)
{
    (void)user;
    cli_print_manual(stdout);
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
