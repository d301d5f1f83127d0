/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c: malloc with two counters, live allocations and the countdown to a failure, and a look
 * at what is left before large ones. */
#include "base/memory.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/available_memory.h"
#include "base/c_locale.h"
#include "base/error.h"

enum { LOOKED_FOR = 16 << 20 }; /* a call's amount; smaller ones are always there */

static atomic_long fail_at;
static atomic_long in_use;

static bool must_fail(void)
{
    if (atomic_load_explicit(&fail_at, memory_order_relaxed) == 0)
        return false;
    return atomic_fetch_sub(&fail_at, 1) == 1;
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

rks_status rks_memory_check(uint64_t bytes, const char *what, const char *advice, rks_error *err)
{
    uint64_t left = bytes < LOOKED_FOR ? UINT64_MAX : rks_memory_obtainable("");
    if (bytes <= left)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_MEMORY, 0,
                    "%s needs %.1f GiB of memory, and this machine, or the control group of the "
                    "process, has %.1f GiB left%s",
                    what, gib(bytes), gib(left), advice);
}

static void *no_memory(rks_error *err, size_t count, size_t size)
{
    rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: %zu x %zu bytes", count, size);
    return NULL;
}

/* Looks at what is left before a large allocation, or a growth by so many bytes. */
static rks_status check_allocation(size_t bytes, rks_error *err)
{
    return bytes < RKS_MEMORY_LARGE
               ? RKS_OK
               : rks_memory_check(bytes, "out of memory: one allocation", "", err);
}

static void *allocate_counted(size_t count, size_t size, bool zero, rks_error *err)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2 || must_fail())
        return no_memory(err, count, size);
    if (check_allocation(bytes, err) != RKS_OK)
        return NULL;
    if (bytes == 0)
        bytes = 1;
    void *memory = zero ? calloc(1, bytes) : malloc(bytes);
    if (memory == NULL)
        return no_memory(err, count, size);
    atomic_fetch_add_explicit(&in_use, 1, memory_order_relaxed);
    return memory;
}

void *rks_alloc(size_t count, size_t size, rks_error *err)
{
    return allocate_counted(count, size, true, err);
}

void *rks_alloc_raw(size_t count, size_t size, rks_error *err)
{
    return allocate_counted(count, size, false, err);
}

void *rks_realloc(void *memory, size_t count, size_t size, rks_error *err)
{
    if (memory == NULL)
        return rks_alloc_raw(count, size, err);
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2 || must_fail())
        return no_memory(err, count, size);
    size_t before = bytes < RKS_MEMORY_LARGE ? 0 : malloc_usable_size(memory);
    if (bytes > before && check_allocation(bytes - before, err) != RKS_OK)
        return NULL;
    void *grown = realloc(memory, bytes == 0 ? 1 : bytes);
    return grown != NULL ? grown : no_memory(err, count, size);
}

void rks_free(void *memory)
{
    if (memory == NULL)
        return;
    atomic_fetch_sub_explicit(&in_use, 1, memory_order_relaxed);
    free(memory);
}

void rks_release(void *memory)
{
    rks_free(memory);
}

char *rks_strdup(const char *text, rks_error *err)
{
    size_t size = strlen(text) + 1;
    char *copy = rks_alloc_raw(size, 1, err);
    if (copy != NULL)
        memcpy(copy, text, size);
    return copy;
}

char *rks_format(rks_error *err, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int size = rks_vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = size < 0 ? NULL : rks_alloc_raw((size_t)size + 1, 1, err);
    if (text != NULL)
        rks_vsnprintf(text, (size_t)size + 1, format, again);
    va_end(again);
    return text;
}

void rks_memory_fail_at(long n)
{
    atomic_store(&fail_at, n);
}

long rks_memory_fail_left(void)
{
    long left = atomic_load(&fail_at);
    return left > 0 ? left : 0;
}

long rks_memory_in_use(void)
{
    return atomic_load(&in_use);
}
