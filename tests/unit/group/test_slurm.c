/* SPDX-License-Identifier: Apache-2.0
 *
 * test_slurm.c: how the ranks of a Slurm step meet. Ranks are threads with a step of their own
 * each; real Slurm is for tests/slurm. */
#include "support/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "group/slurm_step.h"

enum { RANKS_MAX = 64, ARRIVAL_MS = 20000 };

static rks_error err;

static void the_first_host_is_found(void **state)
{
    static const struct {
        const char *nodes, *host;
    } cases[] = {
        {"n1", "n1"},
        {"n1,n2", "n1"},
        {"n[003-007,9],x", "n003"},
        {"n[1-2]-ib", "n1-ib"},
        {"rack[1-2]n[01-04]", "rack1n01"},
        {"rack[1,3]n[01-04]-ib,other[1-2]", "rack1n01-ib"},
        {"n[7]", "n7"},
        {"a.b-c.example.org", "a.b-c.example.org"},
        {"", NULL},
        {",n1", NULL},
        {"n[1-2", NULL},
        {"n1]", NULL},
        {"[", NULL},
    };
    char host[256];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool found = rks_slurm_first_host(cases[i].nodes, host, sizeof(host));
        assert_int_equal(found, cases[i].host != NULL);
        if (found)
            assert_string_equal(host, cases[i].host);
    }
    assert_false(rks_slurm_first_host("abcdefgh", host, 8));
    assert_true(rks_slurm_first_host("abcdefg", host, 8));
}

/* ---- meeting --------------------------------------------------------------------------------- */

typedef struct task {
    rks_slurm_step step;
    uint32_t arrival_ms, delay_ms;
    pthread_t thread;
    rks_status status;
    rks_error err;
    uint32_t seen[2][RANKS_MAX];
} task;

/* Two rounds of all-gather, of records of two sizes. */
static void *take_part(void *user)
{
    task *t = user;
    rks_bootstrap bootstrap = {0};
    usleep(t->delay_ms * 1000);
    t->err = (rks_error){.rank = -1};
    t->status = rks_bootstrap_slurm(&t->step, t->arrival_ms, 60000, &bootstrap, &t->err);
    for (uint32_t round = 0; t->status == RKS_OK && round < 2; round++) {
        uint32_t record[300] = {t->step.rank * 10 + round}, all[RANKS_MAX * 300];
        size_t size = round == 0 ? sizeof(record) : sizeof(record[0]);
        t->status = bootstrap.allgather(bootstrap.user, record, size, all, 10000, &t->err);
        for (uint32_t rank = 0; t->status == RKS_OK && rank < t->step.size; rank++)
            t->seen[round][rank] = all[rank * size / sizeof(all[0])];
    }
    if (bootstrap.close != NULL)
        bootstrap.close(bootstrap.user);
    return NULL;
}

static void prepare(task *tasks, uint32_t size, const char *name, bool one_node)
{
    for (uint32_t rank = 0; rank < size; rank++) {
        tasks[rank] = (task){.arrival_ms = ARRIVAL_MS,
                             .step = {.rank = rank, .size = size, .one_node = one_node}};
        strcpy(tasks[rank].step.host, one_node ? "127.0.0.1" : "localhost");
        snprintf(tasks[rank].step.name, sizeof(tasks[rank].step.name), "%s.%d", name,
                 (int)getpid());
    }
}

static void start_tasks(task *tasks, uint32_t size)
{
    for (uint32_t rank = 0; rank < size; rank++)
        if (tasks[rank].step.size > 0)
            assert_int_equal(pthread_create(&tasks[rank].thread, NULL, take_part, &tasks[rank]), 0);
}

static void end_tasks(task *tasks, uint32_t size)
{
    for (uint32_t rank = 0; rank < size; rank++)
        if (tasks[rank].step.size > 0)
            pthread_join(tasks[rank].thread, NULL);
}

static void expect_met(const task *tasks, uint32_t size)
{
    for (uint32_t rank = 0; rank < size; rank++) {
        assert_ok(tasks[rank].status, &tasks[rank].err);
        for (uint32_t other = 0; other < size; other++)
            for (uint32_t round = 0; round < 2; round++)
                assert_int_equal(tasks[rank].seen[round][other], other * 10 + round);
    }
}

static void ranks_meet(void **state)
{
    static task tasks[RANKS_MAX];
    static const uint32_t sizes[] = {2, 3, 17, RANKS_MAX};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint32_t size = sizes[i / 2];
        prepare(tasks, size, "meet", i % 2 == 0);
        tasks[i % 3 == 0 ? 0 : size - 1].delay_ms = 300;
        start_tasks(tasks, size);
        end_tasks(tasks, size);
        expect_met(tasks, size);
    }
}

/* Names of steps whose ports are the same. */
static void find_neighbours(char names[3][40])
{
    uint64_t port = 0;
    int found = 0;
    for (int i = 0; found < 3; i++) {
        char name[160], step[40];
        snprintf(step, sizeof(step), "beside%d", i);
        int size =
            snprintf(name, sizeof(name), "%s.%d.0.4.%u", step, (int)getpid(), (unsigned)getuid());
        uint64_t its = rks_checksum128(name, (size_t)size).low % 12000 / 8;
        if (found > 0 && its != port)
            continue;
        port = its;
        strcpy(names[found++], step);
    }
}

static void steps_at_one_port_do_not_disturb_each_other(void **state)
{
    static task tasks[3][4];
    char names[3][40];
    (void)state;
    find_neighbours(names);
    for (int i = 0; i < 3; i++) {
        prepare(tasks[i], 4, names[i], true);
        tasks[i][i].delay_ms = 200;
        start_tasks(tasks[i], 4);
    }
    for (int i = 0; i < 3; i++)
        end_tasks(tasks[i], 4);
    for (int i = 0; i < 3; i++)
        expect_met(tasks[i], 4);
}

static void a_rank_that_does_not_come_is_named_on_all(void **state)
{
    static task tasks[5];
    (void)state;
    prepare(tasks, 5, "missing", true);
    for (int i = 0; i < 5; i++)
        tasks[i].arrival_ms = 1500;
    tasks[3].step.size = 0; /* it never starts */
    start_tasks(tasks, 5);
    end_tasks(tasks, 5);
    for (int i = 0; i < 5; i++) {
        if (i == 3)
            continue;
        assert_int_equal(tasks[i].status, RKS_ERR_TIMEOUT);
        assert_int_equal(tasks[i].err.rank, 3);
    }
}

static void without_rank_0_the_others_say_where_they_looked(void **state)
{
    static task tasks[2];
    (void)state;
    prepare(tasks, 2, "headless", true);
    tasks[1].arrival_ms = 700;
    tasks[0].step.size = 0;
    start_tasks(tasks, 2);
    end_tasks(tasks, 2);
    assert_int_equal(tasks[1].status, RKS_ERR_TIMEOUT);
    assert_int_equal(tasks[1].err.rank, 0);
    assert_non_null(strstr(tasks[1].err.text, "MASTER_ADDR"));
}

static void a_name_without_an_address_is_an_error_at_once(void **state)
{
    static task tasks[2];
    (void)state;
    prepare(tasks, 2, "nowhere", false);
    for (int i = 0; i < 2; i++)
        strcpy(tasks[i].step.host, "no-such-host.invalid");
    uint64_t begun = rks_now_ms();
    start_tasks(tasks, 2);
    end_tasks(tasks, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tasks[i].status, RKS_ERR_ARGUMENT);
        assert_non_null(strstr(tasks[i].err.text, "no-such-host.invalid"));
        assert_non_null(strstr(tasks[i].err.text, "MASTER_ADDR"));
    }
    assert_true(rks_now_ms() - begun < ARRIVAL_MS / 2);
}

/* ---- strangers ------------------------------------------------------------------------------- */

/* Connects to all ports of the step, again and again, and says wrong things. */
static void *disturb(void *user)
{
    const task *t = user;
    char name[160], bytes[64];
    int size =
        snprintf(name, sizeof(name), "%s.0.%u.%u", t->step.name, t->step.size, (unsigned)getuid());
    rks_digest digest = rks_checksum128(name, (size_t)size);
    uint64_t until = rks_now_ms() + 1200;
    for (uint32_t turn = 0; rks_now_ms() < until; turn++) {
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)(20000 + digest.low % 12000)),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        uint32_t rank = turn % 7, record = turn % 5 == 0 ? 1200 : 7;
        memset(bytes, (int)turn, sizeof(bytes));
        memcpy(bytes, "RKSSTEP1", 8);
        if (turn % 3 == 0) /* the right step, but a wrong rank or size */
            memcpy(bytes + 8, &digest, sizeof(digest));
        rank = turn % 3 == 0 ? (turn % 2 == 0 ? 0 : 99) : rank;
        memcpy(bytes + 24, &rank, sizeof(rank));
        memcpy(bytes + 28, &record, sizeof(record));
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
            (void)!send(fd, bytes, turn % 33, MSG_NOSIGNAL);
        close(fd);
        if (turn % 50 == 0)
            usleep(1000);
    }
    return NULL;
}

static void strangers_get_nothing_and_stop_nothing(void **state)
{
    static task tasks[4];
    pthread_t strangers[3];
    (void)state;
    prepare(tasks, 4, "door", true);
    tasks[2].delay_ms = 1000;
    for (int i = 0; i < 3; i++)
        pthread_create(&strangers[i], NULL, disturb, &tasks[0]);
    start_tasks(tasks, 4);
    end_tasks(tasks, 4);
    for (int i = 0; i < 3; i++)
        pthread_join(strangers[i], NULL);
    expect_met(tasks, 4);
}

/* ---- the environment ------------------------------------------------------------------------- */

static void set(const char *name, const char *value)
{
    if (value == NULL)
        unsetenv(name);
    else
        setenv(name, value, 1);
}

static void describe_step(const char *id, const char *rank, const char *tasks, const char *nodes)
{
    set("SLURM_STEP_ID", id);
    set("SLURM_PROCID", rank);
    set("SLURM_STEP_NUM_TASKS", tasks);
    set("SLURM_STEP_NODELIST", nodes);
    set("SLURM_STEP_NUM_NODES", nodes == NULL ? NULL : "2");
    set("SLURM_JOB_ID", "77");
}

static void a_step_is_read_from_the_environment(void **state)
{
    rks_slurm_step step;
    (void)state;
    describe_step("3", "1", "4", "rack[1-2]n[01-04]");
    assert_true(rks_slurm_detected());
    assert_ok(rks_slurm_step_read(&step, &err), &err);
    assert_int_equal(step.rank, 1);
    assert_int_equal(step.size, 4);
    assert_string_equal(step.host, "rack1n01");
    assert_string_equal(step.name, "77.3.");
    uint32_t first = step.opening;
    set("MASTER_ADDR", "10.0.0.1");
    assert_ok(rks_slurm_step_read(&step, &err), &err);
    assert_string_equal(step.host, "10.0.0.1");
    assert_int_equal(step.opening, first + 1);
    set("SLURM_STEP_NUM_NODES", "1");
    assert_ok(rks_slurm_step_read(&step, &err), &err);
    assert_string_equal(step.host, "127.0.0.1");
    set("MASTER_ADDR", NULL);
    describe_step("3", "4", "4", "n1");
    assert_int_equal(rks_slurm_step_read(&step, &err), RKS_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "SLURM_PROCID"));
    describe_step("3", "0", "4", "n[1-");
    assert_int_equal(rks_slurm_step_read(&step, &err), RKS_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "MASTER_ADDR"));
    describe_step("3", "0", "1", "n1");
    assert_false(rks_slurm_detected());
    describe_step(NULL, NULL, NULL, NULL);
    assert_false(rks_slurm_detected());
}

static void other_launchers_are_refused_by_name(void **state)
{
    (void)state;
    describe_step(NULL, NULL, NULL, NULL);
    assert_ok(rks_launcher_check(&err), &err);
    set("PMIX_RANK", "1");
    assert_int_equal(rks_launcher_check(&err), RKS_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "PMIX_RANK"));
    set("PMIX_RANK", NULL);
    set("PMI_RANK", "0");
    set("PMI_SIZE", "1");
    assert_ok(rks_launcher_check(&err), &err);
    set("PMI_SIZE", "2");
    assert_int_equal(rks_launcher_check(&err), RKS_ERR_UNSUPPORTED);
    set("PMI_RANK", NULL);
    set("PMI_SIZE", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_host_is_found),
        cmocka_unit_test(ranks_meet),
        cmocka_unit_test(steps_at_one_port_do_not_disturb_each_other),
        cmocka_unit_test(a_rank_that_does_not_come_is_named_on_all),
        cmocka_unit_test(without_rank_0_the_others_say_where_they_looked),
        cmocka_unit_test(a_name_without_an_address_is_an_error_at_once),
        cmocka_unit_test(strangers_get_nothing_and_stop_nothing),
        cmocka_unit_test(a_step_is_read_from_the_environment),
        cmocka_unit_test(other_launchers_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
