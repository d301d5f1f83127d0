/* SPDX-License-Identifier: Apache-2.0
 *
 * svg.h: pictures as SVG inside an HTML page: escaping, scales and axes. Colours are classes of the
 * page's style sheet, so that one picture serves light, dark and paper. */
#ifndef RKS_TOOLS_SVG_H
#define RKS_TOOLS_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Any bytes as text of HTML or of an attribute: nothing in them is markup. Control characters,
 * those that turn the direction of writing, and what is not UTF-8 show as \xNN. */
void svg_escape(FILE *out, const char *text);

/* A range of numbers along a range of pixels. */
typedef struct svg_scale {
    double low, high, from, to;
} svg_scale;
double svg_at(const svg_scale *scale, double number);

enum { SVG_TICKS_MAX = 12 };
/* Round numbers of a linear scale from low to high, at most `wanted` (to SVG_TICKS_MAX); with
 * `whole` no fractions. Returns how many. */
size_t svg_ticks(double low, double high, size_t wanted, bool whole, double *ticks);
/* Of an axis up to `largest`: "950", "12,500"; "0.5 M" beside "1.5 M"; bytes: "512 KiB", "1.5 MiB".
 * Into `text`, which is returned. */
enum svg_unit { SVG_COUNT, SVG_BYTES };
char *svg_number(double number, double largest, enum svg_unit unit, char text[32]);

/* A picture of `width` x `height`, with its plot in it. */
typedef struct svg_picture {
    FILE *out;
    const char *id;
    double width, height;
    double left, right, top, bottom; /* of the plot, in the picture */
} svg_picture;

/* `title` and `text` say what is seen, for those who don't see it. */
void svg_begin(const svg_picture *picture, const char *title, const char *text);
void svg_end(const svg_picture *picture);

/* `anchor`: "start", "middle" or "end". `kind`: a class: "tick", "axis", "note". */
void svg_text(const svg_picture *picture, double x, double y, const char *kind, const char *anchor,
              const char *text);
/* A bar, as a class: "mark one". Its height shows also if it is small. */
void svg_bar(const svg_picture *picture, double x, double y, double width, double height,
             const char *kind);
void svg_line(const svg_picture *picture, double x1, double y1, double x2, double y2,
              const char *kind);

/* The vertical axis at the left of the plot: grid lines, numbers, and its name at the top. */
void svg_axis_y(const svg_picture *picture, const svg_scale *scale, enum svg_unit unit, bool whole,
                const char *name);
/* A number below the plot, around x; one that would leave the picture at its right ends there. */
void svg_tick_below(const svg_picture *picture, double x, const char *text);
/* The horizontal axis below the plot. */
void svg_axis_x(const svg_picture *picture, const svg_scale *scale, enum svg_unit unit, bool whole,
                const char *name);
/* Its name alone, for axes whose ticks are drawn otherwise. */
void svg_axis_x_name(const svg_picture *picture, const char *name);

#endif
