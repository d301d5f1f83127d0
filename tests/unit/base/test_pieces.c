/* SPDX-License-Identifier: Apache-2.0
 *
 * test_pieces.c: marks of what has arrived, over boots, damage and several openers. */
#include "support/check.h"
#include "support/folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/pieces.h"

enum { PIECES = 5 };
#define FILE_SIZE (UINT64_C(4) * RKS_PIECE + 100)

static rks_error err;
static char root[FOLDER_PATH], path[FOLDER_PATH + 32];

static rks_status prepare(void *fresh_wanted, uint64_t *file_size, bool *fresh, rks_error *unused)
{
    (void)unused;
    *file_size = FILE_SIZE;
    *fresh = *(bool *)fresh_wanted;
    return RKS_OK;
}

static rks_status refuse(void *user, uint64_t *file_size, bool *fresh, rks_error *why)
{
    (void)user;
    (void)file_size;
    (void)fresh;
    snprintf(why->text, sizeof(why->text), "no room");
    return RKS_ERR_IO;
}

static rks_pieces *open_marks(bool fresh, uint64_t what)
{
    rks_pieces *pieces = NULL;
    const rks_pieces_wish wish = {path, {what, 1}, prepare, &fresh};
    assert_ok(rks_pieces_open(&wish, &pieces, &err), &err);
    return pieces;
}

static int make_root(void **state)
{
    (void)state;
    if (!folder_make_in_memory(root))
        return -1;
    snprintf(path, sizeof(path), "%s/p.pieces", root);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    return folder_remove(root);
}

static int remove_marks(void **state)
{
    (void)state;
    rks_pieces_pretend_boot(NULL);
    unlink(path);
    return 0;
}

static void marks_stay_and_are_shared(void **state)
{
    (void)state;
    rks_pieces *one = open_marks(true, 7);
    assert_int_equal(rks_pieces_count(one), PIECES);
    assert_false(rks_pieces_have(one, 0, 1));
    rks_pieces *other = open_marks(false, 7);
    rks_pieces_set(one, 1, RKS_PIECE_HERE);
    rks_pieces_set(one, 4, RKS_PIECE_HERE);
    assert_int_equal(rks_pieces_get(other, 1), RKS_PIECE_HERE);
    assert_true(rks_pieces_have(other, RKS_PIECE, 2 * RKS_PIECE));
    assert_true(rks_pieces_have(other, 2 * RKS_PIECE - 1, 2 * RKS_PIECE));
    assert_false(rks_pieces_have(other, RKS_PIECE, 2 * RKS_PIECE + 1));
    assert_false(rks_pieces_have(other, RKS_PIECE - 1, RKS_PIECE + 1));
    assert_true(rks_pieces_have(other, FILE_SIZE - 1, FILE_SIZE));
    assert_false(rks_pieces_have(other, FILE_SIZE - 1, UINT64_C(6) * RKS_PIECE));
    assert_int_equal(rks_pieces_bytes(other), RKS_PIECE + 100);
    rks_pieces_close(one);
    rks_pieces_close(other);
    assert_int_equal(rks_pieces_look(path, (rks_digest){7, 1}, FILE_SIZE), RKS_PIECE + 100);
    assert_int_equal(rks_pieces_look(path, (rks_digest){8, 1}, FILE_SIZE), 0);
    assert_int_equal(rks_pieces_look(path, (rks_digest){7, 1}, FILE_SIZE + 1), 0);
}

static void another_boot_claims_what_was_here(void **state)
{
    (void)state;
    rks_pieces_pretend_boot("a");
    rks_pieces *pieces = open_marks(true, 7);
    rks_pieces_set(pieces, 2, RKS_PIECE_HERE);
    rks_pieces_close(pieces);
    pieces = open_marks(false, 7);
    assert_int_equal(rks_pieces_get(pieces, 2), RKS_PIECE_HERE);
    rks_pieces_close(pieces);
    rks_pieces_pretend_boot("b");
    pieces = open_marks(false, 7);
    assert_int_equal(rks_pieces_get(pieces, 2), RKS_PIECE_CLAIMED);
    assert_int_equal(rks_pieces_get(pieces, 1), RKS_PIECE_MISSING);
    rks_pieces_set(pieces, 2, RKS_PIECE_HERE);
    rks_pieces_close(pieces);
    pieces = open_marks(false, 7);
    assert_int_equal(rks_pieces_get(pieces, 2), RKS_PIECE_HERE);
    rks_pieces_close(pieces);
    /* a system that does not tell its boot: nothing is believed */
    rks_pieces_pretend_boot("");
    for (int i = 0; i < 2; i++) {
        pieces = open_marks(false, 7);
        assert_int_equal(rks_pieces_get(pieces, 2), RKS_PIECE_CLAIMED);
        rks_pieces_set(pieces, 2, RKS_PIECE_HERE);
        rks_pieces_close(pieces);
    }
}

static void a_fresh_file_has_nothing(void **state)
{
    (void)state;
    rks_pieces *pieces = open_marks(true, 7);
    rks_pieces_set(pieces, 0, RKS_PIECE_HERE);
    rks_pieces_close(pieces);
    pieces = open_marks(true, 7);
    assert_int_equal(rks_pieces_bytes(pieces), 0);
    rks_pieces_close(pieces);
}

/* Each byte of the header but the count of doubts and the holder, and one mark; marks of other
 * bytes; a file that was cut. */
static void damaged_marks_are_claims(void **state)
{
    (void)state;
    for (int at = 0; at <= 96; at += at == 87 ? 9 : 1) {
        rks_pieces *pieces = open_marks(true, 7);
        rks_pieces_set(pieces, 0, RKS_PIECE_HERE);
        rks_pieces_close(pieces);
        uint8_t byte;
        int fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x40;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        pieces = open_marks(false, 7);
        assert_int_equal(rks_pieces_get(pieces, 0), RKS_PIECE_CLAIMED);
        rks_pieces_close(pieces);
    }
    rks_pieces *pieces = open_marks(false, 9);
    assert_int_equal(rks_pieces_get(pieces, 0), RKS_PIECE_CLAIMED);
    rks_pieces_close(pieces);
    assert_int_equal(truncate(path, 50), 0);
    pieces = open_marks(false, 9);
    assert_int_equal(rks_pieces_get(pieces, 4), RKS_PIECE_CLAIMED);
    rks_pieces_close(pieces);
}

static void a_failure_to_prepare_is_passed_on(void **state)
{
    (void)state;
    rks_pieces *pieces = NULL;
    const rks_pieces_wish wish = {path, {7, 1}, refuse, NULL};
    assert_fails(RKS_ERR_IO, rks_pieces_open(&wish, &pieces, &err));
    assert_contains(err.text, "no room");
    assert_null(pieces);
    unlink(path);
    assert_int_equal(mkfifo(path, 0644), 0);
    assert_fails(RKS_ERR_CORRUPT, rks_pieces_open(&wish, &pieces, &err));
    assert_contains(err.text, "not a regular file");
}

static rks_status follow(uint64_t what, rks_pieces **pieces)
{
    return rks_pieces_follow(path, (rks_digest){what, 1}, pieces, &err);
}

static void a_reader_follows_the_marks_of_this_boot(void **state)
{
    (void)state;
    rks_pieces *reader = NULL;
    assert_fails(RKS_ERR_NOT_FOUND, follow(7, &reader));
    rks_pieces *writer = open_marks(true, 7);
    assert_ok(follow(7, &reader), &err);
    assert_false(rks_pieces_have(reader, 0, 1));
    rks_pieces_set(writer, 0, RKS_PIECE_HERE);
    assert_true(rks_pieces_have(reader, 0, 1));
    unlink(path); /* as at the end of the arrival: the marks stay true */
    rks_pieces_set(writer, 1, RKS_PIECE_HERE);
    assert_true(rks_pieces_have(reader, 0, 2 * RKS_PIECE));
    rks_pieces_close(reader);
    rks_pieces_close(writer);
}

static void a_doubt_turns_what_is_here_into_claims(void **state)
{
    (void)state;
    rks_pieces *reader = NULL, *writer = open_marks(true, 7);
    assert_ok(follow(7, &reader), &err);
    rks_pieces_set(writer, 0, RKS_PIECE_HERE);
    rks_pieces_mark(writer, 1, 0);
    assert_true(rks_pieces_have(reader, 0, 2 * RKS_PIECE));
    rks_pieces_doubt(writer);
    assert_int_equal(rks_pieces_doubts(reader), 1);
    for (uint64_t i = 0; i < PIECES; i++)
        assert_int_equal(rks_pieces_get(reader, i), i < 2 ? RKS_PIECE_CLAIMED : RKS_PIECE_MISSING);
    rks_pieces_mark(writer, 2, 0); /* was read before the doubt */
    rks_pieces_mark(writer, 3, 1);
    assert_int_equal(rks_pieces_get(reader, 2), RKS_PIECE_CLAIMED);
    assert_int_equal(rks_pieces_get(reader, 3), RKS_PIECE_HERE);
    rks_pieces_close(writer);
    writer = open_marks(false, 7); /* the count stays */
    assert_int_equal(rks_pieces_doubts(writer), 1);
    assert_int_equal(rks_pieces_get(writer, 3), RKS_PIECE_HERE);
    rks_pieces_close(writer);
    rks_pieces_close(reader);
}

static rks_status end_as(void *status, rks_error *why)
{
    snprintf(why->text, sizeof(why->text), "not synced");
    return *(rks_status *)status;
}

static void marks_are_sealed_when_their_end_succeeds(void **state)
{
    (void)state;
    rks_status how = RKS_ERR_IO;
    rks_pieces *reader = NULL, *writer = open_marks(true, 7);
    assert_ok(follow(7, &reader), &err);
    assert_fails(RKS_ERR_IO, rks_pieces_end(writer, path, end_as, &how, &err));
    assert_false(rks_pieces_sealed(reader));
    assert_int_equal(access(path, F_OK), 0);
    how = RKS_OK;
    assert_ok(rks_pieces_end(writer, path, end_as, &how, &err), &err);
    assert_true(rks_pieces_sealed(reader));
    assert_int_not_equal(access(path, F_OK), 0);
    rks_pieces_close(writer);
    rks_pieces_close(reader);
}

static void an_opener_breaks_the_seal(void **state)
{
    (void)state;
    static const uint8_t seal[] = {0xff, 0xff, 0xff, 0xff};
    rks_pieces_close(open_marks(true, 7));
    int fd = open(path, O_RDWR); /* a process that was killed before it removed the file */
    assert_int_equal(pwrite(fd, seal, sizeof(seal), 92), sizeof(seal));
    close(fd);
    rks_pieces *reader = NULL;
    assert_ok(follow(7, &reader), &err);
    assert_true(rks_pieces_sealed(reader));
    rks_pieces *writer = open_marks(false, 7);
    assert_false(rks_pieces_sealed(reader));
    rks_pieces_close(writer);
    rks_pieces_close(reader);
}

/* Tries to open the marks while `prepare` of another opener has the lock. */
static rks_status try_within(void *user, uint64_t *file_size, bool *fresh, rks_error *why)
{
    rks_pieces *pieces = NULL;
    const rks_pieces_wish wish = {path, {7, 1}, prepare, fresh};
    *fresh = true;
    *(rks_status *)user = rks_pieces_open(&wish, &pieces, why);
    *file_size = FILE_SIZE;
    return RKS_OK;
}

static void who_waits_for_the_lock_says_so_and_gives_up(void **state)
{
    (void)state;
    char holder[64], log[FOLDER_PATH + 32], line[512] = "";
    rks_pieces *pieces = NULL;
    rks_status within = RKS_OK;
    const rks_pieces_wish wish = {path, {7, 1}, try_within, &within};
    snprintf(log, sizeof(log), "%s/log", root);
    int kept = dup(2), fd = open(log, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(kept >= 0 && fd >= 0 && dup2(fd, 2) == 2);
    rks_pieces_limit_wait(1, 20);
    rks_status status = rks_pieces_open(&wish, &pieces, &err);
    rks_pieces_limit_wait(0, 0);
    dup2(kept, 2);
    close(kept);
    assert_true(pread(fd, line, sizeof(line) - 1, 0) > 0);
    close(fd);
    unlink(log);
    assert_ok(status, &err);
    assert_int_equal(within, RKS_ERR_TIMEOUT);
    snprintf(holder, sizeof(holder), "process %ld of this node", (long)getpid());
    assert_contains(err.text, path);
    assert_contains(err.text, holder);
    assert_contains(line, path);
    assert_contains(line, holder);
    rks_pieces_close(pieces);
}

static void a_reader_believes_no_other_marks(void **state)
{
    (void)state;
    rks_pieces *reader = NULL;
    rks_pieces_close(open_marks(true, 7));
    assert_fails(RKS_ERR_NOT_FOUND, follow(8, &reader));
    rks_pieces_pretend_boot("b");
    assert_fails(RKS_ERR_NOT_FOUND, follow(7, &reader));
    rks_pieces_pretend_boot("");
    assert_fails(RKS_ERR_NOT_FOUND, follow(7, &reader));
    rks_pieces_pretend_boot(NULL);
    assert_int_equal(truncate(path, 96 + PIECES - 1), 0);
    assert_fails(RKS_ERR_NOT_FOUND, follow(7, &reader));
    assert_int_equal(truncate(path, 10), 0);
    assert_fails(RKS_ERR_NOT_FOUND, follow(7, &reader));
    unlink(path);
    assert_int_equal(mkfifo(path, 0644), 0);
    assert_fails(RKS_ERR_NOT_FOUND, follow(7, &reader));
    assert_null(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(marks_stay_and_are_shared, remove_marks),
        cmocka_unit_test_teardown(another_boot_claims_what_was_here, remove_marks),
        cmocka_unit_test_teardown(a_fresh_file_has_nothing, remove_marks),
        cmocka_unit_test_teardown(damaged_marks_are_claims, remove_marks),
        cmocka_unit_test_teardown(a_failure_to_prepare_is_passed_on, remove_marks),
        cmocka_unit_test_teardown(a_reader_follows_the_marks_of_this_boot, remove_marks),
        cmocka_unit_test_teardown(a_reader_believes_no_other_marks, remove_marks),
        cmocka_unit_test_teardown(a_doubt_turns_what_is_here_into_claims, remove_marks),
        cmocka_unit_test_teardown(marks_are_sealed_when_their_end_succeeds, remove_marks),
        cmocka_unit_test_teardown(an_opener_breaks_the_seal, remove_marks),
        cmocka_unit_test_teardown(who_waits_for_the_lock_says_so_and_gives_up, remove_marks),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
