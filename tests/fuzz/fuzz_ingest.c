/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_ingest.c: hostile JSONL and where texts. The first byte chooses:
 *   0  the rest is a `where`, and a rule of `count`, applied to a fixed row
 *   1  the rest is a line for a schema with every kind of column; what is taken must encode
 *   2  a byte of unit size, then a file: its lines are cut, counted, inferred, merged and read with
 *      what was inferred; the lines of all units together are the lines of the whole */
#include "fuzz.h"

#include "base/buffer.h"
#include "ingest/ingest.h"
#include "ingest/lines.h"
#include "ingest/row.h"
#include "codec/filter.h"
#include "ingest/item_count.h"
#include "shard/record.h"

static const char SCHEMA[] =
    "n:int32,u:uint64?,x:float32,h:float16?,q:float8_e4m3fn?,ok:bool?,s:str,raw:bytes?,j:json?,"
    "ids:int32[*],mel:float16[2,*]?,any:int8[*,*]?,z:complex64?";
static const char ROW[] =
    "{\"n\": -3, \"u\": 7, \"x\": 0.1, \"h\": 1.5, \"ok\": true, \"s\": \"text\", "
    "\"ids\": [1, 2], \"j\": {\"a\": 1}}";

static rks_schema *schema;

static void fuzz_where(const char *text)
{
    rks_where *where = NULL;
    rks_row *row = NULL;
    bool keep = false;
    if (rks_where_parse(schema, text, &where, NULL) == RKS_OK) {
        FUZZ_CHECK(rks_row_create(schema, false, &row, NULL) == RKS_OK);
        FUZZ_CHECK(rks_row_parse(row, (const uint8_t *)ROW, strlen(ROW), strlen(ROW), NULL) ==
                   RKS_OK);
        FUZZ_CHECK(rks_where_test(where, row->values, &keep, NULL) == RKS_OK);
    }
    rks_row_free(row);
    rks_where_free(where);
}

static void fuzz_count(const char *text)
{
    rks_schema *whole = NULL;
    rks_item_counts *counts = NULL;
    rks_row *row = NULL;
    if (rks_item_counts_schema(schema, &text, 1, &whole, NULL) == RKS_OK &&
        rks_item_counts_create(whole, &text, 1, &counts, NULL) == RKS_OK) {
        FUZZ_CHECK(rks_row_create(schema, false, &row, NULL) == RKS_OK);
        FUZZ_CHECK(rks_row_parse(row, (const uint8_t *)ROW, strlen(ROW), strlen(ROW), NULL) ==
                   RKS_OK);
        const rks_value *values = rks_item_counts_apply(counts, row->values);
        int64_t found = *(const int64_t *)values[rks_schema_columns(schema)].data;
        FUZZ_CHECK(found >= 0 && found <= 2);
    }
    rks_row_free(row);
    rks_item_counts_free(counts);
    rks_schema_free(whole);
}

static void fuzz_line(const uint8_t *line, size_t size)
{
    rks_row *row = NULL;
    rks_buffer payload = {0};
    uint32_t align = 0;
    uint64_t plain = 0;
    FUZZ_CHECK(rks_row_create(schema, false, &row, NULL) == RKS_OK);
    if (rks_row_parse(row, line, size, size, NULL) == RKS_OK)
        FUZZ_CHECK(rks_record_encode(schema, row->values, &payload, &align, &plain, NULL) ==
                   RKS_OK);
    rks_buffer_free(&payload);
    rks_row_free(row);
}

static void read_unit(const rks_input *input, size_t unit, rks_row *row, rks_buffer *all)
{
    const rks_input_unit *at = &input->units[unit];
    rks_lines lines;
    rks_line line = {0};
    uint64_t rows = 0, counted = 0;
    FUZZ_CHECK(rks_lines_open(&lines, input->files, at->offset, at->size, 1 << 20, NULL) == RKS_OK);
    for (;; rows++) {
        FUZZ_CHECK(rks_lines_next(&lines, &line, NULL) == RKS_OK);
        if (line.text == NULL)
            break;
        FUZZ_CHECK(rks_buffer_add(all, line.text, line.size, NULL) == RKS_OK);
        FUZZ_CHECK(rks_buffer_add(all, "\n", 1, NULL) == RKS_OK);
        if (row != NULL)
            rks_row_parse(row, line.text, line.size, line.size, NULL);
    }
    rks_lines_close(&lines);
    FUZZ_CHECK(rks_unit_count_rows(input, unit, &counted, NULL) == RKS_OK && counted == rows);
}

static void read_all(const char *path, uint64_t unit_size, rks_buffer *all)
{
    rks_ingest_options options = {.format = "jsonl", .unit_size = unit_size, .skip_bad = true};
    rks_input *input = NULL;
    rks_schema *inferred = NULL;
    rks_row *row = NULL;
    char *text = NULL, *merged = NULL;
    FUZZ_CHECK(rks_input_open(&path, 1, &options, &input, NULL) == RKS_OK);
    if (input->files[0].packing != RKS_PACKING_NONE) { /* fuzz_archive's */
        rks_input_free(input);
        return;
    }
    if (input->unit_count > 0 && rks_ingest_infer(input, 0, &text, NULL) == RKS_OK &&
        text != NULL) {
        FUZZ_CHECK(rks_ingest_merge(text, text, &merged, NULL) == RKS_OK &&
                   strcmp(text, merged) == 0);
        FUZZ_CHECK(rks_schema_parse(text, &inferred, NULL) == RKS_OK);
        FUZZ_CHECK(rks_row_create(inferred, true, &row, NULL) == RKS_OK);
    }
    for (size_t u = 0; u < input->unit_count; u++)
        read_unit(input, u, row, all);
    rks_row_free(row);
    rks_schema_free(inferred);
    rks_free(merged);
    rks_free(text);
    rks_input_free(input);
}

static void fuzz_file(const uint8_t *bytes, size_t size, uint64_t unit_size)
{
    const char *path = fuzz_file_of(bytes, size);
    rks_buffer cut = {0}, whole = {0};
    read_all(path, unit_size, &cut);
    read_all(path, 0, &whole);
    FUZZ_CHECK(cut.size == whole.size &&
               (cut.size == 0 || memcmp(cut.data, whole.data, cut.size) == 0));
    rks_buffer_free(&cut);
    rks_buffer_free(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (schema == NULL)
        FUZZ_CHECK(rks_schema_parse(SCHEMA, &schema, NULL) == RKS_OK);
    if (size < 2)
        return 0;
    long before = rks_memory_in_use();
    if (data[0] % 3 == 0) {
        char *text = malloc(size);
        FUZZ_CHECK(text != NULL);
        memcpy(text, data + 1, size - 1);
        text[size - 1] = '\0';
        fuzz_where(text);
        fuzz_count(text);
        free(text);
    } else if (data[0] % 3 == 1) {
        fuzz_line(data + 1, size - 1);
    } else {
        fuzz_file(data + 2, size - 2, 1 + data[1]);
    }
    FUZZ_CHECK(rks_memory_in_use() == before);
    return 0;
}
