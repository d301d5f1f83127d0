/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h: what the tests of the group share: ranks as threads, and memory that forked ranks
 * share. */
#ifndef RKS_TEST_GROUP_RANKS_H
#define RKS_TEST_GROUP_RANKS_H

#include "support/check.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "group/group.h"

/* A rank's checks are plain: cmocka's assertions belong to the main thread. Needs `rank`, `err` and
 * `failures`. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %u: %s:%d: %s (%s)\n", rank, __FILE__, __LINE__, #condition,     \
                    err.text);                                                                     \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

enum { LIMIT_S = 60, RANKS_MAX = 16 };

/* In memory that forked ranks share. */
static struct shared {
    atomic_int ready;
    atomic_int failures;
    atomic_int statuses[RANKS_MAX];
    rks_error errors[RANKS_MAX];
} * shared;

static inline void share_memory(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* per_node: 0: all ranks are on one node. */
static inline rks_status open_group(const rks_bootstrap *bootstrap, uint32_t silence_ms,
                                    uint32_t per_node, rks_group **group, rks_error *err)
{
    rks_group_options options;
    char node[16];
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    options.silence_ms = silence_ms;
    if (per_node > 0) {
        snprintf(node, sizeof(node), "n%u", bootstrap->rank / per_node);
        options.node = node;
    }
    return rks_group_open(&options, group, err);
}

static inline void on_threads(uint32_t ranks, rks_rank_fn body, void *user)
{
    rks_error err = {0};
    int code = -1;
    alarm(LIMIT_S);
    assert_ok(rks_launch_threads(ranks, body, user, &code, &err), &err);
    alarm(0);
    assert_int_equal(code, 0);
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

#endif
