/* SPDX-License-Identifier: Apache-2.0
 *
 * json_value.h: prints values of columns as JSON. */
#ifndef RKS_CODEC_JSON_VALUE_H
#define RKS_CODEC_JSON_VALUE_H

#include "base/buffer.h"
#include "shard/schema.h"

/* Appends {"base64":"..."}. */
rks_status rks_json_print_base64(const void *bytes, size_t size, rks_buffer *text, rks_error *err);
/* Appends a value of the column in the form that rks_value_json() documents. The value's size must
 * fit its dims. RKS_ERR_DATA: a json value is not JSON. */
rks_status rks_json_print_value(const rks_column *column, const rks_value *value, rks_buffer *text,
                                rks_error *err);

#endif
