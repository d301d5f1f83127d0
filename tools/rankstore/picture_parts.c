/* SPDX-License-Identifier: Apache-2.0
 *
 * picture_parts.c */
#include "picture_parts.h"

#include <string.h>

svg_picture picture_new(FILE *out, const char *id, double height)
{
    return (svg_picture){.out = out,
                         .id = id,
                         .width = 760,
                         .height = height,
                         .left = 66,
                         .right = 748,
                         .top = 34,
                         .bottom = height - 48};
}

void picture_open(FILE *out, const char *heading)
{
    fprintf(out, "<figure>\n<h2>");
    svg_escape(out, heading);
    fprintf(out, "</h2>\n<div class=\"wide\">\n");
}

void picture_caption(FILE *out, const char *caption)
{
    fprintf(out, "</div>\n<figcaption>");
    svg_escape(out, caption);
    fprintf(out, "</figcaption>\n");
}

void picture_table(FILE *out, const char *const *columns)
{
    fprintf(out, "<details><summary>The numbers</summary>\n<div class=\"wide\">"
                 "<table>\n<thead><tr>");
    for (; *columns != NULL; columns++) {
        fprintf(out, "<th scope=\"col\">");
        svg_escape(out, *columns);
        fprintf(out, "</th>");
    }
    fprintf(out, "</tr></thead>\n<tbody>");
}

void picture_row(FILE *out, const char *const *cells)
{
    fprintf(out, "\n<tr>");
    for (; *cells != NULL; cells++) {
        fprintf(out, "<td>");
        svg_escape(out, *cells);
        fprintf(out, "</td>");
    }
    fprintf(out, "</tr>");
}

void picture_close(FILE *out)
{
    fprintf(out, "\n</tbody></table></div></details>\n</figure>\n");
}

double picture_key(const svg_picture *picture, double x, double y, const char *kind,
                   const char *words)
{
    double width = 6.6 * (double)strlen(words) + 22; /* about: the fonts are the reader's */
    svg_bar(picture, x - width, y - 9, 11, 11, kind);
    svg_text(picture, x - width + 16, y, "note", "start", words);
    return x - width - 14;
}

char *picture_ranks_text(const cli_figures *plan, size_t bin, char text[48])
{
    uint64_t first = cli_bin_first(plan->world, plan->rank_bins, bin);
    uint64_t end = cli_bin_first(plan->world, plan->rank_bins, bin + 1);
    if (end - first == 1)
        snprintf(text, 48, "rank %s", cli_count(first));
    else
        snprintf(text, 48, "ranks %s to %s", cli_count(first), cli_count(end - 1));
    return text;
}

char *picture_steps_text(const cli_step_bin *bin, char text[64])
{
    if (bin->end - bin->first == 1)
        snprintf(text, 64, "step %s", cli_count(bin->first));
    else
        snprintf(text, 64, "steps %s to %s", cli_count(bin->first), cli_count(bin->end - 1));
    return text;
}

double picture_rank_x(const svg_picture *picture, const cli_figures *plan, double bin)
{
    return picture->left + (picture->right - picture->left) * bin / (double)plan->rank_bins;
}

void picture_axis_ranks(const svg_picture *picture, const cli_figures *plan)
{
    size_t each = (plan->rank_bins + 15) / 16;
    for (size_t bin = 0; bin < plan->rank_bins; bin += each) {
        uint64_t first = cli_bin_first(plan->world, plan->rank_bins, bin);
        svg_tick_below(picture, picture_rank_x(picture, plan, (double)bin + 0.5), cli_count(first));
    }
    svg_axis_x_name(picture,
                    plan->rank_bins < plan->world ? "rank (the first of each bar)" : "rank");
}
