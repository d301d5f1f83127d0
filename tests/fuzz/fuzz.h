/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz.h: what the fuzz targets share. */
#ifndef RKS_TESTS_FUZZ_H
#define RKS_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Unlike assert, in every build. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The text with a right digest at its end, since a fuzzer cannot guess one; free() it. */
static inline char *fuzz_with_digest(const uint8_t *data, size_t size, size_t *whole)
{
    static const char before[] = ",\"digest\":\"";
    enum { BEFORE = sizeof(before) - 1, DIGITS = 32, TAIL = BEFORE + DIGITS + 3 };
    if (size >= TAIL && memcmp(data + size - TAIL, before, BEFORE) == 0)
        size -= TAIL;
    char *text = malloc(size + TAIL + 1);
    FUZZ_CHECK(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    memcpy(text + size, before, BEFORE);
    memset(text + size + BEFORE, '0', DIGITS);
    memcpy(text + size + BEFORE + DIGITS, "\"}\n", 4);
    char digits[RKS_DIGEST_TEXT];
    rks_digest_format(rks_checksum128(text, size + TAIL), digits);
    memcpy(text + size + BEFORE, digits, DIGITS);
    *whole = size + TAIL;
    return text;
}

/* The path of a file in memory that holds these bytes until the next call. */
static inline char *fuzz_file_of(const uint8_t *bytes, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        FUZZ_CHECK(fd >= 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    FUZZ_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, size, 0) == (ssize_t)size);
    return path;
}

#endif
