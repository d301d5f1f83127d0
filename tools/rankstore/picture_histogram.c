/* SPDX-License-Identifier: Apache-2.0
 *
 * picture_histogram.c: numbers by bins. All bins are equally wide, so that powers of two lie
 * evenly. */
#include "pictures.h"

#include <math.h>
#include <string.h>

#include "picture_parts.h"

enum { RUG = 9, ROOM = 38 }; /* height of the strip with bounds; width of a number's name */

static double place(const svg_picture *picture, const cli_histogram *histogram, double number)
{
    size_t bin = 0;
    while (bin + 1 < histogram->bin_count && histogram->bins[bin].high <= number)
        bin++;
    const cli_bin *at = &histogram->bins[bin];
    double part = (number - at->low) / (at->high - at->low);
    if (histogram->logarithmic && at->low > 0 && number > 0)
        part = log2(number / at->low) / log2(at->high / at->low);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return picture->left +
           ((double)bin + part) * (picture->right - picture->left) / (double)histogram->bin_count;
}

static void name_edge(const svg_picture *picture, const cli_histogram *histogram, double edge,
                      double x)
{
    char text[32];
    double largest = histogram->bins[histogram->bin_count - 1].high;
    svg_line(picture, x, picture->bottom, x, picture->bottom + 5, "base");
    svg_tick_below(picture, x,
                   fabs(largest) < 1e6 && cli_column_is_whole(histogram->column)
                       ? cli_number_text(edge, true, text)
                       : svg_number(edge, fabs(edge), SVG_COUNT, text));
}

/* Octaves from a named power of two to the next: as few as leave room for their names. */
static int octaves_apart(const svg_picture *picture, const cli_histogram *histogram, double first,
                         double high)
{
    for (int apart = 1;; apart++) {
        double last = -100, power = first;
        for (; power <= high; power *= exp2(apart)) {
            double at = place(picture, histogram, power);
            if (at - last < ROOM)
                break;
            last = at;
        }
        if (power > high)
            return apart;
    }
}

static void draw_powers(const svg_picture *picture, const cli_histogram *histogram)
{
    double low = histogram->bins[0].low, high = histogram->bins[histogram->bin_count - 1].high;
    double first = low == 0 ? 1 : exp2(ceil(log2(low)));
    int apart = octaves_apart(picture, histogram, first, high);
    if (low == 0)
        name_edge(picture, histogram, 0, picture->left);
    for (; first <= high; first *= exp2(apart)) {
        double at = place(picture, histogram, first);
        if (low > 0 || at - picture->left >= ROOM)
            name_edge(picture, histogram, first, at);
    }
}

/* Powers of two; of a linear axis its round numbers. */
static void draw_edges(const svg_picture *picture, const cli_histogram *histogram)
{
    double ticks[SVG_TICKS_MAX] = {0};
    svg_scale x = {histogram->bins[0].low, histogram->bins[histogram->bin_count - 1].high,
                   picture->left, picture->right};
    if (histogram->logarithmic) {
        draw_powers(picture, histogram);
        return;
    }
    size_t count = svg_ticks(x.low, x.high, 9, cli_column_is_whole(histogram->column), ticks);
    for (size_t i = 0; i < count; i++)
        name_edge(picture, histogram, ticks[i], svg_at(&x, ticks[i]));
}

/* A quantile as a line from top to bottom, with its words in a row of its own. */
static void draw_quantile(const svg_picture *picture, const cli_histogram *histogram, size_t q,
                          double y)
{
    char text[32], words[64];
    uint64_t key = histogram->quantiles[q];
    double number = cli_column_number(histogram->column, key);
    double x =
        place(picture, histogram, number + (cli_column_is_whole(histogram->column) ? 0.5 : 0));
    snprintf(words, sizeof(words), "%s %s", cli_quantiles[q].name,
             cli_column_text(histogram->column, key, text));
    bool right = x > (picture->left + picture->right) * 0.7;
    svg_line(picture, x, y - 9, x, picture->bottom, "halo"); /* else it is lost on the bars */
    svg_line(picture, x, y - 9, x, picture->bottom, "quantile");
    svg_text(picture, right ? x - 5 : x + 5, y, "note", right ? "end" : "start", words);
}

static void draw_bounds(const svg_picture *picture, const cli_histogram *histogram,
                        const cli_figures *plan)
{
    double last = -1;
    char words[64];
    for (size_t i = 0; i < plan->bound_count; i++) {
        double x = place(picture, histogram, plan->bounds[i] + 1.0);
        if (x - last < 1) /* no two in one pixel */
            continue;
        svg_line(picture, x, picture->bottom - RUG, x, picture->bottom, "edge");
        last = x;
    }
    snprintf(words, sizeof(words), "%s bucket edges of the plan", cli_count(plan->bound_count));
    picture_key(picture, picture->right, 12, "key two", words);
}

static void draw_histogram(const svg_picture *picture, const cli_histogram *histogram,
                           const cli_figures *plan)
{
    char name[300];
    double each = (picture->right - picture->left) / (double)histogram->bin_count;
    bool bounds = plan != NULL && plan->bound_count > 0;
    double floor_y = picture->bottom - (bounds ? RUG + 3 : 0);
    svg_scale y = {0, (double)histogram->highest, floor_y, picture->top + 46};
    svg_axis_y(picture, &y, SVG_COUNT, true, "samples");
    for (size_t i = 0; i < histogram->bin_count; i++) {
        double top = svg_at(&y, (double)histogram->bins[i].count);
        if (histogram->bins[i].count == 0)
            continue;
        top = floor_y - top < 1 ? floor_y - 1 : top;
        svg_bar(picture, picture->left + (double)i * each + 0.5, top, each > 2 ? each - 1 : each,
                floor_y - top, "mark one");
    }
    static const size_t shown[] = {3, 5, 7}; /* median, p90, p99 */
    for (size_t i = 0; i < 3; i++)
        draw_quantile(picture, histogram, shown[i], picture->top + 2 + 15 * (double)i);
    draw_edges(picture, histogram);
    if (bounds)
        draw_bounds(picture, histogram, plan);
    snprintf(name, sizeof(name), "%.255s%s", histogram->column->name,
             histogram->logarithmic ? " (logarithmic)" : "");
    svg_axis_x_name(picture, name);
}

void picture_histogram(FILE *out, const char *id, const cli_histogram *histogram,
                       const cli_figures *plan)
{
    static const char *const columns[] = {"numbers", "samples", "share", NULL};
    const cli_column *column = histogram->column;
    char heading[420], text[560], median[32], most[32], low[32], range[72];
    svg_picture picture = picture_new(out, id, 320);
    cli_column_text(column, histogram->quantiles[3], median);
    cli_column_text(column, histogram->max, most);
    cli_column_text(column, histogram->min, low);
    snprintf(heading, sizeof(heading),
             "Half of the samples have %s%.255s of %s or less; the largest is %s",
             cli_column_is_length(column) ? "a " : "", column->name, median, most);
    picture_open(out, heading);
    snprintf(
        text, sizeof(text),
        "Histogram of %.255s over %s samples from %s to %s, in %zu bars; the fullest has %s.%s",
        column->name, cli_count(histogram->count), low, most, histogram->bin_count,
        cli_count(histogram->highest),
        plan != NULL && plan->bound_count > 0
            ? " Marks below the bars show where the plan's buckets end."
            : "");
    svg_begin(&picture, heading, text);
    draw_histogram(&picture, histogram, plan);
    svg_end(&picture);
    picture_caption(out, text);
    picture_table(out, columns);
    for (size_t i = 0; i < histogram->bin_count; i++) {
        char share[32];
        snprintf(share, sizeof(share), "%.2f %%",
                 100 * (double)histogram->bins[i].count / (double)histogram->count);
        picture_row(out, (const char *[]){
                             cli_bin_text(histogram, &histogram->bins[i], "\xe2\x80\x93", range),
                             cli_count(histogram->bins[i].count), share, NULL});
    }
    picture_close(out);
}
