/* SPDX-License-Identifier: Apache-2.0
 *
 * stranger_pair.h: engines 0 and 1 of three ranks, of which rank 2 exists only as a bare socket:
 * rank 0 asks, rank 1 is attacked, and as rank 2 the test says what it likes. */
#ifndef RKS_TESTS_STRANGER_PAIR_H
#define RKS_TESTS_STRANGER_PAIR_H

#include "stranger.h"

static rks_error err;

enum { HELLO_FRAME = RKS_FRAME_HEADER + RKS_HELLO_BODY, SHORT_SILENCE_MS = 2000 };

/* Engines 0 and 1 of three; where `listener` is not NULL, rank 2 is that socket. */
static bool authenticate; /* options of the engines that are opened next */

static inline void open_pair_for(mesh *m, uint32_t silence_ms, uint32_t newcomers,
                                 uint64_t max_frame, int *listener)
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

static inline void open_pair(mesh *m, uint32_t silence_ms, int *listener)
{
    open_pair_for(m, silence_ms, 0, 1 << 20, listener);
}

static inline void serves_on(mesh *m)
{
    assert_ok(ask_echo(m->engines[0], 1, 2, 1000, &err), &err);
}

static inline uint64_t refused(mesh *m)
{
    rks_engine_stats stats;
    rks_engine_stats_get(m->engines[1], &stats);
    return stats.refused;
}

enum { WRONG_ANSWERS = 3 }; /* then an engine believes that no rank answers */

static inline int stranger_accept(int listener)
{
    struct pollfd poller = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&poller, 1, WAIT_MS), 1);
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    return fd;
}

/* Rank 2 as an owner that answers as the test likes. The engine hangs up on one that took longer
 * than the silence limit for its hello, and connects anew. */
static bool sealed; /* what it says after its proof goes in records, which the test makes */

static inline int accept_member(int listener, rks_hello *hello)
{
    uint64_t until = rks_now_ms() + WAIT_MS;
    while (rks_now_ms() < until) {
        struct pollfd poller = {.fd = listener, .events = POLLIN};
        assert_int_equal(poll(&poller, 1, WAIT_MS), 1);
        int fd = accept(listener, NULL, NULL);
        assert_true(fd >= 0);
        *hello = stranger_hello(2, UINT32_MAX, 3, false);
        if (stranger_take_hello(fd, hello)) {
            stranger_say_hello(fd, hello);
            if (stranger_take_proof(fd, hello)) {
                stranger_say_proof(fd, hello);
                if (!sealed)
                    stranger_say_resume(fd, STRANGER_INSTANCE, 0);
                return fd;
            }
        }
        close(fd);
    }
    fail_msg("the engine did not come");
    return -1;
}

typedef struct answer {
    event done;
    rks_status status;
    rks_error err;
    uint8_t reply[100];
    size_t size;
} answer;

static inline void *answer_place(void *user, size_t size)
{
    answer *a = user;
    a->size = size;
    return size <= sizeof(a->reply) ? a->reply : NULL;
}

static inline void answer_done(void *user, const rks_error *why)
{
    answer *a = user;
    a->status = why == NULL ? RKS_OK : (rks_status)why->status;
    if (why != NULL)
        a->err = *why;
    event_add(&a->done);
}

static inline void request_of(mesh *m, answer *a)
{
    memset(a, 0, sizeof(*a));
    event_init(&a->done);
    rks_reply_sink sink = {.place = answer_place, .done = answer_done, .user = a};
    assert_ok(rks_engine_request(m->engines[0], 2,
                                 &(rks_outgoing){RKS_SERVICE_FETCH, "ids", 3, "a fetch"}, &sink,
                                 &err),
              &err);
}

static inline uint64_t take_request(int fd)
{
    rks_frame_header header;
    uint8_t body[100];
    assert_true(stranger_frame_in(fd, &header, body, sizeof(body)));
    assert_int_equal(header.type, RKS_FRAME_REQUEST);
    return header.id;
}

#endif
