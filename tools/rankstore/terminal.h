/* SPDX-License-Identifier: Apache-2.0
 *
 * terminal.h: what a terminal can show. */
#ifndef RKS_TOOLS_TERMINAL_H
#define RKS_TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* The locale's characters are UTF-8; else pictures are of ASCII. */
bool cli_unicode(void);
/* Columns of the terminal behind this descriptor, else COLUMNS, else 80; from 40 to 240. */
int cli_width(int fd);
/* A descriptor of the terminal that shows stderr: 2, or where mpirun on this node passes it on, one
 * that the caller closes; -1: there is none, or it can draw nothing over. */
int cli_stderr_terminal(void);
/* A bar that fills `part` (0 to 1) of `cells` cells, in eighths of a cell; ASCII: in whole ones.
 * What is not 0 shows. Writes no more than it fills. Returns the cells written. */
int cli_print_bar(FILE *out, double part, int cells);

#endif
