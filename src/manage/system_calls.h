/* SPDX-License-Identifier: Apache-2.0
 *
 * system_calls.h: tries each system call that a container's filter may forbid, as the library uses
 * it (base/forbidden_call.h). */
#ifndef RKS_MANAGE_SYSTEM_CALLS_H
#define RKS_MANAGE_SYSTEM_CALLS_H

#include <stdbool.h>

typedef struct rks_system_calls {
    char forbidden[256]; /* names, "a, b"; "": none is */
    char instead[768];   /* what the library does instead, or what does not work */
    bool bad;            /* something does not work */
} rks_system_calls;

void rks_system_calls_try(rks_system_calls *found);

#endif
