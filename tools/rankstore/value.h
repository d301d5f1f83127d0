/* SPDX-License-Identifier: Apache-2.0
 *
 * value.h: column values and keys as JSON and as text. */
#ifndef RKS_TOOLS_VALUE_H
#define RKS_TOOLS_VALUE_H

#include <jansson.h>
#include <stdio.h>

#include "rankstore.h"

/* UTF-8 as a string; other bytes as {"base64": "..."}. */
json_t *cli_text_json(const void *bytes, size_t size);
/* A line for people: strings cut after a few hundred bytes; arrays as their shape, first and last
 * items, smallest and largest; other bytes as their size and first bytes. */
rks_status cli_print_value(FILE *out, const rks_schema *schema, uint32_t column,
                           const rks_value *value, rks_error *err);
/* Prints `value` with jansson's flags (JSON_COMPACT, JSON_INDENT(2)) and a line's end, and lets go
 * of it. */
void cli_print_json(json_t *value, size_t flags);
/* Control characters and broken UTF-8 shown as \xNN, so that a key cannot steer a terminal. */
void cli_print_key(FILE *out, const void *key, size_t size);
/* The same of a word or path; valid until the fourth call from now. */
const char *cli_shown(const char *text);

#endif
