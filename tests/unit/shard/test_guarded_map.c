/* SPDX-License-Identifier: Apache-2.0
 *
 * test_guarded_map.c: maps of files that are cut while they are mapped. */
#include "base/guarded_map.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"

enum { PAGE = 4096, PAGES = 64 };

static rks_error err;

/* An unnamed file of `size` bytes, all 7. */
static int make_file(size_t size)
{
    char name[] = "/tmp/rks-guarded-XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    unlink(name);
    uint8_t page[PAGE];
    memset(page, 7, sizeof(page));
    for (size_t at = 0; at < size; at += PAGE) {
        size_t piece = size - at < PAGE ? size - at : PAGE;
        assert_int_equal(write(fd, page, piece), (ssize_t)piece);
    }
    return fd;
}

static rks_guarded_map *map_file(int fd, size_t size)
{
    rks_guarded_map *map = NULL;
    assert_ok(rks_guarded_map_open(fd, "file", size, &map, &err), &err);
    return map;
}

static uint8_t read_byte(const rks_guarded_map *map, size_t at)
{
    return *(const volatile uint8_t *)(map->bytes + at);
}

static void reads_what_is_in_the_file(void **state)
{
    (void)state;
    int fd = make_file(3 * PAGE + 5);
    rks_guarded_map *map = map_file(fd, 3 * PAGE + 5);
    assert_int_equal(map->size, 3 * PAGE + 5);
    assert_int_equal(read_byte(map, 3 * PAGE + 4), 7);
    assert_false(rks_guarded_map_faulted(map, map->bytes, map->size));
    assert_true(rks_guarded_map_touch(map, map->bytes, map->size));
    rks_guarded_map_close(map);
    rks_guarded_map_close(NULL);
    close(fd);
}

static int count_maps(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    int lines = 0, c;
    while ((c = fgetc(file)) != EOF)
        lines += c == '\n';
    fclose(file);
    return lines;
}

/* The kernel gives a process 65,530. */
static void a_file_takes_one_of_the_processs_maps(void **state)
{
    (void)state;
    enum { FILES = 100 };
    rks_guarded_map *maps[FILES];
    int fd = make_file(5 * PAGE), before = count_maps();
    for (int i = 0; i < FILES; i++) {
        maps[i] = map_file(fd, 5 * PAGE);
        assert_int_equal(read_byte(maps[i], PAGE), 7);
    }
    assert_in_range(count_maps(), 0, before + FILES + 4); /* and of chunks of slots */
    for (int i = 0; i < FILES; i++)
        rks_guarded_map_close(maps[i]);
    close(fd);
}

static void refuses_an_empty_file_and_a_bad_descriptor(void **state)
{
    (void)state;
    rks_guarded_map *map = NULL;
    int fd = make_file(0);
    assert_fails(RKS_ERR_CORRUPT, rks_guarded_map_open(fd, "file", 0, &map, &err));
    assert_contains(err.text, "file");
    assert_fails(RKS_ERR_IO, rks_guarded_map_open(-1, "file", 10, &map, &err));
    assert_fails(RKS_ERR_MEMORY, rks_guarded_map_open(fd, "file", UINT64_C(1) << 60, &map, &err));
    assert_null(map);
    close(fd);
}

static void marks_exactly_the_pages_that_are_gone(void **state)
{
    (void)state;
    int fd = make_file(PAGES * PAGE);
    rks_guarded_map *map = map_file(fd, PAGES * PAGE);
    assert_int_equal(ftruncate(fd, 10 * PAGE), 0);
    assert_int_equal(read_byte(map, 9 * PAGE), 7);
    assert_int_equal(read_byte(map, 10 * PAGE + 3), 0);
    assert_int_equal(read_byte(map, 20 * PAGE), 0);
    assert_true(rks_guarded_map_faulted(map, map->bytes + 10 * PAGE, 1));
    assert_true(rks_guarded_map_faulted(map, map->bytes + 10 * PAGE - 1, 2));
    assert_true(rks_guarded_map_faulted(map, map->bytes, map->size));
    assert_false(rks_guarded_map_faulted(map, map->bytes, 10 * PAGE));
    assert_false(rks_guarded_map_faulted(map, map->bytes + 11 * PAGE, 9 * PAGE));
    assert_false(rks_guarded_map_faulted(map, map->bytes + 20 * PAGE, 0));
    assert_false(rks_guarded_map_faulted(map, map->bytes - PAGE, 1));
    assert_false(rks_guarded_map_touch(map, map->bytes + 30 * PAGE, 1));
    assert_true(rks_guarded_map_touch(map, map->bytes, 10 * PAGE));
    rks_guarded_map_close(map);
    close(fd);
}

static void fill(int fd, size_t first, size_t end)
{
    uint8_t page[PAGE];
    memset(page, 7, sizeof(page));
    for (size_t at = first; at < end; at++)
        assert_int_equal(pwrite(fd, page, PAGE, (off_t)(at * PAGE)), PAGE);
}

static void a_page_mapped_anew_is_read_again(void **state)
{
    (void)state;
    int fd = make_file(PAGES * PAGE), maps = 0;
    rks_guarded_map *map = map_file(fd, PAGES * PAGE);
    maps = count_maps();
    rks_guarded_map_anew(map, fd, 0, UINT64_MAX); /* nothing to do */
    assert_int_equal(ftruncate(fd, 10 * PAGE), 0);
    assert_int_equal(read_byte(map, 20 * PAGE), 0);
    assert_int_equal(read_byte(map, 22 * PAGE), 0);
    assert_int_equal(read_byte(map, 63 * PAGE), 0);
    fill(fd, 10, 30);
    assert_int_equal(read_byte(map, 20 * PAGE), 0); /* as long as nobody maps it */
    rks_guarded_map_anew(map, fd, 20 * PAGE, 20 * PAGE + 1);
    assert_int_equal(read_byte(map, 20 * PAGE), 7);
    assert_true(
        rks_guarded_map_faulted(map, map->bytes + 20 * PAGE, 1)); /* for reads begun before */
    rks_guarded_map_renew();
    assert_false(rks_guarded_map_faulted(map, map->bytes + 20 * PAGE, 3 * PAGE));
    assert_int_equal(read_byte(map, 22 * PAGE), 7);
    assert_int_equal(read_byte(map, 63 * PAGE), 0); /* it cannot be read yet */
    assert_true(rks_guarded_map_faulted(map, map->bytes + 63 * PAGE, 1));
    fill(fd, 30, PAGES);
    rks_guarded_map_anew(map, fd, 63 * PAGE, UINT64_MAX);
    rks_guarded_map_renew();
    assert_int_equal(read_byte(map, 63 * PAGE), 7);
    assert_false(rks_guarded_map_faulted(map, map->bytes, map->size));
    assert_in_range(count_maps(), 0, maps + 1); /* the marks */
    rks_guarded_map_close(map);
    close(fd);
}

static void a_map_that_was_given_up_is_mapped_anew(void **state)
{
    (void)state;
    size_t pages = 4000000; /* 15 GB: more granules than are replaced one by one */
    int fd = make_file(PAGE);
    assert_int_equal(ftruncate(fd, (off_t)(pages * PAGE)), 0);
    rks_guarded_map *map = map_file(fd, pages * PAGE);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    for (size_t page = 1; page < 2 * 1024; page += 2)
        assert_int_equal(read_byte(map, page * PAGE), 0);
    for (size_t page = 2048; page < pages; page += 256)
        assert_int_equal(read_byte(map, page * PAGE), 0);
    assert_true(atomic_load(&map->lost));
    assert_int_equal(read_byte(map, 0), 0);
    rks_guarded_map_anew(map, fd, 0, 1);
    assert_true(rks_guarded_map_faulted(map, map->bytes, 1));
    rks_guarded_map_renew();
    assert_int_equal(read_byte(map, 0), 7);
    assert_false(rks_guarded_map_faulted(map, map->bytes, 1));
    assert_int_equal(read_byte(map, PAGE), 0);
    assert_true(rks_guarded_map_faulted(map, map->bytes + PAGE, 1));
    assert_int_equal(atomic_load(&map->replaced), 1); /* one page, again */
    rks_guarded_map_close(map);
    close(fd);
}

static void a_new_map_in_the_same_place_is_clean(void **state)
{
    (void)state;
    int fd = make_file(4 * PAGE);
    rks_guarded_map *map = map_file(fd, 4 * PAGE);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(read_byte(map, 0), 0);
    rks_guarded_map_close(map);
    close(fd);
    fd = make_file(4 * PAGE);
    map = map_file(fd, 4 * PAGE);
    assert_int_equal(read_byte(map, 0), 7);
    assert_false(rks_guarded_map_faulted(map, map->bytes, map->size));
    rks_guarded_map_close(map);
    close(fd);
}

static void a_file_with_many_bad_pages_is_given_up_as_a_whole(void **state)
{
    (void)state;
    size_t pages = 60000;
    int fd = make_file(PAGE);
    assert_int_equal(ftruncate(fd, (off_t)(pages * PAGE)), 0);
    rks_guarded_map *map = map_file(fd, pages * PAGE);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    for (size_t page = 1; page < pages; page += 2)
        assert_int_equal(read_byte(map, page * PAGE), 0);
    for (size_t page = 1; page < pages; page += 2)
        assert_true(rks_guarded_map_faulted(map, map->bytes + page * PAGE, 1));
    assert_true(atomic_load(&map->faults) < 1024 + 250);
    rks_guarded_map_close(map);
    close(fd);
}

static void holds_more_maps_than_a_chunk_of_slots(void **state)
{
    (void)state;
    enum { MAPS = 150 };
    rks_guarded_map *maps[MAPS];
    int fd = make_file(2 * PAGE);
    for (int i = 0; i < MAPS; i++)
        maps[i] = map_file(fd, 2 * PAGE);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    for (int i = 0; i < MAPS; i++) {
        assert_int_equal(read_byte(maps[i], PAGE), 0);
        assert_true(rks_guarded_map_faulted(maps[i], maps[i]->bytes + PAGE, 1));
        assert_false(rks_guarded_map_faulted(maps[i], maps[i]->bytes, 1));
    }
    for (int i = 0; i < MAPS; i += 7) { /* a place that is free again is used again */
        const rks_guarded_map *place = maps[i];
        rks_guarded_map_close(maps[i]);
        maps[i] = map_file(fd, PAGE);
        assert_ptr_equal(maps[i], place);
    }
    for (int i = 0; i < MAPS; i++)
        rks_guarded_map_close(maps[i]);
    close(fd);
}

static void *fill_and_empty(void *argument)
{
    enum { MAPS = 100 };
    const int *fd = argument;
    rks_guarded_map *maps[MAPS];
    uintptr_t wrong = 0;
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < MAPS; i++)
            maps[i] = map_file(*fd, (i + 1) * PAGE);
        for (size_t i = 0; i < MAPS; i++)
            wrong += maps[i]->size != (i + 1) * PAGE; /* another thread has the same place */
        for (size_t i = 0; i < MAPS; i++)
            rks_guarded_map_close(maps[i]);
    }
    return (void *)wrong;
}

static void threads_that_fill_and_empty_never_share_a_place(void **state)
{
    (void)state;
    pthread_t threads[4];
    int fd = make_file(100 * PAGE);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fill_and_empty, &fd), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    close(fd);
}

/* ---- threads and forks -------------------------------------------------------------------- */

static void *read_all(void *argument)
{
    rks_guarded_map *map = argument;
    uintptr_t wrong = 0;
    for (int round = 0; round < 20; round++) {
        for (size_t page = 0; page < PAGES; page++) {
            uint8_t copy[16];
            memcpy(copy, map->bytes + page * PAGE, sizeof(copy));
            bool faulted = rks_guarded_map_faulted(map, map->bytes + page * PAGE, sizeof(copy));
            wrong += (copy[5] != 7) != faulted;
        }
    }
    return (void *)wrong;
}

static void *open_and_close(void *argument)
{
    int fd = *(int *)argument;
    for (int i = 0; i < 200; i++) {
        rks_guarded_map *map = NULL;
        if (rks_guarded_map_open(fd, "file", PAGE, &map, NULL) != RKS_OK)
            return argument;
        (void)*(const volatile uint8_t *)map->bytes;
        rks_guarded_map_close(map);
        rks_guarded_map_renew();
    }
    return NULL;
}

static void four_threads_never_believe_a_zero(void **state)
{
    (void)state;
    int fd = make_file(PAGES * PAGE);
    rks_guarded_map *map = map_file(fd, PAGES * PAGE);
    assert_int_equal(ftruncate(fd, PAGES / 2 * PAGE), 0);
    pthread_t threads[6];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, map), 0);
    for (int i = 4; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, &fd), 0);
    for (int i = 0; i < 6; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    rks_guarded_map_close(map);
    close(fd);
}

typedef struct healing {
    rks_guarded_map *map;
    int fd;
    atomic_bool over;
    atomic_uint_least64_t good, bad;
} healing;

/* The page is mapped anew while it is read: the reader asks afterwards whether it was right. To the
 * thread sanitizer a new map is a write. */
__attribute__((noinline, no_sanitize_thread)) static void copy_as_it_is(uint8_t copy[16],
                                                                        const uint8_t *from)
{
    for (size_t i = 0; i < 16; i++)
        copy[i] = ((const volatile uint8_t *)from)[i];
}

static void *read_while_it_heals(void *argument)
{
    healing *h = argument;
    uintptr_t wrong = 0;
    while (!atomic_load(&h->over)) {
        rks_guarded_map_renew();
        for (size_t page = 0; page < PAGES; page++) {
            uint8_t copy[16];
            copy_as_it_is(copy, h->map->bytes + page * PAGE);
            bool faulted = rks_guarded_map_faulted(h->map, h->map->bytes + page * PAGE, 16);
            wrong += copy[5] != 7 && !faulted;
            atomic_fetch_add(copy[5] == 7 && !faulted ? &h->good : &h->bad, 1);
            if (faulted)
                rks_guarded_map_anew(h->map, h->fd, page * PAGE, page * PAGE + 1);
        }
    }
    return (void *)wrong;
}

static void threads_that_map_anew_never_believe_a_zero(void **state)
{
    (void)state;
    enum { ROUNDS = 300 };
    healing h = {.fd = make_file(PAGES * PAGE)};
    pthread_t threads[4];
    h.map = map_file(h.fd, PAGES * PAGE);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_while_it_heals, &h), 0);
    for (int round = 0; round < ROUNDS; round++) {
        assert_int_equal(ftruncate(h.fd, PAGES / 4 * PAGE), 0);
        sched_yield();
        fill(h.fd, PAGES / 4, PAGES);
        sched_yield();
    }
    atomic_store(&h.over, true);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    assert_true(atomic_load(&h.good) > 0);
    assert_true(atomic_load(&h.bad) > 0);
    rks_guarded_map_renew();
    rks_guarded_map_anew(h.map, h.fd, 0, UINT64_MAX);
    rks_guarded_map_renew();
    for (size_t page = 0; page < PAGES; page++)
        assert_int_equal(read_byte(h.map, page * PAGE), 7);
    assert_false(rks_guarded_map_faulted(h.map, h.map->bytes, h.map->size));
    rks_guarded_map_close(h.map);
    close(h.fd);
}

/* Runs `body` in a child with a limit of its own; how it ended, as waitpid says. */
static int in_child(void (*body)(void))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        alarm(600);
        body();
        _exit(0);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    return how;
}

static rks_guarded_map *forked_map;

static void read_after_fork(void)
{
    bool good = read_byte(forked_map, 0) == 7 && read_byte(forked_map, PAGE) == 0 &&
                read_byte(forked_map, 2 * PAGE) == 0 &&
                rks_guarded_map_faulted(forked_map, forked_map->bytes + PAGE, 1) &&
                rks_guarded_map_faulted(forked_map, forked_map->bytes + 2 * PAGE, 1);
    _exit(good ? 0 : 1);
}

static void a_child_goes_on_with_its_parents_map(void **state)
{
    (void)state;
    int fd = make_file(3 * PAGE);
    forked_map = map_file(fd, 3 * PAGE);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    assert_int_equal(read_byte(forked_map, PAGE), 0);
    assert_int_equal(in_child(read_after_fork), 0);
    assert_false(rks_guarded_map_faulted(forked_map, forked_map->bytes + 2 * PAGE, 1));
    rks_guarded_map_close(forked_map);
    close(fd);
}

/* ---- other people's handlers: each case in a child, since dispositions are the process's ---- */

static int cut_fd;
static volatile uint8_t *cut_bytes; /* a map that is not ours, after the end of its file */
static sigjmp_buf jump;
static volatile int calls;

static void make_cut(void)
{
    cut_fd = make_file(PAGE);
    cut_bytes = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, cut_fd, 0);
    if (cut_bytes == MAP_FAILED)
        _exit(90);
}

static rks_guarded_map *our_cut_map(void)
{
    rks_guarded_map *map = NULL;
    int fd = make_file(3 * PAGE);
    if (rks_guarded_map_open(fd, "file", 3 * PAGE, &map, NULL) != RKS_OK ||
        ftruncate(fd, PAGE) != 0)
        _exit(91);
    return map;
}

static void fault_elsewhere(void)
{
    our_cut_map();
    signal(SIGBUS, SIG_DFL);
    our_cut_map(); /* installed over the default */
    make_cut();
    (void)cut_bytes[PAGE];
}

static void a_fault_elsewhere_still_ends_the_process(void **state)
{
    (void)state;
    int how = in_child(fault_elsewhere);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGBUS);
}

static void on_bus_jump(int number)
{
    (void)number;
    calls++;
    siglongjmp(jump, 1);
}

static void fault_with_a_jumping_handler(void)
{
    struct sigaction action = {.sa_handler = on_bus_jump, .sa_flags = SA_NODEFER};
    sigaction(SIGBUS, &action, NULL);
    rks_guarded_map *map = our_cut_map();
    make_cut();
    for (volatile int i = 0; i < 3; i++) {
        if (sigsetjmp(jump, 1) == 0) {
            (void)cut_bytes[PAGE];
            _exit(1);
        }
    }
    if (read_byte(map, PAGE) != 0 || calls != 3)
        _exit(2);
}

static void the_handler_before_ours_gets_its_faults_each_time(void **state)
{
    (void)state;
    assert_int_equal(in_child(fault_with_a_jumping_handler), 0);
}

static struct sigaction before_stealer;

/* As Python's faulthandler does: gives the signal back to whom it was taken from and raises it. */
static void on_bus_raise(int number)
{
    calls++;
    sigaction(SIGBUS, &before_stealer, NULL);
    raise(number);
}

static void steal(void)
{
    struct sigaction action = {.sa_handler = on_bus_raise, .sa_flags = SA_NODEFER};
    sigaction(SIGBUS, &action, &before_stealer);
}

static void later_handler_then_our_fault(void)
{
    our_cut_map();
    steal();
    rks_guarded_map *map = our_cut_map(); /* takes it back */
    if (read_byte(map, PAGE) != 0 || calls != 0)
        _exit(1);
}

static void a_handler_installed_after_ours_is_noticed_at_the_next_open(void **state)
{
    (void)state;
    assert_int_equal(in_child(later_handler_then_our_fault), 0);
}

static void later_handler_then_renew(void)
{
    rks_guarded_map *map = our_cut_map();
    rks_guarded_map_renew();
    steal();
    struct timespec pause = {0, 20 * 1000 * 1000};
    struct sigaction current;
    int slices = 0;
    do {
        nanosleep(&pause, NULL);
        rks_guarded_map_renew();
        sigaction(SIGBUS, NULL, &current);
    } while (current.sa_handler == on_bus_raise && ++slices < 10);
    if (slices == 10)
        _exit(1);
    if (read_byte(map, PAGE) != 0)
        _exit(1);
}

static void a_handler_installed_after_ours_is_noticed_by_renew(void **state)
{
    (void)state;
    assert_int_equal(in_child(later_handler_then_renew), 0);
}

#ifndef __SANITIZE_THREAD__ /* it blocks all signals while a handler runs, so raise() waits */
static void two_that_chain_to_each_other(void)
{
    our_cut_map();
    steal();
    our_cut_map();
    make_cut();
    (void)cut_bytes[PAGE];
}

static void handlers_that_chain_to_each_other_do_not_loop(void **state)
{
    (void)state;
    int how = in_child(two_that_chain_to_each_other);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGBUS);
}
#endif

static void on_bus_chain(int number, siginfo_t *info, void *context)
{
    before_stealer.sa_sigaction(number, info, context);
}

static void two_that_call_each_other(void)
{
    our_cut_map();
    struct sigaction action = {.sa_sigaction = on_bus_chain, .sa_flags = SA_NODEFER | SA_SIGINFO};
    sigaction(SIGBUS, &action, &before_stealer);
    our_cut_map();
    make_cut();
    (void)cut_bytes[PAGE];
}

static void handlers_that_call_each_other_do_not_loop(void **state)
{
    (void)state;
    int how = in_child(two_that_call_each_other);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGBUS);
}

static void raise_with_default(void)
{
    signal(SIGBUS, SIG_DFL);
    our_cut_map();
    raise(SIGBUS);
}

static void raise_with_ignore(void)
{
    signal(SIGBUS, SIG_IGN);
    our_cut_map();
    raise(SIGBUS);
}

static void a_signal_that_was_sent_does_what_it_did_before(void **state)
{
    (void)state;
    int how = in_child(raise_with_default);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGBUS);
    assert_int_equal(in_child(raise_with_ignore), 0);
}

#if !defined(__SANITIZE_THREAD__) &&                                                               \
    !defined(__SANITIZE_ADDRESS__) /* these need maps of their own */

/* Each second page gets a map of its own, until the kernel gives no more. 0: the error says so. */
static int open_among_many(int fd)
{
    enum { MOST = 70000, LAST = 8 /* maps that may be left */ };
    rks_guarded_map *map = NULL;
    rks_error why = {0};
    rks_status status = RKS_OK;
    size_t size = 2 * (size_t)MOST * PAGE, used = 0;
    uint8_t *pages = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return 1;
    while (used < MOST && mprotect(pages + 2 * used * PAGE, PAGE, PROT_NONE) == 0)
        used++;
    if (used == MOST)
        return 0; /* this machine allows more */
    for (int i = 0; status == RKS_OK && i < LAST; i++)
        status = rks_guarded_map_open(fd, "file", PAGE, &map, &why);
    if (status != RKS_ERR_MEMORY)
        return 2;
    if (strstr(why.text, "raise vm.max_map_count") == NULL)
        return 3;
    munmap(pages, size);
    return rks_guarded_map_open(fd, "file", PAGE, &map, &why) == RKS_OK ? 0 : 4;
}

static void too_many_maps_are_told_from_too_little_memory(void **state)
{
    (void)state;
    int fd = make_file(PAGE), told = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(open_among_many(fd));
    assert_int_equal(waitpid(child, &told, 0), child);
    assert_int_equal(told, 0);
    close(fd);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_is_in_the_file),
        cmocka_unit_test(a_file_takes_one_of_the_processs_maps),
        cmocka_unit_test(refuses_an_empty_file_and_a_bad_descriptor),
        cmocka_unit_test(marks_exactly_the_pages_that_are_gone),
        cmocka_unit_test(a_page_mapped_anew_is_read_again),
        cmocka_unit_test(a_map_that_was_given_up_is_mapped_anew),
        cmocka_unit_test(threads_that_map_anew_never_believe_a_zero),
        cmocka_unit_test(a_new_map_in_the_same_place_is_clean),
        cmocka_unit_test(a_file_with_many_bad_pages_is_given_up_as_a_whole),
        cmocka_unit_test(holds_more_maps_than_a_chunk_of_slots),
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test(too_many_maps_are_told_from_too_little_memory),
#endif
        cmocka_unit_test(threads_that_fill_and_empty_never_share_a_place),
        cmocka_unit_test(four_threads_never_believe_a_zero),
        cmocka_unit_test(a_child_goes_on_with_its_parents_map),
        cmocka_unit_test(a_fault_elsewhere_still_ends_the_process),
        cmocka_unit_test(the_handler_before_ours_gets_its_faults_each_time),
        cmocka_unit_test(a_handler_installed_after_ours_is_noticed_at_the_next_open),
        cmocka_unit_test(a_handler_installed_after_ours_is_noticed_by_renew),
#ifndef __SANITIZE_THREAD__
        cmocka_unit_test(handlers_that_chain_to_each_other_do_not_loop),
#endif
        cmocka_unit_test(handlers_that_call_each_other_do_not_loop),
        cmocka_unit_test(a_signal_that_was_sent_does_what_it_did_before),
    };
    return cmocka_run_group_tests_name("guarded_map", tests, NULL, NULL);
}
