/* SPDX-License-Identifier: Apache-2.0
 *
 * test_assign.c: the laws of the assignment, on random clusters. */
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

#include "home/assign.h"

enum { CASES = 400, NODES_MAX = 13, SHARDS_MAX = 200, COPIES_MAX = 3 };
#define GIB (UINT64_C(1) << 30)

static rks_error err;
static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

typedef struct cluster {
    rks_assign_shard shards[SHARDS_MAX];
    size_t shard_count;
    rks_place places[NODES_MAX];
    uint64_t here[NODES_MAX][SHARDS_MAX];
    size_t place_count;
    uint32_t copies;
    int32_t holders[SHARDS_MAX * COPIES_MAX];
    uint64_t lacking;
} cluster;

static void point_at_here(cluster *c)
{
    for (size_t i = 0; i < c->place_count; i++)
        c->places[i].here = c->here[i];
}

/* Each node has 1.1 to 3 times the room of its share. */
static void draw_cluster(cluster *c, uint64_t seed)
{
    uint64_t total = 0;
    memset(c, 0, sizeof(*c));
    random_state = seed * 2654435761u + 88172645463325252u;
    c->place_count = 1 + draw(NODES_MAX - 1);
    c->shard_count = 1 + draw(SHARDS_MAX);
    c->copies = 1 + (uint32_t)draw(c->place_count < COPIES_MAX ? c->place_count : COPIES_MAX);
    for (size_t s = 0; s < c->shard_count; s++) {
        c->shards[s].id = (rks_digest){draw(UINT64_MAX), s};
        c->shards[s].bytes = draw(2) == 0 ? GIB : 1 + draw(4 * GIB);
        total += c->shards[s].bytes;
    }
    for (size_t i = 0; i < c->place_count; i++) {
        uint64_t share = total / c->place_count * c->copies;
        c->places[i] = (rks_place){
            .id = draw(UINT64_MAX),
            .node = (uint32_t)i,
            .room = share / 10 * (11 + draw(20)) + 4 * GIB,
        };
    }
    point_at_here(c);
}

static void assign(cluster *c)
{
    assert_int_equal(
        rks_assign(&(rks_cluster){c->shards, c->shard_count, c->places, c->place_count, c->copies},
                   c->holders, &c->lacking, &err),
        RKS_OK);
}

/* All that is assigned arrives. */
static void settle(cluster *c)
{
    for (size_t s = 0; s < c->shard_count; s++)
        for (uint32_t k = 0; k < c->copies; k++) {
            int32_t place = c->holders[s * c->copies + k];
            if (place < 0)
                continue;
            c->places[place].room -= c->shards[s].bytes - c->here[place][s];
            c->here[place][s] = c->shards[s].bytes;
        }
}

/* Bytes that must be brought. */
static uint64_t moved(const cluster *c)
{
    uint64_t bytes = 0;
    for (size_t s = 0; s < c->shard_count; s++)
        for (uint32_t k = 0; k < c->copies; k++) {
            int32_t place = c->holders[s * c->copies + k];
            if (place >= 0)
                bytes += c->shards[s].bytes - c->here[place][s];
        }
    return bytes;
}

static void check_nodes_and_room(const cluster *c)
{
    uint64_t added[NODES_MAX] = {0};
    for (size_t s = 0; s < c->shard_count; s++)
        for (uint32_t k = 0; k < c->copies; k++) {
            int32_t place = c->holders[s * c->copies + k];
            if (place < 0)
                continue;
            added[place] += c->shards[s].bytes - c->here[place][s];
            for (uint32_t other = 0; other < k; other++)
                assert_int_not_equal(c->places[place].node,
                                     c->places[c->holders[s * c->copies + other]].node);
        }
    for (size_t i = 0; i < c->place_count; i++)
        assert_true(added[i] <= c->places[i].room);
}

/* The last shard and the last place become the first. */
static void check_order(const cluster *c)
{
    static cluster turned;
    size_t shards = c->shard_count, places = c->place_count;
    turned = *c;
    for (size_t s = 0; s < shards; s++)
        turned.shards[s] = c->shards[shards - 1 - s];
    for (size_t i = 0; i < places; i++) {
        turned.places[i] = c->places[places - 1 - i];
        for (size_t s = 0; s < shards; s++)
            turned.here[i][s] = c->here[places - 1 - i][shards - 1 - s];
    }
    point_at_here(&turned);
    assign(&turned);
    assert_int_equal(turned.lacking, c->lacking);
    for (size_t s = 0; s < shards; s++)
        for (uint32_t k = 0; k < c->copies; k++) {
            int32_t one = c->holders[s * c->copies + k];
            int32_t other = turned.holders[(shards - 1 - s) * c->copies + k];
            assert_int_equal(one, other < 0 ? -1 : (int32_t)places - 1 - other);
        }
}

static void check_a_lost_place(const cluster *c)
{
    static cluster rest;
    if (c->place_count <= c->copies)
        return;
    size_t gone = draw(c->place_count), last = c->place_count - 1;
    uint64_t lost = 0;
    for (size_t s = 0; s < c->shard_count; s++)
        lost += c->here[gone][s];
    rest = *c;
    rest.places[gone] = c->places[last];
    memcpy(rest.here[gone], c->here[last], sizeof(rest.here[gone]));
    rest.place_count = last;
    for (size_t i = 0; i < last; i++)
        rest.places[i].room = UINT64_C(1) << 50;
    point_at_here(&rest);
    assign(&rest);
    assert_int_equal(rest.lacking, 0);
    assert_int_equal(moved(&rest), lost);
}

static void check_changes_that_move_nothing(const cluster *settled)
{
    static cluster other;
    other = *settled;
    point_at_here(&other);
    assign(&other);
    assert_int_equal(moved(&other), 0);
    for (size_t i = 0; i < other.place_count; i++)
        other.places[i].room = other.places[i].room / 10 * (9 + draw(3));
    assign(&other);
    assert_int_equal(moved(&other), 0);
    other = *settled;
    other.places[other.place_count++] = (rks_place){.id = 7, .node = 99, .room = UINT64_C(1) << 50};
    memset(other.here[other.place_count - 1], 0, sizeof(other.here[0]));
    point_at_here(&other);
    assign(&other);
    assert_int_equal(moved(&other), 0);
}

static void holds_its_laws_on_random_clusters(void **state)
{
    (void)state;
    static cluster c;
    size_t fit = 0;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        draw_cluster(&c, seed);
        assign(&c);
        check_nodes_and_room(&c);
        check_order(&c);
        if (c.lacking > 0)
            continue;
        fit++;
        settle(&c);
        check_changes_that_move_nothing(&c);
        check_a_lost_place(&c);
    }
    assert_true(fit > CASES / 2);
}

/* A job was stopped while shards arrived. No more has to be brought than was lacking then. */
static void what_has_begun_goes_on(void **state)
{
    (void)state;
    static cluster c;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        uint64_t needed = 0;
        draw_cluster(&c, seed);
        assign(&c);
        if (c.lacking > 0)
            continue;
        for (size_t s = 0; s < c.shard_count; s++)
            for (uint32_t k = 0; k < c.copies; k++) {
                int32_t place = c.holders[s * c.copies + k];
                uint64_t bytes = c.shards[s].bytes;
                uint64_t part = draw(2) == 0 ? bytes : draw(bytes + 1);
                c.here[place][s] = part;
                c.places[place].room -= part;
                needed += bytes - part;
            }
        assign(&c);
        if (c.lacking == 0)
            assert_true(moved(&c) <= needed);
    }
}

static void loads_are_even(void **state)
{
    (void)state;
    static cluster c;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        uint64_t load[NODES_MAX] = {0}, total = 0, largest = 0, most = 0, least = UINT64_MAX;
        draw_cluster(&c, seed);
        for (size_t i = 0; i < c.place_count; i++)
            c.places[i].room = UINT64_C(1) << 50;
        assign(&c);
        assert_int_equal(c.lacking, 0);
        for (size_t s = 0; s < c.shard_count; s++) {
            total += c.shards[s].bytes;
            largest = c.shards[s].bytes > largest ? c.shards[s].bytes : largest;
            for (uint32_t k = 0; k < c.copies; k++)
                load[c.holders[s * c.copies + k]] += c.shards[s].bytes;
        }
        for (size_t i = 0; i < c.place_count; i++) {
            most = load[i] > most ? load[i] : most;
            least = load[i] < least ? load[i] : least;
        }
        /* With as many copies as nodes, or one fewer, there is no choice left for the last ones. */
        if (c.copies + 1 < c.place_count || c.copies == 1)
            assert_true(most - least <= largest + total * c.copies / c.place_count / 16 + 1);
    }
}

static void places_of_one_disk_share_its_room(void **state)
{
    (void)state;
    const uint64_t none[2] = {0, 0};
    const rks_assign_shard shards[2] = {{{1, 1}, GIB}, {{2, 2}, GIB}};
    const rks_place places[2] = {
        {.id = 1, .node = 0, .disk = 5, .room = GIB + 10, .here = none},
        {.id = 2, .node = 0, .disk = 5, .room = GIB + 12, .here = none},
    };
    int32_t holders[2];
    uint64_t lacking;
    assert_int_equal(rks_assign(&(rks_cluster){shards, 2, places, 2, 1}, holders, &lacking, &err),
                     RKS_OK);
    assert_int_equal(lacking, GIB);
    assert_true((holders[0] < 0) != (holders[1] < 0));
}

static void copies_lie_on_different_nodes(void **state)
{
    (void)state;
    enum { SHARDS = 40, PLACES = 4 };
    const uint64_t none[SHARDS] = {0};
    rks_assign_shard shards[SHARDS];
    rks_place places[PLACES];
    int32_t holders[2 * SHARDS];
    uint64_t lacking;
    for (uint32_t i = 0; i < SHARDS; i++)
        shards[i] = (rks_assign_shard){{i, i}, GIB};
    for (uint32_t i = 0; i < PLACES; i++) /* two on each node */
        places[i] =
            (rks_place){.id = i, .node = i / 2, .disk = i, .room = SHARDS * GIB, .here = none};
    assert_int_equal(
        rks_assign(&(rks_cluster){shards, SHARDS, places, PLACES, 2}, holders, &lacking, &err),
        RKS_OK);
    assert_int_equal(lacking, 0);
    for (uint32_t i = 0; i < SHARDS; i++)
        assert_int_not_equal(holders[2 * i] / 2, holders[2 * i + 1] / 2);
}

static void what_has_begun_needs_room_for_the_rest_alone(void **state)
{
    (void)state;
    const uint64_t most_of_it[1] = {GIB - 10};
    const rks_assign_shard shard = {{1, 1}, GIB};
    rks_place place = {.id = 1, .room = 10, .here = most_of_it};
    int32_t holder;
    uint64_t lacking;
    assert_int_equal(rks_assign(&(rks_cluster){&shard, 1, &place, 1, 1}, &holder, &lacking, &err),
                     RKS_OK);
    assert_true(lacking == 0 && holder == 0);
    place.room = 9;
    assert_int_equal(rks_assign(&(rks_cluster){&shard, 1, &place, 1, 1}, &holder, &lacking, &err),
                     RKS_OK);
    assert_true(lacking == GIB && holder == -1);
}

static void nothing_to_assign_and_too_many_copies(void **state)
{
    (void)state;
    const uint64_t none[1] = {0};
    const rks_assign_shard shard = {{1, 1}, UINT64_MAX};
    const rks_place place = {.id = 1, .room = UINT64_MAX, .here = none};
    int32_t holders[4];
    uint64_t lacking;
    assert_int_equal(rks_assign(&(rks_cluster){NULL, 0, &place, 1, 1}, holders, &lacking, &err),
                     RKS_OK);
    assert_int_equal(lacking, 0);
    assert_int_equal(rks_assign(&(rks_cluster){&shard, 1, NULL, 0, 2}, holders, &lacking, &err),
                     RKS_OK);
    assert_int_equal(lacking, UINT64_MAX);
    assert_int_equal(holders[0], -1);
    /* more copies than nodes */
    assert_int_equal(rks_assign(&(rks_cluster){&shard, 1, &place, 1, 4}, holders, &lacking, &err),
                     RKS_OK);
    assert_int_equal(lacking, 0);
    assert_int_equal(holders[0], 0);
    assert_int_equal(holders[1], -1);
    /* an empty shard is whole everywhere */
    const rks_assign_shard empty = {{1, 1}, 0};
    assert_int_equal(rks_assign(&(rks_cluster){&empty, 1, &place, 1, 1}, holders, &lacking, &err),
                     RKS_OK);
    assert_int_equal(holders[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_its_laws_on_random_clusters),
        cmocka_unit_test(what_has_begun_goes_on),
        cmocka_unit_test(loads_are_even),
        cmocka_unit_test(places_of_one_disk_share_its_room),
        cmocka_unit_test(copies_lie_on_different_nodes),
        cmocka_unit_test(what_has_begun_needs_room_for_the_rest_alone),
        cmocka_unit_test(nothing_to_assign_and_too_many_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
