/* SPDX-License-Identifier: Apache-2.0
 *
 * terminal.c: bars of block characters: U+2588 fills a cell, U+2589 to U+258F seven eighths to one.
 */
#include "terminal.h"

#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool cli_unicode(void)
{
    static int known = -1;
    if (known < 0)
        known = setlocale(LC_CTYPE, "") != NULL && strcasecmp(nl_langinfo(CODESET), "UTF-8") == 0;
    return known == 1;
}

/* mpirun hands its ranks a pipe, and passes on to its own stderr what they write into it. */
static int launcher_terminal(void)
{
    char path[64];
    if (getenv("OMPI_COMM_WORLD_SIZE") == NULL)
        return -1;
    snprintf(path, sizeof(path), "/proc/%ld/fd/2", (long)getppid());
    int fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || isatty(fd))
        return fd;
    close(fd);
    return -1;
}

int cli_stderr_terminal(void)
{
    const char *term = getenv("TERM");
    if (term != NULL && strcmp(term, "dumb") == 0)
        return -1;
    return isatty(STDERR_FILENO) ? STDERR_FILENO : launcher_terminal();
}

int cli_width(int fd)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    long width = 80;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        width = size.ws_col;
    else if (columns != NULL && *columns != '\0')
        width = strtol(columns, NULL, 10);
    return width < 40 ? 40 : width > 240 ? 240 : (int)width;
}

int cli_print_bar(FILE *out, double part, int cells)
{
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    int unit = cli_unicode() ? 8 : 1;
    int filled = (int)lround(part * cells * unit);
    filled = filled == 0 && part > 0 ? 1 : filled;
    int whole = filled / unit, eighths = filled % unit;
    for (int i = 0; i < whole; i++)
        fputs(unit == 8 ? "\xe2\x96\x88" : "#", out);
    if (eighths > 0)
        fprintf(out, "\xe2\x96%c", 0x90 - eighths);
    return whole + (eighths > 0);
}
