/* SPDX-License-Identifier: Apache-2.0
 *
 * scratch.h: a folder of files for one test, and numbers from a seed. */
#ifndef RKS_TESTS_SCRATCH_H
#define RKS_TESTS_SCRATCH_H

#include "support/check.h"
#include "support/folder.h"
#include "support/seed.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch_dir[FOLDER_PATH];

static inline int scratch_open(void **state)
{
    (void)state;
    return !folder_make_in_memory(scratch_dir);
}

static inline int scratch_close(void **state)
{
    (void)state;
    return folder_remove(scratch_dir);
}

/* One of the last 8 paths asked for. */
static inline const char *scratch_path(const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", scratch_dir, name);
    return path;
}

/* Folders on the way are made. */
static inline const char *scratch_bytes(const char *name, const void *bytes, size_t size)
{
    const char *path = scratch_path(name);
    char folder[512];
    for (size_t i = strlen(scratch_dir) + 1; path[i] != '\0'; i++) {
        if (path[i] != '/')
            continue;
        memcpy(folder, path, i);
        folder[i] = '\0';
        mkdir(folder, 0777);
    }
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline const char *scratch_file(const char *name, const char *text)
{
    return scratch_bytes(name, text, strlen(text));
}

/* xorshift64*; SEED repeats a run. */
static uint64_t scratch_seed;

static inline void scratch_seed_print(void)
{
    scratch_seed = test_seed(0);
}

static inline uint64_t scratch_random(uint64_t below)
{
    scratch_seed ^= scratch_seed >> 12;
    scratch_seed ^= scratch_seed << 25;
    scratch_seed ^= scratch_seed >> 27;
    return (scratch_seed * 0x2545f4914f6cdd1du >> 11) % below;
}

#endif
