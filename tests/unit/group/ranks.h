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
} * shared;

static inline void share_memory(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* per_node: 0: all ranks are on one node. */
static inline rks_status try_to_open(member *m, const rks_bootstrap *bootstrap, uint32_t silence_ms,
                                     uint32_t per_node)
{
    rks_group_options options;
    char node[16];
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    options.silence_ms = silence_ms;
    if (per_node > 0) {
        snprintf(node, sizeof(node), "n%u", m->rank / per_node);
        options.node = node;
    }
    return rks_group_open(&options, &m->group, &m->err);
}

/* False: a failure is counted, and there is nothing to go on with. */
static inline bool open_group(member *m, uint32_t silence_ms, uint32_t per_node)
{
    EXPECT(try_to_open(m, m->bootstrap, silence_ms, per_node) == RKS_OK);
    return m->group != NULL;
}

#endif
