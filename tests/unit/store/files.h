/* SPDX-License-Identifier: Apache-2.0
 *
 * files.h: JSON lines of which all follows from their number, and builds of them by ranks that are
 * threads. */
#ifndef RKS_TESTS_STORE_FILES_H
#define RKS_TESTS_STORE_FILES_H

#include "world.h"

enum { FILE_ROWS = 300, FILE_UNIT = 4096 };

/* Row `number`: {"id": ..., "text": "..."} of 30 to 79 bytes of text; those of which bad(number) is
 * true are no JSON. */
static inline uint32_t file_text_size(uint64_t number)
{
    return (uint32_t)(30 + number * 7 % 50);
}

static inline void file_write(const char *path, uint64_t first, uint64_t rows,
                              bool (*bad)(uint64_t number))
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (uint64_t number = first; number < first + rows; number++) {
        if (bad != NULL && bad(number)) {
            fprintf(file, "{\"id\": %llu, \"text\":\n", (unsigned long long)number);
            continue;
        }
        fprintf(file, "{\"id\": %llu, \"text\": \"", (unsigned long long)number);
        for (uint32_t i = 0; i < file_text_size(number); i++)
            fputc((int)('a' + (number + i) % 26), file);
        fputs("\"}\n", file);
    }
    assert_int_equal(fclose(file), 0);
}

/* Is sample i of the batch row `number`? */
static inline bool file_is(rks_batch *batch, size_t i, uint64_t number)
{
    rks_value id, text;
    int64_t told;
    if (rks_batch_value(batch, i, 0, &id, NULL) != RKS_OK || id.size != sizeof(told) ||
        rks_batch_value(batch, i, 1, &text, NULL) != RKS_OK || text.size != file_text_size(number))
        return false;
    memcpy(&told, id.data, sizeof(told));
    for (uint32_t at = 0; at < text.size; at++)
        if (((const char *)text.data)[at] != (char)('a' + (number + at) % 26))
            return false;
    return told == (int64_t)number;
}

static inline void file_options(rks_build_options *options)
{
    rks_build_options_default(options);
    options->unit_size = FILE_UNIT; /* about 40 rows */
    options->block_size = 64 << 10;
    options->length = "text";
}

#endif
