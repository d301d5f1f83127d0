/* SPDX-License-Identifier: Apache-2.0
 *
 * csv_value.h: a field of CSV as a truth or a number, which are written as in JSON. */
#ifndef RKS_INGEST_CSV_VALUE_H
#define RKS_INGEST_CSV_VALUE_H

#include "ingest/csv_record.h"

/* true and false in small, large or capital letters. */
bool rks_csv_truth(const rks_csv_field *field, bool *truth);
/* 0, -7, 12; not 007, +1. False also where it does not fit. */
bool rks_csv_integer(const rks_csv_field *field, int64_t *number);
/* 0, -7.25, 1e-3; not .5, 1., inf. Rounded to nearest, ties to even; false where it is not finite.
 */
bool rks_csv_real(const rks_csv_field *field, double *number);
/* False for an integer whose `number`, as rks_csv_real gave it, is another one. */
bool rks_csv_holds(const rks_csv_field *field, double number);

#endif
