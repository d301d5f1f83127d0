/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c: writes each line with one call, so that lines of several ranks do not mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

static int level(void)
{
    const char *name = getenv("RKS_LOG");
    if (name == NULL || strcmp(name, "info") == 0)
        return 1;
    return strcmp(name, "debug") == 0 ? 2 : 0;
}

static void write_log_line(const char *format, va_list arguments)
{
    char line[1024];
    size_t used = (size_t)snprintf(line, sizeof(line), "rankstore: ");
    int size = vsnprintf(line + used, sizeof(line) - used - 1, format, arguments);
    if (size < 0)
        return;
    used += (size_t)size < sizeof(line) - used - 1 ? (size_t)size : sizeof(line) - used - 2;
    line[used] = '\0';
    rks_text_clean(line); /* it may hold a host's name or text of another rank */
    line[used++] = '\n';
    if (write(STDERR_FILENO, line, used) < 0)
        return; /* stderr is closed: nothing to do */
}

void rks_log(const char *format, ...)
{
    if (level() < 1)
        return;
    va_list arguments;
    va_start(arguments, format);
    write_log_line(format, arguments);
    va_end(arguments);
}

void rks_log_debug(const char *format, ...)
{
    if (level() < 2)
        return;
    va_list arguments;
    va_start(arguments, format);
    write_log_line(format, arguments);
    va_end(arguments);
}
