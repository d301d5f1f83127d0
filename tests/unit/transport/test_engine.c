/* SPDX-License-Identifier: Apache-2.0
 *
 * test_engine.c: requests, replies and notes between engines, over TCP and in memory alike. */
#include <dirent.h>
#include "flight.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void replies_of_many_sizes_come_whole(void **state)
{
    mesh m;
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
    static const size_t sizes[] = {0, 1, 23, 4096, 65535, 65536, 65537, 1 << 20, 32 << 20};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        assert_ok(ask_echo(m.engines[0], 1, 1, sizes[i], &err), &err);
    assert_ok(ask_echo(m.engines[0], 1, 0, 100, &err), &err);
    assert_ok(ask_echo(m.engines[0], 1, 1000, 1000, &err), &err);
    assert_ok(ask_echo(m.engines[0], 1, 5, 3 << 20, &err), &err);
    mesh_close(&m);
}

static void a_rank_may_ask_itself(void **state)
{
    mesh m;
    mesh_open(&m, 1, over_memory(state), 15000);
    rks_engine_serve(m.engines[0], RKS_SERVICE_FETCH, echo, NULL, NULL);
    assert_ok(ask_echo(m.engines[0], 0, 3, 500, &err), &err);
    mesh_close(&m);
}

static void an_error_reply_says_where_it_happened(void **state)
{
    mesh m;
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
    uint8_t *reply = NULL;
    size_t size;
    assert_fails(RKS_ERR_DATA, rks_engine_ask(m.engines[0], 1,
                                              &(rks_outgoing){RKS_SERVICE_FETCH, "xy", 2, "a test"},
                                              100, &reply, &size, &err));
    assert_string_equal(err.text, "too short: 2 bytes");
    assert_int_equal(err.rank, 1);
    assert_int_equal(err.cause, 77);
    assert_true(err.host[0] != '\0');
    assert_fails(RKS_ERR_PEER, rks_engine_ask(m.engines[0], 1,
                                              &(rks_outgoing){RKS_SERVICE_KEYS, "xy", 2, "a test"},
                                              100, &reply, &size, &err));
    assert_contains(err.text, "not open");
    assert_null(reply);
    mesh_close(&m);
}

static void a_reply_above_the_limit_is_refused_and_the_connection_lives(void **state)
{
    mesh m;
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
    uint8_t *reply = NULL;
    size_t size;
    uint8_t body[104] = {50};
    assert_fails(RKS_ERR_PEER,
                 rks_engine_ask(m.engines[0], 1,
                                &(rks_outgoing){RKS_SERVICE_FETCH, body, 104, "a test"}, 4999,
                                &reply, &size, &err));
    assert_contains(err.text, "5000");
    assert_ok(rks_engine_ask(m.engines[0], 1,
                             &(rks_outgoing){RKS_SERVICE_FETCH, body, 104, "a test"}, 5000, &reply,
                             &size, &err),
              &err);
    rks_free(reply);
    mesh_close(&m);
}

static void notes_arrive_in_order_also_from_before_the_join(void **state)
{
    enum { NOTES = 3000 };
    mesh m;
    note_log log = {.ordered = true};
    event_init(&log.arrived);
    mesh_open_unjoined(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_GROUP, NULL, on_numbered_note, &log);
    mesh_join(&m, 0);
    for (uint32_t i = 0; i < NOTES; i++) {
        uint8_t body[3004] = {0};
        memcpy(body, &i, 4);
        assert_ok(rks_engine_note(m.engines[0], 1, RKS_SERVICE_GROUP, body, 4 + i % 3000, &err),
                  &err);
        if (i == NOTES / 2)
            mesh_join(&m, 1);
    }
    event_wait(&log.arrived, NOTES);
    assert_true(log.ordered);
    mesh_close(&m);
}

typedef struct asker {
    mesh *m;
    uint32_t from;
    uint32_t to;
    rks_status status;
    rks_error err;
} asker;

static void *ask_many(void *argument)
{
    asker *a = argument;
    for (uint32_t i = 0; i < 40 && a->status == RKS_OK; i++)
        a->status = ask_echo(a->m->engines[a->from], a->to, 1 + i % 7, i * 311, &a->err);
    return NULL;
}

static void both_sides_ask_each_other_at_once(void **state)
{
    for (int round = 0; round < 5; round++) {
        mesh m;
        mesh_open(&m, 2, over_memory(state), 15000);
        pthread_t threads[4];
        asker askers[4];
        for (uint32_t i = 0; i < 2; i++)
            rks_engine_serve(m.engines[i], RKS_SERVICE_FETCH, echo, NULL, NULL);
        for (uint32_t i = 0; i < 4; i++) {
            askers[i] = (asker){.m = &m, .from = i % 2, .to = 1 - i % 2};
            pthread_create(&threads[i], NULL, ask_many, &askers[i]);
        }
        for (uint32_t i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            assert_ok(askers[i].status, &askers[i].err);
        }
        mesh_close(&m);
    }
}

static uint64_t open_sockets(void)
{
    uint64_t count = 0;
    char target[32];
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    for (const struct dirent *one; (one = readdir(folder)) != NULL;) {
        ssize_t size = readlinkat(dirfd(folder), one->d_name, target, sizeof(target));
        count += size > 7 && memcmp(target, "socket:", 7) == 0;
    }
    closedir(folder);
    return count;
}

/* However the connections cross that both open at once: in the end there is one. */
static void two_ranks_that_connect_at_once_share_one_connection(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        mesh m;
        mesh_open(&m, 2, false, 15000);
        for (uint32_t i = 0; i < 2; i++)
            rks_engine_serve(m.engines[i], RKS_SERVICE_FETCH, echo, NULL, NULL);
        uint64_t before = open_sockets(), now = 0;
        pthread_t threads[2];
        asker askers[2];
        for (uint32_t i = 0; i < 2; i++) {
            askers[i] = (asker){.m = &m, .from = i, .to = 1 - i};
            pthread_create(&threads[i], NULL, ask_many, &askers[i]);
        }
        for (uint32_t i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            assert_ok(askers[i].status, &askers[i].err);
        }
        uint64_t until = rks_now_ms() + WAIT_MS;
        while ((now = open_sockets()) != before + 2 && rks_now_ms() < until)
            usleep(1000); /* both ends of it are in this process */
        assert_int_equal(now, before + 2);
        for (uint32_t i = 0; i < 2; i++) {
            rks_engine_stats stats;
            rks_engine_stats_get(m.engines[i], &stats);
            assert_int_equal(stats.refused, 0);
        }
        mesh_close(&m);
    }
}

/* Each owner's replies are more than it may queue, and those that wait for them are owners, too. */
static void two_ranks_that_ask_each_other_for_very_much_get_it(void **state)
{
    enum { ASKED = 100, TIMES = 15, SIZE = 64 * 1024 };
    mesh m;
    event landed;
    flight flights[2][ASKED] = {0};
    uint8_t *body = calloc(1, 4 + SIZE);
    body[0] = TIMES;
    event_init(&landed);
    mesh_open(&m, 2, over_memory(state), 15000);
    for (uint32_t i = 0; i < 2; i++)
        rks_engine_serve(m.engines[i], RKS_SERVICE_FETCH, echo, NULL, NULL);
    for (uint32_t k = 0; k < ASKED; k++)
        for (uint32_t i = 0; i < 2; i++) {
            flights[i][k].landed = &landed;
            assert_ok(fly(m.engines[i], 1 - i, RKS_SERVICE_FETCH, body, 4 + SIZE, &flights[i][k]),
                      &err);
        }
    event_wait(&landed, 2 * ASKED);
    for (uint32_t k = 0; k < ASKED; k++)
        for (uint32_t i = 0; i < 2; i++) {
            assert_ok(flights[i][k].status, &flights[i][k].err);
            assert_int_equal(flights[i][k].size, TIMES * SIZE);
            free(flights[i][k].reply);
        }
    free(body);
    mesh_close(&m);
}

/* An owner serves some requests of a rank at a time: the next one waits until one of them is
 * answered, and then for nothing else. */
static void a_request_that_waited_for_room_is_served_at_once(void **state)
{
    enum { AT_A_TIME = 4 * MESH_THREADS, ASKED = AT_A_TIME + 1, SIZE = 1000 };
    (void)state;
    mesh m;
    event landed;
    shelf kept = {0};
    flight flights[ASKED] = {0};
    rks_engine_stats stats = {0};
    uint8_t *body = calloc(1, SIZE);
    event_init(&landed);
    event_init(&kept.kept);
    mesh_open(&m, 2, false, 60000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_KEYS, echo, NULL, NULL);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, keep_request, NULL, &kept);
    uint8_t *reply = NULL;
    size_t size = 0;
    assert_ok(rks_engine_ask(m.engines[0], 1,
                             &(rks_outgoing){RKS_SERVICE_KEYS, "\1\0\0\0x", 5, "a test"}, 100,
                             &reply, &size, &err),
              &err);
    rks_free(reply);
    usleep(2200000); /* what wakes the engine next is a ping, after 20 s */
    for (uint32_t k = 0; k < ASKED; k++) {
        flights[k].landed = &landed;
        assert_ok(fly(m.engines[0], 1, RKS_SERVICE_FETCH, body, SIZE, &flights[k]), &err);
    }
    uint64_t until = rks_now_ms() + WAIT_MS;
    while (stats.bytes_received < (uint64_t)ASKED * SIZE && rks_now_ms() < until) {
        usleep(1000);
        rks_engine_stats_get(m.engines[1], &stats);
    }
    event_wait(&kept.kept, ASKED - 1);
    usleep(50000); /* one more would come now */
    assert_int_equal(event_count(&kept.kept), ASKED - 1);
    uint64_t begin = rks_now_ms();
    for (uint32_t k = 0; k < ASKED; k++) {
        usleep(50000); /* the engine rests, and one answer wakes it once */
        event_wait(&kept.kept, k + 1);
        rks_request_reply(kept.requests[k], NULL, 0, NULL, NULL);
    }
    event_wait(&landed, ASKED);
    assert_in_range(rks_now_ms() - begin, 0, 15000); /* before the ping */
    for (uint32_t k = 0; k < ASKED; k++) {
        assert_ok(flights[k].status, &flights[k].err);
        free(flights[k].reply);
    }
    free(body);
    mesh_close(&m);
}

/* One of many requests in flight. */
typedef struct pilot {
    mesh *m;
    flight flights[125];
} pilot;

static void *fly_many(void *argument)
{
    pilot *p = argument;
    for (uint32_t i = 0; i < 125; i++) {
        uint8_t body[204] = {(uint8_t)(1 + i % 5)};
        body[4] = (uint8_t)i;
        rks_reply_sink sink = {.place = flight_place, .done = flight_done, .user = &p->flights[i]};
        rks_engine_request(p->m->engines[0], 1,
                           &(rks_outgoing){RKS_SERVICE_FETCH, body, sizeof(body), "a flight"},
                           &sink, NULL);
    }
    return NULL;
}

static void a_thousand_requests_of_eight_threads_are_all_answered(void **state)
{
    mesh m;
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
    event landed;
    event_init(&landed);
    pilot *pilots = calloc(8, sizeof(*pilots));
    pthread_t threads[8];
    for (int t = 0; t < 8; t++) {
        pilots[t].m = &m;
        for (int i = 0; i < 125; i++)
            pilots[t].flights[i].landed = &landed;
        pthread_create(&threads[t], NULL, fly_many, &pilots[t]);
    }
    for (int t = 0; t < 8; t++)
        pthread_join(threads[t], NULL);
    event_wait(&landed, 1000);
    for (int t = 0; t < 8; t++)
        for (uint32_t i = 0; i < 125; i++) {
            flight *f = &pilots[t].flights[i];
            assert_ok(f->status, &f->err);
            assert_int_equal(f->done, 1);
            assert_int_equal(f->size, 200 * (1 + i % 5));
            assert_int_equal(f->reply[0], i);
            free(f->reply);
        }
    free(pilots);
    rks_engine_stats stats;
    rks_engine_stats_get(m.engines[0], &stats);
    assert_int_equal(stats.strays, 0);
    assert_true(stats.frames_sent >= 1000);
    mesh_close(&m);
}

static void a_place_of_null_fails_that_request_alone(void **state)
{
    mesh m;
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
    event landed;
    event_init(&landed);
    flight f = {.landed = &landed, .no_memory = true};
    static const uint8_t body[100004] = {30};
    assert_ok(fly(m.engines[0], 1, RKS_SERVICE_FETCH, body, sizeof(body), &f), &err);
    assert_ok(ask_echo(m.engines[0], 1, 2, 100, &err), &err);
    event_wait(&landed, 1);
    assert_int_equal(f.status, RKS_ERR_MEMORY);
    assert_contains(f.err.text, "3000000");
    mesh_close(&m);
}

typedef struct gate {
    event entered;
    event opened;
} gate;

static bool echo_even(void *user, rks_request *request)
{
    atomic_int *calls = user;
    char name[16] = "";
    size_t size = 0;
    pthread_getname_np(pthread_self(), name, sizeof(name));
    assert_string_equal(name, "rks-engine");
    atomic_fetch_add(calls, 1);
    if (rks_request_body(request, &size)[0] % 2 != 0)
        return false;
    echo(NULL, request);
    return true;
}

static void a_service_may_answer_on_the_engine_thread_or_leave_it_to_another(void **state)
{
    mesh m;
    atomic_int calls = 0;
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, &calls);
    rks_engine_serve_quick(m.engines[1], RKS_SERVICE_FETCH, echo_even);
    for (uint32_t i = 0; i < 20; i++)
        assert_ok(ask_echo(m.engines[0], 1, i, 100 + 1000 * i, &err), &err);
    assert_int_equal(atomic_load(&calls), 20);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, &calls);
    assert_ok(ask_echo(m.engines[0], 1, 2, 100, &err), &err);
    assert_int_equal(atomic_load(&calls), 20);
    mesh_close(&m);
}

static void wait_at_gate(void *user, rks_request *request)
{
    gate *g = user;
    event_add(&g->entered);
    event_wait(&g->opened, 1);
    echo(NULL, request);
}

static void requests_do_not_wait_behind_slow_ones(void **state)
{
    mesh m;
    gate g;
    event landed;
    event_init(&g.entered);
    event_init(&g.opened);
    event_init(&landed);
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
    rks_engine_serve(m.engines[1], RKS_SERVICE_INDEX, wait_at_gate, NULL, &g);
    flight f[3] = {{.landed = &landed}, {.landed = &landed}, {.landed = &landed}};
    for (int i = 0; i < 3; i++)
        assert_ok(fly(m.engines[0], 1, RKS_SERVICE_INDEX, "\1\0\0\0slow", 8, &f[i]), &err);
    event_wait(&g.entered, 3);
    for (int i = 0; i < 20; i++)
        assert_ok(ask_echo(m.engines[0], 1, 1, 100, &err), &err); /* by the fourth thread */
    assert_int_equal(event_count(&landed), 0);
    event_add(&g.opened);
    event_wait(&landed, 3);
    for (int i = 0; i < 3; i++) {
        assert_ok(f[i].status, &f[i].err);
        free(f[i].reply);
    }
    mesh_close(&m);
}

static void let_go(void *user)
{
    event_add(user);
}

static void answer_and_count(void *user, rks_request *request)
{
    static const uint8_t bytes[100000];
    struct iovec parts[3] = {
        {(void *)(uintptr_t)bytes, sizeof(bytes)}, {NULL, 0}, {(void *)(uintptr_t)bytes, 1}};
    rks_request_reply(request, parts, 3, let_go, user);
}

static void what_a_reply_was_sent_from_is_let_go_once(void **state)
{
    mesh m;
    event released, landed;
    event_init(&released);
    event_init(&landed);
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, answer_and_count, NULL, &released);
    flight f[50];
    for (int i = 0; i < 50; i++) {
        f[i] = (flight){.landed = &landed};
        assert_ok(fly(m.engines[0], 1, RKS_SERVICE_FETCH, "x", 1, &f[i]), &err);
    }
    event_wait(&landed, 50);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(f[i].size, 100001);
        free(f[i].reply);
        f[i] = (flight){.landed = &landed};
        assert_ok(fly(m.engines[0], 1, RKS_SERVICE_FETCH, "x", 1, &f[i]), &err);
    }
    /* Also where nobody is left to receive it. */
    rks_engine_close(m.engines[0], 0);
    m.engines[0] = NULL;
    for (int i = 0; i < 50; i++)
        free(f[i].reply);
    rks_engine_close(m.engines[1], 0);
    m.engines[1] = NULL;
    assert_true(event_count(&released) >= 50 && event_count(&released) <= 100);
    mesh_close(&m);
}

static void a_service_that_ended_is_not_called_any_more(void **state)
{
    mesh m;
    mesh_open(&m, 2, over_memory(state), 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
    assert_ok(ask_echo(m.engines[0], 1, 1, 10, &err), &err);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, NULL, NULL, NULL);
    assert_fails(RKS_ERR_PEER, ask_echo(m.engines[0], 1, 1, 10, &err));
    mesh_close(&m);
}

static void calls_that_break_a_rule_are_refused(void **state)
{
    mesh m;
    mesh_open_unjoined(&m, 2, over_memory(state), 15000);
    assert_fails(RKS_ERR_STATE, rks_engine_note(m.engines[0], 1, RKS_SERVICE_GROUP, "", 0, &err));
    mesh_join(&m, 0);
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_engine_note(m.engines[0], 2, RKS_SERVICE_GROUP, "", 0, &err));
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_engine_note(m.engines[0], 1, RKS_SERVICE_GROUP, "", (size_t)2 << 30, &err));
    assert_fails(RKS_ERR_STATE,
                 rks_engine_join(m.engines[0], m.addresses, MESH_SESSION, MESH_SECRET, &err));
    mesh_close(&m);
}

static void idle_engines_sleep(void **state)
{
    enum { WATCHED_MS = 400 };
    mesh m;
    struct rusage before, after;
    mesh_open(&m, 2, over_memory(state), 600); /* pings every 200 ms */
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
    assert_ok(rks_engine_keep(m.engines[0], 1, &err), &err);
    assert_ok(ask_echo(m.engines[0], 1, 1, 100, &err), &err);
    getrusage(RUSAGE_SELF, &before);
    usleep(WATCHED_MS * 1000);
    getrusage(RUSAGE_SELF, &after);
    /* A handful of times in all that any thread was woken. */
    assert_true(after.ru_nvcsw - before.ru_nvcsw < 40);
    mesh_close(&m);
}

static void engines_meet_over_ipv6(void **state)
{
    (void)state;
    mesh m = {.size = 2};
    for (uint32_t i = 0; i < 2; i++) {
        rks_engine_options options;
        rks_engine_options_default(&options);
        options.rank = i;
        options.size = 2;
        options.listen = "::1";
        rks_status status = rks_engine_open(&options, &m.engines[i], &err);
        if (status == RKS_ERR_IO && (err.cause == EADDRNOTAVAIL || err.cause == EAFNOSUPPORT))
            break; /* a machine without IPv6 says so, and that is all there is to see */
        assert_ok(status, &err);
        m.addresses[i] = *rks_engine_address(m.engines[i]);
    }
    if (m.engines[1] != NULL) {
        mesh_join(&m, 0);
        mesh_join(&m, 1);
        rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
        assert_ok(ask_echo(m.engines[0], 1, 2, 1000, &err), &err);
    }
    mesh_close(&m);
}

static void listening_everywhere_or_nowhere_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"0.0.0.0", "::", "no-such-interface", "192.0.2.1"};
    for (size_t i = 0; i < 4; i++) {
        rks_engine_options options;
        rks_engine *engine = NULL;
        rks_engine_options_default(&options);
        options.listen = bad[i];
        assert_true(rks_engine_open(&options, &engine, &err) != RKS_OK);
        assert_null(engine);
        assert_contains(err.text, bad[i]);
    }
    rks_engine_options options;
    rks_engine *engine = NULL;
    rks_engine_options_default(&options);
    options.listen = "lo";
    assert_ok(rks_engine_open(&options, &engine, &err), &err);
    static const uint8_t loopback[4] = {127, 0, 0, 1};
    assert_memory_equal(rks_engine_address(engine)->ip, loopback, 4);
    rks_engine_close(engine, 0);
}

/* In a child: limits are the process's. Its exit code: 0, or the line that failed. */
static int open_with_few_descriptors(void)
{
    rks_engine_options options;
    rks_engine *engine = NULL;
    struct rlimit limit = {200, 400};
    rks_engine_options_default(&options);
    options.size = 3;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || rks_engine_open(&options, &engine, &err) != RKS_OK)
        return __LINE__ % 256;
    rks_engine_close(engine, 0);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur != 400)
        return __LINE__ % 256;
    options.size = 350;
    if (rks_engine_open(&options, &engine, &err) != RKS_ERR_IO ||
        strstr(err.text, "a job of 350 ranks needs 5") == NULL ||
        strstr(err.text, "the limit is 400") == NULL)
        return __LINE__ % 256;
    return 0;
}

static void the_limit_on_descriptors_is_raised_or_named(void **state)
{
    (void)state;
    int status = -1;
    pid_t child = fork();
    if (child == 0)
        _exit(open_with_few_descriptors());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_limit_on_descriptors_is_raised_or_named),
        BOTH(replies_of_many_sizes_come_whole),
        BOTH(a_rank_may_ask_itself),
        BOTH(an_error_reply_says_where_it_happened),
        BOTH(a_reply_above_the_limit_is_refused_and_the_connection_lives),
        BOTH(notes_arrive_in_order_also_from_before_the_join),
        BOTH(both_sides_ask_each_other_at_once),
        cmocka_unit_test(two_ranks_that_connect_at_once_share_one_connection),
        BOTH(two_ranks_that_ask_each_other_for_very_much_get_it),
        cmocka_unit_test(a_request_that_waited_for_room_is_served_at_once),
        BOTH(a_thousand_requests_of_eight_threads_are_all_answered),
        BOTH(a_place_of_null_fails_that_request_alone),
        BOTH(requests_do_not_wait_behind_slow_ones),
        BOTH(what_a_reply_was_sent_from_is_let_go_once),
        BOTH(a_service_that_ended_is_not_called_any_more),
        BOTH(a_service_may_answer_on_the_engine_thread_or_leave_it_to_another),
        BOTH(calls_that_break_a_rule_are_refused),
        BOTH(idle_engines_sleep),
        cmocka_unit_test(engines_meet_over_ipv6),
        cmocka_unit_test(listening_everywhere_or_nowhere_is_refused),
    };
    int failed = cmocka_run_group_tests_name("engine", tests, NULL, NULL);
    setenv("MESH_AUTHENTICATE", "1", 1);
    failed += cmocka_run_group_tests_name("engine, authenticated", tests, NULL, NULL);
    setenv("MESH_ENCRYPT", "1", 1);
    failed += cmocka_run_group_tests_name("engine, encrypted", tests, NULL, NULL);
    if (rks_memory_in_use() != 0) {
        print_error("%ld allocations are left\n", rks_memory_in_use());
        failed++;
    }
    return failed;
}
