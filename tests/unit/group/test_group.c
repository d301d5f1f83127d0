/* SPDX-License-Identifier: Apache-2.0
 *
 * test_group.c: ranks that agree, share and fail together: as threads, and as processes that are
 * killed and stopped. */
#include "support/check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "group/group.h"

/* A rank's checks are plain: cmocka's assertions belong to the main thread. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %u: %s:%d: %s\n", rank, __FILE__, __LINE__, #condition);         \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static const uint32_t T = 1000;

static rks_status open_group(const rks_bootstrap *bootstrap, rks_group **group, rks_error *err)
{
    rks_group_options options;
    char node[16];
    const char *per_node = getenv("TEST_RANKS_PER_NODE");
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    options.silence_ms = T;
    if (per_node != NULL) {
        snprintf(node, sizeof(node), "n%u", bootstrap->rank / (uint32_t)atoi(per_node));
        options.node = node;
    }
    return rks_group_open(&options, group, err);
}

static void on_threads(uint32_t ranks, rks_rank_fn body, void *user)
{
    rks_error err = {0};
    int code = -1;
    alarm(60);
    assert_ok(rks_launch_threads(ranks, body, user, &code, &err), &err);
    assert_int_equal(code, 0);
    assert_int_equal(rks_memory_in_use(), 0);
    alarm(0);
}

/* ---- collectives ------------------------------------------------------------------------- */

static int gather_uneven(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank, size = bootstrap->size;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    uint8_t *all = NULL, mine[64];
    uint64_t *offsets = NULL;
    (void)user;
    EXPECT(open_group(bootstrap, &group, &err) == RKS_OK);
    if (group == NULL)
        return 1;
    memset(mine, (int)rank, sizeof(mine));
    EXPECT(rks_group_allgather(group, "uneven", RKS_OK, mine, rank % 7, &all, &offsets, &err) ==
           RKS_OK);
    for (uint32_t other = 0; all != NULL && other < size; other++) {
        EXPECT(offsets[other + 1] - offsets[other] == other % 7);
        for (uint64_t at = offsets[other]; at < offsets[other + 1]; at++)
            EXPECT(all[at] == (uint8_t)other);
    }
    rks_free(all);
    rks_free(offsets);
    uint32_t word = rank;
    EXPECT(rks_group_broadcast(group, "word", size - 1, &word, sizeof(word), &err) == RKS_OK);
    EXPECT(word == size - 1);
    EXPECT(rks_group_agree(group, "done", RKS_OK, &err) == RKS_OK);
    rks_group_close(group);
    return failures;
}

static void uneven_bytes_reach_every_rank_in_rank_order(void **state)
{
    (void)state;
    static const char *const per_node[] = {NULL, "1", "3"};
    for (size_t i = 0; i < 3; i++) {
        if (per_node[i] != NULL)
            setenv("TEST_RANKS_PER_NODE", per_node[i], 1);
        on_threads(1, gather_uneven, NULL);
        on_threads(2, gather_uneven, NULL);
        on_threads(8, gather_uneven, NULL);
    }
    unsetenv("TEST_RANKS_PER_NODE");
}

static int gather_large(const rks_bootstrap *bootstrap, void *user)
{
    enum { SIZE = 3 << 20 };
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    uint8_t *all = NULL, *mine = calloc(SIZE, 1);
    uint64_t *offsets = NULL;
    (void)user;
    memset(mine, (int)rank + 1, SIZE);
    EXPECT(open_group(bootstrap, &group, &err) == RKS_OK);
    EXPECT(rks_group_allgather(group, "large", RKS_OK, mine, SIZE - rank, &all, &offsets, &err) ==
           RKS_OK);
    EXPECT(all != NULL && all[0] == 1 && all[offsets[1]] == 2 && all[offsets[3] - 1] == 3);
    rks_free(all);
    rks_free(offsets);
    free(mine);
    rks_group_close(group);
    return failures;
}

static void a_message_larger_than_a_note_arrives_whole(void **state)
{
    (void)state;
    on_threads(3, gather_large, NULL);
}

static int fail_some(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_status status = RKS_OK;
    (void)user;
    EXPECT(open_group(bootstrap, &group, &err) == RKS_OK);
    if (rank == 2 || rank == 4)
        status = rks_fail(&err, RKS_ERR_DATA, 17, "file %u: line 9 is odd", rank);
    EXPECT(rks_group_agree(group, "reading", status, &err) == RKS_ERR_DATA);
    EXPECT(err.rank == 2 && err.cause == 17 && err.host[0] != '\0');
    EXPECT(strcmp(err.text, "file 2: line 9 is odd") == 0);
    EXPECT(rks_group_agree(group, "going on", RKS_OK, &err) == RKS_OK);
    rks_group_close(group);
    return failures;
}

static void the_lowest_failing_rank_s_error_is_every_rank_s(void **state)
{
    (void)state;
    on_threads(5, fail_some, NULL);
    setenv("TEST_RANKS_PER_NODE", "2", 1);
    on_threads(6, fail_some, NULL);
    unsetenv("TEST_RANKS_PER_NODE");
}

static int stop_early(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_status status = RKS_OK;
    (void)user;
    EXPECT(open_group(bootstrap, &group, &err) == RKS_OK);
    EXPECT(rank != 3 || rks_group_must_stop(group, &err) == RKS_OK); /* others may hear at once */
    if (rank == 3)
        status = rks_fail(&err, RKS_ERR_IO, 5, "disk of rank 3");
    uint64_t until = rks_now_ms() + 20000;
    while (status == RKS_OK && rks_now_ms() < until)
        status = rks_group_must_stop(group, &err);
    EXPECT(rks_group_agree(group, "long work", status, &err) == RKS_ERR_IO);
    EXPECT(err.rank == 3 && strcmp(err.text, "disk of rank 3") == 0);
    rks_group_close(group);
    return failures;
}

static void long_work_hears_of_a_failure_before_it_ends(void **state)
{
    (void)state;
    on_threads(4, stop_early, NULL);
}

static int mismatch(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    (void)user;
    EXPECT(open_group(bootstrap, &group, &err) == RKS_OK);
    EXPECT(rks_group_agree(group, rank == 1 ? "gather" : "plan", RKS_OK, &err) == RKS_ERR_STATE);
    EXPECT(strstr(err.text, "'gather'") != NULL && strstr(err.text, "'plan'") != NULL);
    rks_group_close(group);
    return failures;
}

static void ranks_in_different_calls_find_out(void **state)
{
    (void)state;
    on_threads(3, mismatch, NULL);
}

static int differ(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_group_options options;
    (void)user;
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    options.silence_ms = rank == 2 ? 2000 : T;
    EXPECT(rks_group_open(&options, &group, &err) == RKS_ERR_ARGUMENT);
    EXPECT(strstr(err.text, "silence_ms") != NULL && strstr(err.text, "rank 2") != NULL);
    return failures;
}

static void an_option_that_differs_is_named_with_two_ranks(void **state)
{
    (void)state;
    on_threads(3, differ, NULL);
}

/* ---- life ---------------------------------------------------------------------------------- */

static int work_long(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    (void)user;
    EXPECT(open_group(bootstrap, &group, &err) == RKS_OK);
    if (rank == 1) { /* works for five times T without a call, as in a callback */
        volatile uint64_t sum = 0;
        for (uint64_t until = rks_now_ms() + 5 * T; rks_now_ms() < until;)
            sum += rks_now_ns();
    }
    EXPECT(rks_group_agree(group, "work", RKS_OK, &err) == RKS_OK);
    rks_group_close(group);
    return failures;
}

static void a_rank_that_works_longer_than_the_silence_limit_is_waited_for(void **state)
{
    (void)state;
    on_threads(3, work_long, NULL);
}

static int leave(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    (void)user;
    EXPECT(open_group(bootstrap, &group, &err) == RKS_OK);
    if (rank != 1) {
        EXPECT(rks_group_agree(group, "work", RKS_OK, &err) == RKS_ERR_PEER);
        EXPECT(strstr(err.text, "rank 1") != NULL);
    }
    rks_group_close(group);
    return failures;
}

static void a_rank_that_leaves_in_order_is_named(void **state)
{
    (void)state;
    on_threads(4, leave, NULL);
}

/* ---- processes --------------------------------------------------------------------------------
 */

typedef struct fate {
    uint32_t victim;
    int signal;
} fate;

/* How many ranks have passed the point behind which the victim may go; shared by the processes. */
static _Atomic int *passed;

static int meet_fate(const rks_bootstrap *bootstrap, void *user)
{
    const fate *f = user;
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    char name[32];
    alarm(30);
    snprintf(name, sizeof(name), "rank %u", f->victim);
    EXPECT(open_group(bootstrap, &group, &err) == RKS_OK);
    EXPECT(rks_group_agree(group, "before", RKS_OK, &err) == RKS_OK);
    if (rank == f->victim) {
        while (*passed < 3)
            rks_check_interrupt(NULL);
        raise(f->signal);
        return 1;
    }
    ++*passed;
    uint64_t begun = rks_now_ms();
    rks_status status = rks_group_agree(group, "after", RKS_OK, &err);
    EXPECT(status == RKS_ERR_PEER || status == RKS_ERR_TIMEOUT);
    EXPECT(strstr(err.text, name) != NULL && err.rank == (int32_t)f->victim);
    EXPECT(rks_now_ms() - begun < T + 3000);
    rks_group_close(group);
    if (f->signal == SIGSTOP && rank == (f->victim == 0 ? 1 : 0)) {
        /* Nobody ends a stopped process but its supervisor, after a grace; don't wait for that. */
        _exit(failures == 0 ? 42 : 1);
    }
    return failures == 0 ? 42 : 1;
}

static void a_killed_process_ends_the_others_with_its_name(void **state)
{
    (void)state;
    rks_error err = {0};
    for (uint32_t victim = 0; victim < 4; victim += victim == 0 ? 1 : 2) {
        fate f = {victim, SIGKILL};
        int code = 0;
        *passed = 0;
        alarm(60);
        setenv("TEST_RANKS_PER_NODE", "2", 1);
        assert_ok(rks_launch(4, meet_fate, &f, &code, &err), &err);
        unsetenv("TEST_RANKS_PER_NODE");
        assert_int_equal(code, 128 + SIGKILL);
        alarm(0);
    }
}

static int stop_and_see(const rks_bootstrap *bootstrap, void *user)
{
    return meet_fate(bootstrap, user);
}

static void a_stopped_process_ends_the_others_within_the_silence_limit(void **state)
{
    (void)state;
    rks_error err = {0};
    fate f = {2, SIGSTOP};
    int code = 0;
    *passed = 0;
    uint64_t begun = rks_now_ms();
    alarm(90);
    setenv("RKS_LAUNCH_GRACE_MS", "2000", 1);
    assert_ok(rks_launch(4, stop_and_see, &f, &code, &err), &err);
    unsetenv("RKS_LAUNCH_GRACE_MS");
    assert_int_equal(code, 42);
    assert_true(rks_now_ms() - begun < 30000);
    alarm(0);
}

/* ---- sharing ----------------------------------------------------------------------------------
 */

static int share(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0, fd = -1, shared = -1;
    rks_error err = {0};
    rks_group *group = NULL;
    char text[16] = "", wanted[16];
    (void)user;
    EXPECT(open_group(bootstrap, &group, &err) == RKS_OK);
    if (rks_group_is_leader(group)) {
        fd = memfd_create("test", MFD_CLOEXEC);
        snprintf(text, sizeof(text), "from %u", rank);
        EXPECT(write(fd, text, sizeof(text)) == sizeof(text));
    }
    EXPECT(rks_group_share_fd(group, fd, &shared, &err) == RKS_OK);
    EXPECT(pread(shared, text, sizeof(text), 0) == sizeof(text));
    snprintf(wanted, sizeof(wanted), "from %u", rks_group_leader(group, rks_group_node(group)));
    EXPECT(strcmp(text, wanted) == 0);
    EXPECT(rks_group_agree(group, "seen", RKS_OK, &err) == RKS_OK);
    close(shared);
    if (fd >= 0)
        close(fd);
    rks_group_close(group);
    return failures;
}

static void a_leader_s_descriptor_reaches_its_node_and_no_other(void **state)
{
    (void)state;
    rks_error err = {0};
    int code = -1;
    setenv("TEST_RANKS_PER_NODE", "2", 1);
    on_threads(5, share, NULL);
    alarm(60);
    assert_ok(rks_launch(5, share, NULL, &code, &err), &err);
    assert_int_equal(code, 0);
    alarm(0);
    unsetenv("TEST_RANKS_PER_NODE");
}

/* ---- failing allocations ------------------------------------------------------------------- */

/* Rank 1 brings an error while the n-th allocation fails, of whichever rank's: both hear of one. */
static int error_without_memory(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    EXPECT(open_group(bootstrap, &group, &err) == RKS_OK);
    if (group == NULL)
        return 1;
    rks_status status = rks_group_agree(group, "ready", RKS_OK, &err);
    EXPECT(status == RKS_OK);
    if (rank == 1) {
        status = rks_fail(&err, RKS_ERR_DATA, 0, "a bad line");
        rks_memory_fail_at(*(const long *)user);
    }
    status = rks_group_agree(group, "work", status, &err);
    rks_memory_fail_at(0);
    EXPECT(status != RKS_OK);
    /* Not that rank 1 has closed its group, which may be long after. */
    EXPECT(rank != 0 || strstr(err.text, "a bad line") != NULL ||
           strstr(err.text, "memory") != NULL);
    rks_group_close(group);
    return failures;
}

static void an_error_reaches_all_ranks_where_memory_ends_on_the_way(void **state)
{
    (void)state;
    for (long n = 1; n <= 12; n++)
        on_threads(2, error_without_memory, &n);
}

/* ---- I/O threads ---------------------------------------------------------------------------- */

enum { REQUESTS = 12, THREADS = 3 };

typedef struct crowd {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int inside, most, answered; /* guarded by mutex */
} crowd;

/* Stays until as many are inside as there can be threads, and then for a while: one more would come
 * in. */
static void serve_slowly(void *user, rks_request *request)
{
    crowd *c = user;
    pthread_mutex_lock(&c->mutex);
    if (++c->inside > c->most)
        c->most = c->inside;
    pthread_cond_broadcast(&c->changed);
    for (int i = 0; i < 100 && c->most < THREADS; i++)
        rks_cond_wait_ms(&c->changed, &c->mutex, 100);
    pthread_mutex_unlock(&c->mutex);
    usleep(30000);
    pthread_mutex_lock(&c->mutex);
    c->inside--;
    pthread_mutex_unlock(&c->mutex);
    rks_request_reply(request, NULL, 0, NULL, NULL);
}

static void *place_none(void *user, size_t size)
{
    (void)user;
    (void)size;
    return NULL;
}

static void count_answer(void *user, const rks_error *err)
{
    crowd *c = user;
    pthread_mutex_lock(&c->mutex);
    c->answered += err == NULL;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

static int crowd_rank(const rks_bootstrap *bootstrap, void *user)
{
    crowd *c = user;
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_group_options options;
    rks_group_options_default(&options);
    EXPECT(options.io_threads == 16);
    options.bootstrap = bootstrap;
    options.io_threads = THREADS;
    EXPECT(rks_group_open(&options, &group, &err) == RKS_OK);
    if (group == NULL)
        return 1;
    rks_engine *engine = rks_group_engine(group);
    if (rank == 0)
        rks_engine_serve(engine, RKS_SERVICE_FETCH, serve_slowly, NULL, c);
    EXPECT(rks_group_agree(group, "serving", RKS_OK, &err) == RKS_OK);
    rks_reply_sink sink = {.place = place_none, .done = count_answer, .user = c};
    for (int i = 0; rank == 1 && i < REQUESTS; i++)
        EXPECT(rks_engine_request(engine, 0, RKS_SERVICE_FETCH, "?", 1, "test", &sink, &err) ==
               RKS_OK);
    pthread_mutex_lock(&c->mutex);
    for (int i = 0; i < 300 && c->answered < REQUESTS; i++)
        rks_cond_wait_ms(&c->changed, &c->mutex, 100);
    EXPECT(c->answered == REQUESTS && c->most == THREADS);
    pthread_mutex_unlock(&c->mutex);
    rks_group_close(group);
    return failures;
}

static void as_many_threads_serve_as_the_group_s_option_says(void **state)
{
    (void)state;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_group_options options;
    crowd c = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    assert_int_equal(rks_cond_init(&c.changed), 0);
    on_threads(2, crowd_rank, &c);
    pthread_cond_destroy(&c.changed);
    rks_group_options_default(&options);
    options.io_threads = 1025;
    assert_fails(RKS_ERR_ARGUMENT, rks_group_open(&options, &group, &err));
    assert_contains(err.text, "io_threads");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_reaches_all_ranks_where_memory_ends_on_the_way),
        cmocka_unit_test(uneven_bytes_reach_every_rank_in_rank_order),
        cmocka_unit_test(a_message_larger_than_a_note_arrives_whole),
        cmocka_unit_test(the_lowest_failing_rank_s_error_is_every_rank_s),
        cmocka_unit_test(long_work_hears_of_a_failure_before_it_ends),
        cmocka_unit_test(ranks_in_different_calls_find_out),
        cmocka_unit_test(an_option_that_differs_is_named_with_two_ranks),
        cmocka_unit_test(a_rank_that_works_longer_than_the_silence_limit_is_waited_for),
        cmocka_unit_test(a_rank_that_leaves_in_order_is_named),
        cmocka_unit_test(a_killed_process_ends_the_others_with_its_name),
        cmocka_unit_test(a_stopped_process_ends_the_others_within_the_silence_limit),
        cmocka_unit_test(a_leader_s_descriptor_reaches_its_node_and_no_other),
        cmocka_unit_test(as_many_threads_serve_as_the_group_s_option_says),
    };
    passed = mmap(NULL, sizeof(*passed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
