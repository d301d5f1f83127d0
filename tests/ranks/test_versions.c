/* SPDX-License-Identifier: Apache-2.0
 *
 * test_versions.c: jobs whose ranks run different builds of the library, as processes
 * (rank_versions.c). All ranks refuse, and name both builds. */
#include "support/check.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/shards.h"

enum { ROOM = 1024 };

/* Starts rank `rank` of two, of the program that the variable names. Returns where it writes. */
static FILE *start(const char *program, int rank, pid_t *pid)
{
    int ends[2];
    char number[4], step[16];
    assert_int_equal(pipe(ends), 0);
    snprintf(number, sizeof(number), "%d", rank);
    snprintf(step, sizeof(step), "%d", (int)getpid());
    *pid = fork();
    if (*pid == 0) {
        setenv("SLURM_JOB_ID", step, 1);
        setenv("SLURM_STEP_ID", strrchr(shards_here, '/') + 1, 1);
        setenv("SLURM_STEP_NUM_TASKS", "2", 1);
        setenv("SLURM_STEP_NUM_NODES", "1", 1);
        setenv("SLURM_STEP_NODELIST", "localhost", 1);
        setenv("SLURM_PROCID", number, 1);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        execl(getenv(program), getenv(program), shards_here, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    return fdopen(ends[0], "r");
}

/* What both ranks print; whether both end well. */
static bool run(const char *const programs[2], char said[2][ROOM])
{
    FILE *from[2];
    pid_t pids[2];
    bool good = true;
    for (int rank = 0; rank < 2; rank++)
        from[rank] = start(programs[rank], rank, &pids[rank]);
    for (int rank = 0; rank < 2; rank++) {
        int status = 0;
        assert_non_null(fgets(said[rank], ROOM, from[rank]));
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        assert_true(WIFEXITED(status));
        good = good && WEXITSTATUS(status) == 0;
        fclose(from[rank]);
    }
    return good;
}

static void ranks_of_one_build_make_a_plan(void **state)
{
    (void)state;
    char said[2][ROOM];
    const char *const programs[2] = {"RANK_SAME", "RANK_SAME"};
    shards_dataset(&(shards_recipe){0});
    assert_true(run(programs, said));
    assert_string_equal(said[0], "a plan\n");
    assert_string_equal(said[1], "a plan\n");
}

static void another_version_is_refused_on_all_ranks(void **state)
{
    (void)state;
    char said[2][ROOM], wanted[ROOM];
    const char *const programs[2][2] = {{"RANK_SAME", "RANK_OTHER_VERSION"},
                                        {"RANK_OTHER_VERSION", "RANK_SAME"}};
    const char *const versions[2] = {rks_version(), "12.34.56"};
    shards_dataset(&(shards_recipe){0});
    for (int first = 0; first < 2; first++) {
        assert_false(run(programs[first], said));
        snprintf(wanted, sizeof(wanted),
                 "the library's version differs: rank 0 has %s, rank 1 has %s; install the same "
                 "one on all ranks\n",
                 versions[first], versions[1 - first]);
        assert_string_equal(said[0], wanted);
        assert_string_equal(said[1], wanted);
    }
}

static void a_commit_that_plans_differently_is_refused_on_all_ranks(void **state)
{
    (void)state;
    char said[2][ROOM];
    const char *const programs[2][2] = {{"RANK_SAME", "RANK_OTHER_PLANS"},
                                        {"RANK_OTHER_PLANS", "RANK_SAME"}};
    shards_dataset(&(shards_recipe){0});
    for (int first = 0; first < 2; first++) {
        assert_false(run(programs[first], said));
        assert_string_equal(said[0], said[1]);
        assert_contains(said[0], "make different plans: rank 0 has version ");
        assert_contains(said[0], ", rank 1 has version ");
        assert_contains(said[0], "install the same build of Rankstore on all of them");
    }
}

static void two_ranks_of_a_commit_that_plans_differently_agree(void **state)
{
    (void)state;
    char said[2][ROOM];
    const char *const programs[2] = {"RANK_OTHER_PLANS", "RANK_OTHER_PLANS"};
    shards_dataset(&(shards_recipe){0});
    assert_true(run(programs, said));
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, shards_begin, shards_end)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(ranks_of_one_build_make_a_plan),
        IN_FOLDER(another_version_is_refused_on_all_ranks),
        IN_FOLDER(a_commit_that_plans_differently_is_refused_on_all_ranks),
        IN_FOLDER(two_ranks_of_a_commit_that_plans_differently_agree),
    };
    return cmocka_run_group_tests_name("versions", tests, NULL, NULL);
}
