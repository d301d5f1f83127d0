/* SPDX-License-Identifier: Apache-2.0
 *
 * test_blocks.c: a pool whose memory comes from a source, as pinned memory does: it is asked for little
 * and given back whole. */
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/blocks.h"
#include "base/error.h"
#include "base/memory.h"

enum { ARENAS = 64, MIB = 1 << 20 };

/* Arenas are malloc's; large ones are never touched, but for their heads. */
typedef struct source {
    int taken, given, ended;
    size_t bytes; /* asked for last */
    bool fails;
    void *arenas[ARENAS];
} source;

static void *take(void *user, size_t bytes, void **arena, rks_error *err)
{
    source *s = user;
    s->bytes = bytes;
    if (s->fails) {
        rks_fail(err, RKS_ERR_MEMORY, 0, "no more arenas");
        return NULL;
    }
    assert_true(s->taken < ARENAS);
    *arena = &s->arenas[s->taken];
    return s->arenas[s->taken++] = malloc(bytes);
}

static void give(void *user, void *arena)
{
    source *s = user;
    void **memory = arena;
    assert_non_null(*memory);
    free(*memory);
    *memory = NULL;
    s->given++;
}

static void end(void *user)
{
    ((source *)user)->ended++;
}

static rks_blocks *pool_in(source *s)
{
    const rks_arena_source asked = {sizeof(asked), take, give, end, s};
    rks_blocks *pool = NULL;
    rks_error err;
    assert_ok(rks_blocks_create_in(&asked, &pool, &err), &err);
    return pool;
}

static rks_block *taken(rks_blocks *pool, size_t size)
{
    rks_error err;
    rks_block *block = rks_blocks_take(pool, size, &err);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block->data % RKS_BLOCK_ALIGN, 0);
    assert_true(block->data + size <= (uint8_t *)block + block->bytes);
    return block;
}

static uint64_t held(enum rks_memory_kind kind)
{
    rks_memory_use use = {.struct_size = sizeof(use)};
    rks_memory_use_get(&use);
    return use.kinds[kind].current;
}

static void an_arena_serves_again_and_is_given_back(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 100, 30000, 40000, MIB - 200, MIB, 3 * MIB};
    static const size_t arenas[] = {32 << 10, 32 << 10, 32 << 10, 32 << 10,
                                    64 << 10, MIB,      2 * MIB,  4 * MIB};
    for (int i = 0; i < 8; i++) {
        source s = {0};
        uint64_t pinned = held(RKS_MEMORY_PINNED), batches = held(RKS_MEMORY_BATCHES);
        rks_blocks *pool = pool_in(&s);
        for (int round = 0; round < 3; round++) {
            rks_block *block = taken(pool, sizes[i]);
            memset(block->data, round, sizes[i]);
            assert_int_equal(s.bytes, arenas[i]);
            assert_int_equal(held(RKS_MEMORY_PINNED) - pinned, arenas[i]);
            assert_int_equal(held(RKS_MEMORY_BATCHES), batches);
            rks_blocks_give(pool, block);
            assert_int_equal(s.taken, 1);
            assert_int_equal(s.given, 0);
        }
        rks_blocks_release(pool);
        assert_int_equal(s.given, 1);
        assert_int_equal(s.ended, 1);
        assert_int_equal(held(RKS_MEMORY_PINNED), pinned);
    }
}

/* However large: making them takes long. */
static void as_much_is_kept_as_was_in_use_at_once(void **state)
{
    (void)state;
    source s = {0};
    rks_blocks *pool = pool_in(&s);
    rks_block *blocks[5];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5; i++)
            blocks[i] = taken(pool, 100 * MIB);
        for (int i = 0; i < 5; i++)
            rks_blocks_give(pool, blocks[i]);
        assert_int_equal(s.taken, 5);
        assert_int_equal(s.given, 0);
    }
    rks_blocks_give(pool, taken(pool, (size_t)800 * MIB)); /* 1 GiB: sizes have changed */
    assert_int_equal(s.given, 5);
    assert_int_equal(rks_blocks_kept(pool), (size_t)1024 * MIB);
    rks_blocks_release(pool);
    assert_int_equal(s.given, s.taken);
    assert_int_equal(s.ended, 1);
}

static void blocks_outlive_whoever_made_the_pool(void **state)
{
    (void)state;
    source s = {0};
    rks_blocks *pool = pool_in(&s);
    rks_blocks_hold(pool);
    rks_block *block = taken(pool, 500);
    rks_blocks_release(pool);
    assert_int_equal(s.ended, 0);
    rks_blocks_give(pool, block);
    rks_blocks_release(pool);
    assert_int_equal(s.given, 1);
    assert_int_equal(s.ended, 1);
}

static void a_source_that_has_no_more_is_an_error(void **state)
{
    (void)state;
    source s = {.fails = true};
    rks_error err;
    rks_blocks *pool = pool_in(&s);
    assert_null(rks_blocks_take(pool, 5000, &err));
    assert_int_equal(err.status, RKS_ERR_MEMORY);
    assert_string_equal(err.text, "no more arenas");
    assert_int_equal(rks_blocks_memory(pool), 0);
    s.fails = false;
    rks_blocks_give(pool, taken(pool, 5000));
    rks_blocks_release(pool);
    const rks_arena_source asked = {sizeof(asked), take, give, end, &s};
    s.ended = 0;
    rks_memory_fail_at(1);
    assert_int_equal(rks_blocks_create_in(&asked, &pool, &err), RKS_ERR_MEMORY);
    rks_memory_fail_at(0);
    assert_int_equal(s.ended, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_arena_serves_again_and_is_given_back),
        cmocka_unit_test(as_much_is_kept_as_was_in_use_at_once),
        cmocka_unit_test(blocks_outlive_whoever_made_the_pool),
        cmocka_unit_test(a_source_that_has_no_more_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
