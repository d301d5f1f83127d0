/* SPDX-License-Identifier: Apache-2.0
 *
 * guarded_map.c: the SIGBUS handler, and the registry of maps that it reads.
 *
 * The registry is a list of chunks of maps. Maps are taken and published with atomics alone, and
 * chunks are never freed. So the handler may walk it at any instant, in any thread, and it stays
 * usable in a child that was forked in the middle of an open.
 *
 * A map's entry is live while its generation is odd. The handler reads generation, bounds,
 * generation: a map that changes meanwhile cannot be the one that faulted, since nobody closes a
 * map that is being read.
 *
 * A page's mark is 0, BAD (zeros are there), ANEW (its file is being mapped), or the number of the
 * renewal that mapped it anew. Renewals of the whole process are counted; a thread notes the count
 * when it begins to read. So a reader that copied zeros still sees that it did: its count is below
 * the mark. The handler sets BAD before and after it maps zeros, and is counted meanwhile, so a
 * renewal at the same time leaves the page BAD or the reader sees the handler. */
#include "base/guarded_map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

enum { CHUNK_MAPS = 64 };

/* The kernel gives a process about 65,000 separate mappings, and each replaced page may cost two.
 * So a file with many bad pages loses larger stretches at a time. */
enum { SINGLE_PAGES = 1024, SINGLE_GRANULES = 8192, GRANULE_SIZE = 1 << 20 };
enum { GOOD = 0 };
static const uint32_t BAD = UINT32_MAX, ANEW = UINT32_MAX - 1;
/* Up to this many pages are faulted in one by one, without asking the kernel for all of them
 * first. */
enum { FEW_PAGES = 4 };

typedef struct chunk {
    rks_guarded_map maps[CHUNK_MAPS];
    atomic_bool full; /* all maps are taken */
    _Atomic(struct chunk *) next;
} chunk;

static chunk first_chunk;
static _Atomic size_t page_size;

static _Atomic uint32_t renewals;
static __thread uint32_t begun_at __attribute__((tls_model("initial-exec")));
static pthread_mutex_t anew_mutex = PTHREAD_MUTEX_INITIALIZER; /* one renewal at a time */

/* The handler that was there before ours. Two places, so that our handler always sees a whole
 * one. */
static struct sigaction previous[2];
static atomic_uint previous_at;

static pthread_mutex_t install_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static _Atomic int64_t looked_at; /* time slice of the last check */
enum { SLICES = 50 };             /* of a second */

/* The call of our handler that is calling the other handler in this thread. If the other one calls
 * us in turn, it does so with the same siginfo, or with a raised signal. */
typedef struct handing {
    const siginfo_t *info;
    uintptr_t frame;
} handing;
static __thread handing now_handing __attribute__((tls_model("initial-exec")));

/* ---- the handler: only what is safe in a signal ------------------------------------------- */

static rks_guarded_map *find_map(uintptr_t at)
{
    for (chunk *c = &first_chunk; c != NULL; c = atomic_load(&c->next)) {
        for (int i = 0; i < CHUNK_MAPS; i++) {
            rks_guarded_map *map = &c->maps[i];
            uint64_t generation = atomic_load(&map->generation);
            if ((generation & 1) == 0 || at < atomic_load(&map->begin) ||
                at >= atomic_load(&map->end))
                continue;
            if (atomic_load(&map->generation) == generation)
                return map;
        }
    }
    return NULL;
}

/* The bare system call: sanitizers and profilers wrap mmap(). */
static bool put_zeros(uintptr_t begin, uintptr_t end)
{
    return syscall(SYS_mmap, begin, end - begin, PROT_READ,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0L) != -1;
}

/* Returns the map's marks, made at its first fault; NULL if memory is short. */
static _Atomic uint32_t *marks_of(rks_guarded_map *map)
{
    _Atomic uint32_t *marks = atomic_load(&map->marks), *there = NULL;
    if (marks != NULL)
        return marks;
    long made = syscall(SYS_mmap, NULL, map->marks_size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
    if (made == -1)
        return NULL;
    marks = (_Atomic uint32_t *)made;
    if (atomic_compare_exchange_strong(&map->marks, &there, marks))
        return marks;
    syscall(SYS_munmap, made, map->marks_size); /* another thread's fault was first */
    return there;
}

static void mark_bad(_Atomic uint32_t *marks, size_t first, size_t end)
{
    for (size_t p = first; p < end; p++)
        atomic_store(&marks[p], BAD);
}

/* Sets the marks first: a reader who sees the zeros must see the mark. */
static bool replace_at(rks_guarded_map *map, uintptr_t at)
{
    size_t page = atomic_load(&page_size);
    uintptr_t begin = atomic_load(&map->begin);
    uintptr_t end = atomic_load(&map->end);
    _Atomic uint32_t *marks = marks_of(map);
    int64_t replaced = atomic_fetch_add(&map->replaced, 1);
    atomic_fetch_add(&map->faults, 1);
    if (marks != NULL && replaced < SINGLE_GRANULES) {
        size_t granule = replaced < SINGLE_PAGES ? page : GRANULE_SIZE;
        uintptr_t from = begin + (at - begin) / granule * granule;
        uintptr_t to = end - from < granule ? end : from + granule;
        size_t first = (from - begin) / page, last = (to - begin + page - 1) / page;
        mark_bad(marks, first, last);
        if (put_zeros(from, to)) {
            mark_bad(marks, first, last);
            return true;
        }
    }
    atomic_store(&map->lost, true);
    bool done = put_zeros(begin, end);
    atomic_store(&map->lost, true);
    return done;
}

static bool replace_pages(rks_guarded_map *map, uintptr_t at)
{
    atomic_fetch_add(&map->handling, 1);
    bool done = replace_at(map, at);
    atomic_fetch_sub(&map->handling, 1);
    return done;
}

static void default_action(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &action, NULL);
}

static void hand_on(int number, siginfo_t *info, void *context)
{
    struct sigaction *other = &previous[atomic_load(&previous_at)];
    bool raised = info->si_code <= 0;
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    bool again = now_handing.info != NULL && frame < now_handing.frame &&
                 (raised || info == now_handing.info);
    if (other->sa_handler == SIG_IGN && raised)
        return;
    if (again || other->sa_handler == SIG_DFL || other->sa_handler == SIG_IGN) {
        default_action();
        if (raised)
            raise(SIGBUS); /* a fault repeats by itself */
        return;
    }
    handing outer = now_handing;
    now_handing = (handing){info, frame};
    if (other->sa_flags & SA_SIGINFO)
        other->sa_sigaction(number, info, context);
    else
        other->sa_handler(number);
    now_handing = outer;
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    bool ours = false;
    if (info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR ||
        info->si_code == BUS_MCEERR_AR) {
        uintptr_t at = (uintptr_t)info->si_addr;
        rks_guarded_map *map = find_map(at);
        ours = map != NULL && replace_pages(map, at);
    }
    if (!ours)
        hand_on(number, info, context);
    errno = saved;
}

/* ---- installing --------------------------------------------------------------------------- */

static void lock_all(void)
{
    pthread_mutex_lock(&install_mutex);
    pthread_mutex_lock(&anew_mutex);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&anew_mutex);
    pthread_mutex_unlock(&install_mutex);
}

static void watch_forks(void)
{
    pthread_atfork(lock_all, unlock_all, unlock_all);
}

static rks_status install(rks_error *err)
{
    rks_status status = RKS_OK;
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&install_mutex);
    struct sigaction current;
    if (sigaction(SIGBUS, NULL, &current) != 0) {
        status = rks_fail_errno(err, errno, "looking at the SIGBUS handler");
    } else if (!(current.sa_flags & SA_SIGINFO) || current.sa_sigaction != on_sigbus) {
        unsigned other = 1 - atomic_load(&previous_at);
        previous[other] = current;
        atomic_store(&previous_at, other);
        struct sigaction action;
        memset(&action, 0, sizeof(action));
        sigemptyset(&action.sa_mask);
        action.sa_sigaction = on_sigbus;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
        if (sigaction(SIGBUS, &action, NULL) != 0)
            status = rks_fail_errno(err, errno, "installing the SIGBUS handler");
    }
    pthread_mutex_unlock(&install_mutex);
    return status;
}

void rks_guarded_map_renew(void)
{
    struct timespec now;
    begun_at = atomic_load_explicit(&renewals, memory_order_acquire);
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    int64_t slice = (int64_t)now.tv_sec * SLICES + now.tv_nsec / (1000000000 / SLICES);
    if (atomic_load_explicit(&looked_at, memory_order_relaxed) == slice)
        return;
    atomic_store_explicit(&looked_at, slice, memory_order_relaxed);
    install(NULL);
}

/* ---- maps --------------------------------------------------------------------------------- */

static rks_guarded_map *claim_in(chunk *c)
{
    if (atomic_load(&c->full))
        return NULL;
    for (int i = 0; i < CHUNK_MAPS; i++)
        if (!atomic_load(&c->maps[i].taken) && !atomic_exchange(&c->maps[i].taken, true))
            return &c->maps[i];
    return NULL;
}

/* Marks a chunk as full. Looks again after that, since release_map may have freed an entry in
 * between. */
static void mark_full(chunk *c)
{
    atomic_store(&c->full, true);
    for (int i = 0; i < CHUNK_MAPS; i++)
        if (!atomic_load(&c->maps[i].taken))
            atomic_store(&c->full, false);
}

static void release_map(rks_guarded_map *map)
{
    atomic_store(&map->taken, false);
    for (chunk *c = &first_chunk; c != NULL; c = atomic_load(&c->next))
        if (map >= c->maps && map < c->maps + CHUNK_MAPS)
            atomic_store(&c->full, false);
}

/* Takes a free entry; maps another chunk if all are taken. NULL if memory is short. */
static rks_guarded_map *claim_map(void)
{
    for (chunk *c = &first_chunk;; c = atomic_load(&c->next)) {
        rks_guarded_map *map = claim_in(c);
        if (map != NULL)
            return map;
        if (!atomic_load(&c->full))
            mark_full(c);
        if (atomic_load(&c->next) != NULL)
            continue;
        chunk *more =
            mmap(NULL, sizeof(*more), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (more == MAP_FAILED)
            return NULL;
        chunk *none = NULL;
        if (!atomic_compare_exchange_strong(&c->next, &none, more))
            munmap(more, sizeof(*more)); /* another thread was first */
    }
}

/* Counts the lines of a file in /proc, and reads the number that it begins with. Uses no heap,
 * which may be exhausted, too. */
static uint64_t count_lines(const char *path, uint64_t *number)
{
    char bytes[4096];
    uint64_t lines = 0, first = 0;
    bool digits = true;
    ssize_t got;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && (got = read(fd, bytes, sizeof(bytes))) > 0) {
        for (ssize_t i = 0; i < got; i++) {
            lines += bytes[i] == '\n';
            digits = digits && bytes[i] >= '0' && bytes[i] <= '9';
            first = digits ? 10 * first + (uint64_t)(bytes[i] - '0') : first;
        }
    }
    if (fd >= 0)
        close(fd);
    *number = first;
    return lines;
}

/* Fails the map of a file. The kernel reports ENOMEM also to a process that has too many maps, so
 * this counts them. */
static rks_status fail_map(const char *path, uint64_t size, int cause, rks_error *err)
{
    enum { MARGIN = 16 }; /* another thread may have closed some */
    uint64_t most = 0, none = 0, used = 0;
    if (cause == ENOMEM && count_lines("/proc/sys/vm/max_map_count", &most) > 0)
        used = count_lines("/proc/self/maps", &none);
    if (used == 0 || used + MARGIN < most)
        return rks_fail_errno(err, cause, "%s: mapping %" PRIu64 " bytes", path, size);
    return rks_fail(err, RKS_ERR_MEMORY, cause,
                    "%s: this process has %" PRIu64
                    " maps of files and memory, and may have %" PRIu64
                    ": raise vm.max_map_count, or open fewer shards",
                    path, used, most);
}

rks_status rks_guarded_map_open(int fd, const char *path, uint64_t size, rks_guarded_map **map,
                                rks_error *err)
{
    if (size == 0)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: empty", path);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    atomic_store(&page_size, page);
    rks_status status = install(err);
    if (status != RKS_OK)
        return status;
    rks_guarded_map *made = claim_map();
    if (made == NULL)
        return rks_fail(err, RKS_ERR_MEMORY, errno, "%s: no memory for another map", path);

    uint64_t pages = size / page + (size % page != 0);
    uint64_t marks_size = pages * sizeof(uint32_t);
    void *bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) {
        int cause = errno;
        release_map(made);
        return fail_map(path, size, cause, err);
    }
    made->bytes = bytes;
    made->size = size;
    atomic_store(&made->marks, NULL);
    made->marks_size = marks_size;
    atomic_store(&made->faults, 0);
    atomic_store(&made->replaced, 0);
    atomic_store(&made->handling, 0);
    atomic_store(&made->lost, false);
    atomic_store(&made->begin, (uintptr_t)bytes);
    atomic_store(&made->end, (uintptr_t)bytes + pages * page);
    atomic_fetch_add(&made->generation, 1);
    *map = made;
    return RKS_OK;
}

void rks_guarded_map_close(rks_guarded_map *map)
{
    if (map == NULL)
        return;
    atomic_fetch_add(&map->generation, 1);
    munmap((void *)(uintptr_t)map->bytes, map->size);
    if (atomic_load(&map->marks) != NULL)
        munmap((void *)atomic_load(&map->marks), map->marks_size);
    release_map(map);
}

/* Finds the pages of [at, at + size); false if the range does not lie in the map. */
static bool page_range(const rks_guarded_map *map, const void *at, size_t size, uint64_t *first,
                       uint64_t *last)
{
    uintptr_t begin = (uintptr_t)map->bytes;
    uintptr_t from = (uintptr_t)at;
    if (size == 0 || from < begin || from - begin >= map->size || size > map->size - (from - begin))
        return false;
    size_t page = atomic_load_explicit(&page_size, memory_order_relaxed);
    *first = (from - begin) / page;
    *last = (from - begin + size - 1) / page;
    return true;
}

bool rks_guarded_map_marked(const rks_guarded_map *map, const void *at, size_t size)
{
    uint64_t first = 0;
    uint64_t last = 0;
    if (!page_range(map, at, size, &first, &last))
        return false;
    bool handling = atomic_load(&map->handling) != 0; /* before the marks */
    if (atomic_load(&map->lost))
        return true;
    const _Atomic uint32_t *marks = atomic_load(&map->marks);
    for (uint64_t p = first; marks != NULL && p <= last; p++) {
        uint32_t mark = atomic_load(&marks[p]);
        if (mark != GOOD && (handling || mark > begun_at))
            return true;
    }
    return false;
}

/* ---- mapping anew ------------------------------------------------------------------------- */

/* Maps pages [first, end) from the file again; all are BAD. */
static void map_anew(rks_guarded_map *map, _Atomic uint32_t *marks, int fd, uint64_t first,
                     uint64_t end)
{
    size_t page = atomic_load(&page_size);
    for (uint64_t p = first; p < end; p++)
        atomic_store(&marks[p], ANEW);
    bool mapped = mmap((void *)(uintptr_t)(map->bytes + first * page), (end - first) * page,
                       PROT_READ, MAP_SHARED | MAP_FIXED, fd, (off_t)(first * page)) != MAP_FAILED;
    uint32_t number = atomic_fetch_add(&renewals, 1) + 1;
    for (uint64_t p = first; p < end; p++) {
        uint32_t mark = ANEW; /* a handler has put zeros there if it is BAD again */
        atomic_compare_exchange_strong(&marks[p], &mark, mapped ? number : BAD);
    }
    if (mapped)
        atomic_fetch_sub(&map->replaced, 1);
}

void rks_guarded_map_anew(rks_guarded_map *map, int fd, uint64_t first, uint64_t end)
{
    size_t page = atomic_load(&page_size);
    uint64_t pages = (map->size + page - 1) / page, at = first / GRANULE_SIZE * GRANULE_SIZE / page;
    _Atomic uint32_t *marks = atomic_load(&map->marks);
    if (marks == NULL || first >= end || atomic_load(&renewals) >= ANEW - 1)
        return;
    pthread_mutex_lock(&anew_mutex);
    end = end > map->size ? map->size : end;
    uint64_t last = (end + GRANULE_SIZE - 1) / GRANULE_SIZE * GRANULE_SIZE / page;
    if (atomic_load(&map->lost)) {
        mark_bad(marks, 0, pages);
        atomic_store(&map->replaced, 1);
        atomic_store(&map->lost, false);
        at = 0;
        last = pages;
    }
    last = last > pages ? pages : last;
    while (at < last) {
        uint64_t run = at;
        while (run < last && atomic_load(&marks[run]) == BAD)
            run++;
        if (run > at)
            map_anew(map, marks, fd, at, run);
        at = run + 1;
    }
    pthread_mutex_unlock(&anew_mutex);
}

bool rks_guarded_map_touch(const rks_guarded_map *map, const void *at, size_t size)
{
    uint64_t first = 0;
    uint64_t last = 0;
    if (!page_range(map, at, size, &first, &last))
        return size == 0;
    size_t page = atomic_load_explicit(&page_size, memory_order_relaxed);
    /* For few pages, skip the call: it costs more than touching warm pages, and a fault reads its
     * neighbours too. */
    if (last - first >= FEW_PAGES)
        madvise((void *)(uintptr_t)(map->bytes + first * page), (last - first + 1) * page,
                MADV_WILLNEED);
    /* Touch bytes of the range itself, to have them in the processor's cache. */
    (void)*(const volatile uint8_t *)at;
    for (uint64_t p = first + 1; p <= last; p++)
        (void)*(const volatile uint8_t *)(map->bytes + p * page);
    return !rks_guarded_map_faulted(map, at, size);
}
