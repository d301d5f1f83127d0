/* SPDX-License-Identifier: Apache-2.0
 *
 * test_send_ahead.c: the end of a build waits for the shard that is on its way home, and says how
 * far it is. */
#include "support/check.h"
#include "support/shards.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "builder/send_ahead.h"

enum { LIMIT_MS = 60000, NAP_US = 2000 };

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

static void the_last_shard_is_shown(void **state)
{
    (void)state;
    rks_error err = {0};
    rks_send_ahead *ahead = NULL;
    rks_sent_ahead sent = {0};
    rks_shard *shard = shards_open(shards_here, "a");
    const rks_send_ahead_wish wish = {.home = home, .directory = shards_here};
    assert_ok(rks_send_ahead_open(&wish, &ahead, &err), &err);
    atomic_store(&slow, true);
    atomic_store(&syncs, 0);
    rks_send_ahead_add(ahead, "a", rks_shard_manifest_digest(shard));
    rks_shard_close(shard);
    for (const uint64_t until = rks_now_ms() + LIMIT_MS;
         atomic_load(&syncs) == 0 && rks_now_ms() < until;)
        usleep(NAP_US); /* else the shard may not have begun */
    rks_send_ahead_close(ahead, true, look, NULL, &sent);
    assert_true(atomic_load(&shown) > 0);
    assert_int_equal(sent.shards, 1);
    assert_true(sent.bytes > size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_last_shard_is_shown, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
