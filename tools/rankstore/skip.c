/* SPDX-License-Identifier: Apache-2.0
 *
 * skip.c: --skip: steps that a plan leaves out. */
#include "skip.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A number from 0, after which `end` stands; moves *at after that. */
static bool parse_step(const char **at, char end, uint64_t *number)
{
    char *rest = NULL;
    errno = 0;
    if (!isdigit((unsigned char)**at))
        return false;
    *number = strtoull(*at, &rest, 10);
    *at = rest + 1;
    return errno == 0 && *rest == end;
}

/* EPOCH:FIRST-LAST or EPOCH:STEP, up to a comma. */
static bool parse_range(const char *text, rks_step_range *range)
{
    if (!parse_step(&text, ':', &range->epoch))
        return false;
    const char *step = text;
    if (parse_step(&text, '-', &range->first))
        return parse_step(&text, '\0', &range->last);
    range->last = range->first;
    return parse_step(&step, '\0', &range->first) && (range->last = range->first, true);
}

int cli_skip_take(const cli_command *command, const char *text, rks_plan_options *options,
                  rks_step_range ranges[RKS_PLAN_SKIPS_MAX])
{
    char one[64];
    size_t count = 0;
    for (const char *at = text; at != NULL; count++) {
        size_t size = strcspn(at, ",");
        if (count == RKS_PLAN_SKIPS_MAX)
            return cli_usage(command, "--skip: more than %d ranges", RKS_PLAN_SKIPS_MAX);
        snprintf(one, sizeof(one), "%.*s", size < sizeof(one) ? (int)size : 0, at);
        if (!parse_range(one, &ranges[count]))
            return cli_usage(command, "--skip: \"%.*s\" is not EPOCH:FIRST-LAST",
                             size < 60 ? (int)size : 60, at);
        at = at[size] == ',' ? at + size + 1 : NULL;
    }
    options->skip = count > 0 ? ranges : NULL;
    options->skips = count;
    return -1;
}
