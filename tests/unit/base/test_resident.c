/* SPDX-License-Identifier: Apache-2.0
 *
 * test_resident.c: ranges that are merged, beside a plain list of bytes; and what of a file is in
 * memory, also where mincore() does not say so. */
#include "support/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ranges.h"
#include "base/resident_pages.h"
#include "base/stream.h"
#include "support/forbid.h"

/* ---- ranges --------------------------------------------------------------------------------- */

enum { PAGE = 16, SPACE = 4096, FILES = 3, MOST = 60, ROUNDS = 3000 };

static void check_merged(const rks_range *ranges, size_t count, const uint8_t *wanted, uint64_t gap)
{
    for (size_t i = 0; i < count; i++) {
        const rks_range *r = &ranges[i];
        assert_true(r->first < r->end && r->first % PAGE == 0 && r->end % PAGE == 0);
        /* A range begins and ends with what is wanted, */
        assert_true(wanted[r->file * SPACE + r->first] && wanted[r->file * SPACE + r->end - 1]);
        /* has no longer hole in it than allowed, */
        uint64_t hole = 0;
        for (uint64_t at = r->first; at < r->end; at++) {
            hole = wanted[r->file * SPACE + at] ? 0 : hole + 1;
            assert_true(hole <= gap);
        }
        /* and the next one lies after a longer one. */
        if (i + 1 < count && ranges[i + 1].file == r->file)
            assert_true(ranges[i + 1].first > r->end + gap);
        else if (i + 1 < count)
            assert_true(ranges[i + 1].file > r->file);
    }
}

static void merged_ranges_hold_what_is_wanted_and_no_byte_twice(void **state)
{
    (void)state;
    static uint8_t wanted[FILES * SPACE];
    rks_range ranges[MOST];
    srand(7);
    for (int round = 0; round < ROUNDS; round++) {
        size_t count = (size_t)rand() % (MOST + 1);
        uint64_t gap = (uint64_t)(rand() % 4) * PAGE;
        memset(wanted, 0, sizeof(wanted));
        for (size_t i = 0; i < count; i++) {
            uint64_t first = (uint64_t)rand() % (SPACE - 200), size = (uint64_t)rand() % 150;
            ranges[i] = (rks_range){first, first + size, (uint32_t)(rand() % FILES)};
            if (size == 0)
                continue;
            uint64_t end = (first + size + PAGE - 1) / PAGE * PAGE;
            memset(wanted + ranges[i].file * SPACE + first / PAGE * PAGE, 1,
                   end - first / PAGE * PAGE);
        }
        size_t merged = rks_ranges_merge(ranges, count, PAGE, gap);
        check_merged(ranges, merged, wanted, gap);
        for (size_t i = 0; i < merged; i++)
            memset(wanted + ranges[i].file * SPACE + ranges[i].first, 0,
                   ranges[i].end - ranges[i].first);
        for (size_t at = 0; at < sizeof(wanted); at++)
            assert_int_equal(wanted[at], 0);
    }
}

static void ranges_at_the_end_of_all_numbers_do_not_wrap(void **state)
{
    (void)state;
    rks_range ranges[] = {{UINT64_MAX - 5, UINT64_MAX, 0}, {7, 3, 0}, {0, 1, UINT32_MAX}};
    assert_int_equal(rks_ranges_merge(ranges, 3, 4096, 4096), 1); /* no file ends there */
    assert_int_equal(ranges[0].file, UINT32_MAX);
    assert_int_equal(ranges[0].end, 4096);
    assert_int_equal(rks_ranges_merge(ranges, 0, 4096, 0), 0);
}

/* ---- a file --------------------------------------------------------------------------------- */

enum { PIECES = 3, FILE_SIZE = PIECES * RKS_RESIDENT_GRANULE - 5000 };

static rks_error err;
static char path[64];
static rks_guarded_map *map;
static rks_resident *resident;

static int open_file(void **state)
{
    (void)state;
    static uint8_t bytes[FILE_SIZE];
    snprintf(path, sizeof(path), "/tmp/rankstore-resident-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    memset(bytes, 'x', sizeof(bytes));
    assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(fchmod(fd, 0644), 0);
    assert_ok(rks_guarded_map_open(fd, path, FILE_SIZE, &map, &err), &err);
    assert_ok(rks_resident_open(fd, path, map, &resident, &err), &err);
    rks_resident_expect_random(resident, 0, FILE_SIZE, true);
    close(fd);
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    rks_resident_close(resident);
    rks_guarded_map_close(map);
    unlink(path);
    return 0;
}

static void read_whole(void)
{
    static uint8_t bytes[1 << 16];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    while (read(fd, bytes, sizeof(bytes)) > 0)
        ;
    close(fd);
}

static uint64_t cached(void)
{
    uint64_t bytes = 0;
    assert_true(rks_resident_bytes(resident, &bytes));
    return bytes;
}

/* Skips where the file system keeps all in memory. */
static void make_cold(void)
{
    rks_resident_drop(resident);
    if (cached() != 0)
        skip();
}

static void pieces_in_memory_are_known_until_they_are_forgotten(void **state)
{
    (void)state;
    size_t budget = 100;
    read_whole();
    assert_int_equal(cached(), FILE_SIZE);
    assert_true(rks_resident_has(resident, 0, FILE_SIZE));
    assert_int_equal(rks_resident_scan(resident, &budget), RKS_RESIDENT_ALL);
    make_cold(); /* forgets */
    assert_false(rks_resident_has(resident, 10, 20));
    budget = 100;
    assert_int_equal(rks_resident_scan(resident, &budget), RKS_RESIDENT_SOME);
    read_whole();
    int asked = 0;
    while (!rks_resident_has(resident, 10, 20) && asked < 1000)
        asked++;
    assert_in_range(asked, 2, 200); /* a cold piece is not looked at for each record */
    assert_true(rks_resident_has(resident, FILE_SIZE - 1, UINT64_MAX)); /* looked at once */
    rks_resident_forget(resident, 0, 1);
    assert_true(rks_resident_has(resident, 0, 1)); /* looked at again */
}

static void a_scan_stops_with_its_budget_and_goes_on(void **state)
{
    (void)state;
    read_whole();
    rks_resident_forget(resident, 0, UINT64_MAX);
    for (int i = 0; i < PIECES; i++) {
        size_t budget = 1;
        assert_int_equal(rks_resident_scan(resident, &budget),
                         i == PIECES - 1 ? RKS_RESIDENT_ALL : RKS_RESIDENT_UNKNOWN);
        assert_int_equal(budget, 0);
    }
}

static bool comes(uint64_t bytes)
{
    for (int i = 0; i < 6000 && cached() < bytes; i++) /* a busy disk takes its time */
        usleep(10000);
    return cached() >= bytes;
}

static void what_is_asked_for_is_read_and_no_more(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    make_cold();
    rks_resident_ask(resident, page + 7, 3 * page - 1);
    assert_true(comes(2 * page));
    assert_int_equal(cached(), 2 * page);
    /* bytes in the order of the file bring more and more of those after them */
    for (uint64_t at = 0; at < FILE_SIZE; at += 1000)
        (void)rks_resident_follow(resident, at, at + 1000);
    assert_true(comes(FILE_SIZE));
}

/* What was read once goes, what others had in memory stays. */
static void a_file_that_is_read_once_leaves_what_was_there(void **state)
{
    (void)state;
    static uint8_t bytes[RKS_RESIDENT_GRANULE];
    rks_stream stream;
    make_cold();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    rks_resident_ask(resident, RKS_RESIDENT_GRANULE, RKS_RESIDENT_GRANULE + 4096);
    assert_true(comes(4096));
    rks_stream_begin(&stream, path, FILE_SIZE);
    for (uint64_t at = 0; at < FILE_SIZE; at += sizeof(bytes)) {
        rks_stream_reach(&stream, at);
        assert_true(pread(fd, bytes, sizeof(bytes), (off_t)at) > 0);
    }
    rks_stream_end(&stream);
    close(fd);
    assert_int_equal(cached(), RKS_RESIDENT_GRANULE); /* the piece that had a page */
    make_cold();
    rks_resident_ask(resident, RKS_RESIDENT_GRANULE, RKS_RESIDENT_GRANULE + 4096);
    assert_true(comes(4096));
    for (uint64_t at = 0; at < FILE_SIZE; at += 4096) {
        (void)rks_resident_follow(resident, at, at + 4096);
        bytes[0] ^= map->bytes[at];
    }
    assert_true(comes(FILE_SIZE));
    /* what lies behind the map stays as it is */
    uint8_t *behind =
        mmap((void *)(uintptr_t)(map->bytes + FILE_SIZE / 4096 * 4096 + 4096), 4096,
             PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (behind != MAP_FAILED)
        *behind = 77;
    rks_resident_leave(resident, 0, PIECES * RKS_RESIDENT_GRANULE);
    assert_int_equal(cached(), RKS_RESIDENT_GRANULE);
    if (behind != MAP_FAILED) {
        assert_int_equal(*behind, 77);
        munmap(behind, 4096);
    }
}

/* Another user sees a file that it may not write; mincore() would call all of it resident. */
static int look_as_a_stranger(void)
{
    rks_resident *strange = NULL;
    if (setgid(12345) != 0 || setuid(12345) != 0)
        return 2;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t bytes;
    if (fd < 0 || rks_resident_may_ask(fd, path) ||
        rks_resident_open(fd, path, map, &strange, NULL) != RKS_OK ||
        rks_resident_bytes(strange, &bytes))
        return 3;
    if (rks_resident_has(strange, 0, 100) || rks_resident_has(strange, FILE_SIZE - 1, FILE_SIZE))
        return 4; /* it is cold */
    read_whole();
    rks_resident_close(strange);
    if (rks_resident_open(fd, path, map, &strange, NULL) != RKS_OK ||
        !rks_resident_has(strange, 0, FILE_SIZE))
        return 5;
    rks_resident_close(strange);
    close(fd);
    return 0;
}

static void a_file_of_another_user_is_not_called_resident_when_it_is_cold(void **state)
{
    (void)state;
    int status = 0;
    if (geteuid() != 0)
        skip();
    make_cold();
    pid_t child = fork();
    if (child == 0)
        _exit(look_as_a_stranger());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        skip(); /* no other users here */
    assert_int_equal(status, 0);
    /* nor by who was root when the file was opened */
    make_cold();
    rks_resident_ask(resident, 0, 4096);
    assert_true(comes(4096));
    child = fork();
    if (child == 0)
        _exit(setuid(12345) != 0 || !rks_resident_has(resident, 0, 100) ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(cached() < RKS_RESIDENT_GRANULE / 2); /* looking reads little of what is missing */
}

static int look_without_mincore(void)
{
    uint64_t bytes;
    if (!forbid(SYS_mincore, EPERM))
        return 2;
    if (rks_resident_has(resident, 0, 100) || rks_resident_has(resident, FILE_SIZE - 1, FILE_SIZE))
        return 3; /* it is cold */
    if (rks_resident_bytes(resident, &bytes) || rks_resident_now(resident, 0, 100))
        return 4; /* nobody knows */
    read_whole();
    rks_resident_forget(resident, 0, FILE_SIZE);
    for (int i = 0; i < 64; i++) /* an incomplete granule is not looked at each time */
        (void)rks_resident_has(resident, 0, FILE_SIZE);
    return rks_resident_has(resident, 0, 100) ? 0 : 5;
}

static void where_mincore_is_forbidden_reading_shows_what_is_resident(void **state)
{
    (void)state;
    int status = 0;
    make_cold();
    pid_t child = fork();
    if (child == 0)
        _exit(look_without_mincore());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        skip(); /* no filters here */
    assert_int_equal(status, 0);
}

static void a_stream_brings_what_it_reads_and_ends_with_its_file(void **state)
{
    (void)state;
    rks_resident_stream stream = {0};
    atomic_bool stop;
    atomic_init(&stop, true);
    make_cold();
    assert_true(rks_resident_stream_to(&stream, resident, 0, FILE_SIZE, &stop));
    assert_int_equal(cached(), 0); /* stopped before it began */
    atomic_store(&stop, false);
    assert_true(rks_resident_stream_to(&stream, resident, 100, RKS_RESIDENT_GRANULE, &stop));
    rks_resident_forget(resident, 0, UINT64_MAX);
    assert_true(rks_resident_has(resident, 0, RKS_RESIDENT_GRANULE)); /* without another wait */
    assert_true(rks_resident_stream_to(&stream, resident, RKS_RESIDENT_GRANULE, UINT64_MAX, NULL));
    rks_resident_forget(resident, 0, UINT64_MAX);
    assert_int_equal(cached(), FILE_SIZE);
    assert_int_equal(truncate(path, RKS_RESIDENT_GRANULE), 0);
    assert_false(rks_resident_stream_to(&stream, resident, 0, FILE_SIZE, NULL));
    rks_resident_stream_end(&stream);
    assert_int_equal(unlink(path), 0);
    assert_false(rks_resident_stream_to(&stream, resident, 0, FILE_SIZE, NULL)); /* another file */
    rks_resident_stream_end(&stream);
}

static void a_file_that_was_cut_or_replaced_is_not_resident(void **state)
{
    (void)state;
    read_whole();
    assert_int_equal(truncate(path, RKS_RESIDENT_GRANULE), 0);
    rks_resident_forget(resident, 0, UINT64_MAX);
    assert_true(rks_resident_has(resident, 0, RKS_RESIDENT_GRANULE));
    assert_false(rks_resident_has(resident, RKS_RESIDENT_GRANULE, FILE_SIZE));
    rks_resident_ask(resident, 0, UINT64_MAX); /* no signal */
    assert_int_equal(unlink(path), 0);
    rks_resident_drop(resident); /* another file of that name would be left alone */
}

#define OPENED(test) cmocka_unit_test_setup_teardown(test, open_file, close_file)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_ranges_hold_what_is_wanted_and_no_byte_twice),
        cmocka_unit_test(ranges_at_the_end_of_all_numbers_do_not_wrap),
        OPENED(pieces_in_memory_are_known_until_they_are_forgotten),
        OPENED(a_scan_stops_with_its_budget_and_goes_on),
        OPENED(what_is_asked_for_is_read_and_no_more),
        OPENED(a_file_that_is_read_once_leaves_what_was_there),
        OPENED(a_file_of_another_user_is_not_called_resident_when_it_is_cold),
        OPENED(where_mincore_is_forbidden_reading_shows_what_is_resident),
        OPENED(a_stream_brings_what_it_reads_and_ends_with_its_file),
        OPENED(a_file_that_was_cut_or_replaced_is_not_resident),
    };
    return cmocka_run_group_tests_name("resident", tests, NULL, NULL);
}
