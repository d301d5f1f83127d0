/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.h: the directory of a test: made under /tmp, or in memory, and removed with all that is in
 * it. */
#ifndef RKS_TESTS_FOLDER_H
#define RKS_TESTS_FOLDER_H

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FOLDER_PATH = 64 };

/* /tmp/rankstore-test-XXXXXX into path[FOLDER_PATH]; false: it cannot be made. */
static inline bool folder_make(char *path)
{
    strcpy(path, "/tmp/rankstore-test-XXXXXX");
    return mkdtemp(path) != NULL;
}

/* The same in memory, for tests that write many small files and ask nothing of a disk: what is
 * synced there costs nothing. */
static inline bool folder_make_in_memory(char *path)
{
    strcpy(path, "/dev/shm/rankstore-test-XXXXXX");
    return mkdtemp(path) != NULL || folder_make(path);
}

static inline int folder_remove_one(const char *path, const struct stat *info, int kind,
                                    struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

/* The directory and all below it; 0 if nothing is left. */
static inline int folder_remove(const char *path)
{
    return nftw(path, folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
