/* SPDX-License-Identifier: Apache-2.0
 *
 * test_strangers.c: what an engine gives to those who do not belong to its job: nothing. After
 * each case the engine must serve its real peers on. */
#include "stranger_pair.h"

#include "support/seed.h"

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
    rks_hello reflected = stranger_hello(2, 1, 3, false);
    assert_true(stranger_take_hello(out, &reflected)); /* the engine's nonce */

    int in = stranger_connect(&m.addresses[1]);
    rks_hello mirror = stranger_hello(2, 1, 3, true);
    memcpy(mirror.own_nonce, reflected.peer_nonce, RKS_NONCE_SIZE);
    say_hello_with_tag(in, &mirror, reflected.peer_tag);
    assert_true(stranger_take_hello(in, &mirror));
    assert_int_equal(stranger_drain(in), 0);

    memcpy(reflected.own_nonce, mirror.peer_nonce, RKS_NONCE_SIZE);
    say_hello_with_tag(out, &reflected, mirror.peer_tag); /* back to its sender */
    assert_int_equal(stranger_drain(out), 0);             /* no proof, and no note */
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
    assert_contains(why.text, "another process has connected as rank 0; do two run as it?");
    assert_int_equal(stranger_drain(fd), 0);
    close(fd);
    serves_on(&m);
    mesh_close(&m);
}

static void one_byte_at_a_time_is_cut_off_at_the_deadline(void **state)
{
    (void)state;
    enum { SILENCE_MS = 2000 };
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
    assert_true(took_ms >= SILENCE_MS - 100 && took_ms < WAIT_MS);
    close(fd);
    serves_on(&m);
    mesh_close(&m);
}

/* Where many ranks share few cores, each word takes seconds: as one that connects, and as one that
 * is connected to. */
static void a_rank_on_a_busy_host_has_the_silence_limit_for_each_word(void **state)
{
    (void)state;
    enum { SILENCE_MS = 8000, HELLO_MS = 5200, PROOF_MS = 3300 };
    int listener;
    answer a;
    mesh m;
    open_pair(&m, SILENCE_MS, &listener);
    request_of(&m, &a);
    struct pollfd poller = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&poller, 1, WAIT_MS), 1);
    int from = accept(listener, NULL, NULL), to = stranger_connect(&m.addresses[1]);
    rks_hello owner = stranger_hello(2, UINT32_MAX, 3, false);
    rks_hello asker = stranger_hello(2, 1, 3, true);
    assert_true(stranger_take_hello(from, &owner));
    usleep(HELLO_MS * 1000);
    stranger_say_hello(from, &owner);
    stranger_say_hello(to, &asker);
    assert_true(stranger_take_proof(from, &owner));
    assert_true(stranger_take_hello(to, &asker));
    usleep(PROOF_MS * 1000);
    stranger_say_proof(from, &owner);
    stranger_say_proof(to, &asker);
    stranger_say_resume(from, STRANGER_INSTANCE, 0);
    stranger_say_resume(to, STRANGER_INSTANCE, 0);
    assert_true(stranger_take_proof(to, &asker));
    stranger_frame(from, RKS_FRAME_REPLY, take_request(from), 0, "fine", 4);
    event_wait(&a.done, 1);
    assert_ok(a.status, &a.err);
    close(from);
    close(to);
    close(listener);
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
    serves_on(&m); /* rank 0 is not connected yet: it queues after all of them */
    assert_true(rks_now_ms() - begin < 15000); /* nobody's time is up */
    int open = 0;
    for (int i = 0; i < SILENT; i++) {
        struct pollfd poller = {.fd = fds[i], .events = POLLIN};
        open += poll(&poller, 1, 0) == 0;
        close(fds[i]);
    }
    assert_true(open <= 64);
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
    for (int i = 0; i < WRONG_ANSWERS; i++) {
        int fd = stranger_accept(listener);
        rks_hello hello = stranger_hello(2, UINT32_MAX, 3, false);
        assert_true(stranger_take_hello(fd, &hello));
        memcpy(hello.key, wrong, sizeof(wrong));
        stranger_say_hello(fd, &hello);
        stranger_say_proof(fd, &hello);
        assert_int_equal(stranger_drain(fd), 0);
        close(fd);
    }
    event_wait(&a.done, 1);
    assert_int_equal(a.status, RKS_ERR_PEER);
    assert_contains(a.err.text, "without the job's secret during a fetch");
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
    for (int i = 0; i < WRONG_ANSWERS; i++) {
        int fd = stranger_accept(listener);
        rks_hello hello = stranger_hello(2, 0, 3, false);
        uint8_t body[RKS_HELLO_BODY];
        rks_hello_encode(&hello, body);
        body[8] = 1;
        stranger_frame(fd, RKS_FRAME_HELLO, 0, 0, body, sizeof(body));
        stranger_drain(fd);
        close(fd);
    }
    event_wait(&a.done, 1);
    assert_int_equal(a.status, RKS_ERR_UNSUPPORTED);
    assert_contains(a.err.text, "rank 2 (strange): speaks protocol version 1, this side 5");
    close(listener);
    mesh_close(&m);
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
    stranger_say_resume(fd, STRANGER_INSTANCE, 0);
    stranger_frame(fd, RKS_FRAME_REPLY, take_request(fd), 0, "fine", 4);
    event_wait(&a.done, 1);
    assert_ok(a.status, &a.err);
    close(fd);
    close(listener);
    mesh_close(&m);
}

/* Behind a frame whose body lay in the connection itself: nothing may be freed that was not taken.
 */
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
    rks_fail(&strange, RKS_ERR_DATA, 0, "made up");
    for (int i = 0; i < WRONG_ANSWERS; i++) {
        fd = stranger_accept(listener);
        stranger_frame(fd, RKS_FRAME_ERROR, 0, 0, &strange, sizeof(strange));
        stranger_frame(fd, RKS_FRAME_NOTE, 0, RKS_SERVICE_GROUP, "note", 4);
        stranger_drain(fd);
        close(fd);
    }
    event_wait(&a.done, 1);
    assert_int_equal(a.status, RKS_ERR_PEER);
    close(listener);
    serves_on(&m);
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
        cmocka_unit_test(one_byte_at_a_time_is_cut_off_at_the_deadline),
        cmocka_unit_test(a_rank_on_a_busy_host_has_the_silence_limit_for_each_word),
        cmocka_unit_test(two_hundred_silent_connections_shut_nobody_out),
        cmocka_unit_test(an_owner_without_the_secret_gets_no_request),
        cmocka_unit_test(a_rank_of_another_version_is_named_with_both_versions),
        cmocka_unit_test(one_that_cuts_hellos_is_tried_again_and_called_busy),
        cmocka_unit_test(errors_before_the_proof_are_ignored),
        cmocka_unit_test(notes_before_the_proof_cut_the_connection_and_no_more),
    };
    int failed = cmocka_run_group_tests_name("strangers", tests, NULL, NULL);
    if (rks_memory_in_use() != 0) {
        print_error("%ld allocations are left\n", rks_memory_in_use());
        failed++;
    }
    return failed;
}
