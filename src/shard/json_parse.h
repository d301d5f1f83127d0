/* SPDX-License-Identifier: Apache-2.0
 *
 * json_parse.h: json_loadb() with JSON_REJECT_DUPLICATES, but faster for JSON that our own writers
 * print. */
#ifndef RKS_SHARD_JSON_PARSE_H
#define RKS_SHARD_JSON_PARSE_H

#include <jansson.h>
#include <stdbool.h>

/* Parses an object or array; free with json_decref. Returns NULL if `text` is neither, and *where
 * says why. */
json_t *rks_json_load(const char *text, size_t size, json_error_t *where);

#endif
