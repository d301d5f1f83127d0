/* SPDX-License-Identifier: Apache-2.0
 *
 * histogram.c: quantiles by counting 16 bits of the keys at a time, the highest first: nothing is
 * copied or sorted. */
#include "histogram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 1 << 16, STRIDE = 1 << 20 };

const cli_quantile cli_quantiles[CLI_QUANTILES] = {
    {"p1", 0.01},  {"p5", 0.05},  {"p25", 0.25}, {"median", 0.5}, {"p75", 0.75},
    {"p90", 0.90}, {"p95", 0.95}, {"p99", 0.99}, {"p999", 0.999},
};

static rks_status histogram_error(rks_status status, const char *text, rks_error *err)
{
    *err = (rks_error){.status = status, .rank = -1};
    snprintf(err->text, sizeof(err->text), "%s", text);
    return status;
}

/* Every so many numbers: has somebody pressed Ctrl-C? */
static rks_status look_up(const cli_column *column, uint64_t i, const char *phase, cli_bar *bar,
                          rks_error *err)
{
    if (i % STRIDE != 0)
        return RKS_OK;
    cli_bar_part(bar, phase, i, column->count);
    return cli_check_interrupt(err);
}

static rks_status measure_column(const cli_column *column, cli_bar *bar, cli_histogram *made,
                                 rks_error *err)
{
    double sum = 0;
    made->min = UINT64_MAX;
    for (uint64_t i = 0, key = 0; i < column->count; i++) {
        rks_status status = look_up(column, i, "range", bar, err);
        if (status != RKS_OK)
            return status;
        switch (cli_column_key(column, i, &key)) {
        case CLI_ENTRY_ABSENT:
            made->absent++;
            continue;
        case CLI_ENTRY_NOT_FINITE:
            made->not_finite++;
            continue;
        case CLI_ENTRY_NUMBER:
            break;
        }
        made->count++;
        made->total += key;
        made->min = key < made->min ? key : made->min;
        made->max = key > made->max ? key : made->max;
        /* A running mean: the sum of large floats could pass the largest. */
        sum += (cli_column_number(column, key) - sum) / (double)made->count;
    }
    made->mean = sum;
    if (made->count == 0)
        made->min = 0;
    return RKS_OK;
}

/* ---- quantiles ------------------------------------------------------------------------------ */

/* The quantiles that cannot be distinguished yet share a prefix and a table of what follows it. */
typedef struct search {
    uint64_t prefix[CLI_QUANTILES]; /* digits known so far */
    uint64_t place[CLI_QUANTILES];  /* among the keys with that prefix */
    uint64_t *tables;
} search;

static rks_status count_digits(const cli_column *column, const search *s, int level, cli_bar *bar,
                               rks_error *err)
{
    memset(s->tables, 0, (size_t)CLI_QUANTILES * DIGITS * sizeof(*s->tables));
    for (uint64_t i = 0, key = 0; i < column->count; i++) {
        rks_status status = look_up(column, i, "quantiles", bar, err);
        if (status != RKS_OK)
            return status;
        if (cli_column_key(column, i, &key) != CLI_ENTRY_NUMBER)
            continue;
        uint64_t prefix = level == 3 ? 0 : key >> (16 * (level + 1));
        size_t at = 0;
        while (at < CLI_QUANTILES && s->prefix[at] != prefix)
            at++;
        if (at < CLI_QUANTILES)
            s->tables[at * DIGITS + (key >> (16 * level) & (DIGITS - 1))]++;
    }
    return RKS_OK;
}

static void next_digit(search *s)
{
    uint64_t before[CLI_QUANTILES];
    memcpy(before, s->prefix, sizeof(before));
    for (size_t q = 0; q < CLI_QUANTILES; q++) {
        size_t first = 0; /* who holds the table of this prefix */
        uint64_t digit = 0;
        while (before[first] != before[q])
            first++;
        const uint64_t *table = s->tables + first * DIGITS;
        while (digit < DIGITS - 1 && s->place[q] >= table[digit])
            s->place[q] -= table[digit++];
        s->prefix[q] = before[q] << 16 | digit;
    }
}

static rks_status find_quantiles(const cli_column *column, cli_bar *bar, cli_histogram *made,
                                 rks_error *err)
{
    search s = {.tables = calloc((size_t)CLI_QUANTILES * DIGITS, sizeof(*s.tables))};
    rks_status status = RKS_OK;
    if (s.tables == NULL)
        return histogram_error(RKS_ERR_MEMORY, "no memory for the quantiles", err);
    int level = 3;
    for (; level > 0 && made->min >> (16 * level) == made->max >> (16 * level); level--)
        ;
    for (size_t q = 0; q < CLI_QUANTILES; q++) {
        s.prefix[q] = level == 3 ? 0 : made->min >> (16 * (level + 1));
        s.place[q] = (uint64_t)(cli_quantiles[q].part * (double)(made->count - 1));
    }
    for (; status == RKS_OK && level >= 0; level--) {
        status = count_digits(column, &s, level, bar, err);
        if (status == RKS_OK)
            next_digit(&s);
    }
    memcpy(made->quantiles, s.prefix, sizeof(s.prefix));
    free(s.tables);
    return status;
}

/* ---- bins ------------------------------------------------------------------------------------ */

/* 1, 2 or 5 times a power of ten, not below `least`. */
static double nice_step(double least)
{
    double power = pow(10, floor(log10(least)));
    static const double steps[] = {1, 2, 5, 10};
    for (size_t i = 0; i < 4; i++)
        if (steps[i] * power >= least * (1 - 1e-9))
            return steps[i] * power;
    return 10 * power;
}

static void add_bin(cli_histogram *made, double low, double high)
{
    if (made->bin_count < CLI_BINS_MAX && high > low)
        made->bins[made->bin_count++] = (cli_bin){low, high, 0};
}

static void cut_linear(cli_histogram *made, double min, double max, bool whole, unsigned wanted)
{
    double range = max - min;
    double step = range > 0 ? nice_step(range / wanted) : 1;
    if (whole && (step < 1 || range < wanted))
        step = 1;
    double first = floor(min / step);
    for (double at = first; made->bin_count < CLI_BINS_MAX && at * step <= max; at++)
        add_bin(made, at * step, (at + 1) * step);
    if (made->bin_count == 0) /* numbers so large that a step is lost in them */
        add_bin(made, min, nextafter(max, INFINITY));
}

/* Edges of equal ratio. Whole ones are rounded: to the nearest where half an octave or more lies
 * between, so that powers of two stay edges; else up, from the edge before, or widths would go up
 * and down with the rounding, and counts with them. */
static void cut_ratio(cli_histogram *made, double low, double max, double parts, bool whole)
{
    double ratio = exp2(1 / parts), exact = low;
    while (low <= max && made->bin_count < CLI_BINS_MAX) {
        exact *= ratio;
        double high = !whole ? exact : parts <= 2 ? round(exact) : ceil(low * ratio * (1 - 1e-12));
        high = whole && high <= low ? low + 1 : high;
        add_bin(made, low, high);
        low = high;
    }
}

static void cut_octaves(cli_histogram *made, double min, double max, bool whole, unsigned wanted)
{
    double median = cli_column_number(made->column, made->quantiles[3]);
    double low = whole && min < 1 ? 1 : exp2(floor(log2(min)));
    double octaves = floor(log2(max)) - log2(low) + 1, parts = 1;
    /* Bins of few whole numbers each would be as uneven as rounding is. */
    while (octaves * 2 * parts <= wanted && parts < 16 &&
           (!whole || median * (exp2(0.5 / parts) - 1) >= 6))
        parts *= 2;
    while (octaves * parts > wanted)
        parts /= 2;
    if (whole && min < 1)
        add_bin(made, 0, 1);
    cut_ratio(made, low, max, parts, whole);
}

static void trim(cli_histogram *made, double min, double max)
{
    size_t first = 0;
    while (made->bin_count > 1 && made->bins[made->bin_count - 1].low > max)
        made->bin_count--;
    while (first + 1 < made->bin_count && made->bins[first].high <= min)
        first++;
    made->bin_count -= first;
    memmove(made->bins, made->bins + first, made->bin_count * sizeof(made->bins[0]));
}

static void cut_bars(cli_histogram *made, unsigned wanted)
{
    const cli_column *column = made->column;
    double min = cli_column_number(column, made->min), max = cli_column_number(column, made->max);
    double median = cli_column_number(column, made->quantiles[3]);
    /* Beyond 2^53 neighbours look equal: no unit steps. */
    bool whole = cli_column_is_whole(column) && fabs(min) < 0x1p53 && fabs(max) < 0x1p53;
    made->logarithmic = (whole ? min >= 0 : min > 0) && max > wanted && max > 8 * median;
    if (made->logarithmic)
        cut_octaves(made, min, max, whole, wanted);
    else
        cut_linear(made, min, max, whole, wanted);
    trim(made, min, max);
}

static size_t find_bin(const cli_histogram *made, double number)
{
    size_t low = 0, high = made->bin_count - 1;
    while (low < high) {
        size_t middle = high - (high - low) / 2;
        if (made->bins[middle].low <= number)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static rks_status fill_bars(const cli_column *column, cli_bar *bar, cli_histogram *made,
                            rks_error *err)
{
    for (uint64_t i = 0, key = 0; i < column->count; i++) {
        rks_status status = look_up(column, i, "histogram", bar, err);
        if (status != RKS_OK)
            return status;
        if (cli_column_key(column, i, &key) == CLI_ENTRY_NUMBER)
            made->bins[find_bin(made, cli_column_number(column, key))].count++;
    }
    for (size_t i = 0; i < made->bin_count; i++)
        made->highest = made->bins[i].count > made->highest ? made->bins[i].count : made->highest;
    return RKS_OK;
}

rks_status cli_histogram_make(const cli_column *column, unsigned wanted, cli_bar *bar,
                              cli_histogram *histogram, rks_error *err)
{
    memset(histogram, 0, sizeof(*histogram));
    histogram->column = column;
    rks_status status = measure_column(column, bar, histogram, err);
    if (status != RKS_OK || histogram->count == 0)
        return status;
    status = find_quantiles(column, bar, histogram, err);
    if (status != RKS_OK)
        return status;
    cut_bars(histogram, wanted);
    return fill_bars(column, bar, histogram, err);
}

/* ---- words ----------------------------------------------------------------------------------- */

json_t *cli_histogram_json(const cli_histogram *histogram)
{
    const cli_column *column = histogram->column;
    bool any = histogram->count > 0;
    json_t *quantiles = json_object(), *bins = json_array();
    for (size_t q = 0; any && q < CLI_QUANTILES; q++)
        json_object_set_new(quantiles, cli_quantiles[q].name,
                            cli_column_json(column, histogram->quantiles[q]));
    for (size_t i = 0; i < histogram->bin_count; i++)
        json_array_append_new(bins, json_pack("{s:f, s:f, s:I}", "low", histogram->bins[i].low,
                                              "high", histogram->bins[i].high, "count",
                                              (json_int_t)histogram->bins[i].count));
    const struct {
        const char *name;
        json_t *value;
    } fields[] = {
        {"column", json_string(column->name)},
        {"type", json_string(column->type)},
        {"count", json_integer((json_int_t)histogram->count)},
        {"absent", json_integer((json_int_t)histogram->absent)},
        {"not_finite", json_integer((json_int_t)histogram->not_finite)},
        {"min", any ? cli_column_json(column, histogram->min) : json_null()},
        {"max", any ? cli_column_json(column, histogram->max) : json_null()},
        {"mean", any ? json_real(histogram->mean) : json_null()},
        {"quantiles", quantiles},
        {"scale", json_string(histogram->logarithmic ? "logarithmic" : "linear")},
        {"bins", bins},
    };
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        json_object_set_new(object, fields[i].name, fields[i].value);
    if (cli_column_is_length(column))
        json_object_set_new(object, "total", json_integer((json_int_t)histogram->total));
    return object;
}

char *cli_bin_text(const cli_histogram *histogram, const cli_bin *bin, const char *dash,
                   char text[72])
{
    char low[32], high[32];
    bool whole = cli_column_is_whole(histogram->column);
    cli_number_text(bin->low, whole, low);
    if (whole && bin->high - bin->low <= 1)
        snprintf(text, 72, "%s", low);
    else
        snprintf(text, 72, "%s %s %s", low, dash,
                 cli_number_text(whole ? bin->high - 1 : bin->high, whole, high));
    return text;
}
