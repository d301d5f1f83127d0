/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: cmocka, and assertions for rks_status. */
#ifndef RKS_TESTS_CHECK_H
#define RKS_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rankstore.h"

/* Loops over all sizes, or all allocations, of what one thread does find no races: under the thread
 * sanitizer, where they take long, they try each RACE_STRIDE-th. */
#ifdef __SANITIZE_THREAD__
enum { RACE_STRIDE = 7 };
#else
enum { RACE_STRIDE = 1 };
#endif

static inline void rks_check_ok(rks_status status, const rks_error *err, const char *what,
                                const char *file, int line)
{
    if (status == RKS_OK)
        return;
    print_error("%s: %s: %s\n", what, rks_status_name(status), err->text);
    _fail(file, line);
}

static inline void rks_check_fails(rks_status expected, rks_status status, const char *what,
                                   const char *file, int line)
{
    if (status == expected)
        return;
    print_error("%s: %s, not %s\n", what, rks_status_name(status), rks_status_name(expected));
    _fail(file, line);
}

#define assert_ok(call, err) rks_check_ok((call), (err), #call, __FILE__, __LINE__)
#define assert_fails(expected, call) rks_check_fails((expected), (call), #call, __FILE__, __LINE__)
#define assert_contains(text, part)                                                                \
    do {                                                                                           \
        if (strstr((text), (part)) == NULL) {                                                      \
            print_error("\"%s\" does not contain \"%s\"\n", (text), (part));                       \
            _fail(__FILE__, __LINE__);                                                             \
        }                                                                                          \
    } while (0)

/* Bytes of all kinds of memory that are counted as held: 0 where all was given back. */
static inline uint64_t counted_memory(void)
{
    uint64_t sum = 0;
    rks_memory_use use = {.struct_size = sizeof(use)};
    rks_memory_use_get(&use);
    for (int i = 0; i < RKS_MEMORY_KINDS; i++)
        sum += i == RKS_MEMORY_RESIDENT ? 0 : use.kinds[i].current;
    return sum;
}

#endif
