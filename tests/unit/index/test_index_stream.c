/* SPDX-License-Identifier: Apache-2.0
 *
 * test_index_stream.c: the index on its way from rank to rank, whole and damaged. */
#include "index/index.h"

#include "base/checksum.h"
#include "base/memory.h"
#include "base/error.h"
#include "layouts.h"

static rks_error err;
static layout_random the_random;
static const rks_index_column columns[] = {{"score", 8, "float64"}, {"flag", 1, "bool"}};

static uint8_t *stream_bytes(rks_index *index, uint32_t shard, uint64_t *size)
{
    *size = rks_index_stream_size(index, shard);
    uint8_t *bytes = malloc(*size + 1);
    assert_ok(rks_index_stream_read(index, shard, 0, bytes, *size, &err), &err);
    return bytes;
}

static rks_status take_all(rks_index *index, uint32_t shard, const uint8_t *bytes, size_t size)
{
    rks_index_intake *intake = NULL;
    uint64_t taken = 0;
    assert_ok(rks_index_intake_create(index, shard, 0, &intake, &err), &err);
    rks_status status = rks_index_intake_write(intake, bytes, size, &err);
    if (status == RKS_OK)
        status = rks_index_intake_end(intake, &taken, &err);
    if (status == RKS_OK && taken != rks_index_stream_size(index, shard))
        status = rks_fail(&err, RKS_ERR_CORRUPT, 0, "%llu bytes were taken in",
                          (unsigned long long)taken);
    rks_index_intake_free(intake);
    return status;
}

/* Two spans of shard 5 with another shard's between them. */
static const rks_span small_spans[] = {{0, 2, 5, 1}, {2, 1, 4, 0}, {3, 1, 5, 0}};
static const rks_index_layout small = {4, small_spans, 3, NULL, 0};

static rks_index *small_index(void)
{
    rks_index *index = layout_open(&small);
    const uint32_t lengths[] = {10, 20, 99, 30};
    const uint64_t hashes[] = {0x1111, 0x2222, 0x9999, 0x3333};
    memcpy(rks_index_lengths(index), lengths, sizeof(lengths));
    memcpy(rks_index_key_hashes(index), hashes, sizeof(hashes));
    return index;
}

static const uint8_t GOLDEN[] = {
    'R',  'K',  'S',  'I',  5,    0,    0,    0,    0,    0,    0, 0, 3, 0, 0, 0, /* head */
    0x40, 0xec, 0x87, 0xa8, 0xf3, 0xb8, 0xd1, 0xfa,                               /* checksum */
    10,   0,    0,    0,    20,   0,    0,    0,    30,   0,    0, 0,             /* lengths */
    0x11, 0x11, 0,    0,    0,    0,    0,    0,                                  /* hashes */
    0x22, 0x22, 0,    0,    0,    0,    0,    0,    0x33, 0x33, 0, 0, 0, 0, 0, 0,
};

static void a_stream_has_these_bytes(void **state)
{
    (void)state;
    rks_index *index = small_index();
    uint64_t size;
    uint8_t *bytes = stream_bytes(index, 5, &size);
    assert_int_equal(size, sizeof(GOLDEN));
    assert_memory_equal(bytes, GOLDEN, sizeof(GOLDEN));
    free(bytes);
    rks_index_close(index);
}

static void a_stream_costs_12_bytes_a_sample_and_24_a_piece(void **state)
{
    (void)state;
    rks_span *spans = calloc(70000, sizeof(*spans)); /* as many spans as samples, nearly */
    for (size_t i = 0; i < 70000; i++)
        spans[i] = (rks_span){2 * i, 2, 0, 2 * i};
    rks_index_layout layout = {140000, spans, 70000, NULL, 0};
    rks_index *index = layout_open(&layout);
    assert_int_equal(rks_index_stream_size(index, 0), 140000 * 12 + 3 * 24);
    assert_int_equal(rks_index_stream_size(index, 1), 0);
    rks_index_close(index);
    free(spans);
}

static void any_cutting_of_a_stream_is_taken_in(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        rks_span *spans;
        rks_index_layout layout =
            layout_make(&the_random, 30, round < 3 ? 20 : 20000, 3, round % 2, &spans);
        layout.columns = columns;
        layout.column_count = round % 3 == 0 ? 0 : 2;
        rks_index *from = layout_open(&layout), *to = layout_open(&layout);
        layout_fill(from, &layout, layout_next(&the_random));
        for (uint32_t shard = 0; shard < 3; shard++) {
            uint64_t size, at = 0;
            uint8_t *bytes = stream_bytes(from, shard, &size), *cut = malloc(size + 1);
            rks_index_intake *intake = NULL;
            assert_ok(rks_index_intake_create(to, shard, 0, &intake, &err), &err);
            uint64_t most = 1 + size / (1 + layout_next(&the_random) % 20);
            while (at < size) {
                uint64_t part = layout_next(&the_random) % (most + 1);
                part = part > size - at ? size - at : part;
                assert_ok(rks_index_stream_read(from, shard, at, cut, part, &err), &err);
                assert_memory_equal(cut, bytes + at, part);
                assert_ok(rks_index_intake_write(intake, cut, part, &err), &err);
                at += part;
            }
            assert_ok(rks_index_intake_end(intake, NULL, &err), &err);
            rks_index_intake_free(intake);
            free(bytes);
            free(cut);
        }
        layout_assert_equal(from, to, &layout);
        rks_index_close(from);
        rks_index_close(to);
        free(spans);
    }
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

static void single_bytes_are_taken_in(void **state)
{
    (void)state;
    rks_index *from = small_index(), *to = layout_open(&small);
    uint64_t size;
    uint8_t *bytes = stream_bytes(from, 5, &size);
    rks_index_intake *intake = NULL;
    assert_ok(rks_index_intake_create(to, 5, 0, &intake, &err), &err);
    for (uint64_t i = 0; i < size; i++) {
        uint8_t one;
        assert_ok(rks_index_stream_read(from, 5, i, &one, 1, &err), &err);
        assert_int_equal(one, bytes[i]);
        assert_ok(rks_index_intake_write(intake, &one, 1, &err), &err);
    }
    assert_ok(rks_index_intake_end(intake, NULL, &err), &err);
    rks_index_intake_free(intake);
    assert_int_equal(rks_index_lengths(to)[3], 30);
    assert_int_equal(rks_index_key_hashes(to)[1], 0x2222);
    assert_int_equal(rks_index_lengths(to)[2], 0); /* another shard's */
    free(bytes);
    rks_index_close(from);
    rks_index_close(to);
}

static void reads_only_inside_the_stream(void **state)
{
    (void)state;
    rks_index *index = small_index();
    uint64_t size = rks_index_stream_size(index, 5);
    uint8_t bytes[128];
    assert_ok(rks_index_stream_read(index, 5, size, bytes, 0, &err), &err);
    assert_fails(RKS_ERR_ARGUMENT, rks_index_stream_read(index, 5, size, bytes, 1, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_index_stream_read(index, 5, 1, bytes, size, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_index_stream_read(index, 5, UINT64_MAX, bytes, 2, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_index_stream_read(index, 7, 0, bytes, 1, &err));
    rks_index_close(index);
}

static void refuses_every_flipped_bit_and_keeps_it_out(void **state)
{
    (void)state;
    for (size_t bit = 0; bit < 8 * sizeof(GOLDEN); bit++) {
        rks_index *index = layout_open(&small);
        uint8_t damaged[sizeof(GOLDEN)];
        memcpy(damaged, GOLDEN, sizeof(damaged));
        damaged[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_fails(RKS_ERR_CORRUPT, take_all(index, 5, damaged, sizeof(damaged)));
        assert_contains(err.text, "shard 5");
        for (int id = 0; id < 4; id++)
            assert_int_equal(rks_index_lengths(index)[id], 0);
        rks_index_close(index);
    }
}

static void refuses_every_truncation_and_every_surplus(void **state)
{
    (void)state;
    rks_index *index = layout_open(&small);
    for (size_t size = 0; size < sizeof(GOLDEN); size++)
        assert_fails(RKS_ERR_CORRUPT, take_all(index, 5, GOLDEN, size));
    uint8_t longer[2 * sizeof(GOLDEN)] = {0};
    memcpy(longer, GOLDEN, sizeof(GOLDEN));
    assert_fails(RKS_ERR_CORRUPT, take_all(index, 5, longer, sizeof(GOLDEN) + 1));
    memcpy(longer + sizeof(GOLDEN), GOLDEN, sizeof(GOLDEN));
    assert_fails(RKS_ERR_CORRUPT, take_all(index, 5, longer, sizeof(longer)));
    assert_fails(RKS_ERR_CORRUPT, take_all(index, 9, GOLDEN, sizeof(GOLDEN)));
    assert_ok(take_all(index, 9, NULL, 0), &err); /* a shard without samples */
    rks_index_close(index);
}

static void refuses_pieces_that_are_not_the_next_ones(void **state)
{
    (void)state;
    rks_span spans[] = {{0, 200000, 0, 0}, {200000, 200000, 1, 0}};
    rks_index_layout layout = {400000, spans, 2, NULL, 0};
    rks_index *from = layout_open(&layout), *to = layout_open(&layout);
    layout_fill(from, &layout, 3);
    uint64_t size;
    uint8_t *mine = stream_bytes(from, 0, &size), *other = stream_bytes(from, 1, &size);
    size_t piece = 24 + 65536 * 12;
    uint8_t *mixed = malloc(size);
    const struct {
        size_t at;
        const uint8_t *put;
        const char *says;
    } cases[] = {
        {piece, mine + 2 * piece, "another sample"}, /* left out */
        {piece, mine, "another sample"},             /* twice */
        {0, mine + piece, "another sample"},         /* out of order */
        {piece, other + piece, "another shard"},     /* foreign */
    };
    for (size_t i = 0; i < 4; i++) {
        memcpy(mixed, mine, size);
        memcpy(mixed + cases[i].at, cases[i].put, piece);
        assert_fails(RKS_ERR_CORRUPT, take_all(to, 0, mixed, size));
        assert_contains(err.text, cases[i].says);
    }
    /* Nothing is taken in after an error. */
    rks_index_intake *intake = NULL;
    assert_ok(rks_index_intake_create(to, 0, 0, &intake, &err), &err);
    assert_fails(RKS_ERR_CORRUPT, rks_index_intake_write(intake, other, piece, &err));
    assert_fails(RKS_ERR_CORRUPT, rks_index_intake_write(intake, mine, size, &err));
    assert_fails(RKS_ERR_CORRUPT, rks_index_intake_end(intake, NULL, &err));
    rks_index_intake_free(intake);
    assert_ok(take_all(to, 0, mine, size), &err);
    free(mine);
    free(other);
    free(mixed);
    rks_index_close(from);
    rks_index_close(to);
}

/* How often a checksum was computed. */
static unsigned checksums;

uint64_t __real_rks_checksum64(const void *bytes, size_t size);
uint64_t __wrap_rks_checksum64(const void *bytes, size_t size);

uint64_t __wrap_rks_checksum64(const void *bytes, size_t size)
{
    checksums++;
    return __real_rks_checksum64(bytes, size);
}

static void a_piece_is_checksummed_once_however_often_it_is_read(void **state)
{
    (void)state;
    rks_index *from = small_index();
    size_t size = rks_index_stream_size(from, 5);
    uint8_t *first = malloc(size), *again = malloc(size);
    checksums = 0;
    assert_ok(rks_index_stream_read(from, 5, 0, first, size, &err), &err);
    assert_int_equal(checksums, 1);
    assert_ok(rks_index_stream_read(from, 5, 0, again, size, &err), &err);
    assert_memory_equal(first, again, size);
    assert_ok(rks_index_stream_read(from, 5, size / 2, again, size / 4, &err), &err);
    assert_memory_equal(first + size / 2, again, size / 4);
    assert_int_equal(checksums, 1);
    free(first);
    free(again);
    rks_index_close(from);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    rks_index *to = layout_open(&small);
    long before = rks_memory_in_use();
    bool passed = false;
    for (long nth = 1; !passed; nth++) {
        assert_true(nth < 100);
        uint8_t part[30];
        rks_index_intake *intake = NULL;
        rks_index *from = small_index();
        rks_memory_fail_at(nth);
        rks_status status = rks_index_stream_read(from, 5, 0, part, sizeof(part), &err);
        if (status == RKS_OK)
            status = rks_index_intake_create(to, 5, 0, &intake, &err);
        if (status == RKS_OK)
            status = rks_index_intake_write(intake, part, sizeof(part), &err);
        rks_memory_fail_at(0);
        passed = status == RKS_OK;
        if (!passed)
            assert_int_equal(status, RKS_ERR_MEMORY);
        rks_index_intake_free(intake);
        rks_index_close(from);
        assert_int_equal(rks_memory_in_use(), before);
    }
    rks_index_intake_free(NULL);
    rks_index_close(to);
}

int main(void)
{
    the_random = layout_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_has_these_bytes),
        cmocka_unit_test(a_stream_costs_12_bytes_a_sample_and_24_a_piece),
        cmocka_unit_test(any_cutting_of_a_stream_is_taken_in),
        cmocka_unit_test(single_bytes_are_taken_in),
        cmocka_unit_test(reads_only_inside_the_stream),
        cmocka_unit_test(refuses_every_flipped_bit_and_keeps_it_out),
        cmocka_unit_test(refuses_every_truncation_and_every_surplus),
        cmocka_unit_test(refuses_pieces_that_are_not_the_next_ones),
        cmocka_unit_test(a_piece_is_checksummed_once_however_often_it_is_read),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("index_stream", tests, NULL, NULL);
}
