/* SPDX-License-Identifier: Apache-2.0
 *
 * ingest_inputs.h: the inputs that bench_ingest measures: how each is made, and how the library
 * that reads it takes its bytes. */
#ifndef RKS_TESTS_INGEST_INPUTS_H
#define RKS_TESTS_INGEST_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct input {
    const char *name;
    const char *library;
    uint64_t (*make)(const struct input *in, const char *path); /* bytes, unpacked */
    void (*read)(const struct input *in, const char *path);
    const char *format; /* libarchive's */
    const char *filter;
    bool json;
    size_t member; /* bytes */
} input;

extern const input INPUTS[];
extern const size_t INPUT_COUNT;

#endif
