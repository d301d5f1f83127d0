/* SPDX-License-Identifier: Apache-2.0
 *
 * test_wire.c: the bytes of frames and of the handshake, and refusing others. */
#include "base/bytes.h"
#include "support/check.h"
#include "transport/frame.h"

enum { MAX_FRAME = 1000 };

static rks_error err;

static const uint8_t SECRET[RKS_SECRET_SIZE] = "the secret that all tests share";
static const uint8_t SESSION[16] = "session of tests";

static void a_request_header_has_these_bytes(void **state)
{
    (void)state;
    static const uint8_t golden[RKS_FRAME_HEADER] = {
        5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 5, 0, 2, 0, 0x88, 0xa3, 0x4c, 0xed};
    rks_frame_header header = {
        .size = 5, .id = 0x100000007, .type = RKS_FRAME_REQUEST, .service = 2};
    uint8_t bytes[RKS_FRAME_HEADER];
    rks_frame_encode(&header, "hello", bytes);
    assert_memory_equal(bytes, golden, sizeof(golden));
    rks_frame_header back;
    assert_ok(rks_frame_decode(golden, MAX_FRAME, &back, &err), &err);
    assert_int_equal(back.size, 5);
    assert_int_equal(back.id, 0x100000007);
    assert_int_equal(back.service, 2);
    assert_true(rks_frame_body_good(golden, "hello", 5));
    assert_false(rks_frame_body_good(golden, "hellp", 5));
}

static void every_flipped_bit_of_a_reply_header_is_found(void **state)
{
    (void)state;
    rks_frame_header header = {.size = 900, .id = 3, .type = RKS_FRAME_REPLY};
    uint8_t good[RKS_FRAME_HEADER];
    rks_frame_encode(&header, NULL, good);
    assert_ok(rks_frame_decode(good, MAX_FRAME, &header, &err), &err);
    for (size_t bit = 0; bit < 8 * sizeof(good); bit++) {
        uint8_t bytes[RKS_FRAME_HEADER];
        memcpy(bytes, good, sizeof(bytes));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        rks_frame_header other = {0};
        uint8_t body[MAX_FRAME] = {0};
        /* A flip can make it a frame whose check covers a body; that body then does not match. */
        if (rks_frame_decode(bytes, MAX_FRAME, &other, &err) == RKS_OK)
            assert_false(rks_frame_body_good(bytes, body, other.size));
    }
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint16_t type;
        uint64_t size;
    } bad[] = {
        {RKS_FRAME_NOTE, MAX_FRAME + 1},
        {RKS_FRAME_REPLY, UINT32_MAX},
        {RKS_FRAME_REQUEST, 1ull << 63},
        {RKS_FRAME_REPLY, UINT64_MAX},
        {RKS_FRAME_HELLO, 63},
        {RKS_FRAME_PROOF, 33},
        {RKS_FRAME_PING, 1},
        {RKS_FRAME_BYE, 8},
        {RKS_FRAME_ERROR, 255},
        {RKS_FRAME_KEEP, 1},
        {0, 0},
        {11, 0},
        {0xffff, 0},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint8_t bytes[RKS_FRAME_HEADER] = {0};
        rks_frame_header header;
        rks_store_u64(bytes, bad[i].size);
        rks_store_u16(bytes + 16, bad[i].type);
        assert_fails(RKS_ERR_PEER, rks_frame_decode(bytes, MAX_FRAME, &header, &err));
    }
}

/* Both sides of a handshake between rank 0, which connects, and rank 1. */
typedef struct sides {
    rks_hello a, b;
    uint8_t a_body[RKS_HELLO_BODY], b_body[RKS_HELLO_BODY];
    uint8_t a_proof[RKS_PROOF_SIZE], b_proof[RKS_PROOF_SIZE];
} sides;

static void begin(sides *s)
{
    rks_hello common = {.session = SESSION, .ranks = 3};
    memcpy(common.key, SECRET, sizeof(common.key));
    memset(common.own_place, 1, RKS_PLACE_SIZE);
    memset(common.peer_place, 1, RKS_PLACE_SIZE);
    s->a = common;
    s->a.own_rank = 0;
    s->a.peer_rank = 1;
    s->a.connected = true;
    s->b = common;
    s->b.own_rank = 1;
    assert_ok(rks_hello_start(&s->a, &err), &err);
    assert_ok(rks_hello_start(&s->b, &err), &err);
    rks_hello_encode(&s->a, s->a_body);
}

static void finish(sides *s)
{
    assert_ok(rks_hello_receive(&s->b, s->a_body, &err), &err);
    rks_hello_encode(&s->b, s->b_body);
    assert_ok(rks_hello_receive(&s->a, s->b_body, &err), &err);
    rks_hello_prove(&s->a, s->a_proof);
    rks_hello_prove(&s->b, s->b_proof);
}

static void a_hello_has_these_bytes(void **state)
{
    (void)state;
    sides s;
    begin(&s);
    memset(s.a.own_nonce, 0xab, RKS_NONCE_SIZE);
    rks_hello_encode(&s.a, s.a_body);
    static const uint8_t golden[24] = {'R', 'K', 'S', 'W', 'I', 'R', 'E', 0, 5, 0, 0, 0,
                                       0,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0};
    static const uint8_t tag[RKS_TAG_SIZE] = {0x8e, 0x5a, 0x19, 0x78, 0x0a, 0x0a, 0x08, 0xa7};
    assert_memory_equal(s.a_body, golden, sizeof(golden));
    assert_int_equal(s.a_body[24], 0xab);
    assert_int_equal(s.a_body[55], 0xab);
    assert_memory_equal(s.a_body + 56, tag, sizeof(tag));
}

static void a_proof_has_these_bytes(void **state)
{
    (void)state;
    static const uint8_t golden[RKS_PROOF_SIZE] = {0xce, 0x03, 0x3b, 0x51, 0x93, 0x87, 0x50, 0x89,
                                                   0x1b, 0x79, 0xca, 0x15, 0x39, 0x5e, 0x4d, 0xa3,
                                                   0x9d, 0xec, 0x0e, 0xdf, 0x12, 0xd9, 0x64, 0xdf,
                                                   0x70, 0xfb, 0xd6, 0xaa, 0x11, 0x9e, 0xfe, 0x3f};
    sides s;
    begin(&s);
    memset(s.a.own_nonce, 0xab, RKS_NONCE_SIZE);
    memset(s.b.own_nonce, 0xcd, RKS_NONCE_SIZE);
    rks_hello_encode(&s.a, s.a_body);
    finish(&s);
    assert_memory_equal(s.a_proof, golden, sizeof(golden));
}

static void both_sides_prove_the_secret(void **state)
{
    (void)state;
    sides s;
    begin(&s);
    finish(&s);
    assert_int_equal(s.b.peer_rank, 0);
    assert_true(rks_hello_trusted(&s.b));
    assert_true(rks_hello_trusted(&s.a));
    assert_true(rks_hello_proved(&s.b, s.a_proof));
    assert_true(rks_hello_proved(&s.a, s.b_proof));
}

static void a_proof_is_good_for_its_side_connection_secret_and_session_only(void **state)
{
    (void)state;
    sides s, t;
    begin(&s);
    finish(&s);
    assert_false(rks_hello_proved(&s.b, s.b_proof)); /* reflected */
    assert_false(rks_hello_proved(&s.a, s.a_proof));
    begin(&t);
    finish(&t);
    assert_false(rks_hello_proved(&t.b, s.a_proof)); /* replayed */

    static const uint8_t other[RKS_SECRET_SIZE] = "a secret of somebody else";
    begin(&s);
    memcpy(s.a.key, other, sizeof(other));
    finish(&s);
    assert_false(rks_hello_proved(&s.b, s.a_proof));
    begin(&s);
    s.a.session = other;
    finish(&s);
    assert_false(rks_hello_proved(&s.b, s.a_proof));
    for (size_t i = 0; i < RKS_PLACE_SIZE; i++) { /* where somebody stands between */
        begin(&s);
        s.b.own_place[i] ^= 1;
        finish(&s);
        assert_false(rks_hello_trusted(&s.b));
        assert_false(rks_hello_trusted(&s.a));
        assert_false(rks_hello_proved(&s.b, s.a_proof));
        assert_false(rks_hello_proved(&s.a, s.b_proof));
    }
    begin(&s);
    finish(&s);
    s.b.peer_rank = 2; /* as if it had come from another rank */
    assert_false(rks_hello_proved(&s.b, s.a_proof));
}

static void a_proof_before_any_hello_is_refused(void **state)
{
    (void)state;
    sides s;
    begin(&s);
    s.a.connected = false; /* so that it proves what b expects of the other side */
    s.a.own_rank = 1;
    rks_hello_prove(&s.b, s.b_proof);
    assert_false(rks_hello_proved(&s.b, s.b_proof));
}

static void hellos_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    sides s;
    begin(&s);
    s.a_body[0] ^= 1;
    assert_fails(RKS_ERR_PEER, rks_hello_receive(&s.b, s.a_body, &err));
    begin(&s);
    rks_store_u32(s.a_body + 16, 3);
    assert_fails(RKS_ERR_PEER, rks_hello_receive(&s.b, s.a_body, &err));
    assert_contains(err.text, "rank 3");
    begin(&s);
    rks_store_u32(s.a_body + 20, 2);
    assert_fails(RKS_ERR_PEER, rks_hello_receive(&s.b, s.a_body, &err));
    begin(&s);
    rks_store_u32(s.a_body + 8, 9);
    assert_fails(RKS_ERR_UNSUPPORTED, rks_hello_receive(&s.b, s.a_body, &err));
    assert_contains(err.text, "version 9");
    begin(&s); /* another rank answers */
    rks_hello_encode(&s.b, s.b_body);
    rks_store_u32(s.b_body + 16, 2);
    assert_fails(RKS_ERR_PEER, rks_hello_receive(&s.a, s.b_body, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_header_has_these_bytes),
        cmocka_unit_test(every_flipped_bit_of_a_reply_header_is_found),
        cmocka_unit_test(sizes_that_cannot_be_are_refused),
        cmocka_unit_test(a_hello_has_these_bytes),
        cmocka_unit_test(a_proof_has_these_bytes),
        cmocka_unit_test(both_sides_prove_the_secret),
        cmocka_unit_test(a_proof_is_good_for_its_side_connection_secret_and_session_only),
        cmocka_unit_test(a_proof_before_any_hello_is_refused),
        cmocka_unit_test(hellos_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
