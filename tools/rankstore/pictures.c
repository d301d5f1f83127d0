/* SPDX-License-Identifier: Apache-2.0
 *
 * pictures.c: pictures of plans: padding by strategy, and one plan's steps and ranks. */
#include "pictures.h"

#include <math.h>
#include <string.h>

#include "picture_parts.h"

/* ---- padding by strategy -------------------------------------------------------------------- */

enum { ROW = 46, BAR = 24 };

static void draw_strategy(const svg_picture *picture, const svg_scale *x, double y,
                          const cli_figures *plan, bool chosen)
{
    char words[64];
    double zero = svg_at(x, 0), tokens = svg_at(x, (double)plan->report.tokens);
    double end = svg_at(x, (double)plan->report.padded_tokens);
    svg_text(picture, picture->left - 10, y + BAR * 0.68, chosen ? "name chosen" : "name", "end",
             plan->strategy);
    if (plan->status != RKS_OK) {
        svg_text(picture, picture->left, y + BAR * 0.68, "note", "start", "no such plan");
        return;
    }
    svg_bar(picture, zero, y, tokens - zero, BAR, "mark one");
    if (end - tokens > 0.05)
        svg_bar(picture, tokens + (end - tokens > 3 ? 1.5 : 0), y,
                end - tokens > 3 ? end - tokens - 1.5 : end - tokens, BAR, "mark two");
    snprintf(words, sizeof(words), "%.1f %% padding, time %.2f",
             100 * (1 - plan->report.efficiency), plan->time);
    svg_text(picture, zero + 4, y + BAR + 13, "note", "start", words);
}

static uint64_t most_padded(const cli_comparison *comparison)
{
    uint64_t most = 1;
    for (size_t i = 0; i < CLI_STRATEGIES; i++)
        if (comparison->plans[i].report.padded_tokens > most)
            most = comparison->plans[i].report.padded_tokens;
    return most;
}

static void draw_strategies(const svg_picture *picture, const cli_comparison *comparison)
{
    svg_scale x = {0, (double)most_padded(comparison), picture->left, picture->right};
    svg_axis_x(picture, &x, SVG_COUNT, true, "tokens of an epoch, padding included");
    svg_line(picture, picture->left, picture->top - 4, picture->left, picture->bottom, "base");
    for (size_t i = 0; i < CLI_STRATEGIES; i++) {
        cli_figures plan = comparison->plans[i];
        plan.time = cli_relative_time(comparison, &plan);
        draw_strategy(picture, &x, picture->top + (double)i * ROW, &plan, i == comparison->chosen);
    }
    double at = picture_key(picture, picture->right, 12, "key two", "padding");
    picture_key(picture, at, 12, "key one", "tokens");
}

static void padding_row(FILE *out, const cli_comparison *comparison, const cli_figures *plan)
{
    char efficiency[32], balance[32], time[32];
    const rks_plan_report *report = &plan->report;
    if (plan->status != RKS_OK) {
        picture_row(out,
                    (const char *[]){plan->strategy, plan->err.text, "", "", "", "", "", "", NULL});
        return;
    }
    snprintf(efficiency, sizeof(efficiency), "%.2f %%", 100 * report->efficiency);
    snprintf(balance, sizeof(balance), "%.3f", report->balance);
    snprintf(time, sizeof(time), "%.2f", cli_relative_time(comparison, plan));
    picture_row(out, (const char *[]){plan->strategy, cli_count(report->steps),
                                      cli_count(report->tokens), cli_count(report->padded_tokens),
                                      efficiency, balance, cli_count(report->largest_batch), time,
                                      NULL});
}

static void print_gains(FILE *out, const cli_comparison *comparison)
{
    char text[160];
    fprintf(out, "<ul>\n");
    for (size_t i = 0; i < CLI_STRATEGIES; i++)
        if (cli_gain_text(comparison, i, text)) {
            fprintf(out, "<li>");
            svg_escape(out, text);
            fprintf(out, "</li>\n");
        }
    fprintf(out, "</ul>\n");
}

void picture_padding(FILE *out, const cli_comparison *comparison)
{
    static const char *const columns[] = {"strategy",      "steps",          "tokens",
                                          "padded tokens", "efficiency",     "balance",
                                          "largest batch", "time, relative", NULL};
    char heading[200] = "Padding by strategy", text[160];
    const cli_figures *chosen = &comparison->plans[comparison->chosen];
    svg_picture picture = picture_new(out, "padding", 34 + CLI_STRATEGIES * ROW + 48);
    picture.left = 96;
    if (cli_gain_text(comparison, comparison->chosen, text))
        snprintf(heading, sizeof(heading), "%c%s", text[0] - 'a' + 'A', text + 1);
    else if (chosen->status == RKS_OK)
        snprintf(heading, sizeof(heading), "%.1f %% of what %s delivers is padding",
                 100 * (1 - chosen->report.efficiency), chosen->strategy);
    picture_open(out, heading);
    svg_begin(
        &picture, heading,
        "Bars of the tokens of an epoch by strategy: what samples have, and what padding adds.");
    draw_strategies(&picture, comparison);
    svg_end(&picture);
    picture_caption(
        out, "Tokens of an epoch by strategy, and what padding adds. Time is that of an epoch, "
             "relative to the shortest. A step takes as long as its costliest batch, plus a "
             "twentieth of a full batch.");
    print_gains(out, comparison);
    picture_table(out, columns);
    for (size_t i = 0; i < CLI_STRATEGIES; i++)
        padding_row(out, comparison, &comparison->plans[i]);
    picture_close(out);
}

/* ---- balance: who waits when ----------------------------------------------------------------- */

enum { SHADES = 7 };
static const double shade_from[SHADES] = {0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4};
static const char *const shade_words[SHADES] = {
    "below 1 %", "1 to 2 %", "2 to 5 %", "5 to 10 %", "10 to 20 %", "20 to 40 %", "above 40 %"};

static size_t shade_of(double waiting)
{
    size_t shade = 0;
    while (shade + 1 < SHADES && waiting >= shade_from[shade + 1])
        shade++;
    return shade;
}

static double waiting_at(const cli_figures *plan, size_t step, size_t rank)
{
    double waiting = 1 - plan->busy[step * plan->rank_bins + rank];
    return waiting < 0 ? 0 : waiting;
}

/* One path a shade: a rectangle for each run of cells of that shade in a row. */
static void draw_shade(const svg_picture *picture, const cli_figures *plan, size_t shade)
{
    double width = (picture->right - picture->left) / (double)plan->step_bins;
    double height = (picture->bottom - picture->top) / (double)plan->rank_bins;
    bool begun = false;
    for (size_t rank = 0; rank < plan->rank_bins; rank++)
        for (size_t step = 0; step < plan->step_bins;) {
            size_t run = step;
            while (run < plan->step_bins && shade_of(waiting_at(plan, run, rank)) == shade)
                run++;
            if (run > step) {
                if (!begun)
                    fprintf(picture->out, "<path class=\"mark shade%zu\" d=\"", shade);
                begun = true;
                fprintf(picture->out, "M%.2f %.2fh%.2fv%.2fh%.2fz",
                        picture->left + (double)step * width, picture->top + (double)rank * height,
                        (double)(run - step) * width, height, -(double)(run - step) * width);
            }
            step = run > step ? run : step + 1;
        }
    if (begun)
        fprintf(picture->out, "\"/>\n");
}

static void draw_rank_names(const svg_picture *picture, const cli_figures *plan)
{
    double height = (picture->bottom - picture->top) / (double)plan->rank_bins;
    size_t each = (size_t)ceil(18 / height);
    each = each == 0 ? 1 : each;
    for (size_t bin = 0; bin < plan->rank_bins; bin += each)
        svg_text(picture, picture->left - 8, picture->top + ((double)bin + 0.5) * height + 4,
                 "tick", "end", cli_count(cli_bin_first(plan->world, plan->rank_bins, bin)));
    svg_text(picture, 0, 12, "axis", "start", "rank");
}

static void draw_steps_axis(const svg_picture *picture, const cli_figures *plan)
{
    svg_scale x = {0, (double)plan->report.steps, picture->left, picture->right};
    svg_axis_x(picture, &x, SVG_COUNT, true, "step of the epoch");
}

static void draw_shade_keys(const svg_picture *picture)
{
    double at = picture->right;
    for (size_t i = SHADES; i-- > 0;)
        at = picture_key(picture, at, 12,
                         i == 0   ? "swatch shade0"
                         : i == 1 ? "swatch shade1"
                         : i == 2 ? "swatch shade2"
                         : i == 3 ? "swatch shade3"
                         : i == 4 ? "swatch shade4"
                         : i == 5 ? "swatch shade5"
                                  : "swatch shade6",
                         shade_words[i]);
}

static void balance_rows(FILE *out, const cli_figures *plan)
{
    char ranks[48], mean[32], at_most[32], steps[64];
    for (size_t rank = 0; rank < plan->rank_bins; rank++) {
        double sum = 0, most = 0;
        size_t worst = 0;
        for (size_t step = 0; step < plan->step_bins; step++) {
            double waiting = waiting_at(plan, step, rank);
            sum += waiting * (double)(plan->steps[step].end - plan->steps[step].first);
            if (waiting > most) {
                most = waiting;
                worst = step;
            }
        }
        snprintf(mean, sizeof(mean), "%.2f %%", 100 * sum / (double)plan->report.steps);
        snprintf(at_most, sizeof(at_most), "%.2f %%", 100 * most);
        picture_row(out, (const char *[]){picture_ranks_text(plan, rank, ranks), mean, at_most,
                                          picture_steps_text(&plan->steps[worst], steps), NULL});
    }
}

void picture_balance(FILE *out, const cli_figures *plan)
{
    static const char *const columns[] = {"ranks", "waits in the mean", "waits at most", "at",
                                          NULL};
    char heading[160], text[320];
    double rows = (double)plan->rank_bins;
    double height = rows * 26 < 60 ? 60 : rows * 26 > 300 ? 300 : rows * 26;
    svg_picture picture = picture_new(out, "balance", 34 + height + 48);
    snprintf(heading, sizeof(heading), "Ranks wait for the costliest batch for %.1f %% of an epoch",
             100 * (1 - plan->report.balance));
    snprintf(text, sizeof(text),
             "Heat map of %s steps (%zu columns) and %s ranks (%zu rows): the darker a cell, the "
             "longer its rank waits in that step for the rank with the costliest batch.",
             cli_count(plan->report.steps), plan->step_bins, cli_count(plan->world),
             plan->rank_bins);
    picture_open(out, heading);
    svg_begin(&picture, heading, text);
    for (size_t shade = 0; shade < SHADES; shade++)
        draw_shade(&picture, plan, shade);
    fprintf(out, "<rect class=\"frame\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\"/>\n",
            picture.left, picture.top, picture.right - picture.left, picture.bottom - picture.top);
    draw_rank_names(&picture, plan);
    draw_steps_axis(&picture, plan);
    draw_shade_keys(&picture);
    svg_end(&picture);
    picture_caption(
        out, "How much of a step a rank waits for the rank with the costliest batch. Where steps "
             "or ranks are many, a cell is the mean of some.");
    picture_table(out, columns);
    balance_rows(out, plan);
    picture_close(out);
}

/* ---- by rank --------------------------------------------------------------------------------- */

/* Of the ranks of a bin: the largest of one field, or the mean of another. */
static double of_ranks(const cli_figures *plan, size_t bin,
                       double (*field)(const cli_rank_figures *), bool largest)
{
    uint64_t first = cli_bin_first(plan->world, plan->rank_bins, bin);
    uint64_t end = cli_bin_first(plan->world, plan->rank_bins, bin + 1);
    double sum = 0, most = 0;
    for (uint64_t rank = first; rank < end; rank++) {
        double number = field(&plan->ranks[rank]);
        sum += number;
        most = number > most ? number : most;
    }
    return largest ? most : sum / (double)(end - first);
}

static double largest_batch(const cli_rank_figures *rank)
{
    return (double)rank->largest_batch;
}

static double owned(const cli_rank_figures *rank)
{
    return (double)rank->owned_bytes;
}

static double fetched(const cli_rank_figures *rank)
{
    return rank->fetched_bytes;
}

/* Which of a bin's bars is drawn, and its class. */
typedef struct bar {
    int part, parts;
    const char *kind;
} bar;

static void draw_rank_bar(const svg_picture *picture, const cli_figures *plan, const svg_scale *y,
                          size_t bin, double number, bar of)
{
    int part = of.part, parts = of.parts;
    double from = picture_rank_x(picture, plan, (double)bin + 0.12);
    double width = picture_rank_x(picture, plan, (double)bin + 0.88) - from;
    double most = 56.0 * parts; /* a few ranks make no walls */
    if (width > most) {
        from += (width - most) / 2;
        width = most;
    }
    double top = svg_at(y, number);
    if (number > 0)
        svg_bar(picture, from + width * part / parts + (part > 0 ? 0.5 : 0),
                picture->bottom - top < 1 ? picture->bottom - 1 : top, width / parts - 0.5,
                picture->bottom - top < 1 ? 1 : picture->bottom - top, of.kind);
}

static uint32_t rank_of_largest(const cli_figures *plan)
{
    uint32_t most = 0;
    for (uint32_t rank = 1; rank < plan->world; rank++)
        if (plan->ranks[rank].largest_batch > plan->ranks[most].largest_batch)
            most = rank;
    return most;
}

void picture_largest(FILE *out, const cli_figures *plan, uint64_t max_tokens)
{
    static const char *const columns[] = {"ranks", "largest batch, padded tokens", NULL};
    char heading[200], text[240], words[64];
    svg_picture picture = picture_new(out, "largest", 250);
    uint64_t most = plan->report.largest_batch;
    double top = max_tokens > most ? (double)max_tokens : (double)most;
    if (max_tokens > 4 * most) /* a budget far away would flatten the bars */
        top = (double)most;
    svg_scale y = {0, top > 0 ? top : 1, picture.bottom, picture.top + 18};
    snprintf(heading, sizeof(heading), "The largest batch has %s padded tokens, on rank %s",
             cli_count(most), cli_count(rank_of_largest(plan)));
    snprintf(text, sizeof(text),
             "Bars of the padded tokens of each rank's largest batch, for %s ranks.",
             cli_count(plan->world));
    picture_open(out, heading);
    svg_begin(&picture, heading, text);
    svg_axis_y(&picture, &y, SVG_COUNT, true, "padded tokens");
    for (size_t bin = 0; bin < plan->rank_bins; bin++)
        draw_rank_bar(&picture, plan, &y, bin, of_ranks(plan, bin, largest_batch, true),
                      (bar){0, 1, "mark one"});
    if (max_tokens > 0 && (double)max_tokens <= top) {
        double at = svg_at(&y, (double)max_tokens);
        snprintf(words, sizeof(words), "budget %s", cli_count(max_tokens));
        svg_line(&picture, picture.left, at, picture.right, at, "limit");
        svg_text(&picture, picture.right, at - 5, "note", "end", words);
    }
    picture_axis_ranks(&picture, plan);
    svg_end(&picture);
    picture_caption(out,
                    "What a rank needs room for at once: its largest batch, padding included.");
    picture_table(out, columns);
    for (size_t bin = 0; bin < plan->rank_bins; bin++) {
        picture_row(out, (const char *[]){
                             picture_ranks_text(plan, bin, words),
                             cli_count((uint64_t)of_ranks(plan, bin, largest_batch, true)), NULL});
    }
    picture_close(out);
}

void picture_bytes(FILE *out, const cli_figures *plan)
{
    static const char *const columns[] = {"ranks", "owned", "fetched, about", NULL};
    char heading[240], words[64];
    svg_picture picture = picture_new(out, "bytes", 270);
    double highest = 1, all_fetched = 0;
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        const cli_rank_figures *at = &plan->ranks[rank];
        least = at->owned_bytes < least ? at->owned_bytes : least;
        most = at->owned_bytes > most ? at->owned_bytes : most;
        all_fetched += at->fetched_bytes;
    }
    for (size_t bin = 0; bin < plan->rank_bins; bin++)
        highest = fmax(
            highest, fmax(of_ranks(plan, bin, owned, false), of_ranks(plan, bin, fetched, false)));
    svg_scale y = {0, highest, picture.bottom, picture.top};
    snprintf(heading, sizeof(heading),
             "Ranks own %s to %s each; in an epoch a rank fetches about %s from others",
             cli_bytes(least), cli_bytes(most), cli_bytes((uint64_t)(all_fetched / plan->world)));
    picture_open(out, heading);
    svg_begin(&picture, heading,
              "Two bars for each rank: the bytes of the shards that it owns, and those of its "
              "batches' samples that other ranks own, estimated.");
    svg_axis_y(&picture, &y, SVG_BYTES, true, "bytes");
    for (size_t bin = 0; bin < plan->rank_bins; bin++) {
        draw_rank_bar(&picture, plan, &y, bin, of_ranks(plan, bin, owned, false),
                      (bar){0, 2, "mark one"});
        draw_rank_bar(&picture, plan, &y, bin, of_ranks(plan, bin, fetched, false),
                      (bar){1, 2, "mark two"});
    }
    picture_axis_ranks(&picture, plan);
    double at = picture_key(&picture, picture.right, 12, "key two", "fetched from others");
    picture_key(&picture, at, 12, "key one", "owned");
    svg_end(&picture);
    picture_caption(
        out,
        "Owned: of the shards dealt to the rank, as opening deals those that all ranks see "
        "(for as many ranks as run: as they are owned). Fetched: samples of its batches in "
        "other ranks' shards, estimated: each at its shard's mean size, since the index has no "
        "sizes; ranks of one node read them from the page cache that they share.");
    picture_table(out, columns);
    for (size_t bin = 0; bin < plan->rank_bins; bin++) {
        picture_row(out, (const char *[]){picture_ranks_text(plan, bin, words),
                                          cli_bytes((uint64_t)of_ranks(plan, bin, owned, false)),
                                          cli_bytes((uint64_t)of_ranks(plan, bin, fetched, false)),
                                          NULL});
    }
    picture_close(out);
}

/* ---- tokens per step ------------------------------------------------------------------------- */

static double mean_tokens(const cli_step_bin *bin)
{
    return (double)bin->sum / (double)(bin->end - bin->first);
}

static void draw_tokens(const svg_picture *picture, const cli_figures *plan, const svg_scale *y)
{
    FILE *out = picture->out;
    svg_scale x = {0, (double)plan->report.steps, picture->left, picture->right};
    fprintf(out, "<path class=\"mark band\" d=\"");
    for (size_t i = 0; i < plan->step_bins; i++)
        fprintf(out, "%c%.2f %.2fH%.2f", i == 0 ? 'M' : 'L',
                svg_at(&x, (double)plan->steps[i].first), svg_at(y, (double)plan->steps[i].most),
                svg_at(&x, (double)plan->steps[i].end));
    for (size_t i = plan->step_bins; i-- > 0;)
        fprintf(out, "L%.2f %.2fH%.2f", svg_at(&x, (double)plan->steps[i].end),
                svg_at(y, (double)plan->steps[i].least), svg_at(&x, (double)plan->steps[i].first));
    fprintf(out, "z\"/>\n<path class=\"mark line\" d=\"");
    for (size_t i = 0; i < plan->step_bins; i++)
        fprintf(out, "%c%.2f %.2fH%.2f", i == 0 ? 'M' : 'L',
                svg_at(&x, (double)plan->steps[i].first), svg_at(y, mean_tokens(&plan->steps[i])),
                svg_at(&x, (double)plan->steps[i].end));
    fprintf(out, "\"/>\n");
}

void picture_tokens(FILE *out, const cli_figures *plan)
{
    static const char *const columns[] = {"steps", "least", "mean", "most", NULL};
    char heading[200], words[64];
    uint64_t least = UINT64_MAX, most = 1;
    svg_picture picture = picture_new(out, "tokens", 260);
    for (size_t i = 0; i < plan->step_bins; i++) {
        least = plan->steps[i].least < least ? plan->steps[i].least : least;
        most = plan->steps[i].most > most ? plan->steps[i].most : most;
    }
    svg_scale y = {0, (double)most, picture.bottom, picture.top};
    snprintf(heading, sizeof(heading),
             "A step brings %s tokens in the mean, %s at least and %s at most",
             cli_count((uint64_t)plan->report.tokens_per_step), cli_count(least), cli_count(most));
    picture_open(out, heading);
    svg_begin(&picture, heading,
              "A line of the tokens that all ranks together get in a step, over "
              "the epoch; a band from the least to the most where a point stands "
              "for some steps.");
    svg_axis_y(&picture, &y, SVG_COUNT, true, "tokens a step, all ranks");
    draw_tokens(&picture, plan, &y);
    draw_steps_axis(&picture, plan);
    svg_end(&picture);
    picture_caption(
        out, "Tokens of all ranks together in a step, without padding, over the epoch. The band "
             "goes from the least to the most where a point stands for some steps.");
    picture_table(out, columns);
    for (size_t i = 0; i < plan->step_bins; i++) {
        picture_row(out, (const char *[]){picture_steps_text(&plan->steps[i], words),
                                          cli_count(plan->steps[i].least),
                                          cli_count((uint64_t)mean_tokens(&plan->steps[i])),
                                          cli_count(plan->steps[i].most), NULL});
    }
    picture_close(out);
}
