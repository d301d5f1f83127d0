/* SPDX-License-Identifier: Apache-2.0
 *
 * base64.h: bytes as text (RFC 4648, section 4, with padding). */
#ifndef RKS_BASE_BASE64_H
#define RKS_BASE_BASE64_H

#include "base/buffer.h"

rks_status rks_base64_encode(const void *bytes, size_t size, rks_buffer *text, rks_error *err);
/* Appends what the text stands for; *good is false where it is no such text, and nothing is
 * appended. */
rks_status rks_base64_decode(const char *text, size_t size, rks_buffer *bytes, bool *good,
                             rks_error *err);

#endif
