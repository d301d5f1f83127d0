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

/* One rank of a test, as its body sees it. */
typedef struct member {
    const rks_bootstrap *bootstrap;
    uint32_t rank, size;
    rks_group *group; /* NULL until it is opened; closed behind the body */
    rks_error err;
    int failures;
    int code; /* what the rank ends with where nothing failed */
    void *user;
} member;

typedef void (*member_fn)(member *m);

/* A rank's checks are plain: cmocka's assertions belong to the main thread. Needs `m`. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %u: %s:%d: %s (%s)\n", m->rank, __FILE__, __LINE__, #condition,  \
                    m->err.text);                                                                  \
            m->failures++;                                                                         \
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

typedef struct member_start {
    member_fn body;
    void *user;
} member_start;

static inline int run_member(const rks_bootstrap *bootstrap, void *user)
{
    const member_start *start = user;
    member m = {.bootstrap = bootstrap,
                .rank = bootstrap->rank,
                .size = bootstrap->size,
                .user = start->user};
    start->body(&m);
    rks_group_close(m.group);
    return m.failures > 0 ? m.failures : m.code;
}

static inline void on_threads(uint32_t ranks, member_fn body, void *user)
{
    member_start start = {body, user};
    rks_error err = {0};
    int code = -1;
    alarm(LIMIT_S);
    assert_ok(rks_launch_threads(ranks, run_member, &start, &code, &err), &err);
    alarm(0);
    assert_int_equal(code, 0);
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

/* The exit code of the first rank that did not end with 0. */
static inline int on_processes(uint32_t ranks, member_fn body, void *user)
{
    member_start start = {body, user};
    rks_error err = {0};
    int code = -1;
    alarm(LIMIT_S);
    assert_ok(rks_launch(ranks, run_member, &start, &code, &err), &err);
    alarm(0);
    return code;
}

#endif
