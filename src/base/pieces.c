/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces.c: the file of marks, little-endian:
 *
 *    0   8  magic "RKSPIECE"
 *    8   4  version, 1
 *   12   4  0
 *   16  16  which bytes arrive: a digest that names them
 *   32   8  their size
 *   40  40  the boot in which the marks were made, as text, with zeros after it
 *   80   8  XXH3-64 of bytes 0 to 79
 *   88   4  how many doubts there were: failed syncs of the file
 *   92   4  the pid of the process that had the lock last, 0: not known; 2^32 - 1: sealed
 *   96   n  a byte for each MiB: 0 missing, 1 claimed, 2 here */
#include "base/pieces.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/boot_id.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_room.h"
#include "base/log.h"
#include "base/memory.h"

enum { HEADER = 96, BOOT = RKS_BOOT_ID, CHECKED = 80, DOUBTS = 88, HOLDER = 92, VERSION = 1 };
enum { LOCK_WAIT_MS = 10, TELL_MS = 15000, LIMIT_MS = 900000 };
#define SEALED UINT32_MAX

struct rks_pieces {
    atomic_int owners;
    uint8_t *map; /* of the whole file */
    uint64_t map_size;
    uint64_t count;
    uint64_t file_size;
    _Atomic uint8_t *states;
};

/* ---- the header ------------------------------------------------------------------------------ */

static const char *pretended_boot; /* for tests */

void rks_pieces_pretend_boot(const char *boot)
{
    pretended_boot = boot;
}

/* Leaves the text empty if the system does not tell: no marks are then believed after this
 * process. */
static void read_boot(char boot[BOOT])
{
    memset(boot, 0, BOOT);
    if (pretended_boot != NULL)
        snprintf(boot, BOOT, "%s", pretended_boot);
    else
        (void)rks_boot_id(boot);
}

static void put_header(uint8_t *header, rks_digest what, uint64_t file_size, const char boot[BOOT])
{
    memset(header, 0, DOUBTS);
    memcpy(header, "RKSPIECE", 8);
    rks_store_u32(header + 8, VERSION);
    rks_store_u64(header + 16, what.low);
    rks_store_u64(header + 24, what.high);
    rks_store_u64(header + 32, file_size);
    memcpy(header + 40, boot, BOOT);
    rks_store_u64(header + CHECKED, rks_checksum64(header, CHECKED));
}

/* Returns true if it is the header of marks of these bytes, of whatever boot. */
static bool is_header(const uint8_t *header, rks_digest what, uint64_t file_size)
{
    uint8_t expected[HEADER];
    put_header(expected, what, file_size, (const char *)header + 40);
    return memcmp(header, expected, DOUBTS) == 0;
}

static _Atomic uint32_t *word_at(const rks_pieces *pieces, size_t offset)
{
    return (_Atomic uint32_t *)(void *)(pieces->map + offset);
}

static uint64_t pieces_in(uint64_t file_size)
{
    return file_size / RKS_PIECE + (file_size % RKS_PIECE != 0);
}

/* ---- opening --------------------------------------------------------------------------------- */

static uint32_t tell_after_ms = TELL_MS, limit_wait_ms = LIMIT_MS; /* others in tests */

void rks_pieces_limit_wait(uint32_t tell_ms, uint32_t limit_ms)
{
    tell_after_ms = tell_ms == 0 ? TELL_MS : tell_ms;
    limit_wait_ms = limit_ms == 0 ? LIMIT_MS : limit_ms;
}

/* Writes who has the lock. The number is that of its own pid namespace. */
static const char *name_holder(int fd, char text[32])
{
    uint8_t word[4] = {0};
    const bool read = pread(fd, word, sizeof(word), HOLDER) == (ssize_t)sizeof(word);
    const uint32_t pid = read ? rks_load_u32(word) : 0;
    if (pid == 0 || pid == SEALED)
        snprintf(text, 32, "another process");
    else
        snprintf(text, 32, "process %" PRIu32, pid);
    return text;
}

/* Waits for the lock: others hold it while they prepare the file, for which they may have to wait
 * for home, or end it. */
static rks_status lock_marks(int fd, const char *path, rks_error *err)
{
    char holder[32];
    const uint64_t begun = rks_now_ms();
    bool told = false;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return rks_fail_errno(err, errno, "%s: locking it", path);
        rks_status status = rks_check_interrupt(err);
        if (status != RKS_OK)
            return status;
        const uint64_t waited = rks_now_ms() - begun;
        if (!told && waited >= tell_after_ms)
            rks_log("waits for the lock of %s, which %s of this node has", path,
                    name_holder(fd, holder));
        told = told || waited >= tell_after_ms;
        if (waited >= limit_wait_ms)
            return rks_fail(err, RKS_ERR_TIMEOUT, 0,
                            "%s: waited %" PRIu64 " s for the lock, which %s of this node has; if "
                            "that process hangs, end it, then run again",
                            path, waited / 1000, name_holder(fd, holder));
        usleep(LOCK_WAIT_MS * 1000);
    }
    /* For those who wait. If it cannot be written, the holder is not known. */
    uint8_t word[4];
    rks_store_u32(word, (uint32_t)getpid());
    (void)!pwrite(fd, word, sizeof(word), HOLDER);
    return RKS_OK;
}

/* Opens the file that has the name now, locked. It may have been removed while the lock came: by
 * the one who finished the arrival. Without O_CREAT in `create` *opened may stay -1. */
static rks_status open_locked(const char *path, int create, int *opened, rks_error *err)
{
    for (;;) {
        struct stat here, named;
        int fd = open(path, O_RDWR | create | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
        if (fd < 0 && errno == ENOENT && create == 0)
            return RKS_OK;
        if (fd < 0)
            return rks_fail_errno(err, errno, "%s: opening it", path);
        rks_status status = lock_marks(fd, path, err);
        if (status == RKS_OK && fstat(fd, &here) != 0)
            status = rks_fail_errno(err, errno, "%s", path);
        if (status == RKS_OK && !S_ISREG(here.st_mode))
            status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: not a regular file", path);
        if (status != RKS_OK) {
            close(fd);
            return status;
        }
        if (stat(path, &named) == 0 && named.st_ino == here.st_ino && named.st_dev == here.st_dev) {
            *opened = fd;
            return RKS_OK;
        }
        close(fd);
    }
}

static void unlock(int fd)
{
    if (fd < 0)
        return;
    flock(fd, LOCK_UN); /* a map of the file would keep the lock */
    close(fd);
}

/* Gives the file its size and room: a write to a map of a full disk would be a SIGBUS. */
static rks_status give_size(int fd, const char *path, uint64_t size, rks_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return rks_fail_errno(err, errno, "%s", path);
    if ((uint64_t)info.st_size != size && ftruncate(fd, 0) != 0)
        return rks_fail_errno(err, errno, "%s: cutting it", path);
    int error = rks_file_take_room(fd, 0, size);
    return error == 0 ? RKS_OK : rks_fail_write(err, error, path, size);
}

static rks_status map_marks(int fd, const rks_pieces_wish *wish, rks_pieces *pieces, rks_error *err)
{
    pieces->count = pieces_in(pieces->file_size);
    pieces->map_size = HEADER + pieces->count;
    rks_status status = give_size(fd, wish->path, pieces->map_size, err);
    if (status != RKS_OK)
        return status;
    void *map = mmap(NULL, (size_t)pieces->map_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return rks_fail_errno(err, errno, "%s: mapping it", wish->path);
    pieces->map = map;
    pieces->states = (_Atomic uint8_t *)(pieces->map + HEADER);
    return RKS_OK;
}

/* Marks first, the header last: a crash between them leaves another boot's header, and the marks
 * are claimed again. */
static void settle_marks(rks_pieces *pieces, const rks_pieces_wish *wish, bool fresh)
{
    char boot[BOOT];
    read_boot(boot);
    bool ours = is_header(pieces->map, wish->what, pieces->file_size);
    bool same_boot = ours && boot[0] != '\0' && memcmp(pieces->map + 40, boot, BOOT) == 0;
    if (fresh || !same_boot) {
        for (uint64_t i = 0; i < pieces->count; i++) {
            uint8_t was = atomic_load(&pieces->states[i]);
            bool lies = !fresh && (!ours || was != RKS_PIECE_MISSING);
            atomic_store(&pieces->states[i], lies ? RKS_PIECE_CLAIMED : RKS_PIECE_MISSING);
        }
        put_header(pieces->map, wish->what, pieces->file_size, boot);
    }
}

/* Removes a file of marks that nobody has used. Others may use one that has marks. */
static void remove_unused(int fd, const char *path)
{
    struct stat info;
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size <= HEADER)
        unlink(path);
}

rks_status rks_pieces_open(const rks_pieces_wish *wish, rks_pieces **pieces, rks_error *err)
{
    int fd = -1;
    bool fresh = false;
    rks_pieces *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    atomic_init(&made->owners, 1);
    rks_status status = open_locked(wish->path, O_CREAT, &fd, err);
    if (status == RKS_OK)
        status = wish->prepare(wish->user, &made->file_size, &fresh, err);
    if (status == RKS_OK)
        status = map_marks(fd, wish, made, err);
    if (status == RKS_OK)
        settle_marks(made, wish, fresh);
    else
        remove_unused(fd, wish->path);
    unlock(fd);
    if (status != RKS_OK) {
        rks_pieces_close(made);
        return status;
    }
    *pieces = made;
    return RKS_OK;
}

/* The header says that this boot has made the marks: then they are true. */
static bool is_current(const rks_pieces *pieces, rks_digest what)
{
    char boot[BOOT];
    read_boot(boot);
    return pieces->map_size == HEADER + pieces_in(pieces->file_size) && boot[0] != '\0' &&
           is_header(pieces->map, what, pieces->file_size) &&
           memcmp(pieces->map + 40, boot, BOOT) == 0;
}

static rks_status map_to_read(int fd, const char *path, rks_digest what, rks_pieces *pieces,
                              rks_error *err)
{
    struct stat info;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > HEADER) {
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            return rks_fail_errno(err, errno, "%s: mapping it", path);
        pieces->map = map;
        pieces->map_size = (uint64_t)info.st_size;
        pieces->file_size = rks_load_u64(pieces->map + 32);
        pieces->count = pieces->map_size - HEADER;
        pieces->states = (_Atomic uint8_t *)(pieces->map + HEADER);
    }
    if (pieces->map == NULL || !is_current(pieces, what))
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0, "%s: no marks of this shard", path);
    return RKS_OK;
}

rks_status rks_pieces_follow(const char *path, rks_digest what, rks_pieces **pieces, rks_error *err)
{
    rks_pieces *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    atomic_init(&made->owners, 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    rks_status status = map_to_read(fd, path, what, made, err);
    if (fd >= 0)
        close(fd);
    if (status != RKS_OK) {
        rks_pieces_close(made);
        return status;
    }
    *pieces = made;
    return RKS_OK;
}

rks_status rks_pieces_end(rks_pieces *pieces, const char *path, rks_pieces_end_fn end, void *user,
                          rks_error *err)
{
    int fd = -1;
    rks_status status = open_locked(path, 0, &fd, err);
    if (status != RKS_OK || fd < 0)
        return status;
    status = end(user, err);
    if (status == RKS_OK) {
        atomic_store_explicit(word_at(pieces, HOLDER), SEALED, memory_order_release);
        unlink(path);
    }
    unlock(fd);
    return status;
}

rks_pieces *rks_pieces_hold(rks_pieces *pieces)
{
    atomic_fetch_add(&pieces->owners, 1);
    return pieces;
}

void rks_pieces_close(rks_pieces *pieces)
{
    if (pieces == NULL || atomic_fetch_sub(&pieces->owners, 1) != 1)
        return;
    if (pieces->map != NULL)
        munmap(pieces->map, (size_t)pieces->map_size);
    rks_free(pieces);
}

/* ---- marks ----------------------------------------------------------------------------------- */

uint64_t rks_pieces_count(const rks_pieces *pieces)
{
    return pieces->count;
}

/* A byte that no writer stores is a damaged mark. */
static enum rks_piece_state state_of(uint8_t mark)
{
    return mark == RKS_PIECE_MISSING || mark == RKS_PIECE_HERE ? (enum rks_piece_state)mark
                                                               : RKS_PIECE_CLAIMED;
}

enum rks_piece_state rks_pieces_get(const rks_pieces *pieces, uint64_t piece)
{
    return state_of(atomic_load_explicit(&pieces->states[piece], memory_order_acquire));
}

void rks_pieces_set(rks_pieces *pieces, uint64_t piece, enum rks_piece_state state)
{
    atomic_store_explicit(&pieces->states[piece], (uint8_t)state, memory_order_release);
}

uint32_t rks_pieces_doubts(const rks_pieces *pieces)
{
    return atomic_load_explicit(word_at(pieces, DOUBTS), memory_order_acquire);
}

bool rks_pieces_sealed(const rks_pieces *pieces)
{
    return atomic_load_explicit(word_at(pieces, HOLDER), memory_order_acquire) == SEALED;
}

/* The count may change between the look and the mark: then one of both takes the mark back. */
void rks_pieces_mark(rks_pieces *pieces, uint64_t piece, uint32_t doubts)
{
    const bool doubted = rks_pieces_doubts(pieces) != doubts;
    atomic_store(&pieces->states[piece], doubted ? RKS_PIECE_CLAIMED : RKS_PIECE_HERE);
    if (!doubted && atomic_load(word_at(pieces, DOUBTS)) != doubts)
        atomic_store(&pieces->states[piece], RKS_PIECE_CLAIMED);
}

void rks_pieces_doubt(rks_pieces *pieces)
{
    atomic_fetch_add(word_at(pieces, DOUBTS), 1);
    for (uint64_t i = 0; i < pieces->count; i++) {
        uint8_t here = RKS_PIECE_HERE;
        atomic_compare_exchange_strong(&pieces->states[i], &here, RKS_PIECE_CLAIMED);
    }
}

bool rks_pieces_have(const rks_pieces *pieces, uint64_t first, uint64_t end)
{
    for (uint64_t i = first / RKS_PIECE; i < pieces_in(end); i++)
        if (i >= pieces->count || rks_pieces_get(pieces, i) != RKS_PIECE_HERE)
            return false;
    return true;
}

/* Others may set marks meanwhile. */
static uint64_t count_bytes(const uint8_t *marks, uint64_t file_size)
{
    const _Atomic uint8_t *shared = (const _Atomic uint8_t *)marks;
    uint64_t bytes = 0, count = pieces_in(file_size);
    for (uint64_t i = 0; i < count; i++)
        if (atomic_load_explicit(&shared[i], memory_order_relaxed) != RKS_PIECE_MISSING)
            bytes += i + 1 < count ? RKS_PIECE : file_size - i * RKS_PIECE;
    return bytes;
}

uint64_t rks_pieces_bytes(const rks_pieces *pieces)
{
    return count_bytes(pieces->map + HEADER, pieces->file_size);
}

uint64_t rks_pieces_look(const char *path, rks_digest what, uint64_t file_size)
{
    char *bytes = NULL;
    size_t size = 0;
    uint64_t found = 0, wanted = HEADER + pieces_in(file_size);
    if (rks_file_load(path, (size_t)wanted, &bytes, &size, NULL) != RKS_OK)
        return 0;
    if (size == wanted && is_header((const uint8_t *)bytes, what, file_size))
        found = count_bytes((const uint8_t *)bytes + HEADER, file_size);
    rks_free(bytes);
    return found;
}
