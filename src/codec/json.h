/* SPDX-License-Identifier: Apache-2.0
 *
 * json.h: JSON values as text, and text as JSON values. */
#ifndef RKS_CODEC_JSON_H
#define RKS_CODEC_JSON_H

#include <jansson.h>

#include "base/buffer.h"

#define RKS_NAN_TEXT "NaN"

/* Any JSON text; the caller owns *root. */
rks_status rks_json_parse(const uint8_t *text, size_t size, json_t **root, rks_error *err);

/* Appends the text as a JSON string with its quotes; UTF-8, also with NUL. */
rks_status rks_json_print_string(const char *at, size_t size, rks_buffer *text, rks_error *err);
/* Appends the value as the row comment says. */
rks_status rks_json_print(const json_t *value, rks_buffer *text, rks_error *err);

#endif
