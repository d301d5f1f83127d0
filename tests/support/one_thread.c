/* SPDX-License-Identifier: Apache-2.0
 *
 * one_thread.c: the linker puts this pthread_create in the place of the system's in test programs
 * that the thread sanitizer's build leaves out. It ends the program: one that starts a thread has
 * to be there. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*begin)(void *), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*begin)(void *), void *argument)
{
    (void)thread, (void)attributes, (void)begin, (void)argument;
    fputs("a thread is started: take this program out of its meson.build's list of those of one "
          "thread\n",
          stderr);
    abort();
}
