/* SPDX-License-Identifier: Apache-2.0
 *
 * test_floods.c: floods of connections that do not prove themselves, at an engine: silent ones, and
 * those with hellos that were made up or recorded. Ranks come in all the same. */
#include <errno.h>

#include "transport/connection.h"
#include "stranger_pair.h"

enum { FLOOD = 1200, AT_ONCE_MS = 10000 };

/* Rank 0's first connection to rank 1, after FLOOD others. */
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

/* However often one is sent, the rank that is about to prove itself stays. */
static void a_hello_that_is_sent_again_displaces_nobody(void **state)
{
    (void)state;
    enum { TIMES = 40 };
    int fds[TIMES];
    mesh m;
    open_pair(&m, 15000, NULL);
    rks_hello hello = stranger_hello(2, 1, 3, true), recorded = stranger_hello(2, 1, 3, true);
    int fd = stranger_connect(&m.addresses[1]);
    stranger_say_hello(fd, &hello);
    assert_true(stranger_take_hello(fd, &hello));
    for (int i = 0; i < TIMES; i++) {
        fds[i] = stranger_connect(&m.addresses[1]);
        stranger_say_hello(fds[i], i % 2 == 0 ? &recorded : &hello);
    }
    uint64_t until = rks_now_ms() + WAIT_MS;
    while (refused(&m) < TIMES - 1 && rks_now_ms() < until)
        usleep(10000);
    assert_int_equal(refused(&m), TIMES - 1);
    stranger_say_proof(fd, &hello);
    assert_true(stranger_take_proof(fd, &hello));
    int again = stranger_connect(&m.addresses[1]); /* also when it is open */
    stranger_say_hello(again, &hello);
    assert_int_equal(stranger_drain(again), HELLO_FRAME);
    assert_int_equal(refused(&m), TIMES);
    close(again);
    for (int i = 0; i < TIMES; i++)
        close(fds[i]);
    close(fd);
    serves_on(&m);
    mesh_close(&m);
}

/* As many as one likes, which this rank has heard before: each counted then, and counts no more. */
static void hellos_that_were_heard_before_displace_nobody(void **state)
{
    (void)state;
    enum { RECORDED = 40 };
    rks_hello recorded[RECORDED];
    mesh m;
    open_pair(&m, 15000, NULL);
    for (int i = 0; i < RECORDED; i++) { /* a rank that connected so often */
        recorded[i] = stranger_hello(2, 1, 3, true);
        int fd = stranger_connect(&m.addresses[1]);
        stranger_say_hello(fd, &recorded[i]);
        rks_hello answered = recorded[i];
        assert_true(stranger_take_hello(fd, &answered));
        close(fd);
    }
    rks_hello hello = stranger_hello(2, 1, 3, true);
    int fd = stranger_connect(&m.addresses[1]), fds[RECORDED];
    stranger_say_hello(fd, &hello);
    assert_true(stranger_take_hello(fd, &hello));
    uint64_t before = refused(&m), until = rks_now_ms() + WAIT_MS;
    for (int i = 0; i < RECORDED; i++) {
        fds[i] = stranger_connect(&m.addresses[1]);
        stranger_say_hello(fds[i], &recorded[i]);
    }
    while (refused(&m) < before + RECORDED && rks_now_ms() < until)
        usleep(10000);
    stranger_say_proof(fd, &hello);
    assert_true(stranger_take_proof(fd, &hello));
    for (int i = 0; i < RECORDED; i++)
        close(fds[i]);
    close(fd);
    serves_on(&m);
    mesh_close(&m);
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

/* ---- addresses ------------------------------------------------------------------------------- */

static uint64_t host_of_loopback(uint8_t host)
{
    return htonl((INADDR_LOOPBACK & ~0xffU) + host);
}

/* A host of 127.0.0.0/8 that does not stand in one line with `other`. */
static uint8_t host_apart(mesh *m, uint8_t other)
{
    rks_admission *admission = &m->engines[1]->admission; /* its salt is constant */
    uint8_t host = other + 1;
    while (rks_admission_line(admission, host_of_loopback(host)) ==
           rks_admission_line(admission, host_of_loopback(other)))
        host++;
    return host;
}

/* Silent ones of one address, who have been there for longest, and of a flood from another: none of
 * the first is cut, and a rank among them comes in. False: silence has ended some of them
 * meanwhile. */
static bool an_address_keeps_its_part(void)
{
    enum { ROOM = 64, OWN = 16, FLOODING = 1 };
    int own[OWN], fds[3 * ROOM];
    mesh m;
    open_pair_for(&m, 60000, ROOM, 0, NULL);
    uint8_t host = host_apart(&m, FLOODING);
    uint64_t begin = rks_now_ms();
    for (int i = 0; i < OWN; i++)
        own[i] = stranger_connect_from(host, &m.addresses[1]);
    for (int i = 0; i < 3 * ROOM; i++)
        fds[i] = stranger_connect_from(FLOODING, &m.addresses[1]);
    while (refused(&m) < 3 * ROOM - (ROOM - OWN) && rks_now_ms() < begin + RKS_SILENT_MS)
        usleep(1000);
    uint64_t cut = refused(&m);
    uint32_t kept = 0;
    for (int i = 0; i < OWN; i++) {
        uint8_t byte;
        kept += recv(own[i], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    }
    bool in_time = rks_now_ms() < begin + RKS_SILENT_MS;
    if (in_time) {
        assert_int_equal(cut, 3 * ROOM - (ROOM - OWN));
        assert_int_equal(kept, OWN);
    }
    rks_hello hello = stranger_hello(2, 1, 3, true);
    in_time = in_time && stranger_enter(own[0], &hello);
    for (int i = 0; i < OWN; i++)
        close(own[i]);
    for (int i = 0; i < 3 * ROOM; i++)
        close(fds[i]);
    serves_on(&m);
    mesh_close(&m);
    return in_time;
}

static void a_flood_from_one_address_takes_no_part_of_another(void **state)
{
    (void)state;
    int tries = 1;
    while (!an_address_keeps_its_part()) /* a very slow machine */
        assert_true(tries++ < 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flood_of_hellos_without_the_secret_shuts_nobody_out),
        cmocka_unit_test(a_flood_of_recorded_hellos_shuts_nobody_out),
        cmocka_unit_test(a_hello_that_is_sent_again_displaces_nobody),
        cmocka_unit_test(hellos_that_were_heard_before_displace_nobody),
        cmocka_unit_test(a_flood_of_silent_connections_displaces_no_rank),
        cmocka_unit_test(a_flood_from_one_address_takes_no_part_of_another),
    };
    int failed = cmocka_run_group_tests_name("floods", tests, NULL, NULL);
    if (rks_memory_in_use() != 0) {
        print_error("%ld allocations are left\n", rks_memory_in_use());
        failed++;
    }
    return failed;
}
