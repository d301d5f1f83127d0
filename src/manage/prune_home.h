/* SPDX-License-Identifier: Apache-2.0
 *
 * prune_home.h: rks_prune of a home in an object store. */
#ifndef RKS_MANAGE_PRUNE_HOME_H
#define RKS_MANAGE_PRUNE_HOME_H

#include "rankstore/manage.h"

/* COLLECTIVE. `url` and `options` are the same on all ranks. The report is, too. */
rks_status rks_prune_home(rks_group *group, const char *url, const rks_prune_options *options,
                          rks_prune_report *report, rks_error *err);

#endif
