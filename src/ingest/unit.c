/* SPDX-License-Identifier: Apache-2.0
 *
 * unit.c: what is in the sources, cut into units and dealt out.
 *
 * The digest is XXH3-128 over, little-endian:
 *   u64 files; each: u64 format, u64 size, u64 bytes of the name, name
 *   u64 units; each: u64 first file, u64 files, u64 offset, u64 size
 */
#include "ingest/unit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "ingest/lines.h"
#include "ingest/walk.h"
#include "shard/utf8.h"

enum { LOOK = 64 << 10, FILE_WEIGHT = 4096 };

static const uint64_t DEFAULT_UNIT_SIZE = (uint64_t)64 << 20;
static const uint64_t DEFAULT_MAX_SAMPLE = (uint64_t)1 << 30;
static const char *const FORMAT_NAMES[] = {"jsonl", "text", "folder"};

static bool ends_with(const char *name, const char *ending)
{
    size_t size = strlen(name), tail = strlen(ending);
    return size > tail && strcasecmp(name + size - tail, ending) == 0;
}

/* *known is false for an empty file, which goes along with the others. */
static rks_status format_by_content(const rks_input_file *file, rks_input_format *format,
                                    bool *known, rks_error *err)
{
    *known = file->size > 0;
    if (file->size == 0)
        return RKS_OK;
    int fd = -1;
    size_t size = 0, bad = 0;
    uint8_t *bytes = rks_alloc_raw(LOOK, 1, err);
    if (bytes == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_input_file_open(file, &fd, err);
    if (status == RKS_OK)
        status = rks_input_file_read(file, fd, 0, bytes, LOOK, &size, err);
    if (status != RKS_OK)
        goto out;
    size_t at = size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < size && (bytes[at] == ' ' || (bytes[at] >= '\t' && bytes[at] <= '\r')))
        at++;
    /* What was read may end inside a character. */
    bool text = rks_utf8_valid(bytes, size, &bad) || (size < file->size && size - bad < 4);
    if (!text || memchr(bytes, 0, size) != NULL)
        status = rks_fail(err, RKS_ERR_DATA, 0,
                          "%s: neither JSON lines nor UTF-8 text (compressed?); give --format",
                          file->path);
    else
        *format = at < size && bytes[at] == '{' ? RKS_FORMAT_JSONL : RKS_FORMAT_TEXT;
out:
    if (fd >= 0)
        close(fd);
    rks_free(bytes);
    return status;
}

static rks_status format_of(const rks_input_file *file, bool folder, rks_input_format *format,
                            bool *known, rks_error *err)
{
    *known = true;
    if (folder)
        *format = RKS_FORMAT_FOLDER;
    else if (ends_with(file->path, ".jsonl") || ends_with(file->path, ".ndjson") ||
             ends_with(file->path, ".json"))
        *format = RKS_FORMAT_JSONL;
    else if (ends_with(file->path, ".txt"))
        *format = RKS_FORMAT_TEXT;
    else
        return format_by_content(file, format, known, err);
    return RKS_OK;
}

static rks_status find_format(const rks_found_list *list, const bool *folders, const char *asked,
                              rks_input_format *format, rks_error *err)
{
    for (size_t i = 0; asked != NULL && i < 3; i++) {
        if (strcmp(asked, FORMAT_NAMES[i]) == 0) {
            *format = (rks_input_format)i;
            return RKS_OK;
        }
    }
    if (asked != NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "format: \"%s\" is not known; there are jsonl, text and folder", asked);
    const rks_input_file *first = NULL;
    *format = RKS_FORMAT_TEXT;
    for (size_t i = 0; i < list->count; i++) {
        const rks_input_file *file = &list->found[i].file;
        rks_input_format found = RKS_FORMAT_TEXT;
        bool known = false;
        rks_status status = format_of(file, folders[list->found[i].source], &found, &known, err);
        if (status != RKS_OK)
            return status;
        if (first != NULL && known && found != *format)
            return rks_fail(err, RKS_ERR_DATA, 0, "%s is %s and %s is %s: give --format",
                            first->path, FORMAT_NAMES[*format], file->path, FORMAT_NAMES[found]);
        if (first == NULL && known) {
            first = file;
            *format = found;
        }
    }
    return RKS_OK;
}

static rks_status too_many(uint64_t unit_size, rks_error *err)
{
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "unit_size: %" PRIu64 " bytes make more than %d units; take a larger one",
                    unit_size, RKS_UNITS_MAX);
}

static rks_status count_units(const rks_input *input, uint64_t unit_size, size_t *count,
                              rks_error *err)
{
    uint64_t units = 0;
    for (size_t i = 0; i < input->file_count; i++) {
        uint64_t size = input->files[i].size;
        units += size / unit_size + (size % unit_size != 0);
        if (units > RKS_UNITS_MAX)
            return too_many(unit_size, err);
    }
    *count = (size_t)units;
    return RKS_OK;
}

static rks_status cut_lines(rks_input *input, uint64_t unit_size, rks_error *err)
{
    size_t count = 0;
    rks_status status = count_units(input, unit_size, &count, err);
    if (status != RKS_OK)
        return status;
    input->units = rks_alloc(count, sizeof(*input->units), err);
    if (input->units == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < input->file_count; i++) {
        uint64_t size = input->files[i].size;
        for (uint64_t offset = 0; offset < size; offset += unit_size) {
            uint64_t left = size - offset;
            input->units[input->unit_count] = (rks_input_unit){
                .number = input->unit_count,
                .first_file = i,
                .file_count = 1,
                .offset = offset,
                .size = left < unit_size ? left : unit_size,
                .first_of_file = offset == 0,
            };
            input->unit_count++;
            if (left <= unit_size)
                break; /* offset + unit_size might overflow */
        }
    }
    return RKS_OK;
}

static rks_status cut_folder(rks_input *input, uint64_t unit_size, rks_error *err)
{
    rks_input_unit *unit = NULL;
    input->units = rks_alloc(input->file_count, sizeof(*input->units), err);
    if (input->units == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < input->file_count; i++) {
        uint64_t size = input->files[i].size;
        if (unit == NULL || unit->file_count == RKS_UNIT_FILES_MAX || unit->size >= unit_size ||
            size > unit_size - unit->size) {
            if (input->unit_count == RKS_UNITS_MAX)
                return too_many(unit_size, err);
            unit = &input->units[input->unit_count];
            *unit = (rks_input_unit){
                .number = input->unit_count++, .first_file = i, .first_of_file = true};
        }
        unit->file_count++;
        unit->size += size;
    }
    return RKS_OK;
}

static void digest_number(rks_digester *digester, uint64_t value)
{
    uint8_t bytes[8];
    rks_store_u64(bytes, value);
    rks_digester_update(digester, bytes, sizeof(bytes));
}

static rks_status digest_input(rks_input *input, rks_error *err)
{
    rks_digester *digester = rks_digester_create(err);
    if (digester == NULL)
        return RKS_ERR_MEMORY;
    digest_number(digester, input->file_count);
    for (size_t i = 0; i < input->file_count; i++) {
        const rks_input_file *file = &input->files[i];
        digest_number(digester, (uint64_t)file->format);
        digest_number(digester, file->size);
        digest_number(digester, strlen(file->name));
        rks_digester_update(digester, file->name, strlen(file->name));
    }
    digest_number(digester, input->unit_count);
    for (size_t i = 0; i < input->unit_count; i++) {
        const rks_input_unit *unit = &input->units[i];
        digest_number(digester, unit->first_file);
        digest_number(digester, unit->file_count);
        digest_number(digester, unit->offset);
        digest_number(digester, unit->size);
    }
    input->digest = rks_digester_result(digester);
    rks_digester_free(digester);
    return RKS_OK;
}

/* Moves the files out of the list. */
static rks_status take_files(rks_input *input, rks_found_list *list, rks_error *err)
{
    input->files = rks_alloc(list->count, sizeof(*input->files), err);
    if (input->files == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < list->count; i++) {
        input->files[i] = list->found[i].file;
        input->files[i].format = input->format;
        if (__builtin_add_overflow(input->bytes, input->files[i].size, &input->bytes))
            input->bytes = UINT64_MAX;
    }
    input->file_count = list->count;
    list->count = 0;
    return RKS_OK;
}

rks_status rks_input_open(const char *const *sources, size_t count,
                          const rks_build_options *options, rks_input **input, rks_error *err)
{
    rks_error unseen;
    if (err == NULL)
        err = &unseen;
    rks_found_list list = {0};
    rks_input *opened = NULL;
    uint64_t unit_size = options->unit_size != 0 ? options->unit_size : DEFAULT_UNIT_SIZE;
    if (count == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "no sources were given");
    bool *folders = rks_alloc(count, sizeof(*folders), err);
    if (folders == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = rks_walk(sources[i], i, &list, &folders[i], err);
    if (status == RKS_OK)
        status = rks_walk_name(sources, count, folders, &list, err);
    if (status != RKS_OK)
        goto out;
    opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL) {
        status = RKS_ERR_MEMORY;
        goto out;
    }
    opened->max_sample = options->max_sample != 0 ? options->max_sample : DEFAULT_MAX_SAMPLE;
    opened->skip_bad = options->skip_bad;
    status = find_format(&list, folders, options->format, &opened->format, err);
    if (status == RKS_OK)
        status = take_files(opened, &list, err);
    if (status == RKS_OK)
        status = opened->format == RKS_FORMAT_FOLDER ? cut_folder(opened, unit_size, err)
                                                     : cut_lines(opened, unit_size, err);
    if (status == RKS_OK)
        status = digest_input(opened, err);
    if (status == RKS_OK) {
        *input = opened;
        opened = NULL;
    }
out:
    rks_input_free(opened);
    rks_found_list_free(&list);
    rks_free(folders);
    return status;
}

void rks_input_free(rks_input *input)
{
    if (input == NULL)
        return;
    for (size_t i = 0; i < input->file_count; i++) {
        rks_free(input->files[i].path);
        rks_free(input->files[i].name);
    }
    rks_free(input->files);
    rks_free(input->units);
    rks_free(input);
}

rks_digest rks_input_digest(const rks_input *input)
{
    return input->digest;
}

void rks_input_options(const rks_input *input, rks_build_options *options)
{
    options->format = FORMAT_NAMES[input->format];
    if (input->format == RKS_FORMAT_FOLDER && options->key == NULL)
        options->key = "path";
}

typedef struct weighed {
    uint64_t weight;
    size_t unit;
} weighed;

static int by_weight(const void *a, const void *b)
{
    const weighed *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1; /* largest first */
    return (x->unit > y->unit) - (x->unit < y->unit);
}

typedef struct load {
    uint64_t weight;
    uint32_t rank;
} load;

static bool less(load a, load b)
{
    return a.weight != b.weight ? a.weight < b.weight : a.rank < b.rank;
}

/* Puts the heap's changed root where it belongs. */
static void sift(load *heap, uint32_t count)
{
    for (size_t at = 0;;) {
        size_t child = 2 * at + 1;
        if (child >= count)
            return;
        if (child + 1 < count && less(heap[child + 1], heap[child]))
            child++;
        if (!less(heap[child], heap[at]))
            return;
        load moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

rks_status rks_input_deal(const rks_input *input, uint32_t ranks, const bool *done,
                          uint32_t *owners, rks_error *err)
{
    if (ranks == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "units cannot be dealt to no ranks");
    load *heap = NULL;
    rks_status status = RKS_ERR_MEMORY;
    size_t count = 0;
    weighed *order = rks_alloc(input->unit_count, sizeof(*order), err);
    if (order == NULL)
        goto out;
    heap = rks_alloc(ranks, sizeof(*heap), err);
    if (heap == NULL)
        goto out;
    for (size_t i = 0; i < input->unit_count; i++) {
        const rks_input_unit *unit = &input->units[i];
        owners[i] = UINT32_MAX;
        if (done == NULL || !done[i])
            order[count++] = (weighed){unit->size + FILE_WEIGHT * (uint64_t)unit->file_count, i};
    }
    qsort(order, count, sizeof(*order), by_weight);
    for (uint32_t rank = 0; rank < ranks; rank++)
        heap[rank].rank = rank; /* equal loads in rank order are a heap */
    for (size_t i = 0; i < count; i++) {
        owners[order[i].unit] = heap[0].rank;
        heap[0].weight += order[i].weight;
        sift(heap, ranks);
    }
    status = RKS_OK;
out:
    rks_free(heap);
    rks_free(order);
    return status;
}

rks_status rks_unit_count_rows(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err)
{
    if (unit >= input->unit_count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %zu of %zu", unit, input->unit_count);
    const rks_input_unit *at = &input->units[unit];
    if (input->format == RKS_FORMAT_FOLDER) {
        *rows = at->file_count;
        return RKS_OK;
    }
    return rks_lines_count(&input->files[at->first_file], at->offset, at->size, rows, err);
}
