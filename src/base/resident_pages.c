/* SPDX-License-Identifier: Apache-2.0
 *
 * resident_pages.c: keeps a byte of state a granule, and uses mincore(), RWF_NOWAIT and
 * MADV_WILLNEED. */
#include "base/resident_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/forbidden_call.h"
#include "base/memory.h"

enum {
    UNKNOWN = 0,
    LOOK_AGAIN = 64, /* how many reads of an incomplete granule until it is checked again */
    WHOLE = 255,
    STREAM_FIRST = 128 << 10, /* how much is read ahead of bytes that are read in order */
    STREAM_MOST = 8 << 20,
    STREAM_GAP = 64 << 10,
    GRANULE_PAGES = RKS_RESIDENT_GRANULE / 4096,
    LOOK_AT_ONCE = 64 << 10, /* bytes that one call reads to see whether they are in memory */
    NOBODY = 65534,          /* the owner shown for users that a user namespace does not map */
};

struct rks_resident {
    const rks_guarded_map *map;
    const char *path;
    const char *other_path; /* NULL: it has one name */
    dev_t device;           /* to recognise the file when it is opened again */
    ino_t number;
    atomic_bool forbidden; /* mincore is */
    uid_t user;            /* the user to whom mincore tells the truth; (uid_t)-1 for nobody */
    size_t page, granules;
    atomic_size_t scanned;                                    /* granules [0, scanned) were whole */
    atomic_uint_least64_t stream_at, stream_end, stream_room; /* see rks_resident_follow */
    _Atomic uint8_t *empty;  /* one a granule: no page of it was in memory at the first check */
    _Atomic uint8_t state[]; /* one a granule: UNKNOWN, WHOLE, or reads left until the next check */
};

static bool may_ask(const struct stat *info, uid_t user, const char *path)
{
    if (info->st_uid == user && info->st_uid != NOBODY)
        return true;
    return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
}

bool rks_resident_may_ask(int fd, const char *path)
{
    struct stat info;
    return fstat(fd, &info) == 0 && may_ask(&info, geteuid(), path);
}

rks_status rks_resident_open(int fd, const char *path, const rks_guarded_map *map,
                             rks_resident **resident, rks_error *err)
{
    struct stat info;
    size_t granules = (size_t)((map->size + RKS_RESIDENT_GRANULE - 1) / RKS_RESIDENT_GRANULE);
    rks_resident *made = rks_alloc(1, sizeof(*made) + 2 * granules, err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->map = map;
    made->path = path;
    made->granules = granules;
    made->empty = made->state + granules;
    made->page = (size_t)sysconf(_SC_PAGESIZE);
    made->user = (uid_t)-1;
    if (fstat(fd, &info) == 0) {
        uid_t user = geteuid();
        made->user = may_ask(&info, user, path) ? user : (uid_t)-1;
        made->device = info.st_dev;
        made->number = info.st_ino;
    }
    *resident = made;
    return RKS_OK;
}

void rks_resident_close(rks_resident *resident)
{
    rks_free(resident);
}

/* Finds the whole pages under [first, end) of the map; false if there are none. */
static bool pages_of(const rks_resident *resident, uint64_t first, uint64_t end, uint8_t **at,
                     size_t *size)
{
    if (end > resident->map->size)
        end = resident->map->size;
    if (first >= end)
        return false;
    first -= first % resident->page;
    *at = (uint8_t *)(uintptr_t)resident->map->bytes + first;
    *size = (size_t)(end - first);
    return true;
}

void rks_resident_expect_random(const rks_resident *resident, uint64_t first, uint64_t end,
                                bool random)
{
    uint8_t *at = NULL;
    size_t size = 0;
    if (pages_of(resident, first, end, &at, &size))
        madvise(at, size, random ? MADV_RANDOM : MADV_NORMAL);
}

/* ---- looking ------------------------------------------------------------------------------ */

void rks_resident_also(rks_resident *resident, const char *path)
{
    resident->other_path = path;
}

static int open_named(const rks_resident *resident, const char *path)
{
    struct stat info;
    if (path == NULL || stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_dev == resident->device &&
        info.st_ino == resident->number)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

int rks_resident_open_again(const rks_resident *resident)
{
    int fd = open_named(resident, resident->path);
    return fd >= 0 ? fd : open_named(resident, resident->other_path);
}

/* Returns false if mincore() says nothing: a container's filter may forbid it. */
static bool ask_mincore(rks_resident *resident, uint8_t *at, size_t size, unsigned char *there)
{
    if (mincore(at, size, there) == 0)
        return true;
    if (rks_call_is_forbidden(errno))
        atomic_store_explicit(&resident->forbidden, true, memory_order_relaxed);
    return false;
}

static bool may_ask_now(const rks_resident *resident)
{
    return resident->user == geteuid() &&
           !atomic_load_explicit(&resident->forbidden, memory_order_relaxed);
}

static bool seen_by_mincore(rks_resident *resident, uint8_t *at, size_t size, bool *empty)
{
    unsigned char there[GRANULE_PAGES];
    size_t pages = (size + resident->page - 1) / resident->page, found = 0;
    if (pages > GRANULE_PAGES || !ask_mincore(resident, at, size, there))
        return false;
    for (size_t i = 0; i < pages; i++)
        found += there[i] & 1;
    *empty = found == 0;
    return found == pages;
}

/* Returns the blocks that this thread has read from disks. Any user may read this figure, unlike
 * those of /proc. */
static long blocks_read(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_inblock : 0;
}

/* Reads all pages into one buffer, and stops at the first page that is missing. The system may
 * start to read all that a call asked for, so each call asks for little. If missing pages arrive
 * before the call returns, the count of blocks read shows it. */
static bool seen_by_reading(const rks_resident *resident, uint64_t first, size_t size)
{
    uint8_t page[4096];
    struct iovec into[LOOK_AT_ONCE / sizeof(page)];
    int fd = rks_resident_open_again(resident);
    bool there = fd >= 0;
    long before = blocks_read();
    if (there)
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    for (size_t done = 0, many; there && done < size; done += many) {
        int parts = 0;
        many = size - done < LOOK_AT_ONCE ? size - done : LOOK_AT_ONCE;
        for (size_t at = 0; at < many; at += sizeof(page))
            into[parts++] =
                (struct iovec){page, many - at < sizeof(page) ? many - at : sizeof(page)};
        there = preadv2(fd, into, parts, (off_t)(first + done), RWF_NOWAIT) == (ssize_t)many &&
                blocks_read() == before;
    }
    if (fd >= 0)
        close(fd);
    return there;
}

static bool look_at_granule(rks_resident *resident, size_t granule)
{
    uint8_t *at = NULL;
    size_t size = 0;
    uint64_t first = (uint64_t)granule * RKS_RESIDENT_GRANULE;
    bool empty = false, whole = false;
    bool there = pages_of(resident, first, first + RKS_RESIDENT_GRANULE, &at, &size);
    if (there && may_ask_now(resident))
        whole = seen_by_mincore(resident, at, size, &empty);
    if (there && !may_ask_now(resident))
        whole = seen_by_reading(resident, first, size);
    if (atomic_load_explicit(&resident->state[granule], memory_order_relaxed) == UNKNOWN)
        atomic_store_explicit(&resident->empty[granule], empty, memory_order_relaxed);
    atomic_store_explicit(&resident->state[granule], whole ? WHOLE : LOOK_AGAIN,
                          memory_order_relaxed);
    return whole;
}

static bool granule_is_whole(rks_resident *resident, size_t granule)
{
    uint8_t state = atomic_load_explicit(&resident->state[granule], memory_order_relaxed);
    if (state == WHOLE)
        return true;
    if (state <= 1)
        return look_at_granule(resident, granule);
    atomic_store_explicit(&resident->state[granule], (uint8_t)(state - 1), memory_order_relaxed);
    return false;
}

bool rks_resident_has(rks_resident *resident, uint64_t first, uint64_t end)
{
    if (end > resident->map->size)
        end = resident->map->size;
    for (; first < end; first = (first / RKS_RESIDENT_GRANULE + 1) * RKS_RESIDENT_GRANULE)
        if (!granule_is_whole(resident, (size_t)(first / RKS_RESIDENT_GRANULE)))
            return false;
    return true;
}

bool rks_resident_now(rks_resident *resident, uint64_t first, uint64_t end)
{
    enum { AT_ONCE = 128 << 10 };
    unsigned char there[AT_ONCE / 4096];
    uint8_t *at = NULL;
    size_t size = 0;
    if (!pages_of(resident, first, end, &at, &size))
        return true;
    if (!may_ask_now(resident))
        return false;
    for (size_t done = 0; done < size; done += AT_ONCE) {
        size_t many = size - done < AT_ONCE ? size - done : AT_ONCE;
        if (!ask_mincore(resident, at + done, many, there))
            return false;
        for (size_t i = 0; i < (many + resident->page - 1) / resident->page; i++)
            if ((there[i] & 1) == 0)
                return false;
    }
    return true;
}

rks_resident_state rks_resident_scan(rks_resident *resident, size_t *budget)
{
    size_t granule = atomic_load_explicit(&resident->scanned, memory_order_relaxed);
    rks_resident_state found = RKS_RESIDENT_ALL;
    for (; found == RKS_RESIDENT_ALL && granule < resident->granules; granule++) {
        uint8_t state = atomic_load_explicit(&resident->state[granule], memory_order_relaxed);
        if (state == WHOLE)
            continue;
        if (*budget == 0)
            found = RKS_RESIDENT_UNKNOWN;
        else if (--*budget, !look_at_granule(resident, granule))
            found = RKS_RESIDENT_SOME;
        if (found != RKS_RESIDENT_ALL)
            break;
    }
    atomic_store_explicit(&resident->scanned, granule, memory_order_relaxed);
    return found;
}

void rks_resident_forget(rks_resident *resident, uint64_t first, uint64_t end)
{
    if (end > resident->map->size)
        end = resident->map->size;
    if (first >= end)
        return;
    size_t from = (size_t)(first / RKS_RESIDENT_GRANULE);
    size_t to = (size_t)((end - 1) / RKS_RESIDENT_GRANULE);
    for (size_t granule = from; granule <= to; granule++)
        if (atomic_load_explicit(&resident->state[granule], memory_order_relaxed) == WHOLE)
            atomic_store_explicit(&resident->state[granule], UNKNOWN, memory_order_relaxed);
    if (atomic_load_explicit(&resident->scanned, memory_order_relaxed) > from)
        atomic_store_explicit(&resident->scanned, from, memory_order_relaxed);
}

bool rks_resident_bytes(rks_resident *resident, uint64_t *bytes)
{
    unsigned char there[GRANULE_PAGES];
    uint64_t sum = 0;
    if (!may_ask_now(resident))
        return false;
    for (size_t granule = 0; granule < resident->granules; granule++) {
        uint8_t *at = NULL;
        size_t size = 0;
        uint64_t first = (uint64_t)granule * RKS_RESIDENT_GRANULE;
        if (!pages_of(resident, first, first + RKS_RESIDENT_GRANULE, &at, &size) ||
            !ask_mincore(resident, at, size, there))
            return false;
        for (size_t done = 0; done < size; done += resident->page)
            sum += (there[done / resident->page] & 1) * resident->page;
    }
    *bytes = sum < resident->map->size ? sum : resident->map->size;
    return true;
}

void rks_resident_drop(rks_resident *resident)
{
    int fd = rks_resident_open_again(resident);
    /* Unmap them here first: pages in this process's own tables would stay. */
    madvise((void *)(uintptr_t)resident->map->bytes, resident->map->size, MADV_DONTNEED);
    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    rks_resident_forget(resident, 0, UINT64_MAX);
}

/* ---- asking ------------------------------------------------------------------------------- */

void rks_resident_ask(const rks_resident *resident, uint64_t first, uint64_t end)
{
    uint8_t *at = NULL;
    size_t size = 0;
    if (pages_of(resident, first, end, &at, &size))
        madvise(at, size, MADV_WILLNEED);
}

/* Uses sendfile() to /dev/null, which reads without a copy. */
bool rks_resident_stream_to(rks_resident_stream *stream, const rks_resident *resident,
                            uint64_t first, uint64_t end, const atomic_bool *stop)
{
    off_t at = (off_t)(first - first % resident->page);
    if (stream->resident != resident) {
        rks_resident_stream_end(stream);
        *stream = (rks_resident_stream){resident, rks_resident_open_again(resident),
                                        open("/dev/null", O_WRONLY | O_CLOEXEC)};
    }
    if (end > resident->map->size)
        end = resident->map->size;
    if (stream->fd < 0 || stream->sink < 0)
        return false;
    while ((uint64_t)at < end && (stop == NULL || !atomic_load(stop))) {
        size_t left = (size_t)(end - (uint64_t)at);
        ssize_t got = sendfile(stream->sink, stream->fd, &at,
                               left < RKS_RESIDENT_GRANULE ? left : RKS_RESIDENT_GRANULE);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
    }
    return true;
}

void rks_resident_stream_end(rks_resident_stream *stream)
{
    if (stream->resident != NULL && stream->fd >= 0)
        close(stream->fd);
    if (stream->resident != NULL && stream->sink >= 0)
        close(stream->sink);
    *stream = (rks_resident_stream){0};
}

/* Checks granules before pages are requested: those in memory now were there already. */
static void look_before(rks_resident *resident, uint64_t first, uint64_t end)
{
    for (uint64_t granule = first / RKS_RESIDENT_GRANULE;
         granule < resident->granules && granule * RKS_RESIDENT_GRANULE < end; granule++)
        if (atomic_load_explicit(&resident->state[granule], memory_order_relaxed) == UNKNOWN)
            (void)look_at_granule(resident, (size_t)granule);
}

void rks_resident_leave(rks_resident *resident, uint64_t first, uint64_t end)
{
    int fd = -1;
    uint64_t granule = (first + RKS_RESIDENT_GRANULE - 1) / RKS_RESIDENT_GRANULE;
    for (; granule < resident->granules; granule++) {
        const uint64_t at = granule * RKS_RESIDENT_GRANULE, left = resident->map->size - at;
        /* The last one ends with the file: behind it lies somebody else's memory. */
        const size_t size = left < RKS_RESIDENT_GRANULE ? (size_t)left : RKS_RESIDENT_GRANULE;
        if (at + size > end)
            break;
        if (!atomic_exchange_explicit(&resident->empty[granule], 0, memory_order_relaxed))
            continue;
        if (fd < 0)
            fd = rks_resident_open_again(resident);
        if (fd < 0)
            return;
        madvise((void *)(uintptr_t)(resident->map->bytes + at), size, MADV_DONTNEED);
        posix_fadvise(fd, (off_t)at, (off_t)size, POSIX_FADV_DONTNEED);
        atomic_store_explicit(&resident->state[granule], UNKNOWN, memory_order_relaxed);
    }
    if (fd >= 0)
        close(fd);
}

/* If several readers share a shard, they disturb each other's streams; then only what they read is
 * requested. */
uint64_t rks_resident_follow(rks_resident *resident, uint64_t first, uint64_t end)
{
    uint64_t at = atomic_exchange_explicit(&resident->stream_at, end, memory_order_relaxed);
    uint64_t asked = atomic_load_explicit(&resident->stream_end, memory_order_relaxed);
    uint64_t room = atomic_load_explicit(&resident->stream_room, memory_order_relaxed);
    bool follows = first + STREAM_GAP >= at && first <= at + STREAM_GAP;
    if (!follows) {
        atomic_store_explicit(&resident->stream_room, 0, memory_order_relaxed);
        atomic_store_explicit(&resident->stream_end, end, memory_order_relaxed);
        rks_resident_ask(resident, first, end);
        return end - first;
    }
    if (end + room / 2 <= asked)
        return 0;
    room = room == 0 ? STREAM_FIRST : room >= STREAM_MOST / 2 ? STREAM_MOST : room * 2;
    atomic_store_explicit(&resident->stream_room, room, memory_order_relaxed);
    atomic_store_explicit(&resident->stream_end, end + room, memory_order_relaxed);
    if (asked > first && asked < end + room)
        first = asked;
    look_before(resident, first, end + room);
    rks_resident_ask(resident, first, end + room);
    return end + room - first;
}

bool rks_disk_bytes_of_thread(uint64_t *bytes)
{
    char text[512];
    static const char name[] = "\nread_bytes: ";
    int fd = open("/proc/thread-self/io", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t size = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (size <= 0)
        return false;
    text[size] = '\0';
    const char *at = strstr(text, name);
    unsigned long long value = 0;
    if (at == NULL || sscanf(at + sizeof(name) - 1, "%llu", &value) != 1)
        return false;
    *bytes = value;
    return true;
}
