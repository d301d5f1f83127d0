/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_nccl_none.c: in place of the nccl exchange where its headers were not found. */
#include <stdio.h>

#include "base/error.h"
#include "exchange/exchange_internal.h"

static rks_status nccl_can(rks_group *group, rks_error *err)
{
    (void)group;
    return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                    "this build has no NCCL (its headers were not found; meson option nccl)");
}

const rks_exchange_backend rks_exchange_nccl = {
    .name = "nccl",
    .tells_size = true,
    .takes_options = true,
    .reads_others = true,
    .slow_start = true,
    .can = nccl_can,
};

rks_status rks_nccl_library(const char *path, rks_error *err)
{
    (void)path;
    (void)err;
    return RKS_OK;
}

bool rks_exchange_nccl_usable(char text[192])
{
    snprintf(text, 192, "this build has no NCCL (its headers were not found)");
    return false;
}
