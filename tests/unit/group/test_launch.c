/* SPDX-License-Identifier: Apache-2.0
 *
 * test_launch.c: the supervisor of forked ranks: signals, exit codes, its own end. */
#include <sys/wait.h>

#include "ranks.h"

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
    uint64_t until_ms = rks_now_ms() + 120000;
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
        cmocka_unit_test(the_supervisor_passes_signals_on_and_waits_for_all),
        cmocka_unit_test(no_rank_outlives_a_killed_supervisor),
        cmocka_unit_test(exit_codes_come_back),
    };
    share_memory();
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
