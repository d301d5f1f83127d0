/* SPDX-License-Identifier: Apache-2.0
 *
 * slurm_hosts.c: the first host of a Slurm node list: "rack1n01" of "rack[1-2]n[01-04],x". */
#include <string.h>

#include "group/slurm_step.h"

/* Skips a bracket from behind its first number. Returns its end, or NULL if it has none. */
static const char *skip_bracket(const char *at)
{
    const char *end = strchr(at, ']');
    return end == NULL ? NULL : end + 1;
}

bool rks_slurm_first_host(const char *nodes, char *host, size_t room)
{
    size_t used = 0;
    bool inside = false;
    for (const char *at = nodes; *at != '\0' && (inside || *at != ',');) {
        if (!inside && *at == '[') {
            inside = true;
            at++;
            continue;
        }
        if (inside && strchr("-,]", *at) != NULL) {
            at = skip_bracket(at);
            inside = false;
            if (at == NULL)
                return false;
            continue;
        }
        if (used + 1 >= room || *at == ']')
            return false;
        host[used++] = *at++;
    }
    host[used] = '\0';
    return used > 0 && !inside;
}
