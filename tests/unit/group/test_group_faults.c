/* SPDX-License-Identifier: Apache-2.0
 *
 * test_group_faults.c: ranks that run out of memory, are interrupted, leave, stop or are killed,
 * each at its worst moment: the others end with its name, nobody hangs, nothing is left. */
#include "support/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "group/group.h"

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %u: %s:%d: %s (%s)\n", rank, __FILE__, __LINE__, #condition,     \
                    err.text);                                                                     \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

enum { T = 500, LIMIT_S = 60 };

/* In memory that forked ranks share. */
static struct shared {
    atomic_int ready;
    atomic_int gone;
    atomic_int statuses[16];
} * shared;

static rks_status open_group(const rks_bootstrap *bootstrap, uint32_t silence_ms, uint32_t per_node,
                             rks_group **group, rks_error *err)
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

static void on_threads(uint32_t ranks, rks_rank_fn body, void *user)
{
    rks_error err = {0};
    int code = -1;
    alarm(LIMIT_S);
    assert_ok(rks_launch_threads(ranks, body, user, &code, &err), &err);
    alarm(0);
    assert_int_equal(code, 0);
    assert_int_equal(rks_memory_in_use(), 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int open_and_close(const rks_bootstrap *bootstrap, void *user)
{
    rks_error err = {0};
    rks_group *group = NULL;
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    (void)user;
    rks_status status = open_group(bootstrap, 200, 1, &group, &err);
    if (status == RKS_OK)
        status = rks_group_allgather(group, "bytes", RKS_OK, "abc", 3, &all, &offsets, &err);
    rks_free(all);
    rks_free(offsets);
    rks_group_close(group);
    shared->statuses[bootstrap->rank] = status;
    return 0;
}

static void each_failing_allocation_is_every_rank_s_error_and_no_hang(void **state)
{
    (void)state;
    rks_error err = {0};
    int code, clean = 0, failed = 0;
    for (long n = 1; clean < 3 && n < 2000; n++) {
        alarm(LIMIT_S);
        rks_memory_fail_at(n);
        rks_status status = rks_launch_threads(2, open_and_close, NULL, &code, &err);
        rks_memory_fail_at(0);
        assert_int_equal(rks_memory_in_use(), 0);
        if (status != RKS_OK) { /* the launcher's own */
            assert_fails(RKS_ERR_MEMORY, status);
            continue;
        }
        bool well = shared->statuses[0] == RKS_OK;
        /* A closing that lacks memory may be the last thing that happens: the others are done. */
        assert_true(well == (shared->statuses[1] == RKS_OK));
        failed += !well;
        clean = well ? clean + 1 : 0;
    }
    alarm(0);
    assert_true(clean == 3 && failed > 20);
}

/* ---- interrupts --------------------------------------------------------------------------------
 */

static pthread_t interrupted_thread;
static atomic_bool interrupt_on;

static int interrupt_one(void *user)
{
    (void)user;
    return atomic_load(&interrupt_on) && pthread_equal(pthread_self(), interrupted_thread);
}

static int wait_and_be_interrupted(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    (void)user;
    EXPECT(open_group(bootstrap, 2000, 2, &group, &err) == RKS_OK);
    if (rank == 3) {
        interrupted_thread = pthread_self();
        interrupt_on = true;
    }
    if (rank == 0) /* never comes to the collective by itself */
        while (!rks_group_failed(group))
            rks_check_interrupt(NULL);
    EXPECT(rks_group_agree(group, "waiting", RKS_OK, &err) == RKS_ERR_CANCELLED);
    EXPECT(err.rank == 3 && strstr(err.text, "interrupted") != NULL);
    EXPECT(rks_group_agree(group, "later", RKS_OK, &err) == RKS_ERR_CANCELLED);
    rks_group_close(group);
    return failures;
}

static void an_interrupted_rank_brings_the_others_out(void **state)
{
    (void)state;
    interrupt_on = false;
    rks_set_interrupt(interrupt_one, NULL);
    on_threads(5, wait_and_be_interrupted, NULL);
    rks_set_interrupt(NULL, NULL);
}

/* ---- threads that go ---------------------------------------------------------------------------
 */

static rks_group *left_behind;

static int go_without_a_word(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    (void)user;
    EXPECT(open_group(bootstrap, 300, 0, &group, &err) == RKS_OK);
    if (rank == 1) {
        left_behind = group; /* it goes on beating */
        return 0;
    }
    EXPECT(rks_group_agree(group, "work", RKS_OK, &err) == RKS_ERR_PEER);
    EXPECT(err.rank == 1 && strstr(err.text, "rank 1") != NULL);
    rks_group_close(group);
    if (rank == 0)
        rks_group_close(left_behind); /* so that this test leaks nothing */
    return failures;
}

static void a_thread_that_ends_without_closing_is_named(void **state)
{
    (void)state;
    on_threads(3, go_without_a_word, NULL);
}

static int stay_away(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    (void)user;
    if (rank == 2)
        return 0;
    rks_status status = open_group(bootstrap, 300, 0, &group, &err);
    EXPECT(status == RKS_ERR_TIMEOUT || status == RKS_ERR_PEER);
    EXPECT(err.rank == 2 && strstr(err.text, "rank 2") != NULL);
    return failures;
}

static void a_rank_that_never_opens_the_group_is_named(void **state)
{
    (void)state;
    on_threads(4, stay_away, NULL);
}

static int bad_option(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_group_options options;
    (void)user;
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    if (rank == 1)
        options.secret_file = "/nonexistent/secret";
    EXPECT(rks_group_open(&options, &group, &err) == RKS_ERR_IO);
    EXPECT(err.rank == 1 && strstr(err.text, "/nonexistent/secret") != NULL);
    return failures;
}

static void a_bad_option_of_one_rank_is_every_rank_s_error(void **state)
{
    (void)state;
    on_threads(3, bad_option, NULL);
}

/* ---- large and wide ----------------------------------------------------------------------------
 */

static int agree_many(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank, size = bootstrap->size;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    EXPECT(open_group(bootstrap, 5000, *(const uint32_t *)user, &group, &err) == RKS_OK);
    if (group == NULL)
        return 1;
    uint32_t words[3] = {rank, rank * rank, ~rank};
    EXPECT(rks_group_allgather(group, "words", RKS_OK, words, sizeof(uint32_t) * (rank % 4), &all,
                               &offsets, &err) == RKS_OK);
    for (uint32_t other = 0; all != NULL && other < size; other++) {
        uint32_t theirs[3] = {other, other * other, ~other};
        EXPECT(offsets[other + 1] - offsets[other] == sizeof(uint32_t) * (other % 4));
        EXPECT(memcmp(all + offsets[other], theirs, sizeof(uint32_t) * (other % 4)) == 0);
    }
    rks_free(all);
    rks_free(offsets);
    rks_status mine = RKS_OK;
    if (rank >= size / 2)
        mine = rks_fail(&err, RKS_ERR_DATA, rank, "rank %u has had enough", rank);
    EXPECT(rks_group_agree(group, "enough", mine, &err) == RKS_ERR_DATA);
    EXPECT(err.rank == (int32_t)(size / 2) && err.cause == size / 2);
    EXPECT(rks_group_agree(group, "end", RKS_OK, &err) == RKS_OK);
    rks_group_close(group);
    return failures;
}

static void groups_of_many_sizes_and_shapes_agree(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 5, 16, 48};
    static const uint32_t per_node[] = {0, 1, 6};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (size_t j = 0; j < sizeof(per_node) / sizeof(per_node[0]); j++)
            on_threads(sizes[i], agree_many, (void *)(uintptr_t)&per_node[j]);
}

static int broadcast_large(const rks_bootstrap *bootstrap, void *user)
{
    enum { SIZE = (9 << 20) + 17 }; /* more pieces than may be under way */
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    uint8_t *bytes = calloc(SIZE, 1);
    (void)user;
    EXPECT(open_group(bootstrap, 5000, 2, &group, &err) == RKS_OK);
    for (size_t i = 0; rank == 3 && i < SIZE; i++)
        bytes[i] = (uint8_t)(i * 31 >> 3);
    EXPECT(rks_group_broadcast(group, "bytes of rank 3", 3, bytes, SIZE, &err) == RKS_OK);
    size_t wrong = 0;
    for (size_t i = 0; i < SIZE; i++)
        wrong += bytes[i] != (uint8_t)(i * 31 >> 3);
    EXPECT(wrong == 0);
    free(bytes);
    rks_group_close(group);
    return failures;
}

static void a_broadcast_larger_than_the_window_arrives_whole(void **state)
{
    (void)state;
    on_threads(5, broadcast_large, NULL);
}

static int call_differently(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0, what = *(const int *)user;
    rks_error err = {0};
    rks_group *group = NULL;
    uint8_t bytes[8] = {0}, *all = NULL;
    uint64_t *offsets = NULL;
    rks_status status;
    EXPECT(open_group(bootstrap, 2000, 2, &group, &err) == RKS_OK);
    if (what == 0 && rank == 3) /* the same name, another call */
        status = rks_group_allgather(group, "step", RKS_OK, bytes, 8, &all, &offsets, &err);
    else if (what == 0)
        status = rks_group_agree(group, "step", RKS_OK, &err);
    else
        status = rks_group_broadcast(group, "step", 0, bytes, rank == 3 ? 4 : 8, &err);
    EXPECT(status == RKS_ERR_STATE && strstr(err.text, "'step'") != NULL &&
           strstr(err.text, "rank 3") != NULL);
    rks_group_close(group);
    return failures;
}

static void calls_that_differ_in_more_than_their_name_find_out(void **state)
{
    (void)state;
    for (int what = 0; what < 2; what++)
        on_threads(4, call_differently, &what);
}

/* ---- words -------------------------------------------------------------------------------------
 */

static int be_late(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    rks_group_options options;
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    options.silence_ms = 300;
    options.patience_ms = 500;
    EXPECT(rks_group_open(&options, &group, &err) == RKS_OK);
    if (rank == *(const uint32_t *)user) {
        rks_group_progress(group, "unit 3 of 17");
        for (uint64_t until = rks_now_ms() + 900; rks_now_ms() < until;)
            rks_check_interrupt(NULL); /* as a long callback: far longer than T */
    }
    EXPECT(rks_group_agree(group, "build", RKS_OK, &err) == RKS_OK);
    rks_group_close(group);
    return failures;
}

static void who_is_waited_for_is_said_with_what_it_does(void **state)
{
    (void)state;
    for (uint32_t late = 1; late < 3; late++) {
        char path[] = "/tmp/rankstore-test-XXXXXX", words[4096] = "", wanted[64];
        int file = mkstemp(path), before = dup(STDERR_FILENO);
        unlink(path);
        dup2(file, STDERR_FILENO);
        alarm(LIMIT_S);
        rks_error err = {0};
        int code = -1;
        rks_status status = rks_launch_threads(3, be_late, &late, &code, &err);
        alarm(0);
        dup2(before, STDERR_FILENO);
        close(before);
        assert_true(pread(file, words, sizeof(words) - 1, 0) >= 0);
        close(file);
        assert_ok(status, &err);
        assert_int_equal(code, 0);
        snprintf(wanted, sizeof(wanted), "waits for rank %u (", late);
        assert_contains(words, wanted);
        assert_contains(words, "in 'build'");
        assert_contains(words, "unit 3 of 17");
    }
}

/* ---- sharing -----------------------------------------------------------------------------------
 */

static int share_badly(const rks_bootstrap *bootstrap, void *user)
{
    uint32_t rank = bootstrap->rank;
    int failures = 0, got = -1;
    rks_error err = {0};
    rks_group *group = NULL;
    (void)user;
    EXPECT(open_group(bootstrap, T, 2, &group, &err) == RKS_OK);
    int fd = rank == 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1; /* rank 2 leads, too */
    uint64_t begun_ms = rks_now_ms();
    EXPECT(rks_group_share_fd(group, fd, &got, &err) == RKS_ERR_IO);
    EXPECT(err.rank == 2 && got == -1 && rks_now_ms() - begun_ms < T / 2);
    EXPECT(rks_group_agree(group, "on", RKS_OK, &err) == RKS_OK);
    fd = rks_group_is_leader(group) ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    EXPECT(rks_group_share_fd(group, fd, &got, &err) == RKS_OK && got >= 0);
    rks_group_close(group);
    return failures;
}

static size_t entries_of(const char *path)
{
    size_t entries = 0;
    DIR *directory = opendir(path);
    while (readdir(directory) != NULL)
        entries++;
    closedir(directory);
    return entries - 2;
}

static void a_shared_descriptor_leaves_no_name_behind(void **state)
{
    (void)state;
    rks_error err = {0};
    int code = -1;
    char directory[] = "/tmp/rankstore-test-XXXXXX", stale[128], path[160];
    assert_non_null(mkdtemp(directory));
    /* What a leader left that was killed long ago. */
    snprintf(stale, sizeof(stale), "%s/rankstore-share-abcdef", directory);
    snprintf(path, sizeof(path), "%s/fd", stale);
    assert_int_equal(mkdir(stale, 0700), 0);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    struct timespec old[2] = {{1000, 0}, {1000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, stale, old, 0), 0);
    setenv("TMPDIR", directory, 1);
    alarm(LIMIT_S);
    assert_ok(rks_launch(5, share_badly, NULL, &code, &err), &err);
    alarm(0);
    unsetenv("TMPDIR");
    assert_int_equal(code, 0);
    assert_int_equal(entries_of(directory), 0);
    rmdir(directory);
}

/* ---- processes ---------------------------------------------------------------------------------
 */

enum fate { KILLED, STOPPED, LEFT_WITH_0, LEFT_WITH_3 };

typedef struct misfortune {
    uint32_t victim;
    enum fate fate;
} misfortune;

static void meet_fate(enum fate fate)
{
    if (fate == KILLED || fate == STOPPED)
        raise(fate == KILLED ? SIGKILL : SIGSTOP);
    _exit(fate == LEFT_WITH_3 ? 3 : 0);
}

static int suffer(const rks_bootstrap *bootstrap, void *user)
{
    const misfortune *m = user;
    uint32_t rank = bootstrap->rank;
    int failures = 0;
    rks_error err = {0};
    rks_group *group = NULL;
    char name[32];
    alarm(LIMIT_S);
    snprintf(name, sizeof(name), "rank %u ", m->victim);
    EXPECT(open_group(bootstrap, T, 2, &group, &err) == RKS_OK);
    EXPECT(rks_group_agree(group, "before", RKS_OK, &err) == RKS_OK);
    if (rank == m->victim) {
        while (shared->ready < 3)
            rks_check_interrupt(NULL);
        meet_fate(m->fate);
    }
    shared->ready++;
    uint64_t begun_ms = rks_now_ms();
    rks_status status = rks_group_agree(group, "after", RKS_OK, &err);
    EXPECT(rks_now_ms() - begun_ms < T + 1500);
    EXPECT(status == (m->fate == STOPPED ? RKS_ERR_TIMEOUT : RKS_ERR_PEER));
    EXPECT(err.rank == (int32_t)m->victim && strstr(err.text, name) != NULL);
    EXPECT(rks_group_agree(group, "again", RKS_OK, &err) == status);
    rks_group_close(group);
    if (failures != 0)
        shared->gone += failures;
    return 42;
}

static void expect_suffering(uint32_t victim, enum fate fate, int exit_code)
{
    rks_error err = {0};
    misfortune m = {victim, fate};
    int code = -1;
    shared->ready = 0;
    shared->gone = 0;
    uint64_t begun_ms = rks_now_ms();
    alarm(LIMIT_S);
    assert_ok(rks_launch(4, suffer, &m, &code, &err), &err);
    alarm(0);
    assert_int_equal(shared->gone, 0);
    /* The supervisor may reap others first that were as quick. */
    assert_true(code == exit_code || (fate == LEFT_WITH_3 && code == 42));
    assert_true(rks_now_ms() - begun_ms < 10000);
}

static void a_killed_root_leader_or_follower_ends_all_with_its_name(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < 4; victim++)
        expect_suffering(victim, KILLED, 128 + SIGKILL);
}

static void a_process_that_ends_without_a_word_is_named(void **state)
{
    (void)state;
    expect_suffering(1, LEFT_WITH_0, 42);
    expect_suffering(2, LEFT_WITH_3, 3);
}

static void a_stopped_root_ends_all_in_time_and_is_ended_itself(void **state)
{
    (void)state;
    setenv("RKS_LAUNCH_GRACE_MS", "2000", 1);
    expect_suffering(0, STOPPED, 42);
    unsetenv("RKS_LAUNCH_GRACE_MS");
}

/* ---- the supervisor
 * ------------------------------------------------------------------------------ */

static volatile sig_atomic_t told;

static void on_term(int number)
{
    told = number;
}

static int wait_for_term(const rks_bootstrap *bootstrap, void *user)
{
    (void)user;
    (void)bootstrap;
    signal(SIGTERM, on_term);
    shared->ready++;
    alarm(LIMIT_S);
    while (told == 0)
        rks_check_interrupt(NULL);
    return 7;
}

static void the_supervisor_passes_signals_on_and_waits_for_all(void **state)
{
    (void)state;
    shared->ready = 0;
    pid_t child = fork();
    if (child == 0) {
        rks_error err;
        int code = -1;
        alarm(LIMIT_S);
        rks_status status = rks_launch(3, wait_for_term, NULL, &code, &err);
        _exit(status == RKS_OK && code == 7 && waitpid(-1, NULL, 0) < 0 ? 0 : 1);
    }
    while (shared->ready < 3)
        usleep(1000);
    kill(child, SIGTERM);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static int wait_for_end(const rks_bootstrap *bootstrap, void *user)
{
    (void)user;
    shared->statuses[bootstrap->rank] = getpid();
    shared->ready++;
    alarm(LIMIT_S);
    while (pause() != 0)
        continue;
    return 0;
}

static void no_rank_outlives_a_killed_supervisor(void **state)
{
    (void)state;
    shared->ready = 0;
    pid_t child = fork();
    if (child == 0) {
        rks_launch(3, wait_for_end, NULL, NULL, NULL);
        _exit(1);
    }
    while (shared->ready < 3)
        usleep(1000);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    uint64_t until_ms = rks_now_ms() + 10000;
    for (int rank = 0; rank < 3; rank++) {
        char path[64], line[256] = "";
        snprintf(path, sizeof(path), "/proc/%d/stat", shared->statuses[rank]);
        for (bool lives = true; lives && rks_now_ms() < until_ms;) {
            FILE *file = fopen(path, "re"); /* gone, or a zombie that nobody reaps here */
            lives = file != NULL && fgets(line, sizeof(line), file) != NULL &&
                    strstr(line, ") Z ") == NULL;
            if (file != NULL)
                fclose(file);
        }
    }
    assert_true(rks_now_ms() < until_ms);
}

static int return_rank(const rks_bootstrap *bootstrap, void *user)
{
    (void)user;
    return bootstrap->rank == 1 ? 5 : 0;
}

static void exit_codes_come_back(void **state)
{
    (void)state;
    rks_error err = {0};
    int code = -1;
    assert_ok(rks_launch(3, return_rank, NULL, &code, &err), &err);
    assert_int_equal(code, 5);
    assert_ok(rks_launch_threads(3, return_rank, NULL, &code, &err), &err);
    assert_int_equal(code, 5);
    assert_ok(rks_launch(1, return_rank, NULL, &code, &err), &err);
    assert_int_equal(code, 0);
    assert_fails(RKS_ERR_ARGUMENT, rks_launch(0, return_rank, NULL, &code, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_launch_threads(2, NULL, NULL, &code, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failing_allocation_is_every_rank_s_error_and_no_hang),
        cmocka_unit_test(an_interrupted_rank_brings_the_others_out),
        cmocka_unit_test(a_thread_that_ends_without_closing_is_named),
        cmocka_unit_test(a_rank_that_never_opens_the_group_is_named),
        cmocka_unit_test(a_bad_option_of_one_rank_is_every_rank_s_error),
        cmocka_unit_test(groups_of_many_sizes_and_shapes_agree),
        cmocka_unit_test(a_broadcast_larger_than_the_window_arrives_whole),
        cmocka_unit_test(calls_that_differ_in_more_than_their_name_find_out),
        cmocka_unit_test(who_is_waited_for_is_said_with_what_it_does),
        cmocka_unit_test(a_shared_descriptor_leaves_no_name_behind),
        cmocka_unit_test(a_killed_root_leader_or_follower_ends_all_with_its_name),
        cmocka_unit_test(a_process_that_ends_without_a_word_is_named),
        cmocka_unit_test(a_stopped_root_ends_all_in_time_and_is_ended_itself),
        cmocka_unit_test(the_supervisor_passes_signals_on_and_waits_for_all),
        cmocka_unit_test(no_rank_outlives_a_killed_supervisor),
        cmocka_unit_test(exit_codes_come_back),
    };
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return cmocka_run_group_tests_name("group_faults", tests, NULL, NULL);
}
