/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_local_copy.c: any bytes as the small files of a local copy. The first byte says which, and
 * how: home.json; or NAME.pieces as it is, or with a right header before these bytes as its words
 * and marks, of this boot or of another, with a fresh file or not. */
#include "fuzz.h"

#include <fcntl.h>

#include "base/bytes.h"
#include "base/pieces.h"
#include "dataset/home_file.h"
#include "home/address.h"

enum { HOME = 1, RIGHT = 2, OTHER_BOOT = 4, FRESH = 8 };
enum { PIECES = 5, HEADER = 96, WORDS = 88 };
#define FILE_SIZE (UINT64_C(4) * RKS_PIECE + 100)

static const rks_digest what = {7, 1};

static void read_home(const uint8_t *text, size_t size)
{
    rks_error err;
    char *home = NULL;
    rks_home_address address;
    if (rks_home_file_decode((const char *)text, size, "home.json", &home, &err) == RKS_OK) {
        FUZZ_CHECK(home != NULL && strlen(home) <= size);
        if (rks_home_is_url(home))
            (void)rks_home_address_of(home, &address, &err);
    }
    rks_free(home);
}

static rks_status prepare(void *flags, uint64_t *file_size, bool *fresh, rks_error *unused)
{
    (void)unused;
    *file_size = FILE_SIZE;
    *fresh = (*(uint8_t *)flags & FRESH) != 0;
    return RKS_OK;
}

static rks_pieces *open_marks(const char *path, uint8_t *flags)
{
    rks_error err;
    rks_pieces *pieces = NULL;
    const rks_pieces_wish wish = {path, what, prepare, flags};
    FUZZ_CHECK(rks_pieces_open(&wish, &pieces, &err) == RKS_OK);
    FUZZ_CHECK(rks_pieces_count(pieces) == PIECES && !rks_pieces_sealed(pieces));
    return pieces;
}

/* Writes the file; returns its path. */
static const char *write_marks(uint8_t flags, const uint8_t *bytes, size_t size)
{
    static char path[64];
    snprintf(path, sizeof(path), "/dev/shm/rankstore-fuzz-%ld.pieces", (long)getpid());
    unlink(path);
    if ((flags & RIGHT) != 0)
        rks_pieces_close(open_marks(path, &(uint8_t){FRESH}));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(pwrite(fd, bytes, size, (flags & RIGHT) != 0 ? WORDS : 0) == (ssize_t)size);
    close(fd);
    return path;
}

/* What a reader may believe: marks of this boot, of the right size. */
static void follow(const char *path)
{
    rks_error err;
    rks_pieces *pieces = NULL;
    const uint64_t said = rks_pieces_look(path, what, FILE_SIZE);
    FUZZ_CHECK(said <= FILE_SIZE);
    if (rks_pieces_follow(path, what, &pieces, &err) != RKS_OK)
        return;
    const uint64_t count = rks_pieces_count(pieces);
    for (uint64_t i = 0; i < count; i++) {
        const bool here = rks_pieces_get(pieces, i) == RKS_PIECE_HERE;
        FUZZ_CHECK(rks_pieces_have(pieces, i * RKS_PIECE, i * RKS_PIECE + 1) == here);
    }
    FUZZ_CHECK(!rks_pieces_have(pieces, 0, (count + 1) * RKS_PIECE));
    (void)rks_pieces_doubts(pieces);
    rks_pieces_close(pieces);
}

static void read_marks(uint8_t flags, const uint8_t *bytes, size_t size)
{
    rks_pieces_pretend_boot("one");
    const char *path = write_marks(flags, bytes, size);
    follow(path);
    rks_pieces_pretend_boot((flags & OTHER_BOOT) != 0 ? "two" : "one");
    rks_pieces *pieces = open_marks(path, &flags);
    for (uint64_t i = 0; i < PIECES; i++) {
        const enum rks_piece_state state = rks_pieces_get(pieces, i);
        FUZZ_CHECK((flags & FRESH) == 0 || state == RKS_PIECE_MISSING);
        FUZZ_CHECK((flags & OTHER_BOOT) == 0 || state != RKS_PIECE_HERE);
    }
    const uint32_t doubts = rks_pieces_doubts(pieces);
    rks_pieces_doubt(pieces);
    rks_pieces_mark(pieces, 0, doubts);
    rks_pieces_mark(pieces, 1, doubts + 1);
    FUZZ_CHECK(rks_pieces_get(pieces, 0) == RKS_PIECE_CLAIMED);
    FUZZ_CHECK(rks_pieces_have(pieces, RKS_PIECE, 2 * RKS_PIECE));
    FUZZ_CHECK(rks_pieces_bytes(pieces) <= FILE_SIZE);
    rks_pieces_close(pieces);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if ((data[0] & HOME) != 0)
        read_home(data + 1, size - 1);
    else
        read_marks(data[0], data + 1, size - 1);
    FUZZ_CHECK(rks_memory_in_use() == 0);
    return 0;
}
