/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h: tests whose ranks are threads or processes: what one rank's body sees, and its checks.
 *
 *   static void body(member *m) { ... EXPECT(...) ... }
 *   on_threads(4, body, user);
 */
#ifndef RKS_TESTS_RANKS_H
#define RKS_TESTS_RANKS_H

#include "support/check.h"

#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "group/group.h"

/* One rank of a test. */
typedef struct member {
    const rks_bootstrap *bootstrap;
    uint32_t rank, size;
    rks_group *group; /* NULL until it is opened; closed after the body */
    rks_error err;
    int failures;
    int code; /* what the rank ends with where nothing failed */
    void *user;
} member;

typedef void (*member_fn)(member *m);

/* A rank's checks are plain: cmocka's assertions belong to the main thread. They need `m`. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %u: %s:%d: %s (%s)\n", m->rank, __FILE__, __LINE__, #condition,  \
                    m->err.text);                                                                  \
            m->failures++;                                                                         \
        }                                                                                          \
    } while (0)
#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        rks_status status_ = (call);                                                               \
        if (status_ != RKS_OK) {                                                                   \
            fprintf(stderr, "rank %u: %s:%d: %s: %s\n", m->rank, __FILE__, __LINE__,               \
                    rks_status_name(status_), m->err.text);                                        \
            m->failures++;                                                                         \
        }                                                                                          \
    } while (0)
/* That the error says so. */
#define EXPECT_TEXT(part)                                                                          \
    do {                                                                                           \
        if (strstr(m->err.text, (part)) == NULL) {                                                 \
            fprintf(stderr, "rank %u: %s:%d: \"%s\" does not contain \"%s\"\n", m->rank, __FILE__, \
                    __LINE__, m->err.text, (part));                                                \
            m->failures++;                                                                         \
        }                                                                                          \
    } while (0)

/* node: NULL: this machine's name. silence_ms: 0: the default. */
static inline rks_status open_group_on(const rks_bootstrap *bootstrap, const char *node,
                                       uint32_t silence_ms, rks_group **group, rks_error *err)
{
    rks_group_options options;
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    if (node != NULL)
        options.node = node;
    if (silence_ms != 0)
        options.silence_ms = silence_ms;
    return rks_group_open(&options, group, err);
}

enum { LIMIT_S = 600, CLOSE_MS = 120000 }; /* only end what hangs */

typedef struct member_start {
    member_fn body;
    void *user;
} member_start;

/* A rank's main function: `user` is a member_start. */
static inline int run_member(const rks_bootstrap *bootstrap, void *user)
{
    const member_start *start = user;
    member m = {
        .bootstrap = bootstrap,
        .rank = bootstrap->rank,
        .size = bootstrap->size,
        .user = start->user,
    };
    start->body(&m);
    rks_group_close(m.group);
    return m.failures > 0 ? m.failures : m.code;
}

/* Fails where a rank does, and where anything is left. */
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
