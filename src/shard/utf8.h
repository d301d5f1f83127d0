/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.h: is it UTF-8? */
#ifndef RKS_SHARD_UTF8_H
#define RKS_SHARD_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* True for well-formed UTF-8 (no overlong forms, no surrogates). On false, *bad (may be NULL) is
 * where the first wrong byte lies. */
bool rks_utf8_valid(const void *text, size_t size, size_t *bad);

#endif
