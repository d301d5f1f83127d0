/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fetch_hostile.c: owners that answer wrongly, partly, late, or not at all. Rank 1 speaks the
 * service with replies made here; rank 2 is an honest owner of the same shards. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "fetch/retry.h"
#include "fetch/wire.h"
#include "world.h"

/* The clock is ahead by so much. */
static atomic_uint_least64_t ahead_ms;

uint64_t __real_rks_now_ms(void);
uint64_t __wrap_rks_now_ms(void);

uint64_t __wrap_rks_now_ms(void)
{
    return __real_rks_now_ms() + atomic_load(&ahead_ms);
}

static rks_fetch_server *honest;

typedef enum trick {
    TRICK_NONE,
    TRICK_FLIP,     /* bit `at % 8` of byte `at` */
    TRICK_TRUNCATE, /* to `at` bytes */
    TRICK_EXTEND,   /* by `at` bytes */
    TRICK_COUNT,    /* says that it serves `at` records */
    TRICK_FEW,      /* serves one record a reply */
    TRICK_OTHER_ROW,
    TRICK_CUT,        /* the first `at` replies break off in the middle */
    TRICK_FAIL,       /* an error reply */
    TRICK_HOLD,       /* answers when it is told to */
    TRICK_HOLD_FIRST, /* the same of its first request alone */
} trick;

static trick the_trick;
static size_t at;
static atomic_size_t asked; /* requests that came */
static uint8_t *unreadable; /* a page that no system call can read */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static rks_request *held; /* guarded by mutex */

/* A right reply to the request, but for the rows. */
static uint8_t *make_reply(rks_request *request, uint32_t shift, size_t most, size_t *size)
{
    size_t body_size, count = 0;
    uint32_t groups, rows;
    const uint8_t *body = rks_request_body(request, &body_size);
    if (rks_fetch_request_check(body, body_size, &groups, &rows, NULL) != RKS_OK)
        abort();
    if (rows < most)
        most = rows;
    uint8_t *reply = aligned_alloc(64, 64 << 10);
    memset(reply, 0, 64 << 10);
    size_t end = rks_fetch_reply_table(most);
    const uint8_t *next = body + RKS_FETCH_REQUEST_HEAD;
    for (uint32_t g = 0; g < groups; g++) {
        rks_fetch_group group;
        next = rks_fetch_get_group(next, &group);
        for (uint32_t i = 0; i < group.count && count < most; i++) {
            rks_record_view view;
            uint32_t row = (rks_load_u32(group.rows + i * 4) + shift) % WORLD_ROWS;
            if (rks_shard_locate(w.shards[group.shard], row, &view, NULL) != RKS_OK)
                abort();
            size_t place = rks_fetch_record_place(end, &view);
            memcpy(reply + place, view.record, view.record_size);
            rks_store_u32(reply + RKS_FETCH_REPLY_HEAD + 4 * count++, (uint32_t)(place / 8));
            end = place + view.record_size;
        }
    }
    rks_store_u32(reply, (uint32_t)count);
    *size = end;
    return reply;
}

static void hostile_serve(void *user, rks_request *request)
{
    (void)user;
    size_t size = 0, number = atomic_fetch_add(&asked, 1);
    if (the_trick == TRICK_FAIL) {
        rks_error why;
        rks_fail(&why, RKS_ERR_IO, 5, "row 3: a page cannot be read");
        rks_request_fail(request, &why);
        return;
    }
    if (the_trick == TRICK_HOLD || (the_trick == TRICK_HOLD_FIRST && number == 0)) {
        pthread_mutex_lock(&mutex);
        held = request;
        pthread_cond_signal(&came);
        pthread_mutex_unlock(&mutex);
        return;
    }
    uint8_t *reply = make_reply(request, the_trick == TRICK_OTHER_ROW,
                                the_trick == TRICK_FEW ? 1 : SIZE_MAX, &size);
    if (the_trick == TRICK_FLIP)
        reply[at] ^= (uint8_t)(1u << at % 8);
    if (the_trick == TRICK_TRUNCATE)
        size = at;
    if (the_trick == TRICK_COUNT)
        rks_store_u32(reply, (uint32_t)at);
    struct iovec parts[2] = {{reply, size}, {unreadable, 0}};
    size_t count = 1;
    if (the_trick == TRICK_EXTEND) {
        free(reply);
        size += at;
        reply = calloc(size, 1);
        parts[0] = (struct iovec){reply, size};
    }
    if (the_trick == TRICK_CUT && number < at) {
        parts[1].iov_len = 4096;
        count = 2;
    }
    rks_request_reply(request, parts, count, free, reply);
}

static int open_world(void **state)
{
    (void)state;
    world_open();
    unreadable = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return unreadable == MAP_FAILED ? -1 : 0;
}

static int close_world(void **state)
{
    munmap(unreadable, 4096);
    return world_end(state);
}

static int connect_world(void **state)
{
    (void)state;
    world_connect(3, 15000);
    asked = 0;
    at = 0;
    the_trick = TRICK_NONE;
    rks_engine_serve(w.engines[1], RKS_SERVICE_FETCH, hostile_serve, NULL, &w);
    assert_ok(rks_fetch_server_open(w.engines[2], RKS_SERVICE_FETCH, w.shards, WORLD_SHARDS, 1,
                                    &honest, &err),
              &err);
    return 0;
}

static int disconnect_world(void **state)
{
    (void)state;
    if (held != NULL) {
        rks_error why;
        rks_fail(&why, RKS_ERR_STATE, 0, "late");
        rks_request_fail(held, &why);
        held = NULL;
    }
    rks_fetch_server_close(honest);
    world_disconnect();
    return 0;
}

static const int32_t HOSTILE[] = {1, -1}, BOTH[] = {1, 2, -1};
static const int32_t *const HOSTILE_ONLY[] = {HOSTILE, HOSTILE, HOSTILE};
static const int32_t *const HOSTILE_FIRST[] = {BOTH, BOTH, BOTH};

/* Samples of each shard. */
static const uint64_t IDS[] = {8, 9, 402, 811};
enum { COUNT = 4 };

static rks_status fetch(rks_fetcher *fetcher, rks_batch **batch)
{
    rks_wanted wanted[COUNT];
    world_wanted_many(IDS, COUNT, wanted);
    return world_fetch(fetcher, wanted, COUNT, batch, &err);
}

static void fetch_and_check(rks_fetcher *fetcher)
{
    rks_batch *batch = NULL;
    assert_ok(fetch(fetcher, &batch), &err);
    world_check_batch(batch, IDS, COUNT);
    rks_batch_free(batch);
}

static size_t reply_size(rks_fetcher *fetcher)
{
    rks_fetch_stats stats = {0};
    the_trick = TRICK_NONE;
    fetch_and_check(fetcher);
    rks_fetcher_stats(fetcher, &stats);
    return stats.peak_inflight_bytes;
}

static void every_flipped_byte_of_a_reply_is_refused_or_does_no_harm(void **state)
{
    (void)state;
    rks_fetcher *fetcher = world_fetcher(0, HOSTILE_ONLY);
    size_t size = reply_size(fetcher), harmless = 0;
    the_trick = TRICK_FLIP;
    for (at = 0; at < size; at++) {
        rks_batch *batch = NULL;
        if (fetch(fetcher, &batch) == RKS_OK) {
            harmless++;
            world_check_batch(batch, IDS, COUNT);
            rks_batch_free(batch);
            continue;
        }
        assert_int_equal(err.status, RKS_ERR_CORRUPT);
        assert_int_equal(err.rank, 1);
        assert_contains(err.text, "sample ");
        assert_null(batch);
    }
    /* paddings, known flags, and source rows of samples whose keys are stored */
    assert_true(harmless < 50);
    the_trick = TRICK_NONE;
    fetch_and_check(fetcher);
    rks_fetcher_close(fetcher);
}

static void every_short_reply_is_refused(void **state)
{
    (void)state;
    rks_fetcher *fetcher = world_fetcher(0, HOSTILE_ONLY);
    size_t size = reply_size(fetcher);
    the_trick = TRICK_TRUNCATE;
    for (at = 0; at < size; at++) {
        rks_batch *batch = NULL;
        assert_fails(RKS_ERR_CORRUPT, fetch(fetcher, &batch));
    }
    rks_fetcher_close(fetcher);
}

static void a_reply_with_a_wrong_count_is_refused(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 5, 1000000, UINT32_MAX};
    rks_fetcher *fetcher = world_fetcher(0, HOSTILE_ONLY);
    the_trick = TRICK_COUNT;
    for (size_t i = 0; i < 4; i++) {
        rks_batch *batch = NULL;
        at = counts[i];
        assert_fails(RKS_ERR_CORRUPT, fetch(fetcher, &batch));
    }
    rks_fetcher_close(fetcher);
}

static void a_reply_above_what_is_possible_is_not_taken_in(void **state)
{
    (void)state;
    rks_fetch_stats stats = {0};
    rks_batch *batch = NULL;
    rks_fetcher *fetcher = world_fetcher(0, HOSTILE_ONLY);
    the_trick = TRICK_EXTEND;
    at = RKS_FETCH_REPLY_MAX + 4096;
    assert_fails(RKS_ERR_CORRUPT, fetch(fetcher, &batch));
    assert_contains(err.text, "are possible");
    rks_fetcher_stats(fetcher, &stats);
    assert_int_equal(stats.peak_inflight_bytes, 0);
    the_trick = TRICK_NONE;
    fetch_and_check(fetcher);
    rks_fetcher_close(fetcher);
}

static void records_of_other_rows_are_found(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    rks_fetcher *fetcher = world_fetcher(0, HOSTILE_ONLY);
    the_trick = TRICK_OTHER_ROW;
    assert_fails(RKS_ERR_CORRUPT, fetch(fetcher, &batch));
    assert_contains(err.text, "sample 8 (key key/8)");
    rks_fetcher_close(fetcher);
}

static void what_was_not_served_is_asked_for_again(void **state)
{
    (void)state;
    rks_fetcher *fetcher = world_fetcher(0, HOSTILE_ONLY);
    the_trick = TRICK_FEW;
    fetch_and_check(fetcher);
    assert_int_equal(asked, COUNT);
    rks_fetcher_close(fetcher);
}

enum { CUTS_MOST = 4 }; /* then its link has failed */

static void a_connection_cut_in_the_middle_is_made_again(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    rks_fetcher *fetcher = world_fetcher(0, HOSTILE_ONLY);
    the_trick = TRICK_CUT;
    at = 1;
    fetch_and_check(fetcher);
    assert_int_equal(asked, 2);
    at = SIZE_MAX;
    assert_fails(RKS_ERR_PEER, fetch(fetcher, &batch));
    assert_int_equal(err.rank, 1);
    assert_contains(err.text, "sample 8 (key key/8)");
    assert_int_equal(asked, 2 + CUTS_MOST);
    rks_fetcher_close(fetcher);
}

static void after_four_cuts_another_owner_is_asked(void **state)
{
    (void)state;
    rks_fetcher *fetcher = world_fetcher(0, HOSTILE_FIRST);
    the_trick = TRICK_CUT;
    at = SIZE_MAX;
    fetch_and_check(fetcher);
    assert_int_equal(asked, CUTS_MOST);
    fetch_and_check(fetcher); /* now the one that failed is not the first choice */
    assert_int_equal(asked, CUTS_MOST);
    rks_fetcher_close(fetcher);
}

static void an_owner_that_cannot_read_is_named_or_replaced(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    rks_fetcher *fetcher = world_fetcher(0, HOSTILE_ONLY);
    the_trick = TRICK_FAIL;
    assert_fails(RKS_ERR_IO, fetch(fetcher, &batch));
    assert_contains(err.text, "row 3: a page cannot be read");
    assert_int_equal(err.rank, 1);
    rks_fetcher_close(fetcher);
    fetcher = world_fetcher(0, HOSTILE_FIRST);
    fetch_and_check(fetcher);
    rks_fetcher_close(fetcher);
}

static void wait_for_request(void)
{
    pthread_mutex_lock(&mutex);
    while (held == NULL)
        pthread_cond_wait(&came, &mutex);
    pthread_mutex_unlock(&mutex);
}

static int stop_now(void *user)
{
    (void)user;
    return 1;
}

static void an_interrupt_ends_the_wait(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    rks_wanted wanted[COUNT];
    rks_fetch *started = NULL;
    rks_fetcher *fetcher = world_fetcher(0, HOSTILE_ONLY);
    the_trick = TRICK_HOLD;
    world_wanted_many(IDS, COUNT, wanted);
    assert_ok(world_start(fetcher, wanted, COUNT, &started, &err), &err);
    wait_for_request();
    assert_false(rks_fetch_ready(started));
    assert_int_equal(rks_fetch_memory(started), 0);
    rks_set_interrupt(stop_now, NULL);
    assert_fails(RKS_ERR_CANCELLED, rks_fetch_wait(started, &batch, &err));
    rks_set_interrupt(NULL, NULL);
    assert_null(batch);
    rks_fetcher_close(fetcher);
    size_t size;
    uint8_t *reply = make_reply(held, 0, SIZE_MAX, &size); /* nobody waits for it any more */
    struct iovec part = {reply, size};
    rks_request_reply(held, &part, 1, free, reply);
    held = NULL;
    the_trick = TRICK_NONE;
    fetcher = world_fetcher(0, HOSTILE_ONLY);
    fetch_and_check(fetcher);
    rks_fetcher_close(fetcher);
}

static void the_end_of_the_engine_ends_the_wait(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    rks_wanted wanted[COUNT];
    rks_fetch *started = NULL;
    rks_fetcher *fetcher =
        world_fetcher(0, HOSTILE_FIRST); /* the other owner cannot be asked then */
    the_trick = TRICK_HOLD;
    world_wanted_many(IDS, COUNT, wanted);
    assert_ok(world_start(fetcher, wanted, COUNT, &started, &err), &err);
    wait_for_request();
    rks_engine_close(w.engines[0], 0);
    w.engines[0] = NULL;
    assert_fails(RKS_ERR_STATE, rks_fetch_wait(started, &batch, &err));
    rks_fetcher_close(fetcher);
}

static void an_owner_that_goes_while_it_is_waited_for_is_named(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    rks_wanted wanted[COUNT];
    rks_fetch *started = NULL;
    rks_fetcher *fetcher = world_fetcher(0, HOSTILE_ONLY);
    the_trick = TRICK_HOLD;
    world_wanted_many(IDS, COUNT, wanted);
    assert_ok(world_start(fetcher, wanted, COUNT, &started, &err), &err);
    wait_for_request();
    rks_error why;
    rks_fail(&why, RKS_ERR_STATE, 0, "over");
    the_trick = TRICK_NONE;
    rks_engine_give_up(w.engines[0], 1, &(rks_error){.status = RKS_ERR_PEER, .rank = 1});
    assert_fails(RKS_ERR_PEER, rks_fetch_wait(started, &batch, &err));
    assert_int_equal(err.rank, 1);
    rks_request_fail(held, &why);
    held = NULL;
    rks_fetcher_close(fetcher);
}

/* Rank 1 beats, since its engine does, but its disk hangs. */
static rks_fetcher *open_impatient(const int32_t *const *owners, uint64_t inflight_bytes)
{
    rks_fetcher *fetcher = NULL;
    rks_fetcher_options options = world_options(0, 0, owners);
    options.timeout_ms = 1000;
    options.inflight_bytes = inflight_bytes;
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    return fetcher;
}

static void an_owner_that_beats_and_sends_nothing_is_named(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    rks_fetcher *fetcher = open_impatient(HOSTILE_ONLY, 0);
    the_trick = TRICK_HOLD;
    alarm(600);
    assert_fails(RKS_ERR_TIMEOUT, fetch(fetcher, &batch));
    alarm(0);
    assert_null(batch);
    assert_int_equal(err.rank, 1);
    assert_contains(err.text, "sample 8 (key key/8)");
    assert_contains(err.text, "1000 ms");
    wait_for_request();
    rks_error why;
    rks_fail(&why, RKS_ERR_STATE, 0, "late");
    rks_request_fail(held, &why);
    held = NULL;
    the_trick = TRICK_NONE; /* it is well again */
    fetch_and_check(fetcher);
    rks_fetcher_close(fetcher);
}

static void an_owner_that_answers_others_is_not_silent(void **state)
{
    (void)state;
    enum { PATIENCE_MS = 10 * 60 * 1000, MOST_OF_IT_MS = PATIENCE_MS / 4 * 3 };
    rks_fetch_server_close(honest);
    honest = NULL;
    world_disconnect();
    world_connect(3, 10 * PATIENCE_MS); /* time passes at a leap, and nobody is lost */
    rks_engine_serve(w.engines[1], RKS_SERVICE_FETCH, hostile_serve, NULL, &w);
    rks_fetcher *fetcher = NULL;
    rks_fetcher_options options = world_options(0, 0, HOSTILE_ONLY);
    options.timeout_ms = PATIENCE_MS;
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    rks_wanted wanted[COUNT];
    rks_fetch *slow = NULL;
    rks_batch *batch = NULL;
    world_wanted_many(IDS, COUNT, wanted);
    the_trick = TRICK_HOLD_FIRST;
    alarm(600);
    assert_ok(world_start(fetcher, wanted, COUNT, &slow, &err), &err);
    wait_for_request();
    for (int i = 0; i < 3; i++) {
        atomic_fetch_add(&ahead_ms, MOST_OF_IT_MS);
        fetch_and_check(fetcher);
        assert_false(rks_fetch_give_up_silent(slow));
    }
    atomic_fetch_add(&ahead_ms, PATIENCE_MS);
    assert_true(rks_fetch_give_up_silent(slow));
    assert_fails(RKS_ERR_TIMEOUT, rks_fetch_wait(slow, &batch, &err));
    alarm(0);
    rks_fetcher_close(fetcher);
}

/* `inflight_bytes` 1: requests have room one after the other. */
static void ask_another_owner(uint64_t inflight_bytes)
{
    rks_fetcher *fetcher = open_impatient(HOSTILE_FIRST, inflight_bytes);
    the_trick = TRICK_HOLD;
    alarm(600);
    fetch_and_check(fetcher);
    assert_int_equal(asked, 1);
    wait_for_request();
    size_t size;
    uint8_t *reply = make_reply(held, 0, SIZE_MAX, &size); /* nobody waits for it any more */
    struct iovec part = {reply, size};
    rks_request_reply(held, &part, 1, free, reply);
    held = NULL;
    fetch_and_check(fetcher); /* of the other one at once */
    alarm(0);
    assert_int_equal(asked, 1);
    rks_fetcher_close(fetcher);
}

static void instead_of_an_owner_that_sends_nothing_another_is_asked(void **state)
{
    (void)state;
    ask_another_owner(0);
}

static void a_request_that_is_given_up_gives_its_room_back(void **state)
{
    (void)state;
    ask_another_owner(1);
}

/* Its owner may take as long as it likes: what is asked next waits for nothing. */
static void a_fetch_that_is_cancelled_gives_its_room_back(void **state)
{
    (void)state;
    rks_wanted wanted[COUNT];
    rks_fetch *started = NULL;
    rks_fetcher *fetcher = open_impatient(HOSTILE_ONLY, 1);
    the_trick = TRICK_HOLD;
    world_wanted_many(IDS, COUNT, wanted);
    assert_ok(world_start(fetcher, wanted, COUNT, &started, &err), &err);
    wait_for_request();
    rks_fetch_cancel(started);
    the_trick = TRICK_NONE;
    alarm(100);
    fetch_and_check(fetcher);
    alarm(0);
    rks_error why;
    rks_fail(&why, RKS_ERR_STATE, 0, "late");
    rks_request_fail(held, &why);
    held = NULL;
    rks_fetcher_close(fetcher);
}

/* Returns the share of inflight_bytes that a request for all IDS takes. */
static uint64_t need_of_ids(void)
{
    uint64_t largest = 0, sum = rks_fetch_reply_table(COUNT) + 2 * RKS_FETCH_ALIGN;
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t record = w.largest[IDS[i] / WORLD_ROWS];
        largest = record > largest ? record : largest;
        sum += record + RKS_FETCH_ALIGN;
    }
    uint64_t limit = rks_fetch_reply_limit(COUNT, largest);
    return sum < limit ? sum : limit;
}

/* With room for one and a half requests, the second is sent only after the first is answered. A
 * request of another fetcher follows it on the same connection: once that is answered, the second
 * would have come. */
static void a_request_that_would_pass_the_cap_waits(void **state)
{
    (void)state;
    rks_wanted wanted[COUNT];
    rks_fetch *first = NULL, *second = NULL;
    rks_batch *batch = NULL;
    rks_fetcher *fetcher = NULL, *other = world_fetcher(0, HOSTILE_ONLY);
    rks_fetcher_options options = world_options(0, 0, HOSTILE_ONLY);
    options.inflight_bytes = need_of_ids() * 3 / 2;
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    world_wanted_many(IDS, COUNT, wanted);
    the_trick = TRICK_HOLD;
    assert_ok(world_start(fetcher, wanted, COUNT, &first, &err), &err);
    wait_for_request();
    the_trick = TRICK_NONE;
    assert_ok(world_start(fetcher, wanted, COUNT, &second, &err), &err);
    fetch_and_check(other);
    assert_int_equal(asked, 2);
    size_t size;
    uint8_t *reply = make_reply(held, 0, SIZE_MAX, &size);
    struct iovec part = {reply, size};
    rks_request_reply(held, &part, 1, free, reply);
    held = NULL;
    for (int i = 0; i < 2; i++) {
        assert_ok(rks_fetch_wait(i == 0 ? first : second, &batch, &err), &err);
        world_check_batch(batch, IDS, COUNT);
        rks_batch_free(batch);
    }
    assert_int_equal(asked, 3);
    rks_fetcher_close(fetcher);
    rks_fetcher_close(other);
}

#define CONNECTED(test) cmocka_unit_test_setup_teardown(test, connect_world, disconnect_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONNECTED(every_flipped_byte_of_a_reply_is_refused_or_does_no_harm),
        CONNECTED(every_short_reply_is_refused),
        CONNECTED(a_reply_with_a_wrong_count_is_refused),
        CONNECTED(a_reply_above_what_is_possible_is_not_taken_in),
        CONNECTED(records_of_other_rows_are_found),
        CONNECTED(what_was_not_served_is_asked_for_again),
        CONNECTED(a_connection_cut_in_the_middle_is_made_again),
        CONNECTED(after_four_cuts_another_owner_is_asked),
        CONNECTED(an_owner_that_cannot_read_is_named_or_replaced),
        CONNECTED(an_interrupt_ends_the_wait),
        CONNECTED(the_end_of_the_engine_ends_the_wait),
        CONNECTED(an_owner_that_goes_while_it_is_waited_for_is_named),
        CONNECTED(an_owner_that_beats_and_sends_nothing_is_named),
        CONNECTED(an_owner_that_answers_others_is_not_silent),
        CONNECTED(instead_of_an_owner_that_sends_nothing_another_is_asked),
        CONNECTED(a_request_that_is_given_up_gives_its_room_back),
        CONNECTED(a_fetch_that_is_cancelled_gives_its_room_back),
        CONNECTED(a_request_that_would_pass_the_cap_waits),
    };
    return cmocka_run_group_tests_name("fetch_hostile", tests, open_world, close_world);
}
