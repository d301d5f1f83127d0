/* SPDX-License-Identifier: Apache-2.0
 *
 * csv_value.h: reads a CSV field as a bool or a number, written as in JSON. */
#ifndef RKS_INGEST_CSV_VALUE_H
#define RKS_INGEST_CSV_VALUE_H

#include "ingest/csv_record.h"

/* Accepts true and false in lower case, upper case or capitalised. */
bool rks_csv_truth(const rks_csv_field *field, bool *truth);
/* Accepts 0, -7, 12; not 007, +1. Returns false also if the number does not fit. */
bool rks_csv_integer(const rks_csv_field *field, int64_t *number);
/* Accepts 2^63 to 2^64 - 1. */
bool rks_csv_large_integer(const rks_csv_field *field, uint64_t *number);
/* Accepts 0, -7.25, 1e-3; not .5, 1., inf. Rounds to nearest, ties to even. Returns false if the
 * number is not finite. */
bool rks_csv_real(const rks_csv_field *field, double *number);
/* Returns false if the field is an integer and `number`, which rks_csv_real gave, differs from
 * it. */
bool rks_csv_holds(const rks_csv_field *field, double number);

#endif
