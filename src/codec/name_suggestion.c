/* SPDX-License-Identifier: Apache-2.0
 *
 * name_suggestion.c: finds columns by name, and suggests the nearest names. */
#include "codec/filter.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum { NAME_SIZE = 256, SHOWN = 3 };

/* Returns the edit distance: how many bytes must be inserted, removed or changed. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_SIZE];
    size_t width = strnlen(b, NAME_SIZE - 1);
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < width; j++) {
            size_t change = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            size_t best = diagonal < row[j] ? diagonal + 1 : row[j] + 1;
            row[j + 1] = change < best ? change : best;
        }
    }
    return row[width];
}

rks_status rks_column_named(const rks_schema *schema, const char *option, const char *name,
                            uint32_t *column, rks_error *err)
{
    int found = rks_schema_find(schema, name);
    if (found >= 0) {
        *column = (uint32_t)found;
        return RKS_OK;
    }
    uint32_t best[SHOWN] = {0};
    size_t far[SHOWN];
    uint32_t count = 0;
    for (uint32_t i = 0; strlen(name) < NAME_SIZE && i < rks_schema_columns(schema); i++) {
        size_t apart = edit_distance(name, rks_schema_name(schema, i));
        uint32_t at = count < SHOWN ? count : SHOWN;
        while (at > 0 && apart < far[at - 1]) {
            if (at < SHOWN) {
                best[at] = best[at - 1];
                far[at] = far[at - 1];
            }
            at--;
        }
        if (at < SHOWN) {
            best[at] = i;
            far[at] = apart;
            count += count < SHOWN;
        }
    }
    char text[128] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < count && used < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s\"%.30s\"",
                                 i == 0 ? "" : ", ", rks_schema_name(schema, best[i]));
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: no column \"%.64s\"; nearest: %s", option, name,
                    text);
}
