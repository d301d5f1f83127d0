/* SPDX-License-Identifier: Apache-2.0
 *
 * test_faults.c: peers that are stopped, killed or slow, as processes of their own; and failing
 * allocations. */
#include "mesh.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* No test says how long something may take at most: that one limit has passed and no other one is
 * told by the status and the words. */
enum { SILENCE_MS = 3000 };

static rks_error err;

/* ---- a peer in a child process ------------------------------------------------------------- */

typedef struct child {
    pid_t pid;
    int to, from;       /* closing `to` asks it to leave; it exits with 0 */
    rks_engine *engine; /* rank 0: the test's */
    rks_address addresses[2];
} child;

static bool read_all(int fd, void *bytes, size_t size)
{
    for (size_t got = 0; got < size;) {
        ssize_t n = read(fd, (uint8_t *)bytes + got, size - got);
        if (n <= 0)
            return false;
        got += (size_t)n;
    }
    return true;
}

static void write_all(int fd, const void *bytes, size_t size)
{
    assert_int_equal(write(fd, bytes, size), size);
}

static void never_answer(void *user, rks_request *request)
{
    (void)request; /* kept until the process ends */
    write_all(*(int *)user, "!", 1);
}

static void answer_late(void *user, rks_request *request)
{
    (void)user;
    usleep(3 * SILENCE_MS * 1000); /* slow work, not a wait for anybody */
    echo(NULL, request);
}

static void run_child(int from, int to, bool keep, bool asks)
{
    rks_engine_options options;
    rks_engine *engine = NULL;
    rks_address addresses[2];
    rks_engine_options_default(&options);
    options.rank = 1;
    options.size = 2;
    options.silence_ms = SILENCE_MS;
    options.io_threads = 2;
    if (rks_engine_open(&options, &engine, &err) != RKS_OK)
        _exit(10);
    rks_engine_serve(engine, RKS_SERVICE_FETCH, echo, NULL, NULL);
    rks_engine_serve(engine, RKS_SERVICE_INDEX, never_answer, NULL, &to);
    rks_engine_serve(engine, RKS_SERVICE_KEYS, answer_late, NULL, NULL);
    addresses[1] = *rks_engine_address(engine);
    write_all(to, &addresses[1], sizeof(addresses[1]));
    if (!read_all(from, &addresses[0], sizeof(addresses[0])))
        _exit(11);
    if (rks_engine_join(engine, addresses, MESH_SESSION, MESH_SECRET, &err) != RKS_OK)
        _exit(12);
    if (keep && rks_engine_keep(engine, 0, &err) != RKS_OK)
        _exit(13);
    if (asks && ask_echo(engine, 0, 1, 100, &err) != RKS_OK)
        _exit(14);
    uint8_t byte;
    while (!asks && read(from, &byte, 1) > 0)
        ;
    rks_engine_close(engine, 1000);
    _exit(0);
}

/* The child asks rank 0 once where rank 0 serves: `serve` stands before the child knows where. */
static void child_start(child *c, bool keep, rks_serve_fn serve, void *user)
{
    int there[2], back[2];
    memset(c, 0, sizeof(*c));
    assert_int_equal(pipe(there), 0);
    assert_int_equal(pipe(back), 0);
    fflush(NULL);
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid == 0) {
        alarm(600);
        close(there[1]);
        close(back[0]);
        run_child(there[0], back[1], keep, serve != NULL);
    }
    close(there[0]);
    close(back[1]);
    c->to = there[1];
    c->from = back[0];
    rks_engine_options options;
    rks_engine_options_default(&options);
    options.size = 2;
    options.silence_ms = SILENCE_MS;
    assert_ok(rks_engine_open(&options, &c->engine, &err), &err);
    rks_engine_serve(c->engine, RKS_SERVICE_FETCH, serve, NULL, user);
    c->addresses[0] = *rks_engine_address(c->engine);
    assert_true(read_all(c->from, &c->addresses[1], sizeof(c->addresses[1])));
    strcpy(c->addresses[1].host, "childhost");
    assert_ok(rks_engine_join(c->engine, c->addresses, MESH_SESSION, MESH_SECRET, &err), &err);
    write_all(c->to, &c->addresses[0], sizeof(c->addresses[0]));
}

static int child_end(child *c)
{
    int status = 0;
    close(c->to);
    rks_engine_close(c->engine, 0);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    close(c->from);
    return status;
}

static void child_stop(child *c)
{
    int status = 0;
    assert_int_equal(kill(c->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(c->pid, &status, WUNTRACED), c->pid);
    assert_true(WIFSTOPPED(status));
}

static void a_stopped_peer_fails_requests_in_the_deadline_and_comes_back(void **state)
{
    (void)state;
    child c;
    child_start(&c, false, NULL, NULL);
    assert_ok(ask_echo(c.engine, 1, 1, 100, &err), &err);
    child_stop(&c);
    uint64_t begin = rks_now_ms();
    assert_fails(RKS_ERR_TIMEOUT, ask_echo(c.engine, 1, 1, 100, &err));
    uint64_t took_ms = rks_now_ms() - begin;
    assert_string_equal(err.text, "rank 1 (childhost): silent for 3000 ms during an echo");
    assert_int_equal(err.rank, 1);
    assert_true(took_ms >= SILENCE_MS);
    /* Nor does a new connection get further than its kernel. */
    begin = rks_now_ms();
    assert_fails(RKS_ERR_TIMEOUT, ask_echo(c.engine, 1, 1, 100, &err));
    took_ms = rks_now_ms() - begin;
    assert_contains(err.text, "no answer to the hello within 3000 ms during an echo");
    assert_true(took_ms >= SILENCE_MS);
    kill(c.pid, SIGCONT);
    assert_ok(ask_echo(c.engine, 1, 1, 100, &err), &err);
    assert_int_equal(child_end(&c), 0);
}

static void a_killed_peer_fails_requests_at_once(void **state)
{
    (void)state;
    child c;
    child_start(&c, false, NULL, NULL);
    uint8_t *reply = NULL;
    size_t size;
    uint8_t byte;
    siginfo_t end;
    assert_ok(ask_echo(c.engine, 1, 1, 100, &err), &err);
    kill(c.pid, SIGKILL);
    assert_fails(RKS_ERR_PEER,
                 rks_engine_ask(c.engine, 1, &(rks_outgoing){RKS_SERVICE_INDEX, "x", 1, "a test"},
                                10, &reply, &size, &err));
    assert_contains(err.text, "rank 1 (childhost): ");
    assert_contains(err.text, " during a test");
    assert_int_equal(waitid(P_PID, (id_t)c.pid, &end, WEXITED | WNOWAIT), 0);
    assert_fails(RKS_ERR_PEER, ask_echo(c.engine, 1, 1, 100, &err));
    assert_contains(err.text, "refused");
    assert_false(read_all(c.from, &byte, 1));
    child_end(&c);
}

static void the_watch_hears_of_a_stopped_and_of_a_killed_peer(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool by_child = i % 2 == 1; /* who keeps the connection */
        bool killed = i / 2 == 1;
        child c;
        loss l;
        child_start(&c, by_child, NULL, NULL);
        event_init(&l.lost);
        rks_engine_watch(c.engine, on_lost, &l);
        if (!by_child)
            assert_ok(rks_engine_keep(c.engine, 1, &err), &err);
        while (by_child) { /* until it is kept */
            rks_engine_stats stats;
            rks_engine_stats_get(c.engine, &stats);
            by_child = stats.frames_received < 3;
        }
        assert_ok(ask_echo(c.engine, 1, 1, 100, &err), &err);
        if (killed)
            kill(c.pid, SIGKILL);
        else
            child_stop(&c);
        event_wait(&l.lost, 1);
        assert_int_equal(l.peer, 1);
        assert_int_equal(l.err.status, killed ? RKS_ERR_PEER : RKS_ERR_TIMEOUT);
        /* From now on nothing is tried again. */
        assert_fails(l.err.status, ask_echo(c.engine, 1, 1, 100, &err));
        assert_contains(err.text, l.err.text);
        kill(c.pid, SIGKILL);
        child_end(&c);
        assert_int_equal(l.lost.count, 1);
    }
}

static void a_slow_peer_is_waited_for(void **state)
{
    (void)state;
    child c;
    child_start(&c, true, NULL, NULL);
    loss l;
    event_init(&l.lost);
    rks_engine_watch(c.engine, on_lost, &l);
    uint8_t *reply = NULL;
    size_t size;
    assert_ok(rks_engine_ask(c.engine, 1,
                             &(rks_outgoing){RKS_SERVICE_KEYS, "\1\0\0\0slow", 8, "a test"}, 10,
                             &reply, &size, &err),
              &err);
    assert_memory_equal(reply, "slow", 4);
    rks_free(reply);
    assert_int_equal(event_count(&l.lost), 0);
    assert_int_equal(child_end(&c), 0);
}

static void hold(void *user, rks_request *request)
{
    event *held = user;
    rks_request **slot = (rks_request **)(void *)(held + 1);
    *slot = request;
    event_add(held);
}

static void a_rank_that_was_stopped_itself_does_not_blame_others(void **state)
{
    (void)state;
    struct {
        event held;
        rks_request *request;
    } shelf = {0};
    child c;
    event_init(&shelf.held);
    child_start(&c, false, hold, &shelf);
    event_wait(&shelf.held, 1);
    child_stop(&c);
    usleep(3 * SILENCE_MS * 1000); /* how long it is stopped is what this is about */
    kill(c.pid, SIGCONT);
    echo(NULL, shelf.request);
    int status = 0;
    assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
    assert_int_equal(status, 0); /* it got its reply */
    close(c.to);
    close(c.from);
    rks_engine_close(c.engine, 0);
}

/* ---- a link that is down ------------------------------------------------------------------- */

static atomic_int links_down; /* so many connects find no way to the host */

/* In the C library's place, also for libuv; the parameter is the C library's, too. */
__attribute__((visibility("default"))) int connect(int fd, __CONST_SOCKADDR_ARG address,
                                                   socklen_t size)
{
    if (atomic_load(&links_down) > 0) {
        errno = atomic_fetch_sub(&links_down, 1) % 2 == 0 ? ENETUNREACH : EHOSTUNREACH;
        return -1;
    }
    return (int)syscall(SYS_connect, fd, address.__sockaddr__, size);
}

static void a_link_that_is_down_for_a_moment_is_waited_for(void **state)
{
    (void)state;
    mesh m;
    atomic_store(&links_down, 0);
    mesh_open(&m, 2, false, WAIT_MS);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
    atomic_store(&links_down, 4);
    assert_ok(ask_echo(m.engines[0], 1, 1, 100, &err), &err);
    assert_int_equal(atomic_load(&links_down), 0);
    mesh_close(&m);
}

static void a_link_that_stays_down_is_an_error_that_says_so(void **state)
{
    (void)state;
    mesh m;
    mesh_open(&m, 2, false, SILENCE_MS);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
    atomic_store(&links_down, 1000000);
    assert_fails(RKS_ERR_PEER, ask_echo(m.engines[0], 1, 1, 100, &err));
    assert_contains(err.text, "rank 1 (");
    assert_contains(err.text, "no connection to ");
    assert_contains(err.text, " during an echo");
    assert_int_equal(err.rank, 1);
    assert_true(atomic_load(&links_down) < 1000000 - 1);
    atomic_store(&links_down, 0);
    assert_ok(ask_echo(m.engines[0], 1, 1, 100, &err), &err);
    mesh_close(&m);
}

/* ---- failing allocations ------------------------------------------------------------------- */

static void ignore_note(void *user, uint32_t from, const uint8_t *body, size_t size)
{
    (void)user;
    (void)from;
    (void)body;
    (void)size;
}

/* Everything once; RKS_OK or the first failure. */
static rks_status one_run(bool memory)
{
    mesh m = {.size = 2};
    rks_status status = RKS_OK;
    if (memory)
        status = rks_memory_transport_create(NULL, &m.memory, &err);
    for (uint32_t i = 0; i < 2 && status == RKS_OK; i++) {
        rks_engine_options options;
        rks_engine_options_default(&options);
        options.rank = i;
        options.size = 2;
        options.silence_ms = 400;
        options.io_threads = 2;
        if (memory)
            options.transport = m.memory;
        status = rks_engine_open(&options, &m.engines[i], &err);
        if (status == RKS_OK) {
            m.addresses[i] = *rks_engine_address(m.engines[i]);
            rks_engine_serve(m.engines[i], RKS_SERVICE_FETCH, echo, ignore_note, NULL);
        }
    }
    for (uint32_t i = 0; i < 2 && status == RKS_OK; i++)
        status = rks_engine_join(m.engines[i], m.addresses, MESH_SESSION, MESH_SECRET, &err);
    if (status == RKS_OK)
        status = rks_engine_keep(m.engines[0], 1, &err);
    if (status == RKS_OK)
        status = rks_engine_note(m.engines[0], 1, RKS_SERVICE_FETCH, "note", 4, &err);
    for (uint32_t i = 0; i < 2 && status == RKS_OK; i++)
        status = ask_echo(m.engines[i], 1 - i, 3, 1000, &err);
    for (uint32_t i = 0; i < 2; i++)
        rks_engine_close(m.engines[i], 100);
    rks_memory_transport_free(m.memory);
    return status;
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    for (int memory = 0; memory < 2; memory++) {
        /* Threads share the count: a few clean runs in a row are the end of it. */
        int clean = 0;
        long before = rks_memory_in_use();
        for (int nth = 1; clean < 5; nth++) {
            rks_memory_fail_at(nth);
            rks_status status = one_run(memory == 1);
            rks_memory_fail_at(0);
            assert_int_equal(rks_memory_in_use(), before);
            clean = status == RKS_OK && nth > 25 ? clean + 1 : 0;
            assert_true(nth < 200);
        }
    }
}

/* Rank 0 has no memory to connect to rank 1, which then connects to rank 0. */
static void a_peer_that_cannot_be_reached_hears_that_it_is_lost(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        mesh m;
        loss losses[2];
        mesh_open(&m, 2, i == 1, 15000);
        for (uint32_t rank = 0; rank < 2; rank++) {
            event_init(&losses[rank].lost);
            rks_engine_watch(m.engines[rank], on_lost, &losses[rank]);
        }
        rks_memory_fail_at(2); /* after that of the call */
        assert_ok(rks_engine_keep(m.engines[0], 1, &err), &err);
        event_wait(&losses[0].lost, 1);
        rks_memory_fail_at(0);
        assert_int_equal(losses[0].err.status, RKS_ERR_MEMORY);
        assert_ok(rks_engine_keep(m.engines[1], 0, &err), &err);
        event_wait(&losses[1].lost, 1);
        assert_int_equal(losses[1].peer, 0);
        assert_int_equal(losses[1].err.status, RKS_ERR_PEER);
        mesh_close(&m);
    }
}

/* Both directions go over the connection that rank 1 has opened: rank 0 needs no memory for one. */
static void a_peer_that_is_connected_needs_no_other_connection(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        mesh m;
        loss losses[2];
        mesh_open(&m, 2, i == 1, 15000);
        for (uint32_t rank = 0; rank < 2; rank++) {
            event_init(&losses[rank].lost);
            rks_engine_watch(m.engines[rank], on_lost, &losses[rank]);
            rks_engine_serve(m.engines[rank], RKS_SERVICE_FETCH, echo, NULL, NULL);
        }
        assert_ok(rks_engine_keep(m.engines[1], 0, &err), &err);
        assert_ok(ask_echo(m.engines[1], 0, 1, 10, &err), &err);
        rks_memory_fail_at(2); /* after that of the call */
        assert_ok(rks_engine_keep(m.engines[0], 1, &err), &err);
        usleep(100000);
        rks_memory_fail_at(0);
        assert_ok(ask_echo(m.engines[0], 1, 1, 10, &err), &err);
        assert_int_equal(event_count(&losses[0].lost) + event_count(&losses[1].lost), 0);
        mesh_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_peer_fails_requests_in_the_deadline_and_comes_back),
        cmocka_unit_test(a_killed_peer_fails_requests_at_once),
        cmocka_unit_test(the_watch_hears_of_a_stopped_and_of_a_killed_peer),
        cmocka_unit_test(a_slow_peer_is_waited_for),
        cmocka_unit_test(a_rank_that_was_stopped_itself_does_not_blame_others),
        cmocka_unit_test(a_link_that_is_down_for_a_moment_is_waited_for),
        cmocka_unit_test(a_link_that_stays_down_is_an_error_that_says_so),
        cmocka_unit_test(survives_each_failing_allocation),
        cmocka_unit_test(a_peer_that_cannot_be_reached_hears_that_it_is_lost),
        cmocka_unit_test(a_peer_that_is_connected_needs_no_other_connection),
    };
    alarm(600);
    int failed = cmocka_run_group_tests_name("faults", tests, NULL, NULL);
    if (rks_memory_in_use() != 0) {
        print_error("%ld allocations are left\n", rks_memory_in_use());
        failed++;
    }
    return failed;
}
