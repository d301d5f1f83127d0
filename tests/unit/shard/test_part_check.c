/* SPDX-License-Identifier: Apache-2.0
 *
 * test_part_check.c: unsealed parts that were damaged. A writer that opens one either finds the
 * finished units whole or begins anew; the shard that it seals is always right, and nothing ends
 * by a signal. MUTATIONS=2000 tries so many, SEED repeats them. */
#include "writer_case.h"

#include <fcntl.h>
#include <stdlib.h>

#include "shard/lmdb_check.h"
#include "shard/part_check.h"

enum { UNITS = 6, UNIT_ROWS = 400, PAGE = 4096 };

static uint64_t random_state;

static uint64_t random_below(uint64_t limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % limit;
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

/* Small blocks, so that trees have branches; three sessions, whose dropped tails leave free pages
 * behind. */
static void write_part(void)
{
    options.block_size = 4 << 10;
    for (uint64_t unit = 0; unit < UNITS; unit++) {
        rks_shard_writer *writer = open_writer("whole");
        add_unit(writer, unit, unit * UNIT_ROWS, UNIT_ROWS);
        if (unit % 2 == 1) {
            assert_ok(rks_shard_writer_begin(writer, unit + 1, NULL, 0, &err), &err);
            for (uint32_t i = 0; i < 100; i++)
                assert_ok(add_one(writer, 7777 + i, i), &err);
        }
        rks_shard_writer_close(writer);
    }
}

/* A page that is part of a tree or says where one is, most of the time. */
static uint64_t pick_page(const char *bytes, size_t size)
{
    uint64_t page = 0;
    for (int tries = 0; tries < 200; tries++) {
        page = random_below(size / PAGE);
        if ((bytes[page * PAGE + 10] & 0xb) != 0 && bytes[page * PAGE + 11] == 0)
            break;
    }
    return page;
}

static void mutate(char *bytes, size_t *size)
{
    char *page = bytes + pick_page(bytes, *size) * PAGE;
    size_t place = random_below(4) == 0 ? random_below(PAGE) : random_below(200);
    switch (random_below(8)) {
    case 0:
        *size = random_below(*size);
        break;
    case 1:
        memset(page, 0, PAGE);
        break;
    case 2:
        memcpy(page, bytes + random_below(*size / PAGE) * PAGE, PAGE);
        break;
    case 3: {
        uint64_t number = random_below(2) == 0 ? UINT64_MAX >> random_below(60) : random_below(600);
        memcpy(page + (place < PAGE - 8 ? place & ~UINT64_C(7) : 0), &number, sizeof(number));
        break;
    }
    case 4:
        bytes[random_below(*size)] ^= (char)(1u << random_below(8));
        break;
    default:
        page[place] ^= (char)(1u << random_below(8));
    }
}

/* Opens what is there, adds what is missing, and checks the sealed shard. */
static void finish_and_check(uint64_t turn, uint64_t *anew)
{
    size_t count = 0;
    rks_shard_writer *writer = open_writer("part");
    const rks_unit_summary *units = rks_shard_writer_units(writer, &count);
    for (size_t i = 0; i < count; i++) {
        if (units[i].unit != i || units[i].samples != UNIT_ROWS || units[i].seen != UNIT_ROWS + 2)
            print_error("mutation %llu: unit %zu\n", (unsigned long long)turn, i);
        assert_int_equal(units[i].unit, i);
        assert_int_equal(units[i].samples, UNIT_ROWS);
        assert_int_equal(units[i].seen, UNIT_ROWS + 2);
    }
    *anew += count == 0;
    for (uint64_t unit = count; unit < UNITS; unit++)
        add_unit(writer, unit, unit * UNIT_ROWS, UNIT_ROWS);
    seal_and_check(writer, UNITS * UNIT_ROWS);
}

static void a_damaged_part_gives_the_right_shard_all_the_same(void **state)
{
    (void)state;
    char *whole = NULL;
    size_t whole_size = 0;
    uint64_t seed = number_from("SEED", 1), anew = 0;
    uint64_t turns = number_from("MUTATIONS", 100 / RACE_STRIDE);
    write_part();
    assert_ok(rks_part_check(path_of("whole.rks"), &err), &err);
    assert_ok(rks_file_load(path_of("whole.rks"), 1 << 30, &whole, &whole_size, &err), &err);
    char *bytes = malloc(whole_size);
    for (uint64_t turn = 0; turn < turns; turn++) {
        size_t size = whole_size;
        random_state = seed * 1000003 + turn;
        memcpy(bytes, whole, size);
        for (uint64_t i = 0, count = 1 + random_below(2); i < count; i++)
            mutate(bytes, &size);
        assert_ok(rks_file_replace(path_of("part.rks"), bytes, size, &err), &err);
        finish_and_check(turn, &anew);
        unlink(path_of("part.rks"));
        unlink(path_of("part.sums"));
        unlink(path_of("part.json"));
    }
    print_message("seed %llu: %llu of %llu parts began anew\n", (unsigned long long)seed,
                  (unsigned long long)anew, (unsigned long long)turns);
    assert_true(turns < 10 || (anew > 0 && anew < turns));
    free(bytes);
    rks_free(whole);
}

static void parts_of_any_size_are_whole(void **state)
{
    (void)state;
    static const uint64_t blocks[] = {4 << 10, 64 << 10, 1 << 20};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        options.block_size = blocks[i];
        for (uint64_t unit = 0; unit < 4; unit++) {
            rks_shard_writer *writer = open_writer("part");
            add_unit(writer, unit, unit * 5000, unit == 1 ? 0 : 5000);
            rks_shard_writer_close(writer);
            assert_ok(rks_part_check(path_of("part.rks"), &err), &err);
        }
        unlink(path_of("part.rks"));
    }
    assert_fails(RKS_ERR_NOT_FOUND, rks_part_check(path_of("part.rks"), &err));
}

static void a_units_record_is_covered_by_its_own_checksum(void **state)
{
    (void)state;
    rks_buffer bytes = {0};
    rks_unit_summary unit = {.unit = 3, .samples = 4, .seen = 6, .filtered = 1, .bad = 1};
    rks_unit_list list = {0};
    rks_unit_stored stored = {0};
    assert_ok(rks_unit_encode(&unit, 0, 1, "name", &bytes, &err), &err);
    assert_ok(rks_unit_decode(bytes.data, bytes.size, false, "p", &list, &stored, &err), &err);
    rks_unit_list_free(&list);
    assert_fails(RKS_ERR_CORRUPT,
                 rks_unit_decode(bytes.data, bytes.size, true, "p", &list, &stored, &err));
    rks_unit_stamp(bytes.data, bytes.size);
    assert_fails(RKS_ERR_CORRUPT,
                 rks_unit_decode(bytes.data, bytes.size, false, "p", &list, &stored, &err));
    assert_ok(rks_unit_decode(bytes.data, bytes.size, true, "p", &list, &stored, &err), &err);
    rks_unit_list_free(&list);
    for (size_t at = 0; at < bytes.size; at++) {
        bytes.data[at] ^= 0x10;
        assert_fails(RKS_ERR_CORRUPT,
                     rks_unit_decode(bytes.data, bytes.size, true, "p", &list, &stored, &err));
        bytes.data[at] ^= 0x10;
    }
    rks_buffer_free(&bytes);
}

static void failing_allocations_are_errors(void **state)
{
    (void)state;
    write_part();
    long before = rks_memory_in_use(), n = 0;
    rks_status status = RKS_ERR_MEMORY;
    while (status != RKS_OK) {
        rks_memory_fail_at(++n);
        status = rks_part_check(path_of("whole.rks"), &err);
        if (status != RKS_OK)
            assert_fails(RKS_ERR_MEMORY, status);
        assert_int_equal(rks_memory_in_use(), before);
    }
    rks_memory_fail_at(0);
    assert_true(n > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_damaged_part_gives_the_right_shard_all_the_same),
        CASE(parts_of_any_size_are_whole),
        CASE(a_units_record_is_covered_by_its_own_checksum),
        CASE(failing_allocations_are_errors),
    };
    setenv("RKS_LOG", "quiet", 1); /* one line a damaged part */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
