/* SPDX-License-Identifier: Apache-2.0
 *
 * csv_unit.h: the records of a unit of CSV or TSV, under the names that the header of its file, or
 * the option `columns`, gives to their fields. */
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

/* From the option, or from the file's first record. RKS_ERR_DATA: it is no header. */
rks_status rks_csv_header_read(const rks_input *input, const rks_input_file *file,
                               rks_csv_header *h, rks_error *err);
void rks_csv_header_free(rks_csv_header *h);

typedef struct rks_csv_unit {
    rks_csv csv;
    rks_csv_header header;
    rks_csv_field *fields;
    size_t count; /* fields of the record at hand */
    char separator;
} rks_csv_unit;

/* Behind the header, if the unit begins with one. `limit`: the longest record that is kept. To be
 * closed also where it fails. */
rks_status rks_csv_unit_open(rks_csv_unit *r, const rks_input *input, const rks_input_unit *unit,
                             uint64_t limit, rks_error *err);
void rks_csv_unit_close(rks_csv_unit *r);
/* The fields of a record; RKS_ERR_DATA where they are malformed or not as many as names. */
rks_status rks_csv_unit_split(rks_csv_unit *r, rks_csv_record *record, rks_error *err);

/* csv_infer.c: an rks_input_format's `infer`. */
rks_status rks_csv_infer(const rks_input *input, size_t unit, char **schema_text, rks_error *err);

#endif
