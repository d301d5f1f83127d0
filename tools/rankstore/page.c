/* SPDX-License-Identifier: Apache-2.0
 *
 * page.c: the frame of the page: its style for light, dark and paper, and what is in it.
 *
 * Colours: two hues that all kinds of colour blindness tell apart (blue and orange), which also
 * differ in lightness, so that they stay apart on grey paper; one hue from pale to deep for shades.
 */
#include "page.h"

#include "pictures.h"
#include "svg.h"

static const char style[] =
    ":root{color-scheme:light dark;--page:#fdfdfc;--ink:#1c1c1a;--soft:#595852;--grid:#e3e1dc;"
    "--base:#8d8b84;--one:#0b4f8a;--two:#d8702a;--band:#9dc0de;"
    "--shade0:#eef3f8;--shade1:#cfdfee;--shade2:#a9c6e0;--shade3:#7aa7cf;--shade4:#4a84b8;"
    "--shade5:#205f98;--shade6:#083a68}\n"
    "@media screen and (prefers-color-scheme:dark){:root{--page:#161615;--ink:#f1f0ec;"
    "--soft:#b3b1a9;--grid:#33322f;--base:#7c7a73;--one:#62b0f2;--two:#f5a55c;--band:#2c5377;"
    "--shade0:#1d2a36;--shade1:#223d55;--shade2:#275377;--shade3:#306f9f;--shade4:#4790c8;"
    "--shade5:#7db9e8;--shade6:#c4e3fb}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:52rem;padding:1.5rem 1.25rem 4rem;background:var(--page);"
    "color:var(--ink);font:16px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.7rem;line-height:1.2;margin:0 0 .75rem;overflow-wrap:anywhere}\n"
    "h2{font-size:1.1rem;line-height:1.35;margin:0 0 .75rem;overflow-wrap:anywhere}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0 0 2rem}\n"
    "dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}\n"
    "figure{margin:0 0 2.25rem;padding:1.5rem 0 0;border-top:1px solid var(--grid);"
    "break-inside:avoid}\n"
    ".wide{overflow-x:auto}\n"
    "svg{display:block;width:100%;min-width:36rem;height:auto;font:12.5px system-ui,sans-serif;"
    "font-variant-numeric:tabular-nums}\n"
    "text{fill:var(--ink)}.tick,.note{fill:var(--soft)}.axis{fill:var(--soft)}"
    ".chosen{font-weight:700}\n"
    ".one{fill:var(--one)}.two{fill:var(--two)}.band{fill:var(--band)}"
    ".line{fill:none;stroke:var(--one);stroke-width:2;stroke-linejoin:round}\n"
    ".grid{stroke:var(--grid)}.base{stroke:var(--base)}.frame{fill:none;stroke:var(--base)}"
    ".quantile{stroke:var(--ink);stroke-dasharray:3 "
    "3}.halo{stroke:var(--page);stroke-width:3;opacity:.75}.edge{stroke:var(--two);stroke-width:1."
    "25}"
    ".limit{stroke:var(--two);stroke-width:1.5;stroke-dasharray:7 4}\n"
    ".shade0{fill:var(--shade0)}.shade1{fill:var(--shade1)}.shade2{fill:var(--shade2)}"
    ".shade3{fill:var(--shade3)}.shade4{fill:var(--shade4)}.shade5{fill:var(--shade5)}"
    ".shade6{fill:var(--shade6)}.swatch{stroke:var(--base);stroke-width:.5}\n"
    "figcaption,footer{color:var(--soft);font-size:.875rem;margin-top:.5rem}\n"
    "details{font-size:.875rem;margin-top:.5rem}summary{cursor:pointer;color:var(--soft)}\n"
    "table{border-collapse:collapse;margin-top:.5rem;font-variant-numeric:tabular-nums}"
    "th,td{text-align:right;padding:.15rem .9rem .15rem 0;border-bottom:1px solid var(--grid);"
    "white-space:nowrap}th{color:var(--soft);font-weight:600}"
    "th:first-child,td:first-child{text-align:left}\n"
    "ul{padding-left:1.2rem}\n"
    "@page{margin:14mm}\n"
    "@media "
    "print{:root{color-scheme:light;--page:#fff}body{max-width:none;padding:0;font-size:10pt}"
    "figure{margin-bottom:1rem;padding-top:1rem}"
    "*{-webkit-print-color-adjust:exact;print-color-adjust:exact}details{display:none}"
    ".wide{overflow:visible}svg{min-width:0}}\n";

static void fact(FILE *out, const char *name, const char *text)
{
    fprintf(out, "<dt>%s</dt><dd>", name);
    svg_escape(out, text);
    fprintf(out, "</dd>\n");
}

static void print_facts(FILE *out, const cli_page *page)
{
    const rks_schema *schema = rks_store_schema(page->store);
    const cli_figures *plan = &page->comparison->plans[page->comparison->chosen];
    char text[128];
    fprintf(out, "<dl>\n");
    fact(out, "dataset", rks_store_dataset(page->store));
    fact(out, "samples", cli_count(rks_store_count(page->store)));
    if (page->lengths->absent > 0)
        fact(out, "missing", cli_count(page->lengths->absent));
    fprintf(out, "<dt>columns</dt><dd>");
    for (uint32_t i = 0; i < rks_schema_columns(schema) && i < 32; i++) {
        fprintf(out, i == 0 ? "" : ", ");
        svg_escape(out, rks_schema_name(schema, i));
        fprintf(out, " ");
        svg_escape(out, rks_schema_type(schema, i));
    }
    if (rks_schema_columns(schema) > 32)
        fprintf(out, " and %u more", rks_schema_columns(schema) - 32);
    fprintf(out, "</dd>\n");
    snprintf(text, sizeof(text), "%s for %s, epoch %s, %s", plan->strategy,
             cli_counted(plan->world, "rank"), cli_count(page->args->epoch),
             cli_counted(plan->report.steps, "step"));
    fact(out, "plan", plan->status == RKS_OK ? text : plan->err.text);
    fprintf(out, "</dl>\n");
}

static void print_plan(FILE *out, const cli_page *page)
{
    const cli_figures *plan = &page->comparison->plans[page->comparison->chosen];
    picture_padding(out, page->comparison);
    if (plan->status != RKS_OK || plan->ranks == NULL)
        return;
    picture_balance(out, plan);
    picture_largest(out, plan, page->args->options.max_tokens);
    picture_bytes(out, plan);
    picture_tokens(out, plan);
}

/* What the plan is worth, beside batches of random samples: the page's first line. */
static void print_gain(FILE *out, const cli_page *page)
{
    const cli_figures *plan = &page->comparison->plans[page->comparison->chosen];
    char text[160];
    if (page->lengths->count == 0 || plan->status != RKS_OK)
        return;
    if (!cli_gain_text(page->comparison, page->comparison->chosen, text))
        snprintf(text, sizeof(text), "%s: %.1f %% of what it delivers is padding", plan->strategy,
                 100 * (1 - plan->report.efficiency));
    fprintf(out, "<p class=\"gain\" style=\"font-size:1.25rem\">");
    svg_escape(out, text);
    fprintf(out, "</p>\n");
}

void cli_print_page(FILE *out, const cli_page *page)
{
    const cli_figures *plan = &page->comparison->plans[page->comparison->chosen];
    fprintf(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                 "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                 "style-src 'unsafe-inline'\">\n<title>");
    svg_escape(out, page->directory);
    fprintf(out, ": what is in it</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", style);
    svg_escape(out, page->directory);
    fprintf(out, "</h1>\n");
    print_gain(out, page);
    print_facts(out, page);
    if (page->lengths->count > 0)
        picture_histogram(out, "lengths", page->lengths, plan);
    else
        fprintf(out, "<p>There are no samples to look at.</p>\n");
    if (page->column != NULL && page->column->count > 0)
        picture_histogram(out, "column", page->column, NULL);
    if (page->lengths->count > 0)
        print_plan(out, page);
    fprintf(out, "<footer>rankstore %s</footer>\n</body>\n</html>\n", rks_version());
}
