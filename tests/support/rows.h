/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h: builds a dataset of rows that a test or a benchmark makes. Units weigh the same, so unit
 * i is dealt to rank i % ranks. */
#ifndef RKS_TESTS_SUPPORT_ROWS_H
#define RKS_TESTS_SUPPORT_ROWS_H

#include <stdio.h>

#include "rankstore/build.h"

typedef rks_status (*rows_fn)(void *user, uint64_t unit, rks_sink *sink, rks_error *err);

typedef struct made_rows {
    rows_fn make; /* passes a unit's rows to the sink */
    void *user;
    uint64_t units;
    uint64_t first;   /* the number that `make` and names have for the first unit */
    const char *name; /* units are called "NAME NUMBER"; NULL: "unit" */
    bool one_name;    /* units are called NAME */
    rks_stream_kind stream;
    const char *identity; /* of a stream */
    uint64_t scanned;     /* units of a stream that were found */
} made_rows;

static inline rks_status rows_scan_one(const made_rows *rows, uint64_t number, rks_scan *scan,
                                       rks_error *err)
{
    char name[64];
    const char *word = rows->name == NULL ? "unit" : rows->name;
    snprintf(name, sizeof(name), "%s %llu", word, (unsigned long long)number);
    return scan->unit(scan, rows->one_name ? word : name, 1, err);
}

static inline rks_status rows_scan(void *input, rks_scan *scan, rks_error *err)
{
    made_rows *rows = input;
    rks_status status = RKS_OK;
    scan->stream = rows->stream;
    scan->identity = rows->identity;
    if (rows->stream != RKS_STREAM_NONE)
        return rows->scanned == rows->units
                   ? RKS_OK
                   : rows_scan_one(rows, rows->first + rows->scanned++, scan, err);
    for (uint64_t i = 0; status == RKS_OK && i < rows->units; i++)
        status = rows_scan_one(rows, rows->first + i, scan, err);
    return status;
}

static inline rks_status rows_read(void *input, uint64_t unit, rks_sink *sink, rks_error *err)
{
    const made_rows *rows = input;
    return rows->make == NULL ? RKS_OK : rows->make(rows->user, rows->first + unit, sink, err);
}

/* COLLECTIVE. */
static inline rks_status rows_build(rks_group *group, const char *directory,
                                    const rks_build_options *options, const made_rows *rows,
                                    rks_build_report *report, rks_error *err)
{
    const rks_input_ops ops = {.struct_size = sizeof(ops), .scan = rows_scan, .read = rows_read};
    made_rows own = *rows;
    return rks_build_input(group, &ops, &own, directory, options, report, err);
}

/* Passes a row to a sink; `key` is NULL if the build does not have the option own_keys. */
static inline rks_status rows_add(rks_sink *sink, const rks_value *values, const void *key,
                                  size_t key_size, rks_error *err)
{
    const rks_input_row row = {
        .struct_size = sizeof(row), .values = values, .key = key, .key_size = key_size};
    return sink->row(sink, &row, err);
}

#endif
