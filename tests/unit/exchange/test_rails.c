/* SPDX-License-Identifier: Apache-2.0
 *
 * test_rails.c: who carries what, at sizes that no machine here could hold. */
#include "exchange/gpu_rails.h"

#include <stdlib.h>

#include "support/check.h"
#include "support/seed.h"

enum { MOST = 64 };

typedef struct world {
    uint32_t ranks;
    uint32_t nodes[MOST];
    uint8_t gpus[MOST * RKS_GPU_RECORD];
    uint64_t sizes[MOST];
    uint64_t piece;
} world;

static rks_error err;

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void give_gpu(world *w, uint32_t rank, uint8_t number)
{
    uint8_t *gpu = w->gpus + rank * RKS_GPU_RECORD;
    memset(gpu, 0, RKS_GPU_RECORD);
    gpu[0] = 1;
    gpu[1] = number;
}

static uint64_t boundary(void *user, uint32_t sender, uint64_t offset)
{
    const world *w = user;
    uint64_t at = (offset + w->piece - 1) / w->piece * w->piece;
    return at < w->sizes[sender] ? at : w->sizes[sender];
}

static rks_rails_input input_of(world *w, uint32_t rank, bool flat)
{
    return (rks_rails_input){.ranks = w->ranks,
                             .rank = rank,
                             .nodes = w->nodes,
                             .gpus = w->gpus,
                             .sizes = w->sizes,
                             .flat = flat,
                             .buffer = 16 << 20,
                             .chunk = 4 << 20,
                             .boundary = w->piece > 0 ? boundary : NULL,
                             .user = w};
}

/* Adds up what is carried of each stream, in order. */
typedef struct tally {
    const world *w;
    uint64_t next[MOST];
    uint64_t rounds_bytes;
} tally;

static rks_status count(void *user, const rks_stretch *stretch, uint64_t at, rks_error *why)
{
    (void)at;
    (void)why;
    tally *t = user;
    assert_int_equal(stretch->offset, t->next[stretch->sender]);
    assert_true(stretch->size > 0);
    t->next[stretch->sender] += stretch->size;
    t->rounds_bytes += stretch->size;
    return RKS_OK;
}

/* Every byte of every stream of `node` is carried once: slice by slice, round by round. */
static void check_node(world *w, uint32_t node, bool flat)
{
    tally t = {.w = w};
    for (uint32_t rank = 0; rank < w->ranks; rank++) {
        if (w->nodes[rank] != node)
            continue;
        rks_rails rails;
        rks_rails_input input = input_of(w, rank, flat);
        assert_ok(rks_rails_make(&input, &rails, &err), &err);
        if (rails.mine >= 0) {
            const rks_member *me = &rails.members[rails.me];
            assert_int_equal(me->rank, rank);
            assert_int_equal(me->node, node);
            uint64_t before = t.rounds_bytes;
            for (uint64_t round = 0; round < rails.rounds; round++) {
                uint64_t payload = rks_rails_payload(&rails, rails.me, round);
                assert_true(payload <= rails.room);
                assert_true(rks_rails_round(&rails, round) >= RKS_ROUND_HEAD + payload);
                assert_true(rks_rails_round(&rails, round) * rails.member_count <= input.buffer);
                assert_ok(
                    rks_rails_each(&rails, rails.me, round * rails.room, payload, count, &t, &err),
                    &err);
            }
            assert_int_equal(t.rounds_bytes - before, me->bytes);
        }
        rks_rails_free(&rails);
    }
    for (uint32_t rank = 0; rank < w->ranks; rank++)
        if (w->nodes[rank] == node)
            assert_int_equal(t.next[rank], w->sizes[rank]);
}

static void every_byte_is_carried_once(void **state)
{
    (void)state;
    uint64_t seed = test_seed(20261121);
    for (int turn = 0; turn < 60; turn++) {
        world w = {.ranks = 1 + (uint32_t)next(&seed) % 24, .piece = next(&seed) % 5000};
        uint32_t nodes = 1 + (uint32_t)next(&seed) % (w.ranks < 6 ? w.ranks : 6);
        for (uint32_t rank = 0; rank < w.ranks; rank++) {
            w.nodes[rank] = rank % nodes;
            w.sizes[rank] = next(&seed) % 3 == 0 ? 0 : next(&seed) % (64 << 20);
            if (rank < nodes || next(&seed) % 3 != 0)
                give_gpu(&w, rank, (uint8_t)(next(&seed) % 4));
        }
        for (uint32_t node = 0; node < nodes; node++)
            check_node(&w, node, turn % 4 == 0);
    }
}

/* 2^40 bytes of one node, 2^35 samples or so: nothing overflows. */
static void sizes_above_32_bits_are_counted(void **state)
{
    (void)state;
    world w = {.ranks = 8, .piece = 786456};
    for (uint32_t rank = 0; rank < 8; rank++) {
        w.nodes[rank] = rank / 4;
        w.sizes[rank] = ((uint64_t)1 << 40) + rank * 12345;
        give_gpu(&w, rank, (uint8_t)rank);
    }
    rks_rails rails;
    rks_rails_input input = input_of(&w, 5, false);
    assert_ok(rks_rails_make(&input, &rails, &err), &err);
    assert_int_equal(rails.rails, 4);
    assert_int_equal(rails.mine, 1);
    assert_int_equal(rails.me, 1);
    uint64_t sum = 0;
    for (uint64_t round = 0; round < rails.rounds; round++)
        sum += rks_rails_payload(&rails, 1, round);
    assert_int_equal(sum, rails.members[1].bytes);
    assert_true(rails.members[1].bytes > ((uint64_t)1 << 40) - 786456);
    assert_int_equal(rks_rails_payload(&rails, 1, rails.rounds), 0);
    rks_rails_free(&rails);
    /* A round of more than 2^31 bytes. */
    input.buffer = (uint64_t)6 << 30;
    input.chunk = (uint64_t)2 << 30;
    assert_ok(rks_rails_make(&input, &rails, &err), &err);
    assert_int_equal(rails.room, (uint64_t)2 << 30);
    assert_int_equal(rks_rails_round(&rails, 0), ((uint64_t)2 << 30) + RKS_ROUND_HEAD);
    rks_rails_free(&rails);
}

static void slots_that_are_too_small_are_refused(void **state)
{
    (void)state;
    world w = {.ranks = 64};
    for (uint32_t rank = 0; rank < 64; rank++) {
        w.nodes[rank] = rank;
        w.sizes[rank] = 1000;
        give_gpu(&w, rank, 0);
    }
    rks_rails rails;
    rks_rails_input input = input_of(&w, 0, false);
    input.buffer = 4096;
    assert_fails(RKS_ERR_UNSUPPORTED, rks_rails_make(&input, &rails, &err));
    assert_contains(err.text, "64 GPUs share a buffer of 4096 bytes");
    input.buffer = 64 * 80;
    assert_ok(rks_rails_make(&input, &rails, &err), &err);
    assert_int_equal(rails.room, 16);
    rks_rails_free(&rails);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_carried_once),
        cmocka_unit_test(sizes_above_32_bits_are_counted),
        cmocka_unit_test(slots_that_are_too_small_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
