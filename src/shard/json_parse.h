/* SPDX-License-Identifier: Apache-2.0
 *
 * json_parse.h: json_loadb() with JSON_REJECT_DUPLICATES, faster for what our own writers print. */
#ifndef RKS_SHARD_JSON_PARSE_H
#define RKS_SHARD_JSON_PARSE_H

#include <jansson.h>
#include <stdbool.h>

/* The object or array that `text` is; NULL: it is none, and *where says why. json_decref. */
json_t *rks_json_load(const char *text, size_t size, json_error_t *where);

#endif
