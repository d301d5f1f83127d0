/* SPDX-License-Identifier: Apache-2.0
 *
 * base64.h: encodes bytes as base64 text and decodes it (RFC 4648, section 4, with padding). */
#ifndef RKS_BASE_BASE64_H
#define RKS_BASE_BASE64_H

#include "base/buffer.h"

/* Appends the text to `text`, without a NUL. */
rks_status rks_base64_encode(const void *bytes, size_t size, rks_buffer *text, rks_error *err);
/* Decodes `text` and appends the bytes. If it is not base64, sets *good to false and appends
 * nothing. Fails only if memory is short. */
rks_status rks_base64_decode(const char *text, size_t size, rks_buffer *bytes, bool *good,
                             rks_error *err);

#endif
