/* SPDX-License-Identifier: Apache-2.0
 *
 * peak.h: the most memory that a stretch of a test takes, as the kernel counts it. Run it in a
 * process of its own (peak_in_child), whose heap is new.
 *
 * peak_begin and peak_end leave out pages of files; a thread of theirs looks often, so it may miss
 * what lasts for a moment on a busy machine. peak_reset and peak_high miss nothing, but count pages
 * of files: use them where these are in memory already. */
#ifndef RKS_TESTS_SUPPORT_PEAK_H
#define RKS_TESTS_SUPPORT_PEAK_H

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/check.h"

/* A figure of /proc/self/status, in bytes; `name` ends with a colon. */
static inline uint64_t peak_status(const char *name)
{
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtoull(line + strlen(name), NULL, 10);
    fclose(file);
    return kib << 10;
}

/* The peak begins anew. Returns what is taken now. */
static inline uint64_t peak_reset(void)
{
    malloc_trim(0);
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    assert_true(fd >= 0 && write(fd, "5", 1) == 1);
    close(fd);
    return peak_status("VmRSS:");
}

static inline uint64_t peak_high(void)
{
    return peak_status("VmHWM:");
}

/* What is taken now, without pages of files. */
static inline uint64_t peak_taken(void)
{
    return peak_status("RssAnon:") + peak_status("RssShmem:");
}

typedef struct peak {
    pthread_t watcher;
    atomic_bool ends;
    _Atomic uint64_t most;
    uint64_t before;
} peak;

static inline void *peak_watch(void *user)
{
    peak *of = user;
    const struct timespec nap = {.tv_nsec = 500000};
    while (!atomic_load(&of->ends)) {
        uint64_t now = peak_taken();
        if (now > atomic_load(&of->most))
            atomic_store(&of->most, now);
        nanosleep(&nap, NULL);
    }
    return NULL;
}

static inline void peak_begin(peak *of)
{
    memset(of, 0, sizeof(*of));
    of->before = peak_taken();
    assert_int_equal(pthread_create(&of->watcher, NULL, peak_watch, of), 0);
}

/* Returns the bytes above what was taken at the beginning. */
static inline uint64_t peak_end(peak *of)
{
    atomic_store(&of->ends, true);
    pthread_join(of->watcher, NULL);
    uint64_t most = atomic_load(&of->most);
    return most < of->before ? 0 : most - of->before;
}

/* Prints both, and returns whether they agree. */
static inline bool peak_is(const char *of, uint64_t took, uint64_t said)
{
    double share = (double)took / (double)said;
    printf("%s: took %.1f MB, formula %.1f MB, %.2f\n", of, (double)took / 1e6, (double)said / 1e6,
           share);
    fflush(stdout);
    return share > 0.6 && share < 1.4;
}

/* Runs measure(user), which returns 0 if all is well, in a forked process. */
static inline void peak_in_child(int (*measure)(const void *user), const void *user)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(measure(user));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
