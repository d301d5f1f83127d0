/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.h: starts threads of the library. */
#ifndef RKS_BASE_THREAD_H
#define RKS_BASE_THREAD_H

#include <pthread.h>

/* Like pthread_create, but the thread blocks all signals, which are for the program's own
 * threads. */
int rks_thread_start(pthread_t *thread, void *(*run)(void *user), void *user);

#endif
