/* SPDX-License-Identifier: Apache-2.0
 *
 * csv_record.h: the records of a CSV file (RFC 4180), and the fields of a record.
 *
 * Record  Ends at a newline with an even number of quotes before it in the file, so where records
 *         end does not depend on what is in them. CRLF and LF; the last one may go without; a BOM
 *         at the file's start is passed over. Memory is bounded by the longest record that is
 *         permitted.
 * Field   Plain, without a quote in it, or in quotes, with each quote in it doubled. Anything else
 *         is malformed. */
#ifndef RKS_INGEST_CSV_RECORD_H
#define RKS_INGEST_CSV_RECORD_H

#include "ingest/window.h"

/* How far the window was looked at for a record's end. */
typedef struct rks_csv_scan {
    size_t at;        /* in the window's data */
    size_t quoted_to; /* behind the first quote from `at` on; not above `at`: not known */
    bool inside;      /* a quote is open */
    bool quoted;      /* there is one in the record */
} rks_csv_scan;

typedef struct rks_csv {
    rks_window window;
    rks_csv_scan scan;
    uint64_t limit; /* longest record */
} rks_csv;

typedef struct rks_csv_record {
    uint8_t *text; /* without its end; valid until the next call, fields are made in it; NULL behind
                    * the last record */
    size_t size;
    bool too_long; /* above the limit: size says how long it is, and text is not to be read */
    bool quoted;   /* there may be a quote in it */
} rks_csv_record;

/* Records that begin in [offset, offset + size); one begins at `offset`. A packed file is read as a
 * whole: offset is 0, and `size` does not matter. `csv` needs no preparation and is closed in every
 * case. */
rks_status rks_csv_open(rks_csv *csv, const rks_input_file *file, uint64_t offset, uint64_t size,
                        uint64_t limit, rks_error *err);
/* Behind the last record it also looks whether the file has changed. Notices interrupts. */
rks_status rks_csv_next(rks_csv *csv, rks_csv_record *record, rks_error *err);
void rks_csv_close(rks_csv *csv);

typedef struct rks_csv_field {
    const char *text; /* in the record; not terminated */
    size_t size;
    bool quoted;
} rks_csv_field;

/* Cuts the record's fields, taking quotes away in place. *count comes back as how many there are,
 * `fields` holds the first `room` of them. RKS_ERR_DATA names the field that is malformed. */
rks_status rks_csv_fields(rks_csv_record *record, char separator, rks_csv_field *fields,
                          size_t room, size_t *count, rks_error *err);

/* Where to cut a file: the first record's begin at or behind each multiple of unit_size, by one
 * pass over the file. `cut` is called for each but 0, in order. */
rks_status rks_csv_cuts(const rks_input_file *file, uint64_t unit_size,
                        rks_status (*cut)(void *user, uint64_t offset, rks_error *err), void *user,
                        rks_error *err);

#endif
