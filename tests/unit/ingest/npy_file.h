/* SPDX-License-Identifier: Apache-2.0
 *
 * npy_file.h: bytes of .npy files for tests. */
#ifndef RKS_TESTS_NPY_FILE_H
#define RKS_TESTS_NPY_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Version 1; the size of all. */
static inline size_t npy_file(uint8_t *bytes, const char *descr, const char *shape,
                              const void *items, size_t size)
{
    char text[160];
    int head = snprintf(text, sizeof(text),
                        "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape);
    memcpy(bytes, "\x93NUMPY\1\0", 8);
    bytes[8] = (uint8_t)head;
    bytes[9] = 0;
    memcpy(bytes + 10, text, (size_t)head);
    if (size > 0)
        memcpy(bytes + 10 + head, items, size);
    return 10 + (size_t)head + size;
}

#endif
