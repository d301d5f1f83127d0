/* SPDX-License-Identifier: Apache-2.0
 *
 * behind.h: lets go of the page cache of a build's input, as far as the input was not there before.
 *
 * Before the input is read, its files are looked at in pieces of 1 MiB. After a unit is built,
 * those of its pieces of which no page was in memory are dropped. So reading a large input does
 * not displace other pages, and an input that was in memory stays there. */
#ifndef RKS_BUILDER_BEHIND_H
#define RKS_BUILDER_BEHIND_H

#include "ingest/unit.h"

typedef struct rks_behind rks_behind;

/* Looks at the first 64 GiB of the input's files of 1 MiB or more; the rest stays in memory. Takes
 * some 5 us a MiB. Returns NULL if nothing will be dropped. */
rks_behind *rks_behind_look(const rks_input *input);
/* Drops the pieces of a unit that is read no more. */
void rks_behind_leave(const rks_behind *behind, const rks_input *input, size_t unit);
/* Drops all pieces, after all ranks have read their units. A rank may have looked when another was
 * reading already, and a unit of the page cache may lie in two units of the build. */
void rks_behind_leave_all(const rks_behind *behind, const rks_input *input);
void rks_behind_free(rks_behind *behind); /* NULL is accepted */

#endif
