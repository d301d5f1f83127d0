/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_built.h: an input as a build reads it, whole and cut into units. The shard writer's calls
 * come here (ld --wrap). */
#ifndef RKS_TESTS_FUZZ_BUILT_H
#define RKS_TESTS_FUZZ_BUILT_H

#include "fuzz.h"

#include "ingest/ingest.h"
#include "support/counting_writer.h"

static bool read_units(const rks_input *input, const char *schema_text)
{
    rks_schema *parsed = NULL;
    rks_selector *selector = NULL;
    rks_buffer bad = {0};
    rks_ingest_options options = {.length_unit = 1, .skip_bad = true, .max_sample = 1 << 20};
    FUZZ_CHECK(rks_schema_parse(schema_text, &parsed, NULL) == RKS_OK);
    rks_input_options(input, &options);
    counted_schema = parsed;
    rks_status status = rks_selector_create(parsed, &options, &selector, NULL);
    for (size_t unit = 0; status == RKS_OK && unit < input->unit_count; unit++) {
        uint64_t rows = 0, before = counted.samples;
        const rks_ingest_reading with = {input, parsed, &options, selector, &bad};
        status = rks_ingest_unit(&with, unit, 0, NULL, NULL, NULL, NULL);
        bool whole = unit + 1 < input->unit_count && !input->units[unit + 1].first_of_file;
        if (status == RKS_OK && whole)
            FUZZ_CHECK(rks_unit_count_rows(input, unit, &rows, NULL) == RKS_OK &&
                       counted.samples - before <= rows);
    }
    rks_selector_free(selector);
    rks_schema_free(parsed);
    rks_buffer_free(&bad);
    return status == RKS_OK;
}

/* The columns are those of the first file that had some, so that both cuts have the same. */
static bool read_file(const char *path, const char *format, uint64_t unit_size, char **text,
                      counted_samples *made)
{
    rks_ingest_options options = {.format = format,
                                  .unit_size = unit_size,
                                  .skip_bad = true,
                                  .max_sample = 1 << 20,
                                  .max_total = 4 << 20};
    rks_input *input = NULL;
    bool good = rks_input_open(&path, 1, &options, &input, NULL) == RKS_OK;
    if (good && input->unit_count > 0 && *text == NULL)
        good = rks_ingest_infer(input, 0, text, NULL) == RKS_OK;
    counted = (counted_samples){0};
    good = good && *text != NULL && read_units(input, *text);
    *made = counted;
    rks_input_free(input);
    rks_buffer_free(&counted_payload);
    return good;
}

/* Cutting changes nothing. */
static void fuzz_build(const char *path, const char *format, uint64_t unit_size)
{
    char *text = NULL;
    counted_samples whole, cut;
    if (read_file(path, format, 1 << 30, &text, &whole) &&
        read_file(path, format, unit_size, &text, &cut))
        FUZZ_CHECK(whole.samples == cut.samples && whole.sum == cut.sum);
    rks_free(text);
}

#endif
