/* SPDX-License-Identifier: Apache-2.0
 *
 * test_base.c: errors, memory, digests, files. */
#include "support/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/secret.h"

static rks_error err;

static void error_is_512_bytes_and_travels_as_it_is(void **state)
{
    (void)state;
    assert_int_equal(sizeof(rks_error), 512);
}

static void error_keeps_beginning_and_end_of_a_long_text(void **state)
{
    (void)state;
    char path[600];
    memset(path, 'p', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    rks_fail(&err, RKS_ERR_IO, 5, "open %s: disk full", path);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    assert_memory_equal(err.text, "open ppp", 8);
    assert_string_equal(err.text + strlen(err.text) - 9, "disk full");
}

static void error_shortens_paths_before_words(void **state)
{
    (void)state;
    char folder[400] = "/scratch/";
    memset(folder + 9, 'f', sizeof(folder) - 10);
    rks_fail(&err, RKS_ERR_DATA, 0, "%s/m.idx: sequence 0 lies outside of %s/m.bin (byte 8)",
             folder, folder);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    assert_memory_equal(err.text, "/scratch/fff...fff", 18);
    assert_non_null(strstr(err.text, "fff/m.idx: sequence 0 lies outside of /scratch/fff...fff"));
    assert_string_equal(err.text + strlen(err.text) - 18, "fff/m.bin (byte 8)");
    for (int shift = 0; shift < 4; shift++) { /* never through a character */
        char wide[640] = "/abcd";
        for (int i = 0; i < 300; i++)
            memcpy(wide + shift + 1 + 2 * i, "\303\251", 3);
        rks_fail(&err, RKS_ERR_DATA, 0, "%s: bad", wide);
        const char *dots = strstr(err.text, "...");
        assert_non_null(dots);
        assert_int_equal((unsigned char)dots[-1], 0251);
        assert_int_equal((unsigned char)dots[3], 0303);
        assert_string_equal(err.text + strlen(err.text) - 5, ": bad");
    }
}

/* a path as long as the system allows: what was wrong stands after it */
static void error_has_its_reason_behind_the_longest_path(void **state)
{
    (void)state;
    static char path[4096];
    for (size_t i = 0; i + 1 < sizeof(path); i++)
        path[i] = i % 200 == 0 ? '/' : 'p';
    rks_fail_errno(&err, ENOENT, "%s: open", path);
    assert_string_equal(err.text + strlen(err.text) - 33, ": open: No such file or directory");
    assert_memory_equal(err.text, "/ppppppppppp...", 15);
}

static void error_shows_control_characters(void **state)
{
    (void)state;
    rks_fail(&err, RKS_ERR_DATA, 0, "key a\nb");
    assert_string_equal(err.text, "key a\\x0ab");
    rks_fail(&err, RKS_ERR_DATA, 0, "\302\2332J \302\240 \303\233"); /* CSI; two that are letters */
    assert_string_equal(err.text, "\\xc2\\x9b2J \302\240 \303\233");
}

static void bytes_of_a_message_are_shown_whole_or_cut_between_characters(void **state)
{
    (void)state;
    char text[RKS_SHOWN_ROOM], bytes[RKS_SHOWN_MAX + 2];
    assert_string_equal(rks_text_shown("", 0, text), "");
    assert_string_equal(rks_text_shown("a\0b", 3, text), "a\\x00b");
    memset(bytes, '\0', sizeof(bytes));
    assert_int_equal(strlen(rks_text_shown(bytes, RKS_SHOWN_MAX, text)), 4 * RKS_SHOWN_MAX);
    assert_int_equal(strlen(rks_text_shown(bytes, sizeof(bytes), text)), 4 * RKS_SHOWN_MAX + 3);
    memset(bytes, 'x', sizeof(bytes));
    memcpy(bytes + RKS_SHOWN_MAX - 1, "\xc3\xa4", 2);
    rks_text_shown(bytes, sizeof(bytes), text);
    assert_int_equal(strlen(text), RKS_SHOWN_MAX - 1 + 3);
    assert_string_equal(text + RKS_SHOWN_MAX - 2, "x...");
}

static void a_strange_error_from_a_peer_is_made_harmless(void **state)
{
    (void)state;
    memset(&err, 0xff, sizeof(err));
    err.status = 12345;
    rks_error_sanitize(&err);
    assert_int_equal(err.status, RKS_ERR_PEER);
    assert_int_equal(err.text[sizeof(err.text) - 1], 0);
    assert_int_equal(err.reserved[0], 0);
    snprintf(err.text, sizeof(err.text), "a\033b\302\233c");
    snprintf(err.host, sizeof(err.host), "\033[2J");
    rks_error_sanitize(&err);
    assert_string_equal(err.text, "a?b??c");
    assert_string_equal(err.host, "?[2J");
}

static void an_overflowing_allocation_is_refused(void **state)
{
    (void)state;
    assert_null(rks_alloc(SIZE_MAX / 4, 8, &err));
    assert_int_equal(err.status, RKS_ERR_MEMORY);
}

static void the_nth_allocation_fails_once(void **state)
{
    (void)state;
    rks_memory_fail_at(2);
    void *first = rks_alloc(1, 1, &err);
    assert_non_null(first);
    assert_null(rks_alloc(1, 1, &err));
    void *third = rks_alloc(1, 1, &err);
    assert_non_null(third);
    rks_free(first);
    rks_free(third);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void digest_text_round_trips_and_refuses_other_text(void **state)
{
    (void)state;
    rks_digest digest = rks_checksum128("abc", 3), back;
    char text[RKS_DIGEST_TEXT];
    rks_digest_format(digest, text);
    assert_true(rks_digest_parse(text, &back));
    assert_true(rks_digest_equal(digest, back));
    text[5] = 'G';
    assert_false(rks_digest_parse(text, &back));
    assert_false(rks_digest_parse("12", &back));
}

static void pieces_have_the_digest_of_the_whole(void **state)
{
    (void)state;
    rks_digester *digester = rks_digester_create(&err);
    assert_non_null(digester);
    rks_digester_update(digester, "ab", 2);
    rks_digester_update(digester, "c", 1);
    assert_true(rks_digest_equal(rks_digester_result(digester), rks_checksum128("abc", 3)));
    rks_digester_free(digester);
}

#ifdef __x86_64__
enum { WIDE_REGISTERS = 16 };

#define UPPER_HALF(n) __asm__ volatile("vextractf128 $1, %%ymm" #n ", %0" : "=m"(halves[n]))

static bool upper_halves_are_zero(void)
{
    static uint64_t halves[WIDE_REGISTERS][2];
    UPPER_HALF(0);
    UPPER_HALF(1);
    UPPER_HALF(2);
    UPPER_HALF(3);
    UPPER_HALF(4);
    UPPER_HALF(5);
    UPPER_HALF(6);
    UPPER_HALF(7);
    UPPER_HALF(8);
    UPPER_HALF(9);
    UPPER_HALF(10);
    UPPER_HALF(11);
    UPPER_HALF(12);
    UPPER_HALF(13);
    UPPER_HALF(14);
    UPPER_HALF(15);
    bool zero = true;
    for (int i = 0; i < WIDE_REGISTERS; i++)
        zero = zero && halves[i][0] == 0 && halves[i][1] == 0;
    return zero;
}

/* Else what comes next may take longer than the hash. */
static void hashing_leaves_no_wide_register_in_use(void **state)
{
    (void)state;
    static uint8_t bytes[4096];
    if (!__builtin_cpu_supports("avx"))
        skip();
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7 + 1);
    rks_digester *digester = rks_digester_create(&err);
    assert_non_null(digester);
    for (size_t size = 0; size <= sizeof(bytes); size += 100) {
        rks_checksum64(bytes, size);
        assert_true(upper_halves_are_zero());
        rks_checksum128(bytes, size);
        assert_true(upper_halves_are_zero());
        rks_digester_update(digester, bytes, size);
        assert_true(upper_halves_are_zero());
        rks_digester_result(digester);
        assert_true(upper_halves_are_zero());
    }
    rks_digester_free(digester);
}
#endif

static void adding_digests_carries_and_does_not_cancel(void **state)
{
    (void)state;
    rks_digest sum = rks_digest_add((rks_digest){UINT64_MAX, 1}, (rks_digest){1, 1});
    assert_true(rks_digest_equal(sum, (rks_digest){0, 3}));
    rks_digest one = rks_checksum128("x", 1);
    assert_false(rks_digest_equal(rks_digest_add(one, one), (rks_digest){0, 0}));
}

static void a_file_is_replaced_and_loaded_within_its_limit(void **state)
{
    (void)state;
    char directory[] = "/tmp/rks-test-XXXXXX";
    assert_non_null(mkdtemp(directory));
    char path[64], *bytes = NULL;
    size_t size = 0;
    snprintf(path, sizeof(path), "%s/f", directory);
    assert_ok(rks_file_replace(path, "hello", 5, &err), &err);
    assert_ok(rks_file_replace(path, "hello!", 6, &err), &err);
    assert_ok(rks_file_load(path, 6, &bytes, &size, &err), &err);
    assert_string_equal(bytes, "hello!");
    rks_free(bytes);
    assert_fails(RKS_ERR_CORRUPT, rks_file_load(path, 5, &bytes, &size, &err));
    unlink(path);
    assert_fails(RKS_ERR_NOT_FOUND, rks_file_load(path, 5, &bytes, &size, &err));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(RKS_ERR_CORRUPT, rks_file_load(path, 5, &bytes, &size, &err)); /* at once */
    unlink(path);
    rmdir(directory);
}

static void load_link(const char *to, const char *path, rks_status expected, const char *why)
{
    char *bytes = NULL;
    size_t size = 0;
    unlink(path);
    assert_int_equal(symlink(to, path), 0);
    if (expected == RKS_OK) {
        assert_ok(rks_file_load(path, 6, &bytes, &size, &err), &err);
        assert_string_equal(bytes, why);
        rks_free(bytes);
    } else {
        assert_fails(expected, rks_file_load(path, 6, &bytes, &size, &err));
        assert_contains(err.text, why);
    }
}

static void a_link_is_followed_to_a_regular_file(void **state)
{
    (void)state;
    char directory[] = "/tmp/rks-test-XXXXXX";
    assert_non_null(mkdtemp(directory));
    char path[64], file[64], pipe[64];
    snprintf(path, sizeof(path), "%s/link", directory);
    snprintf(file, sizeof(file), "%s/file", directory);
    snprintf(pipe, sizeof(pipe), "%s/pipe", directory);
    assert_ok(rks_file_replace(file, "hello", 5, &err), &err);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    load_link(file, path, RKS_OK, "hello");
    load_link("file", path, RKS_OK, "hello"); /* from the link's own folder */
    int opened = -1, input = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    assert_ok(rks_file_open(path, &opened, NULL, &err), &err);
    assert_true(opened > STDERR_FILENO && fcntl(STDIN_FILENO, F_GETFD) >= 0);
    close(opened);
    if (input >= 0)
        dup2(input, STDIN_FILENO);
    close(input);
    load_link("nothing", path, RKS_ERR_CORRUPT, "a symbolic link that leads nowhere");
    load_link("link", path, RKS_ERR_CORRUPT, "a symbolic link that leads nowhere");
    load_link(pipe, path, RKS_ERR_CORRUPT, "not a regular file"); /* at once */
    load_link("/dev/zero", path, RKS_ERR_CORRUPT, "not a regular file");
    load_link("..", path, RKS_ERR_CORRUPT, "not a regular file");
    unlink(path);
    unlink(pipe);
    unlink(file);
    rmdir(directory);
}

/* Only root can make the files of other users. */
static void a_link_of_another_user_leads_to_files_of_theirs_alone(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    char directory[] = "/tmp/rks-test-XXXXXX";
    assert_non_null(mkdtemp(directory));
    char path[64], file[64], *bytes = NULL;
    size_t size = 0;
    snprintf(path, sizeof(path), "%s/link", directory);
    snprintf(file, sizeof(file), "%s/file", directory);
    assert_ok(rks_file_replace(file, "hello", 5, &err), &err);
    assert_int_equal(symlink("file", path), 0);
    assert_int_equal(lchown(path, 12345, 12345), 0);
    assert_fails(RKS_ERR_CORRUPT, rks_file_load(path, 6, &bytes, &size, &err));
    assert_contains(err.text, "a symbolic link of another user, to a file that is not theirs");
    assert_int_equal(chown(file, 12345, 12345), 0);
    assert_ok(rks_file_load(path, 6, &bytes, &size, &err), &err);
    rks_free(bytes);
    unlink(path);
    unlink(file);
    rmdir(directory);
}

static void a_secret_that_others_may_read_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/rks-test-XXXXXX";
    int fd = mkstemp(path);
    uint8_t secret[RKS_SECRET_SIZE] = {0};
    assert_int_equal(write(fd, "0123456789012345678901234567890123456789", 40), 40);
    fchmod(fd, 0644);
    assert_fails(RKS_ERR_ARGUMENT, rks_secret_read(path, secret, &err));
    fchmod(fd, 0600);
    assert_ok(rks_secret_read(path, secret, &err), &err);
    assert_memory_equal(secret, "01234567", 8);
    close(fd);
    unlink(path);
}

/* As LMDB puts it: EIO. */
static void a_limit_on_file_sizes_is_named_where_it_would_be_passed(void **state)
{
    (void)state;
    char path[] = "/tmp/rks-limit-XXXXXX";
    struct rlimit old, low;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 65536 - 100), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 65536;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    assert_fails(RKS_ERR_IO, rks_fail_write(&err, EIO, path, 101));
    assert_contains(err.text, "(ulimit -f), 65536 bytes");
    assert_fails(RKS_ERR_IO, rks_fail_write(&err, EFBIG, path, 1));
    assert_contains(err.text, "(ulimit -f), 65536 bytes");
    assert_fails(RKS_ERR_IO, rks_fail_write(&err, EIO, path, 100));
    assert_null(strstr(err.text, "ulimit"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_fails(RKS_ERR_IO, rks_fail_write(&err, EIO, path, 101));
    assert_null(strstr(err.text, "ulimit"));
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_is_512_bytes_and_travels_as_it_is),
        cmocka_unit_test(error_keeps_beginning_and_end_of_a_long_text),
        cmocka_unit_test(error_shortens_paths_before_words),
        cmocka_unit_test(error_has_its_reason_behind_the_longest_path),
        cmocka_unit_test(error_shows_control_characters),
        cmocka_unit_test(bytes_of_a_message_are_shown_whole_or_cut_between_characters),
        cmocka_unit_test(a_strange_error_from_a_peer_is_made_harmless),
        cmocka_unit_test(an_overflowing_allocation_is_refused),
        cmocka_unit_test(the_nth_allocation_fails_once),
        cmocka_unit_test(digest_text_round_trips_and_refuses_other_text),
        cmocka_unit_test(pieces_have_the_digest_of_the_whole),
#ifdef __x86_64__
        cmocka_unit_test(hashing_leaves_no_wide_register_in_use),
#endif
        cmocka_unit_test(adding_digests_carries_and_does_not_cancel),
        cmocka_unit_test(a_file_is_replaced_and_loaded_within_its_limit),
        cmocka_unit_test(a_link_is_followed_to_a_regular_file),
        cmocka_unit_test(a_link_of_another_user_leads_to_files_of_theirs_alone),
        cmocka_unit_test(a_limit_on_file_sizes_is_named_where_it_would_be_passed),
        cmocka_unit_test(a_secret_that_others_may_read_is_refused),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
