/* SPDX-License-Identifier: Apache-2.0
 *
 * task_state.h: what a process or thread does, as /proc says. */
#ifndef RKS_BASE_TASK_STATE_H
#define RKS_BASE_TASK_STATE_H

/* Returns the letter of proc(5): 'R' ready, 'D' waits for a disk, 'T' stopped, 'Z' ended and not
 * reaped, ...; 0 if nobody knows. `thread`: one of the process; 0: the process itself. */
char rks_task_state(long process, long thread);

#endif
