/* SPDX-License-Identifier: Apache-2.0
 *
 * csv_unit.c: reads headers and the records of a unit. The header is the first record of each file;
 * the file's other units read it, too. */
#include "ingest/csv_unit.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

static char separator_of(const rks_input *input)
{
    return input->format == &rks_format_tsv ? '\t' : ',';
}

/* ---- names ----------------------------------------------------------------------------------- */

void rks_csv_header_free(rks_csv_header *h)
{
    rks_free(h->text);
    rks_free(h->names);
    *h = (rks_csv_header){0};
}

/* The first column of a file may lack a name, as pandas writes its index. */
static rks_status check_header_name(const rks_csv_header *h, size_t at, const char *path,
                                    bool in_file, rks_error *err)
{
    if (h->names[at][0] == '\0' && in_file && at == 0 && h->count > 1)
        return RKS_OK;
    if (h->names[at][0] == '\0')
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: column %zu has no name; if the first record holds values, give "
                        "the names by columns",
                        path, at + 1);
    for (size_t k = 0; k < at; k++)
        if (strcmp(h->names[k], h->names[at]) == 0)
            return rks_fail(err, RKS_ERR_DATA, 0, "%s: two columns are called \"%.64s\"", path,
                            h->names[at]);
    return RKS_OK;
}

/* Makes a header from a record whose fields are the names. */
static rks_status make_header(rks_csv_header *h, rks_csv_record *record, char separator,
                              const char *path, bool in_file, rks_error *err)
{
    rks_csv_field *fields = rks_alloc(RKS_COLUMNS_MAX, sizeof(*fields), err);
    size_t size = 0;
    rks_error inner = {0};
    if (fields == NULL)
        return RKS_ERR_MEMORY;
    rks_status status =
        rks_csv_fields(record, separator, fields, RKS_COLUMNS_MAX, &h->count, &inner);
    if (status != RKS_OK)
        status = rks_fail(err, status, 0, "%s: header: %s", path, inner.text);
    else if (h->count > RKS_COLUMNS_MAX)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: header: %zu columns, at most %d", path,
                          h->count, RKS_COLUMNS_MAX);
    for (size_t i = 0; status == RKS_OK && i < h->count; i++)
        size += fields[i].size + 1;
    if (status == RKS_OK) {
        h->text = rks_alloc(size, 1, err);
        h->names = rks_alloc(h->count, sizeof(*h->names), err);
        status = h->text == NULL || h->names == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    char *at = h->text;
    for (size_t i = 0; status == RKS_OK && i < h->count; i++) {
        if (memchr(fields[i].text, '\0', fields[i].size) != NULL || fields[i].size > 255)
            status = rks_fail(err, RKS_ERR_DATA, 0,
                              "%s: header: column %zu: no name of 1 to 255 "
                              "bytes",
                              path, i + 1);
        memcpy(at, fields[i].text, fields[i].size);
        h->names[i] = at;
        at += fields[i].size + 1;
        if (status == RKS_OK)
            status = check_header_name(h, i, path, in_file, err);
    }
    rks_free(fields);
    return status;
}

rks_status rks_csv_header_read(const rks_input *input, const rks_input_file *file,
                               rks_csv_header *h, rks_error *err)
{
    rks_csv csv = {0};
    rks_csv_record record = {0};
    rks_status status;
    if (input->columns != NULL) {
        char *copy = rks_strdup(input->columns, err);
        if (copy == NULL)
            return RKS_ERR_MEMORY;
        record = (rks_csv_record){.text = (uint8_t *)copy, .size = strlen(copy), .quoted = true};
        status = make_header(h, &record, ',', "columns", false, err);
        rks_free(copy);
        return status;
    }
    /* Opens a range of one byte, so that a unit's thread does not read a MiB more for the
     * header. */
    status = rks_csv_open(&csv, file, 0, file->size > 0, 1 << 20, err);
    if (status == RKS_OK)
        status = rks_csv_next(&csv, &record, err);
    if (status == RKS_OK && (record.text == NULL || record.too_long))
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: its first record is not a header", file->path);
    if (status == RKS_OK)
        status = make_header(h, &record, separator_of(input), file->path, true, err);
    rks_csv_close(&csv);
    return status;
}

/* ---- records of a unit ----------------------------------------------------------------------- */

void rks_csv_unit_close(rks_csv_unit *r)
{
    rks_csv_close(&r->csv);
    rks_csv_header_free(&r->header);
    rks_free(r->fields);
}

rks_status rks_csv_unit_open(rks_csv_unit *r, const rks_input *input, const rks_input_unit *unit,
                             uint64_t limit, rks_error *err)
{
    const rks_input_file *file = &input->files[unit->first_file];
    rks_csv_record skipped;
    *r = (rks_csv_unit){.separator = separator_of(input)};
    rks_status status = rks_csv_header_read(input, file, &r->header, err);
    if (status == RKS_OK) {
        r->fields = rks_alloc(r->header.count, sizeof(*r->fields), err);
        status = r->fields == NULL
                     ? RKS_ERR_MEMORY
                     : rks_csv_open(&r->csv, file, unit->offset, unit->size, limit, err);
    }
    if (status == RKS_OK && unit->offset == 0 && input->columns == NULL)
        status = rks_csv_next(&r->csv, &skipped, err);
    return status;
}

rks_status rks_csv_unit_split(rks_csv_unit *r, rks_csv_record *record, rks_error *err)
{
    rks_status status =
        rks_csv_fields(record, r->separator, r->fields, r->header.count, &r->count, err);
    if (status == RKS_OK && r->count != r->header.count)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%zu fields, there are %zu columns", r->count,
                          r->header.count);
    return status;
}
