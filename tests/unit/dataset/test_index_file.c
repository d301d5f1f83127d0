/* SPDX-License-Identifier: Apache-2.0
 *
 * test_index_file.c: the file of lengths, key hashes and index columns. */
#include "support/check.h"
#include "support/folder.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/memory.h"
#include "dataset/index_file.h"

enum { ROWS = 8, MOST = 40, ARRAYS = 4 };

static rks_error err;
static char directory[FOLDER_PATH];
static const uint32_t sizes[ARRAYS] = {4, 8, 2, 8};
static const rks_index_items items = {sizes, ARRAYS};
static uint8_t contents[ARRAYS][MOST * 8];

/* What file of `samples` samples holds at `byte` of array `array`. */
static uint8_t byte_of(size_t array, size_t byte)
{
    return (uint8_t)(array * 91 + byte * 7 + byte / 256 + 1);
}

static int make_directory(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAYS; i++)
        for (size_t k = 0; k < sizeof(contents[i]); k++)
            contents[i][k] = byte_of(i, k);
    return folder_make(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return folder_remove(directory);
}

/* The samples in pieces that end at ends[i]. */
static rks_index_file write_pieces(const uint64_t *ends, size_t count)
{
    const uint8_t *arrays[MOST][ARRAYS];
    rks_index_piece pieces[MOST];
    rks_index_file made = {.samples = 0};
    for (size_t i = 0; i < count; i++) {
        uint64_t first = i == 0 ? 0 : ends[i - 1];
        for (size_t k = 0; k < ARRAYS; k++)
            arrays[i][k] = contents[k] + first * sizes[k];
        pieces[i] = (rks_index_piece){arrays[i], ends[i] - first};
    }
    rks_index_file_rows(ROWS);
    assert_ok(rks_index_file_write(directory, items, pieces, count, &made, &err), &err);
    rks_index_file_rows(0);
    return made;
}

static char *path_of(const rks_index_file *file)
{
    return rks_format(&err, "%s/%s", directory, file->name);
}

/* Opens the file and reads all of it. */
static rks_status read_file(const rks_index_file *file, uint8_t read[ARRAYS][MOST * 8])
{
    rks_index_reader *reader = NULL;
    uint8_t bytes[ROWS * 8];
    rks_status status = rks_index_reader_open(directory, file, items, &reader, &err);
    if (status != RKS_OK)
        return status;
    assert_true(rks_index_reader_room(reader) <= sizeof(bytes));
    for (uint64_t i = 0; status == RKS_OK && i < rks_index_reader_segments(reader); i++) {
        rks_index_segment segment = rks_index_reader_segment(reader, i);
        assert_true(segment.array < ARRAYS && segment.first + segment.count <= file->samples);
        status = rks_index_reader_read(reader, i, bytes, &err);
        if (status == RKS_OK)
            memcpy(read[segment.array] + segment.first * sizes[segment.array], bytes,
                   segment.count * sizes[segment.array]);
    }
    rks_index_reader_close(reader);
    return status;
}

static void any_pieces_make_the_same_file(void **state)
{
    (void)state;
    for (uint64_t samples = 1; samples <= MOST; samples++) {
        rks_index_file one = write_pieces(&samples, 1);
        for (uint64_t cut = 1; cut < samples; cut += 3) {
            const uint64_t ends[] = {cut, cut, samples};
            rks_index_file again = write_pieces(ends, 3);
            assert_memory_equal(&again, &one, sizeof(one));
        }
        uint8_t read[ARRAYS][MOST * 8] = {{0}};
        assert_ok(read_file(&one, read), &err);
        for (size_t i = 0; i < ARRAYS; i++)
            assert_memory_equal(read[i], contents[i], samples * sizes[i]);
    }
}

static void a_file_that_is_not_written_has_the_same_name(void **state)
{
    (void)state;
    const uint8_t *arrays[ARRAYS] = {contents[0], contents[1], contents[2], contents[3]};
    const rks_index_piece piece = {arrays, 21};
    rks_index_file made;
    assert_ok(rks_index_file_write(NULL, items, &piece, 1, &made, &err), &err);
    assert_true(rks_index_file_is_name(made.name));
    assert_fails(read_file(&made, NULL), RKS_ERR_NOT_FOUND);
    rks_index_file there;
    assert_ok(rks_index_file_write(directory, items, &piece, 1, &there, &err), &err);
    assert_memory_equal(&there, &made, sizeof(made));
    assert_fails(rks_index_file_write("/nowhere/at/all", items, &piece, 1, &there, &err),
                 RKS_ERR_IO);
}

static void only_such_names_are_names(void **state)
{
    (void)state;
    static const char *const others[] = {
        "index-.columns",
        "index-0123456789abcde.columns",
        "index-0123456789abcdef0.columns",
        "index-0123456789ABCDEF.columns",
        "index-0123456789abcdef.column",
        "index-0123456789abcdef.columns.tmp",
        "list-0123456789abcdef.columns",
        "",
    };
    assert_true(rks_index_file_is_name("index-0123456789abcdef.columns"));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_false(rks_index_file_is_name(others[i]));
}

static void the_head_has_these_bytes(void **state)
{
    (void)state;
    const uint64_t samples = 9;
    rks_index_file file = write_pieces(&samples, 1);
    char *bytes = NULL, *path = path_of(&file);
    size_t size = 0;
    assert_ok(rks_file_load(path, 1 << 20, &bytes, &size, &err), &err);
    static const uint8_t golden[] = "RKSI\1\0\0\0\x09\0\0\0\0\0\0\0\x08\0\0\0\4\0\0\0"
                                    "\4\0\0\0\x08\0\0\0\2\0\0\0\x08\0\0";
    assert_int_equal(size, file.bytes);
    assert_memory_equal(bytes, golden, sizeof(golden));
    /* 40 bytes, two digests for each of four arrays: 168, then up to a multiple of 64 */
    enum { HEAD = 192 };
    rks_digest first = rks_checksum128(contents[0], ROWS * sizes[0]);
    assert_int_equal(rks_load_u64((uint8_t *)bytes + 40), first.low);
    assert_int_equal(rks_load_u64((uint8_t *)bytes + 48), first.high);
    assert_memory_equal(bytes + HEAD, contents[0], 9 * sizes[0]);
    assert_memory_equal(bytes + HEAD + 64, contents[1], 9 * sizes[1]);
    assert_memory_equal(bytes + HEAD + 192, contents[2], 9 * sizes[2]);
    assert_memory_equal(bytes + HEAD + 256, contents[3], 9 * sizes[3]);
    assert_int_equal(size, HEAD + 384);
    rks_digest head = rks_checksum128(bytes, HEAD);
    assert_true(rks_digest_equal(head, file.digest));
    rks_free(bytes);
    rks_free(path);
}

static void every_flipped_bit_and_every_other_size_is_found(void **state)
{
    (void)state;
    const uint64_t samples = 21;
    rks_index_file file = write_pieces(&samples, 1);
    char *bytes = NULL, *path = path_of(&file);
    size_t size = 0;
    uint8_t read[ARRAYS][MOST * 8];
    assert_ok(rks_file_load(path, 1 << 20, &bytes, &size, &err), &err);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (char)(bytes[i] ^ (1 << i % 8));
        assert_ok(rks_file_replace(path, bytes, size, &err), &err);
        assert_fails(read_file(&file, read), RKS_ERR_CORRUPT);
        assert_contains(err.text, file.name);
        bytes[i] = (char)(bytes[i] ^ (1 << i % 8));
    }
    for (size_t cut = 1; cut < size; cut += 13) {
        assert_ok(rks_file_replace(path, bytes, size - cut, &err), &err);
        assert_fails(read_file(&file, read), RKS_ERR_CORRUPT);
    }
    assert_ok(rks_file_replace(path, bytes, size, &err), &err);
    assert_ok(read_file(&file, read), &err);
    rks_free(bytes);
    rks_free(path);
}

/* Numbers of a head that has the digest that dataset.json names. */
static void a_hostile_head_is_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint64_t number;
        uint64_t samples; /* that dataset.json says */
    } cases[] = {
        {4, 2, 5},
        {8, 0, 0},
        {8, UINT64_MAX, UINT64_MAX},
        {8, 1u << 31, 1u << 31},
        {16, 0, 5},
        {16, UINT32_MAX, 5},
        {20, 3, 5},
        {20, UINT32_MAX, 5},
        {24, 8, 5},
    };
    const uint64_t samples = 5;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_index_file file = write_pieces(&samples, 1);
        char *bytes = NULL, *path = path_of(&file);
        size_t size = 0;
        uint8_t read[ARRAYS][MOST * 8];
        assert_ok(rks_file_load(path, 1 << 20, &bytes, &size, &err), &err);
        if (cases[i].at == 8)
            rks_store_u64((uint8_t *)bytes + 8, cases[i].number);
        else
            rks_store_u32((uint8_t *)bytes + cases[i].at, (uint32_t)cases[i].number);
        assert_ok(rks_file_replace(path, bytes, size, &err), &err);
        file.digest = rks_checksum128(bytes, 128);
        file.samples = cases[i].samples;
        assert_fails(read_file(&file, read), RKS_ERR_CORRUPT);
        rks_free(bytes);
        rks_free(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_pieces_make_the_same_file),
        cmocka_unit_test(a_file_that_is_not_written_has_the_same_name),
        cmocka_unit_test(only_such_names_are_names),
        cmocka_unit_test(the_head_has_these_bytes),
        cmocka_unit_test(every_flipped_bit_and_every_other_size_is_found),
        cmocka_unit_test(a_hostile_head_is_refused),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
