/* SPDX-License-Identifier: Apache-2.0
 *
 * forbid.h: makes a system call fail in this thread, and in threads that it starts, as a
 * container's filter does (seccomp). It cannot be undone: forbid in a test that ends its program,
 * or in a forked child. */
#ifndef RKS_TESTS_FORBID_H
#define RKS_TESTS_FORBID_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* `number`: SYS_*. Returns false if this machine has no filters. */
static inline bool forbid(long number, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (__u32)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (__u32)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

#endif
