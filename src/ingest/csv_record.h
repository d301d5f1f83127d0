/* SPDX-License-Identifier: Apache-2.0
 *
 * csv_record.h: the records of a CSV file (RFC 4180), and the fields of a record.
 *
 * Record  Ends at a newline that has an even number of quotes before it in the file. So the place
 *         where a record ends does not depend on where reading started. Ends in CRLF or LF, which
 *         the last record may lack. A BOM at the file's start is skipped. The longest permitted
 *         record bounds the memory.
 * Field   Either plain, without quotes in it, or in quotes, with each quote in it doubled. Anything
 *         else is malformed. */
#ifndef RKS_INGEST_CSV_RECORD_H
#define RKS_INGEST_CSV_RECORD_H

#include "ingest/window.h"

/* How far the window was searched for a record's end. */
typedef struct rks_csv_scan {
    size_t at;        /* in the window's data */
    size_t quoted_to; /* after the first quote from `at` on; unknown if not above `at` */
    bool inside;      /* a quote is open */
    bool quoted;      /* the record has a quote */
} rks_csv_scan;

typedef struct rks_csv {
    rks_window window;
    rks_csv_scan scan;
    uint64_t limit; /* longest record */
} rks_csv;

typedef struct rks_csv_record {
    uint8_t *text; /* without its line end; valid until the next call; fields are unquoted in it;
                    * NULL after the last record */
    size_t size;
    bool too_long; /* above the limit: `size` is its length, and `text` must not be read */
    bool quoted;   /* it may contain a quote */
} rks_csv_record;

/* Opens the records that start in [offset, offset + size); one must start at `offset`. A packed
 * file is read as a whole: pass offset 0; `size` is ignored. `csv` needs no preparation; close it
 * also on failure. */
rks_status rks_csv_open(rks_csv *csv, const rks_input_file *file, uint64_t offset, uint64_t size,
                        uint64_t limit, rks_error *err);
/* Reads the next record. After the last one, also checks whether the file has changed. Checks for
 * interrupts. */
rks_status rks_csv_next(rks_csv *csv, rks_csv_record *record, rks_error *err);
void rks_csv_close(rks_csv *csv);

typedef struct rks_csv_field {
    const char *text; /* in the record; not terminated */
    size_t size;
    bool quoted;
} rks_csv_field;

/* Splits a record into fields and removes quotes in place. *count is the number of fields; `fields`
 * gets the first `room` of them. RKS_ERR_DATA names the malformed field. */
rks_status rks_csv_fields(rks_csv_record *record, char separator, rks_csv_field *fields,
                          size_t room, size_t *count, rks_error *err);

/* Finds where to cut a file, in one pass: the first start of a record at or after each multiple of
 * unit_size. Calls `cut` for each of them except 0, in order. */
rks_status rks_csv_cuts(const rks_input_file *file, uint64_t unit_size,
                        rks_status (*cut)(void *user, uint64_t offset, rks_error *err), void *user,
                        rks_error *err);

#endif
