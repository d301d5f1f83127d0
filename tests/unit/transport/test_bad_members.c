/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bad_members.c: what members of the job can do to an engine by breaking the rules, and what
 * becomes of requests to them. After each case the engine must serve its real peers on. */
#include "stranger_pair.h"

#include <errno.h>

#include "support/seed.h"
#include "transport/notes.h"

static void a_member_that_breaks_the_rules_is_cut_off(void **state)
{
    (void)state;
    mesh m;
    open_pair(&m, 15000, NULL);
    for (int i = 0; i < 13; i++) {
        int fd = stranger_connect(&m.addresses[1]);
        rks_hello hello = stranger_hello(2, 1, 3, true);
        assert_true(stranger_enter(fd, &hello));
        uint8_t bytes[RKS_FRAME_HEADER] = {0};
        rks_frame_header header = {.type = RKS_FRAME_REQUEST, .service = RKS_SERVICE_FETCH};
        static const uint64_t sizes[] = {UINT32_MAX, 1ull << 63, UINT64_MAX, (1 << 20) + 1};
        if (i < 4) { /* bodies that are announced, but too large */
            header.size = sizes[i];
            header.type = RKS_FRAME_REPLY; /* whose check covers no body */
            rks_frame_encode(&header, NULL, bytes);
            bytes[16] = RKS_FRAME_NOTE;
            stranger_send(fd, bytes, sizeof(bytes));
        } else if (i == 4)
            stranger_say_hello(fd, &hello);
        else if (i == 5)
            stranger_say_proof(fd, &hello);
        else if (i == 6)
            stranger_frame(fd, RKS_FRAME_ERROR, 0, 0, bytes, 0);
        else if (i == 7)
            stranger_frame(fd, 99, 0, 0, NULL, 0);
        else if (i == 8) { /* a wrong check of a note */
            header = (rks_frame_header){.size = 4, .id = 1, .type = RKS_FRAME_NOTE, .service = 1};
            rks_frame_encode(&header, "good", bytes);
            stranger_send(fd, bytes, sizeof(bytes));
            stranger_send(fd, "evil", 4);
        } else if (i == 9) /* the first note is number 1 */
            stranger_frame(fd, RKS_FRAME_NOTE, 2, RKS_SERVICE_GROUP, NULL, 0);
        else if (i == 10) /* a note that was never sent */
            stranger_frame(fd, RKS_FRAME_ACK, 1, 0, NULL, 0);
        else if (i == 11)
            stranger_say_resume(fd, STRANGER_INSTANCE, 0);
        else
            stranger_send(fd,
                          "\377\377\377\377\377\377\377\377\377\377\377\377"
                          "\377\377\377\377\377\377\377\377\377\377\377\377",
                          24);
        rks_error why;
        assert_true(stranger_frame_in(fd, &header, &why, sizeof(why))); /* it hears what was seen */
        assert_int_equal(header.type, RKS_FRAME_ERROR);
        assert_int_equal(why.cause, EBADMSG);
        assert_int_equal(stranger_drain(fd), 0);
        close(fd);
    }
    serves_on(&m);
    mesh_close(&m);
}

/* By default replies may have 1 GiB: that is no reason to make room for a request of that size. */
static void each_kind_of_frame_has_its_limit(void **state)
{
    (void)state;
    static const struct {
        uint16_t type;
        uint64_t limit;
    } kinds[] = {{RKS_FRAME_REQUEST, 4 << 20}, {RKS_FRAME_NOTE, RKS_NOTE_MAX}};
    mesh m;
    open_pair_for(&m, 15000, 0, 0, NULL);
    for (int i = 0; i < 4; i++) {
        uint64_t limit = kinds[i / 2].limit, size = limit + i % 2;
        uint8_t *body = calloc(1, size);
        rks_hello hello = stranger_hello(2, 1, 3, true);
        int fd = stranger_connect(&m.addresses[1]);
        assert_true(stranger_enter(fd, &hello));
        stranger_frame(fd, kinds[i / 2].type, 1, RKS_SERVICE_FETCH, body, size);
        stranger_frame(fd, RKS_FRAME_PING, 0, 0, NULL, 0);
        if (size == limit) { /* something is answered */
            assert_true(stranger_receive(fd, body, 1));
            shutdown(fd, SHUT_WR);
        }
        stranger_drain(fd);
        rks_engine_stats stats;
        rks_engine_stats_get(m.engines[1], &stats);
        if (size > limit) /* all of it but what the kernel held was never read */
            assert_true(stats.bytes_received < 2 * (size_t)RKS_NOTE_MAX + (4 << 20));
        free(body);
        close(fd);
    }
    rks_error why;
    uint8_t *reply = NULL, *body = calloc(1, (4 << 20) + 1);
    size_t got;
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_engine_ask(m.engines[0], 1,
                                &(rks_outgoing){RKS_SERVICE_FETCH, body, (4 << 20) + 1, "a fetch"},
                                100, &reply, &got, &why));
    assert_contains(why.text, "above the limit of 4194304");
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_engine_note(m.engines[0], 1, RKS_SERVICE_GROUP, body, RKS_NOTE_MAX + 1, &why));
    free(body);
    serves_on(&m);
    mesh_close(&m);
}

static void a_member_that_speaks_at_random_is_survived(void **state)
{
    (void)state;
    enum { ROUNDS = 150 };
    uint64_t seed = test_seed(0);
    mesh m;
    open_pair(&m, 15000, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        int fd = stranger_connect(&m.addresses[1]);
        rks_hello hello = stranger_hello(2, 1, 3, true);
        /* The engine may not have noticed yet that the last one has gone. */
        if (!stranger_enter(fd, &hello)) {
            close(fd);
            continue;
        }
        for (int i = 0; i < 20; i++) {
            uint8_t body[300];
            for (size_t k = 0; k < sizeof(body); k++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                body[k] = (uint8_t)(seed >> 56);
            }
            uint16_t type = (uint16_t)(body[0] % 12);
            size_t size = type == RKS_FRAME_PING || type >= RKS_FRAME_BYE ? 0 : body[1];
            if (type == RKS_FRAME_REQUEST && size >= 4)
                body[1] = body[2] = body[3] = 0; /* an echo of at most 255 times */
            stranger_frame(fd, type, body[5], body[6] % 20, body, size);
            if (body[7] == 0)
                stranger_send(fd, body, 1); /* and out of step */
        }
        close(fd);
    }
    serves_on(&m);
    mesh_close(&m);
}

enum { REQUESTS = 150 };

typedef struct asking {
    int fd;
    event answered;
} asking;

/* Each when the one before has its reply, which then waits for its way out. */
static bool is_answered(asking *a, uint64_t count)
{
    uint64_t until = rks_now_ms() + 1000;
    while (event_count(&a->answered) < count && rks_now_ms() < until)
        usleep(100);
    return event_count(&a->answered) >= count;
}

static void *send_requests(void *argument)
{
    enum { SIZE = 15 * 64 * 1024 };
    asking *a = argument;
    bool answers = true;
    uint8_t *body = calloc(1, 4 + SIZE);
    body[0] = 1;
    for (uint64_t id = 1; id <= REQUESTS; id++) {
        body[4] = (uint8_t)id;
        stranger_frame(a->fd, RKS_FRAME_REQUEST, id, RKS_SERVICE_FETCH, body, 4 + SIZE);
        answers = answers && is_answered(a, id);
    }
    free(body);
    return NULL;
}

static void echo_and_count(void *user, rks_request *request)
{
    echo(NULL, request);
    event_add(user);
}

/* Requests and replies of almost 1 MiB, together more than an owner keeps. */
static void one_that_asks_and_does_not_listen_is_not_read_for_ever(void **state)
{
    (void)state;
    enum { SILENCE_MS = 6000, REPLY = 15 * 64 * 1024 }; /* it is cut off after so long */
    mesh m;
    pthread_t sender;
    asking a;
    event_init(&a.answered);
    open_pair(&m, SILENCE_MS, NULL);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo_and_count, NULL, &a.answered);
    rks_hello hello = stranger_hello(2, 1, 3, true);
    int fd = a.fd = stranger_connect(&m.addresses[1]);
    assert_true(stranger_enter(fd, &hello));
    pthread_create(&sender, NULL, send_requests, &a);
    while (is_answered(&a, event_count(&a.answered) + 1))
        continue;
    rks_engine_stats stats = {0};
    uint64_t before = 1, until = rks_now_ms() + WAIT_MS;
    while (stats.frames_received != before && rks_now_ms() < until) {
        before = stats.frames_received;
        usleep(100000); /* until no more is taken */
        rks_engine_stats_get(m.engines[1], &stats);
    }
    assert_true(stats.frames_received < 120);
    serves_on(&m);
    uint8_t *reply = malloc(REPLY);
    uint64_t replies = 0;
    while (replies < REQUESTS) {
        rks_frame_header header;
        assert_true(stranger_frame_in(fd, &header, reply, REPLY));
        if (header.type == RKS_FRAME_PONG)
            continue; /* it says that it lives, though it does not listen */
        assert_int_equal(header.type, RKS_FRAME_REPLY);
        assert_int_equal(header.size, REPLY);
        assert_int_equal(reply[0], (uint8_t)header.id);
        replies++;
    }
    pthread_join(sender, NULL);
    free(reply);
    close(fd);
    serves_on(&m);
    mesh_close(&m);
}

/* Rank 2 cuts the connection in the middle of a reply of 80 bytes; the request's id. */
static uint64_t cut_in_a_reply(int fd)
{
    rks_frame_header header = {.size = 80, .id = take_request(fd), .type = RKS_FRAME_REPLY};
    uint8_t bytes[RKS_FRAME_HEADER];
    rks_frame_encode(&header, NULL, bytes);
    stranger_send(fd, bytes, sizeof(bytes));
    stranger_send(fd, "half of it", 10);
    close(fd);
    return header.id;
}

static void a_request_whose_reply_is_cut_is_asked_again(void **state)
{
    (void)state;
    int listener;
    rks_hello hello;
    answer a;
    mesh m;
    char whole[80] = "all of it";
    open_pair(&m, 15000, &listener);
    request_of(&m, &a);
    uint64_t id = cut_in_a_reply(accept_member(listener, &hello));
    int fd = accept_member(listener, &hello);
    assert_int_equal(take_request(fd), id);
    stranger_frame(fd, RKS_FRAME_REPLY, id, 0, whole, sizeof(whole));
    event_wait(&a.done, 1);
    assert_ok(a.status, &a.err);
    assert_int_equal(a.size, sizeof(whole));
    assert_memory_equal(a.reply, whole, sizeof(whole));

    request_of(&m, &a); /* one that replies otherwise the next time is not believed */
    cut_in_a_reply(fd);
    fd = accept_member(listener, &hello);
    stranger_frame(fd, RKS_FRAME_REPLY, take_request(fd), 0, "fine", 4);
    event_wait(&a.done, 1);
    assert_int_equal(a.status, RKS_ERR_PEER);
    assert_contains(a.err.text, "replied with 80 bytes, then with 4");

    request_of(&m, &a); /* and one that does not come back is lost, with what was seen */
    close(listener);
    cut_in_a_reply(fd);
    event_wait(&a.done, 1);
    assert_int_equal(a.status, RKS_ERR_PEER);
    assert_contains(a.err.text, "rank 2 (strange): closed the connection, and then no connection");
    assert_contains(a.err.text, "refused during a fetch");
    assert_int_equal(a.err.rank, 2);
    mesh_close(&m);
}

/* A link that breaks again and again, with nothing taken in between. */
static void a_link_that_keeps_breaking_is_said_to_have_failed(void **state)
{
    (void)state;
    enum { BREAKS = 4 };
    int listener;
    rks_hello hello;
    answer a;
    mesh m;
    open_pair(&m, 15000, &listener);
    request_of(&m, &a);
    for (int i = 0; i < BREAKS; i++)
        cut_in_a_reply(accept_member(listener, &hello));
    event_wait(&a.done, 1);
    assert_int_equal(a.status, RKS_ERR_PEER);
    assert_int_equal(a.err.cause, ENOLINK);
    assert_contains(a.err.text, "rank 2 (strange): the link failed, not the rank: 4 connections "
                                "broke, the last one: closed the connection during a fetch");
    close(listener);
    mesh_close(&m);
}

static void replies_that_nobody_waits_for_are_dropped_and_counted(void **state)
{
    (void)state;
    int listener;
    rks_hello hello;
    answer a;
    mesh m;
    rks_error strange;
    open_pair(&m, 15000, &listener);
    request_of(&m, &a);
    int fd = accept_member(listener, &hello);
    uint64_t id = take_request(fd);
    rks_fail(&strange, RKS_ERR_IO, 0, "nothing was asked");
    stranger_frame(fd, RKS_FRAME_REPLY, id + 1, 0, "never asked", 11);
    stranger_frame(fd, RKS_FRAME_ERROR, UINT64_MAX, 0, &strange, sizeof(strange));
    stranger_frame(fd, RKS_FRAME_REPLY, id, 0, "once", 4);
    stranger_frame(fd, RKS_FRAME_REPLY, id, 0, "twice", 5);
    event_wait(&a.done, 1);
    assert_ok(a.status, &a.err);
    request_of(&m, &a);
    id = take_request(fd);
    memset(&strange, 0xff, sizeof(strange)); /* an error that is none */
    strange.status = 12345;
    stranger_frame(fd, RKS_FRAME_ERROR, id, 0, &strange, sizeof(strange));
    event_wait(&a.done, 1);
    assert_int_equal(a.status, RKS_ERR_PEER);
    rks_engine_stats stats;
    rks_engine_stats_get(m.engines[0], &stats);
    assert_int_equal(stats.strays, 3);
    close(fd);
    close(listener);
    mesh_close(&m);
}

/* ---- members that beat, and read nothing ------------------------------------------------------
 */

enum { DEAF_FOR = 2, LARGE = 1 << 20 };

/* Beats as an engine does, and reads nothing, for twice T. */
static void beat_and_read_nothing(int fd, enum rks_frame_type type)
{
    uint64_t until = rks_now_ms() + DEAF_FOR * SHORT_SILENCE_MS;
    while (rks_now_ms() < until) {
        stranger_frame(fd, type, 0, 0, NULL, 0);
        usleep(SHORT_SILENCE_MS * 1000 / 4);
    }
}

/* Frames of a type until `count` have come, of LARGE bytes; false: the connection has ended. */
static bool take_large(int fd, enum rks_frame_type type, int count)
{
    uint8_t *body = malloc(LARGE);
    bool good = true;
    while (count > 0 && good) {
        rks_frame_header header;
        good = stranger_frame_in(fd, &header, body, LARGE);
        if (good && header.type == type)
            count -= header.size == LARGE;
        if (good && header.type == RKS_FRAME_NOTE)
            stranger_frame(fd, RKS_FRAME_ACK, header.id, 0, NULL, 0);
    }
    free(body);
    return good;
}

static void one_that_beats_and_reads_nothing_keeps_its_replies(void **state)
{
    (void)state;
    enum { COUNT = 16, SIZE = LARGE / 16 };
    mesh m;
    open_pair(&m, SHORT_SILENCE_MS, NULL);
    rks_hello hello = stranger_hello(2, 1, 3, true);
    int fd = stranger_connect(&m.addresses[1]);
    assert_true(stranger_enter(fd, &hello));
    uint8_t *body = calloc(1, 4 + SIZE);
    body[0] = LARGE / SIZE;
    stranger_frame(fd, RKS_FRAME_KEEP, 0, 0, NULL, 0);
    for (uint64_t id = 1; id <= COUNT; id++)
        stranger_frame(fd, RKS_FRAME_REQUEST, id, RKS_SERVICE_FETCH, body, 4 + SIZE);
    free(body);
    beat_and_read_nothing(fd, RKS_FRAME_PING);
    assert_true(take_large(fd, RKS_FRAME_REPLY, COUNT));
    close(fd);
    mesh_close(&m);
}

static void one_that_beats_and_reads_nothing_gets_its_notes(void **state)
{
    (void)state;
    enum { COUNT = 32 };
    int listener;
    mesh m;
    open_pair(&m, SHORT_SILENCE_MS, &listener);
    uint8_t *body = calloc(1, LARGE);
    assert_ok(rks_engine_keep(m.engines[1], 2, &err), &err);
    for (int i = 0; i < COUNT; i++)
        assert_ok(rks_engine_note(m.engines[1], 2, RKS_SERVICE_GROUP, body, LARGE, &err), &err);
    free(body);
    rks_hello hello;
    int fd = accept_member(listener, &hello);
    beat_and_read_nothing(fd, RKS_FRAME_PONG);
    assert_true(take_large(fd, RKS_FRAME_NOTE, COUNT));
    close(fd);
    close(listener);
    mesh_close(&m);
}

/* No more notes are on their way than the window has room for. */
static void one_that_acknowledges_nothing_gets_no_more_than_the_window(void **state)
{
    (void)state;
    enum { COUNT = 3 * RKS_NOTES_WINDOW / LARGE };
    int listener, count = 0;
    mesh m;
    open_pair(&m, 15000, &listener);
    uint8_t *body = calloc(1, LARGE);
    for (int i = 0; i < COUNT; i++)
        assert_ok(rks_engine_note(m.engines[1], 2, RKS_SERVICE_GROUP, body, LARGE, &err), &err);
    rks_hello hello;
    rks_frame_header header;
    int fd = accept_member(listener, &hello);
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    while (count < COUNT) {
        do {
            assert_true(stranger_frame_in(fd, &header, body, LARGE));
            assert_int_equal(header.id, ++count);
        } while (count % (RKS_NOTES_WINDOW / LARGE) != 0);
        assert_int_equal(poll(&poller, 1, 200), 0);
        stranger_frame(fd, RKS_FRAME_ACK, (uint64_t)count, 0, NULL, 0);
    }
    free(body);
    close(fd);
    close(listener);
    mesh_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_that_breaks_the_rules_is_cut_off),
        cmocka_unit_test(each_kind_of_frame_has_its_limit),
        cmocka_unit_test(a_member_that_speaks_at_random_is_survived),
        cmocka_unit_test(one_that_asks_and_does_not_listen_is_not_read_for_ever),
        cmocka_unit_test(a_request_whose_reply_is_cut_is_asked_again),
        cmocka_unit_test(a_link_that_keeps_breaking_is_said_to_have_failed),
        cmocka_unit_test(replies_that_nobody_waits_for_are_dropped_and_counted),
        cmocka_unit_test(one_that_beats_and_reads_nothing_keeps_its_replies),
        cmocka_unit_test(one_that_beats_and_reads_nothing_gets_its_notes),
        cmocka_unit_test(one_that_acknowledges_nothing_gets_no_more_than_the_window),
    };
    int failed = cmocka_run_group_tests_name("bad members", tests, NULL, NULL);
    if (rks_memory_in_use() != 0) {
        print_error("%ld allocations are left\n", rks_memory_in_use());
        failed++;
    }
    return failed;
}
