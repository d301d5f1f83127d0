/* SPDX-License-Identifier: Apache-2.0
 *
 * test_archive_writer.c: what is written into tar and zip is what a reader finds; base64 there and
 * back.
 */
#include "codec/archive_writer.h"

#include "support/check.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/secret.h"

static rks_error err;

static int open_temporary(char path[64])
{
    strcpy(path, "/tmp/rks-archive-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    return fd;
}

/* Three members; the last one comes in pieces, the second is empty, one name is long. */
static void write_members(rks_archive_kind format, int fd, const char *path)
{
    rks_archive_writer *writer = NULL;
    char name[300];
    memset(name, 'n', 290);
    strcpy(name + 290, ".txt");
    assert_ok(rks_archive_writer_open(format, fd, path, &writer, &err), &err);
    assert_ok(rks_archive_writer_begin(writer, "a/b.txt", 5, &err), &err);
    assert_ok(rks_archive_writer_put(writer, "hello", 5, &err), &err);
    assert_ok(rks_archive_writer_end(writer, &err), &err);
    assert_ok(rks_archive_writer_begin(writer, "empty", 0, &err), &err);
    assert_ok(rks_archive_writer_end(writer, &err), &err);
    assert_ok(rks_archive_writer_begin(writer, name, 100000, &err), &err);
    for (int i = 0; i < 100000 / 50; i++)
        assert_ok(rks_archive_writer_put(
                      writer, "01234567890123456789012345678901234567890123456789", 50, &err),
                  &err);
    assert_ok(rks_archive_writer_end(writer, &err), &err);
    assert_ok(rks_archive_writer_finish(writer, &err), &err);
    rks_archive_writer_close(writer);
}

static void members_are_read_back(void **state)
{
    (void)state;
    for (int format = RKS_ARCHIVE_TAR; format <= RKS_ARCHIVE_ZIP; format++) {
        static const size_t sizes[] = {5, 0, 100000};
        char path[64], bytes[16];
        int fd = open_temporary(path), count = 0;
        write_members((rks_archive_kind)format, fd, path);
        close(fd);
        struct archive *in = archive_read_new();
        struct archive_entry *entry;
        archive_read_support_format_all(in);
        assert_int_equal(archive_read_open_filename(in, path, 10240), ARCHIVE_OK);
        while (archive_read_next_header(in, &entry) == ARCHIVE_OK) {
            assert_int_equal(archive_entry_filetype(entry), AE_IFREG);
            assert_int_equal(archive_entry_size(entry), sizes[count]);
            if (count == 0) {
                assert_string_equal(archive_entry_pathname(entry), "a/b.txt");
                assert_int_equal(archive_read_data(in, bytes, sizeof(bytes)), 5);
                assert_memory_equal(bytes, "hello", 5);
            }
            if (count == 2)
                assert_int_equal(strlen(archive_entry_pathname(entry)), 294);
            count++;
        }
        assert_int_equal(count, 3);
        archive_read_free(in);
        unlink(path);
    }
}

static void a_full_disk_is_named(void **state)
{
    (void)state;
    rks_archive_writer *writer = NULL;
    FILE *full = fopen("/dev/full", "w");
    char *zeros = calloc(1 << 20, 1);
    rks_status status = RKS_OK;
    assert_ok(rks_archive_writer_open(RKS_ARCHIVE_TAR, fileno(full), "/dev/full", &writer, &err),
              &err);
    assert_ok(rks_archive_writer_begin(writer, "a", 1 << 20, &err), &err);
    status = rks_archive_writer_put(writer, zeros, 1 << 20, &err);
    assert_fails(RKS_ERR_IO, status);
    assert_int_equal(err.cause, ENOSPC);
    assert_non_null(strstr(err.text, "disk full"));
    rks_archive_writer_close(writer);
    fclose(full);
    free(zeros);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void base64_comes_back_and_other_text_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "a", "ab=", "a===", "ab=c", "a b=", "=", "====x", "AAA\xff", "QR=="};
    rks_buffer text = {0}, back = {0};
    uint8_t bytes[64];
    bool good = false;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 37 + 200);
    for (size_t size = 0; size < sizeof(bytes); size++) {
        text.size = back.size = 0;
        assert_ok(rks_base64_encode(bytes, size, &text, &err), &err);
        assert_int_equal(text.size, (size + 2) / 3 * 4);
        assert_ok(rks_base64_decode((const char *)text.data, text.size, &back, &good, &err), &err);
        assert_true(good);
        assert_int_equal(back.size, size);
        assert_true(size == 0 || memcmp(back.data, bytes, size) == 0);
    }
    text.size = 0;
    assert_ok(rks_base64_encode("light w", 7, &text, &err), &err);
    assert_memory_equal(text.data, "bGlnaHQgdw==", 12);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        size_t before = back.size;
        assert_ok(rks_base64_decode(bad[i], strlen(bad[i]), &back, &good, &err), &err);
        assert_false(good);
        assert_int_equal(back.size, before);
    }
    rks_buffer_free(&text);
    rks_buffer_free(&back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_read_back),
        cmocka_unit_test(a_full_disk_is_named),
        cmocka_unit_test(base64_comes_back_and_other_text_is_refused),
    };
    return cmocka_run_group_tests_name("archive_writer", tests, NULL, NULL);
}
