/* SPDX-License-Identifier: Apache-2.0
 *
 * export.c: a store's samples into files that other tools read; rank 0 writes. */
#include "export/export.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/number.h"
#include "codec/filter.h"
#include "group/agreement.h"
#include "manage/sample_scan.h"
#include "manage/output_target.h"
#include "rankstore/export.h"

typedef struct export {
    rks_store *store;
    rks_export_options options;
    rks_export_job job;
    uint32_t *columns;
    rks_where *where;
    rks_exporter *exporter;
    rks_export_report report;
    uint64_t done, total, ticked_ms;
} export;

static const struct {
    const char *name, *ending;
    rks_export_format format;
} formats[] = {
    {"jsonl", ".jsonl", RKS_EXPORT_JSONL}, {"tar", ".tar", RKS_EXPORT_TAR},
    {"npz", ".npz", RKS_EXPORT_NPZ},       {"lmdb", ".lmdb", RKS_EXPORT_LMDB},
    {"dir", "", RKS_EXPORT_DIR}, /* the last entry: every name ends in "" */
};
enum { FORMATS = sizeof(formats) / sizeof(formats[0]) };

void(rks_export_options_default)(rks_export_options *options)
{
    *options = (rks_export_options){.struct_size = sizeof(*options)};
}

/* ---- what is asked for ------------------------------------------------------------------- */

static bool ends_with(const char *text, size_t size, const char *ending)
{
    size_t length = strlen(ending);
    return size >= length && memcmp(text + size - length, ending, length) == 0;
}

/* Returns ".gz" for "out/a.gz"; NULL for a name without such an ending. */
static const char *ending_of(const char *target, size_t size)
{
    const char *dot = size == 0 ? NULL : memrchr(target, '.', size);
    bool first = dot == NULL || dot == target || dot[-1] == '/' || dot[-1] == '.';
    return first || dot + 1 == target + size || memchr(dot, '/', (size_t)(target + size - dot))
               ? NULL
               : dot;
}

static rks_status choose_format(export *x, const char *target, rks_error *err)
{
    const char *to = x->options.to;
    size_t size = target == NULL ? 0 : strlen(target);
    while (size > 1 && target[size - 1] == '/')
        size--;
    for (size_t i = 0; i < FORMATS; i++)
        if (to != NULL
                ? strcmp(to, formats[i].name) == 0
                : ends_with(target, size, formats[i].ending) &&
                      (formats[i].format != RKS_EXPORT_DIR || ending_of(target, size) == NULL)) {
            x->job.format = formats[i].format;
            snprintf(x->report.to, sizeof(x->report.to), "%s", formats[i].name);
            return RKS_OK;
        }
    const char *ending = to == NULL ? ending_of(target, size) : NULL;
    if (ending != NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "%s: no format ends with %.*s; use .jsonl, .tar, .npz or .lmdb, or to=dir "
                        "for a directory of that name",
                        target, (int)(target + size - ending), ending);
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "export: there is no format \"%.40s\"; jsonl, tar, dir, npz or lmdb", to);
}

static rks_status choose_columns(export *x, rks_error *err)
{
    const rks_schema *schema = x->store->dataset->schema;
    uint32_t count = rks_schema_columns(schema);
    rks_status status = RKS_OK;
    x->columns = rks_alloc(count, sizeof(*x->columns), err);
    if (x->columns == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; status == RKS_OK && i < x->options.column_count; i++) {
        uint32_t column;
        status = rks_column_named(schema, "column", x->options.columns[i], &column, err);
    }
    for (uint32_t i = 0; status == RKS_OK && i < count; i++) {
        bool asked = x->options.columns == NULL;
        for (size_t k = 0; k < x->options.column_count && !asked; k++)
            asked = strcmp(x->options.columns[k], rks_schema_name(schema, i)) == 0;
        if (asked)
            x->columns[x->job.column_count++] = i;
    }
    return status;
}

/* Returns the exported column that holds the keys, as the build's options say; check_key() verifies
 * it. */
static int find_key_column(const export *x)
{
    json_t *options = json_loads(x->store->dataset->build_options, 0, NULL);
    const char *key = json_string_value(json_object_get(options, "key"));
    int found = -1;
    for (uint32_t i = 0; i < x->job.column_count; i++) {
        const char *name = rks_schema_name(x->job.schema, x->columns[i]);
        if ((key != NULL && strcmp(name, key) == 0) ||
            (found < 0 && strcmp(name, RKS_EXPORT_KEY) == 0))
            found = (int)x->columns[i];
    }
    json_decref(options);
    return found;
}

/* In a dataset made by several builds, or with a column that only has this name, keys may differ
 * from the column and would be lost. Derived keys are not written, and are derived again. */
static rks_status check_exported_key(const export *x, const rks_sample *sample, rks_error *err)
{
    if (x->job.key_column < 0 || x->report.keys_left)
        return RKS_OK;
    const rks_column *column = rks_schema_column(x->job.schema, (uint32_t)x->job.key_column);
    const rks_value *value = &sample->values[x->job.key_column];
    const void *text = value->data;
    size_t size = (size_t)value->size;
    char digits[24];
    if (text != NULL && rks_kind_is_integer(column->kind) && column->dim_count == 0) {
        rks_number number = rks_number_load(column->kind, text);
        size = (size_t)(number.kind == RKS_NUMBER_UINT
                            ? snprintf(digits, sizeof(digits), "%" PRIu64, number.as.u)
                            : snprintf(digits, sizeof(digits), "%" PRId64, number.as.i));
        text = digits;
    }
    if (text != NULL && size == sample->key_size && memcmp(text, sample->key, size) == 0)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "its key is not what column \"%s\" holds, and would be lost; choose the other "
                    "columns by name, and keys are written beside them",
                    column->name);
}

static rks_status prepare_export(export *x, const char *target, rks_error *err)
{
    rks_status status = choose_format(x, target, err);
    x->job.schema = x->store->dataset->schema;
    if (status == RKS_OK)
        status = choose_columns(x, err);
    if (status == RKS_OK && x->options.where != NULL)
        status = rks_where_parse(x->job.schema, x->options.where, &x->where, err);
    x->job.columns = x->columns;
    if (status == RKS_OK)
        x->job.key_column = find_key_column(x);
    x->job.keys_apart = x->job.key_column < 0;
    x->report.keys_left = x->job.key_column >= 0 && x->store->dataset->derived_keys;
    x->job.respelled = &x->report.respelled;
    return status;
}

/* ---- writing ------------------------------------------------------------------------------ */

static void count_export_progress(export *x)
{
    uint64_t now = rks_now_ms();
    if (x->options.progress == NULL || now - x->ticked_ms < 100)
        return;
    x->ticked_ms = now;
    x->options.progress(x->options.progress_user, "export", x->done, x->total, x->report.samples);
}

/* Returns the bytes of the sample's chosen columns and key, whatever the format. */
static uint64_t chosen_bytes(const export *x, const rks_sample *sample)
{
    uint64_t bytes = sample->key_size;
    for (uint32_t i = 0; i < x->job.column_count; i++)
        bytes += sample->values[x->columns[i]].size;
    return bytes;
}

static rks_status put_sample(void *user, uint64_t id, const rks_sample *sample, uint64_t bytes,
                             rks_error *err)
{
    export *x = user;
    bool keep = true;
    rks_status status =
        x->where == NULL ? RKS_OK : rks_where_test(x->where, sample->values, &keep, err);
    rks_error why = {0};
    if (status == RKS_OK && keep) {
        status = check_exported_key(x, sample, &why);
        if (status == RKS_OK)
            status = rks_exporter_add(x->exporter, sample, &why);
        if (status == RKS_ERR_DATA)
            return rks_fail(err, status, why.cause, "sample #%" PRIu64 ": %s", id, why.text);
        if (status != RKS_OK && err != NULL)
            *err = why;
    }
    x->done += bytes;
    x->report.samples += keep;
    x->report.filtered += !keep;
    x->report.bytes += keep ? chosen_bytes(x, sample) : 0;
    count_export_progress(x);
    return status;
}

static rks_status write_target(export *x, const char *path, rks_error *err)
{
    rks_target *target = NULL;
    rks_scan scan = {x->store, -1, put_sample, x};
    bool directory = x->job.format == RKS_EXPORT_DIR || x->job.format == RKS_EXPORT_LMDB;
    rks_status status = rks_target_open(path, x->options.force, &target, err);
    if (status != RKS_OK)
        return status;
    x->job.path = rks_target_part(target);
    status = rks_exporter_open(&x->job, &x->exporter, err);
    if (status == RKS_OK && directory)
        status = rks_target_mark(target, err);
    if (status == RKS_OK)
        status = rks_store_scan(&scan, 0, rks_store_count(x->store), err);
    x->report.left_out = rks_store_count(x->store) - x->report.samples - x->report.filtered;
    if (status == RKS_OK)
        status = rks_exporter_finish(x->exporter, err);
    rks_exporter_close(x->exporter);
    if (status == RKS_OK)
        status = rks_target_commit(target, err);
    rks_target_close(target);
    return status;
}

/* COLLECTIVE. */
static rks_status begin_together(const export *x, const char *target, rks_status status,
                                 rks_error *err)
{
    const rks_export_options *o = &x->options;
    char *columns = NULL;
    if (status == RKS_OK)
        status = rks_list_text(o->columns, o->column_count, &columns, err);
    const rks_fact given[] = {
        rks_fact_same("export: target", target), rks_fact_same("export: to", o->to),
        rks_fact_same("export: where", o->where), rks_fact_same("export: columns", columns),
        rks_fact_same("export: force", o->force ? "yes" : NULL)};
    status = rks_group_agree_on(x->store->group, "export", status, given, 5, NULL, err);
    rks_free(columns);
    return status;
}

rks_status rks_store_export(rks_store *store, const char *target, const rks_export_options *options,
                            rks_export_report *report, rks_error *err)
{
    export x = {.store = store};
    uint64_t begun = rks_now_ns();
    rks_export_options_default(&x.options);
    if (options != NULL)
        memcpy(&x.options, options,
               options->struct_size < sizeof(x.options) ? options->struct_size : sizeof(x.options));
    for (size_t i = 0; i < store->dataset->shard_count; i++)
        x.total += store->dataset->shards[i].bytes;
    rks_status status = prepare_export(&x, target, err);
    status = begin_together(&x, target, status, err);
    if (status == RKS_OK) {
        if (rks_group_rank(store->group) == 0)
            status = write_target(&x, target, err);
        x.report.seconds = (double)(rks_now_ns() - begun) / 1e9;
        rks_agreed agreed;
        const rks_fact fact = rks_fact_fixed(&x.report, sizeof(x.report));
        status =
            rks_group_agree_on(store->group, "export: written", status, &fact, 1, &agreed, err);
        if (status == RKS_OK) {
            memcpy(&x.report, rks_agreed_get(&agreed, 0, 0, NULL), sizeof(x.report));
            x.report.to[sizeof(x.report.to) - 1] = '\0'; /* another rank may send anything */
        }
    }
    if (status == RKS_OK && report != NULL) {
        size_t room = report->struct_size;
        memcpy(report, &x.report, room < sizeof(x.report) ? room : sizeof(x.report));
        report->struct_size = room;
    }
    rks_where_free(x.where);
    rks_free(x.columns);
    return status;
}
