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
    rks_exchange_segment all_segments[MOST];
    size_t first[MOST + 1];
    rks_exchange_segments segments; /* of one a rank */
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

static rks_rails_input input_of(world *w, uint32_t rank, bool flat)
{
    w->segments = (rks_exchange_segments){w->all_segments, w->first};
    for (uint32_t i = 0; i < w->ranks; i++) {
        w->first[i + 1] = w->first[i] + (w->sizes[i] > 0);
        if (w->sizes[i] > 0)
            w->all_segments[w->first[i]] = (rks_exchange_segment){0, w->sizes[i], w->piece};
    }
    return (rks_rails_input){.ranks = w->ranks,
                             .rank = rank,
                             .nodes = w->nodes,
                             .gpus = w->gpus,
                             .sizes = w->sizes,
                             .flat = flat,
                             .buffer = 16 << 20,
                             .chunk = 4 << 20,
                             .segments = w->piece > 0 ? &w->segments : NULL};
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

/* Two ranks; the first has no stream, the second one of 10 bytes in steps of 4 and one of 8 in
 * steps of 8. */
static void streams_divide_at_steps_and_ends_of_segments(void **state)
{
    (void)state;
    static const rks_exchange_segment all[] = {{0, 10, 4}, {10, 8, 8}};
    static const size_t first[] = {0, 0, 2};
    static const uint64_t boundaries[] = {0,  4,  4,  4,  4,  8,  8,  8,  8, 10,
                                          10, 18, 18, 18, 18, 18, 18, 18, 18};
    const rks_exchange_segments segments = {all, first};
    assert_null(rks_exchange_segment_at(&segments, 0, 0));
    assert_int_equal(rks_exchange_boundary(&segments, 0, 0), 0);
    for (uint64_t offset = 0; offset < 20; offset++) {
        const rks_exchange_segment *in = rks_exchange_segment_at(&segments, 1, offset);
        assert_ptr_equal(in, offset < 10 ? &all[0] : offset < 18 ? &all[1] : NULL);
        if (offset < 19)
            assert_int_equal(rks_exchange_boundary(&segments, 1, offset), boundaries[offset]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_divide_at_steps_and_ends_of_segments),
        cmocka_unit_test(every_byte_is_carried_once),
        cmocka_unit_test(sizes_above_32_bits_are_counted),
        cmocka_unit_test(slots_that_are_too_small_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
