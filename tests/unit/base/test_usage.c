/* SPDX-License-Identifier: Apache-2.0
 *
 * test_usage.c: counting memory by kind, from many threads, and what a caller sees of it. */
#include "support/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory_usage.h"

static rks_memory_use now(void)
{
    rks_memory_use use = {.struct_size = sizeof(use)};
    rks_memory_use_get(&use);
    return use;
}

static void a_kind_has_what_it_holds_and_the_most_it_held(void **state)
{
    (void)state;
    rks_memory_figure before = now().kinds[RKS_MEMORY_STAGING];
    uint64_t high = before.peak + 1000; /* above all that was, whatever ran before */
    rks_usage_add(RKS_MEMORY_STAGING, high - before.current);
    rks_usage_sub(RKS_MEMORY_STAGING, 400);
    rks_usage_add(RKS_MEMORY_STAGING, 100);
    rks_memory_use use = now();
    assert_int_equal(use.kinds[RKS_MEMORY_STAGING].current, high - 300);
    assert_int_equal(use.kinds[RKS_MEMORY_STAGING].peak, high);
    rks_usage_sub(RKS_MEMORY_STAGING, high - 300 - before.current);
    use = now();
    assert_int_equal(use.kinds[RKS_MEMORY_STAGING].current, before.current);
    assert_int_equal(use.kinds[RKS_MEMORY_STAGING].peak, high);
    assert_int_equal(use.kinds[RKS_MEMORY_GPU_NCCL].peak, 0); /* another kind */
}

enum { THREADS = 4, TURNS = 20000, EACH = 7 };

static void *add_and_sub(void *user)
{
    pthread_barrier_wait(user);
    for (int i = 0; i < TURNS; i++) {
        rks_usage_add(RKS_MEMORY_PINNED, EACH);
        rks_usage_sub(RKS_MEMORY_PINNED, EACH);
    }
    rks_usage_add(RKS_MEMORY_PINNED, EACH);
    return NULL;
}

static void threads_lose_no_byte(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_and_sub, &barrier), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    rks_memory_figure pinned = now().kinds[RKS_MEMORY_PINNED];
    assert_int_equal(pinned.current, THREADS * EACH);
    assert_in_range(pinned.peak, THREADS * EACH, 2 * THREADS * EACH);
    rks_usage_sub(RKS_MEMORY_PINNED, THREADS * EACH);
}

static void each_kind_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < RKS_MEMORY_KINDS; i++) {
        assert_non_null(rks_memory_kind_name(i));
        for (uint32_t j = 0; j < i; j++)
            assert_string_not_equal(rks_memory_kind_name(i), rks_memory_kind_name(j));
    }
    assert_null(rks_memory_kind_name(RKS_MEMORY_KINDS));
    assert_null(rks_memory_kind_name(UINT32_MAX));
    assert_string_equal(rks_memory_kind_name(RKS_MEMORY_IN_FLIGHT), "in_flight");
}

static void a_caller_with_an_older_header_gets_what_it_has_room_for(void **state)
{
    (void)state;
    rks_memory_use use;
    memset(&use, 0xab, sizeof(use));
    use.struct_size = sizeof(use.struct_size) + 2 * sizeof(use.kinds[0]);
    rks_memory_use_get(&use);
    assert_int_equal(use.struct_size, sizeof(use.struct_size) + 2 * sizeof(use.kinds[0]));
    assert_true(use.kinds[1].peak != 0xabababababababab);
    assert_true(use.kinds[2].current == 0xabababababababab);
}

static void what_is_resident_is_the_kernels_figure(void **state)
{
    (void)state;
    enum { BYTES = 32 << 20 };
    uint64_t before = now().kinds[RKS_MEMORY_RESIDENT].current;
    assert_true(before > 0);
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    memset(memory, 1, BYTES);
    rks_memory_figure with = now().kinds[RKS_MEMORY_RESIDENT];
    munmap(memory, BYTES);
    rks_memory_figure after = now().kinds[RKS_MEMORY_RESIDENT];
    assert_true(with.current >= before + BYTES * 3 / 4);
    assert_true(after.current < with.current);
    assert_true(after.peak + BYTES / 4 >= with.current); /* the kernel counts by the dozen */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kind_has_what_it_holds_and_the_most_it_held),
        cmocka_unit_test(threads_lose_no_byte),
        cmocka_unit_test(each_kind_has_a_name_of_its_own),
        cmocka_unit_test(a_caller_with_an_older_header_gets_what_it_has_room_for),
        cmocka_unit_test(what_is_resident_is_the_kernels_figure),
    };
    return cmocka_run_group_tests_name("usage", tests, NULL, NULL);
}
