/* SPDX-License-Identifier: Apache-2.0
 *
 * sources.h: the datasets that a store was opened over, one by one. */
#ifndef RKS_TOOLS_SOURCES_H
#define RKS_TOOLS_SOURCES_H

#include <jansson.h>

#include "cli.h"

/* Samples, lengths and bytes of each, a line a source; nothing if there is one alone. */
void cli_print_sources(const rks_store *store);
/* [{name, samples, length, bytes}, ...], also of one alone. */
json_t *cli_sources_json(const rks_store *store);

#endif
