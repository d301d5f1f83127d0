/* SPDX-License-Identifier: Apache-2.0
 *
 * columns.c: names the columns of an inferred schema that are objects or lists, for a build's
 * report. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "builder/build.h"

/* Writes names of columns with commas between them, as many as fit. */
static void name_columns(const rks_schema *schema, bool of_objects, char *names, size_t room)
{
    size_t used = 0;
    names[0] = '\0';
    for (uint32_t i = 0; i < rks_schema_columns(schema) && used < room; i++) {
        const rks_column *column = rks_schema_column(schema, i);
        bool fits = of_objects ? strchr(column->name, '.') != NULL
                               : column->kind == RKS_KIND_JSON && !column->nullable;
        if (fits)
            used += (size_t)snprintf(names + used, room - used, "%s%s", used == 0 ? "" : ", ",
                                     column->name);
    }
    if (used < room)
        return;
    size_t end = room - sizeof("...");
    while (end > 0 && ((uint8_t)names[end] & 0xc0) == 0x80) /* cut between two characters of
                                                             * UTF-8 */
        end--;
    memcpy(names + end, "...", sizeof("..."));
}

void rks_build_report_columns(const rks_schema *schema, bool flatten, rks_build_report *report)
{
    name_columns(schema, false, report->json_columns, sizeof(report->json_columns));
    if (flatten)
        name_columns(schema, true, report->object_columns, sizeof(report->object_columns));
}
