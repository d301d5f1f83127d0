/* SPDX-License-Identifier: Apache-2.0
 *
 * behind.h: a build's input leaves memory behind it, as far as it was not there before.
 *
 * Before the input is read, files are looked at by pieces of 1 MiB. When a unit is built, those
 * pieces of it of which no page was in memory leave it again. So reading a large input pushes out
 * nobody else's pages, and an input that was in memory stays there. */
#ifndef RKS_BUILDER_BEHIND_H
#define RKS_BUILDER_BEHIND_H

#include "ingest/unit.h"

typedef struct rks_behind rks_behind;

/* Looks at the first 64 GiB of the input's files of 1 MiB or more; the rest stays in memory. Some
 * 5 us a MiB. NULL: nothing will leave. */
rks_behind *rks_behind_look(const rks_input *input);
/* No more of the unit is read. */
void rks_behind_leave(const rks_behind *behind, const rks_input *input, size_t unit);
/* After all ranks have read their units. A rank may have looked when another read already, and what
 * the system keeps as one unit may lie in two of the build's. */
void rks_behind_leave_all(const rks_behind *behind, const rks_input *input);
void rks_behind_free(rks_behind *behind); /* NULL is accepted */

#endif
