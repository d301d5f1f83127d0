/* SPDX-License-Identifier: Apache-2.0
 *
 * test_read_units.c: units that several threads read: the dataset, the errors and the list of bad
 * lines are those of one thread; every end of a build ends all of them. */
#include "jobs.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdatomic.h>

#include "base/memory.h"

static char place[64], one_file[96], two_file[96], target[96];
static const char *sources[] = {one_file, two_file};

static int make_files(void **state)
{
    (void)state;
    world_directory(place);
    snprintf(one_file, sizeof(one_file), "%s/one.jsonl", place);
    snprintf(two_file, sizeof(two_file), "%s/two.jsonl", place);
    snprintf(target, sizeof(target), "%s/store", place);
    file_write(one_file, 0, FILE_ROWS, NULL);
    file_write(two_file, FILE_ROWS, FILE_ROWS, NULL);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    world_remove(place);
    return 0;
}

static void build_rank(member *m)
{
    build_files(m, sources, 2, target);
}

/* With threads that read; the directory is gone after it, unless it is kept for a resume. */
static void build_with(uint32_t threads, job *j, bool keep)
{
    j->options.threads = threads;
    on_threads(1, build_rank, j);
    if (!keep)
        world_remove(target);
}

static job new_job(void)
{
    job j = {.expected = RKS_OK};
    file_options(&j.options);
    return j;
}

/* ---- the same as by one thread -------------------------------------------------------------- */

static void look_at_samples(member *m, rks_store *store)
{
    rks_batch *batch = NULL;
    EXPECT(rks_store_count(store) == 2 * FILE_ROWS);
    for (uint64_t id = 0; id < 2 * FILE_ROWS && m->failures == 0; id++) {
        char expected[64];
        uint8_t key[RKS_KEY_MAX];
        size_t size = 0;
        int length = snprintf(expected, sizeof(expected), "%s.jsonl:%llu",
                              id < FILE_ROWS ? "one" : "two", (unsigned long long)id % FILE_ROWS);
        EXPECT_OK(rks_store_key(store, id, key, &size, &m->err));
        EXPECT(size == (size_t)length && memcmp(key, expected, size) == 0);
        EXPECT_OK(rks_store_fetch(store, &id, 1, &batch, &m->err));
        EXPECT(batch != NULL && file_is(batch, 0, id));
        rks_batch_free(batch);
        batch = NULL;
    }
}

static void any_number_of_threads_makes_the_same_dataset(void **state)
{
    (void)state;
    char first[33] = "";
    for (uint32_t threads = 1; threads <= 9; threads += 2) {
        job j = new_job();
        j.look = look_at_samples;
        build_with(threads, &j, false);
        assert_int_equal(j.report.samples, 2 * FILE_ROWS);
        assert_true(j.report.units >= 10);
        if (threads == 1)
            strcpy(first, j.report.dataset);
        assert_string_equal(j.report.dataset, first);
    }
}

static bool is_bad(uint64_t number)
{
    return number % 41 == 17;
}

static void bad_lines_are_listed_in_order(void **state)
{
    (void)state;
    job alone = new_job();
    file_write(one_file, 0, FILE_ROWS, is_bad);
    file_write(two_file, FILE_ROWS, FILE_ROWS, is_bad);
    alone.options.schema = "id:int64,text:str";
    alone.options.skip_bad = true;
    build_with(1, &alone, false);
    assert_true(alone.report.bad > 10);
    for (int turn = 0; turn < 5; turn++) {
        job j = new_job();
        j.options.schema = "id:int64,text:str";
        j.options.skip_bad = true;
        build_with(4, &j, false);
        assert_int_equal(j.report.bad, alone.report.bad);
        assert_string_equal(j.report.bad_first, alone.report.bad_first);
        assert_string_equal(j.report.dataset, alone.report.dataset);
    }
}

static void the_first_bad_line_ends_the_build(void **state)
{
    (void)state;
    file_write(one_file, 0, FILE_ROWS, is_bad);
    file_write(two_file, FILE_ROWS, FILE_ROWS, is_bad);
    for (int turn = 0; turn < 10; turn++) {
        job j = new_job();
        j.options.schema = "id:int64,text:str";
        j.expected = RKS_ERR_DATA;
        build_with(4, &j, false);
        assert_contains(j.errors[0].text, "one.jsonl:18: ");
    }
}

/* What one thread had finished is finished by several, too: all before the bad line. */
static bool is_late(uint64_t number)
{
    return number == 2 * FILE_ROWS - 60;
}

static void units_before_the_bad_line_are_kept_for_a_resume(void **state)
{
    (void)state;
    job whole = new_job();
    build_with(1, &whole, false);
    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        job j = new_job();
        j.options.schema = "id:int64,text:str";
        file_write(two_file, FILE_ROWS, FILE_ROWS, is_late);
        j.expected = RKS_ERR_DATA;
        build_with(threads, &j, true);
        assert_contains(j.errors[0].text, "two.jsonl:241: ");
        j.options.skip_bad = false;
        j.expected = RKS_ERR_DATA; /* the same again, from what is there */
        build_with(5 - threads, &j, true);
        assert_contains(j.errors[0].text, "two.jsonl:241: ");
        world_remove(target);
    }
}

/* Columns that the rows which are looked at for a schema do not have: those of units 0, 9, 19, ...
 * of 153. The message holds the schema to give, of the first one alone. */
static void write_late_columns(void)
{
    file_write(one_file, 0, 1, NULL);
    FILE *file = fopen(two_file, "w");
    assert_non_null(file);
    for (int row = 0; row < 20000; row++)
        fprintf(file, "{\"id\": %5d, \"text\": \"%05d\"%s}\n", row, row,
                row == 2000   ? ", \"late\": 1.5"
                : row == 2600 ? ", \"later\": true"
                              : "");
    assert_int_equal(fclose(file), 0);
}

static void a_row_that_does_not_fit_says_the_schema_to_give(void **state)
{
    (void)state;
    write_late_columns();
    for (int turn = 0; turn < 5; turn++) {
        job j = new_job();
        j.expected = RKS_ERR_DATA;
        build_with(4, &j, false);
        assert_contains(j.errors[0].text, "two.jsonl:2001: ");
        assert_contains(j.errors[0].text, "late:float64?");
        assert_null(strstr(j.errors[0].text, "later"));
    }
}

/* Units of more than what may wait in memory: 70 MiB each, of lines of 1 MiB. */
static void a_unit_waits_with_no_more_than_it_may_keep(void **state)
{
    (void)state;
    enum { LINE = 1 << 20, LINES = 70 };
    char *line = rks_alloc_raw(LINE, 1, NULL);
    assert_non_null(line);
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(sources[i], "w");
        assert_non_null(file);
        memset(line, 'a' + i, LINE);
        line[LINE - 1] = '\n';
        for (int row = 0; row < LINES; row++)
            assert_int_equal(fwrite(line, 1, LINE, file), LINE);
        fclose(file);
    }
    rks_free(line);
    char first[33] = "";
    for (uint32_t threads = 1; threads <= 2; threads++) {
        job j = new_job();
        j.options.format = "text";
        j.options.unit_size = 1 << 30;
        build_with(threads, &j, false);
        assert_int_equal(j.report.samples, 2 * LINES);
        assert_int_equal(j.report.units, 2);
        if (threads == 1)
            strcpy(first, j.report.dataset);
        assert_string_equal(j.report.dataset, first);
    }
}

/* ---- ends ------------------------------------------------------------------------------------ */

static atomic_int asked;

static int interrupt_later(void *user)
{
    (void)user;
    return atomic_fetch_sub(&asked, 1) <= 0;
}

static rks_group *solo(void)
{
    rks_group_options options;
    rks_group *group = NULL;
    rks_error err = {0};
    rks_group_options_default(&options);
    assert_int_equal(rks_group_open(&options, &group, &err), RKS_OK);
    return group;
}

static void an_interrupt_ends_all_threads(void **state)
{
    (void)state;
    job whole = new_job();
    build_with(1, &whole, false);
    rks_group *group = solo();
    for (int calls = 0; calls < 40; calls++) {
        job j = new_job();
        rks_build_report report = {.struct_size = sizeof(report)};
        rks_error err = {0};
        j.options.threads = 3;
        asked = calls;
        rks_set_interrupt(interrupt_later, NULL);
        rks_status status = rks_build(group, sources, 2, target, &j.options, &report, &err);
        rks_set_interrupt(NULL, NULL);
        assert_true(status == RKS_ERR_CANCELLED || status == RKS_OK);
        if (status == RKS_OK) {
            assert_string_equal(report.dataset, whole.report.dataset);
            calls = 1000;
        } else {
            assert_contains(err.text, "interrupted");
        }
        world_remove(target);
    }
    rks_group_close(group);
}

/* 2 GiB of blank lines in 2 MB: gzip of 16 MiB, again and again. */
static void write_blank_lines(const char *path)
{
    enum { PIECE = 16 << 20, PIECES = 128, ROOM = 1 << 20 };
    char *lines = malloc(PIECE), *packed = malloc(ROOM);
    size_t size = 0;
    memset(lines, '\n', PIECE);
    struct archive *writer = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_write_set_bytes_in_last_block(writer, 1);
    assert_int_equal(archive_write_set_format_raw(writer), ARCHIVE_OK);
    assert_int_equal(archive_write_add_filter_gzip(writer), ARCHIVE_OK);
    assert_int_equal(archive_write_open_memory(writer, packed, ROOM, &size), ARCHIVE_OK);
    assert_int_equal(archive_write_header(writer, entry), ARCHIVE_OK);
    assert_int_equal(archive_write_data(writer, lines, PIECE), PIECE);
    assert_int_equal(archive_write_close(writer), ARCHIVE_OK);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < PIECES; i++)
        assert_int_equal(fwrite(packed, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    archive_entry_free(entry);
    archive_write_free(writer);
    free(lines);
    free(packed);
}

enum { LONG_ROWS = 30000 };

static bool is_last(uint64_t number)
{
    return number == LONG_ROWS - 1;
}

static double work_s(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double enough_s;

static int interrupt_after_work(void *user)
{
    (void)user;
    return work_s() >= enough_s;
}

/* The first unit fails; its error stands, whatever comes while another thread reads on: here an
 * interrupt, of which nobody hears any more. It comes after several times the processor time that
 * the first unit takes, so it comes after its error however slow the machine is. */
static void the_error_of_the_unit_at_turn_is_the_last_word(void **state)
{
    (void)state;
    char packed[112];
    rks_error err = {0};
    snprintf(packed, sizeof(packed), "%s.gz", two_file);
    write_blank_lines(packed);
    file_write(one_file, 0, LONG_ROWS, is_last);
    rks_group *group = solo();
    const char *files[] = {one_file, packed};
    double begin = work_s();
    for (int count = 1; count <= 2; count++) {
        job j = new_job();
        j.options.threads = (uint32_t)count;
        j.options.unit_size = 64 << 20;
        j.options.schema = "id:int64,text:str";
        enough_s = work_s() + 4 * (work_s() - begin) + 0.1;
        if (count == 2)
            rks_set_interrupt(interrupt_after_work, NULL);
        rks_status status =
            rks_build(group, files, (uint32_t)count, target, &j.options, NULL, &err);
        rks_set_interrupt(NULL, NULL);
        assert_int_equal(status, RKS_ERR_DATA);
        assert_contains(err.text, "one.jsonl:30000: ");
    }
    rks_group_close(group);
}

static void each_failing_allocation_is_told(void **state)
{
    (void)state;
    rks_group *group = solo();
    rks_error err = {0};
    bool ended = false;
    long before = rks_memory_in_use();
    for (long nth = 1; !ended; nth += 1 + nth / 40) {
        job j = new_job();
        j.options.threads = 3;
        rks_memory_fail_at(nth);
        rks_status status = rks_build(group, sources, 2, target, &j.options, NULL, &err);
        ended = rks_memory_fail_left() > 0;
        rks_memory_fail_at(0);
        assert_true(status == RKS_OK || status == RKS_ERR_MEMORY);
        assert_int_equal(rks_memory_in_use(), before);
        world_remove(target);
    }
    rks_group_close(group);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_files, remove_files)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(any_number_of_threads_makes_the_same_dataset),
        CASE(bad_lines_are_listed_in_order),
        CASE(the_first_bad_line_ends_the_build),
        CASE(units_before_the_bad_line_are_kept_for_a_resume),
        CASE(a_row_that_does_not_fit_says_the_schema_to_give),
        CASE(a_unit_waits_with_no_more_than_it_may_keep),
        CASE(an_interrupt_ends_all_threads),
        CASE(the_error_of_the_unit_at_turn_is_the_last_word),
        CASE(each_failing_allocation_is_told),
    };
    return cmocka_run_group_tests_name("read_units", tests, NULL, NULL);
}
