/* SPDX-License-Identifier: Apache-2.0
 *
 * solo.c: one rank, alone. */
#include <string.h>

#include "group/group_state.h"

static rks_status gather_alone(void *user, const void *record, size_t record_size, void *all,
                               uint32_t timeout_ms, rks_error *err)
{
    (void)user;
    (void)timeout_ms;
    (void)err;
    memcpy(all, record, record_size);
    return RKS_OK;
}

rks_status rks_bootstrap_solo(rks_bootstrap *bootstrap)
{
    *bootstrap = (rks_bootstrap){
        .struct_size = sizeof(*bootstrap),
        .name = "solo",
        .size = 1,
        .allgather = gather_alone,
    };
    return RKS_OK;
}
