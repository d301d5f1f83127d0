/* SPDX-License-Identifier: Apache-2.0
 *
 * forbidden_call.h: system calls that a container's filter (seccomp: Docker, gVisor, snap, systemd)
 * refuses, or that the kernel lacks. Where there is another way, callers go it; else their error
 * names the call. */
#ifndef RKS_BASE_FORBIDDEN_CALL_H
#define RKS_BASE_FORBIDDEN_CALL_H

#include <errno.h>
#include <stdbool.h>

/* Returns true if the errno of a call that needs no privilege says that the call itself is refused.
 * Filters answer EPERM, ENOSYS or EACCES; glibc makes EOPNOTSUPP of some. */
static inline bool rks_call_is_forbidden(int error)
{
    return error == EPERM || error == ENOSYS || error == EACCES || error == EOPNOTSUPP;
}

#endif
