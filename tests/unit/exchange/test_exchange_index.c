/* SPDX-License-Identifier: Apache-2.0
 *
 * test_exchange_index.c: each rank fills its shard's part of the index, and all come to have all of
 * it. */
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "exchange/exchange.h"
#include "index/index.h"
#include "support/ranks.h"

enum { RANKS = 4, SPANS = 40, PER_SPAN = 6000 };

static const rks_index_column columns[] = {{"score", 4, "float32"}};

typedef struct index_rank {
    rks_index *index;
    uint32_t rank;
    rks_index_intake *intakes[RANKS];
} index_rank;

typedef struct index_case {
    const char *backend;
    bool damage; /* rank 1 sends a flipped bit */
    rks_status statuses[RANKS];
    rks_error errors[RANKS];
    bool equal[RANKS];
    rks_exchange_stats stats[RANKS];
} index_case;

static index_case the_case;

static rks_status read_stream(void *user, uint32_t sender, uint64_t offset, void *bytes,
                              size_t size, rks_error *err)
{
    index_rank *me = user;
    rks_status status = rks_index_stream_read(me->index, sender, offset, bytes, size, err);
    if (the_case.damage && me->rank == 1 && offset == 0)
        ((uint8_t *)bytes)[size / 2] ^= 4;
    return status;
}

static rks_status write_stream(void *user, uint32_t sender, uint64_t offset, const void *bytes,
                               size_t size, rks_error *err)
{
    (void)offset;
    index_rank *me = user;
    return rks_index_intake_write(me->intakes[sender], bytes, size, err);
}

static uint64_t number_of(uint64_t id, uint64_t what)
{
    return (id * 3 + what + 1) * 0x9e3779b97f4a7c15u;
}

static rks_status open_index(index_rank *me, rks_error *err)
{
    static const rks_index_layout empty;
    rks_span spans[SPANS];
    rks_index_layout layout = empty;
    uint64_t rows[RANKS] = {0};
    for (uint64_t i = 0; i < SPANS; i++) {
        uint32_t shard = (uint32_t)(i * 7 / 3 % RANKS);
        uint64_t count = 1 + number_of(i, 9) % PER_SPAN;
        spans[i] = (rks_span){layout.count, count, shard, rows[shard]};
        rows[shard] += count;
        layout.count += count;
    }
    layout.spans = spans;
    layout.span_count = SPANS;
    layout.columns = columns;
    layout.column_count = 1;
    int fd = -1;
    rks_status status = rks_index_memory(&layout, NULL, &fd, err);
    if (status == RKS_OK && (status = rks_index_open(&layout, fd, &me->index, err)) != RKS_OK)
        close(fd);
    return status;
}

static void fill(index_rank *me)
{
    uint32_t *scores = rks_index_column_data(me->index, 0);
    for (uint64_t id = 0; id < rks_index_count(me->index); id++) {
        uint32_t shard;
        uint64_t row;
        rks_index_locate(me->index, id, &shard, &row);
        if (shard != me->rank)
            continue;
        rks_index_lengths(me->index)[id] = (uint32_t)number_of(id, 0);
        rks_index_key_hashes(me->index)[id] = number_of(id, 1);
        scores[id] = (uint32_t)number_of(id, 2);
    }
}

static bool is_full(index_rank *me)
{
    const uint32_t *scores = rks_index_column_data(me->index, 0);
    bool full = true;
    for (uint64_t id = 0; id < rks_index_count(me->index); id++)
        full = full && rks_index_lengths(me->index)[id] == (uint32_t)number_of(id, 0) &&
               rks_index_key_hashes(me->index)[id] == number_of(id, 1) &&
               scores[id] == (uint32_t)number_of(id, 2);
    return full;
}

static rks_status exchange(rks_group *group, index_rank *me, rks_error *err)
{
    rks_status status = open_index(me, err);
    for (uint32_t shard = 0; shard < RANKS && status == RKS_OK; shard++)
        status = rks_index_intake_create(me->index, shard, 0, &me->intakes[shard], err);
    if (status != RKS_OK)
        return status;
    fill(me);
    rks_exchange_job job = {.size = rks_index_stream_size(me->index, me->rank),
                            .receives = true,
                            .read = read_stream,
                            .write = write_stream,
                            .checks = true,
                            .user = me,
                            .chunk = 100000};
    status = rks_exchange_run(group, the_case.backend, &job, &the_case.stats[me->rank], NULL, err);
    for (uint32_t shard = 0; shard < RANKS && status == RKS_OK; shard++)
        if (shard != me->rank)
            status = rks_index_intake_end(me->intakes[shard], NULL, err);
    the_case.equal[me->rank] = status == RKS_OK && is_full(me);
    return status;
}

static int rank_main(const rks_bootstrap *bootstrap, void *user)
{
    (void)user;
    index_rank me = {.rank = bootstrap->rank};
    rks_error *err = &the_case.errors[me.rank];
    rks_group *group = NULL;
    rks_status status = open_group_on(bootstrap, NULL, 0, &group, err);
    if (status == RKS_OK)
        status = exchange(group, &me, err);
    for (uint32_t shard = 0; shard < RANKS; shard++)
        rks_index_intake_free(me.intakes[shard]);
    rks_index_close(me.index);
    rks_group_close(group);
    the_case.statuses[me.rank] = status;
    return 0;
}

static void run(const char *backend, bool damage)
{
    rks_error err;
    int code = -1;
    the_case = (index_case){.backend = backend, .damage = damage};
    alarm(600); /* nothing here may hang */
    assert_ok(rks_launch_threads(RANKS, rank_main, NULL, &code, &err), &err);
    alarm(0);
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

static void all_ranks_come_to_have_the_whole_index(void **state)
{
    (void)state;
    static const char *const backends[] = {"local", "pull"};
    for (int i = 0; i < 2; i++) {
        run(backends[i], false);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_ok(the_case.statuses[rank], &the_case.errors[rank]);
            assert_true(the_case.equal[rank]);
        }
    }
}

static void a_flipped_bit_ends_all_with_the_shard_named(void **state)
{
    (void)state;
    static const char *const backends[] = {"local", "pull"};
    for (int i = 0; i < 2; i++) {
        run(backends[i], true);
        for (int rank = 0; rank < RANKS; rank++) {
            assert_fails(RKS_ERR_CORRUPT, the_case.statuses[rank]);
            assert_contains(the_case.errors[rank].text, "shard 1");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_come_to_have_the_whole_index),
        cmocka_unit_test(a_flipped_bit_ends_all_with_the_shard_named),
    };
    return cmocka_run_group_tests_name("exchange_index", tests, NULL, NULL);
}
