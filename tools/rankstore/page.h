/* SPDX-License-Identifier: Apache-2.0
 *
 * page.h: one HTML page of pictures. It needs nothing from elsewhere and runs no scripts. */
#ifndef RKS_TOOLS_PAGE_H
#define RKS_TOOLS_PAGE_H

#include "strategy_table.h"
#include "histogram.h"

typedef struct cli_page {
    const char *directory;
    rks_store *store;
    const cli_histogram *lengths;
    const cli_histogram *column; /* NULL: none was asked for */
    const cli_comparison *comparison;
    const cli_plan_args *args;
} cli_page;

/* Writes the whole page. Errors are `out`'s own (ferror). */
void cli_print_page(FILE *out, const cli_page *page);

#endif
