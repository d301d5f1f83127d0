/* SPDX-License-Identifier: Apache-2.0
 *
 * test_arenas.c: memory of the caller's, as pinned memory is: asked for sparingly, used again, and
 * given back whole, by whichever thread is the last. */
#include "support/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/blocks.h"
#include "base/memory.h"
#include "collate/arenas.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

static rks_arenas *create(void)
{
    rks_arenas *arenas = NULL;
    rks_error err;
    assert_ok(rks_arenas_create(&arenas, &err), &err);
    return arenas;
}

/* Counts itself at `user`. Large arenas are never touched, so they take no memory. */
typedef struct owner {
    void *memory;
    int *done;
} owner;

static void count_done(void *user)
{
    owner *o = user;
    ++*o->done;
    free(o->memory);
    free(o);
}

static void *add(rks_arenas *arenas, size_t bytes, int *done)
{
    rks_error err;
    owner *o = malloc(sizeof(*o));
    assert_non_null(o);
    void *memory = malloc(bytes);
    assert_non_null(memory);
    *o = (owner){memory, done};
    assert_ok(rks_arenas_add(arenas, memory, bytes, count_done, o, &err), &err);
    return memory;
}

static uint64_t pinned(void)
{
    rks_memory_use use = {.struct_size = sizeof(use)};
    rks_memory_use_get(&use);
    return use.kinds[RKS_MEMORY_PINNED].current;
}

static void an_arena_is_asked_for_once_and_serves_again(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 64 * KIB - 64, 64 * KIB - 63, MIB, 3 * MIB};
    static const size_t wanted[] = {64 * KIB, 64 * KIB, 64 * KIB, 128 * KIB, 2 * MIB, 4 * MIB};
    for (int i = 0; i < 6; i++) {
        int done = 0;
        uint64_t before = pinned();
        rks_arenas *arenas = create();
        assert_int_equal(rks_arenas_wanted(arenas), 0);
        rks_lent lent = rks_arenas_take(arenas, sizes[i]);
        assert_null(lent.arena);
        assert_int_equal(rks_arenas_wanted(arenas), wanted[i]);
        assert_int_equal(rks_arenas_wanted(arenas), 0);
        rks_arenas_give(arenas, &lent);
        uint8_t *memory = add(arenas, wanted[i], &done);
        assert_int_equal(pinned() - before, wanted[i]);
        for (int round = 0; round < 3; round++) {
            lent = rks_arenas_take(arenas, sizes[i]);
            assert_non_null(lent.arena);
            assert_int_equal((uintptr_t)lent.data % RKS_BLOCK_ALIGN, 0);
            assert_true(lent.data >= memory && lent.data + sizes[i] <= memory + wanted[i]);
            memset(lent.data, round, sizes[i]);
            rks_arenas_give(arenas, &lent);
        }
        assert_int_equal(rks_arenas_wanted(arenas), 0);
        assert_int_equal(done, 0);
        rks_arenas_free(arenas);
        assert_int_equal(done, 1);
        assert_int_equal(pinned(), before);
    }
}

static void arenas_are_no_more_than_batches_needed_at_once(void **state)
{
    (void)state;
    int done = 0;
    uint64_t before = pinned();
    rks_arenas *arenas = create();
    rks_lent lent[6];
    for (int i = 0; i < 3; i++)
        lent[i] = rks_arenas_take(arenas, 60 * MIB);
    for (int i = 0; i < 3; i++) /* one report for all three */
        assert_int_equal(rks_arenas_wanted(arenas), i == 0 ? 64 * MIB : 0);
    for (int i = 0; i < 3; i++)
        add(arenas, 64 * MIB, &done);
    assert_int_equal(done, 0);
    add(arenas, 64 * MIB, &done); /* one that nobody wanted */
    assert_int_equal(done, 1);
    assert_int_equal(pinned() - before, 192 * MIB);
    for (int i = 0; i < 3; i++)
        rks_arenas_give(arenas, &lent[i]);
    for (int i = 0; i < 3; i++) {
        lent[i] = rks_arenas_take(arenas, 60 * MIB);
        assert_non_null(lent[i].arena);
    }
    lent[3] = rks_arenas_take(arenas, 60 * MIB);
    assert_null(lent[3].arena);
    assert_int_equal(rks_arenas_wanted(arenas), 64 * MIB);
    for (int i = 0; i < 4; i++)
        rks_arenas_give(arenas, &lent[i]);
    /* Sizes change: the arenas that were used last are kept. */
    rks_lent large = rks_arenas_take(arenas, 200 * MIB);
    assert_int_equal(rks_arenas_wanted(arenas), 256 * MIB);
    add(arenas, 256 * MIB, &done);
    assert_int_equal(done, 4);
    assert_int_equal(pinned() - before, 256 * MIB);
    rks_arenas_give(arenas, &large);
    rks_arenas_free(arenas);
    assert_int_equal(done, 5);
    assert_int_equal(pinned(), before);
}

static void what_is_in_use_leaves_no_room_for_more(void **state)
{
    (void)state;
    int done = 0;
    rks_arenas *arenas = create();
    rks_lent first = rks_arenas_take(arenas, MIB - 64);
    rks_arenas_give(arenas, &first);
    add(arenas, MIB, &done);
    first = rks_arenas_take(arenas, 300 * KIB); /* needs 512 KiB, and has the arena of 1 MiB */
    assert_non_null(first.arena);
    rks_lent second = rks_arenas_take(arenas, 300 * KIB);
    assert_null(second.arena);
    assert_int_equal(rks_arenas_wanted(arenas), 0);
    rks_arenas_give(arenas, &first);
    rks_arenas_give(arenas, &second);
    rks_arenas_free(arenas);
    assert_int_equal(done, 1);
}

static void only_an_arena_of_about_its_size_serves_a_batch(void **state)
{
    (void)state;
    int done = 0;
    rks_arenas *arenas = create();
    rks_lent large = rks_arenas_take(arenas, 4 * MIB - 64), small;
    add(arenas, 4 * MIB, &done);
    small = rks_arenas_take(arenas, MIB - 64);
    assert_null(small.arena);
    rks_arenas_give(arenas, &small);
    small = rks_arenas_take(arenas, MIB); /* more than a quarter */
    assert_non_null(small.arena);
    rks_arenas_give(arenas, &small);
    rks_arenas_give(arenas, &large);
    small = rks_arenas_take(arenas, 4 * MIB - 63); /* a byte too many */
    assert_null(small.arena);
    rks_arenas_give(arenas, &small);
    rks_arenas_free(arenas);
    assert_int_equal(done, 1);
}

static void after_the_end_arrays_stay_and_no_more_come(void **state)
{
    (void)state;
    int done = 0;
    uint64_t before = pinned();
    rks_arenas *arenas = create();
    rks_lent lent = rks_arenas_take(arenas, 100), more;
    add(arenas, 64 * KIB, &done);
    rks_arenas_give(arenas, &lent);
    lent = rks_arenas_take(arenas, 100);
    assert_non_null(lent.arena);
    rks_arenas_hold(arenas); /* as whoever has arrays does */
    rks_arenas_free(arenas);
    assert_int_equal(done, 0);
    memset(lent.data, 1, 100);
    more = rks_arenas_take(arenas, 100);
    assert_null(more.arena);
    assert_int_equal(rks_arenas_wanted(arenas), 0);
    add(arenas, 64 * KIB, &done);
    assert_int_equal(done, 1);
    rks_arenas_give(arenas, &more);
    rks_arenas_give(arenas, &lent);
    assert_int_equal(done, 2);
    add(arenas, 64 * KIB, &done);
    assert_int_equal(done, 3);
    rks_arenas_release(arenas);
    assert_int_equal(pinned(), before);
}

typedef struct writer {
    rks_arenas *arenas;
    rks_lent lent;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool entered; /* guarded by mutex */
} writer;

static void *write_slowly(void *user)
{
    writer *w = user;
    rks_arenas_enter(w->arenas);
    pthread_mutex_lock(&w->mutex);
    w->entered = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    memset(w->lent.data, 7, 100);
    rks_arenas_leave(w->arenas);
    return NULL;
}

/* Behind the end of an epoch nothing writes there: at the end of a process the memory is gone. */
static void the_end_waits_for_who_writes(void **state)
{
    (void)state;
    int done = 0;
    pthread_t thread;
    writer w = {.arenas = create(),
                .mutex = PTHREAD_MUTEX_INITIALIZER,
                .changed = PTHREAD_COND_INITIALIZER};
    rks_lent lacking = rks_arenas_take(w.arenas, 100);
    add(w.arenas, 64 * KIB, &done);
    rks_arenas_give(w.arenas, &lacking);
    w.lent = rks_arenas_take(w.arenas, 100);
    assert_non_null(w.lent.arena);
    memset(w.lent.data, 0, 100);
    assert_int_equal(pthread_create(&thread, NULL, write_slowly, &w), 0);
    pthread_mutex_lock(&w.mutex);
    while (!w.entered)
        pthread_cond_wait(&w.changed, &w.mutex);
    pthread_mutex_unlock(&w.mutex);
    rks_arenas_end(w.arenas);
    assert_int_equal(w.lent.data[99], 7);
    assert_int_equal(pthread_join(thread, NULL), 0);
    rks_arenas_give(w.arenas, &w.lent);
    assert_int_equal(done, 1);
    rks_arenas_release(w.arenas);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    int done = 0;
    rks_error err;
    static uint8_t memory[64 * KIB];
    rks_arenas *arenas = create(), *none = NULL;
    assert_int_equal(rks_arenas_add(arenas, memory, 64 * KIB - 1, count_done, &done, &err),
                     RKS_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "65535 bytes"));
    assert_int_equal(rks_arenas_add(arenas, NULL, MIB, count_done, &done, &err), RKS_ERR_ARGUMENT);
    assert_int_equal(rks_arenas_add(arenas, memory, 64 * KIB, NULL, &done, &err), RKS_ERR_ARGUMENT);
    rks_memory_fail_at(1);
    assert_int_equal(rks_arenas_add(arenas, memory, 64 * KIB, count_done, &done, &err),
                     RKS_ERR_MEMORY);
    rks_memory_fail_at(1);
    assert_int_equal(rks_arenas_create(&none, &err), RKS_ERR_MEMORY);
    rks_memory_fail_at(0);
    rks_lent lent = rks_arenas_take(arenas, SIZE_MAX - 10);
    assert_null(lent.arena);
    rks_arenas_give(arenas, &lent);
    assert_int_equal(rks_arenas_wanted(arenas), 0);
    rks_arenas_free(arenas);
    rks_arenas_free(NULL);
    assert_int_equal(done, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_arena_is_asked_for_once_and_serves_again),
        cmocka_unit_test(arenas_are_no_more_than_batches_needed_at_once),
        cmocka_unit_test(what_is_in_use_leaves_no_room_for_more),
        cmocka_unit_test(only_an_arena_of_about_its_size_serves_a_batch),
        cmocka_unit_test(after_the_end_arrays_stay_and_no_more_come),
        cmocka_unit_test(the_end_waits_for_who_writes),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
