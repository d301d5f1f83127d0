/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_csv.c: any bytes as a CSV file: the same records wherever it is cut, and fields within them.
 */
#include "fuzz.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "ingest/csv_record.h"
#include "ingest/ingest.h"
#include "ingest/unit.h"

static void read_range(const rks_input_file *file, uint64_t offset, uint64_t size, uint64_t limit,
                       rks_buffer *all)
{
    rks_csv csv;
    rks_csv_record record;
    FUZZ_CHECK(rks_csv_open(&csv, file, offset, size, limit, NULL) == RKS_OK);
    for (;;) {
        rks_csv_field fields[4];
        size_t count = 0;
        FUZZ_CHECK(rks_csv_next(&csv, &record, NULL) == RKS_OK);
        if (record.text == NULL)
            break;
        FUZZ_CHECK(record.too_long == (record.size > limit));
        FUZZ_CHECK(rks_buffer_add(all, &record.size, sizeof(record.size), NULL) == RKS_OK);
        if (record.too_long)
            continue;
        const uint8_t *text = record.text;
        rks_csv_fields(&record, ',', fields, 4, &count, NULL);
        for (size_t i = 0; i < count && i < 4; i++) {
            const uint8_t *field = (const uint8_t *)fields[i].text;
            FUZZ_CHECK(field >= text && field + fields[i].size <= text + record.size);
            FUZZ_CHECK(rks_buffer_add(all, field, fields[i].size, NULL) == RKS_OK);
        }
    }
    rks_csv_close(&csv);
}

typedef struct cutting {
    const rks_input_file *file;
    uint64_t begin, limit;
    rks_buffer all;
} cutting;

static rks_status cut(void *user, uint64_t offset, rks_error *err)
{
    (void)err;
    cutting *c = user;
    read_range(c->file, c->begin, offset - c->begin, c->limit, &c->all);
    c->begin = offset;
    return RKS_OK;
}

/* As a build sees it: header, types, rows. */
static void infer(const char *path, uint64_t unit_size)
{
    const rks_ingest_options options = {
        .format = "csv", .unit_size = unit_size, .skip_bad = true, .max_total = 1 << 20};
    rks_input *input = NULL;
    FUZZ_CHECK(rks_input_open(&path, 1, &options, &input, NULL) == RKS_OK);
    for (size_t unit = 0; unit < input->unit_count; unit++) {
        char *text = NULL;
        uint64_t rows = 0;
        if (rks_ingest_infer(input, unit, &text, NULL) == RKS_OK && text != NULL) {
            rks_schema *schema = NULL;
            if (rks_schema_parse(text, &schema, NULL) == RKS_OK)
                rks_schema_free(schema);
        }
        rks_free(text);
        rks_unit_count_rows(input, unit, &rows, NULL);
    }
    rks_input_free(input);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    long before = rks_memory_in_use();
    size -= 2;
    char *path = fuzz_file_of(data + 2, size);
    const rks_input_file file = {.path = path, .name = path, .size = size};
    rks_buffer whole = {0};
    cutting c = {.file = &file, .limit = data[1]};
    read_range(&file, 0, size, c.limit, &whole);
    FUZZ_CHECK(rks_csv_cuts(&file, 1u + data[0], cut, &c, NULL) == RKS_OK);
    read_range(&file, c.begin, size - c.begin, c.limit, &c.all);
    FUZZ_CHECK(c.all.size == whole.size &&
               (whole.size == 0 || memcmp(c.all.data, whole.data, whole.size) == 0));
    infer(path, 4096);
    rks_buffer_free(&whole);
    rks_buffer_free(&c.all);
    FUZZ_CHECK(rks_memory_in_use() == before);
    return 0;
}
