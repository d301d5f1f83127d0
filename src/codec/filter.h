/* SPDX-License-Identifier: Apache-2.0
 *
 * filter.h: conditions on scalar columns.
 *
 *   where      condition { "and" condition }
 *   condition  column op value
 *   op         == != < <= > >=
 *   column     a name without spaces, quotes and = ! < >; or any name in quotes
 *   value      a number, true, false, null, a string in ' or ", or a word (for str and bytes)
 *
 * In quotes a backslash makes the next character literal. Numbers compare exactly, whatever their
 * types (a float32 0.1 is not 0.1); NaN equals nothing. Strings and bytes compare bytewise, as a
 * dictionary sorts; after < <= > >= a number must be in quotes there. bool allows == and !=. A
 * missing value equals only null: it is != to every other value, and neither below nor above any.
 * json and arrays compare only with null; the JSON null is null. */
#ifndef RKS_CODEC_FILTER_H
#define RKS_CODEC_FILTER_H

#include "shard/schema.h"

/* Finds the column of this name. RKS_ERR_ARGUMENT names the option and the nearest column names. */
rks_status rks_column_named(const rks_schema *schema, const char *option, const char *name,
                            uint32_t *column, rks_error *err);

#endif
