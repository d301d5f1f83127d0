/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_built.h: an input as a build reads it, whole and cut into units. The shard writer's calls
 * come here (ld --wrap). */
#ifndef RKS_TESTS_FUZZ_BUILT_H
#define RKS_TESTS_FUZZ_BUILT_H

#include "fuzz.h"

#include "ingest/ingest.h"
#include "shard/record.h"

typedef struct taken {
    uint64_t samples;
    uint64_t sum; /* of the payloads' checksums */
} taken;

static const rks_schema *schema;
static rks_buffer payload;
static taken now;

rks_status __wrap_rks_shard_writer_begin(rks_shard_writer *writer, uint64_t unit,
                                         const char *key_name, uint64_t first_source_row,
                                         rks_error *err);
rks_status __wrap_rks_shard_writer_add(rks_shard_writer *writer, const rks_value *values,
                                       const void *key, size_t key_size, uint32_t length,
                                       uint32_t source_row, rks_error *err);
rks_status __wrap_rks_shard_writer_end(rks_shard_writer *writer, uint64_t seen, uint64_t filtered,
                                       uint64_t bad, rks_error *err);

rks_status __wrap_rks_shard_writer_begin(rks_shard_writer *writer, uint64_t unit,
                                         const char *key_name, uint64_t first_source_row,
                                         rks_error *err)
{
    (void)writer, (void)unit, (void)key_name, (void)first_source_row, (void)err;
    return RKS_OK;
}

rks_status __wrap_rks_shard_writer_add(rks_shard_writer *writer, const rks_value *values,
                                       const void *key, size_t key_size, uint32_t length,
                                       uint32_t source_row, rks_error *err)
{
    (void)writer, (void)key, (void)key_size, (void)length, (void)source_row;
    uint32_t align = 0;
    uint64_t plain = 0;
    payload.size = 0;
    rks_status status = rks_record_encode(schema, values, &payload, &align, &plain, err);
    FUZZ_CHECK(status == RKS_OK || status == RKS_ERR_DATA); /* str that is not UTF-8 */
    if (status != RKS_OK)
        return status;
    now.samples++;
    now.sum += rks_checksum64(payload.data, payload.size);
    return RKS_OK;
}

rks_status __wrap_rks_shard_writer_end(rks_shard_writer *writer, uint64_t seen, uint64_t filtered,
                                       uint64_t bad, rks_error *err)
{
    (void)writer, (void)filtered, (void)err;
    FUZZ_CHECK(now.samples <= seen && bad <= seen);
    return RKS_OK;
}

static bool read_units(const rks_input *input, const char *schema_text)
{
    rks_schema *parsed = NULL;
    rks_selector *selector = NULL;
    rks_buffer bad = {0};
    rks_build_options options = {.length_unit = 1, .skip_bad = true, .max_sample = 1 << 20};
    FUZZ_CHECK(rks_schema_parse(schema_text, &parsed, NULL) == RKS_OK);
    rks_input_options(input, &options);
    schema = parsed;
    rks_status status = rks_selector_create(parsed, &options, &selector, NULL);
    for (size_t unit = 0; status == RKS_OK && unit < input->unit_count; unit++) {
        uint64_t rows = 0, before = now.samples;
        now.samples = 0;
        status =
            rks_ingest_unit(input, unit, 0, parsed, &options, selector, NULL, &bad, NULL, NULL);
        bool counted = unit + 1 < input->unit_count && !input->units[unit + 1].first_of_file;
        if (status == RKS_OK && counted)
            FUZZ_CHECK(rks_unit_count_rows(input, unit, &rows, NULL) == RKS_OK &&
                       now.samples <= rows);
        now.samples += before;
    }
    rks_selector_free(selector);
    rks_schema_free(parsed);
    rks_buffer_free(&bad);
    return status == RKS_OK;
}

/* The columns are those of the first file that had some, so that both cuts have the same. */
static bool read_file(const char *path, const char *format, uint64_t unit_size, char **text,
                      taken *made)
{
    rks_build_options options = {.format = format,
                                 .unit_size = unit_size,
                                 .skip_bad = true,
                                 .max_sample = 1 << 20,
                                 .max_total = 4 << 20};
    rks_input *input = NULL;
    bool good = rks_input_open(&path, 1, &options, &input, NULL) == RKS_OK;
    if (good && input->unit_count > 0 && *text == NULL)
        good = rks_ingest_infer(input, 0, text, NULL) == RKS_OK;
    now = (taken){0};
    good = good && *text != NULL && read_units(input, *text);
    *made = now;
    rks_input_free(input);
    rks_buffer_free(&payload);
    return good;
}

/* Cutting changes nothing. */
static void fuzz_build(const char *path, const char *format, uint64_t unit_size)
{
    char *text = NULL;
    taken whole, cut;
    if (read_file(path, format, 1 << 30, &text, &whole) &&
        read_file(path, format, unit_size, &text, &cut))
        FUZZ_CHECK(whole.samples == cut.samples && whole.sum == cut.sum);
    rks_free(text);
}

#endif
