/* SPDX-License-Identifier: Apache-2.0
 *
 * test_strangers.c: what an engine gives to those who do not belong to its job (nothing), and what
 * members of the job can do to it by breaking the rules. After each case the engine must serve its
 * real peers on. Rank 0 asks, rank 1 is attacked, rank 2 exists only as a stranger. */
#include "stranger.h"

#include <arpa/inet.h>

#include "base/bytes.h"
#include "support/seed.h"

static rks_error err;

enum { HELLO_FRAME = RKS_FRAME_HEADER + RKS_HELLO_BODY, SHORT_SILENCE_MS = 1000 };

/* Engines 0 and 1 of three; where `listener` is not NULL, rank 2 is that socket. */
static bool authenticate; /* options of the engines that are opened next */

static void open_pair_for(mesh *m, uint32_t silence_ms, uint32_t newcomers, uint64_t max_frame,
                          int *listener)
{
    memset(m, 0, sizeof(*m));
    m->size = 3;
    stranger_mesh = m;
    for (uint32_t i = 0; i < 2; i++) {
        rks_engine_options options;
        rks_engine_options_default(&options);
        options.rank = i;
        options.size = 3;
        options.silence_ms = silence_ms;
        options.io_threads = 2;
        options.newcomers = newcomers;
        options.authenticate = authenticate;
        if (max_frame != 0)
            options.max_frame = max_frame;
        assert_ok(rks_engine_open(&options, &m->engines[i], &err), &err);
        m->addresses[i] = *rks_engine_address(m->engines[i]);
    }
    m->addresses[2] = m->addresses[1]; /* of this host */
    m->addresses[2].port ^= 1;
    if (listener != NULL)
        assert_ok(rks_listen(NULL, listener, &m->addresses[2], &err), &err);
    strcpy(m->addresses[2].host, "strange");
    mesh_join(m, 0);
    mesh_join(m, 1);
    rks_engine_serve(m->engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
}

static void open_pair(mesh *m, uint32_t silence_ms, int *listener)
{
    open_pair_for(m, silence_ms, 0, 1 << 20, listener);
}

static void serves_on(mesh *m)
{
    assert_ok(ask_echo(m->engines[0], 1, 2, 1000, &err), &err);
}

static uint64_t refused(mesh *m)
{
    rks_engine_stats stats;
    rks_engine_stats_get(m->engines[1], &stats);
    return stats.refused;
}

static void noise_gets_no_byte(void **state)
{
    (void)state;
    static const char http[] = "GET / HTTP/1.1\r\nHost: example\r\n\r\n";
    static const uint8_t tls[] = {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0,
                                  0,    0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0, 0};
    uint8_t random[4096];
    mesh m;
    open_pair(&m, 15000, NULL);
    for (int i = 0; i < 20; i++) {
        int fd = stranger_connect(&m.addresses[1]);
        assert_ok(rks_random(random, sizeof(random), &err), &err);
        if (i == 0)
            stranger_send(fd, http, sizeof(http) - 1);
        else if (i == 1)
            stranger_send(fd, tls, sizeof(tls));
        else
            stranger_send(fd, random, sizeof(random));
        assert_int_equal(stranger_drain(fd), 0);
        close(fd);
    }
    assert_int_equal(refused(&m), 20);
    serves_on(&m);
    mesh_close(&m);
}

static void without_the_secret_there_is_a_hello_and_nothing_more(void **state)
{
    (void)state;
    static const uint8_t wrong[RKS_SECRET_SIZE] = "a secret of somebody else";
    mesh m;
    open_pair(&m, 15000, NULL);
    for (int i = 0; i < 4; i++) {
        int fd = stranger_connect(&m.addresses[1]);
        rks_hello hello = stranger_hello(2, 1, 3, true);
        if (i == 0)
            memcpy(hello.key, wrong, sizeof(wrong));
        hello.session = i == 1 ? wrong : MESH_SESSION;
        stranger_say_hello(fd, &hello);
        assert_true(stranger_take_hello(fd, &hello));
        assert_int_equal(rks_hello_trusted(&hello), i >= 2);
        if (i == 2) /* straight on, without a proof */
            stranger_frame(fd, RKS_FRAME_REQUEST, 1, RKS_SERVICE_FETCH, "\1\0\0\0secret", 10);
        else if (i == 3) /* a hello that was recorded, and a proof that is made up */
            stranger_frame(fd, RKS_FRAME_PROOF, 0, 0, wrong, RKS_PROOF_SIZE);
        else
            stranger_say_proof(fd, &hello);
        assert_int_equal(stranger_drain(fd), 0);
        close(fd);
    }
    int fd = stranger_connect(&m.addresses[1]);
    stranger_frame(fd, RKS_FRAME_REQUEST, 1, RKS_SERVICE_FETCH, "\1\0\0\0secret", 10);
    assert_int_equal(stranger_drain(fd), 0);
    close(fd);
    assert_int_equal(refused(&m), 5);
    serves_on(&m);
    mesh_close(&m);
}

static void a_recorded_handshake_is_refused_when_replayed(void **state)
{
    (void)state;
    mesh m;
    open_pair(&m, 15000, NULL);
    rks_hello hello = stranger_hello(2, 1, 3, true);
    int fd = stranger_connect(&m.addresses[1]);
    assert_true(stranger_enter(fd, &hello));
    close(fd);
    fd = stranger_connect(&m.addresses[1]);
    stranger_say_hello(fd, &hello);
    stranger_say_proof(fd, &hello); /* the recorded one: over the old nonce of the engine */
    assert_int_equal(stranger_drain(fd), HELLO_FRAME);
    close(fd);
    serves_on(&m);
    mesh_close(&m);
}

/* Of one who does not know the key. */
static void say_hello_with_tag(int fd, const rks_hello *hello, const uint8_t tag[RKS_TAG_SIZE])
{
    uint8_t body[RKS_HELLO_BODY];
    rks_hello_encode(hello, body);
    memcpy(body + RKS_HELLO_BODY - RKS_TAG_SIZE, tag, RKS_TAG_SIZE);
    stranger_frame(fd, RKS_FRAME_HELLO, 0, 0, body, sizeof(body));
}

/* The stranger, who knows no secret, stands where rank 2 listens, and lets rank 1 answer itself. */
static void a_reflected_hello_is_refused(void **state)
{
    (void)state;
    int listener;
    mesh m;
    open_pair(&m, 15000, &listener);
    assert_ok(rks_engine_note(m.engines[1], 2, RKS_SERVICE_GROUP, "x", 1, &err), &err);
    struct pollfd poller = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&poller, 1, WAIT_MS), 1);
    int out = accept(listener, NULL, NULL);
    rks_hello answer = stranger_hello(2, 1, 3, false);
    assert_true(stranger_take_hello(out, &answer)); /* the engine's nonce */

    int in = stranger_connect(&m.addresses[1]);
    rks_hello mirror = stranger_hello(2, 1, 3, true);
    memcpy(mirror.own_nonce, answer.peer_nonce, RKS_NONCE_SIZE);
    say_hello_with_tag(in, &mirror, answer.peer_tag);
    assert_true(stranger_take_hello(in, &mirror));
    assert_int_equal(stranger_drain(in), 0);

    memcpy(answer.own_nonce, mirror.peer_nonce, RKS_NONCE_SIZE);
    say_hello_with_tag(out, &answer, mirror.peer_tag); /* back to its sender */
    assert_int_equal(stranger_drain(out), 0);          /* no proof, and no note */
    close(in);
    close(out);
    close(listener);
    serves_on(&m);
    mesh_close(&m);
}

static void hellos_of_and_for_wrong_ranks_are_refused(void **state)
{
    (void)state;
    mesh m;
    open_pair(&m, 15000, NULL);
    static const uint32_t wrong[][2] = {{3, 1}, {UINT32_MAX, 1}, {2, 0}, {2, UINT32_MAX}};
    for (size_t i = 0; i < 4; i++) {
        int fd = stranger_connect(&m.addresses[1]);
        rks_hello hello = stranger_hello(wrong[i][0], wrong[i][1], 3, true);
        stranger_say_hello(fd, &hello);
        assert_int_equal(stranger_drain(fd), 0);
        close(fd);
    }
    serves_on(&m);
    mesh_close(&m);
}

static void another_version_of_the_protocol_is_told_ours(void **state)
{
    (void)state;
    mesh m;
    open_pair(&m, 15000, NULL);
    static const uint8_t others[] = {0, 1, RKS_PROTOCOL + 1, 255};
    for (size_t i = 0; i < sizeof(others); i++) {
        int fd = stranger_connect(&m.addresses[1]);
        rks_hello hello = stranger_hello(2, 1, 3, true);
        uint8_t body[RKS_HELLO_BODY];
        rks_hello_encode(&hello, body);
        body[8] = others[i];
        stranger_frame(fd, RKS_FRAME_HELLO, 0, 0, body, sizeof(body));
        assert_true(stranger_take_hello(fd, &hello));
        assert_int_equal(stranger_drain(fd), 0);
        close(fd);
    }
    mesh_close(&m);
}

static void a_second_claim_of_a_live_rank_is_refused_and_named(void **state)
{
    (void)state;
    mesh m;
    open_pair(&m, 15000, NULL);
    serves_on(&m); /* rank 0 is connected */
    int fd = stranger_connect(&m.addresses[1]);
    rks_hello hello = stranger_hello(0, 1, 3, true);
    assert_true(stranger_enter(fd, &hello));
    rks_frame_header header;
    rks_error why;
    assert_true(stranger_frame_in(fd, &header, &why, sizeof(why)));
    assert_int_equal(header.type, RKS_FRAME_ERROR);
    assert_int_equal(header.id, 0);
    assert_contains(why.text, "rank 0 is connected already");
    assert_int_equal(stranger_drain(fd), 0);
    close(fd);
    serves_on(&m);
    mesh_close(&m);
}

static void a_member_that_breaks_the_rules_is_cut_off(void **state)
{
    (void)state;
    mesh m;
    open_pair(&m, 15000, NULL);
    for (int i = 0; i < 10; i++) {
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
            stranger_frame(fd, RKS_FRAME_REPLY, 1, 0, "x", 1);
        else if (i == 6)
            stranger_frame(fd, RKS_FRAME_ERROR, 0, 0, bytes, 0);
        else if (i == 7)
            stranger_frame(fd, 99, 0, 0, NULL, 0);
        else if (i == 8) { /* a wrong check of a note */
            header = (rks_frame_header){.size = 4, .type = RKS_FRAME_NOTE, .service = 1};
            rks_frame_encode(&header, "good", bytes);
            stranger_send(fd, bytes, sizeof(bytes));
            stranger_send(fd, "evil", 4);
        } else
            stranger_send(fd,
                          "\377\377\377\377\377\377\377\377\377\377\377\377"
                          "\377\377\377\377\377\377\377\377\377\377\377\377",
                          24);
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
                 rks_engine_ask(m.engines[0], 1, RKS_SERVICE_FETCH, body, (4 << 20) + 1, 100,
                                "a fetch", &reply, &got, &why));
    assert_contains(why.text, "above the limit of 4194304");
    assert_fails(RKS_ERR_ARGUMENT, rks_engine_note(m.engines[0], 1, RKS_SERVICE_GROUP, body,
                                                   RKS_NOTE_MAX + 1, &why));
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
    enum { SIZE = 64 * 1024 };
    asking *a = argument;
    bool answers = true;
    uint8_t *body = calloc(1, 4 + SIZE);
    body[0] = 15;
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

/* Replies of almost 1 MiB, together more than an owner may queue. */
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

static void one_byte_at_a_time_is_cut_off_at_the_deadline(void **state)
{
    (void)state;
    enum { SILENCE_MS = 600 };
    mesh m;
    open_pair(&m, SILENCE_MS, NULL);
    int fd = stranger_connect(&m.addresses[1]);
    uint64_t begin = rks_now_ms();
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    uint8_t byte = RKS_HELLO_BODY; /* what a hello's header begins with */
    int ready = 0;
    while (ready == 0 && rks_now_ms() < begin + WAIT_MS) {
        stranger_send(fd, &byte, 1);
        byte = 0;
        ready = poll(&poller, 1, 100);
    }
    uint64_t took_ms = rks_now_ms() - begin;
    assert_int_equal(stranger_drain(fd), 0);
    assert_true(took_ms >= SILENCE_MS - 100 && took_ms < RKS_HELLO_MS); /* the shorter one */
    close(fd);
    serves_on(&m);
    mesh_close(&m);
}

static void two_hundred_silent_connections_shut_nobody_out(void **state)
{
    (void)state;
    enum { SILENT = 200 };
    int fds[SILENT];
    mesh m;
    open_pair_for(&m, 15000, 64, 0, NULL);
    for (int i = 0; i < SILENT; i++)
        fds[i] = stranger_connect(&m.addresses[1]);
    uint64_t begin = rks_now_ms();
    serves_on(&m); /* rank 0 is not connected yet: it queues behind all of them */
    assert_true(rks_now_ms() - begin < RKS_HELLO_MS); /* nobody's time is up */
    int open = 0;
    for (int i = 0; i < SILENT; i++) {
        struct pollfd poller = {.fd = fds[i], .events = POLLIN};
        open += poll(&poller, 1, 0) == 0;
        close(fds[i]);
    }
    assert_true(open <= 64);
    mesh_close(&m);
}

/* Rank 2 as an owner that answers as the test likes. */
static int accept_member(int listener, rks_hello *hello)
{
    struct pollfd poller = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&poller, 1, WAIT_MS), 1);
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    *hello = stranger_hello(2, UINT32_MAX, 3, false);
    assert_true(stranger_take_hello(fd, hello));
    stranger_say_hello(fd, hello);
    assert_true(stranger_take_proof(fd, hello));
    stranger_say_proof(fd, hello);
    return fd;
}

typedef struct answer {
    event done;
    rks_status status;
    rks_error err;
    uint8_t reply[100];
    size_t size;
} answer;

static void *answer_place(void *user, size_t size)
{
    answer *a = user;
    a->size = size;
    return size <= sizeof(a->reply) ? a->reply : NULL;
}

static void answer_done(void *user, const rks_error *why)
{
    answer *a = user;
    a->status = why == NULL ? RKS_OK : (rks_status)why->status;
    if (why != NULL)
        a->err = *why;
    event_add(&a->done);
}

static void request_of(mesh *m, answer *a)
{
    memset(a, 0, sizeof(*a));
    event_init(&a->done);
    rks_reply_sink sink = {.place = answer_place, .done = answer_done, .user = a};
    assert_ok(
        rks_engine_request(m->engines[0], 2, RKS_SERVICE_FETCH, "ids", 3, "a fetch", &sink, &err),
        &err);
}

static uint64_t take_request(int fd)
{
    rks_frame_header header;
    uint8_t body[100];
    assert_true(stranger_frame_in(fd, &header, body, sizeof(body)));
    assert_int_equal(header.type, RKS_FRAME_REQUEST);
    return header.id;
}

static void a_connection_that_is_cut_in_a_reply_fails_the_request_by_name(void **state)
{
    (void)state;
    int listener;
    rks_hello hello;
    answer a;
    mesh m;
    open_pair(&m, 15000, &listener);
    request_of(&m, &a);
    int fd = accept_member(listener, &hello);
    rks_frame_header header = {.size = 80, .id = take_request(fd), .type = RKS_FRAME_REPLY};
    uint8_t bytes[RKS_FRAME_HEADER];
    rks_frame_encode(&header, NULL, bytes);
    stranger_send(fd, bytes, sizeof(bytes));
    stranger_send(fd, "half of it", 10);
    close(fd);
    event_wait(&a.done, 1);
    assert_int_equal(a.status, RKS_ERR_PEER);
    assert_string_equal(a.err.text, "rank 2 (strange): closed the connection during a fetch");
    assert_int_equal(a.err.rank, 2);

    request_of(&m, &a); /* and the next one connects again */
    fd = accept_member(listener, &hello);
    stranger_frame(fd, RKS_FRAME_REPLY, take_request(fd), 0, "fine", 4);
    event_wait(&a.done, 1);
    assert_ok(a.status, &a.err);
    assert_memory_equal(a.reply, "fine", 4);
    close(fd);
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

static void an_owner_without_the_secret_gets_no_request(void **state)
{
    (void)state;
    static const uint8_t wrong[RKS_SECRET_SIZE];
    int listener;
    answer a;
    mesh m;
    open_pair(&m, 15000, &listener);
    request_of(&m, &a);
    struct pollfd poller = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&poller, 1, WAIT_MS), 1);
    int fd = accept(listener, NULL, NULL);
    rks_hello hello = stranger_hello(2, UINT32_MAX, 3, false);
    assert_true(stranger_take_hello(fd, &hello));
    memcpy(hello.key, wrong, sizeof(wrong));
    stranger_say_hello(fd, &hello);
    stranger_say_proof(fd, &hello);
    assert_int_equal(stranger_drain(fd), 0);
    event_wait(&a.done, 1);
    assert_int_equal(a.status, RKS_ERR_PEER);
    assert_contains(a.err.text, "without the job's secret during a fetch");
    close(fd);
    close(listener);
    mesh_close(&m);
}

/* The other way round: this side connects, and is told the other's. */
static void a_rank_of_another_version_is_named_with_both_versions(void **state)
{
    (void)state;
    int listener;
    answer a;
    mesh m;
    open_pair(&m, 15000, &listener);
    request_of(&m, &a);
    struct pollfd poller = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&poller, 1, WAIT_MS), 1);
    int fd = accept(listener, NULL, NULL);
    rks_hello hello = stranger_hello(2, 0, 3, false);
    uint8_t body[RKS_HELLO_BODY];
    rks_hello_encode(&hello, body);
    body[8] = 1;
    stranger_frame(fd, RKS_FRAME_HELLO, 0, 0, body, sizeof(body));
    event_wait(&a.done, 1);
    assert_int_equal(a.status, RKS_ERR_UNSUPPORTED);
    assert_contains(a.err.text, "rank 2 (strange): speaks protocol version 1, this side 2");
    close(fd);
    close(listener);
    mesh_close(&m);
}

/* ---- floods ----------------------------------------------------------------------------------- */

enum { FLOOD = 1200, AT_ONCE_MS = 2000 };

/* Rank 0's first connection to rank 1, behind FLOOD others. */
static void shuts_nobody_out(mesh *m, const int fds[FLOOD])
{
    uint64_t begin = rks_now_ms();
    serves_on(m);
    assert_true(rks_now_ms() - begin < AT_ONCE_MS);
    for (int i = 0; i < FLOOD; i++)
        close(fds[i]);
    serves_on(m);
    mesh_close(m);
}

static void a_flood_of_hellos_without_the_secret_shuts_nobody_out(void **state)
{
    (void)state;
    int fds[FLOOD];
    uint8_t body[RKS_HELLO_BODY];
    mesh m;
    open_pair(&m, 15000, NULL);
    for (int i = 0; i < FLOOD; i++) {
        rks_hello hello = stranger_hello(i % 2 == 0 ? 2 : 0, 1, 3, true);
        memset(hello.key, 0, sizeof(hello.key));
        rks_hello_encode(&hello, body);
        fds[i] = stranger_connect(&m.addresses[1]);
        stranger_frame(fds[i], RKS_FRAME_HELLO, 0, 0, body, sizeof(body));
    }
    shuts_nobody_out(&m, fds);
}

/* As one who has recorded hellos of ranks can send them. */
static void a_flood_of_recorded_hellos_shuts_nobody_out(void **state)
{
    (void)state;
    int fds[FLOOD];
    mesh m;
    open_pair(&m, 15000, NULL);
    for (int i = 0; i < FLOOD; i++) {
        rks_hello hello = stranger_hello(i % 2 == 0 ? 2 : 0, 1, 3, true);
        fds[i] = stranger_connect(&m.addresses[1]);
        stranger_say_hello(fds[i], &hello);
    }
    /* Of each rank few are kept. */
    uint64_t until = rks_now_ms() + WAIT_MS;
    while (refused(&m) < FLOOD - 2 * 16 && rks_now_ms() < until)
        usleep(10000);
    assert_int_equal(refused(&m), FLOOD - 2 * 16);
    shuts_nobody_out(&m, fds);
}

/* Where the whole room is less than the flood. */
static void a_flood_of_silent_connections_displaces_no_rank(void **state)
{
    (void)state;
    enum { ROOM = 64 };
    int fds[FLOOD];
    mesh m;
    open_pair_for(&m, 15000, ROOM, 0, NULL);
    rks_hello hello = stranger_hello(2, 1, 3, true);
    int fd = stranger_connect(&m.addresses[1]);
    stranger_say_hello(fd, &hello);
    assert_true(stranger_take_hello(fd, &hello));
    for (int i = 0; i < FLOOD; i++)
        fds[i] = stranger_connect(&m.addresses[1]);
    usleep(500000); /* while others come and go */
    stranger_say_proof(fd, &hello);
    assert_true(stranger_take_proof(fd, &hello));
    close(fd);
    shuts_nobody_out(&m, fds);
}

/* Rank 2 cuts each connection once both have said hello. */
static void one_that_cuts_hellos_is_tried_again_and_called_busy(void **state)
{
    (void)state;
    int listener, cuts = 0;
    answer a;
    mesh m;
    open_pair(&m, SHORT_SILENCE_MS, &listener);
    request_of(&m, &a);
    struct pollfd poller = {.fd = listener, .events = POLLIN};
    uint64_t begin = rks_now_ms();
    while (event_count(&a.done) == 0) {
        if (poll(&poller, 1, 100) == 0)
            continue;
        int fd = accept(listener, NULL, NULL);
        rks_hello hello = stranger_hello(2, UINT32_MAX, 3, false);
        assert_true(stranger_take_hello(fd, &hello));
        stranger_say_hello(fd, &hello);
        shutdown(fd, SHUT_WR);
        stranger_drain(fd);
        close(fd);
        cuts++;
    }
    assert_true(cuts > 2);
    assert_true(rks_now_ms() - begin > SHORT_SILENCE_MS / 2);
    assert_int_equal(a.status, RKS_ERR_PEER);
    assert_contains(a.err.text, "rank 2 (strange): too busy: cut ");
    request_of(&m, &a); /* and if it has time again */
    rks_hello hello;
    int fd = accept_member(listener, &hello);
    stranger_frame(fd, RKS_FRAME_REPLY, take_request(fd), 0, "fine", 4);
    event_wait(&a.done, 1);
    assert_ok(a.status, &a.err);
    close(fd);
    close(listener);
    mesh_close(&m);
}

/* Before the proof anybody may say anything: it says error after error, and then goes on. */
static void errors_before_the_proof_are_ignored(void **state)
{
    (void)state;
    int listener;
    answer a;
    mesh m;
    rks_error strange;
    open_pair(&m, 15000, &listener);
    request_of(&m, &a);
    struct pollfd poller = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&poller, 1, WAIT_MS), 1);
    int fd = accept(listener, NULL, NULL);
    rks_hello hello = stranger_hello(2, UINT32_MAX, 3, false);
    assert_true(stranger_take_hello(fd, &hello));
    rks_fail(&strange, RKS_ERR_DATA, 0, "made up");
    stranger_frame(fd, RKS_FRAME_ERROR, 0, 0, &strange, sizeof(strange));
    stranger_say_hello(fd, &hello);
    stranger_frame(fd, RKS_FRAME_ERROR, 0, 0, &strange, sizeof(strange));
    assert_true(stranger_take_proof(fd, &hello));
    stranger_frame(fd, RKS_FRAME_ERROR, 0, 0, &strange, sizeof(strange));
    stranger_say_proof(fd, &hello);
    stranger_frame(fd, RKS_FRAME_REPLY, take_request(fd), 0, "fine", 4);
    event_wait(&a.done, 1);
    assert_ok(a.status, &a.err);
    close(fd);
    close(listener);
    mesh_close(&m);
}

/* Behind a frame whose body lay in the connection itself: nothing may be freed that was not taken. */
static void notes_before_the_proof_cut_the_connection_and_no_more(void **state)
{
    (void)state;
    int listener;
    answer a;
    mesh m;
    rks_error strange;
    open_pair(&m, 15000, &listener);
    rks_hello hello = stranger_hello(2, 1, 3, true);
    int fd = stranger_connect(&m.addresses[1]);
    stranger_say_hello(fd, &hello);
    assert_true(stranger_take_hello(fd, &hello));
    stranger_frame(fd, RKS_FRAME_NOTE, 0, RKS_SERVICE_GROUP, "note", 4);
    assert_int_equal(stranger_drain(fd), 0);
    close(fd);
    serves_on(&m);

    request_of(&m, &a); /* and on the side that connects */
    struct pollfd poller = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&poller, 1, WAIT_MS), 1);
    fd = accept(listener, NULL, NULL);
    rks_fail(&strange, RKS_ERR_DATA, 0, "made up");
    stranger_frame(fd, RKS_FRAME_ERROR, 0, 0, &strange, sizeof(strange));
    stranger_frame(fd, RKS_FRAME_NOTE, 0, RKS_SERVICE_GROUP, "note", 4);
    event_wait(&a.done, 1);
    assert_int_equal(a.status, RKS_ERR_PEER);
    close(fd);
    close(listener);
    serves_on(&m);
    mesh_close(&m);
}

/* ---- a relay ---------------------------------------------------------------------------------- */

typedef struct relay {
    int listener;
    rks_address to;
    size_t from_owner; /* bytes that rank 1 sent, behind its hello */
} relay;

static size_t pass_on(int from, int to)
{
    uint8_t bytes[4096];
    ssize_t size = recv(from, bytes, sizeof(bytes), 0);
    if (size > 0)
        stranger_send(to, bytes, (size_t)size);
    return size > 0 ? (size_t)size : 0;
}

/* One connection, until a side ends it. */
static void *run_relay(void *argument)
{
    relay *r = argument;
    struct pollfd poller = {.fd = r->listener, .events = POLLIN};
    assert_int_equal(poll(&poller, 1, WAIT_MS), 1);
    int asker = accept(r->listener, NULL, NULL), owner = stranger_connect(&r->to);
    struct pollfd both[2] = {{.fd = asker, .events = POLLIN}, {.fd = owner, .events = POLLIN}};
    bool open = true;
    while (open) {
        assert_true(poll(both, 2, WAIT_MS) > 0);
        if (both[0].revents != 0)
            open = pass_on(asker, owner) > 0;
        if (open && both[1].revents != 0) {
            size_t size = pass_on(owner, asker);
            r->from_owner += size;
            open = size > 0;
        }
    }
    close(asker);
    close(owner);
    return NULL;
}

/* Rank 0 was given the relay's address in place of rank 1's. It passes on all bytes as they are. */
static void a_relay_at_an_address_of_its_own_is_refused(void **state)
{
    (void)state;
    mesh m;
    relay r = {0};
    pthread_t thread;
    memset(&m, 0, sizeof(m));
    mesh_open_unjoined(&m, 2, false, 15000);
    rks_engine_serve(m.engines[1], RKS_SERVICE_FETCH, echo, NULL, NULL);
    mesh_join(&m, 1);
    r.to = m.addresses[1];
    assert_ok(rks_listen(NULL, &r.listener, &m.addresses[1], &err), &err);
    mesh_join(&m, 0);
    pthread_create(&thread, NULL, run_relay, &r);
    assert_fails(RKS_ERR_PEER, ask_echo(m.engines[0], 1, 2, 1000, &err));
    assert_contains(err.text, "without the job's secret");
    pthread_join(thread, NULL);
    assert_int_equal(r.from_owner, HELLO_FRAME);
    close(r.listener);
    mesh_close(&m);
}

/* ---- one who changes bytes on their way ------------------------------------------------------- */

enum { RECORD_HEAD = 4 };

/* A record of `size` bytes at `bytes` + RECORD_HEAD, complete with head and tag; its whole size. */
static size_t make_record(const uint8_t key[RKS_KEY_SIZE], uint64_t number, uint8_t *bytes,
                          size_t size)
{
    const struct iovec whole = {bytes, RECORD_HEAD + size};
    rks_store_u32(bytes, (uint32_t)size);
    rks_authenticate(key, number, &whole, 1, bytes + RECORD_HEAD + size);
    return RECORD_HEAD + size + RKS_TAG_BYTES;
}

/* The request of the engine, in its first record: its id. */
static uint64_t take_sealed_request(int fd, const uint8_t key[RKS_KEY_SIZE])
{
    uint8_t bytes[1000], tag[RKS_TAG_BYTES];
    rks_frame_header header;
    assert_true(stranger_receive(fd, bytes, RECORD_HEAD));
    size_t size = rks_load_u32(bytes);
    assert_true(size < 900);
    assert_true(stranger_receive(fd, bytes + RECORD_HEAD, size + RKS_TAG_BYTES));
    const struct iovec whole = {bytes, RECORD_HEAD + size};
    rks_authenticate(key, 0, &whole, 1, tag);
    assert_memory_equal(bytes + RECORD_HEAD + size, tag, sizeof(tag));
    assert_ok(rks_frame_decode(bytes + RECORD_HEAD, 100, &header, &err), &err);
    assert_int_equal(header.type, RKS_FRAME_REQUEST);
    return header.id;
}

/* Rank 2 answers a request "fine", in two records; `change` does something to them first. */
typedef void (*change_fn)(uint8_t *first, size_t *first_size, uint8_t *second, size_t *second_size);

static void answer_changed(change_fn change, answer *a)
{
    int listener;
    rks_hello hello;
    mesh m;
    uint8_t out[RKS_KEY_SIZE], in[RKS_KEY_SIZE], first[200], second[200], frame[100];
    authenticate = true;
    open_pair(&m, 15000, &listener);
    authenticate = false;
    request_of(&m, a);
    int fd = accept_member(listener, &hello);
    rks_hello_frame_keys(&hello, out, in);
    rks_frame_header header = {
        .size = 4, .id = take_sealed_request(fd, in), .type = RKS_FRAME_REPLY};
    rks_frame_encode(&header, NULL, frame);
    memcpy(frame + RKS_FRAME_HEADER, "fine", 4);
    memcpy(first + RECORD_HEAD, frame, 26);
    memcpy(second + RECORD_HEAD, frame + 26, 2);
    size_t first_size = make_record(out, 0, first, 26), second_size = make_record(out, 1, second, 2);
    if (change != NULL)
        change(first, &first_size, second, &second_size);
    stranger_send(fd, first, first_size);
    stranger_send(fd, second, second_size);
    event_wait(&a->done, 1);
    close(fd);
    close(listener);
    mesh_close(&m);
}

static size_t changed_byte;

static void flip_a_byte(uint8_t *first, size_t *first_size, uint8_t *second, size_t *second_size)
{
    (void)second_size;
    if (changed_byte < *first_size)
        first[changed_byte] ^= 0x10;
    else
        second[changed_byte - *first_size] ^= 0x10;
}

static void swap_records(uint8_t *first, size_t *first_size, uint8_t *second, size_t *second_size)
{
    uint8_t other[200];
    size_t size = *first_size;
    memcpy(other, first, size);
    memcpy(first, second, *second_size);
    memcpy(second, other, size);
    *first_size = *second_size;
    *second_size = size;
}

static void repeat_a_record(uint8_t *first, size_t *first_size, uint8_t *second,
                            size_t *second_size)
{
    memcpy(second, first, *first_size);
    *second_size = *first_size;
}

static void leave_a_record_out(uint8_t *first, size_t *first_size, uint8_t *second,
                               size_t *second_size)
{
    memcpy(first, second, *second_size);
    *first_size = *second_size;
}

static void bytes_that_are_changed_on_their_way_are_never_taken(void **state)
{
    (void)state;
    static const change_fn changes[] = {swap_records, repeat_a_record, leave_a_record_out};
    answer a;
    answer_changed(NULL, &a);
    assert_ok(a.status, &a.err);
    assert_memory_equal(a.reply, "fine", 4);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        answer_changed(changes[i], &a);
        assert_int_equal(a.status, RKS_ERR_PEER);
        assert_contains(a.err.text, "changed on their way");
    }
    /* Each byte of both records but the upper ones of a length, which announce what never comes. */
    for (changed_byte = 0; changed_byte < 46 + 22; changed_byte++) {
        size_t at = changed_byte < 46 ? changed_byte : changed_byte - 46;
        if (at < RECORD_HEAD)
            continue;
        answer_changed(flip_a_byte, &a);
        assert_int_equal(a.status, RKS_ERR_PEER);
        assert_contains(a.err.text, "changed on their way");
    }
    changed_byte = 3; /* and a length above what a record has */
    answer_changed(flip_a_byte, &a);
    assert_int_equal(a.status, RKS_ERR_PEER);
}

/* The length of a record is used before its tag has come. Bytes that fill up a false one are no sign
 * of life. */
static void a_length_that_was_changed_is_silence_however_many_bytes_come(void **state)
{
    enum { T_MS = 1000, STEP_MS = 100, MOST = 4 * T_MS / STEP_MS };
    (void)state;
    int listener, steps = 0;
    rks_hello hello;
    mesh m;
    answer a;
    uint8_t out[RKS_KEY_SIZE], in[RKS_KEY_SIZE], bytes[40] = {0}, head[RECORD_HEAD];
    authenticate = true;
    open_pair(&m, T_MS, &listener);
    authenticate = false;
    request_of(&m, &a);
    int fd = accept_member(listener, &hello);
    rks_hello_frame_keys(&hello, out, in);
    take_sealed_request(fd, in);
    rks_store_u32(head, 65536);
    stranger_send(fd, head, sizeof(head));
    while (steps < MOST && send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) == sizeof(bytes)) {
        usleep(STEP_MS * 1000);
        steps++;
    }
    assert_true(steps < MOST);
    event_wait(&a.done, 1);
    assert_int_not_equal(a.status, RKS_OK);
    close(fd);
    close(listener);
    mesh_close(&m);
}

/* ---- members that beat, and read nothing ------------------------------------------------------ */

enum { DEAF_FOR = 3, LARGE = 1 << 20 };

/* Beats as an engine does, and reads nothing, for three times T. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_gets_no_byte),
        cmocka_unit_test(without_the_secret_there_is_a_hello_and_nothing_more),
        cmocka_unit_test(a_recorded_handshake_is_refused_when_replayed),
        cmocka_unit_test(a_reflected_hello_is_refused),
        cmocka_unit_test(hellos_of_and_for_wrong_ranks_are_refused),
        cmocka_unit_test(another_version_of_the_protocol_is_told_ours),
        cmocka_unit_test(a_second_claim_of_a_live_rank_is_refused_and_named),
        cmocka_unit_test(a_member_that_breaks_the_rules_is_cut_off),
        cmocka_unit_test(each_kind_of_frame_has_its_limit),
        cmocka_unit_test(a_member_that_speaks_at_random_is_survived),
        cmocka_unit_test(one_that_asks_and_does_not_listen_is_not_read_for_ever),
        cmocka_unit_test(one_byte_at_a_time_is_cut_off_at_the_deadline),
        cmocka_unit_test(two_hundred_silent_connections_shut_nobody_out),
        cmocka_unit_test(a_connection_that_is_cut_in_a_reply_fails_the_request_by_name),
        cmocka_unit_test(replies_that_nobody_waits_for_are_dropped_and_counted),
        cmocka_unit_test(an_owner_without_the_secret_gets_no_request),
        cmocka_unit_test(a_rank_of_another_version_is_named_with_both_versions),
        cmocka_unit_test(a_flood_of_hellos_without_the_secret_shuts_nobody_out),
        cmocka_unit_test(a_flood_of_recorded_hellos_shuts_nobody_out),
        cmocka_unit_test(a_flood_of_silent_connections_displaces_no_rank),
        cmocka_unit_test(one_that_cuts_hellos_is_tried_again_and_called_busy),
        cmocka_unit_test(errors_before_the_proof_are_ignored),
        cmocka_unit_test(notes_before_the_proof_cut_the_connection_and_no_more),
        cmocka_unit_test(a_relay_at_an_address_of_its_own_is_refused),
        cmocka_unit_test(bytes_that_are_changed_on_their_way_are_never_taken),
        cmocka_unit_test(a_length_that_was_changed_is_silence_however_many_bytes_come),
        cmocka_unit_test(one_that_beats_and_reads_nothing_keeps_its_replies),
        cmocka_unit_test(one_that_beats_and_reads_nothing_gets_its_notes),
    };
    int failed = cmocka_run_group_tests_name("strangers", tests, NULL, NULL);
    if (rks_memory_in_use() != 0) {
        print_error("%ld allocations are left\n", rks_memory_in_use());
        failed++;
    }
    return failed;
}
