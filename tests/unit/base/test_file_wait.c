/* SPDX-License-Identifier: Apache-2.0
 *
 * test_file_wait.c: work that ends, that is slow, that hangs, and that is interrupted. What hangs
 * waits in a read of a pipe, and heals when the pipe is closed. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_wait.h"
#include "base/memory.h"
#include "base/thread.h"
#include "support/check.h"

enum { LIMIT_MS = 1000, OUTER_MS = 60000 };

static atomic_int dropped;

typedef struct state {
    int pipe[2];
    rks_status result;
    bool helper; /* another thread of the work reads */
    int naps;
} state;

static state *make_state(void)
{
    state *s = rks_alloc(1, sizeof(*s), NULL);
    assert_non_null(s);
    assert_int_equal(pipe(s->pipe), 0);
    return s;
}

static void drop(void *user)
{
    state *s = user;
    close(s->pipe[0]);
    rks_free(s);
    atomic_fetch_add(&dropped, 1);
}

static void end(state *s)
{
    close(s->pipe[1]);
    drop(s);
}

static rks_status finish(void *user, rks_error *err)
{
    const state *s = user;
    rks_file_wait_at("there");
    return s->result == RKS_OK ? RKS_OK : rks_fail(err, s->result, 0, "as the test wants it");
}

static rks_status hang(void *user, rks_error *err)
{
    const state *s = user;
    char byte;
    (void)err;
    rks_file_wait_at("/mnt/first");
    rks_file_wait_at("/mnt/data");
    return read(s->pipe[0], &byte, 1) == 0 ? RKS_OK : RKS_ERR_IO;
}

/* Gets a little now and then, for longer than the limit. */
static void nap_on(const state *s)
{
    for (int i = 0; i < s->naps; i++) {
        const struct timespec nap = {.tv_nsec = LIMIT_MS / 4 * 1000000L};
        nanosleep(&nap, NULL);
    }
}

typedef struct helping {
    const state *s;
    rks_file_job *job;
} helping;

static void *help(void *user)
{
    const helping *h = user;
    rks_file_wait_enter(h->job);
    nap_on(h->s);
    rks_file_wait_leave(h->job);
    return NULL;
}

static rks_status go_slowly(void *user, rks_error *err)
{
    const state *s = user;
    helping h = {s, rks_file_wait_job()};
    pthread_t thread;
    (void)err;
    if (!s->helper) {
        nap_on(s);
        return RKS_OK;
    }
    assert_int_equal(rks_thread_start_reader(&thread, help, &h), 0);
    pthread_join(thread, NULL);
    return RKS_OK;
}

static void wait_for_drops(int count)
{
    const uint64_t until = rks_now_ms() + OUTER_MS;
    while (atomic_load(&dropped) < count && rks_now_ms() < until) {
        const struct timespec nap = {.tv_nsec = 1000000};
        nanosleep(&nap, NULL);
    }
    assert_int_equal(atomic_load(&dropped), count);
}

static void work_that_ends_gives_its_status(void **unused)
{
    (void)unused;
    bool left = true;
    rks_error err = {0};
    for (int i = 0; i < 2; i++) {
        state *s = make_state();
        s->result = i == 0 ? RKS_OK : RKS_ERR_CORRUPT;
        const rks_file_work work = {.run = finish, .drop = drop, .state = s};
        assert_int_equal(rks_file_wait(&work, LIMIT_MS, &left, &err), s->result);
        assert_false(left);
        end(s);
    }
    assert_string_equal(err.text, "as the test wants it");
    assert_null(rks_file_wait_job());
}

static void work_that_hangs_is_given_up_and_frees_its_state_later(void **unused)
{
    (void)unused;
    bool left = false;
    rks_error err = {0};
    state *s = make_state();
    const int held = s->pipe[1], before = atomic_load(&dropped);
    const rks_file_work work = {.run = hang, .drop = drop, .state = s};
    const uint64_t begun = rks_now_ms();
    assert_int_equal(rks_file_wait(&work, LIMIT_MS, &left, &err), RKS_ERR_TIMEOUT);
    assert_true(left && rks_now_ms() - begun >= LIMIT_MS);
    assert_non_null(strstr(err.text, "/mnt/data: its storage has not answered for 1.0 s"));
    assert_int_equal(atomic_load(&dropped), before);
    close(held);
    wait_for_drops(before + 1);
}

static void slow_work_is_waited_for(void **unused)
{
    (void)unused;
    for (int helper = 0; helper < 2; helper++) {
        bool left = true;
        rks_error err = {0};
        state *s = make_state();
        s->naps = 10;
        s->helper = helper == 1;
        const rks_file_work work = {.run = go_slowly, .drop = drop, .state = s};
        assert_ok(rks_file_wait(&work, LIMIT_MS, &left, &err), &err);
        assert_false(left);
        end(s);
    }
}

/* ---- what the work asks of its caller ---------------------------------------------------------
 */

static pthread_t caller;
static atomic_int asked;

static rks_status count_question(void *user, rks_error *err)
{
    const state *s = user;
    assert_true(pthread_equal(pthread_self(), caller));
    const int number = atomic_fetch_add(&asked, 1);
    if (s->naps > 0 && number == 0) /* longer than the limit: the storage has no part in it */
        nap_on(s);
    return number == 5 ? rks_fail(err, RKS_ERR_CORRUPT, 0, "question %d", number) : RKS_OK;
}

static rks_status ask_on(void *user, rks_error *err)
{
    rks_status status = RKS_OK;
    while (status == RKS_OK)
        status = rks_file_wait_ask(count_question, user, err);
    return status;
}

static void the_caller_s_thread_does_what_work_asks(void **unused)
{
    (void)unused;
    for (int naps = 0; naps <= 10; naps += 10) {
        bool left = true;
        rks_error err = {0};
        state *s = make_state();
        s->naps = naps;
        caller = pthread_self();
        atomic_store(&asked, 0);
        const rks_file_work work = {.run = ask_on, .drop = drop, .state = s};
        assert_int_equal(rks_file_wait(&work, LIMIT_MS, &left, &err), RKS_ERR_CORRUPT);
        assert_string_equal(err.text, "question 5");
        assert_false(left);
        assert_int_equal(atomic_load(&asked), 6);
        end(s);
    }
}

static rks_status hang_and_ask(void *user, rks_error *err)
{
    rks_status status = hang(user, err);
    assert_int_equal(rks_file_wait_ask(count_question, user, err), RKS_ERR_CANCELLED);
    return status;
}

static void a_question_after_the_caller_has_gone_is_refused(void **unused)
{
    (void)unused;
    bool left = false;
    rks_error err = {0};
    state *s = make_state();
    const int held = s->pipe[1], before = atomic_load(&dropped);
    atomic_store(&asked, 0);
    const rks_file_work work = {.run = hang_and_ask, .drop = drop, .state = s};
    assert_int_equal(rks_file_wait(&work, LIMIT_MS, &left, &err), RKS_ERR_TIMEOUT);
    close(held);
    wait_for_drops(before + 1);
    assert_int_equal(atomic_load(&asked), 0);
}

static rks_status stop_later(void *user, uint64_t quiet_ms, rks_error *err)
{
    atomic_fetch_add((atomic_int *)user, 1);
    return quiet_ms >= LIMIT_MS / 2 ? rks_fail(err, RKS_ERR_PEER, 0, "a rank is lost") : RKS_OK;
}

static void the_caller_is_asked_meanwhile(void **unused)
{
    (void)unused;
    bool left = false;
    atomic_int looks = 0;
    rks_error err = {0};
    state *s = make_state();
    const int held = s->pipe[1], before = atomic_load(&dropped);
    const rks_file_work work = {.run = hang,
                                .drop = drop,
                                .state = s,
                                .meanwhile = stop_later,
                                .user = &looks,
                                .limit_is_fixed = true};
    assert_int_equal(rks_file_wait(&work, OUTER_MS, &left, &err), RKS_ERR_PEER);
    assert_true(left && atomic_load(&looks) >= 2);
    close(held);
    wait_for_drops(before + 1);
}

static int interrupt(void *user)
{
    (void)user;
    return 1;
}

static void an_interrupt_ends_the_wait(void **unused)
{
    (void)unused;
    bool left = false;
    rks_error err = {0};
    state *s = make_state();
    const int held = s->pipe[1], before = atomic_load(&dropped);
    const rks_file_work work = {.run = hang, .drop = drop, .state = s};
    rks_set_interrupt(interrupt, NULL);
    assert_int_equal(rks_file_wait(&work, OUTER_MS, &left, &err), RKS_ERR_CANCELLED);
    rks_set_interrupt(NULL, NULL);
    assert_true(left);
    close(held);
    wait_for_drops(before + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_that_ends_gives_its_status),
        cmocka_unit_test(work_that_hangs_is_given_up_and_frees_its_state_later),
        cmocka_unit_test(slow_work_is_waited_for),
        cmocka_unit_test(the_caller_s_thread_does_what_work_asks),
        cmocka_unit_test(a_question_after_the_caller_has_gone_is_refused),
        cmocka_unit_test(the_caller_is_asked_meanwhile),
        cmocka_unit_test(an_interrupt_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
