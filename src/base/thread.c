/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.c: blocks signals before the start, so that the new thread inherits the mask. */
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

int rks_thread_start(pthread_t *thread, void *(*run)(void *user), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}
