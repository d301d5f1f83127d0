/* SPDX-License-Identifier: Apache-2.0
 *
 * csv_unit.h: the records of a unit of CSV or TSV. The file's header, or the option `columns`,
 * names their fields. */
#ifndef RKS_INGEST_CSV_UNIT_H
#define RKS_INGEST_CSV_UNIT_H

#include "ingest/csv_record.h"
#include "ingest/format.h"

/* The columns of a file: names in order. */
typedef struct rks_csv_header {
    char *text; /* the names, each with its NUL */
    const char **names;
    size_t count;
} rks_csv_header;

/* Reads the header from the option or from the file's first record. RKS_ERR_DATA if that is not a
 * header. */
rks_status rks_csv_header_read(const rks_input *input, const rks_input_file *file,
                               rks_csv_header *h, rks_error *err);
void rks_csv_header_free(rks_csv_header *h);

typedef struct rks_csv_unit {
    rks_csv csv;
    rks_csv_header header;
    rks_csv_field *fields;
    size_t count; /* fields of the current record */
    char separator;
} rks_csv_unit;

/* Opens a unit, and skips the header if the unit starts with one. `limit` is the longest record
 * that is kept. Close it also on failure. */
rks_status rks_csv_unit_open(rks_csv_unit *r, const rks_input *input, const rks_input_unit *unit,
                             uint64_t limit, rks_error *err);
void rks_csv_unit_close(rks_csv_unit *r);
/* Splits a record into fields. RKS_ERR_DATA if they are malformed, or their number differs from the
 * header's. */
rks_status rks_csv_unit_split(rks_csv_unit *r, rks_csv_record *record, rks_error *err);

/* An rks_input_format's `infer`; in csv_infer.c. */
rks_status rks_csv_infer(const rks_input *input, size_t unit, char **schema_text, rks_error *err);

#endif
