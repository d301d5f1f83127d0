/* SPDX-License-Identifier: Apache-2.0
 *
 * json_error.h: why jansson could not parse a text. */
#ifndef RKS_BASE_JSON_ERROR_H
#define RKS_BASE_JSON_ERROR_H

#include <jansson.h>
#include <stdbool.h>

#include "rankstore/base.h"

/* Returns false if memory is short. Jansson calls a string that it could not allocate a wrong
 * token, or ends the process by an assertion, so ask before and after it. */
bool rks_json_has_memory(void);
/* Returns true if memory was short when jansson failed, so that the text need not be wrong. */
bool rks_json_lacked_memory(const json_error_t *where);
/* Fails with `status`: "WHAT: line 1, column 9: ...", or with RKS_ERR_MEMORY. */
rks_status rks_json_fail(rks_error *err, rks_status status, const char *what,
                         const json_error_t *where);

#endif
