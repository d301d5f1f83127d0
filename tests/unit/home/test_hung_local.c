/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hung_local.c: shards that arrive in a local directory whose file system stops answering:
 * what is waited for ends with an error that names the directory, and so does the set. A call that
 * hangs waits in a read of a pipe. */
#include "support/check.h"
#include "support/shards.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "home/arrivals.h"

enum { LIMIT_MS = 60000, HANG_MS = 4000, READERS = 8 }; /* READERS: threads of the home */

static rks_error err;
static rks_home *home;
static char local[256];
static rks_arrival_wish wish;
static int held[2] = {-1, -1};
static atomic_bool writes_hang, syncs_hang;
static atomic_int hanging, came;
static rks_error came_err;

static void hang(void)
{
    char byte;
    atomic_fetch_add(&hanging, 1);
    while (read(held[0], &byte, 1) < 0 && errno == EINTR)
        ;
    atomic_fetch_sub(&hanging, 1);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    if (atomic_load(&writes_hang))
        hang();
    return (ssize_t)syscall(SYS_pwrite64, fd, bytes, size, at);
}

/* Syncs nothing: a disk that other programs keep busy would seem to hang. */
int fsync(int fd)
{
    (void)fd;
    if (atomic_load(&syncs_hang))
        hang();
    return 0;
}

static int begin(void **state)
{
    static const rks_home_limits limits = {.stall_ms = LIMIT_MS, .hang_ms = HANG_MS};
    const shards_recipe recipe = {.samples = 1000, .units = 4, .wide_every = 1};
    if (shards_begin(state) != 0 || pipe(held) != 0)
        return -1;
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = shards_open(shards_here, "a");
    snprintf(local, sizeof(local), "%s/local", shards_here);
    assert_int_equal(mkdir(local, 0755), 0);
    assert_ok(rks_home_open(shards_here, &limits, &home, &err), &err);
    wish = (rks_arrival_wish){.home = home,
                              .directory = local,
                              .name = "a",
                              .manifest = rks_shard_manifest_digest(shard)};
    rks_shard_close(shard);
    atomic_store(&came, 0);
    return 0;
}

static void wait_until(atomic_int *number, int wanted)
{
    const uint64_t until = rks_now_ms() + LIMIT_MS;
    while (atomic_load(number) != wanted && rks_now_ms() < until)
        usleep(2000);
    assert_int_equal(atomic_load(number), wanted);
}

static void heal(void)
{
    atomic_store(&writes_hang, false);
    atomic_store(&syncs_hang, false);
    if (held[1] >= 0)
        close(held[1]);
    held[1] = -1;
}

static int end(void **state)
{
    heal();
    wait_until(&hanging, 0);
    close(held[0]);
    (void)state;
    shards_directory_remove(shards_here); /* what was left behind keeps its memory, and the home */
    return 0;
}

static void note_end(rks_need *need, bool alone, const rks_error *why)
{
    (void)need, (void)alone;
    came_err = *why;
    atomic_fetch_add(&came, 1);
}

static void check_error(const rks_error *why)
{
    assert_int_equal(why->status, RKS_ERR_TIMEOUT);
    assert_memory_equal(why->text, local, strlen(local));
    assert_non_null(strstr(why->text, ": its storage has not answered for "));
    assert_non_null(strstr(why->text, "see whether `ls` comes back there"));
}

/* Threads of this process. */
static int threads(void)
{
    int count = 0;
    DIR *stream = opendir("/proc/self/task");
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(stream);
    return count;
}

static void wait_for_threads(int wanted)
{
    const uint64_t until = rks_now_ms() + LIMIT_MS;
    while (threads() > wanted && rks_now_ms() < until)
        usleep(2000);
    assert_true(threads() <= wanted);
}

/* Opens a set, lets `hangs` begin, and returns when the set has ended. */
static void bring_until_it_hangs(atomic_bool *hangs)
{
    rks_arrivals *set = NULL;
    bool reached = false;
    rks_need need = {.end = 4096, .here = note_end}, later = need;
    const int before = threads() + READERS;
    assert_ok(rks_arrivals_open(&wish, 1, true, &set, &err), &err);
    assert_ok(rks_arrivals_wait(set, RKS_ARRIVALS_HEADS, LIMIT_MS, &reached, &err), &err);
    assert_true(reached);
    atomic_store(hangs, true);
    if (hangs == &writes_hang) {
        rks_arrivals_need(set, &need);
        wait_until(&came, 1);
        check_error(&came_err);
    }
    rks_arrivals_go(set, false);
    while (rks_arrivals_wait(set, RKS_ARRIVALS_WHOLE, LIMIT_MS, &reached, &err) == RKS_OK)
        assert_false(reached);
    check_error(&err);
    const int ended = atomic_load(&came);
    later.first = 2 << 20;
    later.end = (2 << 20) + 4096;
    if (hangs == &writes_hang) {
        rks_arrivals_need(set, &later);
        assert_int_equal(atomic_load(&came), ended + 1);
        check_error(&came_err);
    }
    assert_true(atomic_load(&hanging) > 0);
    assert_false(rks_arrivals_close(set));
    heal();
    wait_until(&hanging, 0);
    wait_for_threads(before); /* those that were left end by themselves */
}

static void a_write_that_hangs_ends_what_waits_for_it(void **state)
{
    (void)state;
    bring_until_it_hangs(&writes_hang);
}

static void a_sync_that_hangs_ends_the_set(void **state)
{
    (void)state;
    bring_until_it_hangs(&syncs_hang);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_write_that_hangs_ends_what_waits_for_it, begin, end),
        cmocka_unit_test_setup_teardown(a_sync_that_hangs_ends_the_set, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
