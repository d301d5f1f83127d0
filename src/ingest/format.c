/* SPDX-License-Identifier: Apache-2.0
 *
 * format.c: the table of formats, and how the format of an input is found. */
#include "ingest/format.h"

#include <string.h>
#include <strings.h>

#include "base/buffer.h"
#include "base/c_locale.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "ingest/mds_index.h"
#include "ingest/unpack.h"

/* Places are part of a build's identity: only append. If two formats accept a file, the first one
 * gets it. */
static const rks_input_format *const FORMATS[] = {
    &rks_format_jsonl, &rks_format_text, &rks_format_folder, &rks_format_tar,      &rks_format_zip,
    &rks_format_csv,   &rks_format_tsv,  &rks_format_npy,    &rks_format_megatron, &rks_format_mds,
    &rks_format_npz,   &rks_format_json, &rks_format_raw};
enum { FORMAT_COUNT = sizeof(FORMATS) / sizeof(FORMATS[0]) };

size_t rks_format_number(const rks_input_format *format)
{
    size_t number = 0;
    while (number < FORMAT_COUNT && FORMATS[number] != format)
        number++;
    return number;
}

bool rks_name_ends(const char *name, const char *ending)
{
    size_t size = strlen(name), tail = strlen(ending);
    return size > tail && rks_same_ascii(name + size - tail, ending);
}

bool rks_bytes_are_text(const uint8_t *bytes, size_t size, bool all)
{
    size_t bad = 0;
    return memchr(bytes, 0, size) == NULL &&
           (rks_utf8_valid(bytes, size, &bad) || (!all && size - bad < 4));
}

bool rks_bytes_are_utf16(const uint8_t *bytes, size_t size)
{
    return size >= 2 && (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0);
}

uint64_t rks_infer_bytes(const rks_input *input, size_t unit)
{
    uint64_t share = input->units[unit].size / 32, least = 64 << 10;
    share = share < least ? least : share;
    return unit == 0 || input->infer_all || share > input->infer_bytes ? input->infer_bytes : share;
}

rks_status rks_too_many_units(uint64_t unit_size, rks_error *err)
{
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "unit_size: %llu bytes make more than %d units; take a larger one",
                    (unsigned long long)unit_size, RKS_UNITS_MAX);
}

rks_status rks_unit_add(rks_input *input, rks_input_unit unit, uint64_t unit_size, rks_error *err)
{
    if (input->unit_count == RKS_UNITS_MAX)
        return rks_too_many_units(unit_size, err);
    if (input->unit_count == input->unit_room) {
        size_t room = input->unit_room == 0 ? 64 : 2 * input->unit_room;
        rks_input_unit *grown = rks_realloc(input->units, room, sizeof(*grown), err);
        if (grown == NULL)
            return RKS_ERR_MEMORY;
        input->units = grown;
        input->unit_room = room;
    }
    unit.number = input->unit_count;
    unit.file_count = 1;
    input->units[input->unit_count++] = unit;
    return RKS_OK;
}

rks_status rks_unit_of_bytes(rks_input *input, size_t file, uint64_t begin, uint64_t end,
                             uint64_t unit_size, rks_error *err)
{
    const rks_input_unit unit = {
        .first_file = file, .offset = begin, .size = end - begin, .first_of_file = begin == 0};
    return rks_unit_add(input, unit, unit_size, err);
}

rks_status rks_unit_of_file(rks_input *input, size_t file, uint64_t unit_size, rks_error *err)
{
    uint64_t size = input->files[file].size;
    return size == 0 ? RKS_OK : rks_unit_of_bytes(input, file, 0, size, unit_size, err);
}

rks_status rks_cut_by_file(rks_input *input, uint64_t unit_size, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < input->file_count; i++)
        status = rks_unit_of_file(input, i, unit_size, err);
    return status;
}

/* Reads the first bytes, unpacked; *all is true if there are no more. */
static rks_status look_into(const rks_input_file *file, uint8_t *bytes, size_t *size, bool *all,
                            rks_error *err)
{
    rks_unpack *stream = NULL;
    size_t got = 1;
    rks_status status = rks_unpack_open(file, 0, &stream, err);
    for (*size = 0; status == RKS_OK && got > 0 && *size < RKS_FORMAT_LOOK; *size += got)
        status = rks_unpack_read(stream, bytes + *size, RKS_FORMAT_LOOK - *size, &got, err);
    *all = got == 0 || (file->packing == RKS_PACKING_NONE && *size == file->size);
    rks_unpack_close(stream);
    return status;
}

/* Finds the format by the first bytes, or refines *format, which the name gave. It stays NULL for
 * an empty file, which fits any format. */
static rks_status by_content(const rks_input_file *file, const rks_input_format **format,
                             rks_error *err)
{
    size_t size = 0;
    bool all = false;
    uint8_t *bytes = rks_alloc_raw(RKS_FORMAT_LOOK, 1, err);
    if (bytes == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = look_into(file, bytes, &size, &all, err);
    if (status == RKS_OK && *format != NULL)
        *format = size == 0 ? NULL : (*format)->look_closer(bytes, size);
    if (status == RKS_OK && size > 0 && *format == NULL &&
        rks_format_json.looks_like(bytes, size, all))
        *format = &rks_format_json; /* jsonl would accept it, too */
    for (size_t i = 0; status == RKS_OK && size > 0 && i < FORMAT_COUNT && *format == NULL; i++)
        if (FORMATS[i]->looks_like != NULL && FORMATS[i]->looks_like(bytes, size, all))
            *format = FORMATS[i];
    if (status == RKS_OK && size > 0 && *format == NULL)
        status = rks_bytes_are_utf16(bytes, size)
                     ? rks_fail(err, RKS_ERR_DATA, 0, "%s: " RKS_UTF16_ADVICE, file->path)
                     : rks_fail(err, RKS_ERR_DATA, 0,
                                "%s: neither JSON nor UTF-8 text, nor anything else that is known; "
                                "give format",
                                file->path);
    rks_free(bytes);
    return status;
}

/* file->packing is set. */
static rks_status of_file(const rks_input_file *file, const rks_input_format **format,
                          rks_error *err)
{
    const char *slash = strrchr(file->path, '/');
    char *name = rks_strdup(slash == NULL ? file->path : slash + 1, err);
    if (name == NULL)
        return RKS_ERR_MEMORY;
    if (file->packing != RKS_PACKING_NONE)
        name[strlen(name) - rks_packing_ending(name)] = '\0';
    *format = NULL;
    for (size_t i = 0; i < FORMAT_COUNT && *format == NULL; i++)
        if (FORMATS[i]->is_named != NULL && FORMATS[i]->is_named(name))
            *format = FORMATS[i];
    rks_free(name);
    bool known = *format != NULL && (*format)->look_closer == NULL;
    rks_status status = known ? RKS_OK : by_content(file, format, err);
    if (status == RKS_OK && *format != NULL && file->packing != RKS_PACKING_NONE &&
        !(*format)->packable)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: %s input is not read compressed; unpack it",
                        file->path, (*format)->name);
    return status;
}

char *rks_format_find_source(const char *path, const char *asked)
{
    char *found = NULL;
    for (size_t i = 0; i < FORMAT_COUNT && found == NULL; i++)
        if (FORMATS[i]->find_source != NULL &&
            (asked == NULL || strcmp(asked, FORMATS[i]->name) == 0))
            found = FORMATS[i]->find_source(path);
    return found;
}

static const rks_input_format *of_folder(const char *path)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (FORMATS[i]->is_folder != NULL && FORMATS[i]->is_folder(path))
            return FORMATS[i];
    return &rks_format_folder;
}

static rks_status asked_for(const char *name, const rks_input_format **format, rks_error *err)
{
    rks_buffer names = {0};
    rks_status status = RKS_OK;
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        if (strcmp(name, FORMATS[i]->name) == 0) {
            *format = FORMATS[i];
            rks_buffer_free(&names);
            return RKS_OK;
        }
        if (status == RKS_OK)
            status = rks_buffer_print(&names, err, "%s%s",
                                      i == 0                  ? ""
                                      : i + 1 == FORMAT_COUNT ? " and "
                                                              : ", ",
                                      FORMATS[i]->name);
    }
    if (status == RKS_OK)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "format: \"%s\" is not known; there are %.*s",
                          name, (int)names.size, (const char *)names.data);
    rks_buffer_free(&names);
    return status;
}

static rks_status find_packings(rks_found_list *list, const bool *folders, bool in_folders,
                                rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < list->count; i++)
        if (in_folders || !folders[list->found[i].source])
            status = rks_packing_find(&list->found[i].file, &list->found[i].file.packing, err);
    return status;
}

/* The format of a source folder in a store, by the objects below it. */
static rks_status of_stored_folder(const rks_found_list *list, size_t source,
                                   const rks_input_format **format, rks_error *err)
{
    rks_status status = RKS_OK;
    bool mds = false;
    for (size_t i = 0; status == RKS_OK && i < list->count && !mds; i++)
        if (list->found[i].source == source && strcmp(list->found[i].file.name, RKS_MDS_INDEX) == 0)
            status = rks_mds_is_index(&list->found[i].file, &mds, err);
    *format = mds ? &rks_format_mds : &rks_format_folder;
    return status;
}

/* Returns true if both are objects whose names end alike: the second is not looked into, as a
 * request for each of many would be slow. */
static bool are_alike(const rks_input_file *looked, const rks_input_file *file)
{
    const char *a, *b;
    if (looked == NULL || file->store == NULL)
        return false;
    a = strrchr(looked->name, '.');
    b = strrchr(file->name, '.');
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Finds the format of all files: the first that is not empty decides. `of_source` is room for the
 * format of each source. */
static rks_status find_common(const rks_found_list *list, const char *const *sources,
                              const bool *folders, const rks_input_format **of_source,
                              const rks_input_format **format, rks_error *err)
{
    const rks_input_file *first = NULL, *looked = NULL; /* an object, and as what */
    const rks_input_format *looked_as = NULL;
    *format = &rks_format_text; /* if all files are empty */
    for (size_t i = 0; i < list->count; i++) {
        const rks_input_file *file = &list->found[i].file;
        size_t source = list->found[i].source;
        const rks_input_format *found = NULL;
        rks_status status = RKS_OK;
        if (folders[source] && of_source[source] == NULL && file->store != NULL)
            status = of_stored_folder(list, source, &of_source[source], err);
        else if (folders[source] && of_source[source] == NULL)
            of_source[source] = of_folder(sources[source]);
        if (folders[source])
            found = of_source[source];
        else if (are_alike(looked, file))
            found = looked_as;
        else
            status = of_file(file, &found, err);
        if (status != RKS_OK)
            return status;
        if (!folders[source] && file->store != NULL && found != NULL) {
            looked = file;
            looked_as = found;
        }
        if (first != NULL && found != NULL && found != *format)
            return rks_fail(err, RKS_ERR_DATA, 0, "%s is %s and %s is %s: give format", first->path,
                            (*format)->name, file->path, found->name);
        if (first == NULL && found != NULL) {
            first = file;
            *format = found;
        }
    }
    return RKS_OK;
}

rks_status rks_format_find(rks_found_list *list, const char *const *sources, const bool *folders,
                           size_t source_count, const char *asked, const rks_input_format **format,
                           rks_error *err)
{
    const rks_input_format *chosen = NULL;
    const rks_input_format **of_source = rks_alloc(source_count, sizeof(chosen), err);
    if (of_source == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = asked == NULL ? RKS_OK : asked_for(asked, &chosen, err);
    if (status == RKS_OK && (chosen == NULL || chosen->packable))
        status = find_packings(list, folders, chosen != NULL, err);
    if (status == RKS_OK && chosen == NULL)
        status = find_common(list, sources, folders, of_source, &chosen, err);
    rks_free(of_source);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; i < list->count; i++) {
        rks_input_file *file = &list->found[i].file;
        size_t size = strlen(file->name), ending = rks_packing_ending(file->name);
        if (file->packing != RKS_PACKING_NONE)
            file->name[size - ending] = '\0';
    }
    *format = chosen;
    return RKS_OK;
}
