/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.h: threads of the library's own. */
#ifndef RKS_BASE_THREAD_H
#define RKS_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create, with all signals blocked: those are for the program's threads. */
int rks_thread_start(pthread_t *thread, void *(*run)(void *user), void *user);

#endif
