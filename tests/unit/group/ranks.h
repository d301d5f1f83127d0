/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h: what the tests of the group share: opening it, and memory that forked ranks share. */
#ifndef RKS_TEST_GROUP_RANKS_H
#define RKS_TEST_GROUP_RANKS_H

#include "support/ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

enum { RANKS_MAX = 16 };

/* In memory that forked ranks share. */
static struct shared {
    atomic_int ready;
    atomic_int failures;
    atomic_int statuses[RANKS_MAX];
    rks_error errors[RANKS_MAX];
} *shared;

static inline void share_memory(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* per_node: 0: all ranks are on one node. */
static inline rks_status try_to_open(member *m, const rks_bootstrap *bootstrap, uint32_t silence_ms,
                                     uint32_t per_node)
{
    char node[16];
    snprintf(node, sizeof(node), "n%u", per_node > 0 ? m->rank / per_node : 0);
    return open_group_on(bootstrap, per_node > 0 ? node : NULL, silence_ms, &m->group, &m->err);
}

/* False: a failure is counted, and there is nothing to go on with. */
static inline bool open_group(member *m, uint32_t silence_ms, uint32_t per_node)
{
    EXPECT(try_to_open(m, m->bootstrap, silence_ms, per_node) == RKS_OK);
    return m->group != NULL;
}

/* Errors of the group hold nothing private. */
static inline bool is_plain(const rks_error *err)
{
    static const uint8_t zero[sizeof(err->reserved)];
    return memcmp(err->reserved, zero, sizeof(zero)) == 0;
}

/* As on_threads, and what the ranks wrote to stderr; `words` has room for SAID_MAX bytes. */
enum { SAID_MAX = 4096 };
static inline size_t heard(int file, char *words)
{
    ssize_t size = pread(file, words, SAID_MAX - 1, 0);
    words[size < 0 ? 0 : size] = '\0';
    return size < 0 ? 0 : (size_t)size;
}

/* Within hear_threads: a rank goes on when this has been written to stderr. */
static inline void wait_until_heard(const char *part)
{
    char words[SAID_MAX];
    for (uint64_t until_ms = rks_now_ms() + 20000; rks_now_ms() < until_ms; usleep(1000))
        if (heard(STDERR_FILENO, words) > 0 && strstr(words, part) != NULL)
            return;
}

static inline void hear_threads(uint32_t ranks, member_fn body, void *user, char *words)
{
    char path[] = "/tmp/rankstore-test-XXXXXX";
    int file = mkstemp(path), before = dup(STDERR_FILENO), code = -1;
    member_start start = {body, user};
    rks_error err = {0};
    unlink(path);
    dup2(file, STDERR_FILENO);
    alarm(LIMIT_S);
    rks_status status = rks_launch_threads(ranks, run_member, &start, &code, &err);
    alarm(0);
    dup2(before, STDERR_FILENO);
    close(before);
    heard(file, words);
    close(file);
    if (code != 0)
        print_error("%s", words);
    assert_ok(status, &err);
    assert_int_equal(code, 0);
}

#endif
