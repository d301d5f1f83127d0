/* SPDX-License-Identifier: Apache-2.0
 *
 * pictures.h: the pictures of the page, each a <figure>: a heading that says what one sees, the
 * SVG, what it is, and its numbers as a table. */
#ifndef RKS_TOOLS_PICTURES_H
#define RKS_TOOLS_PICTURES_H

#include <stdio.h>

#include "strategy_table.h"
#include "histogram.h"

enum { PICTURE_BINS = 48 }; /* wanted of a histogram */

/* `plan` may be NULL: no bounds are marked. `id`: "lengths" or "column". */
void picture_histogram(FILE *out, const char *id, const cli_histogram *histogram,
                       const cli_figures *plan);
void picture_padding(FILE *out, const cli_comparison *comparison);
/* Of a plan with figures by rank: */
void picture_balance(FILE *out, const cli_figures *plan);
void picture_largest(FILE *out, const cli_figures *plan, uint64_t max_tokens);
void picture_bytes(FILE *out, const cli_figures *plan);
void picture_tokens(FILE *out, const cli_figures *plan);

#endif
