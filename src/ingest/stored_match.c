/* SPDX-License-Identifier: Apache-2.0
 *
 * stored_match.c: patterns of names in an object store. */
#include <fnmatch.h>
#include <string.h>

#include "ingest/stored.h"

enum { PART = RKS_OBJECT_NAME + 1 };

size_t rks_stored_plain_part(const char *pattern)
{
    size_t mark = strcspn(pattern, "*[");
    if (pattern[mark] == '\0')
        return mark;
    while (mark > 0 && pattern[mark - 1] != '/')
        mark--;
    return mark;
}

/* Compares the first parts. */
static bool part_matches(const char *pattern, size_t pattern_size, const char *name,
                         size_t name_size)
{
    char mask[PART], part[PART];
    if (pattern_size >= sizeof(mask) || name_size >= sizeof(part))
        return false;
    memcpy(mask, pattern, pattern_size);
    mask[pattern_size] = '\0';
    memcpy(part, name, name_size);
    part[name_size] = '\0';
    return fnmatch(mask, part, FNM_PERIOD) == 0;
}

/* The last ** is the only one that is ever tried again: what comes before it has matched the least
 * that it can. So the time is at most the product of both lengths. */
bool rks_stored_matches(const char *pattern, const char *name)
{
    const char *again = NULL, *from = NULL; /* after the last **, and where its rest began */
    for (;;) {
        size_t mask = strcspn(pattern, "/"), part = strcspn(name, "/");
        if (mask == 2 && memcmp(pattern, "**", 2) == 0 && pattern[2] == '/') {
            again = pattern += 3;
            from = name;
            continue;
        }
        bool last = pattern[mask] == '\0', ends = name[part] == '\0';
        bool rest = last && mask == 2 && memcmp(pattern, "**", 2) == 0;
        if (rest || (last == ends && part_matches(pattern, mask, name, part))) {
            if (last)
                return true;
            pattern += mask + 1;
            name += part + 1;
            continue;
        }
        size_t skip = from == NULL ? 0 : strcspn(from, "/");
        if (again == NULL || from[skip] == '\0' || from[0] == '.')
            return false;
        pattern = again;
        name = from += skip + 1;
    }
}
