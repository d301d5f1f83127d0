/* SPDX-License-Identifier: Apache-2.0
 *
 * histogram.h: how the numbers of a column are spread: quantiles, which are exact, and counts by
 * bins with edges that a person can read. */
#ifndef RKS_TOOLS_HISTOGRAM_H
#define RKS_TOOLS_HISTOGRAM_H

#include "cli.h"
#include "column.h"

enum { CLI_QUANTILES = 9, CLI_BINS_MAX = 256 };

/* A quantile q is the number at place floor(q (n - 1)) of the n in order. */
typedef struct cli_quantile {
    const char *name; /* "p1", "median" */
    double part;
} cli_quantile;
extern const cli_quantile cli_quantiles[CLI_QUANTILES];

typedef struct cli_bin {
    double low, high; /* low <= number < high */
    uint64_t count;
} cli_bin;

typedef struct cli_histogram {
    const cli_column *column;
    uint64_t count; /* of numbers; the others are: */
    uint64_t absent, not_finite;
    uint64_t min, max; /* keys; 0 if count is 0, as are these: */
    uint64_t quantiles[CLI_QUANTILES];
    double mean;
    uint64_t total;   /* of lengths: exact */
    bool logarithmic; /* the edges of bins have equal ratios, about */
    cli_bin bins[CLI_BINS_MAX];
    size_t bin_count;
    uint64_t highest; /* count of the fullest bin */
} cli_histogram;

/* About `wanted` bins (to 100). Goes over the column a few times, with a bar on a terminal.
 * RKS_ERR_MEMORY, or RKS_ERR_CANCELLED after Ctrl-C. */
rks_status cli_histogram_make(const cli_column *column, unsigned wanted, cli_bar *bar,
                              cli_histogram *histogram, rks_error *err);

/* {column, type, count, ..., quantiles, bins}. */
json_t *cli_histogram_json(const cli_histogram *histogram);
/* "12 – 15", "0.5 – 1"; `dash` between them. */
char *cli_bin_text(const cli_histogram *histogram, const cli_bin *bin, const char *dash,
                   char text[72]);

#endif
