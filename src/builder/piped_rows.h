/* SPDX-License-Identifier: Apache-2.0
 *
 * piped_rows.h: a build from standard input: a stream (rows.h) of one rank, whose units are the
 * blocks of a pipe (ingest/piped.h). */
#ifndef RKS_BUILDER_PIPED_ROWS_H
#define RKS_BUILDER_PIPED_ROWS_H

#include "group/group.h"
#include "rankstore/build.h"

/* Returns true if the sources are standard input: "-" alone. */
bool rks_piped_is_source(const char *const *sources, size_t count);

/* As rks_build of "-". RKS_ERR_ARGUMENT on all ranks if there are several. */
rks_status rks_piped_build(rks_group *group, const char *directory,
                           const rks_build_options *options, rks_build_report *report,
                           rks_error *err);

#endif
