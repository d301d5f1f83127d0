/* SPDX-License-Identifier: Apache-2.0
 *
 * picture_parts.h: what the pictures have in common: their frame in the page, and bins of ranks. */
#ifndef RKS_TOOLS_PICTURE_PARTS_H
#define RKS_TOOLS_PICTURE_PARTS_H

#include "plan_figures.h"
#include "svg.h"

/* A picture of the usual width. */
svg_picture picture_new(FILE *out, const char *id, double height);
/* <figure> and its heading; then svg_begin ... svg_end; then the caption; then a table, its columns
 * a list ended by NULL, a row at a time (as many cells); and the end. */
void picture_open(FILE *out, const char *heading);
void picture_caption(FILE *out, const char *caption);
void picture_table(FILE *out, const char *const *columns);
void picture_row(FILE *out, const char *const *cells);
void picture_close(FILE *out);

/* A key to the colours, from the picture's right: its swatch's class and words. Returns the x where
 * the next one ends. */
double picture_key(const svg_picture *picture, double x, double y, const char *kind,
                   const char *words);

/* "rank 3", "ranks 8 to 11". */
char *picture_ranks_text(const cli_figures *plan, size_t bin, char text[48]);
/* "step 3", "steps 1,200 to 1,299". */
char *picture_steps_text(const cli_step_bin *bin, char text[64]);
/* The axis of ranks below a plot, and where a bin's place begins. */
double picture_rank_x(const svg_picture *picture, const cli_figures *plan, double bin);
void picture_axis_ranks(const svg_picture *picture, const cli_figures *plan);

#endif
