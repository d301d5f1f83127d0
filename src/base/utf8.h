/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.h: checks UTF-8. */
#ifndef RKS_BASE_UTF8_H
#define RKS_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Returns true for well-formed UTF-8 (no overlong forms, no surrogates). Otherwise *bad (if not
 * NULL) is the position of the first wrong byte. */
bool rks_utf8_valid(const void *text, size_t size, size_t *bad);

#endif
