/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hung_place.c: a local directory whose storage stops answering in the middle of an opening:
 * all ranks get an error that names it, and when it answers again the next opening goes on. A call
 * that hangs waits in a read of a pipe. */
#include "support/ranks.h"
#include "support/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "staging/staging.h"

enum { SILENCE_MS = 5000, HANG_MS = 4000, WAIT_MS = 60000 };

static char kept[256], locals[2][256];
static int held[2] = {-1, -1};
static const char *_Atomic linked, *_Atomic opened, *_Atomic renamed; /* ends of names that hang */
static atomic_int hanging;

static void hang_at(const char *_Atomic *names, const char *path)
{
    const char *end = atomic_load(names);
    const size_t size = end == NULL ? 0 : strlen(end), all = strlen(path);
    char byte;
    if (end == NULL || all < size || strcmp(path + all - size, end) != 0 ||
        strncmp(path, locals[0], strlen(locals[0])) != 0)
        return;
    atomic_fetch_add(&hanging, 1);
    while (read(held[0], &byte, 1) < 0 && errno == EINTR)
        ;
    atomic_fetch_sub(&hanging, 1);
}

int link(const char *from, const char *to)
{
    hang_at(&linked, to);
    return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int rename(const char *from, const char *to)
{
    hang_at(&renamed, to);
    return (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    hang_at(&opened, path);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* Syncs nothing: a disk that other programs keep busy would seem to hang. */
int fsync(int fd)
{
    (void)fd;
    return 0;
}

/* A dataset at home, which rank 0 has built in another folder of its local directory, too. */
static int begin(void **state)
{
    const shards_recipe recipe = {.samples = 500, .units = 4, .wide_every = 1};
    char command[2048];
    if (shards_begin(state) != 0 || pipe(held) != 0)
        return -1;
    shards_dataset(&recipe);
    snprintf(kept, sizeof(kept), "%s/kept", shards_here);
    for (int i = 0; i < 2; i++)
        snprintf(locals[i], sizeof(locals[i]), "%s/local%d", shards_here, i);
    snprintf(command, sizeof(command),
             "cd '%s' && mkdir kept local0 local1 local0/built && cp a.* dataset.json kept && "
             "cp a.* dataset.json local0/built",
             shards_here);
    return system(command);
}

static int end(void **state)
{
    (void)state;
    close(held[0]);
    shards_directory_remove(shards_here); /* what was left behind keeps the group */
    return 0;
}

static void heal(void)
{
    const uint64_t until = rks_now_ms() + WAIT_MS;
    atomic_store(&linked, NULL);
    atomic_store(&opened, NULL);
    atomic_store(&renamed, NULL);
    close(held[1]);
    while (atomic_load(&hanging) > 0 && rks_now_ms() < until)
        usleep(2000);
}

/* Opens the home, and stages from it. */
static rks_status stage(member *m, rks_staging **staging)
{
    static const rks_home_limits limits = {.stall_ms = WAIT_MS, .hang_ms = HANG_MS};
    rks_dataset *dataset = NULL;
    rks_home *home = NULL;
    EXPECT_OK(rks_dataset_load(kept, &dataset, &m->err));
    EXPECT_OK(rks_home_open(kept, &limits, &home, &m->err));
    const rks_staging_options options = {.home = kept,
                                         .opened = &home,
                                         .local = locals[m->rank],
                                         .folder = "id",
                                         .everywhere = true};
    rks_status status = rks_staging_begin(m->group, RKS_OK, dataset, &options, staging, &m->err);
    rks_dataset_free(dataset); /* what hangs has its own */
    return status;
}

static void stage_twice(member *m)
{
    rks_staging *staging = NULL;
    char node[8];
    snprintf(node, sizeof(node), "n%u", m->rank);
    EXPECT_OK(open_group_on(m->bootstrap, node, SILENCE_MS, &m->group, &m->err));
    if (m->group == NULL)
        return;
    EXPECT(stage(m, &staging) == RKS_ERR_TIMEOUT);
    EXPECT_TEXT(locals[0]);
    EXPECT_TEXT(": its storage has not answered for ");
    EXPECT_TEXT("see whether `ls` comes back there");
    EXPECT_OK(rks_group_agree(m->group, "both have failed", RKS_OK, &m->err));
    if (m->rank == 0)
        heal();
    EXPECT_OK(rks_group_agree(m->group, "healed", RKS_OK, &m->err));
    staging = NULL;
    EXPECT_OK(stage(m, &staging));
    if (m->failures == 0)
        EXPECT_OK(rks_staging_wait(staging, RKS_ARRIVALS_WHOLE, NULL, NULL, &m->err));
    rks_staging_end(staging);
}

static void stages_when_it_answers(void)
{
    member_start start = {stage_twice, NULL};
    rks_error err = {0};
    int code = -1;
    char sealed[600];
    alarm(LIMIT_S);
    assert_ok(rks_launch_threads(2, run_member, &start, &code, &err), &err);
    alarm(0);
    assert_int_equal(code, 0);
    for (int i = 0; i < 2; i++) {
        snprintf(sealed, sizeof(sealed), "%s/id/a.json", locals[i]);
        assert_int_equal(access(sealed, F_OK), 0);
    }
}

static void a_link_that_hangs_ends_the_opening(void **state)
{
    (void)state;
    atomic_store(&linked, "id/a.rks");
    stages_when_it_answers();
}

static void a_look_that_hangs_ends_the_opening(void **state)
{
    (void)state;
    char command[1024];
    snprintf(command, sizeof(command), "mkdir '%s/id' && mv '%s/built'/a.* '%s/id'", locals[0],
             locals[0], locals[0]);
    assert_int_equal(system(command), 0);
    atomic_store(&opened, "id/a.json");
    stages_when_it_answers();
}

static void a_description_that_hangs_ends_the_opening(void **state)
{
    (void)state;
    atomic_store(&renamed, "id/home.json");
    stages_when_it_answers();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_link_that_hangs_ends_the_opening, begin, end),
        cmocka_unit_test_setup_teardown(a_look_that_hangs_ends_the_opening, begin, end),
        cmocka_unit_test_setup_teardown(a_description_that_hangs_ends_the_opening, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
