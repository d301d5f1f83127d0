/* SPDX-License-Identifier: Apache-2.0
 *
 * test_unpack.c: compressed files: whole, damaged, cut, after each other, without end. */
#include "packed.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "ingest/format.h"
#include "ingest/lines.h"
#include "ingest/unpack_thread.h"

static rks_error err;

static const rks_input_file *listed(const char *path)
{
    static rks_input_file file;
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    file = (rks_input_file){.path = (char *)path,
                            .name = (char *)path,
                            .size = (uint64_t)info.st_size,
                            .max_total = UINT64_MAX};
    assert_ok(rks_packing_find(&file, &file.packing, &err), &err);
    return &file;
}

/* All that it unpacks to, read in pieces of at most `step`. */
static rks_status read_all(const rks_input_file *file, size_t step, rks_buffer *all)
{
    rks_unpack *unpack = NULL;
    size_t got = 1;
    all->size = 0;
    rks_status status = rks_unpack_open(file, 0, &unpack, &err);
    while (status == RKS_OK && got > 0) {
        assert_ok(rks_buffer_reserve(all, step, NULL), &err);
        status = rks_unpack_read(unpack, all->data + all->size, step, &got, &err);
        all->size += got;
        if (status == RKS_OK)
            assert_true(rks_unpack_taken(unpack) <= file->size);
    }
    rks_unpack_close(unpack);
    return status;
}

/* Half noise, half text. */
static void fill(uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (i >> 12) % 2 == 0 ? (uint8_t)scratch_random(256) : (uint8_t)('a' + i % 26);
}

static uint8_t *load(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *bytes = malloc(1 << 20);
    *size = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

static void unpacks_what_was_packed(void **state)
{
    (void)state;
    static uint8_t bytes[600000];
    const size_t sizes[] = {0, 1, 4096, sizeof(bytes)};
    rks_buffer all = {0};
    scratch_seed_print();
    fill(bytes, sizeof(bytes));
    for (int kind = 0; kind < PACKED_KINDS; kind++)
        for (size_t i = 0; i < 4; i++) {
            const rks_input_file *file = listed(packed_file("x", kind, bytes, sizes[i]));
            assert_int_equal(file->packing, kind + 1);
            assert_ok(read_all(file, 1 + scratch_random(100000), &all), &err);
            assert_int_equal(all.size, sizes[i]);
            assert_memory_equal(all.data, bytes, sizes[i]);
        }
    rks_buffer_free(&all);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void pieces_behind_each_other_are_one(void **state)
{
    (void)state;
    rks_buffer all = {0};
    for (int kind = 0; kind < PACKED_KINDS; kind++) {
        size_t first, second;
        uint8_t *a = load(packed_file("a", kind, "one\n", 4), &first);
        uint8_t *b = load(packed_file("b", kind, "two\n", 4), &second);
        memcpy(a + first, b, second);
        assert_ok(read_all(listed(scratch_bytes("both", a, first + second)), 100, &all), &err);
        assert_int_equal(all.size, 8);
        assert_memory_equal(all.data, "one\ntwo\n", 8);
        free(a);
        free(b);
    }
    rks_buffer_free(&all);
}

static void gzip_may_be_filled_up_with_zeros_but_nothing_else(void **state)
{
    (void)state;
    rks_buffer all = {0};
    size_t size;
    uint8_t *bytes = load(packed_file("a", 0, "one\n", 4), &size);
    memset(bytes + size, 0, 1000);
    assert_ok(read_all(listed(scratch_bytes("zeros", bytes, size + 1000)), 100, &all), &err);
    assert_int_equal(all.size, 4);
    bytes[size + 999] = 1;
    assert_fails(RKS_ERR_DATA,
                 read_all(listed(scratch_bytes("zeros", bytes, size + 1000)), 100, &all));
    bytes[size] = 'x';
    assert_fails(RKS_ERR_DATA,
                 read_all(listed(scratch_bytes("other", bytes, size + 1)), 100, &all));
    assert_contains(err.text, "other");
    free(bytes);
    rks_buffer_free(&all);
}

static void says_how_far_a_cut_file_was_read(void **state)
{
    (void)state;
    static uint8_t bytes[60000];
    rks_buffer all = {0};
    fill(bytes, sizeof(bytes));
    for (int kind = 0; kind < PACKED_KINDS; kind++) {
        size_t size;
        uint8_t *packed = load(packed_file("whole", kind, bytes, sizeof(bytes)), &size);
        const size_t cuts[] = {size - 1, size - 4, size / 2, 20};
        for (size_t i = 0; i < 4; i++) {
            char of[32];
            snprintf(of, sizeof(of), " of %zu", cuts[i]);
            assert_fails(RKS_ERR_DATA,
                         read_all(listed(scratch_bytes("cut", packed, cuts[i])), 5000, &all));
            assert_contains(err.text, "/cut: damaged");
            assert_contains(err.text, of);
        }
        free(packed);
    }
    rks_buffer_free(&all);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void finds_flipped_bits(void **state)
{
    (void)state;
    static uint8_t bytes[20000];
    rks_buffer all = {0};
    scratch_seed_print();
    fill(bytes, sizeof(bytes));
    for (int kind = 0; kind < PACKED_KINDS; kind++) {
        size_t size, wrong = 0;
        uint8_t *packed = load(packed_file("whole", kind, bytes, sizeof(bytes)), &size);
        for (int turn = 0; turn < 100; turn++) {
            size_t bit = 8 * 16 + scratch_random(8 * (size - 16));
            packed[bit / 8] ^= (uint8_t)(1u << bit % 8);
            rks_status status = read_all(listed(scratch_bytes("flip", packed, size)), 5000, &all);
            /* zstd's files of libarchive have no check of their own. */
            if (status == RKS_OK && kind != 1)
                assert_true(all.size == sizeof(bytes) &&
                            memcmp(all.data, bytes, sizeof(bytes)) == 0);
            wrong += status == RKS_ERR_DATA;
            packed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        if (kind != 1)
            assert_true(wrong >= 90);
        free(packed);
    }
    rks_buffer_free(&all);
}

/* ---- by a thread of its own ------------------------------------------------------------------ */

enum { LARGE = 5 << 20 };

static uint8_t *large(void)
{
    static uint8_t bytes[LARGE];
    scratch_seed_print();
    fill(bytes, sizeof(bytes));
    return bytes;
}

static void a_large_file_is_unpacked_whole(void **state)
{
    (void)state;
    rks_buffer all = {0};
    uint8_t *bytes = large();
    const size_t steps[] = {1 << 20, 70001};
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < 2; i++) {
            assert_ok(read_all(listed(packed_file("x", kind, bytes, LARGE)), steps[i], &all), &err);
            assert_int_equal(all.size, LARGE);
            assert_memory_equal(all.data, bytes, LARGE);
        }
    rks_buffer_free(&all);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void a_large_file_that_is_cut_gives_what_is_before(void **state)
{
    (void)state;
    rks_buffer all = {0};
    uint8_t *bytes = large();
    const char *path = packed_file("cut", 0, bytes, LARGE);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size * 3 / 4), 0);
    assert_fails(RKS_ERR_DATA, read_all(listed(path), 100000, &all));
    assert_contains(err.text, "cut, the end is missing");
    assert_true(all.size > LARGE / 2 && all.size < LARGE);
    assert_memory_equal(all.data, bytes, all.size);
    rks_buffer_free(&all);
    assert_int_equal(rks_memory_in_use(), 0);
}

static pthread_t reader;
static atomic_bool asked_elsewhere, interrupted;

static int interrupt(void *user)
{
    (void)user;
    if (!pthread_equal(pthread_self(), reader))
        asked_elsewhere = true;
    return interrupted;
}

static void only_the_reader_hears_of_an_interrupt(void **state)
{
    (void)state;
    static uint8_t piece[1 << 20];
    rks_unpack *unpack = NULL;
    size_t got = 1;
    uint8_t *bytes = large();
    const rks_input_file *file = listed(packed_file("x", 0, bytes, LARGE));
    reader = pthread_self();
    rks_set_interrupt(interrupt, NULL);
    assert_ok(rks_unpack_open(file, 0, &unpack, &err), &err);
    for (size_t sum = 0; sum < LARGE / 2; sum += got)
        assert_ok(rks_unpack_read(unpack, piece, sizeof(piece), &got, &err), &err);
    interrupted = true;
    assert_fails(RKS_ERR_CANCELLED, rks_unpack_read(unpack, piece, sizeof(piece), &got, &err));
    interrupted = false; /* nothing is lost by it */
    assert_ok(rks_unpack_read(unpack, piece, sizeof(piece), &got, &err), &err);
    assert_true(got > 0);
    rks_unpack_close(unpack); /* long before its end */
    rks_set_interrupt(NULL, NULL);
    assert_false(asked_elsewhere);
    assert_int_equal(rks_memory_in_use(), 0);
}

static atomic_int asked;

static int interrupt_at_the_second(void *user)
{
    (void)user;
    return atomic_fetch_add(&asked, 1) > 0;
}

/* As a file of nothing but empty members is. */
static rks_status unpack_nothing(void *user, void *bytes, size_t size, size_t *got, uint64_t *taken,
                                 rks_error *why)
{
    (void)user;
    (void)bytes;
    (void)size;
    *got = 0;
    *taken = 0;
    rks_status status = RKS_OK;
    while (status == RKS_OK) {
        sched_yield();
        status = rks_check_interrupt(why);
    }
    return status;
}

static void an_interrupt_ends_a_wait_for_what_unpacks_to_nothing(void **state)
{
    (void)state;
    uint8_t byte;
    size_t got = 1;
    uint64_t taken = 0;
    rks_unpack_ahead *ahead = rks_unpack_ahead_start(unpack_nothing, NULL);
    assert_non_null(ahead);
    rks_set_interrupt(interrupt_at_the_second, NULL);
    assert_fails(RKS_ERR_CANCELLED, rks_unpack_ahead_read(ahead, &byte, 1, &got, &taken, &err));
    assert_int_equal(got, 0);
    rks_set_interrupt(NULL, NULL);
    rks_unpack_ahead_close(ahead); /* ends the thread, which asks nobody else */
    assert_int_equal(rks_memory_in_use(), 0);
}

static void refuses_names_that_promise_what_is_not_there(void **state)
{
    (void)state;
    rks_input_file file = {.max_total = UINT64_MAX};
    for (int kind = 0; kind < PACKED_KINDS; kind++)
        for (size_t size = 0; size < 3; size++) {
            char name[32];
            snprintf(name, sizeof(name), "no.jsonl%s", PACKED_ENDINGS[kind]);
            file.path = (char *)scratch_bytes(name, "{}", size);
            file.size = size;
            assert_fails(RKS_ERR_DATA, rks_packing_find(&file, &file.packing, &err));
            assert_contains(err.text, name);
        }
    assert_int_equal(listed(scratch_file("BZh", "BZhello there, this is text"))->packing,
                     RKS_PACKING_NONE);
}

static void ends_at_the_limit(void **state)
{
    (void)state;
    rks_buffer all = {0};
    size_t size = 4 << 20;
    uint8_t *zeros = calloc(1, size);
    for (int kind = 0; kind < PACKED_KINDS; kind++) {
        rks_input_file file = *listed(packed_file("bomb", kind, zeros, size));
        file.max_total = 1 << 20;
        assert_fails(RKS_ERR_DATA, read_all(&file, 4096, &all));
        assert_true(all.size <= (1 << 20) + 4096);
        assert_contains(err.text, "max_total (1048576 bytes)");
        file.max_total = size;
        assert_ok(read_all(&file, 4096, &all), &err);
    }
    free(zeros);
    rks_buffer_free(&all);
}

/* Lines, samples and inferred types of a packed file are those of the plain one, and it is one
 * unit. */
static void lines_are_those_of_the_plain_file(void **state)
{
    (void)state;
    rks_buffer text = {0};
    scratch_seed_print();
    for (int i = 0; i < 20000; i++)
        assert_ok(rks_buffer_print(&text, &err, "{\"n\": %d, \"s\": \"%.*s\"}%s\n", i,
                                   (int)scratch_random(40),
                                   "0123456789012345678901234567890123456789",
                                   scratch_random(9) == 0 ? "\r" : ""),
                  &err);
    for (int kind = -1; kind < PACKED_KINDS; kind++) {
        char name[32];
        snprintf(name, sizeof(name), "l%d.jsonl%s", kind + 1, kind < 0 ? "" : PACKED_ENDINGS[kind]);
        const char *path = kind < 0 ? scratch_bytes(name, text.data, text.size)
                                    : packed_file(name, kind, text.data, text.size);
        rks_ingest_options options = {.unit_size = 4096};
        rks_input *input = NULL;
        char *schema = NULL;
        assert_ok(rks_input_open(&path, 1, &options, &input, &err), &err);
        assert_true(kind < 0 || input->unit_count == 1);
        assert_ptr_equal(input->format, &rks_format_jsonl);
        assert_string_equal(input->files[0].name + 2, ".jsonl");
        assert_ok(rks_ingest_infer(input, 0, &schema, &err), &err);
        assert_string_equal(schema, "{\"n\":\"int64\",\"s\":\"str\"}");
        rks_lines lines;
        rks_line line = {0};
        size_t at = 0;
        assert_ok(rks_lines_open(&lines, input->files, 0, input->files[0].size, 1000, &err), &err);
        for (;;) {
            assert_ok(rks_lines_next(&lines, &line, &err), &err);
            if (line.text == NULL)
                break;
            assert_memory_equal(line.text, text.data + at, line.size);
            at += line.size + 1 + (text.data[at + line.size] == '\r');
        }
        assert_int_equal(at, text.size);
        rks_lines_close(&lines);
        rks_free(schema);
        rks_input_free(input);
    }
    rks_buffer_free(&text);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void formats_are_told_by_what_is_inside(void **state)
{
    (void)state;
    for (int kind = 0; kind < PACKED_KINDS; kind++) {
        const char *text[] = {"{\"a\": 1}\n", "a line\n", ""};
        for (size_t i = 0; i < 3; i++) {
            const char *path = packed_file("unnamed", kind, text[i], strlen(text[i]));
            rks_ingest_options options = {0};
            rks_input *input = NULL;
            assert_ok(rks_input_open(&path, 1, &options, &input, &err), &err);
            assert_ptr_equal(input->format, i == 0 ? &rks_format_jsonl : &rks_format_text);
            assert_string_equal(input->files[0].name, "unnamed");
            rks_input_free(input);
        }
    }
}

static void a_folder_keeps_its_files_as_they_are(void **state)
{
    (void)state;
    packed_file("f/a.jsonl.gz", 0, "{}\n", 3);
    const char *folder = scratch_path("f");
    rks_ingest_options options = {0};
    rks_input *input = NULL;
    assert_ok(rks_input_open(&folder, 1, &options, &input, &err), &err);
    assert_int_equal(input->files[0].packing, RKS_PACKING_NONE);
    assert_string_equal(input->files[0].name, "a.jsonl.gz");
    rks_input_free(input);
    options.format = "jsonl";
    assert_ok(rks_input_open(&folder, 1, &options, &input, &err), &err);
    assert_int_equal(input->files[0].packing, RKS_PACKING_GZIP);
    assert_string_equal(input->files[0].name, "a.jsonl");
    rks_input_free(input);
    scratch_file("f/a.jsonl", "{}\n");
    assert_fails(RKS_ERR_ARGUMENT, rks_input_open(&folder, 1, &options, &input, &err));
    assert_contains(err.text, "have the same name");
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    rks_buffer all = {0};
    assert_ok(rks_buffer_reserve(&all, 1000, NULL), &err);
    for (int kind = 0; kind < PACKED_KINDS; kind++) {
        const rks_input_file *file = listed(packed_file("m", kind, "some text\n", 10));
        long before = rks_memory_in_use();
        for (long nth = 1;; nth++) {
            rks_memory_fail_at(nth);
            rks_status status = read_all(file, 100, &all);
            bool failed = rks_memory_fail_left() == 0;
            rks_memory_fail_at(0);
            assert_int_equal(rks_memory_in_use(), before);
            if (!failed)
                break;
            assert_int_equal(status, RKS_ERR_MEMORY);
        }
    }
    rks_buffer_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unpacks_what_was_packed),
        cmocka_unit_test(pieces_behind_each_other_are_one),
        cmocka_unit_test(gzip_may_be_filled_up_with_zeros_but_nothing_else),
        cmocka_unit_test(says_how_far_a_cut_file_was_read),
        cmocka_unit_test(finds_flipped_bits),
        cmocka_unit_test(a_large_file_is_unpacked_whole),
        cmocka_unit_test(a_large_file_that_is_cut_gives_what_is_before),
        cmocka_unit_test(only_the_reader_hears_of_an_interrupt),
        cmocka_unit_test(an_interrupt_ends_a_wait_for_what_unpacks_to_nothing),
        cmocka_unit_test(refuses_names_that_promise_what_is_not_there),
        cmocka_unit_test(ends_at_the_limit),
        cmocka_unit_test(lines_are_those_of_the_plain_file),
        cmocka_unit_test(formats_are_told_by_what_is_inside),
        cmocka_unit_test(a_folder_keeps_its_files_as_they_are),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("unpack", tests, scratch_open, scratch_close);
}
