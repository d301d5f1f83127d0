/* SPDX-License-Identifier: Apache-2.0
 *
 * npz.c: .npz files: an array is a column, its first axis samples. A file is a unit.
 *
 * The arrays that an export adds for items of varying size are read back if NAME has one axis:
 *   NAME.offsets  int64 [N + 1]: sample i has items offsets[i] to offsets[i + 1] of NAME
 *   NAME.shapes   int64 [N, dimensions], beside .offsets
 *   NAME.missing  bool [N]
 * Such a column is inferred as NAME's type with a `*` for each dimension, and __key__ as str. A
 * schema may read uint8 as str, bytes or json. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/member_suffix.h"
#include "ingest/format.h"
#include "ingest/schema_inference.h"
#include "ingest/member_value.h"
#include "ingest/npz_array.h"

static bool is_npz_name(const char *name)
{
    return rks_name_ends(name, ".npz");
}

/* ---- columns --------------------------------------------------------------------------------- */

/* The arrays of a column. */
typedef struct parts {
    const rks_npz_array *data, *offsets, *shapes, *missing; /* the last three may be NULL */
    uint64_t rows;
    rks_npy row; /* used if there are no offsets */
} parts;

static const rks_npz_array *find_part(const rks_npz *npz, const char *name, const char *ending,
                                      rks_kind kind, uint32_t dim_count)
{
    const rks_npz_array *found = rks_npz_find(npz, name, ending);
    return found != NULL && found->refused.status == RKS_OK && found->npy.kind == kind &&
                   found->npy.dim_count == dim_count && !found->npy.fortran
               ? found
               : NULL;
}

static void find_parts(const rks_npz *npz, const char *name, parts *found)
{
    *found = (parts){.data = rks_npz_find(npz, name, "")};
    if (found->data == NULL || found->data->refused.status != RKS_OK)
        return;
    if (found->data->npy.dim_count == 1)
        found->offsets = find_part(npz, name, ".offsets", RKS_KIND_INT64, 1);
    if (found->offsets != NULL)
        found->shapes = find_part(npz, name, ".shapes", RKS_KIND_INT64, 2);
    found->missing = find_part(npz, name, ".missing", RKS_KIND_BOOL, 1);
}

/* Finds a column by its name, or by the name as an export writes it. */
static rks_status find_column(const rks_npz *npz, const char *name, parts *found, rks_error *err)
{
    rks_buffer escaped = {0};
    find_parts(npz, name, found);
    if (found->data != NULL)
        return RKS_OK;
    rks_status status = rks_member_escape(name, &escaped, err);
    if (status == RKS_OK)
        find_parts(npz, (const char *)escaped.data, found);
    rks_buffer_free(&escaped);
    return status;
}

static rks_status fail_in(const rks_npz *npz, const rks_npz_array *array, const char *why,
                          rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0, "%s: %s.npy: %s", npz->file->path, array->name, why);
}

static rks_status check_rows(const rks_npz *npz, const rks_npz_array *first, uint64_t rows,
                             const rks_npz_array *array, uint64_t others, rks_error *err)
{
    if (rows == others)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "%s: %s.npy has %" PRIu64 " rows, %s.npy %" PRIu64
                    "; the first axis of all arrays is samples",
                    npz->file->path, first->name, rows, array->name, others);
}

/* Checks the arrays of a column that has data. */
static rks_status check_parts(const rks_npz *npz, parts *of, rks_error *err)
{
    const rks_npz_array *data = of->data;
    rks_error why = {0};
    rks_status status = RKS_OK;
    if (data->refused.status != RKS_OK) {
        *err = data->refused;
        return (rks_status)err->status;
    }
    if (of->offsets == NULL) {
        status = rks_npy_row(&data->npy, &of->row, &why);
        of->rows = data->npy.dims[0];
    } else if (of->offsets->npy.dims[0] == 0) {
        return fail_in(npz, of->offsets, "N rows have N + 1 offsets, not 0", err);
    } else {
        of->rows = of->offsets->npy.dims[0] - 1;
    }
    if (status != RKS_OK)
        return fail_in(npz, data, why.text, err);
    if (of->shapes != NULL &&
        (of->shapes->npy.dims[1] == 0 || of->shapes->npy.dims[1] > RKS_DIMS_MAX))
        return fail_in(npz, of->shapes, "shapes have 1 to 8 dimensions", err);
    if (of->shapes != NULL)
        status = check_rows(npz, data, of->rows, of->shapes, of->shapes->npy.dims[0], err);
    if (status == RKS_OK && of->missing != NULL)
        status = check_rows(npz, data, of->rows, of->missing, of->missing->npy.dims[0], err);
    return status;
}

/* ---- schema ---------------------------------------------------------------------------------- */

/* Returns true if the array belongs to another one. */
static bool is_part(const rks_npz *npz, const rks_npz_array *array, rks_error *err,
                    rks_status *status)
{
    const char *dot = strrchr(array->name, '.');
    parts found = {0};
    if (dot == NULL)
        return false;
    char *base = rks_format(err, "%.*s", (int)(dot - array->name), array->name);
    if (base == NULL) {
        *status = RKS_ERR_MEMORY;
        return false;
    }
    find_parts(npz, base, &found);
    rks_free(base);
    return array == found.offsets || array == found.shapes || array == found.missing;
}

static void type_of_parts(const parts *of, char type[160])
{
    const rks_npy *npy = &of->data->npy;
    uint32_t dims = of->shapes == NULL ? 1 : (uint32_t)of->shapes->npy.dims[1];
    size_t used;
    if (of->offsets == NULL) {
        rks_npy_fixed_type(&of->row, type);
    } else if (of->shapes == NULL && npy->kind == RKS_KIND_UINT8 &&
               strcmp(of->data->name, "__key__") == 0) {
        strcpy(type, "str");
    } else {
        used = (size_t)snprintf(type, 100, "%s", npy->item);
        for (uint32_t i = 0; i < dims; i++)
            used += (size_t)snprintf(type + used, 8, "%s", i == 0 ? "[*" : ",*");
        strcpy(type + used, "]");
    }
    if (of->missing != NULL)
        strcat(type, "?");
}

/* Takes each array that does not belong to another one as a column; all must have *rows rows. */
static rks_status look_at_arrays(const rks_npz *npz, rks_guesses *columns, uint64_t *rows,
                                 rks_error *err)
{
    const rks_npz_array *first = NULL;
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < npz->count; i++) {
        parts found;
        char type[160];
        rks_error why = {0};
        if (is_part(npz, &npz->arrays[i], err, &status) || status != RKS_OK)
            continue;
        find_parts(npz, npz->arrays[i].name, &found);
        status = check_parts(npz, &found, err);
        if (status == RKS_OK && first != NULL)
            status = check_rows(npz, first, *rows, found.data, found.rows, err);
        if (status == RKS_OK && rks_npy_check_typed(&found.data->npy, &why) != RKS_OK)
            status = fail_in(npz, found.data, why.text, err);
        if (status != RKS_OK)
            break;
        first = found.data;
        *rows = found.rows;
        type_of_parts(&found, type);
        status = rks_guesses_add_type(columns, found.data->name, type, 0, err);
    }
    if (status == RKS_OK && first == NULL)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: there is no array in it", npz->file->path);
    return status;
}

static rks_status infer_npz(const rks_input *input, size_t unit, char **schema_text, rks_error *err)
{
    rks_npz npz;
    rks_guesses columns = {0};
    uint64_t rows = 0;
    rks_status status = rks_npz_open(&npz, &input->files[input->units[unit].first_file], err);
    if (status == RKS_OK)
        status = look_at_arrays(&npz, &columns, &rows, err);
    if (status == RKS_OK && rows > 0)
        status = rks_guesses_text(&columns, 1, schema_text, err);
    rks_guesses_free(&columns);
    rks_npz_close(&npz);
    return status;
}

static rks_status count_npz_rows(const rks_input *input, size_t unit, uint64_t *rows,
                                 rks_error *err)
{
    rks_npz npz;
    rks_guesses columns = {0};
    rks_status status = rks_npz_open(&npz, &input->files[input->units[unit].first_file], err);
    if (status == RKS_OK)
        status = look_at_arrays(&npz, &columns, rows, err);
    rks_guesses_free(&columns);
    rks_npz_close(&npz);
    return status;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A column and its reading state. */
typedef struct reader {
    const rks_column *column;
    bool there; /* otherwise it is missing in all rows */
    bool text;  /* str, bytes or json */
    parts parts;
    rks_npz_items data, offsets, shapes, missing;
    uint64_t offset; /* items of the rows before this one */
    /* Of the current row: */
    uint64_t size; /* bytes */
    bool is_missing;
    uint8_t *bytes;
    uint32_t dim_count;
    uint64_t dims[RKS_DIMS_MAX];
} reader;

typedef struct readers {
    rks_npz npz;
    reader *columns;
    uint32_t count;
    uint64_t rows;
    rks_buffer store; /* values that are made */
    rks_member_value *made;
    rks_value *values;
} readers;

static rks_status check_type(const readers *all, reader *r, rks_error *err)
{
    const rks_column *column = r->column;
    const rks_npy *data = &r->parts.data->npy;
    char type[160];
    bool fits;
    r->text = rks_kind_is_text(column->kind);
    if (r->parts.offsets == NULL)
        fits = rks_npy_fits(&r->parts.row, column);
    else if (r->text)
        fits = data->kind == RKS_KIND_UINT8 && r->parts.shapes == NULL;
    else
        fits = rks_npy_items_fit(data, column) &&
               column->dim_count == (r->parts.shapes == NULL ? 1 : r->parts.shapes->npy.dims[1]);
    if (fits)
        return RKS_OK;
    type_of_parts(&r->parts, type);
    return rks_fail(err, RKS_ERR_DATA, 0, "%s: %s.npy: rows of %s, the schema has %s",
                    all->npz.file->path, r->parts.data->name, type, column->type);
}

static rks_status open_items(const readers *all, reader *r, rks_error *err)
{
    const parts *of = &r->parts;
    uint8_t *bytes = NULL;
    rks_status status = rks_npz_items_open(&r->data, &all->npz, of->data, err);
    if (status == RKS_OK && of->shapes != NULL)
        status = rks_npz_items_open(&r->shapes, &all->npz, of->shapes, err);
    if (status == RKS_OK && of->missing != NULL)
        status = rks_npz_items_open(&r->missing, &all->npz, of->missing, err);
    if (status != RKS_OK || of->offsets == NULL)
        return status;
    status = rks_npz_items_open(&r->offsets, &all->npz, of->offsets, err);
    if (status == RKS_OK)
        status = rks_npz_items_take(&r->offsets, 8, &bytes, err);
    if (status == RKS_OK && rks_load_u64(bytes) != 0)
        status = fail_in(&all->npz, of->offsets, "the first offset is not 0", err);
    return status;
}

/* Refuses arrays that are not columns of an inferred schema. */
static rks_status refuse_extra_arrays(const readers *all, const rks_job *job, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; i < all->npz.count; i++) {
        const rks_npz_array *array = &all->npz.arrays[i];
        if (rks_schema_find(job->schema, array->name) >= 0 ||
            is_part(&all->npz, array, err, &status))
            continue;
        return status != RKS_OK
                   ? status
                   : rks_fail_no_column(job->schema_from, all->npz.file->path, array->name, err);
    }
    return status;
}

/* Finds the arrays of a column. *last is the data of the column before it; NULL if none. */
static rks_status bind_column(readers *all, reader *r, const rks_column *column,
                              const rks_npz_array **last, rks_error *err)
{
    r->column = column;
    rks_status status = find_column(&all->npz, column->name, &r->parts, err);
    if (status != RKS_OK)
        return status;
    r->there = r->parts.data != NULL;
    if (!r->there && !column->nullable)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: there is no array \"%.64s\"",
                        all->npz.file->path, column->name);
    if (!r->there)
        return RKS_OK;
    status = check_parts(&all->npz, &r->parts, err);
    if (status == RKS_OK && *last != NULL)
        status = check_rows(&all->npz, *last, all->rows, r->parts.data, r->parts.rows, err);
    if (status == RKS_OK)
        status = check_type(all, r, err);
    *last = r->parts.data;
    all->rows = r->parts.rows;
    return status;
}

static rks_status bind(readers *all, const rks_job *job, rks_error *err)
{
    const rks_npz_array *last = NULL;
    rks_status status = rks_job_refuses_extra(job) ? refuse_extra_arrays(all, job, err) : RKS_OK;
    for (uint32_t k = 0; status == RKS_OK && k < all->count; k++)
        status = bind_column(all, &all->columns[k], rks_schema_column(job->schema, k), &last, err);
    if (status != RKS_OK)
        return status;
    if (last == NULL)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: no array in it is a column of the schema",
                        all->npz.file->path);
    for (uint32_t k = 0; status == RKS_OK && k < all->count; k++)
        if (all->columns[k].there)
            status = open_items(all, &all->columns[k], err);
    return status;
}

/* Finds the size of the row's value, and whether it is missing. */
static rks_status measure_value(const readers *all, reader *r, rks_error *err)
{
    uint8_t *bytes = NULL;
    rks_status status = RKS_OK;
    r->size = r->parts.row.size;
    r->is_missing = false;
    if (r->parts.missing != NULL) {
        status = rks_npz_items_take(&r->missing, 1, &bytes, err);
        r->is_missing = status == RKS_OK && *bytes != 0;
    }
    if (status != RKS_OK || r->parts.offsets == NULL)
        return status;
    status = rks_npz_items_take(&r->offsets, 8, &bytes, err);
    if (status != RKS_OK)
        return status;
    uint64_t end = rks_load_u64(bytes);
    if (end < r->offset || end > r->parts.data->npy.dims[0])
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: %s.npy: %" PRId64 " comes after %" PRIu64
                        "; offsets must ascend to at most %" PRIu64 ", the number of items",
                        all->npz.file->path, r->parts.offsets->name, (int64_t)end, r->offset,
                        r->parts.data->npy.dims[0]);
    r->size = (end - r->offset) * r->parts.data->npy.item_size;
    r->offset = end;
    return RKS_OK;
}

static rks_status load_row(reader *r, rks_error *err)
{
    uint8_t *bytes = NULL;
    rks_status status = rks_npz_items_take(&r->data, (size_t)r->size, &r->bytes, err);
    r->dim_count = 1;
    r->dims[0] = r->size / r->parts.data->npy.item_size;
    if (r->parts.offsets == NULL) {
        r->dim_count = r->parts.row.dim_count;
        memcpy(r->dims, r->parts.row.dims, sizeof(r->dims));
    }
    if (status != RKS_OK || r->parts.shapes == NULL)
        return status;
    r->dim_count = (uint32_t)r->parts.shapes->npy.dims[1];
    status = rks_npz_items_take(&r->shapes, r->dim_count * 8, &bytes, err);
    for (uint32_t i = 0; status == RKS_OK && i < r->dim_count; i++)
        r->dims[i] = rks_load_u64(bytes + (size_t)i * 8);
    return status;
}

static rks_status skip(reader *r, rks_error *err)
{
    rks_status status = rks_npz_items_skip(&r->data, r->size, err);
    if (status == RKS_OK && r->parts.shapes != NULL)
        status = rks_npz_items_skip(&r->shapes, r->parts.shapes->npy.dims[1] * 8, err);
    return status;
}

static rks_status make_array(const reader *r, rks_value *value, rks_error *err)
{
    const rks_column *column = r->column;
    uint64_t size = column->item_size;
    bool fits = true;
    for (uint32_t i = 0; fits && i < r->dim_count; i++)
        fits = r->dims[i] <= UINT32_MAX && !__builtin_mul_overflow(size, r->dims[i], &size) &&
               (column->dims[i] == 0 || column->dims[i] == r->dims[i]);
    if (!fits || size != r->size)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "column \"%s\" is %s, which the row's %" PRIu64 " bytes and shape are not",
                        column->name, column->type, r->size);
    *value = (rks_value){.data = r->bytes, .size = (size_t)r->size};
    for (uint32_t i = 0; i < r->dim_count; i++)
        value->dims[i] = (uint32_t)r->dims[i];
    return RKS_OK;
}

static rks_status make_value(readers *all, uint32_t k, rks_error *err)
{
    reader *r = &all->columns[k];
    all->made[k] = (rks_member_value){0};
    if ((!r->there || r->is_missing) && r->column->nullable)
        return RKS_OK;
    if (r->is_missing)
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\" (%s) is missing", r->column->name,
                        r->column->type);
    return r->text ? rks_member_value_make(r->column, "", r->bytes, (size_t)r->size, &all->store,
                                           &all->made[k], err)
                   : make_array(r, &all->made[k].value, err);
}

static rks_status offer(rks_job *job, readers *all, rks_error *err)
{
    rks_status status = RKS_OK;
    all->store.size = 0;
    for (uint32_t k = 0; status == RKS_OK && k < all->count; k++)
        status = make_value(all, k, err);
    if (status != RKS_OK)
        return status;
    for (uint32_t k = 0; k < all->count; k++) {
        all->values[k] = all->made[k].value;
        if (all->made[k].stored)
            all->values[k].data = all->store.data + all->made[k].place;
    }
    return rks_job_emit(job, all->values, err);
}

/* Reads a row. Sets *fatal if the file is to blame, not the row. */
static rks_status read_row(rks_job *job, readers *all, bool *fatal, rks_error *err)
{
    uint64_t size = 0;
    bool taken = rks_job_is_sampled(job);
    rks_status status = RKS_OK;
    *fatal = true;
    for (uint32_t k = 0; status == RKS_OK && k < all->count; k++) {
        reader *r = &all->columns[k];
        if (!r->there)
            continue;
        status = measure_value(all, r, err);
        if (__builtin_add_overflow(size, r->size, &size))
            size = UINT64_MAX;
    }
    bool fits = size <= job->max_sample; /* otherwise memory of that size is never taken */
    for (uint32_t k = 0; status == RKS_OK && k < all->count; k++)
        if (all->columns[k].there)
            status = taken && fits ? load_row(&all->columns[k], err) : skip(&all->columns[k], err);
    if (status != RKS_OK)
        return status;
    *fatal = false;
    if (!taken)
        return RKS_OK;
    return fits ? offer(job, all, err) : rks_job_too_long(job, size, err);
}

/* Ends all arrays that were read; the arrays of a column must end together. */
static rks_status end_rows(readers *all, rks_error *err)
{
    rks_status status = RKS_OK;
    for (uint32_t k = 0; status == RKS_OK && k < all->count; k++) {
        reader *r = &all->columns[k];
        if (!r->there)
            continue;
        if (r->parts.offsets != NULL && r->offset != r->parts.data->npy.dims[0])
            return fail_in(&all->npz, r->parts.offsets, "the last offset is not the end", err);
        rks_npz_items *const items[] = {&r->data, &r->offsets, &r->shapes, &r->missing};
        for (size_t i = 0; status == RKS_OK && i < sizeof(items) / sizeof(items[0]); i++)
            if (items[i]->archive != NULL)
                status = rks_npz_items_end(items[i], err);
    }
    return status;
}

static rks_status read_rows(rks_job *job, readers *all, rks_error *err)
{
    const rks_place place = {.path = all->npz.file->path, .called = "row"};
    rks_status status = RKS_OK;
    for (uint64_t row = 0; status == RKS_OK && row < all->rows; row++) {
        bool fatal = false;
        if (row % 1024 == 0)
            status = rks_check_interrupt(err);
        if (status == RKS_OK)
            status = read_row(job, all, &fatal, err);
        if (fatal && status != RKS_OK)
            return status;
        status = rks_job_row(job, &place, status, err);
        if (status == RKS_OK)
            status = rks_job_tick(
                job, (uint64_t)((double)job->unit->size * (double)(row + 1) / (double)all->rows),
                err);
    }
    return status == RKS_OK ? end_rows(all, err) : status;
}

static rks_status read_npz_unit(rks_job *job, rks_error *err)
{
    readers all = {.count = rks_schema_columns(job->schema)};
    rks_status status = rks_npz_open(&all.npz, &job->input->files[job->unit->first_file], err);
    if (status == RKS_OK &&
        ((all.columns = rks_alloc(all.count, sizeof(*all.columns), err)) == NULL ||
         (all.made = rks_alloc(all.count, sizeof(*all.made), err)) == NULL ||
         (all.values = rks_alloc(all.count, sizeof(*all.values), err)) == NULL))
        status = RKS_ERR_MEMORY;
    if (status == RKS_OK)
        status = bind(&all, job, err);
    if (status == RKS_OK)
        status = read_rows(job, &all, err);
    for (uint32_t k = 0; all.columns != NULL && k < all.count; k++) {
        rks_npz_items_close(&all.columns[k].data);
        rks_npz_items_close(&all.columns[k].offsets);
        rks_npz_items_close(&all.columns[k].shapes);
        rks_npz_items_close(&all.columns[k].missing);
    }
    rks_free(all.columns);
    rks_free(all.made);
    rks_free(all.values);
    rks_buffer_free(&all.store);
    rks_npz_close(&all.npz);
    return status;
}

const rks_input_format rks_format_npz = {
    .name = "npz",
    .is_named = is_npz_name,
    .looks_like = rks_npz_looks_like,
    .cut = rks_cut_by_file,
    .count_rows = count_npz_rows,
    .infer = infer_npz,
    .read = read_npz_unit,
};
