/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_setting.c: lines of NAME=VALUE; the first one counts, and a line that begins with # is a
 * comment. */
#include "exchange/nccl_setting.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MOST = 2048, LINES_MOST = 10000, HOME_ROOM = 4096 };

/* Finds the value after "NAME=" in a file. Returns false if there is none. */
static bool find_in_file(const char *path, const char *name, char *value, size_t room)
{
    char line[LINE_MOST];
    size_t size = strlen(name);
    bool found = false;
    FILE *file = fopen(path, "re");
    for (int i = 0; file != NULL && !found && i < LINES_MOST && fgets(line, sizeof(line), file);
         i++) {
        found = strncmp(line, name, size) == 0 && line[size] == '=';
        if (found)
            snprintf(value, room, "%.*s", (int)strcspn(line + size + 1, "\n"), line + size + 1);
    }
    if (file != NULL)
        fclose(file);
    return found;
}

static bool find_in_home(const char *name, char *value, size_t room)
{
    char text[HOME_ROOM], path[HOME_ROOM];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(getuid(), &entry, text, sizeof(text), &found) != 0 || found == NULL ||
        snprintf(path, sizeof(path), "%s/.nccl.conf", entry.pw_dir) >= (int)sizeof(path))
        return false;
    return find_in_file(path, name, value, room);
}

static bool find_in_files(const char *name, char *value, size_t room)
{
    const char *named = getenv("NCCL_CONF_FILE");
    bool found = named != NULL && named[0] != '\0' ? find_in_file(named, name, value, room)
                                                   : find_in_home(name, value, room);
    return found || find_in_file("/etc/nccl.conf", name, value, room);
}

bool rks_nccl_setting(const char *name, int64_t *value)
{
    char text[128] = "";
    const char *set = getenv(name);
    if (set != NULL)
        snprintf(text, sizeof(text), "%s", set);
    else if (!find_in_files(name, text, sizeof(text)))
        return false;
    *value = strtoll(text, NULL, 0);
    return text[0] != '\0';
}
