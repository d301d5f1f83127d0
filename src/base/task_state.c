/* SPDX-License-Identifier: Apache-2.0 */
#include "base/task_state.h"

#include <stdio.h>
#include <string.h>

char rks_task_state(long process, long thread)
{
    char path[64], text[512];
    if (thread == 0)
        snprintf(path, sizeof(path), "/proc/%ld/stat", process);
    else
        snprintf(path, sizeof(path), "/proc/%ld/task/%ld/stat", process, thread);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    const size_t size = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[size] = '\0';
    const char *name_end = strrchr(text, ')'); /* the name may hold anything */
    return name_end == NULL || name_end[1] != ' ' ? 0 : name_end[2];
}
