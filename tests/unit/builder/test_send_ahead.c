/* SPDX-License-Identifier: Apache-2.0
 *
 * test_send_ahead.c: the end of a build waits for the shard that is on its way home, and says how
 * far it is; not for a disk that hangs. */
#include "support/check.h"
#include "support/shards.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "builder/send_ahead.h"

enum { LIMIT_MS = 60000, NAP_US = 2000, SILENCE_MS = 3000 };

static char home[256];
static atomic_bool slow;
static atomic_int syncs, shown;
static uint64_t size; /* of the shard's file */

/* What is sent is synced before it has its name: this waits until somebody has heard of it. */
int fsync(int fd)
{
    const uint64_t until = rks_now_ms() + LIMIT_MS;
    (void)fd;
    atomic_fetch_add(&syncs, 1);
    while (atomic_load(&slow) && atomic_load(&shown) == 0 && rks_now_ms() < until)
        usleep(NAP_US);
    return 0;
}

static int held[2];
static atomic_bool reads_hang;
static atomic_int hanging;

/* A read that hangs waits in a read of a pipe. */
ssize_t pread(int fd, void *bytes, size_t room, off_t at)
{
    char byte;
    if (atomic_load(&reads_hang)) {
        atomic_fetch_add(&hanging, 1);
        while (read(held[0], &byte, 1) < 0 && errno == EINTR)
            ;
        atomic_fetch_sub(&hanging, 1);
    }
    return (ssize_t)syscall(SYS_pread64, fd, bytes, room, at);
}

static int begin(void **state)
{
    const shards_recipe recipe = {.samples = 1000, .units = 4, .wide_every = 1};
    struct stat info;
    if (shards_begin(state) != 0)
        return -1;
    shards_write(shards_here, "a", &recipe);
    snprintf(home, sizeof(home), "%s/home", shards_here);
    assert_int_equal(stat(shards_path("a.rks"), &info), 0);
    size = (uint64_t)info.st_size;
    return 0;
}

static int end(void **state)
{
    char command[512];
    snprintf(command, sizeof(command), "rm -rf '%s'", home);
    return system(command) != 0 ? -1 : shards_end(state);
}

static void look(void *user, const char *phase, uint64_t done, uint64_t total, uint64_t samples)
{
    assert_null(user);
    assert_string_equal(phase, "publish");
    assert_int_equal(total, size);
    assert_in_range(done, 1, size);
    assert_int_equal(samples, 0);
    atomic_fetch_add(&shown, 1);
}

static void wait_until(atomic_int *number, bool is_set)
{
    const uint64_t until = rks_now_ms() + LIMIT_MS;
    while ((atomic_load(number) != 0) != is_set && rks_now_ms() < until)
        usleep(NAP_US);
    assert_int_equal(atomic_load(number) != 0, is_set);
}

/* Sends the shard. `hangs`: the disk does not answer. */
static rks_send_ahead *begin_to_send(bool hangs)
{
    rks_error err = {0};
    rks_send_ahead *ahead = NULL;
    rks_shard *shard = shards_open(shards_here, "a");
    const rks_send_ahead_wish wish = {
        .home = home, .directory = shards_here, .silence_ms = hangs ? SILENCE_MS : LIMIT_MS};
    assert_ok(rks_send_ahead_open(&wish, &ahead, &err), &err);
    atomic_store(&reads_hang, hangs);
    rks_send_ahead_add(ahead, "a", rks_shard_manifest_digest(shard));
    rks_shard_close(shard);
    return ahead;
}

static void the_last_shard_is_shown(void **state)
{
    (void)state;
    rks_sent_ahead sent = {0};
    atomic_store(&slow, true);
    atomic_store(&syncs, 0);
    rks_send_ahead *ahead = begin_to_send(false);
    wait_until(&syncs, true); /* else the shard may not have begun */
    rks_send_ahead_close(ahead, true, look, NULL, &sent);
    assert_true(atomic_load(&shown) > 0);
    assert_int_equal(sent.shards, 1);
    assert_true(sent.bytes > size);
}

static void a_disk_that_hangs_is_left(void **state)
{
    (void)state;
    rks_sent_ahead sent = {0};
    atomic_store(&slow, false);
    assert_int_equal(pipe(held), 0);
    rks_send_ahead *ahead = begin_to_send(true);
    wait_until(&hanging, true);
    rks_send_ahead_close(ahead, true, NULL, NULL, &sent);
    assert_int_equal(atomic_load(&hanging), 1);
    assert_int_equal(sent.shards, 0);
    atomic_store(&reads_hang, false);
    close(held[1]);
    wait_until(&hanging, false);
    for (const uint64_t until = rks_now_ms() + LIMIT_MS;
         rks_memory_in_use() > 0 && rks_now_ms() < until;)
        usleep(NAP_US); /* what was left behind ends by itself */
    close(held[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_last_shard_is_shown, begin, end),
        cmocka_unit_test_setup_teardown(a_disk_that_hangs_is_left, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
