/* SPDX-License-Identifier: Apache-2.0
 *
 * failing_pread.h: a pread of the test's own. Include it in one file of a test. It reads as ever
 * below the offset `pread_fails_from`; from there it fails as `pread_fails_with` says. */
#ifndef RKS_TESTS_FAILING_PREAD_H
#define RKS_TESTS_FAILING_PREAD_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PREAD_WORKS = 0, PREAD_ENDS = -1, PREAD_HANGS = -2, PREAD_SLOW = -3 }; /* else an errno */

static atomic_int pread_fails_with;
static atomic_llong pread_fails_from;
static atomic_int pread_times; /* it fails so often; 0: always */
static atomic_int pread_hanging, pread_calls;
static pthread_mutex_t pread_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t pread_released = PTHREAD_COND_INITIALIZER;

static inline void pread_set(int with, long long from, int times)
{
    pthread_mutex_lock(&pread_mutex);
    atomic_store(&pread_times, times);
    atomic_store(&pread_fails_from, from);
    atomic_store(&pread_fails_with, with);
    atomic_store(&pread_calls, 0);
    pthread_cond_broadcast(&pread_released);
    pthread_mutex_unlock(&pread_mutex);
}

static inline void pread_wait_hanging(int count)
{
    while (atomic_load(&pread_hanging) != count)
        usleep(1000);
}

static inline void pread_hang(void)
{
    pthread_mutex_lock(&pread_mutex);
    atomic_fetch_add(&pread_hanging, 1);
    while (atomic_load(&pread_fails_with) == PREAD_HANGS)
        pthread_cond_wait(&pread_released, &pread_mutex);
    atomic_fetch_sub(&pread_hanging, 1);
    pthread_mutex_unlock(&pread_mutex);
}

ssize_t pread(int fd, void *to, size_t size, off_t offset)
{
    int how = atomic_load(&pread_fails_with), times = atomic_load(&pread_times);
    bool fails = how != PREAD_WORKS && offset >= (off_t)atomic_load(&pread_fails_from);
    int call = atomic_fetch_add(&pread_calls, 1);
    if (fails && times > 0 && call >= times)
        fails = false;
    if (fails && how == PREAD_HANGS)
        pread_hang();
    if (fails && how == PREAD_SLOW)
        usleep(80000);
    if (fails && how == PREAD_ENDS)
        return 0;
    if (fails && how > 0) {
        errno = how;
        return -1;
    }
    return (ssize_t)syscall(SYS_pread64, fd, to, size, offset);
}

#endif
