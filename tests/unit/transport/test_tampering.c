/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tampering.c: one who stands between two ranks, passes bytes on or changes them: no changed
 * byte is ever taken. */
#include "stranger_pair.h"

#include <arpa/inet.h>
#include <errno.h>

#include "base/bytes.h"

/* ---- a relay ----------------------------------------------------------------------------------
 */

typedef struct relay {
    int listener;
    rks_address to;
    size_t from_owner; /* bytes that rank 1 sent, after its hello */
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
static void relay_one(relay *r)
{
    int asker = stranger_accept(r->listener), owner = stranger_connect(&r->to);
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
}

static void *run_relay(void *argument)
{
    for (int i = 0; i < WRONG_ANSWERS; i++)
        relay_one(argument);
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
    assert_int_equal(r.from_owner, WRONG_ANSWERS * HELLO_FRAME);
    close(r.listener);
    mesh_close(&m);
}

/* ---- one who changes bytes on their way -------------------------------------------------------
 */

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

/* The next frame that the engine has sent in records, with its body. */
typedef struct sealed_stream {
    int fd;
    const uint8_t *key;
    uint64_t number;
    uint8_t bytes[1000]; /* of the record, from `at` to `end` not taken */
    size_t at, end;
} sealed_stream;

static rks_frame_header take_sealed_frame(sealed_stream *s, uint8_t *body)
{
    uint8_t tag[RKS_TAG_BYTES];
    rks_frame_header header;
    do {
        if (s->at == s->end) {
            assert_true(stranger_receive(s->fd, s->bytes, RECORD_HEAD));
            size_t size = rks_load_u32(s->bytes);
            assert_true(size < 900);
            assert_true(stranger_receive(s->fd, s->bytes + RECORD_HEAD, size + RKS_TAG_BYTES));
            const struct iovec whole = {s->bytes, RECORD_HEAD + size};
            rks_authenticate(s->key, s->number++, &whole, 1, tag);
            assert_memory_equal(s->bytes + RECORD_HEAD + size, tag, sizeof(tag));
            s->at = RECORD_HEAD;
            s->end = RECORD_HEAD + size;
        }
        assert_ok(rks_frame_decode(s->bytes + s->at, 900, &header, &err), &err);
        memcpy(body, s->bytes + s->at + RKS_FRAME_HEADER, header.size);
        s->at += RKS_FRAME_HEADER + header.size;
        assert_true(s->at <= s->end);
    } while (header.type == RKS_FRAME_RESUME);
    return header;
}

/* The engine's request: its id. */
static uint64_t take_sealed_request(sealed_stream *s)
{
    uint8_t body[1000];
    rks_frame_header header = take_sealed_frame(s, body);
    assert_int_equal(header.type, RKS_FRAME_REQUEST);
    return header.id;
}

/* Says the first frame after the proofs, in record 0. */
static void say_sealed_resume(int fd, const uint8_t key[RKS_KEY_SIZE])
{
    uint8_t bytes[100] = {0}, *frame = bytes + RECORD_HEAD, *body = frame + RKS_FRAME_HEADER;
    rks_frame_header header = {.size = RKS_RESUME_BODY, .type = RKS_FRAME_RESUME};
    rks_store_u64(body, STRANGER_INSTANCE);
    rks_frame_encode(&header, body, frame);
    stranger_send(fd, bytes, make_record(key, 0, bytes, RKS_FRAME_HEADER + RKS_RESUME_BODY));
}

/* The engine says what it has seen, so that both sides can. */
static void hear_why(sealed_stream *s)
{
    rks_error why;
    uint8_t body[1000];
    rks_frame_header header = take_sealed_frame(s, body);
    assert_int_equal(header.type, RKS_FRAME_ERROR);
    assert_int_equal(header.id, 0);
    memcpy(&why, body, sizeof(why));
    assert_int_equal(why.cause, EBADMSG);
    assert_true(strstr(why.text, "changed in transit") != NULL ||
                strstr(why.text, "record of ") != NULL);
    assert_int_equal(why.rank, 0);
}

/* Does something to the two records of an answer. */
typedef void (*change_fn)(uint8_t *first, size_t *first_size, uint8_t *second, size_t *second_size);

/* Answers the engine's request "fine", in two records. */
static void say_fine(int listener, change_fn change)
{
    rks_hello hello;
    uint8_t out[RKS_KEY_SIZE], in[RKS_KEY_SIZE], first[200], second[200], frame[100];
    int fd = accept_member(listener, &hello);
    rks_hello_frame_keys(&hello, out, in);
    sealed_stream heard = {.fd = fd, .key = in};
    say_sealed_resume(fd, out);
    rks_frame_header header = {
        .size = 4, .id = take_sealed_request(&heard), .type = RKS_FRAME_REPLY};
    rks_frame_encode(&header, NULL, frame);
    memcpy(frame + RKS_FRAME_HEADER, "fine", 4);
    memcpy(first + RECORD_HEAD, frame, 26);
    memcpy(second + RECORD_HEAD, frame + 26, 2);
    size_t first_size = make_record(out, 1, first, 26),
           second_size = make_record(out, 2, second, 2);
    if (change != NULL)
        change(first, &first_size, second, &second_size);
    stranger_send(fd, first, first_size);
    stranger_send(fd, second, second_size);
    if (change != NULL) {
        hear_why(&heard);
    } else { /* the engine takes the answer, then the end */
        shutdown(fd, SHUT_WR);
        stranger_drain(fd);
    }
    close(fd);
}

/* Rank 2 answers, and something happens to its bytes; then it answers well over the connection that
 * the engine makes again. */
static void answer_changed(change_fn change, answer *a)
{
    int listener;
    mesh m;
    authenticate = sealed = true;
    open_pair(&m, 15000, &listener);
    authenticate = false;
    request_of(&m, a);
    say_fine(listener, change);
    assert_int_equal(event_count(&a->done), 0);
    say_fine(listener, NULL);
    event_wait(&a->done, 1);
    assert_ok(a->status, &a->err);
    assert_int_equal(a->size, 4);
    assert_memory_equal(a->reply, "fine", 4);
    close(listener);
    mesh_close(&m);
    sealed = false;
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
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
        answer_changed(changes[i], &a);
    /* Each byte of both records but the upper ones of a length, which announce what never comes. */
    for (changed_byte = 0; changed_byte < 46 + 22; changed_byte++) {
        size_t at = changed_byte < 46 ? changed_byte : changed_byte - 46;
        if (at >= RECORD_HEAD)
            answer_changed(flip_a_byte, &a);
    }
    changed_byte = 3; /* and a length above what a record has */
    answer_changed(flip_a_byte, &a);
}

/* The length of a record is used before its tag has come. Bytes that fill up a false one are no
 * sign of life. */
static void a_length_that_was_changed_is_silence_however_many_bytes_come(void **state)
{
    enum { T_MS = 1000, STEP_MS = 100, MOST = 4 * T_MS / STEP_MS };
    (void)state;
    int listener, steps = 0;
    rks_hello hello;
    mesh m;
    answer a;
    uint8_t out[RKS_KEY_SIZE], in[RKS_KEY_SIZE], bytes[40] = {0}, head[RECORD_HEAD];
    authenticate = sealed = true;
    open_pair(&m, T_MS, &listener);
    authenticate = false;
    request_of(&m, &a);
    int fd = accept_member(listener, &hello);
    rks_hello_frame_keys(&hello, out, in);
    sealed_stream heard = {.fd = fd, .key = in};
    say_sealed_resume(fd, out);
    take_sealed_request(&heard);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_relay_at_an_address_of_its_own_is_refused),
        cmocka_unit_test(bytes_that_are_changed_on_their_way_are_never_taken),
        cmocka_unit_test(a_length_that_was_changed_is_silence_however_many_bytes_come),
    };
    int failed = cmocka_run_group_tests_name("tampering", tests, NULL, NULL);
    if (rks_memory_in_use() != 0) {
        print_error("%ld allocations are left\n", rks_memory_in_use());
        failed++;
    }
    return failed;
}
