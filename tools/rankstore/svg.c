/* SPDX-License-Identifier: Apache-2.0
 *
 * svg.c: nothing that came from a dataset is written without svg_escape. */
#include "svg.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cli.h"

/* Bytes of the character at `text`, 0 if it is not UTF-8. */
static size_t character(const char *text)
{
    const uint8_t first = (uint8_t)text[0];
    size_t size = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    for (size_t i = 1; i < size; i++)
        if (text[i] == '\0')
            return 0;
    json_t *valid = json_stringn(text, size);
    json_decref(valid);
    return valid == NULL ? 0 : size;
}

static bool is_unseen(const char *text, size_t size)
{
    const uint8_t *c = (const uint8_t *)text;
    if (size == 1)
        return c[0] < 0x20 || c[0] == 0x7f;
    if (size == 2)
        return c[0] == 0xc2 && c[1] < 0xa0; /* U+0080 to U+009F */
    if (size != 3)
        return false;
    unsigned code = (c[0] & 0xfu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu);
    return (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2060 && code <= 0x206f) || code == 0xfeff || code >= 0xfff9;
}

void svg_escape(FILE *out, const char *text)
{
    while (*text != '\0') {
        size_t size = character(text);
        if (size == 0 || is_unseen(text, size)) {
            for (size_t i = 0; i < (size == 0 ? 1 : size); i++)
                fprintf(out, "\\x%02x", (unsigned)(uint8_t)text[i]);
        } else if (*text == '&' || *text == '<' || *text == '>' || *text == '"' || *text == '\'') {
            fprintf(out, "&#%d;", *text);
        } else {
            fwrite(text, size, 1, out);
        }
        text += size == 0 ? 1 : size;
    }
}

double svg_at(const svg_scale *scale, double number)
{
    double range = scale->high - scale->low;
    double part = range > 0 ? (number - scale->low) / range : 0;
    return scale->from + part * (scale->to - scale->from);
}

size_t svg_ticks(double low, double high, size_t wanted, bool whole, double *ticks)
{
    static const double steps[] = {1, 2, 5, 10};
    wanted = wanted > SVG_TICKS_MAX ? SVG_TICKS_MAX : wanted < 2 ? 2 : wanted;
    if (!(high > low)) {
        ticks[0] = low;
        return 1;
    }
    double power = pow(10, floor(log10((high - low) / (double)wanted)));
    for (; power < INFINITY; power *= 10)
        for (size_t i = 0; i < 4; i++) {
            double step = steps[i] * power, first = ceil(low / step - 1e-9) * step;
            size_t count = 0;
            if (whole && step < 1)
                continue;
            if (floor((high - first) / step + 1e-9) + 1 > (double)wanted)
                continue;
            for (double at = first; at <= high + step * 1e-9 && count < wanted; at += step)
                ticks[count++] = at;
            return count;
        }
    return 0;
}

char *svg_number(double number, double largest, enum svg_unit unit, char text[32])
{
    static const char *const counts[] = {"", " k", " M", " G", " T", " P", " E"};
    static const char *const bytes[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    double base = unit == SVG_BYTES ? 1024 : 1000;
    double limit = unit == SVG_BYTES ? 1024 : 20000; /* below it numbers are written in full */
    int power = 0;
    largest = fabs(largest);
    for (; largest >= (power == 0 ? limit : base) && power < 6; power++) {
        largest /= base;
        number /= base;
    }
    if (number == 0)
        snprintf(text, 32, "0");
    else if (power == 0 && fabs(number) >= 1000)
        snprintf(text, 32, "%s%s", number < 0 ? "-" : "",
                 cli_count((uint64_t)llround(fabs(number))));
    else
        snprintf(text, 32, "%.4g%s", number, unit == SVG_BYTES ? bytes[power] : counts[power]);
    return text;
}

void svg_begin(const svg_picture *picture, const char *title, const char *text)
{
    FILE *out = picture->out;
    fprintf(out,
            "<svg id=\"%s\" role=\"img\" aria-labelledby=\"%s-title %s-desc\" viewBox=\"0 0 %g "
            "%g\">\n<title id=\"%s-title\">",
            picture->id, picture->id, picture->id, picture->width, picture->height, picture->id);
    svg_escape(out, title);
    fprintf(out, "</title>\n<desc id=\"%s-desc\">", picture->id);
    svg_escape(out, text);
    fprintf(out, "</desc>\n");
}

void svg_end(const svg_picture *picture)
{
    fprintf(picture->out, "</svg>\n");
}

void svg_text(const svg_picture *picture, double x, double y, const char *kind, const char *anchor,
              const char *text)
{
    fprintf(picture->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", kind, x,
            y, anchor);
    svg_escape(picture->out, text);
    fprintf(picture->out, "</text>\n");
}

void svg_bar(const svg_picture *picture, double x, double y, double width, double height,
             const char *kind)
{
    fprintf(picture->out,
            "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n", kind, x,
            y, width, height);
}

void svg_line(const svg_picture *picture, double x1, double y1, double x2, double y2,
              const char *kind)
{
    fprintf(picture->out, "<line class=\"%s\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n",
            kind, x1, y1, x2, y2);
}

void svg_axis_y(const svg_picture *picture, const svg_scale *scale, enum svg_unit unit, bool whole,
                const char *name)
{
    double ticks[SVG_TICKS_MAX] = {0};
    char text[32];
    size_t count = svg_ticks(scale->low, scale->high, 6, whole, ticks);
    if (unit == SVG_BYTES && scale->high >= 1024) { /* round in the unit that is shown */
        double base = pow(1024, floor(log2(scale->high) / 10));
        count = svg_ticks(scale->low / base, scale->high / base, 6, false, ticks);
        for (size_t i = 0; i < count; i++)
            ticks[i] *= base;
    }
    double largest = fmax(fabs(scale->low), fabs(scale->high));
    for (size_t i = 0; i < count; i++) {
        double y = svg_at(scale, ticks[i]);
        svg_line(picture, picture->left, y, picture->right, y, i == 0 ? "base" : "grid");
        svg_text(picture, picture->left - 8, y + 4, "tick", "end",
                 svg_number(ticks[i], largest, unit, text));
    }
    svg_text(picture, 0, 12, "axis", "start", name);
}

void svg_tick_below(const svg_picture *picture, double x, const char *text)
{
    double half = 4 * (double)strlen(text); /* about: the fonts are the reader's */
    bool fits = x + half < picture->width;
    svg_text(picture, fits ? x : picture->width - 2, picture->bottom + 19, "tick",
             fits ? "middle" : "end", text);
}

void svg_axis_x(const svg_picture *picture, const svg_scale *scale, enum svg_unit unit, bool whole,
                const char *name)
{
    double ticks[SVG_TICKS_MAX] = {0};
    char text[32];
    size_t count = svg_ticks(scale->low, scale->high, 8, whole, ticks);
    double largest = fmax(fabs(scale->low), fabs(scale->high));
    for (size_t i = 0; i < count; i++) {
        double x = svg_at(scale, ticks[i]);
        svg_line(picture, x, picture->bottom, x, picture->bottom + 5, "base");
        svg_tick_below(picture, x, svg_number(ticks[i], largest, unit, text));
    }
    svg_axis_x_name(picture, name);
}

void svg_axis_x_name(const svg_picture *picture, const char *name)
{
    svg_text(picture, (picture->left + picture->right) / 2, picture->bottom + 38, "axis", "middle",
             name);
}
